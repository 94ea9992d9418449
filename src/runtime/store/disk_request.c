#include "runtime/store/disk_request.h"

#include <errno.h>
#include <time.h>

#include "base/fault.h"
#include "runtime/store/arena.h"

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

static enum disk_progress attempt_again(struct disk_request *request) {
    if (++request->attempts == DISK_ATTEMPTS_MAX) return DISK_BROKEN;
    (void)nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    set_request_bytes(request);
    return DISK_ONWARDS;
}

enum disk_progress disk_request_advance(struct disk_request *request) {
    int64_t moved = request->result;
    BUG_IF(moved > request->request_bytes, "%lld bytes moved of %lld", (long long)moved,
           (long long)request->request_bytes);
    if (moved == -EINTR || moved == -EAGAIN || (moved > 0 && moved < DISK_ALIGNMENT)) return attempt_again(request);
    if (moved <= 0) return DISK_BROKEN;
    moved -= moved % DISK_ALIGNMENT;
    request->at += moved;
    request->data += moved;
    request->attempts = 0;
    if (request->at == request->end) return DISK_DONE;
    set_request_bytes(request);
    return DISK_ONWARDS;
}
