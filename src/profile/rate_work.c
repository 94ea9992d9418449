#include "profile/rate_work.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"

#define RATE_WORK_PIECE_BYTES ((int64_t)4 << 20)
#define RATE_WORK_BLOCK_BYTES ((int64_t)16 << 20)

/* Each activity and each pair is measured this often, at different times; the minimum counts. A pair is not measured
 * again if two rounds agree within 5%. */
enum { SLOWDOWN_ROUNDS = 3 };

enum {
    CPU_MICRO_BATCH_TOKENS = 1024,
    PRODUCT_ROWS = 512,
    PRODUCT_WIDTH = 768,
    STREAM_ELEMENTS = 1 << 20,
    ELEMENT_BYTES = 16,
    PRODUCT_PART = 4,           /* of the memory: 16 MiB have space for some copies of the weight */
    CPU_KERNEL_BYTES = 64 << 20 /* two updates: they push each other out of all but the largest caches */
};

struct rate_machine rate_machine_make(const struct backend *backend, int threads, int64_t memory_bytes) {
    struct rate_machine machine = {.backend = backend,
                                   .threads = threads,
                                   .piece_bytes = RATE_WORK_PIECE_BYTES,
                                   .block_bytes = RATE_WORK_BLOCK_BYTES,
                                   .kernel_bytes = backend->streams ? 0 : CPU_KERNEL_BYTES};
    if (memory_bytes >= PROFILE_MEMORY_BYTES) return machine;
    if (memory_bytes < PROFILE_MEMORY_BYTES_MIN) memory_bytes = PROFILE_MEMORY_BYTES_MIN;
    machine.kernel_bytes = memory_bytes / 8;
    while (machine.block_bytes > memory_bytes / 16)
        machine.block_bytes /= 2;
    if (machine.piece_bytes > machine.block_bytes) machine.piece_bytes = machine.block_bytes;
    return machine;
}

/* The tokens of its micro-batches, over those of the CPU's. */
static int64_t scale_of(const struct backend *backend) {
    int64_t scale = backend->micro_batch_tokens / CPU_MICRO_BATCH_TOKENS;
    return scale > 1 ? scale : 1;
}

struct node *rate_product_node(struct graph *graph, int64_t rows, int64_t inputs, int64_t outputs) {
    graph_begin_block(graph, "rate");
    struct tensor *x = graph_tensor(graph, TENSOR_INPUT, "x", shape_make(graph->dtype, 3, 1, rows, inputs));
    struct tensor *weight = graph_parameter(graph, "weight", 2, outputs, inputs);
    struct tensor *y =
        ops_linear(graph, "product", x, weight, NULL, NULL, (struct linear_attributes){.weight_is_kn = false});
    return y ? y->producer : NULL;
}

/* The update of a million weights, where there is memory for them: 28 MB that come from memory and go there; scale^2
 * times that. */
static struct node *add_update(struct graph *graph, int64_t scale, int64_t memory_bytes) {
    graph_begin_block(graph, "rate");
    int64_t elements = scale * scale * STREAM_ELEMENTS, fitting = memory_bytes / ELEMENT_BYTES;
    if (memory_bytes > 0 && fitting < elements) elements = fitting;
    struct shape shape = shape_make(DTYPE_F32, 1, elements, 0, 0);
    struct tensor *gradient = graph_tensor(graph, TENSOR_GRADIENT, "gradient", shape);
    struct tensor *clip = graph_tensor(graph, TENSOR_RESULT, "clip", shape_make(DTYPE_F64, 1, 2, 0, 0));
    struct tensor *in[OP_INPUTS_MAX] = {gradient, clip};
    struct tensor *into[OP_OUTPUTS_MAX] = {graph_parameter(graph, "weight", 1, elements, 0),
                                           graph_tensor(graph, TENSOR_STATE, "exp_avg", shape),
                                           graph_tensor(graph, TENSOR_STATE, "exp_avg_sq", shape)};
    struct update_attributes attributes = {
        .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .parameter = DTYPE_F32, .moments = DTYPE_F32};
    return graph_add(graph, &op_adamw, "update", in, &attributes, into);
}

static enum status open_kernel(struct rate_work *work) {
    const struct backend *backend = work->machine->backend;
    bool product = work->activity == ACTIVITY_PRODUCT;
    int64_t scale = scale_of(backend), rows = scale * scale * PRODUCT_ROWS;
    enum dtype dtype = product && backend->streams ? backend->fastest_dtype() : DTYPE_F32;
    struct operands operands;
    work->graph = graph_create(dtype, 1, rows);
    if (!work->graph) return STATUS_FAILED;
    /* A GEMM of the size that a layer of a small model has: 0.6 GFLOP; scale^4 times that. */
    struct node *node = product ? rate_product_node(work->graph, rows, scale * PRODUCT_WIDTH, scale * PRODUCT_WIDTH)
                                : add_update(work->graph, scale, work->machine->kernel_bytes);
    work->memory.max_bytes = product ? work->machine->kernel_bytes / PRODUCT_PART : work->machine->kernel_bytes;
    TRY(graph_status(work->graph));
    operands_find(work->graph, node, &operands);
    return operator_bench_open(backend, &operands, false, &work->memory, &work->kernel);
}

enum status rate_arena_open(const struct rate_machine *machine, enum tier tier, int64_t bytes, struct arena *out) {
    const struct arena_settings settings = {.memory = machine->backend->memory};
    return arena_open(tier, bytes, &settings, out);
}

static bool uses_disk(enum activity activity) {
    return activity == ACTIVITY_DISK_READ || activity == ACTIVITY_DISK_WRITE;
}

static enum status open_copy(struct rate_work *work) {
    const struct rate_machine *machine = work->machine;
    bool disk = uses_disk(work->activity);
    TRY(work_clock_open(machine->backend, &work->clock));
    TRY(rate_arena_open(machine, TIER_DEVICE, disk ? machine->piece_bytes : machine->block_bytes, &work->device));
    if (!disk) return rate_arena_open(machine, TIER_HOST, machine->block_bytes, &work->host);
    return machine->backend->memory ? copy_staging_open(machine->backend, &work->staging) : STATUS_OK;
}

enum status rate_work_open(const struct rate_machine *machine, enum activity activity, int channel,
                           struct rate_work *out) {
    *out = (struct rate_work){.machine = machine, .activity = activity, .channel = channel};
    return activity == ACTIVITY_PRODUCT || activity == ACTIVITY_STREAMING ? open_kernel(out) : open_copy(out);
}

void rate_work_close(struct rate_work *work) {
    if (!work->machine) return;
    operator_bench_close(&work->kernel);
    bench_memory_free(&work->memory);
    graph_free(work->graph);
    copy_staging_close(work->machine->backend, &work->staging);
    work_clock_close(&work->clock);
    arena_close(&work->host);
    arena_close(&work->device);
}

/* Moves on by a piece on the disk; the bytes in memory are always the same. */
static enum status copy_disk(struct rate_work *work) {
    const struct rate_machine *machine = work->machine;
    struct tier_place disk = {&machine->disk, work->at}, memory = {&work->device, 0};
    bool reads = work->activity == ACTIVITY_DISK_READ;
    work->at = (work->at + machine->piece_bytes) % RATE_WORK_DISK_BYTES;
    return tier_copy(machine->backend, &work->staging, reads ? disk : memory, reads ? memory : disk,
                     machine->piece_bytes, work->channel, work->clock.stream);
}

static enum status copy_memory(struct rate_work *work) {
    const struct backend *backend = work->machine->backend;
    struct tier_place host = {&work->host, work->at}, device = {&work->device, work->at};
    const struct rate_machine *machine = work->machine;
    int64_t bytes = backend->streams ? machine->block_bytes : machine->piece_bytes;
    bool in = work->channel == 0;
    work->at = (work->at + bytes) % machine->block_bytes;
    return tier_copy(backend, NULL, in ? host : device, in ? device : host, bytes, 0, work->clock.stream);
}

enum status rate_work_run(struct rate_work *work) {
    if (work->graph) {
        enum status status = operator_bench_run(&work->kernel);
        enum status finished = work_clock_finish(&work->kernel.clock);
        return status == STATUS_OK ? finished : status;
    }
    enum status status = uses_disk(work->activity) ? copy_disk(work) : copy_memory(work);
    enum status finished = work_clock_finish(&work->clock);
    return status == STATUS_OK ? finished : status;
}

enum { RACERS = 2, ROUNDS_MIN = 2 };
static const double INTERVAL_MAX_S = 0.007, SAME = 0.05;

/* Concurrent works. Each begins when all are ready and continues until all have been timed, so that none is timed
 * alone. The first works without pause, as the compute stream does. The second pauses after each piece for as long as
 * the piece took, as streams that wait for others do. The system schedules a thread that slept at once, but gives a
 * thread that never sleeps only its share. Without the pauses, copies concurrent with GEMMs would seem to take three
 * times as long. */
struct race {
    pthread_barrier_t start;
    atomic_int unfinished;
    int64_t interval_ns;
};

struct racer {
    struct race *race;
    struct rate_work *work;
    bool rests;
    pthread_t thread;
    struct status_copy end;
    double seconds; /* of a piece */
    double busy;    /* share of the time that it worked */
};

static bool is_kernel(enum activity activity) { return activity == ACTIVITY_PRODUCT || activity == ACTIVITY_STREAMING; }

static void rest(int64_t ns) {
    const struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&time, NULL);
}

static enum status run_racer(struct racer *racer, enum status status) {
    bool timed = true;
    int64_t pieces = 0, worked = 0, timed_pieces = 0, timed_work = 0, begin, now;
    if (status == STATUS_OK) status = rate_work_run(racer->work);
    pthread_barrier_wait(&racer->race->start);
    begin = now = clock_now_ns();
    while (status == STATUS_OK && (timed || atomic_load(&racer->race->unfinished) > 0)) {
        int64_t before = clock_now_ns();
        status = rate_work_run(racer->work);
        int64_t taken = clock_now_ns() - before;
        pieces++;
        worked += taken;
        if (racer->rests) rest(taken);
        now = clock_now_ns();
        if (!timed || now - begin < racer->race->interval_ns) continue;
        timed = false;
        timed_pieces = pieces;
        timed_work = worked;
        atomic_fetch_sub(&racer->race->unfinished, 1);
    }
    if (timed) atomic_fetch_sub(&racer->race->unfinished, 1);
    racer->seconds = timed_pieces > 0 ? (double)timed_work * 1e-9 / (double)timed_pieces : 0;
    racer->busy = now > begin ? (double)worked / (double)(now - begin) : 1;
    return status;
}

static void *race_thread(void *argument) {
    struct racer *racer = argument;
    const struct rate_machine *machine = racer->work->machine;
    if (is_kernel(racer->work->activity)) machine->backend->set_threads(machine->threads);
    enum status entered = machine->backend->streams ? machine->backend->streams->enter() : STATUS_OK;
    status_save(run_racer(racer, entered), &racer->end);
    return NULL;
}

/* The first racer works in the calling thread, so that none waits for a second one that could not be started. */
static enum status race(struct rate_work *const *works, int count, struct racer racers[RACERS]) {
    double interval_s = allowance_next(works[0]->machine->allowance);
    if (interval_s > INTERVAL_MAX_S) interval_s = INTERVAL_MAX_S;
    struct race race = {.unfinished = count, .interval_ns = (int64_t)(interval_s * 1e9)};
    for (int i = 0; i < count; i++)
        racers[i] = (struct racer){.race = &race, .work = works[i], .rests = i > 0};
    pthread_barrier_init(&race.start, NULL, (unsigned)count);
    int error = 0;
    if (count > 1)
        error = fault_point(FAULT_SUBMIT) ? errno : pthread_create(&racers[1].thread, NULL, race_thread, &racers[1]);
    if (error == 0) race_thread(&racers[0]);
    if (error == 0 && count > 1) pthread_join(racers[1].thread, NULL);
    pthread_barrier_destroy(&race.start);
    if (error) return status_set(STATUS_FAILED, "cannot start a thread to measure with: %s", strerror(error));
    for (int i = 0; i < count; i++)
        TRY(status_restore(&racers[i].end));
    return STATUS_OK;
}

struct slowdowns {
    struct rate_work works[ACTIVITY_COUNT][RACERS];
    const bool *present;
    struct sample alone[ACTIVITY_COUNT][RACERS][SLOWDOWN_ROUNDS];
    struct beside {
        double seconds; /* of a piece of the first concurrent with the second, */
        double busy;    /* the share of the time that the second worked */
    } beside[ACTIVITY_COUNT][ACTIVITY_COUNT][SLOWDOWN_ROUNDS];
};

static enum status open_works(const struct rate_machine *machine, struct slowdowns *slowdowns) {
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int r = 0; r < RACERS && slowdowns->present[a]; r++)
            TRY(rate_work_open(machine, (enum activity)a, r, &slowdowns->works[a][r]));
    return STATUS_OK;
}

/* Copies go one way as the first and the other way as the second; of all else both are the same. */
static int count_ways(enum activity activity) { return activity == ACTIVITY_COPY ? RACERS : 1; }

static enum status race_alone(struct slowdowns *slowdowns, int round) {
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int r = 0; r < RACERS && slowdowns->present[a]; r++) {
            struct rate_work *works[RACERS] = {&slowdowns->works[a][r]};
            struct racer racers[RACERS];
            if (r < count_ways((enum activity)a)) {
                TRY(race(works, 1, racers));
                slowdowns->alone[a][r][round] = (struct sample){.seconds = racers[0].seconds};
            } else
                slowdowns->alone[a][r][round] = slowdowns->alone[a][0][round];
        }
    return STATUS_OK;
}

/* Whether the activity `a` of a pair was the first or the second. */
static int racer_of(int a, int b) { return a <= b ? 0 : 1; }

static void keep(struct slowdowns *slowdowns, int round, const struct racer *racer, const struct racer *other) {
    slowdowns->beside[racer->work->activity][other->work->activity][round] =
        (struct beside){racer->seconds, other->busy};
}

/* A program has one stream that reads the disk, and one that writes it: no two of these are concurrent. */
static bool is_pair(const bool present[ACTIVITY_COUNT], int a, int b) {
    bool alone = a == b && (a == ACTIVITY_DISK_READ || a == ACTIVITY_DISK_WRITE);
    return present[a] && present[b] && !alone;
}

static double slowdown_in(const struct beside *beside, double alone_s) {
    return 1 + fmax(0, (beside->seconds / alone_s - 1) / beside->busy);
}

/* Whether the last two rounds agree on how much `a` is slowed down by `b`. */
static bool agree(const struct slowdowns *slowdowns, int round, int a, int b) {
    const struct beside *rounds = slowdowns->beside[a][b];
    const struct sample *alone = slowdowns->alone[a][racer_of(a, b)];
    double last = slowdown_in(&rounds[round - 1], alone[round - 1].seconds),
           before = slowdown_in(&rounds[round - 2], alone[round - 2].seconds);
    return fmax(last, before) <= (1 + SAME) * fmin(last, before);
}

/* Two rounds that agree stand for the third. */
static bool is_known(struct slowdowns *slowdowns, int round, int a, int b) {
    if (round < ROUNDS_MIN || !agree(slowdowns, round, a, b) || !agree(slowdowns, round, b, a)) return false;
    slowdowns->beside[a][b][round] = slowdowns->beside[a][b][round - 1];
    slowdowns->beside[b][a][round] = slowdowns->beside[b][a][round - 1];
    return true;
}

static enum status race_pairs(struct slowdowns *slowdowns, int round) {
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int b = a; b < ACTIVITY_COUNT; b++) {
            struct rate_work *works[RACERS] = {&slowdowns->works[a][0], &slowdowns->works[b][1]};
            struct racer racers[RACERS];
            if (!is_pair(slowdowns->present, a, b) || is_known(slowdowns, round, a, b)) continue;
            TRY(race(works, RACERS, racers));
            keep(slowdowns, round, &racers[0], &racers[1]);
            if (a != b) keep(slowdowns, round, &racers[1], &racers[0]);
        }
    return STATUS_OK;
}

/* The least of all rounds. A round in which the other hardly worked gives an uncertain, large value. */
static double min_slowdown(const struct beside *rounds, int count, double alone_s) {
    double min = INFINITY;
    for (int i = 0; i < count; i++)
        min = fmin(min, slowdown_in(&rounds[i], alone_s));
    return min;
}

static void fill_rates(struct slowdowns *slowdowns, int rounds, struct cluster_rates *rates) {
    for (int a = 0; a < ACTIVITY_COUNT; a++) {
        if (!slowdowns->present[a]) continue;
        struct measurement alone[RACERS];
        for (int r = 0; r < RACERS; r++) {
            alone[r] = measurement_of(slowdowns->alone[a][r], rounds);
            if (alone[r].spread > rates->noise) rates->noise = alone[r].spread;
        }
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            if (is_pair(slowdowns->present, a, b))
                rates->slowdown[a][b] = min_slowdown(slowdowns->beside[a][b], rounds, alone[racer_of(a, b)].seconds);
    }
}

static enum status measure(const struct rate_machine *machine, struct slowdowns *slowdowns,
                           struct cluster_rates *rates) {
    int round = 0;
    TRY(open_works(machine, slowdowns));
    for (; round < SLOWDOWN_ROUNDS && (round == 0 || clock_now_ns() < machine->allowance->end_ns); round++) {
        TRY(race_alone(slowdowns, round));
        TRY(race_pairs(slowdowns, round));
    }
    fill_rates(slowdowns, round, rates);
    return STATUS_OK;
}

int slowdown_races(const bool present[ACTIVITY_COUNT]) {
    int count = 0;
    for (int a = 0; a < ACTIVITY_COUNT; a++) {
        count += present[a] ? count_ways((enum activity)a) : 0;
        for (int b = a; b < ACTIVITY_COUNT; b++)
            count += is_pair(present, a, b);
    }
    return SLOWDOWN_ROUNDS * count;
}

void slowdown_none(struct cluster_rates *rates) {
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            rates->slowdown[a][b] = 1;
}

enum status slowdown_measure(const struct rate_machine *machine, const bool present[ACTIVITY_COUNT],
                             struct cluster_rates *rates) {
    struct slowdowns slowdowns = {.present = present};
    slowdown_none(rates);
    enum status status = measure(machine, &slowdowns, rates);
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int r = 0; r < RACERS; r++)
            rate_work_close(&slowdowns.works[a][r]);
    return status;
}
