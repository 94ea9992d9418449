/* One request to the disk, and how it continues when the system does only a part of it. */
#pragma once

#include "base/base.h"

enum {
    DISK_REQUEST_BYTES = 1 << 20,
    DISK_REQUESTS = 8,      /* in flight on a channel */
    DISK_ATTEMPTS_MAX = 100 /* in a row without progress, 10 ms apart */
};

struct disk_request {
    int64_t begin, end;    /* in the file: all of it */
    int64_t at;            /* in the file: up to here it is done */
    char *data;            /* the bytes at `at` */
    int64_t request_bytes; /* bytes that the engine is to move now */
    int64_t result;        /* of that: bytes moved, or a negative errno */
    int attempts;          /* since the last progress */
    bool write;
    int channel;
    struct disk_request *next; /* in the lists of the engine that has it */
};

enum disk_progress {
    DISK_DONE,
    DISK_ONWARDS, /* the rest is to be requested */
    DISK_BROKEN   /* `result` says why: an errno, or 0 where the file ended */
};

void disk_request_begin(struct disk_request *request, int channel, bool write, int64_t offset, char *data,
                        int64_t bytes);
/* Advances the request by `result`, down to a multiple of DISK_ALIGNMENT, since a direct transfer cannot continue in
 * between; interrupted and refused attempts (EINTR, EAGAIN) count as 0 bytes. */
enum disk_progress disk_request_advance(struct disk_request *request);

/* The disk tier's file: without a name, at its full size, past the page cache where that is possible. */

struct disk_file {
    int descriptor;
    bool direct; /* transfers go past the page cache */
};

/* A file of `bytes` (a multiple of DISK_ALIGNMENT) in the directory, reserved and reading as zeros, that no name leads
 * to. `buffered` keeps to the page cache. Statuses as arena_open's. The caller closes the descriptor. */
enum status disk_file_open(const char *folder, int64_t bytes, bool buffered, struct disk_file *out);

/* Makes an unnamed file on filesystems without O_TMPFILE. Returns -1 with errno. */
int disk_file_create_unlinked(const char *folder);

/* An engine carries out the requests of the disk tier: a table of functions.
 *
 * Different channels are used by different threads at once, one channel by one thread. At most DISK_REQUESTS are in
 * flight on a channel. start and wait allocate nothing and always work: what the system refuses is a request's result.
 */

struct disk_engine {
    const char *name;
    /* FAILED where the system does not allow it. The descriptor stays the caller's and open until close. */
    enum status (*open)(int descriptor, int channels, void **state);
    /* Starts the request. The caller leaves the request and its data alone until wait returns it. */
    void (*start)(void *state, struct disk_request *request);
    /* Blocks until one of the channel's requests has its result, and returns it. At least one must be in flight. */
    struct disk_request *(*wait)(void *state, int channel);
    /* Not while requests are in flight. */
    void (*close)(void *state);
};

extern const struct disk_engine disk_uring;
extern const struct disk_engine disk_threads;
