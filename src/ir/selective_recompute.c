#include "ir/selective_recompute.h"

/* How backward reads a tensor that owns its bytes. Nodes are indices. */
struct reading {
    int32_t first, last; /* of the nodes that read it; -1: none does */
    int32_t last_block;  /* of the last one */
    bool forward;        /* forward reads it too */
    bool apart;          /* nodes of several blocks read it in backward */
};

/* A forward node whose output is recomputed, before the node `before`. */
struct again {
    const struct node *node;
    int32_t before;
};

struct selective_recompute {
    struct graph *graph;
    size_t tensors;           /* that there are before */
    struct reading *readings; /* by tensor id */
    struct tensor **instead;  /* by tensor id: what backward reads in its place; NULL: itself */
    VEC(struct again) list;
    VEC(struct node *) woven; /* the new list of nodes */
};

static bool is_activation(const struct tensor *tensor) { return tensor && tensor->kind == TENSOR_ACTIVATION; }

static void note_reader(struct reading *reading, const struct node *node) {
    if (node->phase == PHASE_FORWARD) reading->forward = true;
    if (node->phase != PHASE_BACKWARD) return;
    reading->apart |= reading->first >= 0 && reading->last_block != node->block;
    if (reading->first < 0) reading->first = node->id;
    reading->last = node->id;
    reading->last_block = node->block;
}

static void find_readings(const struct selective_recompute *selective_recompute) {
    const struct graph *graph = selective_recompute->graph;
    for (size_t i = 0; i < selective_recompute->tensors; i++)
        selective_recompute->readings[i] = (struct reading){.first = -1, .last = -1, .last_block = -1};
    for (size_t n = 0; n < graph->nodes.count; n++)
        for (int i = 0; i < OP_INPUTS_MAX; i++) {
            struct tensor *in = graph->nodes.items[n]->in[i];
            if (is_activation(in))
                note_reader(&selective_recompute->readings[tensor_storage(in)->id], graph->nodes.items[n]);
        }
}

static const struct reading *reading_of(const struct selective_recompute *selective_recompute, struct tensor *tensor) {
    return &selective_recompute->readings[tensor_storage(tensor)->id];
}

/* Whether backward has the node's inputs there anyway. One that is recomputed itself may not be there yet. */
static bool inputs_last(const struct selective_recompute *selective_recompute, const struct node *node,
                        int32_t before) {
    bool last = true;
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        if (!is_activation(node->in[i])) continue;
        const struct reading *reading = reading_of(selective_recompute, node->in[i]);
        last &= reading->last >= before && reading->last_block == node->block;
        last &= !selective_recompute->instead[tensor_storage(node->in[i])->id];
    }
    return last;
}

static bool may_make_again(const struct selective_recompute *selective_recompute, const struct node *node) {
    struct tensor *made = node->out[0];
    if (node->phase != PHASE_FORWARD || !node->op->light || made->base || made->kept) return false;
    const struct reading *reading = &selective_recompute->readings[made->id];
    bool read = reading->forward && reading->first >= 0 && !reading->apart && reading->last_block == node->block;
    return read && inputs_last(selective_recompute, node, reading->first);
}

static enum status find_again(struct selective_recompute *selective_recompute) {
    const struct graph *graph = selective_recompute->graph;
    find_readings(selective_recompute);
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        if (!may_make_again(selective_recompute, node)) continue;
        const struct again again = {node, selective_recompute->readings[node->out[0]->id].first};
        selective_recompute->instead[node->out[0]->id] = node->out[0]; /* until there is another */
        TRY(vec_push(&selective_recompute->list, again));
    }
    return STATUS_OK;
}

/* ---- the second nodes ---- */

static enum status add_again(struct selective_recompute *selective_recompute, const struct node *node) {
    struct graph *graph = selective_recompute->graph;
    struct node *made = scratch_alloc(&graph->memory, 1, sizeof *made);
    if (!made) return STATUS_FAILED;
    *made = *node;
    made->phase = PHASE_BACKWARD;
    made->of = node;
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) {
        if (!node->out[i]) continue;
        const char *name = graph_format(graph, "%s.again", node->out[i]->name);
        made->out[i] = graph_tensor(graph, TENSOR_ACTIVATION, name, node->out[i]->shape);
        TRY(graph_status(graph));
        made->out[i]->block = node->block;
        made->out[i]->producer = made;
    }
    selective_recompute->instead[node->out[0]->id] = made->out[0];
    return vec_push(&selective_recompute->woven, made);
}

/* The same rows and columns of what is recomputed. */
static struct tensor *view_again(const struct selective_recompute *selective_recompute, const struct tensor *view) {
    struct tensor *base = selective_recompute->instead[view->base->id];
    struct tensor *again = graph_tensor(selective_recompute->graph, view->kind, view->name, view->shape);
    if (!again) return NULL;
    again->base = base;
    again->base_column = view->base_column;
    again->base_row = view->base_row;
    again->producer = base->producer;
    again->block = base->block;
    return again;
}

static enum status read_again(const struct selective_recompute *selective_recompute, struct node *node) {
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        struct tensor *in = node->in[i];
        if (!is_activation(in) || (size_t)in->id >= selective_recompute->tensors) continue;
        if (in->base && selective_recompute->instead[in->base->id] && !selective_recompute->instead[in->id])
            selective_recompute->instead[in->id] = view_again(selective_recompute, in);
        if (selective_recompute->instead[in->id]) node->in[i] = selective_recompute->instead[in->id];
    }
    return graph_status(selective_recompute->graph);
}

static int by_place(const void *a, const void *b) {
    const struct again *x = a, *y = b;
    return x->before != y->before ? (x->before < y->before ? -1 : 1) : (x->node->id < y->node->id ? -1 : 1);
}

static enum status weave(struct selective_recompute *selective_recompute) {
    const struct graph *graph = selective_recompute->graph;
    size_t next = 0;
    qsort(selective_recompute->list.items, selective_recompute->list.count, sizeof *selective_recompute->list.items,
          by_place);
    for (int32_t n = 0; n < (int32_t)graph->nodes.count; n++) {
        struct node *node = graph->nodes.items[n];
        for (; next < selective_recompute->list.count && selective_recompute->list.items[next].before == n; next++)
            TRY(add_again(selective_recompute, selective_recompute->list.items[next].node));
        if (node->phase == PHASE_BACKWARD) TRY(read_again(selective_recompute, node));
        TRY(vec_push(&selective_recompute->woven, node));
    }
    return STATUS_OK;
}

/* ---- the graph ---- */

static void replace_nodes(struct selective_recompute *selective_recompute) {
    struct graph *graph = selective_recompute->graph;
    graph->nodes.count = 0;
    for (size_t n = 0; n < selective_recompute->woven.count; n++) {
        selective_recompute->woven.items[n]->id = (int)n;
        graph->nodes.items[graph->nodes.count++] = selective_recompute->woven.items[n];
    }
}

static enum status selective_recompute_create(struct graph *graph, struct selective_recompute *out) {
    size_t tensors = graph->tensors.count;
    *out = (struct selective_recompute){.graph = graph, .tensors = tensors};
    TRY(graph_status(graph));
    out->readings = mem_array(tensors + 1, sizeof *out->readings);
    out->instead = mem_array(tensors + 1, sizeof *out->instead);
    return out->readings && out->instead ? find_again(out) : STATUS_FAILED;
}

static void selective_recompute_free(struct selective_recompute *selective_recompute) {
    mem_free(selective_recompute->readings);
    mem_free(selective_recompute->instead);
    vec_free(&selective_recompute->list);
    vec_free(&selective_recompute->woven);
}

enum status graph_selective_recompute(struct graph *graph) {
    struct selective_recompute selective_recompute;
    enum status status = selective_recompute_create(graph, &selective_recompute);
    if (status == STATUS_OK && selective_recompute.list.count > 0) {
        status = weave(&selective_recompute);
        if (status == STATUS_OK) status = vec_reserve(&graph->nodes, selective_recompute.woven.count);
        if (status == STATUS_OK) replace_nodes(&selective_recompute);
    }
    selective_recompute_free(&selective_recompute);
    return status;
}

enum status graph_selective_recompute_count(struct graph *graph, struct selective_recompute_counts *out) {
    struct selective_recompute selective_recompute;
    struct op_cost cost;
    *out = (struct selective_recompute_counts){0};
    enum status status = selective_recompute_create(graph, &selective_recompute);
    for (size_t i = 0; i < selective_recompute.list.count && status == STATUS_OK; i++) {
        op_cost(selective_recompute.list.items[i].node, &cost);
        out->bytes += cost.bytes;
        out->saved_bytes += (double)shape_bytes(&selective_recompute.list.items[i].node->out[0]->shape);
    }
    for (size_t n = 0; n < graph->nodes.count; n++) {
        if (graph->nodes.items[n]->phase > PHASE_BACKWARD) continue;
        op_cost(graph->nodes.items[n], &cost);
        out->flops += cost.flops;
    }
    selective_recompute_free(&selective_recompute);
    return status;
}
