/* Linear layers and their gradients: one GEMM each. */
#include "backend/cuda/cuda_slabs.h"
#include "backend/kernel_parts.h"

struct linear_kernel {
    struct kernel kernel;
    struct cuda_slabs *product;
    int64_t sums_at; /* in the workspace, after the GEMM's */
};

static void linear_release(struct kernel *kernel) {
    cuda_slabs_free(((struct linear_kernel *)kernel)->product);
    mem_free(kernel);
}

/* `sums`: bytes of workspace for sums over rows. */
static enum status linear_create(const struct node *node, struct linear_product product, int64_t sums, kernel_run *run,
                                 struct kernel **out) {
    const struct cuda_matmul_spec spec = {
        .product = product.spec,
        .a_alignment = cuda_alignment(product.a),
        .b_alignment = cuda_alignment(product.b),
        .c_alignment = cuda_alignment(product.c),
        .addend_alignment = product.addend ? cuda_alignment(product.addend) : 0,
    };
    struct linear_kernel *kernel = kernel_new(node, sizeof *kernel, run);
    if (!kernel) return STATUS_FAILED;
    kernel->kernel.release = linear_release;
    enum status status = cuda_slabs_create(&spec, &kernel->product);
    if (status != STATUS_OK) {
        linear_release(&kernel->kernel);
        return status;
    }
    kernel->sums_at = workspace_align(cuda_slabs_workspace_bytes(kernel->product));
    kernel->kernel.workspace_bytes = kernel->sums_at + sums;
    *out = &kernel->kernel;
    return STATUS_OK;
}

static void product_run(const struct kernel *kernel, const struct kernel_call *call, struct matmul_operands operands) {
    cuda_slabs_run(((const struct linear_kernel *)kernel)->product, &operands, call->workspace, stream_of(call));
}

static enum status linear_run(const struct kernel *kernel, const struct kernel_call *call) {
    product_run(kernel, call, linear_operands(call));
    return cuda_outcome();
}

enum status cuda_linear_create(const struct node *node, struct kernel **out) {
    return linear_create(node, linear_product(node), 0, linear_run, out);
}

static enum status linear_dx_run(const struct kernel *kernel, const struct kernel_call *call) {
    product_run(kernel, call, linear_dx_operands(call));
    return cuda_outcome();
}

enum status cuda_linear_dx_create(const struct node *node, struct kernel **out) {
    return linear_create(node, linear_dx_product(node), 0, linear_dx_run, out);
}

static void sum_bias(const struct tensor *dy, const struct kernel_call *call, const void *data, int64_t workspace,
                     float *sum) {
    cuda_sum_columns(stream_of(call), dy->shape.dtype, shape_rows(&dy->shape), shape_columns(&dy->shape), data,
                     tensor_row_stride(dy), workspace_at(call, workspace), sum);
}

static int64_t bias_workspace(const struct tensor *dy) {
    return cuda_sum_workspace(shape_rows(&dy->shape), shape_columns(&dy->shape));
}

static enum status linear_dw_run(const struct kernel *kernel, const struct kernel_call *call) {
    int64_t sums_at = ((const struct linear_kernel *)kernel)->sums_at;
    product_run(kernel, call, linear_dw_operands(kernel->node, call));
    if (call->out[1]) sum_bias(kernel->node->in[1], call, call->in[1], sums_at, call->out[1]);
    return cuda_outcome();
}

enum status cuda_linear_dw_create(const struct node *node, struct kernel **out) {
    int64_t sums = node->out[1] ? bias_workspace(node->in[1]) : 0;
    return linear_create(node, linear_dw_product(node), sums, linear_dw_run, out);
}

static enum status bias_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    sum_bias(kernel->node->in[0], call, call->in[0], 0, call->out[0]);
    return cuda_outcome();
}

enum status cuda_bias_grad_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, bias_grad_run, bias_workspace(node->in[0]), out);
}
