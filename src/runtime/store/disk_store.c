#include "runtime/store/store.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"
#include "runtime/store/disk_engine.h"
#include "runtime/store/disk_file.h"

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

/* One that the engine has given back: what has failed and what remains of it. */
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
