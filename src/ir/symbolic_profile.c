#include "ir/symbolic_profile.h"

#include "ir/differentiate.h"

static bool in_pass(const struct node *node) { return node->phase <= PHASE_BACKWARD; }

static bool is_activation(const struct tensor *tensor) { return tensor && tensor->kind == TENSOR_ACTIVATION; }

/* The forward node that a node's work is counted for. */
static const struct node *owner_of(const struct node *node) { return node->of ? node->of : node; }

static struct value_profile *value_at(const struct symbolic_profile *profile, struct tensor *tensor) {
    if (!is_activation(tensor)) return NULL;
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
        struct tensor *out = node->out[i];
        if (!is_activation(out)) continue;
        struct value_profile *value = value_at(profile, out);
        if (value)
            value->last = node->id; /* other columns of it were made before */
        else
            TRY(add_value(profile, node, tensor_storage(out)));
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

static void sum_live(const struct symbolic_profile *profile) {
    size_t count = profile->graph->nodes.count;
    for (size_t i = 0; i < profile->values.count; i++) {
        const struct value_profile *value = &profile->values.items[i];
        if (value->last < value->first) continue;
        profile->live[value->first] += value->bytes;
        if ((size_t)value->last + 1 < count) profile->live[value->last + 1] -= value->bytes;
    }
    for (size_t n = 1; n < count; n++)
        profile->live[n] += profile->live[n - 1];
}

/* --- nodes --- */

static void add_cost(const struct node *node, struct node_profile *out) {
    struct op_cost cost, *sum = node->of ? &out->backward : &out->forward;
    op_cost(node, &cost);
    sum->flops += cost.flops, sum->bytes += cost.bytes;
}

/* Views of a gradient have producers, and not the whole. */
static const struct node *maker_of(const struct symbolic_profile *profile, const struct value_profile *value) {
    return owner_of(profile->graph->nodes.items[value->first]);
}

/* Each storage that a node reads counts once: by the first of its inputs. */
static bool is_repeated(const struct node *node, int input) {
    for (int i = 0; i < input; i++)
        if (node->in[i] && tensor_storage(node->in[i]) == tensor_storage(node->in[input])) return true;
    return false;
}

/* Of a value: the forward node whose backward counted it last, so that several nodes of one gradient count it once; and
 * whether work of a node other than its maker reads it. */
struct reading {
    const struct node *counted;
    bool elsewhere;
};

static void add_reads(const struct symbolic_profile *profile, const struct node *node, struct reading *readings) {
    const struct node *owner = owner_of(node);
    struct node_profile *out = &profile->nodes[owner->id];
    for (int i = 0; i < node->op->inputs; i++) {
        const struct value_profile *value = value_at(profile, node->in[i]);
        if (!value || is_repeated(node, i)) continue;
        struct reading *reading = &readings[value - profile->values.items];
        reading->elsewhere |= maker_of(profile, value) != owner;
        if (value->gradient || maker_of(profile, value) == owner) continue;
        if (!node->of) out->inputs += value->bytes;
        if (node->of && reading->counted != owner) out->saved_inputs += value->bytes, reading->counted = owner;
    }
}

static void add_values(const struct symbolic_profile *profile, const struct reading *readings) {
    for (size_t i = 0; i < profile->values.count; i++) {
        const struct value_profile *value = &profile->values.items[i];
        struct node_profile *out = &profile->nodes[maker_of(profile, value)->id];
        if (!value->gradient) out->made += value->bytes;
        if (value->saved) out->saved += value->bytes, out->saved_outputs |= 1u << value->output;
        if (value->gradient) *(readings[i].elsewhere ? &out->gradients : &out->temporary) += value->bytes;
    }
}

static enum status find_nodes(struct symbolic_profile *profile) {
    struct reading *readings = mem_array(profile->values.count, sizeof *readings);
    if (!readings) return STATUS_FAILED;
    for (size_t n = 0; n < profile->graph->nodes.count; n++) {
        const struct node *node = profile->graph->nodes.items[n];
        if (!in_pass(node)) continue;
        add_cost(node, &profile->nodes[owner_of(node)->id]);
        add_reads(profile, node, readings);
    }
    add_values(profile, readings);
    mem_free(readings);
    return STATUS_OK;
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
    size_t nodes = graph->nodes.count;
    *out = (struct symbolic_profile){.graph = graph, .forward_nodes = count_forward(graph)};
    out->nodes = mem_array((size_t)out->forward_nodes, sizeof *out->nodes);
    out->value_of = mem_array(graph->tensors.count, sizeof *out->value_of);
    out->live = mem_array(nodes, sizeof *out->live);
    if (!out->nodes || !out->value_of || !out->live) return STATUS_FAILED;
    TRY(find_values(out));
    sum_live(out);
    return find_nodes(out);
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
    mem_free(profile->live);
    vec_free(&profile->values);
    graph_free(profile->own);
    *profile = (struct symbolic_profile){0};
}
