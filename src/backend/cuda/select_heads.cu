/* Key-value heads that a part of the query heads reads, and the sums of their gradients: an element of the result a
 * thread. */
#include "backend/cuda/device.cuh"

struct selection {
    const void *from;
    void *to;
    int64_t count, columns; /* elements of the result, and those of its row */
    int64_t from_stride, to_stride;
    int head_dim, selected, first, step, group; /* struct select_heads_attributes */
};

/* select_heads_find of ops.h. */
__device__ inline int selected_head(const struct selection &own, int i) {
    return (own.first + i * own.step) / own.group;
}

template <typename T> __global__ void __launch_bounds__(THREADS) select_kernel(struct selection own) {
    int64_t index = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (index >= own.count) return;
    int64_t row = index / own.columns;
    int column = (int)(index % own.columns), head = selected_head(own, column / own.head_dim);
    ((T *)own.to)[row * own.to_stride + column] =
        ((const T *)own.from)[row * own.from_stride + head * own.head_dim + column % own.head_dim];
}

/* The first use of a head is the first selected one whose query is not before the head's. */
template <typename T> __global__ void __launch_bounds__(THREADS) select_grad_kernel(struct selection own) {
    int64_t index = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (index >= own.count) return;
    int64_t row = index / own.columns;
    int column = (int)(index % own.columns), head = column / own.head_dim, at = column % own.head_dim;
    int behind = head * own.group - own.first, ahead = behind + own.group;
    const T *dy = (const T *)own.from + row * own.from_stride + at;
    int first = behind > 0 ? (behind + own.step - 1) / own.step : 0;
    int end = ahead > 0 ? min((ahead + own.step - 1) / own.step, own.selected) : 0;
    float sum = 0;
    for (int i = first; i < end; i++)
        sum += widen(dy[(int64_t)i * own.head_dim]);
    ((T *)own.to)[row * own.to_stride + column] = narrow<T>(sum);
}

static struct selection selection_of(const struct node *node, const struct kernel_call *call) {
    const struct select_heads_attributes *attributes = NODE_ATTRIBUTES(node, select_heads_attributes);
    struct selection own = {};
    own.from = call->in[0];
    own.to = call->out[0];
    own.count = shape_elements(&node->out[0]->shape);
    own.columns = shape_columns(&node->out[0]->shape);
    own.from_stride = tensor_row_stride(node->in[0]);
    own.to_stride = tensor_row_stride(node->out[0]);
    own.head_dim = (int)attributes->head_dim;
    own.selected = (int)attributes->selected;
    own.first = (int)attributes->first;
    own.step = (int)attributes->step;
    own.group = (int)attributes->group;
    return own;
}

static enum status select_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct selection own = selection_of(kernel->node, call);
    unsigned blocks = grid_size(divide_up(own.count, THREADS));
    if (kernel->node->out[0]->shape.dtype == DTYPE_BF16)
        launch(known<select_kernel<__nv_bfloat16>>(), blocks, THREADS, 0, stream_of(call), own);
    else
        launch(known<select_kernel<float>>(), blocks, THREADS, 0, stream_of(call), own);
    return cuda_outcome();
}

static enum status select_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct selection own = selection_of(kernel->node, call);
    unsigned blocks = grid_size(divide_up(own.count, THREADS));
    if (kernel->node->out[0]->shape.dtype == DTYPE_BF16)
        launch(known<select_grad_kernel<__nv_bfloat16>>(), blocks, THREADS, 0, stream_of(call), own);
    else
        launch(known<select_grad_kernel<float>>(), blocks, THREADS, 0, stream_of(call), own);
    return cuda_outcome();
}

enum status cuda_select_heads_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, select_run, 0, out);
}

enum status cuda_select_heads_grad_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, select_grad_run, 0, out);
}
