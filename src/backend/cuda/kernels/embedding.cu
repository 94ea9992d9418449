/* Rows picked by their number: embeddings, their gradient, the last token; and the rotary embedding of positions: the
 * table of angles, and the rotation. */
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

/* Block (row, c) adds the gradients of all rows with the same token to the token's row of the table, for GRAD_COLUMNS
 * columns. Warp w sums every GRAD_LANES-th row from the w-th on; then the warps' sums are added in order. The block of
 * the token's first row does this; the blocks of other rows do nothing. */
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

/* ---- rotary positions ---- */

constexpr int64_t HALF_MAX = 512;

/* Given to the device by value, with each launch. */
struct frequencies {
    float at[HALF_MAX];
};

struct rope_table_kernel {
    struct kernel kernel;
    struct frequencies frequencies;
    float factor; /* of cosines and sines */
};

/* Angles are products in fp32, as transformers computes them; their cosines and sines are rounded from double. */
__global__ void angles_kernel(const __grid_constant__ struct frequencies frequencies, const int32_t *positions,
                              int64_t rows, int half, float factor, float *table) {
    int64_t index = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = index / half;
    int i = (int)(index % half);
    if (row >= rows) return;
    double angle = (double)__fmul_rn((float)positions[row], frequencies.at[i]);
    table[row * 2 * half + i] = __fmul_rn((float)cos(angle), factor);
    table[row * 2 * half + half + i] = __fmul_rn((float)sin(angle), factor);
}

static enum status rope_table_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct rope_table_kernel *own = (const struct rope_table_kernel *)kernel;
    const struct shape *table = &kernel->node->out[0]->shape;
    int64_t rows = shape_rows(table), half = shape_columns(table) / 2;
    launch(known<angles_kernel>(), grid_size(divide_up(rows * half, THREADS)), THREADS, 0, stream_of(call),
           own->frequencies, (const int32_t *)call->in[0], rows, (int)half, own->factor, (float *)call->out[0]);
    return cuda_outcome();
}

enum status cuda_rope_table_create(const struct node *node, struct kernel **out) {
    const struct rope_table_attributes *attributes = NODE_ATTRIBUTES(node, rope_table_attributes);
    if (attributes->head_dim > 2 * HALF_MAX)
        return status_set(STATUS_BAD_INPUT, "rotary embedding of heads of %lld features: CUDA takes at most %lld",
                          (long long)attributes->head_dim, (long long)(2 * HALF_MAX));
    struct rope_table_kernel *kernel = (struct rope_table_kernel *)kernel_new(node, sizeof *kernel, rope_table_run);
    if (!kernel) return STATUS_FAILED;
    rope_inverse_frequencies(attributes, kernel->frequencies.at);
    kernel->factor = (float)rope_attention_factor(attributes);
    *out = &kernel->kernel;
    return STATUS_OK;
}

struct rope {
    const void *x;
    const float *table; /* [rows][2 * half]: cosines, then sines */
    void *y;            /* may be x */
    int64_t x_stride, y_stride, table_stride;
    int heads, half, head_dim; /* 2 * half features of head_dim are rotated */
    float sign;
};

/* A block takes a row. Each thread reads W features of both halves of a head before it writes them. */
template <typename T, int W> __global__ void __launch_bounds__(THREADS) rope_kernel(struct rope rope) {
    int64_t row = blockIdx.x;
    const float *table = rope.table + row * rope.table_stride;
    int pieces = rope.half / W;
    for (int at = (int)threadIdx.x; at < rope.heads * pieces; at += THREADS) {
        int head = at / pieces, i = at % pieces * W;
        int64_t low_at = (int64_t)head * rope.head_dim + i, high_at = low_at + rope.half;
        vector<T, W> low = load<T, W>(rope.x, row * rope.x_stride + low_at);
        vector<T, W> high = load<T, W>(rope.x, row * rope.x_stride + high_at), low_y, high_y;
        float cosines[W], sines[W];
        load_floats<W>(table + i, cosines);
        load_floats<W>(table + rope.half + i, sines);
        for (int w = 0; w < W; w++) {
            float sine = sines[w] * rope.sign, a = widen(low.at[w]), b = widen(high.at[w]);
            low_y.at[w] = narrow<T>(a * cosines[w] - b * sine);
            high_y.at[w] = narrow<T>(b * cosines[w] + a * sine);
        }
        store<T, W>(rope.y, row * rope.y_stride + low_at, low_y);
        store<T, W>(rope.y, row * rope.y_stride + high_at, high_y);
    }
    if (rope.x == rope.y) return;
    int rest = (rope.head_dim - 2 * rope.half) / W;
    for (int at = (int)threadIdx.x; at < rope.heads * rest; at += THREADS) {
        int64_t feature = (int64_t)(at / rest) * rope.head_dim + 2 * rope.half + at % rest * W;
        store<T, W>(rope.y, row * rope.y_stride + feature, load<T, W>(rope.x, row * rope.x_stride + feature));
    }
}

template <typename T>
static void rope_launch(const struct rope &rope, int64_t rows, bool vectors, cudaStream_t stream) {
    if (vectors && rope.half % VECTOR<T> == 0 && rope.head_dim % VECTOR<T> == 0)
        launch(known<rope_kernel<T, VECTOR<T>>>(), grid_size(rows), THREADS, 0, stream, rope);
    else
        launch(known<rope_kernel<T, 1>>(), grid_size(rows), THREADS, 0, stream, rope);
}

static enum status rope_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    const struct rope_attributes *attributes = NODE_ATTRIBUTES(node, rope_attributes);
    const struct shape *x = &node->in[0]->shape;
    struct rope rope = {
        .x = call->in[0],
        .table = (const float *)call->in[1],
        .y = call->out[0],
        .x_stride = tensor_row_stride(node->in[0]),
        .y_stride = tensor_row_stride(node->out[0]),
        .table_stride = tensor_row_stride(node->in[1]),
        .heads = (int)attributes->heads,
        .half = (int)(shape_columns(&node->in[1]->shape) / 2),
        .head_dim = (int)attributes->head_dim,
        .sign = (float)attributes->sign,
    };
    bool vectors = rows_are_vectors(node->in[0], rope.x) && rows_are_vectors(node->out[0], rope.y) &&
                   rows_are_vectors(node->in[1], rope.table);
    FOR_ELEMENT(x->dtype, rope_launch, rope, shape_rows(x), vectors, stream_of(call));
    return cuda_outcome();
}

CUDA_KERNEL(rope, rope_run)
