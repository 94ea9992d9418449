/* The CPU backend: memory of the process, threads of OpenMP; and what its kernels share. */
#include "backend/cpu/kernel.h"

#include <omp.h>
#include <pthread.h>

#include "backend/cpu/matmul/onednn.h"
#include "collective/lane_tree.h"

static struct {
    pthread_once_t once;
    const struct simd_kernels *simd; /* NULL: none fits */
    bool bad_name, bf16_dots, bf16_tiles;
    char name[48];
} chosen = {.once = PTHREAD_ONCE_INIT};

#if defined(__x86_64__)
static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static const struct simd_kernels *widest(const char *max) {
    bool avx2_only = max && strcmp(max, "avx2") == 0;
    bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2_only) onednn_limit_avx2();
    if (has_avx2 && has_avx512() && !avx2_only) return &simd_kernels_avx512;
    return has_avx2 ? &simd_kernels_avx2 : NULL;
}

static bool is_isa_name(const char *name) { return strcmp(name, "avx512") == 0 || strcmp(name, "avx2") == 0; }
#else
static const struct simd_kernels *widest(const char *max) {
    (void)max;
    return &simd_kernels_generic;
}

static bool is_isa_name(const char *name) { return strcmp(name, "generic") == 0; }
#endif

static void choose(void) {
    const char *max = getenv("BALLAST_MAX_ISA");
    if (max && max[0] == '\0') max = NULL;
    chosen.bad_name = max && !is_isa_name(max);
    chosen.simd = chosen.bad_name ? NULL : widest(max);
    if (!chosen.simd) {
        snprintf(chosen.name, sizeof chosen.name, "none");
        return;
    }
    const char *extra = onednn_isa_name();
    chosen.bf16_tiles = strcmp(extra, "amx") == 0;
    chosen.bf16_dots = strcmp(extra, "bf16") == 0 || chosen.bf16_tiles;
    if (strcmp(extra, chosen.simd->name) == 0) extra = "";
    snprintf(chosen.name, sizeof chosen.name, "%s%s%s", chosen.simd->name, extra[0] ? "+" : "", extra);
}

enum status cpu_isa_check(void) {
    pthread_once(&chosen.once, choose);
    if (chosen.bad_name)
        return status_set(STATUS_BAD_INPUT,
                          "BALLAST_MAX_ISA=%s: this build knows avx2 and avx512 on x86-64, generic "
                          "elsewhere",
                          getenv("BALLAST_MAX_ISA"));
    if (!chosen.simd)
        return status_set(STATUS_FAILED, "this processor lacks AVX2 and FMA, which Ballast needs on x86-64");
    return STATUS_OK;
}

const struct simd_kernels *cpu_simd(void) { return chosen.simd; }

bool cpu_has_bf16_dots(void) { return chosen.bf16_dots; }

bool cpu_has_bf16_tiles(void) { return chosen.bf16_tiles; }

const char *cpu_isa_name(void) {
    pthread_once(&chosen.once, choose);
    return chosen.name;
}

struct rows_kernel {
    struct kernel kernel;
    kernel_rows *rows;
};

struct rows_run {
    const struct rows_kernel *kernel;
    const struct kernel_call *call;
};

static void rows_body(const void *context, int64_t begin, int64_t end) {
    const struct rows_run *run = context;
    run->kernel->rows(run->kernel->kernel.node, run->call, begin, end);
}

static enum status rows_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct shape *shape = &kernel->node->out[0]->shape;
    struct rows_run run = {(const struct rows_kernel *)kernel, call};
    parallel_for(shape_rows(shape), parallel_rows(shape_columns(shape)), rows_body, &run);
    return STATUS_OK;
}

enum status cpu_rows_create(const struct node *node, kernel_rows *rows, struct kernel **out) {
    struct rows_kernel *kernel = kernel_new(node, sizeof *kernel, rows_run);
    if (!kernel) return STATUS_FAILED;
    kernel->rows = rows;
    *out = &kernel->kernel;
    return STATUS_OK;
}

enum { DOT_LANES = 16, DOT_COLUMNS = 512 };

float dot_rows(enum dtype dtype, int64_t columns, const void *a, const void *b) {
    float sums[DOT_LANES] = {0}, result = 0;
    for (int64_t first = 0; first < columns; first += DOT_COLUMNS) {
        float left[DOT_COLUMNS], right[DOT_COLUMNS];
        int64_t width = columns - first < DOT_COLUMNS ? columns - first : DOT_COLUMNS;
        int64_t offset = first * dtype_bytes(dtype);
        cpu_simd()->scale(width, dtype, (const char *)a + offset, 1, DTYPE_F32, left);
        cpu_simd()->scale(width, dtype, (const char *)b + offset, 1, DTYPE_F32, right);
        for (int64_t i = 0; i < width; i++)
            sums[i % DOT_LANES] += left[i] * right[i];
    }
    for (int lane = 0; lane < DOT_LANES; lane++)
        result += sums[lane];
    return result;
}

int64_t sum_blocks(int64_t rows) { return (rows + SUM_ROWS - 1) / SUM_ROWS; }

struct sum_run {
    enum dtype dtype;
    int64_t rows, row_stride;
    const char *data;
    float *out;
};

/* Each range of columns goes through all rows in order, which fixes the order of every sum. */
static void sum_body(const void *context, int64_t begin, int64_t end) {
    const struct sum_run *run = context;
    int64_t bytes = dtype_bytes(run->dtype);
    for (int64_t row = 0; row < run->rows; row++)
        cpu_simd()->accumulate(run->dtype, end - begin, run->data + (row * run->row_stride + begin) * bytes,
                               run->out + begin);
}

void sum_columns(enum dtype dtype, int64_t rows, int64_t columns, const void *data, int64_t row_stride, float *out) {
    struct sum_run run = {dtype, rows, row_stride, data, out};
    parallel_for(columns, parallel_columns(columns), sum_body, &run);
}

void sum_combine(int64_t blocks, int64_t columns, const float *partials, float *out) {
    sum_columns(DTYPE_F32, blocks, columns, partials, columns, out);
}

/* ---- the backend ---- */

static kernel_maker *maker(const struct op *op) {
#define CPU_MAKER(name)                                                                                                \
    if (op == &op_##name) return cpu_##name##_create;
    CPU_OP_LIST(CPU_MAKER)
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
