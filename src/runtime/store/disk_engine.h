/* An engine carries out the requests of the disk tier: a table of functions.
 *
 * Different channels are used by different threads at once, one channel by one thread. At most DISK_REQUESTS are in
 * flight on a channel. start and wait allocate nothing and always work: what the system refuses is a request's result.
 */
#pragma once

#include "base/base.h"
#include "runtime/store/disk.h"

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
