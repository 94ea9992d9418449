#include "comm/launch_places.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/mem.h"

static const char prefix[] = "ballast-";

void launch_print_name(pid_t process, uint64_t mark, char name[LAUNCH_NAME_BYTES]) {
    snprintf(name, LAUNCH_NAME_BYTES, "%s%d-%016" PRIx64, prefix, (int)process, mark);
}

/* False for a name that launch_print_name would not print. */
static bool read_name(const char *name, pid_t *process) {
    char again[LAUNCH_NAME_BYTES], *end;
    size_t length = strlen(prefix);
    if (strncmp(name, prefix, length) != 0 || !isdigit((unsigned char)name[length])) return false;
    long number = strtol(name + length, &end, 10);
    if (*end != '-' || number <= 0 || number > INT32_MAX) return false;
    *process = (pid_t)number;
    launch_print_name(*process, strtoull(end + 1, NULL, 16), again);
    return strcmp(name, again) == 0;
}

static const char *parent_of(enum launch_place place) {
    const char *temporary = getenv("TMPDIR");
    if (place == LAUNCH_SHARED) return "/dev/shm";
    return temporary && *temporary ? temporary : "/tmp";
}

/* Where the file system has no locks, no launch takes the directory for a dead one's. */
static enum status create(const char *name, enum launch_place place, struct launch_places *out) {
    char *path = path_join(parent_of(place), name);
    if (!path) return STATUS_FAILED;
    if (mkdir(path, 0700) != 0) {
        enum status status = status_set(STATUS_FAILED, "%s: cannot create: %s", path, strerror(errno));
        mem_free(path);
        return place == LAUNCH_SHARED ? STATUS_OK : status_hint(status, "TMPDIR names a directory to write to");
    }
    enum status status = folder_lock(path, &out->lock[place], NULL);
    if (status != STATUS_OK) {
        (void)rmdir(path);
        mem_free(path);
        return status;
    }
    out->path[place] = path;
    return STATUS_OK;
}

enum status launch_places_create(const char *name, struct launch_places *out) {
    *out = (struct launch_places){0};
    enum status status = STATUS_OK;
    for (enum launch_place place = 0; place < LAUNCH_PLACES && status == STATUS_OK; place++)
        status = create(name, place, out);
    if (status != STATUS_OK) launch_places_remove(out);
    return status;
}

void launch_places_inherit(const struct launch_places *places) {
    for (int i = 0; i < LAUNCH_PLACES; i++)
        if (places->path[i]) (void)fcntl(places->lock[i], F_SETFD, 0);
}

void launch_places_remove(struct launch_places *places) {
    for (int i = 0; i < LAUNCH_PLACES; i++) {
        if (!places->path[i]) continue;
        (void)folder_remove(places->path[i]);
        close(places->lock[i]);
        mem_free(places->path[i]);
    }
    *places = (struct launch_places){0};
}

/* A process of another namespace has no number here, but holds its lock. */
static bool is_dead(const char *path, pid_t process) {
    struct stat info;
    bool own = lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
    return own && kill(process, 0) != 0 && errno == ESRCH;
}

static void remove_dead(const char *parent, const char *name) {
    pid_t process;
    if (!read_name(name, &process)) return;
    char *path = path_join(parent, name);
    int lock;
    bool locked = false;
    if (path && is_dead(path, process) && folder_lock(path, &lock, &locked) == STATUS_OK) {
        if (locked) (void)folder_remove(path);
        close(lock);
    }
    mem_free(path);
}

void launch_places_clear(void) {
    for (enum launch_place place = 0; place < LAUNCH_PLACES; place++) {
        struct names names = {0};
        if (folder_list(parent_of(place), &names) == STATUS_OK)
            for (size_t i = 0; i < names.count; i++)
                remove_dead(parent_of(place), names.items[i]);
        names_free(&names);
    }
    status_clear();
}
