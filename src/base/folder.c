#include "base/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"

static enum status folder_failed(const char *path, const char *doing) {
    return status_set(STATUS_FAILED, "%s: cannot %s: %s", path, doing, strerror(errno));
}

bool file_exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

bool file_is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool folder_holds(const char *folder, const char *name) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length > 0 && (size_t)length < sizeof path && file_exists(path);
}

static enum status sync_path(const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    bool good = file >= 0 && !fault_point(FAULT_SYNC) && fsync(file) == 0;
    enum status status = good ? STATUS_OK : folder_failed(path, "sync");
    if (file >= 0) close(file);
    return status;
}

static char *path_parent(const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    return length == 0 ? mem_string(".") : mem_format("%.*s", (int)length, path);
}

enum status folder_sync_parent(const char *path) {
    char *parent = path_parent(path);
    enum status status = parent ? sync_path(parent) : STATUS_FAILED;
    mem_free(parent);
    return status;
}

enum status folder_create_one(const char *path) {
    if (!fault_point(FAULT_OPEN) && mkdir(path, 0777) == 0) return folder_sync_parent(path);
    return errno == EEXIST ? STATUS_OK : folder_failed(path, "create directory");
}

enum status folder_create(const char *path) {
    char part[PATH_MAX];
    if (path[0] == '\0') return status_set(STATUS_FAILED, "a directory without a name cannot be created");
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        return status_set(STATUS_FAILED, "%s: path too long", path);
    for (char *at = part + 1;; at++) {
        if (*at != '/' && *at != '\0') continue;
        char kept = *at;
        *at = '\0';
        TRY(folder_create_one(part));
        *at = kept;
        if (kept == '\0') break;
    }
    return file_is_folder(path) ? STATUS_OK : status_set(STATUS_FAILED, "%s: exists and is not a directory", path);
}

/* Calls `visitor` on each thing in the directory until one fails. */
static enum status call_for_children(const char *path, enum status (*visitor)(const char *child)) {
    struct names names = {0};
    if (folder_list(path, &names) != STATUS_OK) return STATUS_FAILED;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < names.count && status == STATUS_OK; i++) {
        char *child = path_join(path, names.items[i]);
        status = child ? visitor(child) : STATUS_FAILED;
        mem_free(child);
    }
    names_free(&names);
    return status;
}

enum status folder_remove(const char *path) {
    struct stat info;
    if (lstat(path, &info) != 0) return errno == ENOENT ? STATUS_OK : folder_failed(path, "examine");
    if (!S_ISDIR(info.st_mode)) return unlink(path) == 0 ? STATUS_OK : folder_failed(path, "remove");
    TRY(call_for_children(path, folder_remove));
    return rmdir(path) == 0 ? STATUS_OK : folder_failed(path, "remove");
}

/* Files were synced by their writers; a second time would cost a flush of the disk's cache for each. */
static enum status sync_folders(const char *path) {
    struct stat info;
    if (lstat(path, &info) != 0) return folder_failed(path, "examine");
    if (!S_ISDIR(info.st_mode)) return STATUS_OK;
    TRY(call_for_children(path, sync_folders));
    return sync_path(path);
}

enum status file_rename(const char *from, const char *to) {
    char *parent = path_parent(to); /* before the rename, so that its failure changes nothing */
    if (!parent) return STATUS_FAILED;
    enum status status;
    if (fault_point(FAULT_RENAME) || rename(from, to) != 0)
        status = status_set(STATUS_FAILED, "%s: cannot rename to %s: %s", from, to, strerror(errno));
    else
        status = sync_path(parent);
    mem_free(parent);
    return status;
}

enum status folder_publish(const char *from, const char *to) {
    TRY(sync_folders(from));
    return file_rename(from, to);
}

bool folder_is_at(const char *path, int descriptor) {
    struct stat there, open;
    return stat(path, &there) == 0 && fstat(descriptor, &open) == 0 && there.st_dev == open.st_dev &&
           there.st_ino == open.st_ino;
}

enum status folder_lock(const char *path, int *descriptor, bool *locked) {
    int folder = fault_point(FAULT_OPEN) ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return status_set(STATUS_BAD_INPUT, "%s: cannot open: %s", path, strerror(errno));
    bool taken = flock(folder, LOCK_EX | LOCK_NB) == 0;
    if (!taken && errno == EWOULDBLOCK) {
        close(folder);
        return status_set(STATUS_BAD_INPUT, "%s: another process is working on it", path);
    }
    *descriptor = folder;
    if (locked) *locked = taken;
    return STATUS_OK;
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static enum status read_names(const char *path, DIR *folder, struct names *names) {
    for (;;) {
        errno = 0; /* readdir tells its end from a failure by errno alone */
        struct dirent *entry = fault_point(FAULT_READ) ? NULL : readdir(folder);
        if (!entry && errno != 0) return status_set(STATUS_BAD_INPUT, "%s: cannot list: %s", path, strerror(errno));
        if (!entry) return STATUS_OK;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char *name = mem_string(entry->d_name);
        enum status status = name ? vec_push(names, name) : STATUS_FAILED;
        if (status != STATUS_OK) {
            mem_free(name);
            return status;
        }
    }
}

enum status folder_list(const char *path, struct names *out) {
    DIR *folder = fault_point(FAULT_OPEN) ? NULL : opendir(path);
    if (!folder) return status_set(STATUS_BAD_INPUT, "%s: cannot list: %s", path, strerror(errno));
    struct names names = {0};
    enum status status = read_names(path, folder, &names);
    closedir(folder);
    if (status != STATUS_OK) {
        names_free(&names);
        return status;
    }
    if (names.count > 0) qsort(names.items, names.count, sizeof *names.items, compare_names);
    *out = names;
    return STATUS_OK;
}

void names_free(struct names *names) {
    for (size_t i = 0; i < names->count; i++)
        mem_free(names->items[i]);
    vec_free(names);
}

char *path_join(const char *folder, const char *name) {
    size_t length = strlen(folder);
    const char *between = length == 0 || folder[length - 1] == '/' ? "" : "/";
    return mem_format("%s%s%s", folder, between, name);
}

enum { BESIDE_DIGITS = 16 };

char *path_beside(const char *path, const char *prefix) {
    uint64_t number;
    const char *slash = strrchr(path, '/');
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) {
        (void)folder_failed(path, "name a temporary file for");
        return NULL;
    }
    return mem_format("%.*s%s%0*" PRIx64, slash ? (int)(slash - path + 1) : 0, path, prefix, BESIDE_DIGITS, number);
}

bool name_is_beside(const char *name, const char *prefix) {
    size_t length = strlen(prefix);
    if (strncmp(name, prefix, length) != 0) return false;
    return strspn(name + length, "0123456789abcdef") == BESIDE_DIGITS && name[length + BESIDE_DIGITS] == '\0';
}

bool path_ends(const char *path, const char *suffix) {
    size_t length = strlen(path), tail = strlen(suffix);
    return length >= tail && strcmp(path + length - tail, suffix) == 0;
}

const char *path_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

const char *path_for_shell(const char *path, char text[PATH_SHELL_BYTES]) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:,@%";
    size_t quotes = 0;
    for (const char *c = path; *c; c++)
        quotes += *c == '\'';
    bool fits = strlen(path) + 3 * quotes + 3 <= PATH_SHELL_BYTES;
    if (!fits || (*path && !path[strspn(path, plain)])) return path;
    char *end = text;
    *end++ = '\'';
    for (const char *c = path; *c; c++) {
        if (*c == '\'') end = stpcpy(end, "'\\'");
        *end++ = *c;
    }
    *end++ = '\'';
    *end = '\0';
    return text;
}

char *cache_folder(void) {
    const char *cache = getenv("XDG_CACHE_HOME"), *user_folder = getenv("HOME");
    if (cache && cache[0] == '/') return path_join(cache, "ballast");
    const struct passwd *user = user_folder && user_folder[0] ? NULL : getpwuid(getuid());
    if (user) user_folder = user->pw_dir;
    return user_folder && user_folder[0] ? path_join(user_folder, ".cache/ballast") : mem_string(".ballast-cache");
}
