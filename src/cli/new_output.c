#include "cli/new_output.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"

static bool is_open_at(int descriptor, const struct stat *info) {
    struct stat open;
    return fstat(descriptor, &open) == 0 && open.st_dev == info->st_dev && open.st_ino == info->st_ino;
}

/* Replacing the file of `-o /dev/stdout > FILE` would lose what the command prints. */
static enum status refuse_standard_output(const char *path, const struct stat *info) {
    if (!is_open_at(STDOUT_FILENO, info) && !is_open_at(STDERR_FILENO, info)) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "%s: standard output or standard error is redirected to this file", path);
    return status_hint(STATUS_BAD_INPUT, "name another file");
}

enum status new_file_check(const char *path, const char *kind, enum status (*read)(const char *path)) {
    struct stat info;
    if (stat(path, &info) != 0) {
        if (lstat(path, &info) != 0 || !S_ISLNK(info.st_mode)) return STATUS_OK;
        return status_set(STATUS_BAD_INPUT, "%s: is a symbolic link to a missing file" HINT "remove the link", path);
    }
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) return STATUS_OK;
    TRY(refuse_standard_output(path, &info));
    if (S_ISREG(info.st_mode) && (info.st_size == 0 || read(path) == STATUS_OK)) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "%s: exists and is not %s; it is left as it is", path, kind);
    return status_hint(STATUS_BAD_INPUT, "give -o a new file, or one of the same kind, which is replaced");
}

enum status file_check_start(const char *path, const char *start, const char *kind) {
    AUTO_FREE char *text = NULL;
    size_t bytes;
    TRY(file_read(path, (size_t)1 << 26, &text, &bytes));
    return strncmp(text, start, strlen(start)) == 0 ? STATUS_OK
                                                    : status_set(STATUS_BAD_INPUT, "%s: is no %s", path, kind);
}

enum status new_file_write(const char *path, const char *text, size_t bytes) {
    struct stat info;
    bool linked = lstat(path, &info) == 0 && S_ISLNK(info.st_mode) && stat(path, &info) == 0 && S_ISREG(info.st_mode);
    if (!linked) return file_replace(path, text, bytes);
    char *target = realpath(path, NULL);
    if (!target) return status_set(STATUS_FAILED, "%s: cannot follow the link: %s", path, strerror(errno));
    enum status status = file_replace(target, text, bytes);
    free(target);
    return status;
}

enum status new_file_write_json(const char *path, const json_t *value, size_t flags) {
    AUTO_FREE char *text = json_text(value, flags);
    if (!text) return STATUS_FAILED;
    size_t length = strlen(text);
    text[length] = '\n'; /* replaces the NUL */
    return new_file_write(path, text, length + 1);
}

enum status new_folder_check(const char *folder) {
    AUTO(names_free) struct names names = {0};
    if (!file_exists(folder)) return STATUS_OK;
    if (!file_is_folder(folder)) return status_set(STATUS_BAD_INPUT, "%s: exists and is no directory", folder);
    TRY(folder_list(folder, &names));
    if (names.count == 0) return STATUS_OK;
    enum status status = status_set(STATUS_BAD_INPUT, "%s: already holds something else; nothing was written", folder);
    return status_hint(status, "give a directory that does not exist or is empty");
}

static char *without_slashes(const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    return mem_format("%.*s", (int)length, path);
}

/* Removes the directory, and keeps the message of the original failure. */
static void remove_keeping_message(const char *folder, enum status status) {
    char *message = mem_string(status_message()), *hint = mem_string(status_hint_text());
    (void)folder_remove(folder);
    if (message) status_set(status, "%s", message);
    if (message && hint && hint[0]) status_hint(status, "%s", hint);
    mem_free(message);
    mem_free(hint);
}

static const char beside_prefix[] = ".ballast-new-";

/* Removes a directory if no process holds its lock: the process that created it was killed. */
static void remove_abandoned(const char *path) {
    int lock;
    bool locked;
    if (folder_lock(path, &lock, &locked) != STATUS_OK) return;
    if (locked && folder_is_at(path, lock)) (void)folder_remove(path);
    close(lock);
}

/* Removes abandoned directories next to `beside`. One that cannot be removed does no harm. */
static enum status remove_leftovers(const char *beside) {
    struct names names = {0};
    const char *slash = strrchr(beside, '/');
    char *parent = mem_format("%.*s.", slash ? (int)(slash - beside + 1) : 0, beside);
    if (!parent) return STATUS_FAILED;
    /* A parent that does not exist yet has no leftovers. An unreadable one is skipped. */
    enum status status = access(parent, R_OK) == 0 ? folder_list(parent, &names) : STATUS_OK;
    for (size_t i = 0; i < names.count; i++) {
        if (!name_is_beside(names.items[i], beside_prefix)) continue;
        char *path = path_join(parent, names.items[i]);
        if (path) remove_abandoned(path);
        mem_free(path);
    }
    names_free(&names);
    mem_free(parent);
    return status == STATUS_OK ? STATUS_OK : STATUS_FAILED;
}

/* Between creation and locking, another process may remove the directory as abandoned. */
static enum status create_locked(const char *beside, int *lock) {
    TRY(folder_create(beside));
    TRY(folder_lock(beside, lock, NULL));
    if (folder_is_at(beside, *lock)) return STATUS_OK;
    close(*lock);
    return status_set(STATUS_FAILED, "%s: was removed", beside);
}

static enum status write_beside(const char *beside, const char *path,
                                enum status (*write)(void *payload, const char *path), void *payload) {
    int lock;
    TRY(remove_leftovers(beside));
    TRY(create_locked(beside, &lock));
    enum status status = write(payload, beside);
    if (status == STATUS_OK) status = folder_publish(beside, path);
    close(lock);
    return status;
}

enum status new_folder_write(const char *folder, enum status (*write)(void *payload, const char *path), void *payload) {
    TRY(new_folder_check(folder));
    AUTO_FREE char *path = without_slashes(folder), *beside = path ? path_beside(path, beside_prefix) : NULL;
    enum status status = beside ? write_beside(beside, path, write, payload) : STATUS_FAILED;
    if (status != STATUS_OK && beside) remove_keeping_message(beside, status);
    return status;
}
