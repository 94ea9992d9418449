/* The embedding of tokens: looks up their rows, and adds gradients to those rows; and the rotary embedding of
 * positions: the table of angles, and the rotation by it. */
#include <math.h>

#include "backend/cpu/kernel.h"

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

CPU_ROWS_KERNEL(embedding, embedding_rows)

/* Each range of columns goes through all tokens in order: no two threads write one element, and each sum's order is
 * fixed. */
static void embedding_grad_columns(const void *context, int64_t begin, int64_t end) {
    const struct node_call *run = context;
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

/* Joined: tokens of the same row are a chain, which begins with the first of them. */
struct row_chains {
    int32_t *latest; /* by row of the table, while chains are made: its first token so far; -1: none */
    int32_t *next;   /* by token: the next one of its row; -1: none */
    float *sum;      /* of a row, each range of columns by itself */
};

static int64_t chains_bytes(const struct node *node) {
    const struct shape *table = &node->out[0]->shape;
    int64_t numbers = table->dims[0] + shape_rows(&node->in[1]->shape);
    return workspace_align(numbers * (int64_t)sizeof(int32_t)) + shape_columns(table) * (int64_t)sizeof(float);
}

static struct row_chains chains_at(const struct node_call *run) {
    const struct shape *table = &run->node->out[0]->shape;
    int64_t numbers = table->dims[0] + shape_rows(&run->node->in[1]->shape);
    int32_t *latest = workspace_at(run->call, 0);
    return (struct row_chains){latest, latest + table->dims[0],
                               workspace_at(run->call, workspace_align(numbers * (int64_t)sizeof(int32_t)))};
}

/* The table's row of a token; -1: another part has it. */
static int64_t row_of_token(const struct node_call *run, int64_t token) {
    int64_t first_row = NODE_ATTRIBUTES(run->node, embedding_grad_attributes)->first_row;
    int64_t at = first_row + ((const int32_t *)run->call->in[0])[token];
    return at >= 0 && at < run->node->out[0]->shape.dims[0] ? at : -1;
}

/* Behind it latest[row] is the first token of each row. */
static void make_chains(const struct node_call *run, const struct row_chains *chains) {
    for (int64_t row = 0; row < run->node->out[0]->shape.dims[0]; row++)
        chains->latest[row] = -1;
    for (int64_t token = shape_rows(&run->node->in[1]->shape); token-- > 0;) {
        int64_t row = row_of_token(run, token);
        chains->next[token] = row >= 0 ? chains->latest[row] : -1;
        if (row >= 0) chains->latest[row] = (int32_t)token;
    }
}

/* Sums begin at zero and are added to the table when they are complete: as an accumulator of their own would be. */
static void embedding_joined_columns(const void *context, int64_t begin, int64_t end) {
    const struct node_call *run = context;
    const struct tensor *dy = run->node->in[1], *table = run->node->out[0];
    const struct row_chains chains = chains_at(run);
    int64_t offset = begin * dtype_bytes(dy->shape.dtype), columns = end - begin;
    for (int64_t row = 0; row < table->shape.dims[0]; row++) {
        if (chains.latest[row] < 0) continue;
        memset(chains.sum + begin, 0, (size_t)columns * sizeof *chains.sum);
        for (int64_t token = chains.latest[row]; token >= 0; token = chains.next[token]) {
            const char *from = operand_row(dy, run->call->in[1], token);
            cpu_simd()->accumulate(dy->shape.dtype, columns, from + offset, chains.sum + begin);
        }
        float *to = operand_row(table, run->call->out[0], row);
        cpu_simd()->accumulate(DTYPE_F32, columns, chains.sum + begin, to + begin);
    }
}

static enum status embedding_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct node_call run = {kernel->node, call};
    int64_t columns = shape_columns(&kernel->node->out[0]->shape);
    bool joined = NODE_ATTRIBUTES(kernel->node, embedding_grad_attributes)->joined;
    if (joined) {
        const struct row_chains chains = chains_at(&run);
        make_chains(&run, &chains);
    }
    parallel_for(columns, parallel_columns(columns), joined ? embedding_joined_columns : embedding_grad_columns, &run);
    return STATUS_OK;
}

enum status cpu_embedding_grad_create(const struct node *node, struct kernel **out) {
    bool joined = NODE_ATTRIBUTES(node, embedding_grad_attributes)->joined;
    return kernel_plain(node, embedding_grad_run, joined ? chains_bytes(node) : 0, out);
}

/* ---- rotary positions ---- */

struct rope_table_kernel {
    struct kernel kernel;
    int64_t half;
    float factor;        /* of cosines and sines */
    float frequencies[]; /* half */
};

struct rope_table_run {
    const struct rope_table_kernel *kernel;
    const struct kernel_call *call;
};

/* Angles are products in fp32, as transformers computes them; their cosines and sines are rounded from double. */
static void rope_table_rows(const void *context, int64_t begin, int64_t end) {
    const struct rope_table_run *run = context;
    const int32_t *positions = run->call->in[0];
    int64_t half = run->kernel->half;
    float factor = run->kernel->factor;
    for (int64_t row = begin; row < end; row++) {
        float *table = (float *)run->call->out[0] + row * 2 * half;
        for (int64_t i = 0; i < half; i++) {
            float angle = (float)positions[row] * run->kernel->frequencies[i];
            table[i] = (float)cos((double)angle) * factor;
            table[half + i] = (float)sin((double)angle) * factor;
        }
    }
}

static enum status rope_table_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct rope_table_run run = {(const struct rope_table_kernel *)kernel, call};
    int64_t rows = shape_rows(&kernel->node->out[0]->shape);
    parallel_for(rows, parallel_rows(64 * run.kernel->half), rope_table_rows, &run);
    return STATUS_OK;
}

enum status cpu_rope_table_create(const struct node *node, struct kernel **out) {
    const struct rope_table_attributes *attributes = NODE_ATTRIBUTES(node, rope_table_attributes);
    int64_t half = attributes->head_dim / 2;
    size_t bytes;
    if (!mem_multiply((size_t)half, sizeof(float), &bytes) || !mem_add(bytes, sizeof(struct rope_table_kernel), &bytes))
        return status_no_memory((unsigned long long)half, "a table of rotary angles");
    struct rope_table_kernel *kernel = kernel_new(node, bytes, rope_table_run);
    if (!kernel) return STATUS_FAILED;
    kernel->half = half;
    kernel->factor = (float)rope_attention_factor(attributes);
    rope_inverse_frequencies(attributes, kernel->frequencies);
    *out = &kernel->kernel;
    return STATUS_OK;
}

/* If only a part of each head is rotated, the rest is copied. */
static void rope_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    const struct rope_attributes *attributes = NODE_ATTRIBUTES(node, rope_attributes);
    int64_t bytes = dtype_bytes(dtype_of(node)), rotated = shape_columns(&node->in[1]->shape);
    size_t rest = (size_t)((attributes->head_dim - rotated) * bytes);
    for (int64_t row = begin; row < end; row++) {
        const float *table = in_row(node, call, 1, row);
        const char *x = in_row(node, call, 0, row);
        char *y = out_row(node, call, 0, row);
        for (int64_t head = 0; head < attributes->heads; head++) {
            int64_t at = head * attributes->head_dim * bytes, after = at + rotated * bytes;
            cpu_simd()->rope(dtype_of(node), rotated / 2, (float)attributes->sign, x + at, table, y + at);
            if (rest > 0 && x != y) memcpy(y + after, x + after, rest);
        }
    }
}

CPU_ROWS_KERNEL(rope, rope_rows)
