/* Compares bf16 GEMMs over ten seconds with a burst of 0.15 s after a rest: the rate of a GPU at boost, and its rate
 * when power and heat limit it. MFU is relative to the data sheet; this shows how much of that the GPU can sustain.
 *
 *     build/bench/sustained_rate [SECONDS]        exits with 77 without a GPU */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "backend/cuda/matmul.h"
#include "gpu/gpu_clock.h"

enum { SIDE = 8192 };
static const double BURST_S = 0.15, FLOPS = 2.0 * SIDE * SIDE * SIDE;
static double sustained_s = 10;

struct product {
    const struct gpu_clock *clock;
    struct cuda_matmul *matmul;
    void *a, *b, *c, *workspace;
};

static enum status enqueue(void *context) {
    struct product *product = context;
    const struct matmul_operands operands = {.a = product->a, .b = product->b, .c = product->c};
    (void)cuda_matmul_run(product->matmul, &operands, product->workspace, product->clock->stream);
    return backend_cuda.streams->check();
}

/* Random bits cost a GPU the most power. With zeros its clock would stay high. */
static enum status take_random(void **out) {
    const int64_t bytes = (int64_t)SIDE * SIDE * 2;
    TRY(backend_cuda.memory->take(TIER_DEVICE, bytes, out));
    uint16_t *values = malloc((size_t)bytes);
    if (!values) return status_no_memory((size_t)bytes, "a matrix");
    uint32_t state = 1;
    for (int64_t i = 0; i < (int64_t)SIDE * SIDE; i++) {
        state = state * 1664525 + 1013904223;
        values[i] = (uint16_t)((state >> 16 & 0x807f) | 0x3f00); /* of either sign, at least 0.5 */
    }
    enum status status = backend_cuda.memory->write(*out, values, bytes);
    free(values);
    return status;
}

static enum status open_product(struct product *product) {
    const struct cuda_matmul_spec spec = cuda_matmul_aligned((struct matmul_spec){.m = SIDE,
                                                                                  .n = SIDE,
                                                                                  .k = SIDE,
                                                                                  .a_row = SIDE,
                                                                                  .a_k = 1,
                                                                                  .b_k = 1,
                                                                                  .b_column = SIDE,
                                                                                  .c_row = SIDE,
                                                                                  .dtype = DTYPE_BF16,
                                                                                  .out_dtype = DTYPE_BF16});
    TRY(cuda_matmul_create(&spec, &product->matmul));
    TRY(take_random(&product->a));
    TRY(take_random(&product->b));
    TRY(backend_cuda.memory->take(TIER_DEVICE, (int64_t)SIDE * SIDE * 2, &product->c));
    return backend_cuda.memory->take(TIER_DEVICE, cuda_matmul_workspace_bytes(product->matmul) + 64,
                                     &product->workspace);
}

static void close_product(struct product *product) {
    void *blocks[] = {product->a, product->b, product->c, product->workspace};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (blocks[i]) backend_cuda.memory->give_back(TIER_DEVICE, blocks[i]);
    cuda_matmul_free(product->matmul);
}

/* Runs series of BURST_S, and prints each second the rate of the last one. */
static enum status run_long(struct product *product, int calls, double *last) {
    double spent = 0, printed_s = 0, seconds;
    while (spent < sustained_s) {
        TRY(gpu_clock_time(product->clock, enqueue, product, calls, &seconds));
        spent += seconds;
        *last = FLOPS * calls / seconds;
        if (spent < printed_s + 1) continue;
        printed_s = spent;
        printf("after %4.1f s  %7.1f TFLOP/s\n", spent, *last * 1e-12);
        fflush(stdout);
    }
    return STATUS_OK;
}

static enum status measure_product(struct product *product) {
    double seconds, burst, last = 0;
    TRY(gpu_clock_time(product->clock, enqueue, product, 2, &seconds));
    int calls = (int)(BURST_S / (seconds / 2)) + 1;
    nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    TRY(gpu_clock_time(product->clock, enqueue, product, calls, &seconds));
    burst = FLOPS * calls / seconds;
    printf("burst         %7.1f TFLOP/s\n", burst * 1e-12);
    TRY(run_long(product, calls, &last));
    printf("= products of %d: %.1f TFLOP/s in a burst of %.2f s, %.1f after %.0f s (%.1f%% of it)\n", SIDE,
           burst * 1e-12, BURST_S, last * 1e-12, sustained_s, 100 * last / burst);
    return STATUS_OK;
}

static enum status measure(const struct gpu_clock *clock) {
    struct product product = {.clock = clock};
    enum status status = open_product(&product);
    if (status == STATUS_OK) status = measure_product(&product);
    close_product(&product);
    return status;
}

int main(int argc, char **argv) {
    if (argc > 1) sustained_s = atof(argv[1]);
    return gpu_clock_main("sustained_rate", measure);
}
