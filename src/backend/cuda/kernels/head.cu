/* The head with the loss, in tiles of tokens: logits of one tile are held at a time, in the workspace. */
#include <float.h>

#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/matmul.h"

extern "C" {
#include "backend/cuda_constants.h"
}

/* One row of logits a block, one block a multiprocessor: the parts of rows that shared memory does not hold are still
 * in the second cache when they are read again. */
constexpr int LOSS_THREADS = 1024, LOGITS_AT_ONCE = 8; /* of a thread */
/* Shared memory of a block's sums, next to its logits. */
constexpr int LOSS_STATIC_BYTES = 1024;

struct head_kernel {
    struct kernel kernel;
    struct head_tiles tiles;
    struct cuda_matmul *products[HEAD_PRODUCTS],
        *final[HEAD_PRODUCTS];       /* of a tile; of the last, where it is shorter */
    struct head_workspace workspace; /* then that of sums over rows, and of the GEMMs: */
    int64_t matmul_at;
    int held; /* of struct loss_rows */
    struct head_settings settings;
};

struct loss_rows {
    float *logits;
    const void *bias; /* NULL, or to be added to the logits */
    void *gradients;  /* NULL: not wanted; may be the logits */
    const int32_t *targets;
    double *losses;
    const double *scalars;   /* the step's, in the device's memory */
    const float *statistics; /* of the whole vocabulary; NULL: the logits are of all of it */
    float *own;              /* statistics that are made of the logits; NULL: the losses are */
    const float *dy;         /* of log-probabilities; NULL: gradients are the loss's, times its scale */
    int64_t vocab, row;      /* logits of a row, and elements from one to the next */
    int64_t columns;         /* of a row's gradients: behind its logits they are 0 */
    int64_t first, tokens;   /* of the vocabulary: that of the first logit, and all */
    int held;                /* logits of a row that shared memory holds, a multiple of LOGITS_AT_ONCE */
    float softcap;           /* 0: none */
};

__device__ inline float soft_cap(float logit, float softcap) {
    return softcap > 0 ? softcap * tanhf(__fdividef(logit, softcap)) : logit;
}

template <typename T> __device__ inline float bias_at(const struct loss_rows &rows, int64_t i) {
    return rows.bias ? widen(((const T *)rows.bias)[i]) : 0.0f;
}

/* LOGITS_AT_ONCE of a row, their biases added, capped; -infinity after its end. Rows lie at multiples of 64 elements.
 */
template <typename T>
__device__ inline void logits_at(const struct loss_rows &rows, const float *logits, int64_t start,
                                 float out[LOGITS_AT_ONCE]) {
    load_floats<LOGITS_AT_ONCE>(logits + start, out);
#pragma unroll
    for (int n = 0; n < LOGITS_AT_ONCE; n++)
        if (start + n >= rows.vocab)
            out[n] = -INFINITY;
        else if (rows.bias || rows.softcap > 0)
            out[n] = soft_cap(out[n] + bias_at<T>(rows, start + n), rows.softcap);
}

/* The larger, or the number of a number and NaN: sums of exponentials then are NaN. */
__device__ inline float block_largest(float value) {
    __shared__ float largest[LOSS_THREADS / WARP];
    for (int step = WARP / 2; step > 0; step /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
    if (threadIdx.x % WARP == 0) largest[threadIdx.x / WARP] = value;
    __syncthreads();
    for (int i = 0; i < LOSS_THREADS / WARP; i++)
        value = fmaxf(value, largest[i]);
    return value;
}

/* The largest of a row's logits, and the sum of exponentials of logits less it. */
struct row_sum {
    float largest;
    double sum;
};

/* For all threads. Each has a running maximum, finite from the start on. Each keeps its logits in `held`, which none
 * but itself reads. */
template <typename T>
__device__ struct row_sum sum_exp(const struct loss_rows &rows, const float *logits, float4 *held) {
    float largest = -FLT_MAX, sum = 0;
    for (int64_t start = threadIdx.x * LOGITS_AT_ONCE; start < rows.vocab; start += LOSS_THREADS * LOGITS_AT_ONCE) {
        float values[LOGITS_AT_ONCE], now = largest;
        logits_at<T>(rows, logits, start, values);
        for (int n = 0; n < LOGITS_AT_ONCE && start < rows.held; n += 4)
            held[(start + n) / 4] = make_float4(values[n], values[n + 1], values[n + 2], values[n + 3]);
#pragma unroll
        for (int n = 0; n < LOGITS_AT_ONCE; n++)
            now = fmaxf(now, values[n]);
        sum *= expf(largest - now);
#pragma unroll
        for (int n = 0; n < LOGITS_AT_ONCE; n++)
            sum += expf(values[n] - now);
        largest = now;
    }
    float max = block_largest(largest);
    double total = team_sum<LOSS_THREADS>((double)sum * exp((double)largest - (double)max));
    return {max, total};
}

/* A thread's gradients from logit `start` on; what is after the row's end is space between rows. */
template <typename T>
__device__ inline void store_gradients(T *out, int64_t start, const float values[LOGITS_AT_ONCE]) {
#pragma unroll
    for (int n = 0; n < LOGITS_AT_ONCE; n += VECTOR<T>) {
        vector<T, VECTOR<T>> part;
#pragma unroll
        for (int i = 0; i < VECTOR<T>; i++)
            part.at[i] = narrow<T>(values[n + i]);
        store<T, VECTOR<T>>(out, start + n, part);
    }
}

/* The factor of a token's loss, which is minus its log-probability. */
__device__ inline float scale_of(const struct loss_rows &rows, int64_t row) {
    return rows.dy ? -rows.dy[row] : __double2float_rn(rows.scalars[SCALAR_LOSS_SCALE]);
}

/* d(loss)/d(logits) = scale * (softmax - one at the target), times the slope of a soft cap. */
template <typename T>
__device__ void write_gradient(const struct loss_rows &rows, const float *logits, const float4 *held, int64_t target,
                               double lse, float scale, T *out) {
    for (int64_t start = threadIdx.x * LOGITS_AT_ONCE; start < rows.columns; start += LOSS_THREADS * LOGITS_AT_ONCE) {
        float values[LOGITS_AT_ONCE];
        if (start < rows.held)
            load_floats<LOGITS_AT_ONCE>((const float *)held + start, values);
        else
            logits_at<T>(rows, logits, start, values);
#pragma unroll
        for (int n = 0; n < LOGITS_AT_ONCE; n++) {
            float logit = values[n];
            values[n] = expf(logit - (float)lse) * scale;
            if (start + n == target) values[n] = (float)((exp((double)logit - lse) - 1) * (double)scale);
            if (rows.softcap > 0) {
                float bent = __fdividef(logit, rows.softcap);
                values[n] *= fmaf(-bent, bent, 1.0f);
            }
            if (start + n >= rows.vocab) values[n] = 0;
        }
        store_gradients<T>(out, start, values);
    }
}

/* A token without a target. */
template <typename T> __device__ void blank_row(const struct loss_rows &rows, int64_t row, T *gradients) {
    const float zeros[LOGITS_AT_ONCE] = {};
    for (int i = threadIdx.x; i < HEAD_STATISTICS && rows.own; i += LOSS_THREADS)
        rows.own[row * HEAD_STATISTICS + i] = i == STATISTIC_SUM ? 1.0f : 0.0f;
    if (threadIdx.x == 0 && !rows.own) rows.losses[row] = 0;
    for (int64_t start = threadIdx.x * LOGITS_AT_ONCE; gradients && start < rows.columns;
         start += LOSS_THREADS * LOGITS_AT_ONCE)
        store_gradients<T>(gradients, start, zeros);
}

/* For a row whose vocabulary lies on several ranks; returns the log of the sum of exponentials over all ranks. */
__device__ inline double joined_loss(const struct loss_rows &rows, int64_t row) {
    const float *all = rows.statistics + row * HEAD_STATISTICS;
    double lse = (double)all[STATISTIC_LARGEST] + log((double)all[STATISTIC_SUM]);
    if (threadIdx.x == 0) rows.losses[row] = lse - (double)all[STATISTIC_TARGET];
    return lse;
}

/* Computes the loss of a row of logits, or its statistics. Returns the log of the sum of exponentials. */
template <typename T>
__device__ double own_loss(const struct loss_rows &rows, int64_t row, int64_t target, const float *logits,
                           float4 *held) {
    bool has_target = target >= 0 && target < rows.vocab;
    /* Before the barriers of sum_exp. */
    float at_target = has_target ? soft_cap(logits[target] + bias_at<T>(rows, target), rows.softcap) : 0.0f;
    struct row_sum sum = sum_exp<T>(rows, logits, held);
    double lse = (double)sum.largest + log(sum.sum);
    if (threadIdx.x > 0) return lse;
    if (!rows.own) {
        rows.losses[row] = lse - (double)at_target;
        return lse;
    }
    float *own = rows.own + row * HEAD_STATISTICS;
    own[STATISTIC_LARGEST] = sum.largest;
    own[STATISTIC_SUM] = (float)sum.sum;
    own[STATISTIC_TARGET] = at_target;
    return lse;
}

/* A block for each token. The gradients' threads read a logit before they write in its place. */
template <typename T> __global__ void __launch_bounds__(LOSS_THREADS) loss_kernel(struct loss_rows rows) {
    DYNAMIC_SHARED(shared);
    float4 *held = (float4 *)shared;
    int64_t row = blockIdx.x;
    int32_t target = rows.targets[row];
    const float *logits = rows.logits + row * rows.row;
    T *gradients = rows.gradients ? (T *)rows.gradients + row * rows.row : NULL;
    if (target >= rows.tokens) __trap(); /* as the CPU ends there, too */
    if (target < 0) {
        blank_row<T>(rows, row, gradients);
        return;
    }
    int64_t column = target - rows.first;
    double lse = rows.statistics ? joined_loss(rows, row) : own_loss<T>(rows, row, column, logits, held);
    if (gradients) write_gradient<T>(rows, logits, held, column, lse, scale_of(rows, row), gradients);
}

/* A thread for each token: its statistics from those of all parts. */
__global__ void __launch_bounds__(THREADS) join_kernel(const float *parts, int64_t count, int64_t tokens, float *out) {
    int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x, apart = tokens * HEAD_STATISTICS;
    if (row >= tokens) return;
    const float *first = parts + row * HEAD_STATISTICS;
    float largest = first[STATISTIC_LARGEST];
    double sum = 0, target = 0;
    for (int64_t p = 1; p < count; p++)
        largest = fmaxf(largest, first[p * apart + STATISTIC_LARGEST]);
    for (int64_t p = 0; p < count; p++) {
        const float *part = first + p * apart;
        sum += (double)part[STATISTIC_SUM] * exp((double)part[STATISTIC_LARGEST] - (double)largest);
        target += (double)part[STATISTIC_TARGET];
    }
    float *own = out + row * HEAD_STATISTICS;
    own[STATISTIC_LARGEST] = largest;
    own[STATISTIC_SUM] = (float)sum;
    own[STATISTIC_TARGET] = (float)target;
}

__global__ void __launch_bounds__(THREADS) total_loss_kernel(const double *losses, int64_t rows, double *out) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < rows; i += THREADS)
        sum += losses[i];
    sum = team_sum<THREADS>(sum);
    if (threadIdx.x == 0) *out += sum;
}

__global__ void __launch_bounds__(THREADS) log_probability_kernel(const double *losses, int64_t rows, float *out) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < rows) out[i] = (float)(0 - losses[i]);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) add_bias_kernel(float *logits, const T *bias, int64_t vocab, int64_t count) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) logits[i] += widen(bias[i % vocab]);
}

__global__ void __launch_bounds__(THREADS) cap_kernel(float *logits, float softcap, int64_t count) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) logits[i] = soft_cap(logits[i], softcap);
}

static void head_release(struct kernel *kernel) {
    struct head_kernel *head = (struct head_kernel *)kernel;
    cuda_matmul_free_all(head->products, HEAD_PRODUCTS);
    cuda_matmul_free_all(head->final, HEAD_PRODUCTS);
    mem_free(head);
}

/* Alignment of every row at which a tile begins. */
static int64_t tile_alignment(const struct head_kernel *head, const struct tensor *tensor) {
    int64_t apart = head->tiles.tile * tensor_row_stride(tensor) * dtype_bytes(tensor->shape.dtype);
    int64_t all = cuda_alignment(tensor) | apart;
    return all & -all;
}

static enum status create_logits(const struct head_kernel *head, int64_t tokens, struct cuda_matmul **out) {
    const struct node *node = head->kernel.node;
    struct cuda_matmul_spec spec = cuda_matmul_aligned(head_logits_spec(node, &head->tiles, tokens));
    spec.a_alignment = tile_alignment(head, node->in[0]);
    return cuda_matmul_create(&spec, out);
}

static enum status create_products(const struct head_kernel *head, bool gradient, int64_t tokens,
                                   struct cuda_matmul *out[HEAD_PRODUCTS]) {
    const struct node *node = head->kernel.node;
    const struct tensor *dx = node->out[head_output(node, HEAD_DX)];
    if (head_makes_logits(node, gradient)) TRY(create_logits(head, tokens, &out[HEAD_LOGITS]));
    if (gradient && dx) {
        struct cuda_matmul_spec spec = cuda_matmul_aligned(head_dx_spec(node, &head->tiles, tokens));
        spec.c_alignment = tile_alignment(head, dx);
        TRY(cuda_matmul_create(&spec, &out[HEAD_DX_PRODUCT]));
    }
    if (!gradient || !node->out[head_output(node, HEAD_DWEIGHT)]) return STATUS_OK;
    struct cuda_matmul_spec spec = cuda_matmul_aligned(head_dweight_spec(node, &head->tiles, tokens));
    spec.b_alignment = tile_alignment(head, node->in[0]);
    return cuda_matmul_create(&spec, &out[HEAD_DWEIGHT_PRODUCT]);
}

static void head_layout(struct head_kernel *head, bool gradient) {
    const struct node *node = head->kernel.node;
    int64_t products = cuda_matmul_max_workspace_bytes(head->products, HEAD_PRODUCTS);
    int64_t final = cuda_matmul_max_workspace_bytes(head->final, HEAD_PRODUCTS);
    head->workspace = head_workspace_of(node, &head->tiles, gradient, false);
    head->matmul_at = head->workspace.end;
    if (gradient && node->out[head_output(node, HEAD_DBIAS)])
        head->matmul_at += cuda_sum_workspace(head->tiles.tile, head->tiles.vocab);
    head->kernel.workspace_bytes = head->matmul_at + (products > final ? products : final);
}

/* Holds as much of a row as the GPU's shared memory allows a block. */
template <typename T> static enum status loss_prepare(int64_t row, int *held) {
    int device = 0, max = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&max, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error != cudaSuccess) return cuda_status(error, "shared memory");
    int64_t capacity = (max - LOSS_STATIC_BYTES) / (int64_t)sizeof(float) / LOGITS_AT_ONCE * LOGITS_AT_ONCE;
    *held = (int)(row < capacity ? row : capacity);
    error = cudaFuncSetAttribute((const void *)loss_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 max - LOSS_STATIC_BYTES);
    return cuda_status(error, "shared memory");
}

static enum status head_prepare(struct head_kernel *head, bool gradient) {
    TRY(create_products(head, gradient, head->tiles.tile, head->products));
    if (head->tiles.last != head->tiles.tile) TRY(create_products(head, gradient, head->tiles.last, head->final));
    bool bf16 = head->kernel.node->in[0]->shape.dtype == DTYPE_BF16;
    TRY((bf16 ? loss_prepare<__nv_bfloat16> : loss_prepare<float>)(head->tiles.logits_row, &head->held));
    if (!gradient || head->kernel.node->in[4]) head->held = 0; /* nothing is read again */
    return STATUS_OK;
}

template <typename T> static void loss_launch(const struct loss_rows &rows, int64_t count, cudaStream_t stream) {
    launch(known<loss_kernel<T>>(), grid_size(count), LOSS_THREADS, (size_t)rows.held * sizeof(float), stream, rows);
}

/* One tile of `count` tokens from `first` on. */
struct head_tile {
    struct cuda_matmul *const *products;
    int64_t first, count;
    void *gradients;   /* NULL: not wanted */
    float *statistics; /* of all tokens, that are made in place of losses; or NULL */
};

static void tile_gradients(const struct head_kernel *head, const struct kernel_call *call,
                           const struct head_tile *tile) {
    const struct node *node = head->kernel.node;
    const int first = head_output(node, HEAD_DX);
    void *const *out = call->out + first, *workspace = workspace_at(call, head->matmul_at);
    struct matmul_operands dx = {
        .a = tile->gradients, .b = call->in[1], .c = operand_row(node->out[first], out[HEAD_DX], tile->first)};
    struct matmul_operands dweight = {.a = tile->gradients,
                                      .b = operand_row(node->in[0], call->in[0], tile->first),
                                      .addend = out[HEAD_DWEIGHT],
                                      .c = out[HEAD_DWEIGHT]};
    if (tile->products[HEAD_DX_PRODUCT])
        cuda_matmul_run(tile->products[HEAD_DX_PRODUCT], &dx, workspace, stream_of(call));
    if (tile->products[HEAD_DWEIGHT_PRODUCT])
        cuda_matmul_run(tile->products[HEAD_DWEIGHT_PRODUCT], &dweight, workspace, stream_of(call));
    if (out[HEAD_DBIAS])
        cuda_sum_columns(stream_of(call), node->in[0]->shape.dtype, tile->count, head->tiles.vocab, tile->gradients,
                         head->tiles.logits_row, workspace_at(call, head->workspace.end), (float *)out[HEAD_DBIAS]);
}

static void tile_run(const struct head_kernel *head, const struct kernel_call *call, const struct head_tile *tile) {
    const struct node *node = head->kernel.node;
    struct matmul_operands logits = {
        .a = operand_row(node->in[0], call->in[0], tile->first), .b = call->in[1], .c = call->workspace};
    if (tile->products[HEAD_LOGITS])
        cuda_matmul_run(tile->products[HEAD_LOGITS], &logits, workspace_at(call, head->matmul_at), stream_of(call));
    struct loss_rows rows = {
        .logits = (float *)call->workspace,
        .bias = call->in[3],
        .gradients = tile->gradients,
        .targets = (const int32_t *)call->in[2] + tile->first,
        .losses = (double *)workspace_at(call, head->workspace.losses) + tile->first,
        .scalars = call->scalars,
        .statistics = call->in[4] ? (const float *)call->in[4] + tile->first * HEAD_STATISTICS : NULL,
        .own = tile->statistics ? tile->statistics + tile->first * HEAD_STATISTICS : NULL,
        .dy = call->in[5] ? (const float *)call->in[5] + tile->first : NULL,
        .vocab = head->settings.part.rows,
        .row = head->tiles.logits_row,
        .columns = head->tiles.vocab,
        .first = head->settings.part.first,
        .tokens = head->settings.part.tokens,
        .held = head->held,
        .softcap = head->settings.softcap,
    };
    FOR_ELEMENT(node->in[0]->shape.dtype, loss_launch, rows, tile->count, stream_of(call));
}

static void head_tiles(const struct head_kernel *head, const struct kernel_call *call, bool gradient,
                       float *statistics) {
    const struct head_tiles *tiles = &head->tiles;
    struct head_tile tile = {.gradients = gradient ? workspace_at(call, head->workspace.gradients) : NULL,
                             .statistics = statistics};
    for (tile.first = 0; tile.first < tiles->rows; tile.first += tiles->tile) {
        tile.count = head_tile_tokens(tiles, tile.first);
        tile.products = tile.count < tiles->tile ? head->final : head->products;
        tile_run(head, call, &tile);
        if (gradient) tile_gradients(head, call, &tile);
    }
}

static enum status head_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct head_kernel *head = (const struct head_kernel *)kernel;
    const struct op *op = kernel->node->op;
    const double *losses = (const double *)workspace_at(call, head->workspace.losses);
    int64_t rows = head->tiles.rows;
    head_tiles(head, call, head_makes_gradients(kernel->node),
               op == &op_head_statistics ? (float *)call->out[0] : NULL);
    if (op == &op_head_loss || op == &op_head_loss_grad)
        launch(known<total_loss_kernel>(), 1, THREADS, 0, stream_of(call), losses, rows, (double *)call->out[0]);
    if (op == &op_head_log_probability)
        launch(known<log_probability_kernel>(), grid_size(divide_up(rows, THREADS)), THREADS, 0, stream_of(call),
               losses, rows, (float *)call->out[0]);
    return cuda_outcome();
}

static enum status head_create(const struct node *node, struct kernel **out) {
    bool gradient = head_makes_gradients(node);
    struct head_kernel *head = (struct head_kernel *)kernel_new(node, sizeof *head, head_run);
    if (!head) return STATUS_FAILED;
    head->settings = head_settings_of(node);
    head->kernel.release = head_release;
    head->tiles = head_tiles_of(node, &cuda_head_limits);
    enum status status = head_prepare(head, gradient);
    if (status == STATUS_OK) head_layout(head, gradient);
    return kernel_finish(&head->kernel, status, out);
}

CUDA_KERNEL_MAKER(head_loss, head_create)
CUDA_KERNEL_MAKER(head_loss_grad, head_create)
CUDA_KERNEL_MAKER(head_log_probability, head_create)
CUDA_KERNEL_MAKER(head_log_probability_grad, head_create)
CUDA_KERNEL_MAKER(head_statistics, head_create)

static enum status join_statistics_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    int64_t tokens = shape_rows(&node->out[0]->shape);
    launch(known<join_kernel>(), grid_size(divide_up(tokens, THREADS)), THREADS, 0, stream_of(call),
           (const float *)call->in[0], node->in[0]->shape.dims[0], tokens, (float *)call->out[0]);
    return cuda_outcome();
}

CUDA_KERNEL(join_statistics, join_statistics_run)

template <typename T>
static void bias_launch(float *logits, const void *bias, int64_t vocab, int64_t count, cudaStream_t stream) {
    launch(known<add_bias_kernel<T>>(), grid_size(divide_up(count, THREADS)), THREADS, 0, stream, logits,
           (const T *)bias, vocab, count);
}

static enum status head_logits_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct head_kernel *head = (const struct head_kernel *)kernel;
    struct matmul_operands operands = {.a = call->in[0], .b = call->in[1], .c = call->out[0]};
    cuda_matmul_run(head->products[HEAD_LOGITS], &operands, call->workspace, stream_of(call));
    if (call->in[2])
        FOR_ELEMENT(kernel->node->in[0]->shape.dtype, bias_launch, (float *)call->out[0], call->in[2],
                    head->tiles.vocab, head->tiles.rows * head->tiles.vocab, stream_of(call));
    int64_t count = head->tiles.rows * head->tiles.vocab;
    if (head->settings.softcap > 0)
        launch(known<cap_kernel>(), grid_size(divide_up(count, THREADS)), THREADS, 0, stream_of(call),
               (float *)call->out[0], head->settings.softcap, count);
    return cuda_outcome();
}

enum status cuda_head_logits_create(const struct node *node, struct kernel **out) {
    struct head_kernel *head = (struct head_kernel *)kernel_new(node, sizeof *head, head_logits_run);
    if (!head) return STATUS_FAILED;
    head->kernel.release = head_release;
    head->tiles = head_tiles_whole(node);
    head->settings = head_settings_of(node);
    BUG_IF(tensor_row_stride(node->out[0]) != head->tiles.vocab, "logits in a view");
    enum status status = create_logits(head, head->tiles.rows, &head->products[HEAD_LOGITS]);
    head->kernel.workspace_bytes = cuda_matmul_workspace_bytes(head->products[HEAD_LOGITS]);
    return kernel_finish(&head->kernel, status, out);
}
