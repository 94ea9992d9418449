#include "profile/transfer_rates.h"

#include "base/clock.h"

enum { REPEATS_LEAST = 2, REPEATS_MOST = 15 };
static const double BUDGET_S = 0.06; /* of one size of one transfer */
static const int64_t MEMORY_SMALL = (int64_t)256 << 10, MEMORY_LARGE = (int64_t)16 << 20;
static const int64_t DISK_SMALL = (int64_t)1 << 20;
static const double DISK_LONG_S = 0.2;

/* One way of moving bytes; `at` goes round the memory, so that it is no longer in the caches when it comes again. */
struct transfer {
    const struct backend *backend;
    struct arena from, to; /* one of them has no address where it is the disk; zeros have no source */
    int64_t limit, at;
};

static enum status move(struct transfer *transfer, int64_t bytes) {
    int64_t at = transfer->at + bytes <= transfer->limit ? transfer->at : 0;
    char *to = transfer->to.base, *from = transfer->from.base;
    transfer->at = at + bytes;
    if (transfer->from.bytes == 0) {
        transfer->backend->zero(to + at, bytes);
        return STATUS_OK;
    }
    return to ? arena_read(&transfer->from, at, to + at, bytes, 0)
              : arena_write(&transfer->to, at, from + at, bytes, 0);
}

/* Least seconds of several of this size; the first of all is not counted. */
static enum status time_size(struct transfer *transfer, int64_t bytes, double *least, double *noise) {
    double spent = 0, sum = 0;
    int count = 0;
    TRY(move(transfer, bytes));
    for (*least = 1e30; count < REPEATS_LEAST || (count < REPEATS_MOST && spent < BUDGET_S); count++) {
        int64_t begin = clock_now_ns();
        TRY(move(transfer, bytes));
        double seconds = (double)(clock_now_ns() - begin + 1) * 1e-9;
        spent += seconds;
        sum += seconds;
        if (seconds < *least) *least = seconds;
    }
    double spread = sum / count / *least - 1;
    if (spread > *noise) *noise = spread;
    return STATUS_OK;
}

/* The line through two sizes. */
static enum status measure_line(struct transfer *transfer, int64_t small, int64_t large, struct cluster_rates *rates,
                                struct transfer_rate *out) {
    double small_s, large_s, ignored = 0;
    TRY(time_size(transfer, small, &small_s, &ignored));
    TRY(time_size(transfer, large, &large_s, &rates->noise));
    double slope = (large_s - small_s) / (double)(large - small), latency = small_s - slope * (double)small;
    if (slope <= 0 || latency < 0) {
        slope = large_s / (double)large;
        latency = 0;
    }
    *out = (struct transfer_rate){.latency_s = latency, .bytes_per_s = 1 / slope};
    return STATUS_OK;
}

enum status transfer_measure_zero(const struct rate_machine *machine, struct cluster_rates *rates) {
    struct transfer transfer = {.backend = machine->backend, .limit = 2 * MEMORY_LARGE};
    TRY(arena_open(TIER_DEVICE, transfer.limit, NULL, &transfer.to));
    enum status status = measure_line(&transfer, MEMORY_SMALL, MEMORY_LARGE, rates, &rates->zero);
    arena_close(&transfer.to);
    return status;
}

enum status transfer_measure_host(struct cluster_rates *rates) {
    struct transfer transfer = {.limit = 2 * MEMORY_LARGE};
    enum status status = arena_open(TIER_HOST, transfer.limit, NULL, &transfer.from);
    if (status == STATUS_OK) status = arena_open(TIER_DEVICE, transfer.limit, NULL, &transfer.to);
    struct transfer_rate *in = &rates->copy[TIER_HOST][TIER_DEVICE];
    if (status == STATUS_OK) status = measure_line(&transfer, MEMORY_SMALL, MEMORY_LARGE, rates, in);
    arena_close(&transfer.from);
    arena_close(&transfer.to);
    rates->copy[TIER_DEVICE][TIER_HOST] = *in; /* the same copy between two blocks of memory */
    return status;
}

/* Writes all of the file, so that no later write is the first to its place and no read finds nothing there. *large: the
 * larger size, 16 MiB where the disk is quick. */
static enum status write_all(struct transfer *write, int64_t *large) {
    int64_t begin = clock_now_ns();
    for (int64_t at = 0; at < write->limit; at += DISK_SMALL)
        TRY(move(write, DISK_SMALL));
    double seconds_a_byte = (double)(clock_now_ns() - begin) * 1e-9 / (double)write->limit;
    *large = MEMORY_LARGE;
    while (*large > 2 * DISK_SMALL && seconds_a_byte * (double)*large > DISK_LONG_S)
        *large /= 2;
    return STATUS_OK;
}

static enum status measure_disk(const struct rate_machine *machine, struct arena memory, struct cluster_rates *rates) {
    struct transfer write = {.from = memory, .to = machine->disk, .limit = RATE_WORK_DISK_BYTES};
    struct transfer read = {.from = machine->disk, .to = memory, .limit = RATE_WORK_DISK_BYTES};
    int64_t large;
    TRY(write_all(&write, &large));
    TRY(measure_line(&write, DISK_SMALL, large, rates, &rates->copy[TIER_DEVICE][TIER_DISK]));
    return measure_line(&read, DISK_SMALL, large, rates, &rates->copy[TIER_DISK][TIER_DEVICE]);
}

enum status transfer_measure_disk(const struct rate_machine *machine, struct cluster_rates *rates) {
    struct arena memory;
    if (machine->disk.bytes == 0) return STATUS_OK;
    TRY(arena_open(TIER_DEVICE, RATE_WORK_DISK_BYTES, NULL, &memory));
    enum status status = measure_disk(machine, memory, rates);
    arena_close(&memory);
    /* The host tier is memory like the device's. */
    rates->copy[TIER_HOST][TIER_DISK] = rates->copy[TIER_DEVICE][TIER_DISK];
    rates->copy[TIER_DISK][TIER_HOST] = rates->copy[TIER_DISK][TIER_DEVICE];
    return status;
}
