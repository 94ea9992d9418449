#include "profile/operator_bench.h"

#include <math.h>
#include <unistd.h>

#include "profile/operator_values.h"

enum { CALLS_MOST = 9, ALIGNMENT = 4096 };
static const double LONG_CALL_S = 0.3; /* what a first call has more to do is little of it */
static const double CALLS_MOST_S = 0.06;
/* What comes from memory in some microseconds: not worth emptying the caches for, which takes milliseconds. */
static const int64_t COLD_LEAST_BYTES = (int64_t)64 << 10;
static const int64_t COPIES_MOST_BYTES = (int64_t)256 << 20, CACHE_DEFAULT_BYTES = (int64_t)32 << 20,
                     PRIVATE_CACHE_DEFAULT_BYTES = (int64_t)1 << 20;

static int64_t align(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

void bench_memory_free(struct bench_memory *memory) { arena_close(&memory->arena); }

static enum status grow(struct bench_memory *memory, int64_t bytes) {
    if (memory->arena.bytes >= bytes) return STATUS_OK;
    arena_close(&memory->arena);
    memory->arena = (struct arena){0};
    return arena_open(TIER_DEVICE, bytes, NULL, &memory->arena);
}

/* Half again the last cache: what passes through it when so much is touched. */
static int64_t flush_bytes(void) {
    int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return (cache > 0 ? cache : CACHE_DEFAULT_BYTES) / 2 * 3;
}

/* What passes through the caches that cores have for themselves, each of which sees its part of every operand; it stays
 * in the one that they share. */
static int64_t private_bytes(void) {
    int64_t cache = sysconf(_SC_LEVEL2_CACHE_SIZE), cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t all = (cache > 0 ? cache : PRIVATE_CACHE_DEFAULT_BYTES) * (cores > 0 ? cores : 1);
    return all < flush_bytes() / 3 ? all : flush_bytes() / 3;
}

/* As many copies as fill the caches, but no more than there are calls, and than memory is left. */
static int count_copies(int64_t bytes, int64_t caches_bytes, int64_t left_bytes) {
    int64_t most = CALLS_MOST + 1;
    if (bytes == 0) return 1;
    if (left_bytes > COPIES_MOST_BYTES) left_bytes = COPIES_MOST_BYTES;
    int64_t copies = caches_bytes / bytes + 1;
    if (copies > left_bytes / bytes) copies = left_bytes / bytes;
    return (int)(copies < 1 ? 1 : copies > most ? most : copies);
}

static struct operand_copies *copies_of(struct operator_bench *bench, int storage) {
    return bench->operands.storages[storage].cold ? &bench->cold : &bench->warm;
}

/* Offsets of all storages; returns the bytes of all. The memory first holds one of each. */
static int64_t lay_out(struct operator_bench *bench, int64_t most_bytes) {
    struct operand_copies *warm = &bench->warm, *cold = &bench->cold;
    for (int i = 0; i < bench->operands.storage_count; i++) {
        struct operand_copies *copies = copies_of(bench, i);
        bench->offset[i] = copies->bytes;
        copies->bytes += align(shape_bytes(&bench->operands.storages[i].tensor->shape));
    }
    warm->at = align(bench->kernel->workspace_bytes);
    warm->count = count_copies(warm->bytes, private_bytes(), most_bytes - warm->at - cold->bytes);
    cold->at = warm->at + warm->count * warm->bytes;
    cold->count = count_copies(cold->bytes, flush_bytes(), most_bytes - cold->at);
    return cold->at + cold->count * cold->bytes;
}

static char *storage_data(struct operator_bench *bench, int storage, int64_t copy) {
    const struct operand_copies *copies = copies_of(bench, storage);
    return bench->base + copies->at + copy % copies->count * copies->bytes + bench->offset[storage];
}

static void touch(const char *from, int64_t bytes) {
    enum { LINE_BYTES = 64 };
    volatile const char *at = from;
    for (int64_t i = 0; i < bytes; i += LINE_BYTES)
        (void)at[i];
}

static void fill(struct operator_bench *bench) {
    for (int i = 0; i < bench->operands.storage_count; i++) {
        const struct operand_storage *storage = &bench->operands.storages[i];
        for (int copy = 0; copy < copies_of(bench, i)->count; copy++)
            operator_values_fill(bench->operands.node, storage->tensor, storage_data(bench, i, copy));
    }
}

enum status operator_bench_open(const struct backend *backend, const struct operands *operands,
                                struct bench_memory *memory, struct operator_bench *out) {
    *out = (struct operator_bench){.operands = *operands};
    TRY(backend->kernel_create(operands->node, &out->kernel));
    int64_t most = memory->most_bytes > 0 ? memory->most_bytes : INT64_MAX, bytes = lay_out(out, most);
    bool flushes = out->cold.bytes >= COLD_LEAST_BYTES && out->cold.count * out->cold.bytes < flush_bytes() &&
                   bytes + flush_bytes() <= most;
    enum status status = grow(memory, bytes + (flushes ? flush_bytes() : 0));
    if (status != STATUS_OK) {
        operator_bench_close(out);
        return status;
    }
    out->base = memory->arena.base;
    fill(out);
    /* So much that nothing of what was filled is left in the caches; then what is warm comes back into them. */
    if (flushes) touch(out->base + bytes, flush_bytes());
    touch(out->base + out->warm.at, out->warm.count * out->warm.bytes);
    operator_values_scalars(operands->node, out->scalars);
    return STATUS_OK;
}

void operator_bench_close(struct operator_bench *bench) {
    if (bench->kernel) bench->kernel->release(bench->kernel);
    bench->kernel = NULL;
}

static void *operand_data(struct operator_bench *bench, int operand) {
    int storage = bench->operands.storage[operand];
    if (storage < 0) return NULL;
    const struct tensor *tensor = operand_tensor(bench->operands.node, operand);
    return storage_data(bench, storage, bench->calls) + tensor_storage_offset(tensor);
}

void operator_bench_run(struct operator_bench *bench) {
    struct kernel_call call = {.workspace = bench->base, .scalars = bench->scalars};
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        call.in[i] = operand_data(bench, i);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        call.out[i] = operand_data(bench, OP_INPUTS_MAX + i);
    bench->kernel->run(bench->kernel, &call);
    bench->calls++;
}

static struct sample time_call(struct operator_bench *bench) {
    struct stopwatch stopwatch = stopwatch_begin();
    operator_bench_run(bench);
    return stopwatch_end(&stopwatch);
}

struct measurement operator_bench_measure(struct operator_bench *bench, double budget_s) {
    struct sample calls[CALLS_MOST], first = time_call(bench);
    double spent = first.seconds;
    int count = 0;
    if (first.seconds >= LONG_CALL_S) return measurement_of(&first, 1);
    do {
        calls[count] = time_call(bench);
        spent += calls[count++].seconds;
    } while (count < CALLS_MOST && spent < fmin(budget_s, CALLS_MOST_S));
    return measurement_of(calls, count);
}
