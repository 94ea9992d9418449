/* Rotary embeddings: the table of angles, and the rotation. */
#include "backend/cuda/kernels/device.cuh"

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
