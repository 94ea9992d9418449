/* Measures the cost of GEMM algorithms with a fixed order of summation. Compares the algorithm that the backend chose
 * with cuBLASLt's first eight of that kind, and with the fastest in any order.
 *
 *     build/bench/product_choice
 *
 * The GEMMs are those of a layer of a model with 1.2 billion parameters on 4096 tokens in bf16: forward, dx, and dw
 * (accumulated in fp32); and the logits of GPT-2's vocabulary of 50257, compared with 50304. Times are the device's,
 * the median of several series of calls. Exits with 77 without a GPU. */
#include <cublasLt.h>
#include <stdio.h>

#include "backend/cuda/kernel.h"
#include "backend/cuda/matmul.h"
#include "support/median.h"

enum { TOKENS = 4096, ALGORITHMS = 32, ORDERED_MAX = 8, ROWS = 3, CALLS = 5 };
static const size_t WORKSPACE_BYTES = (size_t)32 << 20;

/* In cuBLASLt's column order: c [m][n] = a [m][k] b [k][n], packed; a and b may be transposed in memory. */
struct product {
    const char *name;
    int64_t m, n, k;
    bool a_turned, b_turned, adds; /* adds: accumulates into c, in fp32 */
};

#define LAYER(name, in, out)                                                                                           \
    {name " forward", out, TOKENS, in, true, false, false}, {name " dx", in, TOKENS, out, false, false, false}, {      \
        name " dw", in, out, TOKENS, false, true, true                                                                 \
    }
static const struct product products[] = {LAYER("q", 2048, 2048),
                                          LAYER("k", 2048, 512),
                                          LAYER("up", 2048, 8192),
                                          LAYER("down", 8192, 2048),
                                          {"logits 50257", 50257, TOKENS, 768, true, false, false},
                                          {"logits 50304", 50304, TOKENS, 768, true, false, false}};
enum { PRODUCTS = sizeof products / sizeof *products };

struct bench {
    cublasLtHandle_t library;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    void *a, *b, *c, *workspace;
};

/* One way to compute a GEMM. */
struct way {
    struct cuda_matmul *own; /* the backend's choice, or NULL for: */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulHeuristicResult_t found[ALGORITHMS];
    int count;
};

static enum status check(cublasStatus_t status, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return STATUS_OK;
    return status_set(STATUS_FAILED, "cuBLASLt: %s: %s", what, cublasLtGetStatusString(status));
}

static struct cuda_matmul_spec spec_of(const struct product *product) {
    return cuda_matmul_aligned((struct matmul_spec){.m = product->n,
                                                    .n = product->m,
                                                    .k = product->k,
                                                    .a_row = product->b_turned ? 1 : product->k,
                                                    .a_k = product->b_turned ? product->n : 1,
                                                    .b_k = product->a_turned ? 1 : product->m,
                                                    .b_column = product->a_turned ? product->k : 1,
                                                    .c_row = product->m,
                                                    .addend_row = product->adds ? product->m : 0,
                                                    .dtype = DTYPE_BF16,
                                                    .out_dtype = product->adds ? DTYPE_F32 : DTYPE_BF16});
}

static enum status create_layout(cudaDataType_t type, int64_t rows, int64_t columns, bool turned,
                                 cublasLtMatrixLayout_t *out) {
    int64_t down = turned ? columns : rows, across = turned ? rows : columns;
    return check(cublasLtMatrixLayoutCreate(out, type, (uint64_t)down, (uint64_t)across, down), "a layout");
}

static enum status set_turn(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t which, bool turned) {
    cublasOperation_t turn = turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    return check(cublasLtMatmulDescSetAttribute(operation, which, &turn, sizeof turn), "an operation");
}

/* Finds all algorithms that the library suggests, with any order of summation. */
static enum status find_algorithms(const struct bench *bench, struct way *way) {
    cublasLtMatmulPreference_t preference;
    TRY(check(cublasLtMatmulPreferenceCreate(&preference), "a preference"));
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                 &WORKSPACE_BYTES, sizeof WORKSPACE_BYTES);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoGetHeuristic(bench->library, way->operation, way->a, way->b, way->c, way->c,
                                                preference, ALGORITHMS, way->found, &way->count);
    cublasLtMatmulPreferenceDestroy(preference);
    return check(status, "the candidates");
}

static enum status open_any(const struct bench *bench, const struct product *product, struct way *out) {
    cudaDataType_t type = product->adds ? CUDA_R_32F : CUDA_R_16BF;
    TRY(check(cublasLtMatmulDescCreate(&out->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "an operation"));
    TRY(set_turn(out->operation, CUBLASLT_MATMUL_DESC_TRANSA, product->a_turned));
    TRY(set_turn(out->operation, CUBLASLT_MATMUL_DESC_TRANSB, product->b_turned));
    TRY(create_layout(CUDA_R_16BF, product->m, product->k, product->a_turned, &out->a));
    TRY(create_layout(CUDA_R_16BF, product->k, product->n, product->b_turned, &out->b));
    TRY(create_layout(type, product->m, product->n, false, &out->c));
    return find_algorithms(bench, out);
}

static void close_way(struct way *way) {
    cuda_matmul_free(way->own);
    if (way->operation) cublasLtMatmulDescDestroy(way->operation);
    if (way->a) cublasLtMatrixLayoutDestroy(way->a);
    if (way->b) cublasLtMatrixLayoutDestroy(way->b);
    if (way->c) cublasLtMatrixLayoutDestroy(way->c);
}

static enum status call(const struct bench *bench, const struct product *product, const struct way *way, int index) {
    float one = 1, old = product->adds ? 1 : 0;
    if (way->own) {
        struct matmul_operands operands = {
            .a = bench->b, .b = bench->a, .addend = product->adds ? bench->c : NULL, .c = bench->c};
        cuda_matmul_run(way->own, &operands, bench->workspace, bench->stream);
        return STATUS_OK;
    }
    return check(cublasLtMatmul(bench->library, way->operation, &one, bench->a, way->a, bench->b, way->b, &old,
                                bench->c, way->c, bench->c, way->c, &way->found[index].algo, bench->workspace,
                                WORKSPACE_BYTES, bench->stream),
                 "a product");
}

static enum status time_way(const struct bench *bench, const struct product *product, const struct way *way, int index,
                            double *seconds) {
    double rows[ROWS];
    TRY(call(bench, product, way, index)); /* the first call loads code */
    for (int row = 0; row < ROWS; row++) {
        float milliseconds;
        TRY(cuda_status(cudaEventRecord(bench->begin, bench->stream), "an event"));
        for (int i = 0; i < CALLS; i++)
            TRY(call(bench, product, way, index));
        TRY(cuda_status(cudaEventRecord(bench->end, bench->stream), "an event"));
        TRY(cuda_status(cudaEventSynchronize(bench->end), "products"));
        TRY(cuda_status(cudaEventElapsedTime(&milliseconds, bench->begin, bench->end), "an event's time"));
        rows[row] = (double)milliseconds * 1e-3 / CALLS;
    }
    *seconds = median(rows, ROWS);
    return STATUS_OK;
}

/* Whether the algorithm sums its parts in no fixed order. */
static bool is_unordered(const cublasLtMatmulAlgo_t *algorithm) {
    uint32_t scheme = 0;
    size_t written;
    (void)cublasLtMatmulAlgoConfigGetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme,
                                               &written);
    return scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE;
}

/* The fastest of all algorithms, and the fastest of the first ORDERED_MAX with a fixed order of summation. -1: none. */
struct found {
    double any_s, ordered_s;
    int any, ordered;
};

static enum status time_any(const struct bench *bench, const struct product *product, const struct way *way,
                            struct found *out) {
    int ordered = 0;
    *out = (struct found){.any = -1, .ordered = -1};
    for (int i = 0; i < way->count; i++) {
        double seconds;
        bool in_order = !is_unordered(&way->found[i].algo);
        if (way->found[i].state != CUBLAS_STATUS_SUCCESS || (in_order && ordered == ORDERED_MAX)) continue;
        TRY(time_way(bench, product, way, i, &seconds));
        if (out->any < 0 || seconds < out->any_s) out->any = i, out->any_s = seconds;
        if (!in_order) continue;
        ordered++;
        if (out->ordered < 0 || seconds < out->ordered_s) out->ordered = i, out->ordered_s = seconds;
    }
    return out->ordered >= 0 ? STATUS_OK : status_set(STATUS_FAILED, "cuBLASLt has no algorithm for %s", product->name);
}

static void print_product(const struct product *product, double chosen, const struct found *found) {
    double tflop = 2.0 * (double)product->m * (double)product->n * (double)product->k * 1e-12;
    printf("%-14s %8.1f %8.1f (number %2d) %8.1f (number %2d) TFLOP/s\n", product->name, tflop / chosen,
           tflop / found->ordered_s, found->ordered + 1, tflop / found->any_s, found->any + 1);
    fflush(stdout);
}

static enum status compare(const struct bench *bench, const struct product *product, double sums[3]) {
    struct cuda_matmul_spec spec = spec_of(product);
    struct way own = {0}, any = {0};
    struct found found;
    double chosen = 0;
    enum status status = cuda_matmul_create(&spec, &own.own);
    if (status == STATUS_OK) status = open_any(bench, product, &any);
    if (status == STATUS_OK) status = time_way(bench, product, &own, 0, &chosen);
    if (status == STATUS_OK) status = time_any(bench, product, &any, &found);
    if (status == STATUS_OK) {
        print_product(product, chosen, &found);
        sums[0] += chosen;
        sums[1] += found.ordered_s;
        sums[2] += found.any_s;
    }
    close_way(&own);
    close_way(&any);
    return status;
}

static enum status open_bench(struct bench *bench) {
    const size_t max = (size_t)50304 * TOKENS * 2; /* also enough for 8192 x 8192 in fp32 */
    void **const blocks[] = {&bench->a, &bench->b, &bench->c};
    TRY(check(cublasLtCreate(&bench->library), "cannot be used"));
    TRY(cuda_status(cudaStreamCreateWithFlags(&bench->stream, cudaStreamNonBlocking), "a stream"));
    TRY(cuda_status(cudaEventCreate(&bench->begin), "an event"));
    TRY(cuda_status(cudaEventCreate(&bench->end), "an event"));
    TRY(cuda_status(cudaMalloc(&bench->workspace, WORKSPACE_BYTES + 256), "memory"));
    for (int i = 0; i < 3; i++) {
        TRY(cuda_status(cudaMalloc(blocks[i], max), "memory"));
        TRY(cuda_status(cudaMemset(*blocks[i], 0x3c, max), "memory")); /* small numbers: 0x3c3c is 0.011 */
    }
    return STATUS_OK;
}

static void close_bench(struct bench *bench) {
    cudaFree(bench->a), cudaFree(bench->b), cudaFree(bench->c), cudaFree(bench->workspace);
    if (bench->begin) cudaEventDestroy(bench->begin);
    if (bench->end) cudaEventDestroy(bench->end);
    if (bench->stream) cudaStreamDestroy(bench->stream);
    if (bench->library) cublasLtDestroy(bench->library);
}

static enum status measure(void) {
    struct bench bench = {0};
    double sums[3] = {0};
    enum status status = open_bench(&bench);
    printf("%-14s %8s %20s %20s\n", "", "chosen", "best of 8 in order", "best in any order");
    for (int i = 0; i < PRODUCTS && status == STATUS_OK; i++)
        status = compare(&bench, &products[i], sums);
    if (status == STATUS_OK)
        printf("= all products: %.3f ms; by the best of the first 8 in order %.3f (%.1f%% less), in any order %.3f\n",
               sums[0] * 1e3, sums[1] * 1e3, 100 * (1 - sums[1] / sums[0]), sums[2] * 1e3);
    close_bench(&bench);
    return status;
}

int main(void) {
    const struct backend *backend;
    if (backend_find("cuda", &backend) != STATUS_OK) {
        fprintf(stderr, "product_choice: %s\n", status_message());
        return 77;
    }
    if (measure() == STATUS_OK) return 0;
    fprintf(stderr, "product_choice: %s\n", status_message());
    return 1;
}
