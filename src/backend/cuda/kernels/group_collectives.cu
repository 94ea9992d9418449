/* Kernels that put tensors into the parts of collectives, and back: each element is copied by itself, from one dtype to
 * another. */
#include "backend/cuda/kernels/device.cuh"

/* Rows of parts, part by part from `first` on, and where they are in the whole (parts_find of ops.h). Strides are in
 * elements. */
struct parts_copy {
    const void *from;
    void *to;
    int64_t count, columns; /* elements, and those of a row of a part */
    int64_t part_stride, whole_stride;
    int64_t parts, first, rows_of_each;
    int64_t runs;   /* of a part: 2 in zigzag, else 1 */
    int64_t run;    /* rows of a run, which lie together in the whole; 0: each row has its place in one of the whole */
    int64_t length; /* columns of a run, of those of the whole */
};

/* The part's run `which`, as a number of the whole's runs. */
__device__ inline int64_t find_run(const struct parts_copy &copy, int64_t part, int64_t which) {
    return which == 0 ? part : 2 * copy.parts - 1 - part;
}

/* The place in the whole of an element of a part. */
__device__ inline int64_t find_element(const struct parts_copy &copy, int64_t part, int64_t row, int64_t column) {
    if (copy.run == 0) {
        int64_t which = copy.runs == 1 ? 0 : column / copy.length;
        return row * copy.whole_stride + find_run(copy, part, which) * copy.length + column - which * copy.length;
    }
    int64_t outer = row / (copy.run * copy.runs), which = row / copy.run % copy.runs;
    int64_t run = outer * copy.parts * copy.runs + find_run(copy, part, which);
    return (run * copy.run + row % copy.run) * copy.whole_stride + column;
}

template <typename X, typename Y> __device__ inline Y as(X value) {
    if constexpr (std::is_same_v<X, Y>)
        return value;
    else
        return narrow<Y>(widen(value));
}

template <typename X, typename Y, bool JOINS>
__global__ void __launch_bounds__(THREADS) parts_kernel(struct parts_copy copy) {
    int64_t index = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (index >= copy.count) return;
    int64_t row = index / copy.columns, column = index % copy.columns;
    int64_t part = copy.first + row / copy.rows_of_each, own = row % copy.rows_of_each;
    int64_t in_whole = find_element(copy, part, own, column);
    int64_t in_part = row * copy.part_stride + column;
    int64_t from = JOINS ? in_part : in_whole, to = JOINS ? in_whole : in_part;
    ((Y *)copy.to)[to] = as<X, Y>(((const X *)copy.from)[from]);
}

template <typename X, typename Y> static void parts_launch(struct parts_copy copy, bool joins, cudaStream_t stream) {
    unsigned blocks = grid_size(divide_up(copy.count, THREADS));
    if (joins)
        launch(known<parts_kernel<X, Y, true>>(), blocks, THREADS, 0, stream, copy);
    else
        launch(known<parts_kernel<X, Y, false>>(), blocks, THREADS, 0, stream, copy);
}

static enum status parts_run(const struct node *node, const struct kernel_call *call, struct parts_copy copy,
                             bool joins) {
    enum dtype from = node->in[0]->shape.dtype, to = node->out[0]->shape.dtype;
    cudaStream_t stream = stream_of(call);
    copy.from = call->in[0];
    copy.to = call->out[0];
    if (from == to && dtype_bytes(to) == sizeof(uint64_t))
        parts_launch<uint64_t, uint64_t>(copy, joins, stream);
    else if (from == to && dtype_bytes(to) == sizeof(uint32_t))
        parts_launch<uint32_t, uint32_t>(copy, joins, stream);
    else if (from == to)
        parts_launch<uint16_t, uint16_t>(copy, joins, stream);
    else if (to == DTYPE_F32)
        parts_launch<__nv_bfloat16, float>(copy, joins, stream);
    else
        parts_launch<float, __nv_bfloat16>(copy, joins, stream);
    return cuda_outcome();
}

/* A copy between a tensor whose dimension is whole and its parts from `first` on, each of `rows` rows. */
static struct parts_copy parts_between(const struct tensor *whole, const struct tensor *part, struct parts_order order,
                                       int64_t first, int64_t rows_of_each) {
    struct parts_copy copy = {};
    int last = whole->shape.rank - 1;
    copy.count = shape_elements(&part->shape);
    copy.columns = shape_columns(&part->shape);
    copy.part_stride = tensor_row_stride(part);
    copy.whole_stride = tensor_row_stride(whole);
    copy.parts = order.parts;
    copy.first = first;
    copy.rows_of_each = rows_of_each;
    copy.runs = order.zigzag ? 2 : 1;
    copy.length = whole->shape.dims[order.dimension] / (order.parts * copy.runs);
    copy.run = order.dimension == last ? 0 : copy.length;
    for (int i = order.dimension + 1; i < last; i++)
        copy.run *= whole->shape.dims[i];
    return copy;
}

static enum status to_parts_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    const struct parts_order order = NODE_ATTRIBUTES(node, parts_attributes)->order;
    int64_t rows = shape_rows(&node->out[0]->shape) / order.parts;
    return parts_run(node, call, parts_between(node->in[0], node->out[0], order, 0, rows), false);
}

static enum status from_parts_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    const struct parts_order order = NODE_ATTRIBUTES(node, parts_attributes)->order;
    int64_t rows = shape_rows(&node->in[0]->shape) / order.parts;
    return parts_run(node, call, parts_between(node->out[0], node->in[0], order, 0, rows), true);
}

static enum status cut_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    const struct cut_attributes *attributes = NODE_ATTRIBUTES(node, cut_attributes);
    return parts_run(node, call,
                     parts_between(node->in[0], node->out[0], parts_order_of(&attributes->part, attributes->dimension),
                                   attributes->part.position, shape_rows(&node->out[0]->shape)),
                     false);
}

/* Columns of wider tensors go row by row; all else is one row. */
static enum status convert_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    const struct tensor *x = node->in[0], *y = node->out[0];
    struct parts_copy copy = {};
    if (call->in[0] == call->out[0]) return STATUS_OK;
    copy.count = copy.columns = copy.rows_of_each = shape_elements(&y->shape);
    copy.parts = copy.runs = 1;
    if (x->base || y->base) {
        copy.columns = shape_columns(&y->shape);
        copy.whole_stride = tensor_row_stride(x);
        copy.part_stride = tensor_row_stride(y);
    }
    return parts_run(node, call, copy, false);
}

CUDA_KERNEL(to_parts, to_parts_run)

CUDA_KERNEL(from_parts, from_parts_run)

CUDA_KERNEL(cut, cut_run)

CUDA_KERNEL(convert, convert_run)

CUDA_KERNEL(copy_in, convert_run)
