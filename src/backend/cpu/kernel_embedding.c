/* The embedding: looks up the rows of tokens, and adds their gradients to those rows. */
#include <string.h>

#include "backend/cpu/cpu_kernel.h"

static void embedding_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    const int32_t *tokens = call->in[0];
    const struct embedding_attributes *attributes = NODE_ATTRIBUTES(node, embedding_attributes);
    int64_t rows = node->in[1]->shape.dims[0], vocab = embedding_tokens(attributes, rows);
    int64_t bytes = columns_of(node) * dtype_bytes(dtype_of(node));
    for (int64_t row = begin; row < end; row++) {
        int64_t from = attributes->first_row + tokens[row];
        BUG_IF(tokens[row] < 0 || tokens[row] >= vocab, "token %d of a vocabulary of %lld", tokens[row],
               (long long)vocab);
        if (from >= 0 && from < rows)
            memcpy(out_row(node, call, 0, row), in_row(node, call, 1, from), (size_t)bytes);
        else
            memset(out_row(node, call, 0, row), 0, (size_t)bytes);
    }
}

enum status cpu_embedding_create(const struct node *node, struct kernel **out) {
    return cpu_rows_create(node, embedding_rows, out);
}

struct embedding_run {
    const struct node *node;
    const struct kernel_call *call;
};

/* Each range of columns goes through all tokens in order: no two threads write one element, and each sum's order is
 * fixed. */
static void embedding_grad_columns(const void *context, int64_t begin, int64_t end) {
    const struct embedding_run *run = context;
    const struct tensor *dy = run->node->in[1], *table = run->node->out[0];
    const int32_t *tokens = run->call->in[0];
    int64_t rows = shape_rows(&dy->shape), offset = begin * dtype_bytes(dy->shape.dtype);
    int64_t first_row = NODE_ATTRIBUTES(run->node, embedding_grad_attributes)->first_row;
    for (int64_t row = 0; row < rows; row++) {
        const char *from = operand_row(dy, run->call->in[1], row);
        int64_t at = first_row + tokens[row];
        if (at < 0 || at >= table->shape.dims[0]) continue; /* another part has it */
        float *to = operand_row(table, run->call->out[0], at);
        cpu_simd()->accumulate(dy->shape.dtype, end - begin, from + offset, to + begin);
    }
}

static enum status embedding_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct embedding_run run = {kernel->node, call};
    int64_t columns = shape_columns(&kernel->node->out[0]->shape);
    parallel_for(columns, parallel_columns(columns), embedding_grad_columns, &run);
    return STATUS_OK;
}

enum status cpu_embedding_grad_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, embedding_grad_run, 0, out);
}
