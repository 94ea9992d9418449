/* Matrix products of GPT-2 124M's step (1024 tokens), of adapters and of decoding: processor time of each, which other
 * programs on the machine change less than time.
 *
 *     build/bench/product_speed [fp32|bf16] [THREADS [NAME [FORMAT]]]
 *
 * Of all products, or of those whose names contain NAME ("" too); with FORMAT (nf4, int8, mxfp4) of those whose b may
 * be a frozen weight, which is in it then. Two builds are compared by running them in turns and taking
 * the least of each. A product is run until it has taken 0.1 s of processor time, three times at least, but no run
 * begins after 2 s: beside other programs fewer runs are made. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/cpu_isa.h"
#include "backend/cpu/matmul.h"
#include "base/mem.h"
#include "base/process.h"
#include "cli/limit_spinning.h"

enum { RUNS_LEAST = 3, ALIGNMENT = 64 };
static const double processor_s_least = 0.1, elapsed_s_most = 2;

/* a by rows, or by columns (a weight's gradient); b by rows, or by columns. */
static const struct product {
    const char *name;
    int64_t m, n, k;
    bool a_columns, b_columns;
} products[] = {
    {"qkv", 1024, 2304, 768, false, false},     {"fc", 1024, 3072, 768, false, false},
    {"fc2", 1024, 768, 3072, false, false},     {"fc.dx", 1024, 768, 3072, false, true},
    {"fc2.dx", 1024, 3072, 768, false, true},   {"qkv.dw", 768, 2304, 1024, true, false},
    {"fc.dw", 768, 3072, 1024, true, false},    {"fc2.dw", 3072, 768, 1024, true, false},
    {"head", 512, 50257, 768, false, true},     {"head.dx", 512, 768, 50257, false, false},
    {"head.dw", 50257, 768, 512, true, false},  {"lora.a", 1024, 8, 768, false, true},
    {"lora.b", 1024, 768, 8, false, true},      {"lora.dA", 8, 768, 1024, true, false},
    {"lora.dB", 768, 8, 1024, true, false},     {"token.kn", 1, 3072, 768, false, false},
    {"token.nk", 1, 3072, 768, false, true},    {"8 tokens.kn", 8, 3072, 768, false, false},
    {"8 tokens.nk", 8, 3072, 768, false, true},
};

static double clock_s(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static struct matmul_spec spec_of(const struct product *product, enum dtype dtype) {
    return (struct matmul_spec){.m = product->m,
                                .n = product->n,
                                .k = product->k,
                                .a_row = product->a_columns ? 1 : product->k,
                                .a_k = product->a_columns ? product->m : 1,
                                .b_k = product->b_columns ? 1 : product->n,
                                .b_column = product->b_columns ? product->k : 1,
                                .c_row = product->n,
                                .dtype = dtype,
                                .out_dtype = product->a_columns ? DTYPE_F32 : dtype};
}

/* Pages are there, and numbers do not change the time; they are small, and so are scales, and none is subnormal. */
static void *buffer(int64_t bytes) {
    enum { SMALL = 0x3c };
    size_t rounded = ((size_t)bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    void *block = mem_aligned(ALIGNMENT, rounded);
    if (block) memset(block, SMALL, rounded);
    return block;
}

static double best_s(const struct matmul *matmul, const struct matmul_operands *operands, void *workspace) {
    double best = 1e30, total = 0, begin = clock_s(CLOCK_MONOTONIC);
    for (int run = 0; run < RUNS_LEAST || total < processor_s_least; run++) {
        if (run > 0 && clock_s(CLOCK_MONOTONIC) - begin > elapsed_s_most) break;
        double start = clock_s(CLOCK_PROCESS_CPUTIME_ID);
        matmul_run(matmul, operands, workspace);
        double taken = clock_s(CLOCK_PROCESS_CPUTIME_ID) - start;
        if (taken < best) best = taken;
        total += taken;
    }
    return best;
}

/* Weights' gradients have no weight; a row is whole blocks of some formats. */
static bool has_format(const struct product *product, enum weight_format format) {
    return !product->a_columns && weight_format_fits(format, 0, product->b_columns ? product->k : product->n);
}

static enum status measure(const struct product *product, enum dtype dtype, enum weight_format format) {
    struct matmul_spec spec = spec_of(product, dtype);
    if (format != WEIGHT_PLAIN && !has_format(product, format)) return STATUS_OK;
    spec.b_format = format;
    struct matmul *matmul;
    TRY(matmul_create(&spec, &matmul));
    int64_t bytes = matmul_workspace_bytes(matmul);
    void *a = buffer(spec.m * spec.k * 4), *b = buffer(spec.n * spec.k * 4), *c = buffer(spec.m * spec.n * 4);
    void *workspace = buffer(bytes);
    bool there = a && b && c && workspace;
    if (there) {
        double seconds = best_s(matmul, &(struct matmul_operands){.a = a, .b = b, .c = c}, workspace);
        printf("%-12s %6lld x %6lld x %6lld  %10.1f us  %7.1f GFLOP/s  %8.2f MiB  %s\n", product->name,
               (long long)spec.m, (long long)spec.n, (long long)spec.k, seconds * 1e6,
               2e-9 * (double)spec.m * (double)spec.n * (double)spec.k / seconds, (double)bytes / (1 << 20),
               matmul_implementation(matmul));
        fflush(stdout);
    }
    mem_free(workspace);
    mem_free(c);
    mem_free(b);
    mem_free(a);
    matmul_free(matmul);
    return there ? STATUS_OK : STATUS_FAILED;
}

int main(int count, char **words) {
    enum dtype dtype = count > 1 && strcmp(words[1], "bf16") == 0 ? DTYPE_BF16 : DTYPE_F32;
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    limit_spinning(words);
    if (cpu_isa_check() != STATUS_OK) return STATUS_FAILED;
    omp_set_num_threads(count > 2 ? atoi(words[2]) : 1);
    printf("%s, %s%s%s\n", dtype_name(dtype), cpu_isa_name(), count > 4 ? ", b in " : "", count > 4 ? words[4] : "");
    const char *named = count > 3 ? words[3] : "";
    enum weight_format format = count > 4 ? weight_format_find(words[4]) : WEIGHT_PLAIN;
    if (format == WEIGHT_FORMAT_COUNT || weight_format_has_groups(format)) {
        fprintf(stderr, "%s: no format of frozen weights that is made here\n", words[4]);
        return STATUS_BAD_INPUT;
    }
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        if (strstr(products[i].name, named) && measure(&products[i], dtype, format) != STATUS_OK) {
            fprintf(stderr, "%s: %s\n", products[i].name, status_message());
            return STATUS_FAILED;
        }
    return 0;
}
