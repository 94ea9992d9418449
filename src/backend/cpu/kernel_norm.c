/* Gradients of the norms: rows in blocks, each with its own partial sums of the weights' gradients. */
#include <string.h>

#include "backend/cpu/cpu_kernel.h"

/* Where the operands of a kind of norm stand. */
struct norm_operands {
    int mean; /* input, or -1 */
    int rstd, addend;
    int dbias; /* output, or -1 */
    void (*row)(enum dtype dtype, int64_t n, const struct norm_grad_row *row);
};

struct norm_run {
    const struct node *node;
    const struct kernel_call *call;
    struct norm_operands operands;
    float *dweights, *dbiases; /* [blocks][columns], or NULL */
    int64_t columns;
};

static float *partial_row(float *partials, int64_t row, int64_t columns) {
    return partials ? partials + row / SUM_ROWS * columns : NULL;
}

static void norm_grad_rows(const void *context, int64_t begin, int64_t end) {
    const struct norm_run *run = context;
    const struct node *node = run->node;
    const struct kernel_call *call = run->call;
    const struct norm_operands *at = &run->operands;
    struct norm_grad_row row = {
        .weight = call->in[2],
        .dweight = partial_row(run->dweights, begin, run->columns),
        .dbias = partial_row(run->dbiases, begin, run->columns),
    };
    if (row.dweight) memset(row.dweight, 0, (size_t)run->columns * sizeof(float));
    if (row.dbias) memset(row.dbias, 0, (size_t)run->columns * sizeof(float));
    for (int64_t i = begin; i < end; i++) {
        row.dy = operand_row(node->in[0], call->in[0], i);
        row.x = operand_row(node->in[1], call->in[1], i);
        row.addend = operand_row(node->in[at->addend], call->in[at->addend], i);
        row.dx = operand_row(node->out[0], call->out[0], i);
        row.mean = at->mean >= 0 ? ((const float *)call->in[at->mean])[i] : 0;
        row.rstd = ((const float *)call->in[at->rstd])[i];
        at->row(node->in[1]->shape.dtype, run->columns, &row);
    }
}

static int64_t partial_elements(const struct node *node) {
    return sum_blocks(shape_rows(&node->in[1]->shape)) * shape_columns(&node->in[1]->shape);
}

static void norm_grad(const struct kernel *kernel, const struct kernel_call *call, struct norm_operands operands) {
    const struct node *node = kernel->node;
    struct norm_run run = {node, call, operands, NULL, NULL, shape_columns(&node->in[1]->shape)};
    int64_t rows = shape_rows(&node->in[1]->shape), blocks = sum_blocks(rows);
    float *dbias = operands.dbias >= 0 ? call->out[operands.dbias] : NULL;
    if (call->out[1]) run.dweights = call->workspace;
    if (dbias) run.dbiases = (float *)call->workspace + (call->out[1] ? partial_elements(node) : 0);
    parallel_for(rows, SUM_ROWS, norm_grad_rows, &run);
    if (call->out[1]) sum_combine(blocks, run.columns, run.dweights, call->out[1]);
    if (dbias) sum_combine(blocks, run.columns, run.dbiases, dbias);
}

static enum status norm_grad_create(const struct node *node,
                                    void (*run)(const struct kernel *kernel, const struct kernel_call *call),
                                    struct kernel **out) {
    struct kernel *kernel = cpu_kernel_new(node, sizeof *kernel, run);
    if (!kernel) return STATUS_FAILED;
    int wanted = (node->out[1] != NULL) + (node->out[2] != NULL);
    kernel->workspace_bytes = wanted * partial_elements(node) * (int64_t)sizeof(float);
    *out = kernel;
    return STATUS_OK;
}

static void rms_norm_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    norm_grad(
        kernel, call,
        (struct norm_operands){.mean = -1, .rstd = 3, .addend = 4, .dbias = -1, .row = cpu_simd()->rms_norm_grad});
}

enum status cpu_rms_norm_grad_create(const struct node *node, struct kernel **out) {
    return norm_grad_create(node, rms_norm_grad_run, out);
}

static void layer_norm_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    norm_grad(
        kernel, call,
        (struct norm_operands){.mean = 3, .rstd = 4, .addend = 5, .dbias = 2, .row = cpu_simd()->layer_norm_grad});
}

enum status cpu_layer_norm_grad_create(const struct node *node, struct kernel **out) {
    return norm_grad_create(node, layer_norm_grad_run, out);
}
