#include "profile/transfer_rates.h"

#include <math.h>

#include "base/clock.h"
#include "profile/evict.h"

enum { REPEATS_MAX = 15, ROW = 8, SIZES = 2, ZERO_BLOCKS = 4 };
static const double BUDGET_MAX_S = 0.04; /* of one size of one transfer */
static const int64_t MEMORY_SMALL = (int64_t)256 << 10;
static const int64_t DISK_SMALL = (int64_t)1 << 20;
static const double DISK_LONG_S = 0.1, DISK_SLOW_S = 0.02;

/* One way of moving bytes. `at` cycles through the memory, so that bytes have left the caches when they come again. */
struct transfer {
    const struct rate_machine *machine;
    const struct arena *from, *to; /* zeros have no source */
    struct work_clock clock;
    struct copy_staging staging; /* between the disk and a device's own memory */
    int64_t limit, at, bytes;    /* sizes that are moved divide the limit and the memory's bytes */
};

static bool uses_disk(const struct transfer *transfer) {
    return transfer->to->tier == TIER_DISK || (transfer->from && transfer->from->tier == TIER_DISK);
}

static enum status open_transfer(struct transfer *transfer) {
    const struct backend *backend = transfer->machine->backend;
    TRY(work_clock_open(backend, &transfer->clock));
    return uses_disk(transfer) && backend->memory ? copy_staging_open(backend, &transfer->staging) : STATUS_OK;
}

static void close_transfer(struct transfer *transfer) {
    copy_staging_close(transfer->machine->backend, &transfer->staging);
    work_clock_close(&transfer->clock);
}

/* An arena smaller than the transfer's range wraps around. */
static struct tier_place place_at(const struct arena *arena, int64_t at, int64_t bytes) {
    int64_t offset = at % arena->bytes;
    return (struct tier_place){arena, offset + bytes <= arena->bytes ? offset : 0};
}

static int64_t next_at(const struct transfer *transfer) {
    return transfer->at + transfer->bytes <= transfer->limit ? transfer->at : 0;
}

/* Gradients that a step zeroes were last in use a step ago. */
static void make_cold(const struct transfer *transfer) {
    if (transfer->from || transfer->machine->backend->memory) return;
    evict((const char *)transfer->to->base + next_at(transfer), transfer->bytes);
}

static enum status move(void *payload) {
    struct transfer *transfer = payload;
    const struct backend *backend = transfer->machine->backend;
    int64_t bytes = transfer->bytes, at = next_at(transfer);
    transfer->at = at + bytes;
    if (transfer->from)
        return tier_copy(backend, &transfer->staging, place_at(transfer->from, at, bytes),
                         place_at(transfer->to, at, bytes), bytes, 0, transfer->clock.stream);
    backend->zero((char *)transfer->to->base + at, bytes, transfer->clock.stream);
    return STATUS_OK;
}

/* Times several transfers of this size, after one that does not count. */
static enum status time_size(struct transfer *transfer, int64_t bytes, struct measurement *out) {
    double budget_s = fmin(allowance_next(transfer->machine->allowance), BUDGET_MAX_S), spent = 0;
    int row = transfer->clock.stream && !uses_disk(transfer) ? ROW : 1, count = 0;
    struct sample samples[REPEATS_MAX];
    transfer->bytes = bytes;
    TRY(work_clock_time(&transfer->clock, move, transfer, 1, &samples[0]));
    for (; count == 0 || (count < REPEATS_MAX && spent < budget_s); count++) {
        make_cold(transfer);
        TRY(work_clock_time(&transfer->clock, move, transfer, row, &samples[count]));
        spent += samples[count].seconds * row;
    }
    *out = measurement_of(samples, count);
    return STATUS_OK;
}

/* Latency and rate, from the line through the times of two sizes. */
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

/* `from` NULL: zeros. */
static enum status measure_memory(const struct rate_machine *machine, const struct arena *from, const struct arena *to,
                                  struct cluster_rates *rates, struct transfer_rate *out) {
    struct transfer transfer = {.machine = machine, .from = from, .to = to, .limit = to->bytes};
    enum status status = open_transfer(&transfer);
    if (status == STATUS_OK) status = measure_line(&transfer, MEMORY_SMALL, machine->block_bytes, rates, out);
    close_transfer(&transfer);
    return status;
}

enum status transfer_measure_zero(const struct rate_machine *machine, struct cluster_rates *rates) {
    struct arena device;
    TRY(rate_arena_open(machine, TIER_DEVICE, ZERO_BLOCKS * machine->block_bytes, &device));
    enum status status = measure_memory(machine, NULL, &device, rates, &rates->zero);
    arena_close(&device);
    return status;
}

/* Whether copies from the device have a link and an engine of their own. */
static bool has_ways(const struct rate_machine *machine) { return machine->backend->memory != NULL; }

enum status transfer_measure_host(const struct rate_machine *machine, struct cluster_rates *rates) {
    struct arena host = {0}, device = {0};
    struct transfer_rate *in = &rates->copy[TIER_HOST][TIER_DEVICE], *back = &rates->copy[TIER_DEVICE][TIER_HOST];
    enum status status;
    TRY_GOTO(status, rate_arena_open(machine, TIER_HOST, 2 * machine->block_bytes, &host), done);
    TRY_GOTO(status, rate_arena_open(machine, TIER_DEVICE, 2 * machine->block_bytes, &device), done);
    TRY_GOTO(status, measure_memory(machine, &host, &device, rates, in), done);
    *back = *in; /* the same copy between two blocks of memory */
    if (has_ways(machine)) TRY_GOTO(status, measure_memory(machine, &device, &host, rates, back), done);
done:
    arena_close(&host);
    arena_close(&device);
    return status;
}

/* Writes the whole file, so that later writes do not allocate and reads find data. Sets *large to the larger size: a
 * block on a quick disk, less on a slow one, where it also lowers the pieces of other measurements. */
static enum status write_all(struct transfer *write, struct rate_machine *machine, int64_t *large) {
    int64_t begin = clock_now_ns();
    write->bytes = machine->block_bytes;
    for (int64_t at = 0; at < write->limit; at += machine->block_bytes)
        TRY(move(write));
    double seconds_a_byte = (double)(clock_now_ns() - begin) * 1e-9 / (double)write->limit;
    *large = machine->block_bytes;
    while (*large > 2 * DISK_SMALL && seconds_a_byte * (double)*large > DISK_LONG_S)
        *large /= 2;
    while (machine->piece_bytes > DISK_SMALL && seconds_a_byte * (double)machine->piece_bytes > DISK_SLOW_S)
        machine->piece_bytes /= 2;
    return STATUS_OK;
}

/* Measures writes from and reads to one memory tier. */
static enum status measure_disk(struct rate_machine *machine, const struct arena *memory, struct cluster_rates *rates) {
    struct transfer transfer = {
        .machine = machine, .from = memory, .to = &machine->disk, .limit = RATE_WORK_DISK_BYTES};
    struct transfer_rate *out = &rates->copy[memory->tier][TIER_DISK], *in = &rates->copy[TIER_DISK][memory->tier];
    int64_t small = DISK_SMALL, large = 0;
    enum status status;
    TRY_GOTO(status, open_transfer(&transfer), done);
    TRY_GOTO(status, write_all(&transfer, machine, &large), done);
    if (large <= small) small = large / 4; /* where there is little memory */
    TRY_GOTO(status, measure_line(&transfer, small, large, rates, out), done);
    transfer.from = &machine->disk, transfer.to = memory;
    TRY_GOTO(status, measure_line(&transfer, small, large, rates, in), done);
done:
    close_transfer(&transfer);
    return status;
}

static enum status measure_disk_of(struct rate_machine *machine, enum tier tier, struct cluster_rates *rates) {
    struct arena memory;
    TRY(rate_arena_open(machine, tier, 2 * machine->block_bytes, &memory));
    enum status status = measure_disk(machine, &memory, rates);
    arena_close(&memory);
    return status;
}

enum status transfer_measure_disk(struct rate_machine *machine, struct cluster_rates *rates) {
    if (machine->disk.bytes == 0) return STATUS_OK;
    TRY(measure_disk_of(machine, TIER_DEVICE, rates));
    if (has_ways(machine)) return measure_disk_of(machine, TIER_HOST, rates);
    /* The host tier is memory like the device's. */
    rates->copy[TIER_HOST][TIER_DISK] = rates->copy[TIER_DEVICE][TIER_DISK];
    rates->copy[TIER_DISK][TIER_HOST] = rates->copy[TIER_DISK][TIER_DEVICE];
    return STATUS_OK;
}

int transfer_sizes(const struct rate_machine *machine, bool host) {
    int ways = has_ways(machine) ? 2 : 1, disk = machine->disk.bytes > 0 ? 2 * ways : 0;
    return SIZES * (1 + (host ? ways : 0) + disk);
}
