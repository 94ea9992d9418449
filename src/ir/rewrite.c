#include "ir/rewrite.h"

/* A run of forward nodes, and the gradients of these: indices into the graph's nodes. */
struct run {
    int32_t forward, forward_end;
    int32_t backward, backward_end; /* equal: it has none */
};

struct tiling {
    struct graph *graph;
    int64_t rows;
    size_t tensors; /* that there are before tiles */
    /* By id of a tensor that owns its bytes: the run that alone makes and reads it, 1 + the index of its first node; 0:
     * there is none. */
    int32_t *own;
    struct tensor **now; /* by tensor id: what stands for it in the present tile; NULL: not known yet */
    bool *needed;        /* by tensor id, while a tile's forward is looked through from its end */
    VEC(struct run) runs;
    VEC(struct node *) woven; /* the new list */
};

static bool works_by_rows(const struct node *node) { return node->op->by_rows && !node->op->collective; }

static bool is_forward_of(const struct node *node, const struct run *run) {
    return node->of && node->of->id >= run->forward && node->of->id < run->forward_end;
}

/* ---- runs ---- */

/* The gradients of a run stand together, since differentiation goes through forward from its end. False where one of
 * them does not work by rows. */
static bool find_backward(const struct graph *graph, struct run *run) {
    int32_t count = (int32_t)graph->nodes.count, at = run->forward_end;
    while (at < count &&
           !(graph->nodes.items[at]->phase == PHASE_BACKWARD && is_forward_of(graph->nodes.items[at], run)))
        at++;
    run->backward = run->backward_end = at;
    for (int32_t n = at; n < count; n++) {
        const struct node *node = graph->nodes.items[n];
        if (node->phase != PHASE_BACKWARD || !is_forward_of(node, run)) continue;
        if (n != run->backward_end || !works_by_rows(node)) return false;
        run->backward_end = n + 1;
    }
    return true;
}

/* Goes through the nodes of both phases. */
static int32_t next_node(const struct run *run, int32_t node) {
    return node + 1 == run->forward_end ? run->backward : node + 1;
}

static bool is_within(const struct run *run, int32_t node) {
    return (node >= run->forward && node < run->forward_end) || (node >= run->backward && node < run->backward_end);
}

static int32_t own_number(const struct run *run) { return run->forward + 1; }

static void unmark(const struct tiling *tiling, struct tensor *tensor, int32_t number) {
    if (tensor && tiling->own[tensor_storage(tensor)->id] == number) tiling->own[tensor_storage(tensor)->id] = 0;
}

/* Marks what the run alone makes and reads. */
static bool find_own(const struct tiling *tiling, const struct run *run) {
    const struct graph *graph = tiling->graph;
    int32_t number = own_number(run);
    bool any = false;
    for (int32_t n = run->forward; n < run->backward_end; n = next_node(run, n))
        for (int i = 0; i < OP_OUTPUTS_MAX; i++) {
            struct tensor *made = graph->nodes.items[n]->out[i] ? tensor_storage(graph->nodes.items[n]->out[i]) : NULL;
            if (tensor_is_activation(made) && !made->kept) tiling->own[made->id] = number;
        }
    for (int32_t n = 0; n < (int32_t)graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        for (int i = 0; i < OP_INPUTS_MAX && !is_within(run, n); i++)
            unmark(tiling, node->in[i], number);
        for (int i = 0; i < OP_OUTPUTS_MAX && !is_within(run, n); i++)
            unmark(tiling, node->out[i], number);
    }
    for (size_t i = 0; i < tiling->tensors; i++)
        any |= tiling->own[i] == number;
    return any;
}

/* The run that begins with a node, if it does anything to cut it into tiles. */
static bool find_run(const struct tiling *tiling, int32_t first, struct run *out) {
    const struct graph *graph = tiling->graph;
    int32_t count = (int32_t)graph->nodes.count, end = first;
    while (end < count && graph->nodes.items[end]->phase == PHASE_FORWARD &&
           graph->nodes.items[end]->block == graph->nodes.items[first]->block && works_by_rows(graph->nodes.items[end]))
        end++;
    *out = (struct run){.forward = first, .forward_end = end};
    if (end == first) return false;
    bool whole = find_backward(graph, out) && find_own(tiling, out);
    for (size_t i = 0; i < tiling->tensors && !whole; i++)
        if (tiling->own[i] == own_number(out)) tiling->own[i] = 0;
    return whole;
}

/* ---- tiles ---- */

/* A part of the tokens. */
struct rows {
    int64_t first, count;
};

static struct tensor *own_tensor(struct graph *graph, const struct tensor *tensor, const struct rows *rows) {
    struct shape shape = shape_make(tensor->shape.dtype, 3, 1, rows->count, shape_columns(&tensor->shape));
    const char *name = graph_format(graph, "%s[%lld:%lld,]", tensor->name, (long long)rows->first,
                                    (long long)(rows->first + rows->count));
    struct tensor *own = graph_tensor(graph, TENSOR_ACTIVATION, name, shape);
    if (own) own->block = tensor->block;
    return own;
}

/* A tensor's substitute in a tile: itself if it has no tokens, rows of it, or the tile's own tensor. */
static struct tensor *in_tile(struct tiling *tiling, struct tensor *tensor, const struct rows *rows) {
    struct graph *graph = tiling->graph;
    if (!tensor || tensor->kind != TENSOR_ACTIVATION) return tensor;
    struct tensor **now = &tiling->now[tensor->id], *storage = tensor_storage(tensor);
    if (*now) return *now;
    if (tiling->own[storage->id] == 0)
        *now = graph_view_rows(graph, tensor, rows->first, rows->count);
    else if (!tensor->base)
        *now = own_tensor(graph, tensor, rows);
    else
        *now = graph_view(graph, in_tile(tiling, storage, rows), tensor->base_column, shape_columns(&tensor->shape));
    return *now;
}

static enum status add_tile_node(struct tiling *tiling, const struct node *node, enum phase phase,
                                 const struct node *of, const struct rows *rows) {
    struct graph *graph = tiling->graph;
    struct node *made = scratch_alloc(&graph->memory, 1, sizeof *made);
    if (!made) return STATUS_FAILED;
    *made = *node;
    made->phase = phase;
    made->of = of;
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        made->in[i] = in_tile(tiling, node->in[i], rows);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) {
        made->out[i] = in_tile(tiling, node->out[i], rows);
        bool produced = tensor_is_activation(made->out[i]);
        if (produced) made->out[i]->producer = tensor_storage(made->out[i])->producer = made;
    }
    TRY(graph_status(graph));
    return vec_push(&tiling->woven, made);
}

static void forget(const struct tiling *tiling, const struct tensor *tensor) {
    if (!tensor) return;
    tiling->now[tensor->id] = NULL;
    if (tensor->base) tiling->now[tensor->base->id] = NULL;
}

static void forget_tile(const struct tiling *tiling, const struct run *run) {
    for (int32_t n = run->forward; n < run->backward_end; n = next_node(run, n)) {
        const struct node *node = tiling->graph->nodes.items[n];
        for (int i = 0; i < OP_INPUTS_MAX; i++)
            forget(tiling, node->in[i]);
        for (int i = 0; i < OP_OUTPUTS_MAX; i++)
            forget(tiling, node->out[i]);
    }
}

static void need_inputs(const struct tiling *tiling, const struct node *node) {
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (node->in[i]) tiling->needed[tensor_storage(node->in[i])->id] = true;
}

static bool makes_needed(const struct tiling *tiling, const struct node *node) {
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) {
        const struct tensor *made = node->out[i] ? tensor_storage(node->out[i]) : NULL;
        if (made && tiling->own[made->id] > 0 && tiling->needed[made->id]) return true;
    }
    return false;
}

/* Marks the run's forward nodes that make tensors for its gradients, directly or through other marked nodes. */
static void find_again(const struct tiling *tiling, const struct run *run, bool *again) {
    memset(tiling->needed, 0, tiling->tensors * sizeof *tiling->needed);
    for (int32_t n = run->backward; n < run->backward_end; n++)
        need_inputs(tiling, tiling->graph->nodes.items[n]);
    for (int32_t n = run->forward_end; n-- > run->forward;) {
        const struct node *node = tiling->graph->nodes.items[n];
        again[n - run->forward] = makes_needed(tiling, node);
        if (again[n - run->forward]) need_inputs(tiling, node);
    }
}

static enum status weave_tile(struct tiling *tiling, const struct run *run, enum phase phase, const bool *again,
                              const struct rows *rows) {
    struct node *const *nodes = tiling->graph->nodes.items;
    bool forward = phase == PHASE_FORWARD;
    for (int32_t n = run->forward; n < run->forward_end; n++)
        if (forward || again[n - run->forward])
            TRY(add_tile_node(tiling, nodes[n], phase, forward ? NULL : nodes[n], rows));
    for (int32_t n = run->backward; n < run->backward_end && !forward; n++)
        TRY(add_tile_node(tiling, nodes[n], phase, nodes[n]->of, rows));
    forget_tile(tiling, run);
    return STATUS_OK;
}

/* Either phase of a run, tile by tile. */
static enum status weave_run(struct tiling *tiling, const struct run *run, enum phase phase) {
    const struct graph *graph = tiling->graph;
    int64_t tokens = graph->micro_batch_sequences * graph->sequence_length;
    bool *again = mem_array((size_t)(run->forward_end - run->forward), sizeof *again);
    if (!again) return STATUS_FAILED;
    find_again(tiling, run, again);
    enum status status = STATUS_OK;
    for (int64_t first = 0; first < tokens && status == STATUS_OK; first += tiling->rows) {
        const struct rows rows = {first, first + tiling->rows < tokens ? tiling->rows : tokens - first};
        status = weave_tile(tiling, run, phase, again, &rows);
    }
    mem_free(again);
    return status;
}

/* ---- the graph ---- */

static enum status find_runs(struct tiling *tiling) {
    struct run run;
    for (int32_t n = 0; n<(int32_t)tiling->graph->nodes.count; n = run.forward_end> n ? run.forward_end : n + 1)
        if (find_run(tiling, n, &run)) TRY(vec_push(&tiling->runs, run));
    return STATUS_OK;
}

static enum status weave(struct tiling *tiling) {
    const struct graph *graph = tiling->graph;
    for (int32_t n = 0, next; n < (int32_t)graph->nodes.count; n = next) {
        next = n;
        for (size_t r = 0; r < tiling->runs.count && next == n; r++) {
            const struct run *run = &tiling->runs.items[r];
            bool forward = run->forward == n;
            if (!forward && (run->backward != n || run->backward == run->backward_end)) continue;
            TRY(weave_run(tiling, run, forward ? PHASE_FORWARD : PHASE_BACKWARD));
            next = forward ? run->forward_end : run->backward_end;
        }
        if (next == n) TRY(vec_push(&tiling->woven, graph->nodes.items[next++]));
    }
    return STATUS_OK;
}

/* The graph's nodes become these. */
static enum status replace_nodes(struct graph *graph, struct node *const *nodes, size_t count) {
    TRY(vec_reserve(&graph->nodes, count));
    graph->nodes.count = count;
    for (size_t n = 0; n < count; n++) {
        graph->nodes.items[n] = nodes[n];
        nodes[n]->id = (int)n;
    }
    return STATUS_OK;
}

static enum status tiling_create(struct graph *graph, int64_t rows, struct tiling *out) {
    size_t tensors = graph->tensors.count;
    *out = (struct tiling){.graph = graph, .rows = rows, .tensors = tensors};
    TRY(graph_status(graph));
    out->own = mem_array(tensors + 1, sizeof *out->own);
    out->now = mem_array(tensors + 1, sizeof *out->now);
    out->needed = mem_array(tensors + 1, sizeof *out->needed);
    return out->own && out->now && out->needed ? find_runs(out) : STATUS_FAILED;
}

static void tiling_free(struct tiling *tiling) {
    mem_free(tiling->own);
    mem_free(tiling->now);
    mem_free(tiling->needed);
    vec_free(&tiling->runs);
    vec_free(&tiling->woven);
}

enum status graph_tile(struct graph *graph, int64_t rows) {
    int64_t tokens = graph->micro_batch_sequences * graph->sequence_length;
    struct tiling tiling;
    if (rows % OP_ROWS_APART != 0 || tokens % OP_ROWS_APART != 0)
        return status_set(STATUS_BAD_INPUT,
                          "tiles of %lld of a micro-batch's %lld tokens: both must be whole runs of %d tokens",
                          (long long)rows, (long long)tokens, OP_ROWS_APART);
    enum status status = tiling_create(graph, rows, &tiling);
    if (status == STATUS_OK) status = weave(&tiling);
    if (status == STATUS_OK) status = replace_nodes(graph, tiling.woven.items, tiling.woven.count);
    tiling_free(&tiling);
    return status;
}

bool graph_has_tiles(struct graph *graph) {
    struct tiling tiling;
    bool any = tiling_create(graph, OP_ROWS_APART, &tiling) == STATUS_OK && tiling.runs.count > 0;
    tiling_free(&tiling);
    return any;
}

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

struct recomputation {
    struct graph *graph;
    size_t tensors;           /* that there are before */
    struct reading *readings; /* by tensor id */
    struct tensor **instead;  /* by tensor id: what backward reads in its place; NULL: itself */
    VEC(struct again) list;
    VEC(struct node *) woven; /* the new list of nodes */
};

static void note_reader(struct reading *reading, const struct node *node) {
    if (node->phase == PHASE_FORWARD) reading->forward = true;
    if (node->phase != PHASE_BACKWARD) return;
    reading->apart |= reading->first >= 0 && reading->last_block != node->block;
    if (reading->first < 0) reading->first = node->id;
    reading->last = node->id;
    reading->last_block = node->block;
}

static void find_readings(const struct recomputation *chosen) {
    const struct graph *graph = chosen->graph;
    for (size_t i = 0; i < chosen->tensors; i++)
        chosen->readings[i] = (struct reading){.first = -1, .last = -1, .last_block = -1};
    for (size_t n = 0; n < graph->nodes.count; n++)
        for (int i = 0; i < OP_INPUTS_MAX; i++) {
            struct tensor *in = graph->nodes.items[n]->in[i];
            if (tensor_is_activation(in)) note_reader(&chosen->readings[tensor_storage(in)->id], graph->nodes.items[n]);
        }
}

static const struct reading *reading_of(const struct recomputation *chosen, struct tensor *tensor) {
    return &chosen->readings[tensor_storage(tensor)->id];
}

/* Whether backward has the node's inputs there anyway. One that is recomputed itself may not be there yet. */
static bool inputs_last(const struct recomputation *chosen, const struct node *node, int32_t before) {
    bool last = true;
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        if (!tensor_is_activation(node->in[i])) continue;
        const struct reading *reading = reading_of(chosen, node->in[i]);
        last &= reading->last >= before && reading->last_block == node->block;
        last &= !chosen->instead[tensor_storage(node->in[i])->id];
    }
    return last;
}

static bool may_make_again(const struct recomputation *chosen, const struct node *node) {
    struct tensor *made = node->out[0];
    if (node->phase != PHASE_FORWARD || !node->op->light || made->base || made->kept) return false;
    const struct reading *reading = &chosen->readings[made->id];
    bool read = reading->forward && reading->first >= 0 && !reading->apart && reading->last_block == node->block;
    return read && inputs_last(chosen, node, reading->first);
}

static enum status find_chosen(struct recomputation *chosen) {
    const struct graph *graph = chosen->graph;
    find_readings(chosen);
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        if (!may_make_again(chosen, node)) continue;
        const struct again again = {node, chosen->readings[node->out[0]->id].first};
        chosen->instead[node->out[0]->id] = node->out[0]; /* until there is another */
        TRY(vec_push(&chosen->list, again));
    }
    return STATUS_OK;
}

/* ---- the second nodes ---- */

static enum status add_again(struct recomputation *chosen, const struct node *node) {
    struct graph *graph = chosen->graph;
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
    chosen->instead[node->out[0]->id] = made->out[0];
    return vec_push(&chosen->woven, made);
}

static enum status read_again(const struct recomputation *chosen, struct node *node) {
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        struct tensor *in = node->in[i];
        if (!tensor_is_activation(in) || (size_t)in->id >= chosen->tensors) continue;
        if (in->base && chosen->instead[in->base->id] && !chosen->instead[in->id])
            chosen->instead[in->id] = graph_view_again(chosen->graph, chosen->instead[in->base->id], in);
        if (chosen->instead[in->id]) node->in[i] = chosen->instead[in->id];
    }
    return graph_status(chosen->graph);
}

static int by_place(const void *a, const void *b) {
    const struct again *x = a, *y = b;
    return x->before != y->before ? (x->before < y->before ? -1 : 1) : (x->node->id < y->node->id ? -1 : 1);
}

static enum status weave_chosen(struct recomputation *chosen) {
    const struct graph *graph = chosen->graph;
    size_t next = 0;
    qsort(chosen->list.items, chosen->list.count, sizeof *chosen->list.items, by_place);
    for (int32_t n = 0; n < (int32_t)graph->nodes.count; n++) {
        struct node *node = graph->nodes.items[n];
        for (; next < chosen->list.count && chosen->list.items[next].before == n; next++)
            TRY(add_again(chosen, chosen->list.items[next].node));
        if (node->phase == PHASE_BACKWARD) TRY(read_again(chosen, node));
        TRY(vec_push(&chosen->woven, node));
    }
    return STATUS_OK;
}

/* ---- the graph ---- */

static enum status recomputation_create(struct graph *graph, struct recomputation *out) {
    size_t tensors = graph->tensors.count;
    *out = (struct recomputation){.graph = graph, .tensors = tensors};
    TRY(graph_status(graph));
    out->readings = mem_array(tensors + 1, sizeof *out->readings);
    out->instead = mem_array(tensors + 1, sizeof *out->instead);
    return out->readings && out->instead ? find_chosen(out) : STATUS_FAILED;
}

static void recomputation_free(struct recomputation *chosen) {
    mem_free(chosen->readings);
    mem_free(chosen->instead);
    vec_free(&chosen->list);
    vec_free(&chosen->woven);
}

enum status graph_selective_recompute(struct graph *graph) {
    struct recomputation chosen;
    enum status status = recomputation_create(graph, &chosen);
    if (status == STATUS_OK && chosen.list.count > 0) {
        status = weave_chosen(&chosen);
        if (status == STATUS_OK) status = replace_nodes(graph, chosen.woven.items, chosen.woven.count);
    }
    recomputation_free(&chosen);
    return status;
}

enum status graph_selective_recompute_count(struct graph *graph, struct selective_recompute_counts *out) {
    struct recomputation chosen;
    struct op_cost cost;
    *out = (struct selective_recompute_counts){0};
    enum status status = recomputation_create(graph, &chosen);
    for (size_t i = 0; i < chosen.list.count && status == STATUS_OK; i++) {
        op_cost(chosen.list.items[i].node, &cost);
        out->bytes += cost.bytes;
        out->saved_bytes += (double)shape_bytes(&chosen.list.items[i].node->out[0]->shape);
    }
    for (size_t n = 0; n < graph->nodes.count; n++) {
        if (graph->nodes.items[n]->phase > PHASE_BACKWARD) continue;
        op_cost(graph->nodes.items[n], &cost);
        out->flops += cost.flops;
    }
    recomputation_free(&chosen);
    return status;
}
