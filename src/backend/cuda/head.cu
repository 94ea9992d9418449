/* The head with the loss, in tiles of tokens: logits of one tile are held at a time, in the workspace. */
#include <float.h>

#include "backend/cuda/cuda_matmul.h"
#include "backend/cuda/device.cuh"

constexpr int64_t LOGITS_BYTES_MOST = (int64_t)512 << 20, TILE_TOKENS_LEAST = 32, TILE_TOKENS_MOST = 4096;
/* Rows of logits are so many elements apart, or a multiple: products are fastest on aligned rows, and few vocabularies
 * are so divisible (GPT-2: 50257). */
constexpr int64_t LOGITS_ROW = 64;
constexpr int LOGITS_AT_ONCE = 4; /* of a thread */

/* Products of a tile of so many tokens; NULL where not wanted. */
struct head_products {
    struct cuda_matmul *logits, *dx, *dweight;
};

struct head_kernel {
    struct kernel kernel;
    int64_t rows, vocab, columns;
    int64_t logits_row;                   /* elements from one row of logits to the next */
    int64_t tile, last;                   /* tokens of a tile, and of the last one */
    struct head_products products, final; /* of a tile, and of the last one; may be the same */
    /* Offsets into the workspace, whose first part is the logits. Gradients in bf16 have a place of their own; those in
     * fp32 lie where the logits were. */
    int64_t gradients_at, losses_at, sums_at, matmul_at;
};

struct loss_rows {
    float *logits;
    const void *bias; /* NULL, or to be added to the logits */
    void *gradients;  /* NULL: not wanted; may be the logits */
    const int32_t *targets;
    double *losses;
    int64_t vocab, row;
    float scale;
};

template <typename T> __device__ inline float logit_at(const struct loss_rows &rows, const float *logits, int64_t i) {
    return rows.bias ? logits[i] + widen(((const T *)rows.bias)[i]) : logits[i];
}

/* The larger, or the number of a number and NaN: sums of exponentials then are NaN. */
__device__ inline float block_largest(float value) {
    __shared__ float largest[THREADS / WARP];
    for (int step = WARP / 2; step > 0; step /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
    if (threadIdx.x % WARP == 0) largest[threadIdx.x / WARP] = value;
    __syncthreads();
    for (int i = 0; i < THREADS / WARP; i++)
        value = fmaxf(value, largest[i]);
    return value;
}

/* log of the sum of exponentials of a row, for all threads. Each has a running maximum, finite from the start on. */
template <typename T> __device__ double log_sum_exp(const struct loss_rows &rows, const float *logits) {
    float largest = -FLT_MAX, sum = 0;
    for (int64_t start = threadIdx.x * LOGITS_AT_ONCE; start < rows.vocab; start += THREADS * LOGITS_AT_ONCE) {
        float values[LOGITS_AT_ONCE], now = largest;
#pragma unroll
        for (int n = 0; n < LOGITS_AT_ONCE; n++) {
            values[n] = start + n < rows.vocab ? logit_at<T>(rows, logits, start + n) : -INFINITY;
            now = fmaxf(now, values[n]);
        }
        sum *= expf(largest - now);
#pragma unroll
        for (int n = 0; n < LOGITS_AT_ONCE; n++)
            sum += expf(values[n] - now);
        largest = now;
    }
    float most = block_largest(largest);
    double total = team_sum<THREADS>((double)sum * exp((double)largest - (double)most));
    return (double)most + log(total);
}

/* d(loss)/d(logits) = scale * (softmax - one at the target). */
template <typename T>
__device__ void write_gradient(const struct loss_rows &rows, const float *logits, int32_t target, double lse, T *out) {
    for (int64_t i = threadIdx.x; i < rows.vocab; i += THREADS) {
        float logit = logit_at<T>(rows, logits, i), value = expf(logit - (float)lse) * rows.scale;
        if (i == target) value = (float)((exp((double)logit - lse) - 1) * (double)rows.scale);
        out[i] = narrow<T>(value);
    }
}

/* A block for each token. The gradients' threads read a logit before they write in its place. */
template <typename T> __global__ void __launch_bounds__(THREADS) loss_kernel(struct loss_rows rows) {
    int64_t row = blockIdx.x;
    int32_t target = rows.targets[row];
    const float *logits = rows.logits + row * rows.row;
    T *gradients = rows.gradients ? (T *)rows.gradients + row * rows.row : NULL;
    if (target >= rows.vocab) __trap(); /* as the CPU ends there, too */
    if (target < 0) {
        if (threadIdx.x == 0) rows.losses[row] = 0;
        for (int64_t i = threadIdx.x; gradients && i < rows.vocab; i += THREADS)
            gradients[i] = narrow<T>(0);
        return;
    }
    double at_target = (double)logit_at<T>(rows, logits, target); /* before the barriers of log_sum_exp */
    double lse = log_sum_exp<T>(rows, logits);
    if (threadIdx.x == 0) rows.losses[row] = lse - at_target;
    if (gradients) write_gradient<T>(rows, logits, target, lse, gradients);
}

__global__ void __launch_bounds__(THREADS) total_loss_kernel(const double *losses, int64_t rows, double *out) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < rows; i += THREADS)
        sum += losses[i];
    sum = team_sum<THREADS>(sum);
    if (threadIdx.x == 0) *out += sum;
}

template <typename T>
__global__ void __launch_bounds__(THREADS) add_bias_kernel(float *logits, const T *bias, int64_t vocab, int64_t count) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) logits[i] += widen(bias[i % vocab]);
}

static void products_free(struct head_products *products) {
    cuda_matmul_free(products->logits);
    cuda_matmul_free(products->dx);
    cuda_matmul_free(products->dweight);
}

static void head_release(struct kernel *kernel) {
    struct head_kernel *head = (struct head_kernel *)kernel;
    products_free(&head->products);
    products_free(&head->final);
    mem_free(head);
}

/* Of every row at which a tile begins. */
static int64_t tile_alignment(const struct head_kernel *head, const struct tensor *tensor) {
    int64_t apart = head->tile * tensor_row_stride(tensor) * dtype_bytes(tensor->shape.dtype);
    int64_t all = cuda_alignment(tensor) | apart;
    return all & -all;
}

static enum status create_logits(const struct head_kernel *head, int64_t rows, struct cuda_matmul **out) {
    const struct tensor *x = head->kernel.node->in[0];
    struct cuda_matmul_spec spec = {
        .m = rows,
        .n = head->vocab,
        .k = head->columns,
        .a_row = tensor_row_stride(x),
        .a_k = 1,
        .b_k = 1,
        .b_column = head->columns,
        .c_row = head->logits_row,
        .a_alignment = tile_alignment(head, x),
        .b_alignment = CUDA_ALIGN,
        .c_alignment = CUDA_ALIGN,
        .dtype = x->shape.dtype,
        .out_dtype = DTYPE_F32,
    };
    return cuda_matmul_create(&spec, out);
}

static enum status create_dx(const struct head_kernel *head, int64_t rows, struct cuda_matmul **out) {
    const struct tensor *dx = head->kernel.node->out[1];
    if (!dx) return STATUS_OK;
    struct cuda_matmul_spec spec = {
        .m = rows,
        .n = head->columns,
        .k = head->vocab,
        .a_row = head->logits_row,
        .a_k = 1,
        .b_k = head->columns,
        .b_column = 1,
        .c_row = tensor_row_stride(dx),
        .a_alignment = CUDA_ALIGN,
        .b_alignment = CUDA_ALIGN,
        .c_alignment = tile_alignment(head, dx),
        .dtype = dx->shape.dtype,
        .out_dtype = dx->shape.dtype,
    };
    return cuda_matmul_create(&spec, out);
}

static enum status create_dweight(const struct head_kernel *head, int64_t rows, struct cuda_matmul **out) {
    const struct tensor *x = head->kernel.node->in[0];
    if (!head->kernel.node->out[2]) return STATUS_OK;
    struct cuda_matmul_spec spec = {
        .m = head->vocab,
        .n = head->columns,
        .k = rows,
        .a_row = 1,
        .a_k = head->logits_row,
        .b_k = tensor_row_stride(x),
        .b_column = 1,
        .c_row = head->columns,
        .addend_row = head->columns,
        .a_alignment = CUDA_ALIGN,
        .b_alignment = tile_alignment(head, x),
        .c_alignment = CUDA_ALIGN,
        .addend_alignment = CUDA_ALIGN,
        .dtype = x->shape.dtype,
        .out_dtype = DTYPE_F32,
    };
    return cuda_matmul_create(&spec, out);
}

static enum status create_products(const struct head_kernel *head, bool gradient, int64_t rows,
                                   struct head_products *out) {
    TRY(create_logits(head, rows, &out->logits));
    if (!gradient) return STATUS_OK;
    TRY(create_dx(head, rows, &out->dx));
    return create_dweight(head, rows, &out->dweight);
}

static int64_t workspace_most(const struct head_products *products) {
    const struct cuda_matmul *const all[] = {products->logits, products->dx, products->dweight};
    int64_t most = 0;
    for (int i = 0; i < 3; i++) {
        int64_t bytes = all[i] ? cuda_matmul_workspace_bytes(all[i]) : 0;
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Tokens of a tile: as many as the limit allows, evenly divided. */
static int64_t tile_tokens(int64_t rows, int64_t logits_row) {
    int64_t most = LOGITS_BYTES_MOST / (4 * logits_row);
    if (most < TILE_TOKENS_LEAST) most = TILE_TOKENS_LEAST;
    if (most > TILE_TOKENS_MOST) most = TILE_TOKENS_MOST;
    return divide_up(rows, divide_up(rows, most));
}

static void head_measure(struct head_kernel *head) {
    const struct node *node = head->kernel.node;
    head->rows = shape_rows(&node->in[0]->shape);
    head->columns = shape_columns(&node->in[0]->shape);
    head->vocab = node->in[1]->shape.dims[0];
    head->logits_row = divide_up(head->vocab, LOGITS_ROW) * LOGITS_ROW;
    head->tile = tile_tokens(head->rows, head->logits_row);
    head->last = head->rows - (head->rows - 1) / head->tile * head->tile;
}

static void head_layout(struct head_kernel *head, bool gradient) {
    const struct node *node = head->kernel.node;
    int64_t products = workspace_most(&head->products), final = workspace_most(&head->final);
    int64_t elements = head->tile * head->logits_row, logits_bytes = cuda_align(elements * 4);
    bool apart = gradient && node->in[0]->shape.dtype == DTYPE_BF16;
    head->gradients_at = apart ? logits_bytes : 0;
    head->losses_at = logits_bytes + (apart ? cuda_align(elements * 2) : 0);
    head->sums_at = head->losses_at + cuda_align(head->rows * (int64_t)sizeof(double));
    head->matmul_at = head->sums_at;
    if (gradient && node->out[3]) head->matmul_at += cuda_sum_workspace(head->tile, head->vocab);
    head->kernel.workspace_bytes = head->matmul_at + (products > final ? products : final);
}

static enum status head_create(const struct node *node, bool gradient,
                               void (*run)(const struct kernel *, const struct kernel_call *), struct kernel **out) {
    struct head_kernel *head = (struct head_kernel *)cuda_kernel_new(node, sizeof *head, run);
    if (!head) return STATUS_FAILED;
    head->kernel.release = head_release;
    head_measure(head);
    enum status status = create_products(head, gradient, head->tile, &head->products);
    if (status == STATUS_OK && head->last != head->tile)
        status = create_products(head, gradient, head->last, &head->final);
    if (status != STATUS_OK) {
        head_release(&head->kernel);
        return status;
    }
    head_layout(head, gradient);
    *out = &head->kernel;
    return STATUS_OK;
}

template <typename T> static void loss_launch(const struct loss_rows &rows, int64_t count, cudaStream_t stream) {
    launch(loss_kernel<T>, grid_size(count), THREADS, 0, stream, rows);
}

/* One tile of `count` tokens from `first` on. */
struct head_tile {
    const struct head_products *products;
    int64_t first, count;
    void *gradients; /* NULL: not wanted */
};

static void tile_gradients(const struct head_kernel *head, const struct kernel_call *call,
                           const struct head_tile *tile) {
    const struct node *node = head->kernel.node;
    void *workspace = cuda_workspace(call, head->matmul_at);
    struct cuda_matmul_operands dx = {
        .a = tile->gradients, .b = call->in[1], .c = cuda_row(node->out[1], call->out[1], tile->first)};
    struct cuda_matmul_operands dweight = {.a = tile->gradients,
                                           .b = cuda_row(node->in[0], call->in[0], tile->first),
                                           .addend = call->out[2],
                                           .c = call->out[2]};
    if (tile->products->dx) cuda_matmul_run(tile->products->dx, &dx, workspace, stream_of(call));
    if (tile->products->dweight) cuda_matmul_run(tile->products->dweight, &dweight, workspace, stream_of(call));
    if (call->out[3])
        cuda_sum_columns(stream_of(call), node->in[0]->shape.dtype, tile->count, head->vocab, tile->gradients,
                         head->logits_row, cuda_workspace(call, head->sums_at), (float *)call->out[3]);
}

static void tile_run(const struct head_kernel *head, const struct kernel_call *call, const struct head_tile *tile,
                     float scale) {
    const struct node *node = head->kernel.node;
    struct cuda_matmul_operands logits = {
        .a = cuda_row(node->in[0], call->in[0], tile->first), .b = call->in[1], .c = call->workspace};
    cuda_matmul_run(tile->products->logits, &logits, cuda_workspace(call, head->matmul_at), stream_of(call));
    struct loss_rows rows = {
        .logits = (float *)call->workspace,
        .bias = call->in[3],
        .gradients = tile->gradients,
        .targets = (const int32_t *)call->in[2] + tile->first,
        .losses = (double *)cuda_workspace(call, head->losses_at) + tile->first,
        .vocab = head->vocab,
        .row = head->logits_row,
        .scale = scale,
    };
    FOR_ELEMENT(node->in[0]->shape.dtype, loss_launch, rows, tile->count, stream_of(call));
}

static void head_tiles(const struct head_kernel *head, const struct kernel_call *call, bool gradient) {
    struct head_tile tile = {.gradients = gradient ? cuda_workspace(call, head->gradients_at) : NULL};
    float scale = gradient ? (float)call->scalars[SCALAR_LOSS_SCALE] : 0;
    for (tile.first = 0; tile.first < head->rows; tile.first += head->tile) {
        bool is_last = tile.first + head->tile >= head->rows;
        tile.products = is_last && head->final.logits ? &head->final : &head->products;
        tile.count = is_last ? head->last : head->tile;
        tile_run(head, call, &tile, scale);
        if (gradient) tile_gradients(head, call, &tile);
    }
    launch(total_loss_kernel, 1, THREADS, 0, stream_of(call), (const double *)cuda_workspace(call, head->losses_at),
           head->rows, (double *)call->out[0]);
}

static void head_loss_run(const struct kernel *kernel, const struct kernel_call *call) {
    head_tiles((const struct head_kernel *)kernel, call, false);
}

enum status cuda_head_loss_create(const struct node *node, struct kernel **out) {
    return head_create(node, false, head_loss_run, out);
}

static void head_loss_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    head_tiles((const struct head_kernel *)kernel, call, true);
}

enum status cuda_head_loss_grad_create(const struct node *node, struct kernel **out) {
    return head_create(node, true, head_loss_grad_run, out);
}

template <typename T>
static void bias_launch(float *logits, const void *bias, int64_t vocab, int64_t count, cudaStream_t stream) {
    launch(add_bias_kernel<T>, grid_size(divide_up(count, THREADS)), THREADS, 0, stream, logits, (const T *)bias, vocab,
           count);
}

static void head_logits_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct head_kernel *head = (const struct head_kernel *)kernel;
    struct cuda_matmul_operands operands = {.a = call->in[0], .b = call->in[1], .c = call->out[0]};
    cuda_matmul_run(head->products.logits, &operands, call->workspace, stream_of(call));
    if (call->in[2])
        FOR_ELEMENT(kernel->node->in[0]->shape.dtype, bias_launch, (float *)call->out[0], call->in[2], head->vocab,
                    head->rows * head->vocab, stream_of(call));
}

enum status cuda_head_logits_create(const struct node *node, struct kernel **out) {
    struct head_kernel *head = (struct head_kernel *)cuda_kernel_new(node, sizeof *head, head_logits_run);
    if (!head) return STATUS_FAILED;
    head->kernel.release = head_release;
    head_measure(head);
    BUG_IF(tensor_row_stride(node->out[0]) != head->vocab, "logits in a view");
    head->tile = head->rows;
    head->logits_row = head->vocab;
    enum status status = create_logits(head, head->rows, &head->products.logits);
    if (status != STATUS_OK) {
        head_release(&head->kernel);
        return status;
    }
    head->kernel.workspace_bytes = cuda_matmul_workspace_bytes(head->products.logits);
    *out = &head->kernel;
    return STATUS_OK;
}
