/* Attention and its gradient by cuDNN in place of the backend's own kernels: for whole causal sequences in bf16. */
#include "backend/cuda/attention_cudnn.h"

struct library_kernel {
    struct kernel kernel;
    struct attention_cudnn *plan;
};

static void library_release(struct kernel *kernel) {
    attention_cudnn_free(((struct library_kernel *)kernel)->plan);
    mem_free(kernel);
}

static float scale_of(const struct kernel *kernel) {
    return (float)NODE_ATTRIBUTES(kernel->node, attention_attributes)->scale;
}

static enum status run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct attention_cudnn_operands operands = {
        .q = call->in[0],
        .k = call->in[1],
        .v = call->in[2],
        .y = call->out[0],
        .lse = call->out[1],
        .scale = scale_of(kernel),
    };
    attention_cudnn_run(((const struct library_kernel *)kernel)->plan, &operands, call->workspace, stream_of(call));
    return cuda_outcome();
}

static enum status grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct attention_cudnn_operands operands = {
        .dy = call->in[0],
        .q = call->in[1],
        .k = call->in[2],
        .v = call->in[3],
        .y = call->in[4],
        .lse = call->in[5],
        .dq = call->out[0],
        .dk = call->out[1],
        .dv = call->out[2],
        .scale = scale_of(kernel),
    };
    attention_cudnn_run(((const struct library_kernel *)kernel)->plan, &operands, call->workspace, stream_of(call));
    return cuda_outcome();
}

/* An operand that is left out has none. */
static bool has_vectors(const struct tensor *tensor) {
    return tensor && cuda_alignment(tensor) >= 16 &&
           tensor_row_stride(tensor) * dtype_bytes(tensor->shape.dtype) % 16 == 0;
}

static bool are_vectors(struct tensor *const tensors[], int count) {
    for (int i = 0; i < count; i++)
        if (!has_vectors(tensors[i])) return false;
    return true;
}

/* Whether cuDNN is asked for an engine. */
static bool suits(const struct node *node, const struct tensor *q, const struct tensor *segments) {
    const struct attention_attributes *attributes = NODE_ATTRIBUTES(node, attention_attributes);
    bool whole = !segments && (attributes->window <= 0 || attributes->window >= q->shape.dims[1]);
    bool head = attributes->head_dim % 8 == 0 && attributes->head_dim <= 128 && attributes->softcap == 0;
    return q->shape.dtype == DTYPE_BF16 && whole && head && attributes->queries.parts <= 1;
}

static struct attention_cudnn_shape shape_of(const struct node *node, struct tensor *const qkv[3],
                                             const struct tensor *y) {
    const struct attention_attributes *attributes = NODE_ATTRIBUTES(node, attention_attributes);
    return (struct attention_cudnn_shape){
        .sequences = qkv[0]->shape.dims[0],
        .length = qkv[0]->shape.dims[1],
        .heads = attributes->heads,
        .kv_heads = attributes->kv_heads,
        .head_dim = attributes->head_dim,
        .q_row = tensor_row_stride(qkv[0]),
        .k_row = tensor_row_stride(qkv[1]),
        .v_row = tensor_row_stride(qkv[2]),
        .y_row = tensor_row_stride(y),
    };
}

/* *out stays NULL where the library has no plan. */
static enum status create(const struct node *node, const struct attention_cudnn_shape *shape, kernel_run *function,
                          struct kernel **out) {
    struct attention_cudnn *plan;
    TRY(attention_cudnn_create(shape, NULL, &plan));
    if (!plan) {
        status_clear();
        return STATUS_OK;
    }
    struct library_kernel *kernel = kernel_new(node, sizeof *kernel, function);
    if (!kernel) {
        attention_cudnn_free(plan);
        return STATUS_FAILED;
    }
    kernel->plan = plan;
    kernel->kernel.release = library_release;
    kernel->kernel.workspace_bytes = attention_cudnn_workspace_bytes(plan);
    *out = &kernel->kernel;
    return STATUS_OK;
}

enum status attention_library_create(const struct node *node, struct kernel **out) {
    *out = NULL;
    if (!attention_cudnn_wanted() || !suits(node, node->in[0], node->in[3]) || node->in[4]) return STATUS_OK;
    if (!are_vectors(node->in, 3) || !has_vectors(node->out[0])) return STATUS_OK;
    const struct attention_cudnn_shape shape = shape_of(node, node->in, node->out[0]);
    return create(node, &shape, run, out);
}

enum status attention_library_grad_create(const struct node *node, struct kernel **out) {
    *out = NULL;
    if (!attention_cudnn_grad_wanted() || !suits(node, node->in[1], node->in[6])) return STATUS_OK;
    if (!are_vectors(node->in, 5) || !are_vectors(node->out, 3)) return STATUS_OK;
    struct attention_cudnn_shape shape = shape_of(node, node->in + 1, node->in[4]);
    shape.dy_row = tensor_row_stride(node->in[0]);
    shape.dq_row = tensor_row_stride(node->out[0]);
    shape.dk_row = tensor_row_stride(node->out[1]);
    shape.dv_row = tensor_row_stride(node->out[2]);
    return create(node, &shape, grad_run, out);
}
