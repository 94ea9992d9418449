#include "profile/operator_values.h"

#include <string.h>

#include "base/half.h"
#include "base/random.h"

/* A prime number of values, so that rows of a matrix differ. */
enum { PATTERN = 8191 };

/* Within ±0.5, or positive around 0.75. Tensors differ: logits of rows that equal a row of the weight would be so much
 * larger than all others that these have denormal probabilities, which makes the loss ten times as slow. */
static double value_at(const struct tensor *tensor, int64_t index, bool positive) {
    double uniform = random_uniform(1, RANDOM_INIT, (uint32_t)tensor->id, (uint64_t)index);
    return positive ? 0.5 + 0.5 * uniform : uniform - 0.5;
}

static void write_value(void *to, enum dtype dtype, int64_t index, double value) {
    switch (dtype) {
    case DTYPE_F64: ((double *)to)[index] = value; return;
    case DTYPE_F32: ((float *)to)[index] = (float)value; return;
    case DTYPE_BF16: ((uint16_t *)to)[index] = bf16_from_float((float)value); return;
    default: BUG("no values of %s", dtype_name(dtype));
    }
}

/* The first values one by one, the rest as copies of them. */
static void fill_numbers(const struct tensor *tensor, bool positive, void *to) {
    int64_t count = shape_elements(&tensor->shape), first = count < PATTERN ? count : PATTERN;
    int64_t bytes = dtype_bytes(tensor->shape.dtype);
    for (int64_t i = 0; i < first; i++)
        write_value(to, tensor->shape.dtype, i, value_at(tensor, i, positive));
    for (int64_t i = first; i < count; i += first) {
        int64_t here = count - i < first ? count - i : first;
        memcpy((char *)to + i * bytes, to, (size_t)(here * bytes));
    }
}

/* Ids of tokens are below it: the rows of the table that the node looks up, less those that stand for no token. */
static int64_t limit_ids(const struct node *node) {
    if (node->op == &op_embedding)
        return node->in[1]->shape.dims[0] - NODE_ATTRIBUTES(node, embedding_attributes)->first_row;
    if (node->op == &op_embedding_grad) {
        const struct embedding_grad_attributes *attributes = NODE_ATTRIBUTES(node, embedding_grad_attributes);
        return attributes->rows - attributes->first_row;
    }
    if (node->op == &op_head_loss || node->op == &op_head_loss_grad) return node->in[1]->shape.dims[0];
    return 0;
}

/* Tokens of a sequence follow what fills half of its text's cache. */
static int64_t cache_row(const struct node *node, int64_t sequence, int64_t token, int64_t length) {
    const struct attention_cache_attributes *cache = NODE_ATTRIBUTES(node, attention_cache_attributes);
    return sequence % cache->texts * cache->positions + (cache->positions - length) / 2 + token;
}

/* Three segments a sequence; positions count; ids are spread over the table. */
static void fill_ids(const struct node *node, const struct tensor *tensor, int32_t *to) {
    int64_t length = shape_columns(&tensor->shape), count = shape_elements(&tensor->shape), limit = limit_ids(node);
    bool segments = strcmp(tensor->name, "segments") == 0, positions = strcmp(tensor->name, "positions") == 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t column = i % length;
        if (node->op == &op_attention_cache)
            to[i] = (int32_t)cache_row(node, i / length, column, length);
        else if (segments)
            to[i] = (int32_t)(column * 3 / length);
        else if (positions)
            to[i] = (int32_t)(limit > 0 ? column % limit : column);
        else
            to[i] = limit > 0 ? (int32_t)(random_u64(1, RANDOM_INIT, 0, (uint64_t)i) % (uint64_t)limit) : 0;
    }
}

void operator_values_fill(const struct node *node, const struct tensor *tensor, void *to) {
    if (tensor->shape.dtype == DTYPE_I32) {
        fill_ids(node, tensor, to);
        return;
    }
    bool statistics = tensor->producer && tensor->producer->out[0]->id != tensor->id;
    fill_numbers(tensor, tensor->kind == TENSOR_STATE || tensor->kind == TENSOR_RESULT || statistics, to);
}

void operator_values_scalars(const struct node *node, double scalars[SCALAR_COUNT]) {
    int64_t tokens = node->in[0] && node->in[0]->shape.rank == 3 ? node->in[0]->shape.dims[1] : 1;
    memset(scalars, 0, SCALAR_COUNT * sizeof *scalars);
    scalars[SCALAR_LOSS_SCALE] = 1.0 / 4096;
    scalars[SCALAR_LEARNING_RATE] = 1e-4;
    scalars[SCALAR_BIAS_CORRECTION] = 5;
    scalars[SCALAR_BIAS_CORRECTION_SQ] = 10;
    scalars[SCALAR_NEW_TOKENS] = (double)tokens;
}
