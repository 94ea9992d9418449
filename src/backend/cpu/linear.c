/* Linear layers and their gradients: one GEMM each. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/matmul/matmul.h"
#include "backend/kernel_parts.h"

struct linear_kernel {
    struct kernel kernel;
    struct matmul *matmul;
};

static void linear_release(struct kernel *kernel) {
    matmul_free(((struct linear_kernel *)kernel)->matmul);
    mem_free(kernel);
}

static enum status linear_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct matmul_operands operands = kernel->node->op == &op_linear ? linear_operands(call) : linear_dx_operands(call);
    matmul_run(((const struct linear_kernel *)kernel)->matmul, &operands, call->workspace);
    return STATUS_OK;
}

static enum status linear_create(const struct node *node, struct kernel **out) {
    struct linear_product product = node->op == &op_linear ? linear_product(node) : linear_dx_product(node);
    struct linear_kernel *kernel = kernel_new(node, sizeof *kernel, linear_run);
    if (!kernel) return STATUS_FAILED;
    kernel->kernel.release = linear_release;
    enum status status = matmul_create(&product.spec, &kernel->matmul);
    kernel->kernel.workspace_bytes = matmul_workspace_bytes(kernel->matmul);
    return kernel_finish(&kernel->kernel, status, out);
}

CPU_KERNEL_MAKER(linear, linear_create)
CPU_KERNEL_MAKER(linear_dx, linear_create)

static void sum_bias(const struct tensor *dy, const void *data, float *sum) {
    sum_columns(dy->shape.dtype, shape_rows(&dy->shape), shape_columns(&dy->shape), data, tensor_row_stride(dy), sum);
}

/* The sums of so many tokens are added to the gradient by themselves, so that the bits do not depend on how many calls
 * the tokens come in (ir/rewrite.h). */
struct dw_kernel {
    struct kernel kernel;
    struct matmul *whole, *last; /* for OP_ROWS_APART tokens, and for the remaining ones; NULL: there are none */
    int64_t a_bytes, b_bytes;    /* of OP_ROWS_APART tokens */
};

static void dw_release(struct kernel *kernel) {
    struct dw_kernel *dw = (struct dw_kernel *)kernel;
    matmul_free(dw->whole);
    matmul_free(dw->last);
    mem_free(kernel);
}

static enum status dw_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct dw_kernel *dw = (const struct dw_kernel *)kernel;
    struct matmul_operands operands = linear_dw_operands(kernel->node, call);
    int64_t tokens = shape_rows(&kernel->node->in[0]->shape);
    for (; tokens > 0; tokens -= OP_ROWS_APART) {
        matmul_run(tokens >= OP_ROWS_APART ? dw->whole : dw->last, &operands, call->workspace);
        operands.a = (const char *)operands.a + dw->a_bytes;
        operands.b = (const char *)operands.b + dw->b_bytes;
    }
    if (call->out[1]) sum_bias(kernel->node->in[1], call->in[1], call->out[1]);
    return STATUS_OK;
}

enum status cpu_linear_dw_create(const struct node *node, struct kernel **out) {
    struct linear_product product = linear_dw_product(node);
    struct dw_kernel *dw = kernel_new(node, sizeof *dw, dw_run);
    if (!dw) return STATUS_FAILED;
    dw->kernel.release = dw_release;
    int64_t element = dtype_bytes(product.spec.dtype), tokens = product.spec.k;
    dw->a_bytes = OP_ROWS_APART * product.spec.a_k * element;
    dw->b_bytes = OP_ROWS_APART * product.spec.b_k * element;
    enum status status = STATUS_OK;
    product.spec.k = OP_ROWS_APART;
    if (tokens >= OP_ROWS_APART) status = matmul_create(&product.spec, &dw->whole);
    product.spec.k = tokens % OP_ROWS_APART;
    if (product.spec.k > 0 && status == STATUS_OK) status = matmul_create(&product.spec, &dw->last);
    int64_t whole = matmul_workspace_bytes(dw->whole), last = matmul_workspace_bytes(dw->last);
    dw->kernel.workspace_bytes = whole > last ? whole : last;
    return kernel_finish(&dw->kernel, status, out);
}

static enum status bias_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    sum_bias(kernel->node->in[0], call->in[0], call->out[0]);
    return STATUS_OK;
}

CPU_KERNEL(bias_grad, bias_grad_run)
