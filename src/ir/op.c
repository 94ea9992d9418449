/* An operator's properties for one node, with defaults for fields that its definition leaves out. */
#include "ir/op.h"

#include <stdarg.h>

#include "base/random.h"
#include "ir/graph.h"

uint32_t op_updates(const struct node *node) {
    return node->op->updates & ~(node->op->overwrites ? node->op->overwrites(node) : 0);
}

static double touched_bytes(const struct node *node, int operand, const struct tensor *tensor) {
    double touched = node->op->touched ? node->op->touched(node, operand) : 1;
    return touched * (double)shape_bytes(&tensor->shape);
}

void op_cost(const struct node *node, struct op_cost *out) {
    double bytes = 0;
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (node->in[i]) bytes += touched_bytes(node, i, node->in[i]);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) {
        if (!node->out[i]) continue;
        bool updated = op_updates(node) >> i & 1;
        bytes += touched_bytes(node, OP_INPUTS_MAX + i, node->out[i]) * (updated ? 2 : 1);
    }
    *out = (struct op_cost){.flops = node->op->flops ? node->op->flops(node) : 0, .bytes = bytes};
}

bool op_loops_of(const struct node *node, int way, struct op_loops *out) {
    *out = (struct op_loops){0};
    memset(out->of, OP_INDEX_NONE, sizeof out->of);
    return node->op->loops && node->op->loops(node, way, out);
}

int64_t index_part_used(const struct index_part *part) {
    int64_t size = index_part_size(part), left = part->size - index_part_first(part);
    return left < 0 ? 0 : left < size ? left : size;
}

struct op_index *op_loops_add(struct op_loops *loops, char letter, int64_t size) {
    BUG_IF(loops->count == OP_INDICES_MAX, "more than %d indices", OP_INDICES_MAX);
    loops->indices[loops->count] = (struct op_index){.letter = letter, .size = size};
    return &loops->indices[loops->count++];
}

int op_loops_find(const struct op_loops *loops, char letter) {
    for (int i = 0; i < loops->count; i++)
        if (loops->indices[i].letter == letter) return i;
    return OP_INDEX_NONE;
}

int op_loops_dimension(const struct op_loops *loops, int operand, int index) {
    for (int d = 0; d < TENSOR_RANK_MAX && index != OP_INDEX_NONE; d++)
        if (loops->of[operand][d] == index) return d;
    return -1;
}

void op_loops_operands(struct op_loops *loops, const char *letters) {
    int operand = 0, dimension = 0;
    for (; *letters; letters++) {
        if (*letters == '-') continue;
        if (*letters == ',' || *letters == '>') {
            operand = *letters == ',' ? operand + 1 : OP_INPUTS_MAX;
            dimension = 0;
            continue;
        }
        loops->of[operand][dimension++] = (int8_t)op_loops_find(loops, *letters);
    }
}

void op_key_add(struct op_key *key, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(key->text + key->used, OP_KEY_BYTES - key->used, format, arguments);
    va_end(arguments);
    BUG_IF(bytes < 0 || (size_t)bytes >= OP_KEY_BYTES - key->used, "an operator's key of more than %d bytes",
           OP_KEY_BYTES);
    key->used += (size_t)bytes;
}

void op_key_nothing(const struct node *node, struct op_key *key) { (void)node, (void)key; }

static void add_all_attributes(const struct node *node, struct op_key *key) {
    if (node->op->attribute_bytes > 0) op_key_add(key, " ");
    for (size_t i = 0; i < node->op->attribute_bytes; i++)
        op_key_add(key, "%02x", ((const unsigned char *)node->attributes)[i]);
}

void op_key_begin(const struct node *node, struct op_key *key) {
    op_key_add(key, "%s", node->op->name);
    if (node->op->cost_key)
        node->op->cost_key(node, key);
    else
        add_all_attributes(node, key);
}

static bool is_named(const struct tensor *tensor, const char *name) { return strcmp(tensor->name, name) == 0; }

static double default_integer(const struct tensor *tensor, int64_t index) {
    int64_t length = shape_columns(&tensor->shape), column = index % length;
    if (is_named(tensor, "segments")) return (double)(column * 3 / length);
    return is_named(tensor, "positions") ? (double)column : 0;
}

/* Each tensor has other values. If a row of x equalled a row of the weight, its logit would be so much larger than all
 * others that their probabilities were denormal, which makes the loss ten times as slow. */
double op_example_default(const struct node *node, const struct tensor *tensor, int64_t index) {
    (void)node;
    if (tensor->shape.dtype == DTYPE_I32) return default_integer(tensor, index);
    if (tensor->shape.dtype == DTYPE_U8) return (double)(index * 151 % 256);
    if (tensor->shape.dtype == DTYPE_U16) return (double)(index * 40503 % 65536);
    const struct node *producer = tensor->producer; /* the gradient of a first norm has no first output */
    bool statistics = producer && (!producer->out[0] || producer->out[0]->id != tensor->id);
    bool positive = tensor->kind == TENSOR_STATE || tensor->kind == TENSOR_RESULT || statistics;
    double uniform = random_uniform(1, RANDOM_INIT, (uint32_t)tensor->id, (uint64_t)index);
    return positive ? 0.5 + 0.5 * uniform : uniform - 0.5;
}

double op_example_id(const struct tensor *ids, int64_t index, int64_t limit) {
    if (is_named(ids, "positions")) return (double)(index % shape_columns(&ids->shape) % limit);
    return (double)(random_u64(1, RANDOM_INIT, 0, (uint64_t)index) % (uint64_t)limit);
}

double op_example(const struct node *node, const struct tensor *tensor, int64_t index) {
    return node->op->example ? node->op->example(node, tensor, index) : op_example_default(node, tensor, index);
}
