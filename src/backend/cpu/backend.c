/* The CPU backend: memory of the process, threads of OpenMP. */
#include <omp.h>
#include <pthread.h>

#include "backend/cpu/kernel.h"
#include "backend/cpu/parallel.h"
#include "collective/lane_tree.h"

static kernel_maker *maker(const struct op *op) {
#define CPU_MAKER(name)                                                                                                \
    if (op == &op_##name) return cpu_##name##_create;
    CPU_OP_LIST(CPU_MAKER)
#undef CPU_MAKER
    return NULL;
}

static void touch(const void *context, int64_t task, int thread) { (void)context, (void)task, (void)thread; }

/* OpenMP makes a thread's team in its first loop, and allocates for it. */
static void set_threads(int threads) {
    omp_set_num_threads(threads);
    parallel_tasks(threads, threads, touch, NULL);
}

enum { ZERO_BLOCK_BYTES = 1 << 20 };

static void zero_bytes(const void *context, int64_t begin, int64_t end) {
    memset((char *)*(void *const *)context + begin, 0, (size_t)(end - begin));
}

static void zero(void *to, int64_t bytes, void *stream) {
    (void)stream;
    parallel_for(bytes, ZERO_BLOCK_BYTES, zero_bytes, &to);
}

struct addition {
    float *to;
    const float *from; /* NULL: only rounds */
    bool round_bf16;
};

static void add_floats(const void *context, int64_t begin, int64_t end) {
    const struct addition *addition = context;
    float *to = addition->to + begin;
    if (addition->from)
        lane_add(to, to, addition->from + begin, end - begin, addition->round_bf16);
    else
        lane_round(to, end - begin);
}

static void add(void *to, const void *from, int64_t count, bool round_bf16, void *stream) {
    (void)stream;
    const struct addition addition = {to, from, round_bf16};
    parallel_for(count, ZERO_BLOCK_BYTES / (int64_t)sizeof(float), add_floats, &addition);
}

static void copy(void *to, const void *from, int64_t bytes, void *stream) {
    (void)stream;
    memcpy(to, from, (size_t)bytes);
}

static int64_t found_cache_bytes;
static void find_cache(void) { found_cache_bytes = cluster_cache_bytes(); }

/* Found once: every operator that is measured asks for it. */
static int64_t cache_bytes(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_cache);
    return found_cache_bytes;
}

/* bf16 where oneDNN multiplies bf16 in hardware. The instruction set in use decides, not the one the processor has. */
static enum dtype fastest_dtype(void) {
    const char *isa = cpu_isa_name();
    return strstr(isa, "+amx") || strstr(isa, "+bf16") ? DTYPE_BF16 : DTYPE_F32;
}

/* All memory counts as the device tier's; a host tier, where the user asks for one, is a part of it. */
static enum status capacity(int64_t bytes[TIER_COUNT]) {
    struct cluster_memory memory;
    TRY(cluster_measure_memory(&memory));
    for (int tier = 0; tier < TIER_COUNT; tier++)
        bytes[tier] = tier == TIER_DEVICE ? memory.capacity_bytes : 0;
    return STATUS_OK;
}

static enum status measure(struct cluster *out) {
    TRY(cluster_measure(out));
    snprintf(out->device.isa, sizeof out->device.isa, "%s", cpu_isa_name());
    return STATUS_OK;
}

const struct backend backend_cpu = {
    .name = "cpu",
    .isa_prefix = "",
    .check = cpu_isa_check,
    .isa = cpu_isa_name,
    .fastest_dtype = fastest_dtype,
    .capacity = capacity,
    .measure = measure,
    .kernels_version = 10,
    .micro_batch_tokens = 1024,
    .set_threads = set_threads,
    .maker = maker,
    .prepare = cpu_isa_check,
    .cache_bytes = cache_bytes,
    .zero = zero,
    .add = add,
    .copy = copy,
};
