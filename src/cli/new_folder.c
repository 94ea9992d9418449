#include "cli/new_folder.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"

enum status new_folder_check(const char *folder) {
    struct names names = {0};
    if (!file_exists(folder)) return STATUS_OK;
    if (!file_is_folder(folder)) return status_set(STATUS_BAD_INPUT, "%s: exists and is no folder", folder);
    TRY(folder_list(folder, &names));
    size_t count = names.count;
    names_free(&names);
    if (count == 0) return STATUS_OK;
    enum status status = status_set(STATUS_BAD_INPUT, "%s: already holds something else; nothing was written", folder);
    return status_hint(status, "give a folder that does not exist or is empty");
}

static char *without_slashes(const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    return mem_format("%.*s", (int)length, path);
}

/* The message to keep is that of the failure. */
static void remove_keeping_message(const char *folder, enum status status) {
    char *message = mem_string(status_message()), *hint = mem_string(status_hint_text());
    (void)folder_remove(folder);
    if (message) status_set(status, "%s", message);
    if (message && hint && hint[0]) status_hint(status, "%s", hint);
    mem_free(message);
    mem_free(hint);
}

enum status new_folder_write(const char *folder, enum status (*write)(void *payload, const char *path), void *payload) {
    TRY(new_folder_check(folder));
    char *path = without_slashes(folder);
    char *beside = path ? mem_format("%s.new-%d", path, (int)getpid()) : NULL;
    enum status status = beside ? folder_create(beside) : STATUS_FAILED;
    if (status == STATUS_OK) status = write(payload, beside);
    if (status == STATUS_OK) status = folder_publish(beside, path);
    if (status != STATUS_OK && beside) remove_keeping_message(beside, status);
    mem_free(beside);
    mem_free(path);
    return status;
}
