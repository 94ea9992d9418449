#include "profile/machine_rates.h"

#include <math.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/fault.h"
#include "profile/cache.h"
#include "profile/operator_bench.h"
#include "profile/profile.h"

/* The cost of an instruction apart from its work: on its own stream, and until other streams notice its end. */

enum { INSTRUCTIONS = 300, HOPS = 100, ROUNDS = 9 };
static const double MIN_S = 1e-9;
static const int64_t WORK_NS = 60 * 1000; /* long enough for the waiter to fall asleep */

struct issuing {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t ended, signalled_ns;
    struct sample issues[INSTRUCTIONS], wakes[INSTRUCTIONS];
    int waked;
};

/* Waits for each instruction, as an idle stream does. */
static void *wait_for_each(void *argument) {
    struct issuing *issuing = argument;
    pthread_mutex_lock(&issuing->lock);
    for (int64_t seen = 0; seen < INSTRUCTIONS; seen = issuing->ended) {
        while (issuing->ended == seen)
            pthread_cond_wait(&issuing->changed, &issuing->lock);
        issuing->wakes[issuing->waked++].seconds = (double)(clock_now_ns() - issuing->signalled_ns) * 1e-9;
    }
    pthread_mutex_unlock(&issuing->lock);
    return NULL;
}

static void compute(void) {
    int64_t begin = clock_now_ns();
    while (clock_now_ns() - begin < WORK_NS)
        continue;
}

static void issue(struct issuing *issuing, int index) {
    int64_t begin = clock_now_ns();
    pthread_mutex_lock(&issuing->lock);
    pthread_mutex_unlock(&issuing->lock);
    pthread_mutex_lock(&issuing->lock);
    issuing->ended++;
    issuing->signalled_ns = clock_now_ns();
    pthread_cond_broadcast(&issuing->changed);
    pthread_mutex_unlock(&issuing->lock);
    issuing->issues[index].seconds = (double)(clock_now_ns() - begin) * 1e-9;
}

static enum status measure_workers(double *issue_s, double *wake_s) {
    struct issuing issuing = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    pthread_t waiter;
    int error = fault_point(FAULT_SUBMIT) ? errno : pthread_create(&waiter, NULL, wait_for_each, &issuing);
    if (error) return status_set(STATUS_FAILED, "cannot start a thread to measure with: %s", strerror(error));
    for (int i = 0; i < INSTRUCTIONS; i++) {
        compute();
        issue(&issuing, i);
    }
    pthread_join(waiter, NULL);
    *issue_s = measurement_of(issuing.issues, INSTRUCTIONS).seconds;
    *wake_s = measurement_of(issuing.wakes, issuing.waked).seconds;
    return STATUS_OK;
}

/* Two streams of a device, each with an event that it records. */
struct hopping {
    const struct backend_streams *streams;
    void *stream[2], *event[2], *begin, *end;
};

static enum status open_hopping(struct hopping *hopping) {
    const struct backend_streams *streams = hopping->streams;
    TRY(streams->enter());
    for (int i = 0; i < 2; i++) {
        TRY(streams->create(&hopping->stream[i]));
        TRY(streams->create_event(&hopping->event[i]));
    }
    TRY(streams->create_timed_event(&hopping->begin));
    return streams->create_timed_event(&hopping->end);
}

static void close_hopping(struct hopping *hopping) {
    const struct backend_streams *streams = hopping->streams;
    void *const events[] = {hopping->event[0], hopping->event[1], hopping->begin, hopping->end};
    for (int i = 0; i < 2; i++)
        if (hopping->stream[i]) streams->free(hopping->stream[i]);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i]) streams->free_event(events[i]);
}

/* Queues instructions that wait for the other stream's event and then record their own. With `used` 1 all are on the
 * first stream, and no wait delays them; with 2 they alternate, and each waits for the one before it. */
static enum status enqueue_hops(const struct hopping *hopping, int used) {
    const struct backend_streams *streams = hopping->streams;
    TRY(streams->record(hopping->begin, hopping->stream[0]));
    for (int i = 0; i < HOPS; i++) {
        int self = i % used;
        TRY(streams->wait(hopping->stream[self], hopping->event[!self]));
        TRY(streams->record(hopping->event[self], hopping->stream[self]));
    }
    return streams->record(hopping->end, hopping->stream[(HOPS - 1) % used]);
}

static enum status finish_hops(const struct hopping *hopping) {
    enum status first = hopping->streams->finish(hopping->stream[0]);
    enum status second = hopping->streams->finish(hopping->stream[1]);
    return first == STATUS_OK ? second : first;
}

/* Seconds from one stream's instruction to the other's. */
static enum status time_hops(const struct hopping *hopping, int used, double *seconds) {
    struct sample rounds[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        rounds[i] = (struct sample){0};
        enum status enqueued = enqueue_hops(hopping, used), finished = finish_hops(hopping);
        TRY(enqueued);
        TRY(finished);
        TRY(hopping->streams->elapsed(hopping->begin, hopping->end, &rounds[i].seconds));
        rounds[i].seconds = fmax(rounds[i].seconds / HOPS, MIN_S);
    }
    *seconds = measurement_of(rounds, ROUNDS).seconds;
    return STATUS_OK;
}

static enum status measure_streams(const struct backend_streams *streams, double *issue_s, double *wake_s) {
    AUTO(close_hopping) struct hopping hopping = {.streams = streams};
    double hop_s = 0;
    TRY(open_hopping(&hopping));
    TRY(time_hops(&hopping, 1, issue_s));
    TRY(time_hops(&hopping, 2, &hop_s));
    *wake_s = fmax(hop_s - *issue_s, 0);
    return STATUS_OK;
}

/* issue_s: seconds that an instruction without work takes on its stream. wake_s: seconds from its end until a stream
 * that waited for it goes on.
 *
 * On a processor, streams are the runner's workers (runtime/runner.c), and issue_s is taking the lock, checking the
 * waits and waking the others. The stream computes for some microseconds before each, so that the other worker is
 * asleep again. On a device, streams and events are the backend's: issue_s is a wait that is already met and a record,
 * wake_s the wait for a record that another stream has just made. */
static enum status issue_measure(const struct backend *backend, double *issue_s, double *wake_s) {
    return backend->streams ? measure_streams(backend->streams, issue_s, wake_s) : measure_workers(issue_s, wake_s);
}

/* Latency and rate of zeros and of copies between tiers, from the times of small and large ones. */

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

/* Fill rates->zero and rates->copy, and raise rates->noise; the last one does nothing on a machine without disk,
 * and makes its pieces smaller where that is slow. A device with memory of its own has each way between two tiers
 * measured by itself, the disk's to and from its memory through pinned places. */
static enum status transfer_measure_zero(const struct rate_machine *machine, struct cluster_rates *rates) {
    AUTO(arena_close) struct arena device = {0};
    TRY(rate_arena_open(machine, TIER_DEVICE, ZERO_BLOCKS * machine->block_bytes, &device));
    return measure_memory(machine, NULL, &device, rates, &rates->zero);
}

/* Whether copies from the device have a link and an engine of their own. */
static bool has_ways(const struct rate_machine *machine) { return machine->backend->memory != NULL; }

static enum status transfer_measure_host(const struct rate_machine *machine, struct cluster_rates *rates) {
    AUTO(arena_close) struct arena host = {0}, device = {0};
    struct transfer_rate *in = &rates->copy[TIER_HOST][TIER_DEVICE], *back = &rates->copy[TIER_DEVICE][TIER_HOST];
    TRY(rate_arena_open(machine, TIER_HOST, 2 * machine->block_bytes, &host));
    TRY(rate_arena_open(machine, TIER_DEVICE, 2 * machine->block_bytes, &device));
    TRY(measure_memory(machine, &host, &device, rates, in));
    *back = *in; /* the same copy between two blocks of memory */
    if (has_ways(machine)) TRY(measure_memory(machine, &device, &host, rates, back));
    return STATUS_OK;
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
    AUTO(arena_close) struct arena memory = {0};
    TRY(rate_arena_open(machine, tier, 2 * machine->block_bytes, &memory));
    return measure_disk(machine, &memory, rates);
}

static enum status transfer_measure_disk(struct rate_machine *machine, struct cluster_rates *rates) {
    if (machine->disk.bytes == 0) return STATUS_OK;
    TRY(measure_disk_of(machine, TIER_DEVICE, rates));
    if (has_ways(machine)) return measure_disk_of(machine, TIER_HOST, rates);
    /* The host tier is memory like the device's. */
    rates->copy[TIER_HOST][TIER_DISK] = rates->copy[TIER_DEVICE][TIER_DISK];
    rates->copy[TIER_DISK][TIER_HOST] = rates->copy[TIER_DISK][TIER_DEVICE];
    return STATUS_OK;
}

/* Measurements that they take of the machine's allowance. */
static int transfer_sizes(const struct rate_machine *machine, bool host) {
    int ways = has_ways(machine) ? 2 : 1, disk = machine->disk.bytes > 0 ? 2 * ways : 0;
    return SIZES * (1 + (host ? ways : 0) + disk);
}

static const int64_t RATES_BUDGET_NS = 1200000000;

static enum status measure(struct rate_machine *machine, const struct rates_options *options,
                           struct cluster_rates *rates) {
    bool disk = options->disk_folder != NULL;
    const bool present[ACTIVITY_COUNT] = {[ACTIVITY_PRODUCT] = true,
                                          [ACTIVITY_STREAMING] = true,
                                          [ACTIVITY_COPY] = options->host_tier,
                                          [ACTIVITY_DISK_READ] = disk,
                                          [ACTIVITY_DISK_WRITE] = disk};
    bool beside = disk || options->host_tier; /* with the device tier alone a program has one stream */
    machine->allowance->left = transfer_sizes(machine, options->host_tier) + (beside ? slowdown_races(present) : 0);
    TRY(issue_measure(machine->backend, &rates->issue_s, &rates->wake_s));
    TRY(transfer_measure_zero(machine, rates));
    if (options->host_tier) TRY(transfer_measure_host(machine, rates));
    TRY(transfer_measure_disk(machine, rates));
    if (beside) return slowdown_measure(machine, present, rates);
    slowdown_none(rates);
    return STATUS_OK;
}

static enum status measure_member(const struct backend *backend, const struct rates_options *options,
                                  struct cluster_rates *out) {
    struct allowance allowance = {.end_ns = clock_now_ns() + RATES_BUDGET_NS};
    struct rate_machine machine = rate_machine_make(backend, options->threads, options->memory_bytes);
    struct arena_settings settings = {.folder = options->disk_folder, .channels = RATE_WORK_CHANNELS};
    struct cluster_rates rates = {.measured = true};
    machine.allowance = &allowance;
    backend->set_threads(options->threads);
    if (backend->streams) TRY(backend->streams->enter());
    if (options->disk_folder) TRY(arena_open(TIER_DISK, RATE_WORK_DISK_BYTES, &settings, &machine.disk));
    enum status status = measure(&machine, options, &rates);
    arena_close(&machine.disk);
    if (status == STATUS_OK) *out = rates;
    return status;
}

struct request {
    const struct backend *backend;
    const struct rates_options *options;
    struct cluster_rates *out;
};

/* Members go through it once: it takes about as long as the first one's, and a disk's takes seconds. */
static enum status rate_member(void *payload, int member, const atomic_bool *ended) {
    const struct request *request = payload;
    struct cluster_rates dropped;
    (void)ended;
    return measure_member(request->backend, request->options, member == 0 ? request->out : &dropped);
}

enum status machine_rates_measure(const struct backend *backend, const struct rates_options *options,
                                  struct cluster_rates *out) {
    struct request request = {backend, options, out};
    return contention_measure(options->contention, rate_member, &request);
}

/* ---- GEMMs: calls of the backend's linear operator at two sizes ---- */

enum { PRODUCTS = 2, PRODUCT_CALLS_MAX = 9 };

/* The GEMMs of a transformer block's MLP. */
static const struct product_size {
    int64_t rows, inputs, outputs;
} product_sizes[PRODUCTS] = {{512, 768, 3072}, {512, 3072, 768}};
static const double PRODUCTS_BUDGET_S = 0.15; /* for both sizes */

struct product_bench {
    struct graph *graph;
    struct operator_bench kernel;
    double gflop;
};

/* Devices that need larger micro-batches to reach their rate also need larger GEMMs. */
static enum status open_product(const struct backend *backend, enum dtype dtype, const struct product_size *size,
                                struct bench_memory *memory, struct product_bench *out) {
    int64_t factor = backend->micro_batch_tokens / 1024;
    if (factor < 1) factor = 1;
    int64_t rows = factor * factor * size->rows, inputs = factor * size->inputs, outputs = factor * size->outputs;
    struct operands operands;
    out->gflop = 2e-9 * (double)rows * (double)inputs * (double)outputs;
    out->graph = graph_create(dtype, 1, rows);
    if (!out->graph) return STATUS_FAILED;
    const struct node *node = rate_product_node(out->graph, rows, inputs, outputs);
    TRY(graph_status(out->graph));
    operands_find(out->graph, node, &operands);
    return operator_bench_open(backend, &operands, false, memory, &out->kernel);
}

/* The sizes share one block, so that measuring takes the memory of one: what a call reads may be what another wrote. */
static enum status open_products(const struct backend *backend, enum dtype dtype, struct bench_memory *memory,
                                 struct product_bench benches[PRODUCTS]) {
    for (int i = 0; i < PRODUCTS; i++)
        TRY(open_product(backend, dtype, &product_sizes[i], memory, &benches[i]));
    for (int i = 0; i < PRODUCTS; i++)
        benches[i].kernel.base = memory->arena.base;
    return STATUS_OK;
}

static enum status time_product(struct product_bench *bench, struct sample *out) {
    struct stopwatch stopwatch = stopwatch_begin();
    TRY(operator_bench_run(&bench->kernel));
    TRY(work_clock_finish(&bench->kernel.clock));
    *out = stopwatch_end(&stopwatch);
    out->seconds /= bench->gflop;
    out->waited_s /= bench->gflop;
    return STATUS_OK;
}

/* The sizes take turns, so that the calls of each are spread over the time. */
static enum status time_products(struct product_bench benches[PRODUCTS], struct measurement *out) {
    struct sample calls[PRODUCTS][PRODUCT_CALLS_MAX];
    double spent = 0;
    int count = 0;
    bool settled = false;
    for (int i = 0; i < PRODUCTS; i++)
        TRY(time_product(&benches[i], &calls[i][0])); /* warms caches and threads */
    while (count < PRODUCT_CALLS_MAX && spent < PRODUCTS_BUDGET_S && !settled) {
        for (int i = 0; i < PRODUCTS; i++) {
            TRY(time_product(&benches[i], &calls[i][count]));
            spent += calls[i][count].seconds * benches[i].gflop;
        }
        count++;
        settled = measurement_settled(calls[0], count) && measurement_settled(calls[1], count);
    }
    const struct measurement first = measurement_of(calls[0], count), second = measurement_of(calls[1], count);
    *out = first.seconds <= second.seconds ? first : second;
    return STATUS_OK;
}

enum status profile_measure_matrix_rate(const struct backend *backend, enum dtype dtype, struct measurement *out) {
    struct product_bench benches[PRODUCTS] = {0};
    struct bench_memory memory = {.max_bytes = 1}; /* one copy of the operands */
    enum status status = open_products(backend, dtype, &memory, benches);
    if (status == STATUS_OK) status = time_products(benches, out);
    for (int i = 0; i < PRODUCTS; i++) {
        operator_bench_close(&benches[i].kernel);
        graph_free(benches[i].graph);
    }
    bench_memory_free(&memory);
    return status;
}

/* One measurement, and the members that measure concurrently. */
struct rating {
    const struct backend *backend;
    enum dtype dtype;
    int threads;
    struct measurement *out;
};

static enum status rate_products(void *payload, int member, const atomic_bool *ended) {
    const struct rating *rating = payload;
    struct measurement dropped;
    if (member == 0) return profile_measure_matrix_rate(rating->backend, rating->dtype, rating->out);
    rating->backend->set_threads(rating->threads);
    while (!atomic_load(ended))
        TRY(profile_measure_matrix_rate(rating->backend, rating->dtype, &dropped));
    return STATUS_OK;
}

enum status profile_find_matrix_rate(const struct backend *backend, enum dtype dtype, struct profile_cache *cache,
                                     double *flops_per_s, int32_t *measured) {
    struct measurement gflop;
    struct rating rating = {backend, dtype, cache->threads, &gflop};
    if (!profile_cache_find_product(cache, dtype, &gflop) || measurement_noisy(&gflop)) {
        TRY(contention_measure(&cache->contention, rate_products, &rating));
        TRY(profile_cache_put_product(cache, dtype, &gflop));
        (*measured)++;
    }
    *flops_per_s = 1e9 / gflop.seconds;
    return STATUS_OK;
}

enum status profile_matrix_rate_kept(const struct backend *backend, enum dtype dtype,
                                     const struct profile_options *options, double *flops_per_s) {
    AUTO(profile_cache_close) struct profile_cache cache = {0};
    int32_t measured = 0;
    backend->set_threads(options->threads);
    TRY(profile_cache_open(backend, options, options->memory_bytes, &cache));
    return profile_find_matrix_rate(backend, dtype, &cache, flops_per_s, &measured);
}
