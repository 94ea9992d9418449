#include "support/temp_folder.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/folder.h"
#include "support/unit.h"

/* Strings handed out by temp_path, newest first. */
struct kept_path {
    struct kept_path *next;
    char text[];
};
static struct kept_path *kept_paths;

const char *temp_path(const char *folder, const char *name) {
    size_t bytes = strlen(folder) + strlen(name) + 2;
    struct kept_path *path = malloc(sizeof *path + bytes);
    if (!path) fail_msg("out of memory");
    snprintf(path->text, bytes, "%s/%s", folder, name);
    path->next = kept_paths;
    kept_paths = path;
    return path->text;
}

int temp_folder_make(void **state) {
    const char *parent = getenv("TMPDIR");
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/ballast-test-XXXXXX", parent && parent[0] ? parent : "/tmp");
    if (!mkdtemp(path)) return -1;
    *state = strdup(path);
    return *state ? 0 : -1;
}

int temp_folder_drop(void **state) {
    enum status status = folder_remove(*state);
    if (status != STATUS_OK) print_error("%s\n", status_message());
    for (struct kept_path *next; kept_paths; kept_paths = next) {
        next = kept_paths->next;
        free(kept_paths);
    }
    free(*state);
    *state = NULL;
    return status == STATUS_OK ? 0 : -1;
}

size_t temp_count(const char *folder) {
    struct names names;
    assert_int_equal(folder_list(folder, &names), STATUS_OK);
    size_t count = names.count;
    names_free(&names);
    return count;
}

const char *temp_only(const char *folder) {
    struct names names;
    assert_int_equal(folder_list(folder, &names), STATUS_OK);
    assert_int_equal(names.count, 1);
    const char *path = temp_path(folder, names.items[0]);
    names_free(&names);
    return path;
}

void temp_write(const char *path, const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    if (!file) fail_msg("%s: cannot create", path);
    size_t put = bytes > 0 ? fwrite(data, 1, bytes, file) : 0;
    if (put != bytes || fclose(file) != 0) fail_msg("%s: cannot write", path);
}

void temp_write_text(const char *path, const char *text) { temp_write(path, text, strlen(text)); }
