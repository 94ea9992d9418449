#include "ir/symbolic_profile.h"

#include "ir/differentiate.h"

static bool in_pass(const struct node *node) { return node->phase <= PHASE_BACKWARD; }

/* The forward node that a node's work is counted for. */
static const struct node *owner_of(const struct node *node) { return node->of ? node->of : node; }

static struct value_profile *value_at(const struct symbolic_profile *profile, struct tensor *tensor) {
    if (!tensor_is_activation(tensor)) return NULL;
    int32_t value = profile->value_of[tensor_storage(tensor)->id];
    return value < 0 ? NULL : &profile->values.items[value];
}

/* --- values --- */

static int output_of(const struct node *node, const struct tensor *tensor) {
    for (int i = 0; i < node->op->outputs; i++)
        if (node->out[i] && tensor_storage(node->out[i]) == tensor) return i;
    return 0;
}

static enum status add_value(struct symbolic_profile *profile, const struct node *node, const struct tensor *tensor) {
    bool gradient = node->phase == PHASE_BACKWARD;
    const struct tensor *value = gradient && tensor->value ? tensor->value : tensor;
    const struct node *owner = value->producer ? owner_of(value->producer) : owner_of(node);
    profile->value_of[tensor->id] = (int32_t)profile->values.count;
    return vec_push(&profile->values, (struct value_profile){.tensor = tensor,
                                                             .bytes = shape_bytes(&tensor->shape),
                                                             .first = node->id,
                                                             .last = node->id,
                                                             .owner = owner,
                                                             .output = output_of(owner, value),
                                                             .gradient = gradient});
}

static enum status make_outputs(struct symbolic_profile *profile, const struct node *node) {
    for (int i = 0; i < node->op->outputs; i++) {
        struct value_profile *value = value_at(profile, node->out[i]);
        if (value)
            value->last = node->id; /* other columns of it were made before */
        else if (tensor_is_activation(node->out[i]))
            TRY(add_value(profile, node, tensor_storage(node->out[i])));
    }
    return STATUS_OK;
}

static void read_inputs(const struct symbolic_profile *profile, const struct node *node) {
    for (int i = 0; i < node->op->inputs; i++) {
        struct value_profile *value = value_at(profile, node->in[i]);
        if (!value) continue;
        bool forward = node->phase == PHASE_FORWARD;
        value->last = node->id;
        value->saved |= !value->gradient && !forward;
        value->leaves_block |= !value->gradient && forward && node->block != value->tensor->block;
    }
}

/* A reader that nobody reads after takes the bytes over; what the caller keeps lives on. */
static void end_values(const struct symbolic_profile *profile) {
    const struct graph *graph = profile->graph;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        int input = in_pass(node) ? node_in_place_input(node) : -1;
        struct value_profile *value = input < 0 ? NULL : value_at(profile, node->in[input]);
        if (value && value->last == node->id) value->last--;
    }
    for (size_t i = 0; i < profile->values.count; i++)
        if (profile->values.items[i].tensor->kept) profile->values.items[i].last = (int32_t)graph->nodes.count - 1;
}

static enum status find_values(struct symbolic_profile *profile) {
    const struct graph *graph = profile->graph;
    for (size_t i = 0; i < graph->tensors.count; i++)
        profile->value_of[i] = -1;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        if (!in_pass(node)) continue;
        read_inputs(profile, node);
        TRY(make_outputs(profile, node));
    }
    end_values(profile);
    return STATUS_OK;
}

/* --- nodes --- */

static void find_costs(const struct symbolic_profile *profile) {
    for (size_t n = 0; n < profile->graph->nodes.count; n++) {
        const struct node *node = profile->graph->nodes.items[n];
        if (!in_pass(node)) continue;
        struct node_profile *out = &profile->nodes[owner_of(node)->id];
        struct op_cost cost, *sum = node->of ? &out->backward : &out->forward;
        op_cost(node, &cost);
        sum->flops += cost.flops, sum->bytes += cost.bytes;
    }
}

/* Views of a gradient have producers, and not the whole. */
static void find_saved(const struct symbolic_profile *profile) {
    for (size_t i = 0; i < profile->values.count; i++) {
        const struct value_profile *value = &profile->values.items[i];
        const struct node *maker = owner_of(profile->graph->nodes.items[value->first]);
        if (value->saved) profile->nodes[maker->id].saved_outputs |= 1u << value->output;
    }
}

/* The loss's node is none of the graph's, but backward nodes are its. */
static int count_forward(const struct graph *graph) {
    int count = 0, max = -1;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        count += node->phase == PHASE_FORWARD;
        if (node->of && node->of->id > max) max = node->of->id;
    }
    BUG_IF(max > count, "a loss that is not the last of a graph");
    return max + 1 > count ? max + 1 : count;
}

enum status symbolic_profile_create(const struct graph *graph, struct symbolic_profile *out) {
    *out = (struct symbolic_profile){.graph = graph, .forward_nodes = count_forward(graph)};
    out->nodes = mem_array((size_t)out->forward_nodes, sizeof *out->nodes);
    out->value_of = mem_array(graph->tensors.count, sizeof *out->value_of);
    if (!out->nodes || !out->value_of) return STATUS_FAILED;
    TRY(find_values(out));
    find_costs(out);
    find_saved(out);
    return STATUS_OK;
}

static struct tensor *loss_of(const struct graph *graph) {
    size_t count = graph->nodes.count;
    const struct node *last = count > 0 ? graph->nodes.items[count - 1] : NULL;
    return last && last->op->differentiate_loss ? last->out[0] : NULL;
}

enum status symbolic_profile_forward(const struct graph *forward, struct symbolic_profile *out) {
    *out = (struct symbolic_profile){0};
    struct graph *copy = graph_copy(forward);
    if (!copy) return STATUS_FAILED;
    struct tensor *loss = loss_of(copy);
    enum status status = loss ? graph_differentiate(copy, loss) : graph_differentiate_part(copy);
    if (status == STATUS_OK) status = symbolic_profile_create(copy, out);
    out->own = copy;
    return status;
}

void symbolic_profile_free(struct symbolic_profile *profile) {
    mem_free(profile->nodes);
    mem_free(profile->value_of);
    vec_free(&profile->values);
    graph_free(profile->own);
    *profile = (struct symbolic_profile){0};
}
