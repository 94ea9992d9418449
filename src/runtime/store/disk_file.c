#include "runtime/store/disk_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/size.h"
#include "runtime/store/arena.h"

static const char elsewhere[] = "free some, lower --disk's size (--disk DIR:SIZE), or name another directory";

static int disk_file_create_unnamed(const char *folder) {
    return fault_point(FAULT_OPEN) ? -1 : open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

int disk_file_create_unlinked(const char *folder) {
    uint64_t number[2];
    char path[PATH_MAX];
    if (getrandom(number, sizeof number, 0) != (ssize_t)sizeof number) return -1;
    int length =
        snprintf(path, sizeof path, "%s/.ballast-disk-%016" PRIx64 "%016" PRIx64, folder, number[0], number[1]);
    if (length >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int file = fault_point(FAULT_OPEN) ? -1 : open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0 && unlink(path) != 0) {
        int error = errno;
        close(file);
        errno = error;
        return -1;
    }
    return file;
}

static enum status create(const char *folder, int *out) {
    if (!file_exists(folder))
        return status_hint(status_set(STATUS_BAD_INPUT, "%s: no such directory for the disk tier", folder),
                           "create it, or give --disk one that exists");
    if (!file_is_folder(folder))
        return status_hint(status_set(STATUS_BAD_INPUT, "%s: not a directory, so no place for the disk tier", folder),
                           "give --disk a directory");
    int file = disk_file_create_unnamed(folder);
    /* EISDIR and ENOENT: kernels and filesystems that take the flag for a plain attempt to open the directory. */
    if (file < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT))
        file = disk_file_create_unlinked(folder);
    if (file >= 0) {
        *out = file;
        return STATUS_OK;
    }
    bool input = errno == EACCES || errno == EPERM || errno == EROFS || errno == ENOENT || errno == ENAMETOOLONG;
    enum status status = status_set(input ? STATUS_BAD_INPUT : STATUS_FAILED,
                                    "%s: cannot create the disk tier's file: %s", folder, strerror(errno));
    return status_hint(status, "give --disk a directory that you may write in, on a disk with free space");
}

static int64_t free_bytes(int file) {
    struct statvfs info;
    uint64_t bytes;
    if (fstatvfs(file, &info) != 0 || __builtin_mul_overflow(info.f_bavail, info.f_frsize, &bytes)) return INT64_MAX;
    return bytes > INT64_MAX ? INT64_MAX : (int64_t)bytes;
}

/* 0 or an errno. */
static int allocate(int file, int64_t bytes) {
    for (;;) {
        if (!fault_point(FAULT_WRITE) && fallocate(file, 0, 0, bytes) == 0) return 0;
        if (errno != EINTR) return errno;
    }
}

/* A filesystem that cannot reserve (some network and user-space ones) gets a file of the right size with holes: the
 * space is free now, but a later write may still fail for lack of it, with a message of its own. The free space is
 * checked first in any case, so that a size far too large is refused before the disk is full. */
static enum status reserve(const char *folder, int file, int64_t bytes) {
    int64_t left = free_bytes(file);
    int error = bytes > left ? ENOSPC : allocate(file, bytes);
    if (error == EOPNOTSUPP) error = ftruncate(file, bytes) == 0 ? 0 : errno;
    if (error == 0) return STATUS_OK;
    char need[SIZE_TEXT], have[SIZE_TEXT];
    enum status status = status_set(STATUS_FAILED, "%s: cannot reserve %s for the disk tier (%s are free): %s", folder,
                                    size_print(bytes, need), size_print(left, have), strerror(error));
    return status_hint(status, elsewhere);
}

static bool set_direct(int file, bool direct) {
    int flags = fcntl(file, F_GETFL);
    return flags >= 0 && fcntl(file, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

/* Some filesystems accept the flag but refuse direct transfers, or need larger blocks: writing one block tells. */
static bool can_be_direct(int file) {
    static const _Alignas(DISK_ALIGNMENT) char zeros[DISK_ALIGNMENT];
    if (!set_direct(file, true)) return false;
    if (pwrite(file, zeros, sizeof zeros, 0) == (ssize_t)sizeof zeros) return true;
    (void)set_direct(file, false);
    return false;
}

enum status disk_file_open(const char *folder, int64_t bytes, bool buffered, struct disk_file *out) {
    int file = -1;
    TRY(create(folder, &file));
    enum status status = bytes > 0 ? reserve(folder, file, bytes) : STATUS_OK;
    if (status != STATUS_OK) {
        close(file);
        return status;
    }
    struct statfs info;
    if (fstatfs(file, &info) == 0 && info.f_type == TMPFS_MAGIC)
        log_warning("%s is kept in memory (tmpfs): a disk tier there saves none", folder);
    *out = (struct disk_file){.descriptor = file, .direct = !buffered && bytes > 0 && can_be_direct(file)};
    /* Readahead would fill the page cache with pages that nobody drops. */
    if (!out->direct) (void)posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
    return STATUS_OK;
}

bool disk_file_forget(const struct disk_file *file, int64_t offset, int64_t bytes, bool written) {
    if (file->direct) return true;
    const unsigned flags = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    if (written && (fault_point(FAULT_SYNC) || sync_file_range(file->descriptor, offset, bytes, flags) != 0))
        return false;
    /* Advice only: pages that cannot be dropped stay. */
    (void)posix_fadvise(file->descriptor, offset, bytes, POSIX_FADV_DONTNEED);
    return true;
}
