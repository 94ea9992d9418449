#include "runtime/store/disk.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/folder.h"
#include "base/terminal.h"
#include "base/text.h"
#include "runtime/store/arena.h"
#include "runtime/store/store.h"

/* A short transfer is injected by requesting one block, so that the rest really stays undone. */
static void set_request_bytes(struct disk_request *request) {
    request->request_bytes = fault_point(FAULT_SHORT) ? DISK_ALIGNMENT : request->end - request->at;
}

void disk_request_begin(struct disk_request *request, int channel, bool write, int64_t offset, char *data,
                        int64_t bytes) {
    *request = (struct disk_request){
        .begin = offset, .end = offset + bytes, .at = offset, .data = data, .write = write, .channel = channel};
    set_request_bytes(request);
}

enum disk_progress disk_request_advance(struct disk_request *request) {
    int64_t moved = request->result;
    BUG_IF(moved > request->request_bytes, "%lld bytes moved of %lld", (long long)moved,
           (long long)request->request_bytes);
    if (moved == -EINTR || moved == -EAGAIN || (moved > 0 && moved < DISK_ALIGNMENT)) {
        if (++request->attempts == DISK_ATTEMPTS_MAX) return DISK_BROKEN;
        (void)nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    } else {
        if (moved <= 0) return DISK_BROKEN;
        moved -= moved % DISK_ALIGNMENT;
        request->at += moved;
        request->data += moved;
        request->attempts = 0;
        if (request->at == request->end) return DISK_DONE;
    }
    set_request_bytes(request);
    return DISK_ONWARDS;
}

static const char elsewhere[] = "free some, lower --disk's size (--disk DIR:SIZE), or name another directory";

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
    int file = fault_point(FAULT_OPEN) ? -1 : open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
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

/* Reserves the file's space. A filesystem that cannot reserve (some network and user-space ones) gets a file of the
 * right size with holes. The space is free now, but a later write may still fail for lack of it, with its own message.
 * The free space is checked first in any case, so that a size far too large is refused before the disk is full. */
static enum status reserve(const char *folder, int file, int64_t bytes) {
    int64_t left = free_bytes(file);
    int error = bytes > left ? ENOSPC : EINTR;
    while (error == EINTR)
        error = !fault_point(FAULT_WRITE) && fallocate(file, 0, 0, bytes) == 0 ? 0 : errno;
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

/* Drops a range that was read from or written to a buffered file from the page cache, which a memory cgroup charges
 * for; written bytes are brought to the disk first. False with errno when that failed. Does nothing to a direct file.
 */
static bool disk_file_forget(const struct disk_file *file, int64_t offset, int64_t bytes, bool written) {
    if (file->direct) return true;
    const unsigned flags = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    if (written && (fault_point(FAULT_SYNC) || sync_file_range(file->descriptor, offset, bytes, flags) != 0))
        return false;
    /* Advice only: pages that cannot be dropped stay. */
    (void)posix_fadvise(file->descriptor, offset, bytes, POSIX_FADV_DONTNEED);
    return true;
}

struct disk {
    char *folder; /* for messages */
    struct disk_file file;
    const struct disk_engine *engine;
    void *engine_state;
    int channels;
    struct disk_request *requests; /* DISK_REQUESTS for each channel */
};

static enum status open_engine(struct disk *disk, enum disk_engine_choice choice) {
    disk->engine = choice == DISK_ENGINE_THREADS ? &disk_threads : &disk_uring;
    enum status status = disk->engine->open(disk->file.descriptor, disk->channels, &disk->engine_state);
    if (status != STATUS_OK && choice == DISK_ENGINE_ANY) {
        disk->engine = &disk_threads;
        status = disk->engine->open(disk->file.descriptor, disk->channels, &disk->engine_state);
    }
    return status == STATUS_OK ? STATUS_OK : status_prefix(status, "%s", disk->folder);
}

static void free_disk(struct disk *disk) {
    mem_free(disk->requests);
    mem_free(disk->folder);
    mem_free(disk);
}

static enum status open_disk(struct arena *arena, const struct arena_settings *settings) {
    BUG_IF(!settings || !settings->folder || settings->channels < 1, "a disk tier without directory or channels");
    BUG_IF(arena->bytes % DISK_ALIGNMENT != 0, "a disk tier of %lld bytes", (long long)arena->bytes);
    struct disk *disk = mem_array(1, sizeof *disk);
    if (!disk) return STATUS_FAILED;
    *disk = (struct disk){.channels = settings->channels, .folder = mem_string(settings->folder)};
    disk->requests = mem_array((size_t)settings->channels * DISK_REQUESTS, sizeof *disk->requests);
    enum status status;
    TRY_GOTO(status, disk->folder && disk->requests ? STATUS_OK : STATUS_FAILED, failed);
    TRY_GOTO(status, disk_file_open(settings->folder, arena->bytes, settings->buffered, &disk->file), failed);
    TRY_GOTO(status, open_engine(disk, settings->engine), opened);
    arena->state = disk;
    return STATUS_OK;
opened:
    close(disk->file.descriptor);
failed:
    free_disk(disk);
    return status;
}

static void close_disk(struct arena *arena) {
    struct disk *disk = arena->state;
    disk->engine->close(disk->engine_state);
    close(disk->file.descriptor);
    free_disk(disk);
}

static enum status request_failed(const struct disk *disk, const struct disk_request *request) {
    int error = (int)-request->result;
    enum status status =
        status_set(STATUS_FAILED, "%s: cannot %s %lld bytes at offset %lld of the disk tier: %s", disk->folder,
                   request->write ? "write" : "read", (long long)(request->end - request->at), (long long)request->at,
                   error == 0 ? "the file ends there" : strerror(error));
    return error == ENOSPC || error == EDQUOT
               ? status_hint(status, "free some space there, or give --disk another directory")
               : status_hint(status, "look at the disk (dmesg), or give --disk a directory on another one");
}

/* Handles a request that the engine has returned: its failure, or its remaining bytes. */
static enum disk_progress advance(const struct disk *disk, struct disk_request *request) {
    if (fault_point(request->write ? FAULT_WRITE : FAULT_READ)) request->result = -errno;
    enum disk_progress progress = disk_request_advance(request);
    if (progress != DISK_DONE) return progress;
    if (disk_file_forget(&disk->file, request->begin, request->end - request->begin, request->write)) return DISK_DONE;
    request->result = -errno;
    request->at = request->begin;
    return DISK_BROKEN;
}

/* The range that is still to be cut into requests. */
struct transfer {
    int channel;
    bool write;
    int64_t offset, bytes; /* in the file */
    char *data;
};

static bool cut_next(struct transfer *left, struct disk_request *request) {
    int64_t bytes = left->bytes < DISK_REQUEST_BYTES ? left->bytes : DISK_REQUEST_BYTES;
    if (bytes == 0) return false;
    disk_request_begin(request, left->channel, left->write, left->offset, left->data, bytes);
    left->offset += bytes;
    left->bytes -= bytes;
    left->data += bytes;
    return true;
}

/* Keeps DISK_REQUESTS in flight until all bytes are moved. After a failure it starts nothing more, but waits for what
 * is in flight, since the system may still write to the caller's memory. */
static enum status run_transfer(const struct disk *disk, struct transfer left) {
    BUG_IF(left.channel < 0 || left.channel >= disk->channels, "channel %d of %d", left.channel, disk->channels);
    BUG_IF(left.offset % DISK_ALIGNMENT != 0 || left.bytes % DISK_ALIGNMENT != 0 ||
               (uintptr_t)left.data % DISK_ALIGNMENT != 0,
           "%lld bytes at offset %lld and address %p are not aligned to %d", (long long)left.bytes,
           (long long)left.offset, (void *)left.data, DISK_ALIGNMENT);
    struct disk_request *request = &disk->requests[(ptrdiff_t)left.channel * DISK_REQUESTS];
    int flying = 0;
    for (; flying < DISK_REQUESTS && cut_next(&left, &request[flying]); flying++)
        disk->engine->start(disk->engine_state, &request[flying]);
    enum status status = STATUS_OK;
    while (flying > 0) {
        request = disk->engine->wait(disk->engine_state, left.channel);
        enum disk_progress progress = advance(disk, request);
        if (progress == DISK_BROKEN && status == STATUS_OK) status = request_failed(disk, request);
        if (status == STATUS_OK && (progress == DISK_ONWARDS || cut_next(&left, request)))
            disk->engine->start(disk->engine_state, request);
        else
            flying--;
    }
    return status;
}

static enum status read_disk(const struct arena *from, int64_t offset, void *to, int64_t bytes, int channel) {
    struct transfer all = {.channel = channel, .offset = offset, .bytes = bytes, .data = to};
    return run_transfer(from->state, all);
}

static enum status write_disk(const struct arena *to, int64_t offset, const void *from, int64_t bytes, int channel) {
    /* One record serves both directions; a write only reads from it. */
    struct transfer all = {
        .channel = channel, .write = true, .offset = offset, .bytes = bytes, .data = (void *)(uintptr_t)from};
    return run_transfer(to->state, all);
}

struct disk_description disk_store_describe(const struct arena *arena) {
    const struct disk *disk = arena->state;
    return (struct disk_description){.engine = disk->engine->name, .direct = disk->file.direct};
}

const struct store disk_store = {
    .name = "disk", .open = open_disk, .read = read_disk, .write = write_disk, .close = close_disk};
