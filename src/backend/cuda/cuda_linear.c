/* Linear layers and their gradients: one matrix product each. */
#include "backend/cuda/cuda_matmul.h"

struct linear_kernel {
    struct kernel kernel;
    struct cuda_matmul *matmul;
    int64_t sums_at; /* in the workspace, after the product's */
};

static void linear_release(struct kernel *kernel) {
    cuda_matmul_free(((struct linear_kernel *)kernel)->matmul);
    mem_free(kernel);
}

/* `sums` bytes of workspace are for sums over rows. */
static enum status linear_create(const struct node *node, const struct cuda_matmul_spec *spec, int64_t sums,
                                 void (*run)(const struct kernel *, const struct kernel_call *), struct kernel **out) {
    struct linear_kernel *kernel = cuda_kernel_new(node, sizeof *kernel, run);
    if (!kernel) return STATUS_FAILED;
    kernel->kernel.release = linear_release;
    enum status status = cuda_matmul_create(spec, &kernel->matmul);
    if (status != STATUS_OK) {
        linear_release(&kernel->kernel);
        return status;
    }
    kernel->sums_at = cuda_align(cuda_matmul_workspace_bytes(kernel->matmul));
    kernel->kernel.workspace_bytes = kernel->sums_at + sums;
    *out = &kernel->kernel;
    return STATUS_OK;
}

static void product_run(const struct kernel *kernel, const struct kernel_call *call,
                        struct cuda_matmul_operands operands) {
    cuda_matmul_run(((const struct linear_kernel *)kernel)->matmul, &operands, call->workspace, stream_of(call));
}

/* An addend, which may be missing. */
static void set_addend(const struct tensor *addend, struct cuda_matmul_spec *spec) {
    if (!addend) return;
    spec->addend_row = tensor_row_stride(addend);
    spec->addend_alignment = cuda_alignment(addend);
}

static void linear_run(const struct kernel *kernel, const struct kernel_call *call) {
    product_run(kernel, call,
                (struct cuda_matmul_operands){call->in[0], call->in[1], call->in[2], call->in[3], call->out[0]});
}

enum status cuda_linear_create(const struct node *node, struct kernel **out) {
    const struct tensor *x = node->in[0], *y = node->out[0];
    bool kn = NODE_ATTRIBUTES(node, linear_attributes)->weight_is_kn;
    int64_t k = shape_columns(&x->shape), n = shape_columns(&y->shape);
    struct cuda_matmul_spec spec = {
        .m = shape_rows(&x->shape),
        .n = n,
        .k = k,
        .a_row = tensor_row_stride(x),
        .a_k = 1,
        .b_k = kn ? n : 1,
        .b_column = kn ? 1 : k,
        .c_row = tensor_row_stride(y),
        .a_alignment = cuda_alignment(x),
        .b_alignment = cuda_alignment(node->in[1]),
        .c_alignment = cuda_alignment(y),
        .dtype = x->shape.dtype,
        .out_dtype = y->shape.dtype,
        .bias = node->in[2] != NULL,
    };
    set_addend(node->in[3], &spec);
    return linear_create(node, &spec, 0, linear_run, out);
}

static void linear_dx_run(const struct kernel *kernel, const struct kernel_call *call) {
    product_run(kernel, call, (struct cuda_matmul_operands){call->in[0], call->in[1], NULL, call->in[2], call->out[0]});
}

enum status cuda_linear_dx_create(const struct node *node, struct kernel **out) {
    const struct tensor *dy = node->in[0], *dx = node->out[0];
    bool kn = NODE_ATTRIBUTES(node, linear_attributes)->weight_is_kn;
    int64_t inputs = shape_columns(&dx->shape), outputs = shape_columns(&dy->shape);
    struct cuda_matmul_spec spec = {
        .m = shape_rows(&dy->shape),
        .n = inputs,
        .k = outputs,
        .a_row = tensor_row_stride(dy),
        .a_k = 1,
        .b_k = kn ? 1 : inputs,
        .b_column = kn ? outputs : 1,
        .c_row = tensor_row_stride(dx),
        .a_alignment = cuda_alignment(dy),
        .b_alignment = cuda_alignment(node->in[1]),
        .c_alignment = cuda_alignment(dx),
        .dtype = dy->shape.dtype,
        .out_dtype = dx->shape.dtype,
    };
    set_addend(node->in[2], &spec);
    return linear_create(node, &spec, 0, linear_dx_run, out);
}

static void sum_bias(const struct tensor *dy, const struct kernel_call *call, const void *data, int64_t workspace,
                     float *sum) {
    cuda_sum_columns(stream_of(call), dy->shape.dtype, shape_rows(&dy->shape), shape_columns(&dy->shape), data,
                     tensor_row_stride(dy), cuda_workspace(call, workspace), sum);
}

static int64_t bias_workspace(const struct tensor *dy) {
    return cuda_sum_workspace(shape_rows(&dy->shape), shape_columns(&dy->shape));
}

static void linear_dw_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    bool kn = NODE_ATTRIBUTES(node, linear_dw_attributes)->weight_is_kn;
    product_run(
        kernel, call,
        (struct cuda_matmul_operands){call->in[kn ? 0 : 1], call->in[kn ? 1 : 0], NULL, call->out[0], call->out[0]});
    if (call->out[1])
        sum_bias(node->in[1], call, call->in[1], ((const struct linear_kernel *)kernel)->sums_at, call->out[1]);
}

/* The weight's rows times its columns, over the tokens: x and dy, or dy and x. */
enum status cuda_linear_dw_create(const struct node *node, struct kernel **out) {
    bool kn = NODE_ATTRIBUTES(node, linear_dw_attributes)->weight_is_kn;
    const struct tensor *left = node->in[kn ? 0 : 1], *right = node->in[kn ? 1 : 0];
    struct cuda_matmul_spec spec = {
        .m = shape_columns(&left->shape),
        .n = shape_columns(&right->shape),
        .k = shape_rows(&left->shape),
        .a_row = 1,
        .a_k = tensor_row_stride(left),
        .b_k = tensor_row_stride(right),
        .b_column = 1,
        .c_row = shape_columns(&right->shape),
        .a_alignment = cuda_alignment(left),
        .b_alignment = cuda_alignment(right),
        .c_alignment = cuda_alignment(node->out[0]),
        .dtype = left->shape.dtype,
        .out_dtype = DTYPE_F32,
    };
    set_addend(node->out[0], &spec);
    return linear_create(node, &spec, node->out[1] ? bias_workspace(node->in[1]) : 0, linear_dw_run, out);
}

static void bias_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    sum_bias(kernel->node->in[0], call, call->in[0], 0, call->out[0]);
}

enum status cuda_bias_grad_create(const struct node *node, struct kernel **out) {
    return cuda_kernel_plain(node, bias_grad_run, bias_workspace(node->in[0]), out);
}
