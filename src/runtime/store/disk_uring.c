/* The engine for Linux from 5.6 on: one io_uring (Axboe, "Efficient IO with io_uring", 2019) for each channel. */
#include <liburing.h>

#include "base/fault.h"
#include "runtime/store/disk.h"

struct ring {
    struct io_uring uring;
    struct disk_request *refused; /* refused by the kernel; their results say why */
};

struct rings {
    int descriptor, count;
    struct ring *ring; /* for each channel */
};

static void prepare(struct io_uring_sqe *entry, int descriptor, struct disk_request *request) {
    unsigned bytes = (unsigned)request->request_bytes;
    if (request->write)
        io_uring_prep_write(entry, descriptor, request->data, bytes, (uint64_t)request->at);
    else
        io_uring_prep_read(entry, descriptor, request->data, bytes, (uint64_t)request->at);
    io_uring_sqe_set_data(entry, request);
    /* Slow: by way of a kernel thread, so that later requests overtake it. */
    if (fault_point(FAULT_SLOW)) io_uring_sqe_set_flags(entry, IOSQE_ASYNC);
}

/* 0 when the kernel accepted the request, else an errno. One call for each request costs about a microsecond, against
 * 70 and more for its bytes on a fast disk, and tells which request was refused. */
static int submit(struct io_uring *uring, int descriptor, struct disk_request *request) {
    struct io_uring_sqe *entry = io_uring_get_sqe(uring);
    if (entry) prepare(entry, descriptor, request);
    int taken = fault_point(FAULT_SUBMIT) ? -errno : io_uring_submit(uring);
    if (entry && io_uring_sq_ready(uring) == 0) return 0;
    /* An entry that was refused stays in the ring and is submitted again later: it becomes one that does nothing. */
    if (entry) {
        io_uring_prep_nop(entry);
        io_uring_sqe_set_data(entry, NULL);
    }
    return taken >= 0 || taken == -EBUSY ? EAGAIN : -taken;
}

static void start(void *state, struct disk_request *request) {
    struct rings *rings = state;
    struct ring *ring = &rings->ring[request->channel];
    int error = submit(&ring->uring, rings->descriptor, request);
    if (error == 0) return;
    request->result = -error;
    request->next = ring->refused;
    ring->refused = request;
}

static struct disk_request *wait_finished(void *state, int channel) {
    struct ring *ring = &((struct rings *)state)->ring[channel];
    struct disk_request *request = ring->refused;
    if (request) {
        ring->refused = request->next;
        return request;
    }
    while (!request) {
        struct io_uring_cqe *completion;
        int error = -io_uring_wait_cqe(&ring->uring, &completion);
        if (error == EINTR || error == EAGAIN || error == EBUSY) continue;
        BUG_IF(error != 0, "an io_uring that cannot be waited for: %s", strerror(error));
        request = io_uring_cqe_get_data(completion);
        if (request) request->result = completion->res;
        io_uring_cqe_seen(&ring->uring, completion);
    }
    return request;
}

static void close_rings(void *state) {
    struct rings *rings = state;
    for (int r = 0; r < rings->count; r++)
        io_uring_queue_exit(&rings->ring[r].uring);
    mem_free(rings->ring);
    mem_free(rings);
}

/* Kernels 5.1 to 5.5 have rings without these operations. 0 or an errno. */
static int check_operations(struct io_uring *uring) {
    struct io_uring_probe *probe = io_uring_get_probe_ring(uring);
    bool good =
        probe && io_uring_opcode_supported(probe, IORING_OP_READ) && io_uring_opcode_supported(probe, IORING_OP_WRITE);
    io_uring_free_probe(probe);
    return good ? 0 : EOPNOTSUPP;
}

/* 0 or an errno. */
static int open_ring(struct io_uring *uring) {
    int error = fault_point(FAULT_SUBMIT) ? errno : -io_uring_queue_init(DISK_REQUESTS, uring, 0);
    if (error != 0) return error;
    error = check_operations(uring);
    if (error != 0) io_uring_queue_exit(uring);
    return error;
}

static enum status open_rings(int descriptor, int channels, void **state) {
    struct rings *rings = mem_array(1, sizeof *rings);
    if (!rings) return STATUS_FAILED;
    *rings = (struct rings){.descriptor = descriptor, .ring = mem_array((size_t)channels, sizeof *rings->ring)};
    enum status status = rings->ring ? STATUS_OK : STATUS_FAILED;
    while (status == STATUS_OK && rings->count < channels) {
        int error = open_ring(&rings->ring[rings->count].uring);
        if (error == 0)
            rings->count++;
        else
            status = status_set(STATUS_FAILED, "io_uring cannot be used: %s", strerror(error));
    }
    if (status != STATUS_OK) {
        close_rings(rings);
        return status;
    }
    *state = rings;
    return STATUS_OK;
}

const struct disk_engine disk_uring = {
    .name = "io_uring", .open = open_rings, .start = start, .wait = wait_finished, .close = close_rings};
