/* Linear layers and their gradients: one matrix product each. */
#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/matmul.h"

struct linear_kernel {
    struct kernel kernel;
    struct matmul *matmul;
};

static void linear_release(struct kernel *kernel) {
    matmul_free(((struct linear_kernel *)kernel)->matmul);
    mem_free(kernel);
}

static enum status linear_create(const struct node *node, const struct matmul_spec *spec,
                                 void (*run)(const struct kernel *, const struct kernel_call *), struct kernel **out) {
    struct linear_kernel *kernel = cpu_kernel_new(node, sizeof *kernel, run);
    if (!kernel) return STATUS_FAILED;
    kernel->kernel.release = linear_release;
    enum status status = matmul_create(spec, &kernel->matmul);
    if (status != STATUS_OK) {
        linear_release(&kernel->kernel);
        return status;
    }
    kernel->kernel.workspace_bytes = matmul_workspace_bytes(kernel->matmul);
    *out = &kernel->kernel;
    return STATUS_OK;
}

static const struct matmul *matmul_of(const struct kernel *kernel) {
    return ((const struct linear_kernel *)kernel)->matmul;
}

static void linear_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct matmul_operands operands = {call->in[0], call->in[1], call->in[2], call->in[3], call->out[0]};
    matmul_run(matmul_of(kernel), &operands, call->workspace);
}

enum status cpu_linear_create(const struct node *node, struct kernel **out) {
    const struct tensor *x = node->in[0], *y = node->out[0];
    bool kn = NODE_ATTRIBUTES(node, linear_attributes)->weight_is_kn;
    int64_t k = shape_columns(&x->shape), n = shape_columns(&y->shape);
    struct matmul_spec spec = {
        .m = shape_rows(&x->shape),
        .n = n,
        .k = k,
        .a_row = tensor_row_stride(x),
        .a_k = 1,
        .b_k = kn ? n : 1,
        .b_column = kn ? 1 : k,
        .c_row = tensor_row_stride(y),
        .dtype = x->shape.dtype,
        .out_dtype = y->shape.dtype,
        .bias = node->in[2] != NULL,
        .addend_row = node->in[3] ? tensor_row_stride(node->in[3]) : 0,
    };
    return linear_create(node, &spec, linear_run, out);
}

static void linear_dx_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct matmul_operands operands = {call->in[0], call->in[1], NULL, call->in[2], call->out[0]};
    matmul_run(matmul_of(kernel), &operands, call->workspace);
}

enum status cpu_linear_dx_create(const struct node *node, struct kernel **out) {
    const struct tensor *dy = node->in[0], *dx = node->out[0];
    bool kn = NODE_ATTRIBUTES(node, linear_attributes)->weight_is_kn;
    int64_t inputs = shape_columns(&dx->shape), outputs = shape_columns(&dy->shape);
    struct matmul_spec spec = {
        .m = shape_rows(&dy->shape),
        .n = inputs,
        .k = outputs,
        .a_row = tensor_row_stride(dy),
        .a_k = 1,
        .b_k = kn ? 1 : inputs,
        .b_column = kn ? outputs : 1,
        .c_row = tensor_row_stride(dx),
        .dtype = dy->shape.dtype,
        .out_dtype = dx->shape.dtype,
        .addend_row = node->in[2] ? tensor_row_stride(node->in[2]) : 0,
    };
    return linear_create(node, &spec, linear_dx_run, out);
}

static void sum_bias(const struct tensor *dy, const void *data, float *sum) {
    sum_columns(dy->shape.dtype, shape_rows(&dy->shape), shape_columns(&dy->shape), data, tensor_row_stride(dy), sum);
}

static void linear_dw_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    bool kn = NODE_ATTRIBUTES(node, linear_dw_attributes)->weight_is_kn;
    struct matmul_operands operands = {call->in[kn ? 0 : 1], call->in[kn ? 1 : 0], NULL, call->out[0], call->out[0]};
    matmul_run(matmul_of(kernel), &operands, call->workspace);
    if (call->out[1]) sum_bias(node->in[1], call->in[1], call->out[1]);
}

/* The weight's rows times its columns, over the tokens: x and dy, or dy and x. */
enum status cpu_linear_dw_create(const struct node *node, struct kernel **out) {
    bool kn = NODE_ATTRIBUTES(node, linear_dw_attributes)->weight_is_kn;
    const struct tensor *left = node->in[kn ? 0 : 1], *right = node->in[kn ? 1 : 0];
    struct matmul_spec spec = {
        .m = shape_columns(&left->shape),
        .n = shape_columns(&right->shape),
        .k = shape_rows(&left->shape),
        .a_row = 1,
        .a_k = tensor_row_stride(left),
        .b_k = tensor_row_stride(right),
        .b_column = 1,
        .c_row = shape_columns(&right->shape),
        .dtype = left->shape.dtype,
        .out_dtype = DTYPE_F32,
        .addend_row = shape_columns(&right->shape),
    };
    return linear_create(node, &spec, linear_dw_run, out);
}

static void bias_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    sum_bias(kernel->node->in[0], call->in[0], call->out[0]);
}

enum status cpu_bias_grad_create(const struct node *node, struct kernel **out) {
    *out = cpu_kernel_new(node, sizeof **out, bias_grad_run);
    return *out ? STATUS_OK : STATUS_FAILED;
}
