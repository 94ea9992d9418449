#include "data/token_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/fault.h"
#include "base/mem.h"

static const char magic[8] = "BALMAKES";

static uint64_t find_boot(void) {
    char text[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file && !fgets(text, sizeof text, file)) text[0] = '\0';
    if (file) fclose(file);
    return XXH3_64bits(text, strlen(text));
}

/* Whoever lets go removes the file first: one that was opened before that is nobody's any more. */
static bool is_in_place(const struct token_lock *lock) {
    struct stat here, there;
    return fstat(lock->descriptor, &here) == 0 && stat(lock->path, &there) == 0 && here.st_ino == there.st_ino &&
           here.st_dev == there.st_dev;
}

static enum token_lock_state take(struct token_lock *lock) {
    if (flock(lock->descriptor, LOCK_EX | LOCK_NB) == 0) {
        lock->mine = is_in_place(lock);
        return lock->mine ? TOKEN_LOCK_MINE : TOKEN_LOCK_NONE;
    }
    return errno == EWOULDBLOCK ? TOKEN_LOCK_OTHERS : TOKEN_LOCK_NONE;
}

/* A file that was removed in between is opened once more, as often as that happens. */
static enum token_lock_state open_and_take(struct token_lock *lock) {
    enum { TRIES = 100 };
    for (int i = 0; i < TRIES; i++) {
        int file = fault_point(FAULT_OPEN) ? -1 : open(lock->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (file < 0) return TOKEN_LOCK_NONE;
        lock->descriptor = file;
        lock->open = true;
        enum token_lock_state state = take(lock);
        if (state != TOKEN_LOCK_NONE) return state;
        bool removed = !is_in_place(lock);
        close(file);
        lock->open = false;
        if (!removed) return TOKEN_LOCK_NONE;
    }
    return TOKEN_LOCK_NONE;
}

enum token_lock_state token_lock_open(const char *path, struct token_lock *out) {
    *out = (struct token_lock){.path = mem_format("%s.lock", path)};
    return out->path ? open_and_take(out) : TOKEN_LOCK_NONE;
}

enum token_lock_state token_lock_retry(struct token_lock *lock) {
    enum token_lock_state state = take(lock);
    if (state != TOKEN_LOCK_NONE) return state;
    close(lock->descriptor);
    lock->open = false;
    return open_and_take(lock);
}

static uint64_t hash_making(const struct token_making *making) {
    return XXH3_64bits(making, offsetof(struct token_making, self));
}

void token_lock_write(const struct token_lock *lock, uint64_t key, int64_t count, uint64_t text_bytes,
                      const char *file) {
    struct token_making making = {
        .boot = find_boot(), .pid = getpid(), .key = key, .count = count, .text_bytes = text_bytes};
    if (!lock->mine || strlen(file) >= sizeof making.file) return;
    memcpy(making.magic, magic, sizeof magic);
    memcpy(making.file, file, strlen(file));
    making.self = hash_making(&making);
    if (fault_point(FAULT_WRITE) || pwrite(lock->descriptor, &making, sizeof making, 0) < 0) return;
}

bool token_lock_read(const struct token_lock *lock, struct token_making *out) {
    ssize_t got = fault_point(FAULT_READ) ? -1 : pread(lock->descriptor, out, sizeof *out, 0);
    return got == (ssize_t)sizeof *out && memcmp(out->magic, magic, sizeof magic) == 0 &&
           out->self == hash_making(out) && out->file[sizeof out->file - 1] == '\0';
}

bool token_making_is_near(const struct token_making *making) {
    return making->boot == find_boot() && making->pid != getpid();
}

void token_lock_close(struct token_lock *lock) {
    if (lock->open && lock->mine) unlink(lock->path);
    if (lock->open) close(lock->descriptor);
    mem_free(lock->path);
    *lock = (struct token_lock){0};
}
