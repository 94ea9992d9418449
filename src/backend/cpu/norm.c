/* Norms and their gradients. A gradient goes through rows in blocks, each with its own partial sums of the weights'
 * gradients, which go over the groups of a row in order. */

#include "backend/cpu/kernel.h"

/* The number of features that are normalised together: the weight's. */
static int64_t group_of(const struct tensor *weight) { return shape_columns(&weight->shape); }

static void norm_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    struct norm_attributes attributes = *NODE_ATTRIBUTES(node, norm_attributes);
    int64_t group = group_of(node->in[1]), groups = columns_of(node) / group;
    int64_t bytes = group * dtype_bytes(dtype_of(node));
    bool layer = node->op == &op_layer_norm;
    for (int64_t row = begin; row < end; row++) {
        const char *x = in_row(node, call, 0, row);
        char *y = out_row(node, call, 0, row);
        float *first = (float *)call->out[1] + row * groups;
        float *second = layer ? (float *)call->out[2] + row * groups : NULL;
        for (int64_t i = 0; i < groups; i++)
            if (layer)
                cpu_simd()->layer_norm(dtype_of(node), group, attributes.epsilon, x + i * bytes, call->in[1],
                                       call->in[2], y + i * bytes, first + i, second + i);
            else
                cpu_simd()->rms_norm(dtype_of(node), group, attributes, x + i * bytes, call->in[1], y + i * bytes,
                                     first + i);
    }
}

CPU_ROWS_KERNEL(rms_norm, norm_rows)
CPU_ROWS_KERNEL(layer_norm, norm_rows)

/* The indices of operands, which differ between the kinds of norm. */
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
    float *dweights, *dbiases; /* [blocks][group], or NULL */
    int64_t group;             /* features that are normalised together */
    int64_t groups;            /* of a row */
};

static float *partial_row(float *partials, int64_t row, int64_t group) {
    return partials ? partials + row / SUM_ROWS * group : NULL;
}

static char *group_data(void *row, int64_t offset) { return row ? (char *)row + offset : NULL; }

static void norm_grad_rows(const void *context, int64_t begin, int64_t end) {
    const struct norm_run *run = context;
    const struct node *node = run->node;
    const struct kernel_call *call = run->call;
    const struct norm_operands *at = &run->operands;
    enum dtype dtype = node->in[1]->shape.dtype;
    int64_t bytes = run->group * dtype_bytes(dtype);
    struct norm_grad_row row = {
        .weight = call->in[2],
        .one_plus = NODE_ATTRIBUTES(node, norm_grad_attributes)->one_plus,
        .dweight = partial_row(run->dweights, begin, run->group),
        .dbias = partial_row(run->dbiases, begin, run->group),
    };
    if (row.dweight) memset(row.dweight, 0, (size_t)run->group * sizeof(float));
    if (row.dbias) memset(row.dbias, 0, (size_t)run->group * sizeof(float));
    for (int64_t index = begin; index < end; index++) {
        void *dy = in_row(node, call, 0, index), *x = in_row(node, call, 1, index);
        void *addend = in_row(node, call, at->addend, index), *dx = out_row(node, call, 0, index);
        for (int64_t i = 0; i < run->groups; i++) {
            row.dy = group_data(dy, i * bytes);
            row.x = group_data(x, i * bytes);
            row.addend = group_data(addend, i * bytes);
            row.dx = group_data(dx, i * bytes);
            row.mean = at->mean >= 0 ? ((const float *)call->in[at->mean])[index * run->groups + i] : 0;
            row.rstd = ((const float *)call->in[at->rstd])[index * run->groups + i];
            at->row(dtype, run->group, &row);
        }
    }
}

static int64_t partial_elements(const struct node *node) {
    return sum_blocks(shape_rows(&node->in[1]->shape)) * group_of(node->in[2]);
}

static enum status norm_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    struct norm_run run = {.node = node, .call = call, .group = group_of(node->in[2])};
    if (node->op == &op_layer_norm_grad)
        run.operands = (struct norm_operands){3, 4, 5, 2, cpu_simd()->layer_norm_grad};
    else
        run.operands = (struct norm_operands){-1, 3, 4, -1, cpu_simd()->rms_norm_grad};
    run.groups = shape_columns(&node->in[1]->shape) / run.group;
    int64_t rows = shape_rows(&node->in[1]->shape), blocks = sum_blocks(rows);
    float *dbias = run.operands.dbias >= 0 ? call->out[run.operands.dbias] : NULL;
    if (call->out[1]) run.dweights = call->workspace;
    if (dbias) run.dbiases = (float *)call->workspace + (call->out[1] ? partial_elements(node) : 0);
    parallel_for(rows, SUM_ROWS, norm_grad_rows, &run);
    if (call->out[1]) sum_combine(blocks, run.group, run.dweights, call->out[1]);
    if (dbias) sum_combine(blocks, run.group, run.dbiases, dbias);
    return STATUS_OK;
}

static enum status norm_grad_create(const struct node *node, struct kernel **out) {
    int wanted = (node->out[1] != NULL) + (node->out[2] != NULL);
    return kernel_plain(node, norm_grad_run, wanted * partial_elements(node) * (int64_t)sizeof(float), out);
}

CPU_KERNEL_MAKER(rms_norm_grad, norm_grad_create)
CPU_KERNEL_MAKER(layer_norm_grad, norm_grad_create)
