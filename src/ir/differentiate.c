/* The reverse walk over a graph. */
#include "ir/differentiate.h"

/* The state of one tensor's gradient; entries are indexed by the tensor's id in the forward graph. */
struct entry {
    struct tensor *gradient; /* sum over the uses seen so far; for the base of views: whose columns they write */
    bool wanted;             /* some trainable parameter lies behind it, or it is one */
    int uses;                /* accumulators made for a parameter so far */
    struct tensor *latest;   /* the last of them */
};

struct gradients {
    struct graph *graph;
    struct entry *entries;
    size_t count;
};

struct graph *gradients_graph(struct gradients *gradients) {
    return gradients->graph;
}

static struct entry *entry_of(const struct gradients *gradients, const struct tensor *tensor) {
    BUG_IF((size_t)tensor->id >= gradients->count, "%s is no forward tensor", tensor->name);
    return &gradients->entries[tensor->id];
}

struct tensor *gradient_of(struct gradients *gradients, struct tensor *tensor) {
    return tensor ? entry_of(gradients, tensor)->gradient : NULL;
}

bool gradient_wanted(const struct gradients *gradients, const struct tensor *tensor) {
    return tensor && entry_of(gradients, tensor)->wanted;
}

struct tensor *gradient_partial(struct gradients *gradients, struct tensor *tensor) {
    return tensor->kind == TENSOR_PARAMETER ? NULL : entry_of(gradients, tensor)->gradient;
}

static struct tensor *accumulator(struct gradients *gradients, struct tensor *parameter) {
    struct entry *entry = entry_of(gradients, parameter);
    const char *name =
        graph_format(gradients->graph, entry->uses ? "grad.%s.%d" : "grad.%s", parameter->name, entry->uses);
    struct shape shape = parameter->shape;
    shape.dtype = DTYPE_F32;
    struct tensor *tensor = graph_tensor(gradients->graph, TENSOR_GRADIENT, name, shape);
    if (!tensor) return NULL;
    tensor->parameter = parameter;
    entry->uses++;
    entry->latest = tensor;
    return tensor;
}

struct tensor *gradient_joined_target(struct gradients *gradients, struct tensor *parameter) {
    struct tensor *latest = entry_of(gradients, parameter)->latest;
    return gradients->graph->one_micro_batch && latest ? latest : gradient_target(gradients, parameter);
}

struct tensor *gradient_target(struct gradients *gradients, struct tensor *tensor) {
    if (tensor->kind == TENSOR_PARAMETER) return accumulator(gradients, tensor);
    struct graph *graph = gradients->graph;
    if (!tensor->base) {
        struct tensor *gradient =
            graph_tensor(graph, TENSOR_ACTIVATION, graph_format(graph, "%s.d", tensor->name), tensor->shape);
        if (gradient) gradient->value = tensor;
        return gradient;
    }
    BUG_IF(entry_of(gradients, tensor)->gradient, "%s: columns that are used twice", tensor->name);
    /* The same columns of its base's gradient: nodes that write it fill the base's. */
    struct entry *base = entry_of(gradients, tensor->base);
    if (!base->gradient) base->gradient = gradient_target(gradients, tensor->base);
    return graph_view(graph, base->gradient, tensor->base_column, shape_columns(&tensor->shape));
}

static bool reads(const struct node *node, const struct tensor *tensor) {
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (node->in[i] == tensor) return true;
    return false;
}

void gradient_deliver(struct gradients *gradients, struct tensor *tensor, struct tensor *gradient) {
    if (tensor->kind == TENSOR_PARAMETER) return;
    struct entry *entry = entry_of(gradients, tensor);
    bool made = gradient && gradient->producer && gradients->graph->status == STATUS_OK;
    BUG_IF(made && entry->gradient && !reads(gradient->producer, entry->gradient),
           "%s (%s) leaves out what later uses of %s give to its gradient", gradient->producer->name,
           gradient->producer->op->name, tensor->name);
    entry->gradient = gradient;
}

/* A rule may read only the operands of its node that the operator declares as saved. */
static bool may_read(const struct node *node, const struct tensor *tensor) {
    bool operand = false;
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        if (node->in[i] != tensor) continue;
        operand = true;
        if (node->op->saved_inputs >> i & 1) return true;
    }
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) {
        if (node->out[i] != tensor) continue;
        operand = true;
        if (node->op->saved_outputs >> i & 1) return true;
    }
    return !operand;
}

struct node *gradient_add_node(struct gradients *gradients, const struct op *op, const struct node *of,
                               struct tensor *const *in, const void *attributes, struct tensor *const *into) {
    struct graph *graph = gradients->graph;
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        BUG_IF(in[i] && !may_read(of, in[i]), "the gradient of %s reads %s, which it does not declare as saved",
               of->op->name, in[i]->name);
    struct node *node = graph_add(graph, op, graph_format(graph, "%s.%s", of->name, op->name), in, attributes, into);
    if (!node) return NULL;
    node->block = of->block, node->of = of;
    for (int i = 0; i < op->outputs; i++)
        if (node->out[i] && node->out[i]->kind == TENSOR_GRADIENT) node->out[i]->block = of->block;
    return node;
}

void gradient_contribute(struct gradients *gradients, struct tensor *tensor, struct tensor *gradient) {
    struct entry *entry = entry_of(gradients, tensor);
    if (!entry->wanted) return;
    BUG_IF(entry->gradient, "%s: a shared contribution that is not the first", tensor->name);
    entry->gradient = gradient;
}

static bool is_float_activation(const struct tensor *tensor) {
    return tensor->kind == TENSOR_ACTIVATION && tensor->shape.dtype != DTYPE_I32;
}

/* A tensor's gradient is wanted when the tensor depends on a trainable parameter or, `part`, comes from elsewhere. */
static void mark_wanted(struct gradients *gradients, bool part) {
    const struct graph *graph = gradients->graph;
    for (size_t i = 0; i < gradients->count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        gradients->entries[i].wanted = (tensor->kind == TENSOR_PARAMETER && tensor->trainable) ||
                                       (part && !tensor->producer && is_float_activation(tensor));
    }
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        bool wanted = false;
        for (int i = 0; i < OP_INPUTS_MAX && node->op->differentiate; i++) {
            const struct tensor *in = node->in[i];
            if (in)
                wanted |= gradients->entries[in->id].wanted || (in->base && gradients->entries[in->base->id].wanted);
        }
        for (int i = 0; i < OP_OUTPUTS_MAX; i++)
            if (node->out[i]) gradients->entries[node->out[i]->id].wanted |= wanted;
    }
    for (size_t i = 0; i < gradients->count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->base) gradients->entries[i].wanted |= gradients->entries[tensor->base->id].wanted;
    }
}

static void remove_node(struct graph *graph, const struct node *node) {
    size_t at = (size_t)node->id;
    graph->nodes.count--;
    memmove(graph->nodes.items + at, graph->nodes.items + at + 1,
            (graph->nodes.count - at) * sizeof *graph->nodes.items);
    for (size_t i = at; i < graph->nodes.count; i++)
        graph->nodes.items[i]->id = (int)i;
}

static bool has_gradient(struct gradients *gradients, const struct node *node) {
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        if (node->out[i] && gradient_of(gradients, node->out[i])) return true;
    return false;
}

static enum status gradients_create(struct graph *graph, bool part, struct gradients *out) {
    TRY(graph_status(graph));
    *out = (struct gradients){.graph = graph, .count = graph->tensors.count};
    out->entries = mem_array(out->count, sizeof *out->entries);
    if (!out->entries) return STATUS_FAILED;
    mark_wanted(out, part);
    graph->phase = PHASE_BACKWARD;
    return STATUS_OK;
}

/* Over the first `nodes` nodes, but for the one that is the loss. */
static void walk_back(struct gradients *gradients, size_t nodes, const struct node *loss) {
    struct graph *graph = gradients->graph;
    for (size_t n = nodes; n-- > 0 && graph->status == STATUS_OK;) {
        const struct node *node = graph->nodes.items[n];
        if (node == loss || !node->op->differentiate || !has_gradient(gradients, node)) continue;
        node->op->differentiate(gradients, node);
    }
}

enum status graph_differentiate(struct graph *graph, struct tensor *loss) {
    struct gradients gradients;
    struct node *last = loss->producer;
    BUG_IF(!last || last->out[0] != loss || !last->op->differentiate_loss, "%s is not a loss", loss->name);
    TRY(gradients_create(graph, false, &gradients));
    size_t nodes = graph->nodes.count;
    last->op->differentiate_loss(&gradients, last);
    walk_back(&gradients, nodes, last);
    remove_node(graph, last);
    mem_free(gradients.entries);
    return graph_status(graph);
}

/* Output 0 of a node that nothing reads: it is for other parts. */
static void give_gradients(struct gradients *gradients, bool *read) {
    struct graph *graph = gradients->graph;
    size_t nodes = graph->nodes.count;
    for (size_t n = 0; n < nodes; n++)
        for (int i = 0; i < OP_INPUTS_MAX; i++)
            if (graph->nodes.items[n]->in[i]) read[tensor_storage(graph->nodes.items[n]->in[i])->id] = true;
    for (size_t n = 0; n < nodes; n++) {
        struct tensor *made = graph->nodes.items[n]->out[0];
        if (!made || !is_float_activation(made) || made->base || read[made->id] || !gradient_wanted(gradients, made))
            continue;
        gradient_contribute(gradients, made, gradient_target(gradients, made));
    }
}

enum status graph_differentiate_part(struct graph *graph) {
    struct gradients gradients;
    TRY(gradients_create(graph, true, &gradients));
    bool *read = mem_array(gradients.count, sizeof *read);
    if (read) {
        give_gradients(&gradients, read);
        walk_back(&gradients, graph->nodes.count, NULL);
    }
    mem_free(gradients.entries);
    mem_free(read);
    return read ? graph_status(graph) : STATUS_FAILED;
}
