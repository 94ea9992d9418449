/* Linear layers and their gradients: one matrix product each. */
#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/matmul.h"
#include "backend/linear_products.h"

struct linear_kernel {
    struct kernel kernel;
    struct matmul *matmul;
};

static void linear_release(struct kernel *kernel) {
    matmul_free(((struct linear_kernel *)kernel)->matmul);
    mem_free(kernel);
}

static enum status linear_create(const struct node *node, struct linear_product product, kernel_run *run,
                                 struct kernel **out) {
    struct linear_kernel *kernel = kernel_new(node, sizeof *kernel, run);
    if (!kernel) return STATUS_FAILED;
    kernel->kernel.release = linear_release;
    enum status status = matmul_create(&product.spec, &kernel->matmul);
    if (status != STATUS_OK) {
        linear_release(&kernel->kernel);
        return status;
    }
    kernel->kernel.workspace_bytes = matmul_workspace_bytes(kernel->matmul);
    *out = &kernel->kernel;
    return STATUS_OK;
}

static void product_run(const struct kernel *kernel, const struct kernel_call *call, struct matmul_operands operands) {
    matmul_run(((const struct linear_kernel *)kernel)->matmul, &operands, call->workspace);
}

static enum status linear_run(const struct kernel *kernel, const struct kernel_call *call) {
    product_run(kernel, call, linear_operands(call));
    return STATUS_OK;
}

enum status cpu_linear_create(const struct node *node, struct kernel **out) {
    return linear_create(node, linear_product(node), linear_run, out);
}

static enum status linear_dx_run(const struct kernel *kernel, const struct kernel_call *call) {
    product_run(kernel, call, linear_dx_operands(call));
    return STATUS_OK;
}

enum status cpu_linear_dx_create(const struct node *node, struct kernel **out) {
    return linear_create(node, linear_dx_product(node), linear_dx_run, out);
}

static void sum_bias(const struct tensor *dy, const void *data, float *sum) {
    sum_columns(dy->shape.dtype, shape_rows(&dy->shape), shape_columns(&dy->shape), data, tensor_row_stride(dy), sum);
}

static enum status linear_dw_run(const struct kernel *kernel, const struct kernel_call *call) {
    product_run(kernel, call, linear_dw_operands(kernel->node, call));
    if (call->out[1]) sum_bias(kernel->node->in[1], call->in[1], call->out[1]);
    return STATUS_OK;
}

enum status cpu_linear_dw_create(const struct node *node, struct kernel **out) {
    return linear_create(node, linear_dw_product(node), linear_dw_run, out);
}

static enum status bias_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    sum_bias(kernel->node->in[0], call->in[0], call->out[0]);
    return STATUS_OK;
}

enum status cpu_bias_grad_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, bias_grad_run, 0, out);
}
