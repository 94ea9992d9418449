/* Key-value heads that some of the query heads read: what a rank has of attention where there are fewer key-value heads
 * than ranks. */
#include <inttypes.h>

#include "ir/ops/check.h"

static const struct select_heads_attributes *selection_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, select_heads_attributes);
}

static int64_t greatest_divisor(int64_t a, int64_t b) {
    while (b > 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

struct select_heads_attributes select_heads_of_queries(int64_t heads, int64_t head_dim, int64_t queries,
                                                       const struct group_part *part) {
    int64_t group = queries / heads, own = queries / part->parts, each = greatest_divisor(group, own);
    return (struct select_heads_attributes){
        .heads = heads,
        .head_dim = head_dim,
        .selected = own / each,
        .first = own * part->position,
        .step = each,
        .group = group,
    };
}

int64_t select_heads_find(const struct select_heads_attributes *attributes, int64_t selected) {
    return (attributes->first + selected * attributes->step) / attributes->group;
}

static enum status check_selection(const struct node *node, int64_t columns) {
    const struct select_heads_attributes *attributes = selection_of(node);
    TRY(check_activation(node, 0));
    if (attributes->selected < 1 || attributes->group < 1 ||
        select_heads_find(attributes, attributes->selected - 1) >= attributes->heads)
        return status_set(STATUS_BAD_INPUT, "%lld heads selected of %lld are not all there",
                          (long long)attributes->selected, (long long)attributes->heads);
    struct shape expected = with_columns(node->in[0]->shape, columns);
    return check_shape(node, 0, &expected);
}

static enum status infer_select_heads(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct select_heads_attributes *attributes = selection_of(node);
    TRY(check_selection(node, attributes->heads * attributes->head_dim));
    out[0] = with_columns(node->in[0]->shape, attributes->selected * attributes->head_dim);
    return STATUS_OK;
}

static enum status infer_select_heads_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct select_heads_attributes *attributes = selection_of(node);
    TRY(check_selection(node, attributes->selected * attributes->head_dim));
    out[0] = with_columns(node->in[0]->shape, attributes->heads * attributes->head_dim);
    return STATUS_OK;
}

static void differentiate_select_heads(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0];
    if (!gradient_wanted(gradients, x)) return;
    struct tensor *in[OP_INPUTS_MAX] = {gradient_of(gradients, node->out[0])};
    struct tensor *into[OP_OUTPUTS_MAX] = {gradient_target(gradients, x)};
    gradient_add_node(gradients, &op_select_heads_grad, node, in, node->attributes, into);
    gradient_deliver_sum(gradients, node, x, into[0]);
}

static void key_selection(const struct node *node, struct op_key *key) {
    const struct select_heads_attributes *attributes = selection_of(node);
    op_key_add(key, " heads=%" PRId64 "/%" PRId64 "x%" PRId64, attributes->selected, attributes->heads,
               attributes->head_dim);
}

static double touched_select_heads(const struct node *node, int operand) {
    const struct select_heads_attributes *attributes = selection_of(node);
    if (operand != 0) return 1;
    int64_t different = 1;
    for (int64_t i = 1; i < attributes->selected; i++)
        different += select_heads_find(attributes, i) != select_heads_find(attributes, i - 1);
    return (double)different / (double)attributes->heads;
}

const struct op op_select_heads = {
    .name = "select_heads",
    .touched = touched_select_heads,
    .attribute_bytes = sizeof(struct select_heads_attributes),
    .min_inputs = 1,
    .inputs = 1,
    .outputs = 1,
    .infer = infer_select_heads,
    .cost_key = key_selection,
    .differentiate = differentiate_select_heads,
};

const struct op op_select_heads_grad = {
    .name = "select_heads_grad",
    .attribute_bytes = sizeof(struct select_heads_attributes),
    .min_inputs = 1,
    .inputs = 1,
    .outputs = 1,
    .infer = infer_select_heads_grad,
    .cost_key = key_selection,
};

struct tensor *ops_select_heads(struct graph *graph, const char *name, struct tensor *x,
                                struct select_heads_attributes attributes) {
    if (!x) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {x};
    struct node *node = graph_add(graph, &op_select_heads, name, in, &attributes, NULL);
    return node ? node->out[0] : NULL;
}
