/* Compares the fp32 GEMMs of a GPT-2 124M step with oneDNN, BLIS and OpenBLAS, in turns in one process. Measures time,
 * or with OMP_NUM_THREADS=1 processor time, which other programs hardly affect.
 *
 *     build/bench/product_peers [ROUNDS [NAME]]
 *
 * Runs 5 rounds, or ROUNDS, of all GEMMs, or of those whose name contains NAME. In a round, each contender multiplies
 * the same operands once, on all OpenMP threads, in the layouts of the step (1024 tokens; the head in tiles of 512).
 * For each GEMM a line has the medians in GFLOP/s, and the median over rounds of the best peer's time divided by
 * Ballast's. The last line is for all GEMMs, weighted by their number in a step. If the norms of results differ by more
 * than 1e-5 relative, the program fails. BLIS and OpenBLAS are loaded if they are installed:
 *
 *     apt-get install libblis4-openmp libopenblas0-openmp
 *
 * With BALLAST_MAX_ISA=avx2 all contenders use AVX2. */
#include <dlfcn.h>
#include <math.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "backend/cpu/kernel.h"
#include "backend/cpu/matmul/matmul.h"
#include "base/mem.h"
#include "base/terminal.h"
#include "cli/program.h"
#include "support/median.h"

enum { ROUNDS_MAX = 99, ALIGNMENT = 2 << 20 };

/* Whether a is in rows or in columns (a weight's gradient), the same for b, and the number of calls in a step of one
 * sequence. */
static const struct product {
    const char *name;
    int64_t m, n, k;
    bool a_columns, b_columns;
    int count;
} products[] = {
    {"qkv", 1024, 2304, 768, false, false, 12},   {"qkv.dx", 1024, 768, 2304, false, true, 12},
    {"qkv.dw", 768, 2304, 1024, true, false, 12}, {"out", 1024, 768, 768, false, false, 12},
    {"out.dx", 1024, 768, 768, false, true, 12},  {"out.dw", 768, 768, 1024, true, false, 12},
    {"fc", 1024, 3072, 768, false, false, 12},    {"fc.dx", 1024, 768, 3072, false, true, 12},
    {"fc.dw", 768, 3072, 1024, true, false, 12},  {"fc2", 1024, 768, 3072, false, false, 12},
    {"fc2.dx", 1024, 3072, 768, false, true, 12}, {"fc2.dw", 3072, 768, 1024, true, false, 12},
    {"head", 512, 50257, 768, false, true, 2},    {"head.dx", 512, 768, 50257, false, false, 2},
    {"head.dw", 50257, 768, 512, true, false, 2},
};
enum { PRODUCTS = sizeof products / sizeof *products };

/* sgemm of BLAS, with matrices in columns. */
typedef void sgemm_function(const char *a_way, const char *b_way, const int *m, const int *n, const int *k,
                            const float *alpha, const float *a, const int *a_apart, const float *b, const int *b_apart,
                            const float *beta, float *c, const int *c_apart);

enum contender { OWN, ONEDNN, BLIS, OPENBLAS, CONTENDERS };
static const char *const contender_names[CONTENDERS] = {"own", "oneDNN", "BLIS", "OpenBLAS"};
static sgemm_function *loaded[CONTENDERS]; /* NULL: missing, or no BLAS */

struct bench {
    const struct product *product;
    struct matmul *matmul;
    void *workspace;
    float *a, *b, *c, *own_c;
    double seconds[CONTENDERS][ROUNDS_MAX];
};

static double all_flops, all_seconds[CONTENDERS][ROUNDS_MAX];

static sgemm_function *load_sgemm(const char *file) {
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    sgemm_function *sgemm = NULL;
    if (library) *(void **)(void *)&sgemm = dlsym(library, "sgemm_");
    return sgemm;
}

/* The libraries choose kernels and threads when they are loaded. */
static void load_peers(void) {
    const char *max = getenv("BALLAST_MAX_ISA");
    char threads[16];
    if (max && strcmp(max, "avx2") == 0) {
        setenv("OPENBLAS_CORETYPE", "Haswell", 0);
        setenv("BLIS_ARCH_TYPE", "3", 0); /* haswell */
    }
    snprintf(threads, sizeof threads, "%d", omp_get_max_threads());
    setenv("BLIS_NUM_THREADS", threads, 0);
    setenv("OMP_NUM_THREADS", threads, 0);
    loaded[BLIS] = load_sgemm("libblis.so.4");
    loaded[OPENBLAS] = load_sgemm("libopenblas.so.0");
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(omp_get_max_threads() == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool takes_part(enum contender who) { return who == OWN || who == ONEDNN || loaded[who]; }

static void multiply(const struct bench *bench, enum contender who) {
    const struct product *product = bench->product;
    int m = (int)product->m, n = (int)product->n, k = (int)product->k;
    int a_apart = product->a_columns ? m : k, b_apart = product->b_columns ? k : n;
    const char *a_way = product->a_columns ? "T" : "N", *b_way = product->b_columns ? "T" : "N";
    const float one = 1, zero = 0;
    if (who == OWN)
        matmul_run(bench->matmul, &(struct matmul_operands){.a = bench->a, .b = bench->b, .c = bench->own_c},
                   bench->workspace);
    else if (who == ONEDNN)
        BUG_IF(dnnl_sgemm(*a_way, *b_way, m, n, k, one, bench->a, a_apart, bench->b, b_apart, zero, bench->c, n) !=
                   dnnl_success,
               "oneDNN does not multiply");
    else
        loaded[who](b_way, a_way, &n, &m, &k, &one, bench->b, &b_apart, bench->a, &a_apart, &zero, bench->c, &n);
}

static void check(const struct bench *bench, enum contender who) {
    double norm = 0, difference = 0;
    for (int64_t i = 0; i < bench->product->m * bench->product->n; i++) {
        double own = (double)bench->own_c[i], apart = (double)bench->c[i] - own;
        norm += own * own;
        difference += apart * apart;
    }
    BUG_IF(!(sqrt(difference / norm) < 1e-5), "%s: %s differs by %g", bench->product->name, contender_names[who],
           sqrt(difference / norm));
}

/* The first round does not count: pages, code and libraries' buffers are new. */
static void run_rounds(struct bench *bench, int rounds) {
    for (int round = -1; round < rounds; round++)
        for (int who = 0; who < CONTENDERS; who++) {
            if (!takes_part(who)) continue;
            double start = now_s();
            multiply(bench, who);
            double seconds = now_s() - start;
            if (round >= 0) {
                bench->seconds[who][round] = seconds;
                all_seconds[who][round] += seconds * bench->product->count;
            } else if (who != OWN)
                check(bench, who);
        }
}

static double median_of(const double *values, int count) {
    double copy[ROUNDS_MAX];
    memcpy(copy, values, (size_t)count * sizeof *copy);
    return median(copy, count);
}

static void print_rates(const char *name, double flops, int rounds, double seconds[CONTENDERS][ROUNDS_MAX]) {
    enum contender best = ONEDNN;
    double ratios[ROUNDS_MAX];
    printf("%-8s", name);
    for (int who = 0; who < CONTENDERS; who++) {
        if (!takes_part(who)) continue;
        printf("  %s %6.1f", contender_names[who], flops / median_of(seconds[who], rounds) * 1e-9);
        if (who != OWN && median_of(seconds[who], rounds) < median_of(seconds[best], rounds)) best = who;
    }
    for (int i = 0; i < rounds; i++)
        ratios[i] = seconds[best][i] / seconds[OWN][i];
    printf("  own / %s %.3f\n", contender_names[best], median_of(ratios, rounds));
    fflush(stdout);
}

/* Random numbers around 0, in huge pages if available, as in a step. */
static float *operand(int64_t count, uint32_t seed) {
    size_t bytes = (size_t)(count * 4 + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    float *numbers = mem_aligned(ALIGNMENT, bytes);
    if (numbers) (void)madvise(numbers, bytes, MADV_HUGEPAGE);
    for (int64_t i = 0; numbers && i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        numbers[i] = (float)(seed >> 8) / (float)(1 << 23) - 1.0f;
    }
    return numbers;
}

static void bench_close(struct bench *bench) {
    mem_free(bench->a);
    mem_free(bench->b);
    mem_free(bench->c);
    mem_free(bench->own_c);
    mem_free(bench->workspace);
    matmul_free(bench->matmul);
}

static enum status bench_open(const struct product *product, struct bench *out) {
    struct matmul_spec spec = {.m = product->m, .n = product->n, .k = product->k, .c_row = product->n};
    spec.a_row = product->a_columns ? 1 : product->k;
    spec.a_k = product->a_columns ? product->m : 1;
    spec.b_k = product->b_columns ? 1 : product->n;
    spec.b_column = product->b_columns ? product->k : 1;
    spec.dtype = spec.out_dtype = DTYPE_F32;
    out->product = product;
    TRY(matmul_create(&spec, &out->matmul));
    out->a = operand(spec.m * spec.k, 1);
    out->b = operand(spec.k * spec.n, 2);
    out->c = operand(spec.m * spec.n, 3);
    out->own_c = operand(spec.m * spec.n, 4);
    out->workspace = operand(matmul_workspace_bytes(out->matmul) / 4, 5);
    return out->a && out->b && out->c && out->own_c && out->workspace ? STATUS_OK : STATUS_FAILED;
}

static enum status measure(const struct product *product, int rounds) {
    static struct bench bench;
    bench = (struct bench){0};
    enum status status = bench_open(product, &bench);
    if (status == STATUS_OK) {
        double flops = 2.0 * (double)product->m * (double)product->n * (double)product->k;
        run_rounds(&bench, rounds);
        print_rates(product->name, flops, rounds, bench.seconds);
        all_flops += flops * product->count;
    }
    bench_close(&bench);
    return status;
}

int main(int count, char **arguments) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    limit_spinning(arguments);
    if (cpu_isa_check() != STATUS_OK) return STATUS_FAILED;
    int rounds = count > 1 ? atoi(arguments[1]) : 5;
    if (rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "%s: %s rounds; from 1 to %d\n", arguments[0], arguments[1], ROUNDS_MAX);
        return STATUS_BAD_INPUT;
    }
    load_peers();
    printf("%s, %d threads, %d rounds\n", cpu_isa_name(), omp_get_max_threads(), rounds);
    for (int i = 0; i < PRODUCTS; i++)
        if (strstr(products[i].name, count > 2 ? arguments[2] : "") && measure(&products[i], rounds) != STATUS_OK) {
            fprintf(stderr, "%s: %s\n", products[i].name, status_message());
            return STATUS_FAILED;
        }
    if (all_flops > 0) print_rates("all", all_flops, rounds, all_seconds);
    return 0;
}
