/* An LD_PRELOAD library that kills the process with SIGKILL at the KILL_AT-th operation that changes files. If that
 * is a write of more than a page, it writes half first, because a signal ends such a write between pages. Each
 * operation adds a byte to the file KILL_LOG. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096 };
static atomic_long done;

static long kill_at(void) {
    const char *text = getenv("KILL_AT");
    return text ? atol(text) : 0;
}

/* Whether the process ends here. */
static int is_last(void) {
    const char *log = getenv("KILL_LOG");
    int file = log ? (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file >= 0) {
        syscall(SYS_write, file, "x", 1);
        syscall(SYS_close, file);
    }
    return atomic_fetch_add(&done, 1) + 1 == kill_at();
}

static void end(void) {
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static void step(void) {
    if (is_last()) end();
}

static int is_regular(int file) {
    struct stat what;
    return fstat(file, &what) == 0 && S_ISREG(what.st_mode);
}

ssize_t write(int file, const void *data, size_t bytes) {
    if (is_regular(file) && is_last()) {
        if (bytes > PAGE) syscall(SYS_write, file, data, bytes / 2);
        end();
    }
    return syscall(SYS_write, file, data, bytes);
}

ssize_t pwrite(int file, const void *data, size_t bytes, off_t offset) {
    if (is_regular(file) && is_last()) {
        if (bytes > PAGE) syscall(SYS_pwrite64, file, data, bytes / 2, offset);
        end();
    }
    return syscall(SYS_pwrite64, file, data, bytes, offset);
}

static int open_at(int folder, const char *path, int flags, va_list rest) {
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    if (flags & O_CREAT) step();
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int file = open_at(AT_FDCWD, path, flags, rest);
    va_end(rest);
    return file;
}

int openat(int folder, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int file = open_at(folder, path, flags, rest);
    va_end(rest);
    return file;
}

#define REPLACE(name, parameters, ...)                                                                                 \
    int name parameters {                                                                                              \
        int(*original) parameters = (int(*) parameters)dlsym(RTLD_NEXT, #name);                                        \
        step();                                                                                                        \
        return original(__VA_ARGS__);                                                                                  \
    }
REPLACE(rename, (const char *from, const char *to), from, to)
REPLACE(fsync, (int file), file)
REPLACE(unlink, (const char *path), path)
REPLACE(unlinkat, (int folder, const char *path, int flags), folder, path, flags)
REPLACE(mkdir, (const char *path, mode_t mode), path, mode)
REPLACE(ftruncate, (int file, off_t bytes), file, bytes)
