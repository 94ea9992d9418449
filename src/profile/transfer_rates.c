#include "profile/transfer_rates.h"

#include <math.h>

#include "base/clock.h"

enum { REPEATS_MOST = 15, ZERO_SIZES = 2, HOST_SIZES = 2, DISK_SIZES = 4 };
static const double BUDGET_MOST_S = 0.06; /* of one size of one transfer */
static const int64_t MEMORY_SMALL = (int64_t)256 << 10;
static const int64_t DISK_SMALL = (int64_t)1 << 20;
static const double DISK_LONG_S = 0.1, DISK_SLOW_S = 0.02;

/* One way of moving bytes; `at` goes round the memory, so that it is no longer in the caches when it comes again. */
struct transfer {
    const struct rate_machine *machine;
    struct arena from, to; /* one of them has no address where it is the disk; zeros have no source */
    int64_t limit, at;     /* sizes that are moved divide the limit and the memory's bytes */
};

/* The memory may be less than what it is copied to or from, and then goes round by itself. */
static int64_t within(const struct arena *memory, int64_t at, int64_t bytes) {
    int64_t offset = at % memory->bytes;
    return offset + bytes <= memory->bytes ? offset : 0;
}

static enum status move(struct transfer *transfer, int64_t bytes) {
    int64_t at = transfer->at + bytes <= transfer->limit ? transfer->at : 0;
    char *to = transfer->to.base, *from = transfer->from.base;
    transfer->at = at + bytes;
    if (transfer->from.bytes == 0) {
        transfer->machine->backend->zero(to + at, bytes, NULL);
        return STATUS_OK;
    }
    return to ? arena_read(&transfer->from, at, to + within(&transfer->to, at, bytes), bytes, 0)
              : arena_write(&transfer->to, at, from + within(&transfer->from, at, bytes), bytes, 0);
}

/* Several of this size; the first of all is not counted. */
static enum status time_size(struct transfer *transfer, int64_t bytes, struct measurement *out) {
    double budget_s = fmin(allowance_next(transfer->machine->allowance), BUDGET_MOST_S), spent = 0;
    struct sample samples[REPEATS_MOST];
    int count = 0;
    TRY(move(transfer, bytes));
    for (; count == 0 || (count < REPEATS_MOST && spent < budget_s); count++) {
        struct stopwatch stopwatch = stopwatch_begin();
        TRY(move(transfer, bytes));
        samples[count] = stopwatch_end(&stopwatch);
        spent += samples[count].seconds;
    }
    *out = measurement_of(samples, count);
    return STATUS_OK;
}

/* The line through two sizes. */
static enum status measure_line(struct transfer *transfer, int64_t small, int64_t large, struct cluster_rates *rates,
                                struct transfer_rate *out) {
    struct measurement few, many;
    TRY(time_size(transfer, small, &few));
    TRY(time_size(transfer, large, &many));
    if (many.spread > rates->noise) rates->noise = many.spread;
    double slope = (many.seconds - few.seconds) / (double)(large - small),
           latency = few.seconds - slope * (double)small;
    if (slope <= 0 || latency < 0) {
        slope = many.seconds / (double)large;
        latency = 0;
    }
    *out = (struct transfer_rate){.latency_s = latency, .bytes_per_s = 1 / slope};
    return STATUS_OK;
}

enum status transfer_measure_zero(const struct rate_machine *machine, struct cluster_rates *rates) {
    struct transfer transfer = {.machine = machine, .limit = 2 * machine->block_bytes};
    TRY(arena_open(TIER_DEVICE, transfer.limit, NULL, &transfer.to));
    enum status status = measure_line(&transfer, MEMORY_SMALL, machine->block_bytes, rates, &rates->zero);
    arena_close(&transfer.to);
    return status;
}

enum status transfer_measure_host(const struct rate_machine *machine, struct cluster_rates *rates) {
    struct transfer transfer = {.machine = machine, .limit = 2 * machine->block_bytes};
    enum status status = arena_open(TIER_HOST, transfer.limit, NULL, &transfer.from);
    if (status == STATUS_OK) status = arena_open(TIER_DEVICE, transfer.limit, NULL, &transfer.to);
    struct transfer_rate *in = &rates->copy[TIER_HOST][TIER_DEVICE];
    if (status == STATUS_OK) status = measure_line(&transfer, MEMORY_SMALL, machine->block_bytes, rates, in);
    arena_close(&transfer.from);
    arena_close(&transfer.to);
    rates->copy[TIER_DEVICE][TIER_HOST] = *in; /* the same copy between two blocks of memory */
    return status;
}

/* Writes all of the file, so that no later write is the first to its place and no read finds nothing there. *large: the
 * larger size, a block where the disk is quick; the pieces of other measurements follow it. */
static enum status write_all(struct transfer *write, struct rate_machine *machine, int64_t *large) {
    int64_t begin = clock_now_ns();
    for (int64_t at = 0; at < write->limit; at += machine->block_bytes)
        TRY(move(write, machine->block_bytes));
    double seconds_a_byte = (double)(clock_now_ns() - begin) * 1e-9 / (double)write->limit;
    *large = machine->block_bytes;
    while (*large > 2 * DISK_SMALL && seconds_a_byte * (double)*large > DISK_LONG_S)
        *large /= 2;
    while (machine->piece_bytes > DISK_SMALL && seconds_a_byte * (double)machine->piece_bytes > DISK_SLOW_S)
        machine->piece_bytes /= 2;
    return STATUS_OK;
}

static enum status measure_disk(struct rate_machine *machine, struct arena memory, struct cluster_rates *rates) {
    struct transfer write = {.machine = machine, .from = memory, .to = machine->disk, .limit = RATE_WORK_DISK_BYTES};
    struct transfer read = {.machine = machine, .from = machine->disk, .to = memory, .limit = RATE_WORK_DISK_BYTES};
    int64_t large;
    TRY(write_all(&write, machine, &large));
    TRY(measure_line(&write, DISK_SMALL, large, rates, &rates->copy[TIER_DEVICE][TIER_DISK]));
    return measure_line(&read, DISK_SMALL, large, rates, &rates->copy[TIER_DISK][TIER_DEVICE]);
}

enum status transfer_measure_disk(struct rate_machine *machine, struct cluster_rates *rates) {
    struct arena memory;
    if (machine->disk.bytes == 0) return STATUS_OK;
    TRY(arena_open(TIER_DEVICE, 2 * machine->block_bytes, NULL, &memory));
    enum status status = measure_disk(machine, memory, rates);
    arena_close(&memory);
    /* The host tier is memory like the device's. */
    rates->copy[TIER_HOST][TIER_DISK] = rates->copy[TIER_DEVICE][TIER_DISK];
    rates->copy[TIER_DISK][TIER_HOST] = rates->copy[TIER_DISK][TIER_DEVICE];
    return status;
}

int transfer_sizes(bool host, bool disk) { return ZERO_SIZES + (host ? HOST_SIZES : 0) + (disk ? DISK_SIZES : 0); }
