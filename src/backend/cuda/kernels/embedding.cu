/* Rows picked by their number: embeddings, their gradient, the last token. */
#include "backend/cuda/kernels/device.cuh"

/* The rows of a table, `first` that of token 0, and how many tokens there are: others lie in other parts. */
struct table_rows {
    int64_t count, first, tokens;
};

/* Rows are copied in units of UNIT bytes, the widest that all addresses and lengths allow. */
template <typename UNIT>
__global__ void __launch_bounds__(THREADS)
    embedding_kernel(const int32_t *tokens, struct table_rows rows, const UNIT *table, int64_t units, UNIT *y,
                     int64_t y_units) {
    int64_t row = blockIdx.x, token = tokens[row], from = rows.first + token;
    bool there = from >= 0 && from < rows.count;
    if (token < 0 || token >= rows.tokens) __trap(); /* as the CPU ends there, too */
    for (int64_t i = threadIdx.x; i < units; i += THREADS)
        y[row * y_units + i] = there ? table[from * units + i] : UNIT();
}

template <typename UNIT> static void embedding_launch(const struct node *node, const struct kernel_call *call) {
    const struct embedding_attributes *attributes = NODE_ATTRIBUTES(node, embedding_attributes);
    int64_t count = node->in[1]->shape.dims[0];
    struct table_rows rows = {count, attributes->first_row, embedding_tokens(attributes, count)};
    int64_t element = dtype_bytes(node->out[0]->shape.dtype), unit = (int64_t)sizeof(UNIT);
    launch(known<embedding_kernel<UNIT>>(), grid_size(shape_rows(&node->out[0]->shape)), THREADS, 0, stream_of(call),
           (const int32_t *)call->in[0], rows, (const UNIT *)call->in[1],
           shape_columns(&node->out[0]->shape) * element / unit, (UNIT *)call->out[0],
           tensor_row_stride(node->out[0]) * element / unit);
}

static enum status embedding_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    if (rows_are_vectors(node->in[1], call->in[1]) && rows_are_vectors(node->out[0], call->out[0]))
        embedding_launch<uint4>(node, call);
    else if (node->out[0]->shape.dtype == DTYPE_BF16)
        embedding_launch<uint16_t>(node, call);
    else
        embedding_launch<uint32_t>(node, call);
    return cuda_outcome();
}

CUDA_KERNEL(embedding, embedding_run)

/* Columns of a block of the gradient: each warp has all of them. */
constexpr int GRAD_COLUMNS = 1024, GRAD_LANES = THREADS / WARP;

/* Block (row, c) adds to its token's row of the table, for GRAD_COLUMNS columns, the gradients of all rows that hold
 * the same token: warp w sums every GRAD_LANES-th of them from the w-th on, then the warps' sums are added in order. Of
 * equal tokens the first row's block does it; the others have nothing to do. */
template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    embedding_grad_kernel(const int32_t *tokens, int64_t rows, struct table_rows of, const T *dy, int64_t dy_stride,
                          float *table, int64_t columns) {
    constexpr int EACH = GRAD_COLUMNS / WARP;
    __shared__ unsigned equal[GRAD_LANES];
    alignas(16) __shared__ float sums[GRAD_LANES][GRAD_COLUMNS];
    const int lane = (int)threadIdx.x / WARP, own_column = (int)threadIdx.x % WARP * W;
    int64_t first = blockIdx.x, block_column = (int64_t)blockIdx.y * GRAD_COLUMNS;
    int32_t token = tokens[first];
    if (token < 0 || token >= of.tokens) __trap();
    int64_t at = of.first + token;
    if (at < 0 || at >= of.count) return; /* another part has it */
    bool seen = false;
    for (int64_t row = threadIdx.x; row < first; row += THREADS)
        seen = seen || tokens[row] == token;
    if (__syncthreads_or(seen)) return;
    float own[EACH] = {};
    int found = 0;
    for (int64_t start = first; start < rows; start += THREADS) {
        int64_t row = start + threadIdx.x;
        unsigned mask = __ballot_sync(0xffffffffu, row < rows && tokens[row] == token);
        __syncthreads(); /* the masks before have been read */
        if (threadIdx.x % WARP == 0) equal[lane] = mask;
        __syncthreads();
        for (int warp = 0; warp < GRAD_LANES; warp++)
            for (unsigned left = equal[warp]; left; left &= left - 1, found++) {
                if (found % GRAD_LANES != lane) continue;
                const T *from = dy + (start + warp * WARP + __ffs((int)left) - 1) * dy_stride + block_column;
#pragma unroll
                for (int n = 0; n < EACH; n += W) {
                    int column = own_column + n * WARP;
                    if (block_column + column >= columns) continue;
                    vector<T, W> values = load<T, W>(from, column);
#pragma unroll
                    for (int w = 0; w < W; w++)
                        own[n + w] += widen(values.at[w]);
                }
            }
    }
#pragma unroll
    for (int n = 0; n < EACH; n++)
        if (lane < found) sums[lane][own_column + n / W * W * WARP + n % W] = own[n];
    __syncthreads();
    for (int column = (int)threadIdx.x; column < GRAD_COLUMNS && block_column + column < columns; column += THREADS) {
        float sum = table[at * columns + block_column + column];
        for (int from = 0; from < GRAD_LANES && from < found; from++)
            sum += sums[from][column];
        table[at * columns + block_column + column] = sum;
    }
}

template <typename T> static void grad_launch(const struct node *node, const struct kernel_call *call) {
    constexpr int W = VECTOR<T>;
    const struct embedding_grad_attributes *attributes = NODE_ATTRIBUTES(node, embedding_grad_attributes);
    int64_t rows = shape_rows(&node->in[1]->shape), columns = shape_columns(&node->out[0]->shape);
    struct embedding_attributes of = {attributes->first_row, attributes->tokens};
    struct table_rows table = {attributes->rows, attributes->first_row, embedding_tokens(&of, attributes->rows)};
    bool vectors = columns % W == 0 && rows_are_vectors(node->in[1], call->in[1]);
    dim3 grid(grid_size(rows), (unsigned)divide_up(columns, GRAD_COLUMNS));
    launch(vectors ? known<embedding_grad_kernel<T, W>>() : known<embedding_grad_kernel<T, 1>>(), grid, THREADS, 0,
           stream_of(call), (const int32_t *)call->in[0], rows, table, (const T *)call->in[1],
           tensor_row_stride(node->in[1]), (float *)call->out[0], columns);
}

static enum status embedding_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    FOR_ELEMENT(kernel->node->in[1]->shape.dtype, grad_launch, kernel->node, call);
    return cuda_outcome();
}

CUDA_KERNEL(embedding_grad, embedding_grad_run)

/* A block copies the row of its sequence's last token that counts. Strides and lengths in units. */
template <typename UNIT>
__global__ void __launch_bounds__(THREADS) last_token_kernel(const double *scalars, int64_t length, const UNIT *x,
                                                             int64_t x_units, int64_t units, UNIT *y, int64_t y_units) {
    int64_t sequence = blockIdx.x, last = (int64_t)scalars[SCALAR_NEW_TOKENS] - 1;
    if (last < 0 || last >= length) __trap(); /* as the CPU ends there, too */
    for (int64_t i = threadIdx.x; i < units; i += THREADS)
        y[sequence * y_units + i] = x[(sequence * length + last) * x_units + i];
}

template <typename UNIT> static void last_token_launch(const struct node *node, const struct kernel_call *call) {
    const struct tensor *x = node->in[0], *y = node->out[0];
    int64_t element = dtype_bytes(x->shape.dtype), unit = (int64_t)sizeof(UNIT);
    launch(known<last_token_kernel<UNIT>>(), grid_size(x->shape.dims[0]), THREADS, 0, stream_of(call), call->scalars,
           x->shape.dims[1], (const UNIT *)call->in[0], tensor_row_stride(x) * element / unit,
           shape_columns(&x->shape) * element / unit, (UNIT *)call->out[0], tensor_row_stride(y) * element / unit);
}

static enum status last_token_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    int64_t bytes = shape_columns(&node->in[0]->shape) * dtype_bytes(node->in[0]->shape.dtype);
    bool vectors = rows_are_vectors(node->in[0], call->in[0]) && rows_are_vectors(node->out[0], call->out[0]);
    if (vectors && bytes % (int64_t)sizeof(uint4) == 0)
        last_token_launch<uint4>(node, call);
    else if (node->in[0]->shape.dtype == DTYPE_BF16)
        last_token_launch<uint16_t>(node, call);
    else
        last_token_launch<uint32_t>(node, call);
    return cuda_outcome();
}

CUDA_KERNEL(last_token, last_token_run)
