#include "layout/shard_strategies.h"

#include <string.h>

/* ---- what can be executed ---- */

/* The axis of more than one device that took an index, or -1; -2 where several did. */
static int axis_taken(const struct strategy *strategy, const struct device_mesh *mesh) {
    int taken = -1;
    for (int axis = 0; axis < mesh->axes; axis++)
        if (mesh->sizes[axis] > 1 && strategy->index[axis] != OP_INDEX_NONE) taken = taken == -1 ? axis : -2;
    return taken;
}

const char *strategy_why_not(const struct node *node, const struct strategy *strategy, const struct device_mesh *mesh) {
    struct op_loops loops;
    int axis = axis_taken(strategy, mesh);
    if (axis == -1) return NULL;
    if (axis == -2) return "ranks share a node along one axis";
    if (strategy->passes[axis]) return "what parts read whole is gathered, not passed round";
    if (!op_loops_of(node, strategy->way, &loops)) BUG("a way that there is not");
    const struct op_index *index = &loops.indices[strategy->index[axis]];
    bool runs = index->letter == 't' && index->largest_share;
    if (runs && index->size % (2 * mesh->sizes[axis]) == 0)
        return "positions that divide so are cut in zigzag, which is balanced";
    return NULL;
}

void strategies_keep_executable(const struct node *node, const struct device_mesh *mesh,
                                struct strategies *strategies) {
    size_t kept = 0;
    for (size_t i = 0; i < strategies->kept.count; i++)
        if (!strategy_why_not(node, &strategies->kept.items[i], mesh))
            strategies->kept.items[kept++] = strategies->kept.items[i];
    strategies->kept.count = kept;
}

/* ---- choices ---- */

static struct shard_choice choice_of(const struct strategy *strategy, const struct device_mesh *mesh) {
    struct shard_choice choice = {strategy->way, OP_INDEX_NONE, false};
    int axis = axis_taken(strategy, mesh);
    BUG_IF(axis == -2, "a strategy along two axes");
    if (axis >= 0) choice.index = strategy->index[axis], choice.positions = strategy->positions[axis];
    return choice;
}

static bool takes_zigzag(const struct node *node, const struct shard_choice *choice) {
    struct op_loops loops;
    return choice->index != OP_INDEX_NONE && op_loops_of(node, choice->way, &loops) &&
           loops.indices[choice->index].letter == 'z';
}

static bool has_index(const struct op_loops *loops, int operand, int index) {
    for (int d = 0; d < TENSOR_RANK_MAX; d++)
        if (loops->of[operand][d] == index) return true;
    return false;
}

struct parameter_use strategy_parameter_use(const struct node *node, const struct strategy *strategy, int operand) {
    struct parameter_use use = {LAYOUT_REPLICATED, false};
    struct op_loops loops;
    if (!op_loops_of(node, strategy->way, &loops)) return use;
    for (int axis = 0; axis < DEVICE_MESH_AXES_MAX; axis++) {
        int index = strategy->index[axis];
        if (index == OP_INDEX_NONE) continue;
        if (strategy->operand[operand].dimension[axis] != LAYOUT_REPLICATED)
            use.dimension = strategy->operand[operand].dimension[axis];
        bool after = (loops.added >> operand & 1) && !has_index(&loops, OP_INPUTS_MAX, index);
        use.partial |= !has_index(&loops, operand, index) && !(after && !strategy->positions[axis]);
    }
    return use;
}

/* ---- segments ---- */

static const struct tensor *find_view(const struct graph *graph, const struct tensor *base, int64_t column) {
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (graph->tensors.items[i]->base == base && graph->tensors.items[i]->base_column == column)
            return graph->tensors.items[i];
    return NULL;
}

static bool has_views(const struct graph *graph, const struct tensor *base) {
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (graph->tensors.items[i]->base == base) return true;
    return false;
}

/* The views of a base, side by side. */
static enum status find_tiles(const struct graph *graph, const struct tensor *base, struct tensor_segments *out) {
    int64_t column = 0, columns = shape_columns(&base->shape);
    while (column < columns && out->count < TENSOR_SEGMENTS_MAX) {
        const struct tensor *view = find_view(graph, base, column);
        if (!view) break;
        out->size[out->count] = shape_columns(&view->shape);
        column += out->size[out->count++];
    }
    if (column == columns) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "tensor: %s: its views do not make up all of it, so its columns are not cut",
                      base->name);
}

static bool cuts_columns(const struct op_loops *loops, int operand, const struct tensor *tensor, int index) {
    return tensor && tensor->kind == TENSOR_ACTIVATION && loops->of[operand][tensor->shape.rank - 1] == index;
}

bool strategy_takes_segments(const struct graph *graph, const struct node *node, const struct strategy *strategy,
                             int operand) {
    struct op_loops loops;
    bool cuts = false;
    if (!op_loops_of(node, strategy->way, &loops)) return false;
    for (int axis = 0; axis < DEVICE_MESH_AXES_MAX; axis++) {
        int index = strategy->index[axis];
        cuts |= index != OP_INDEX_NONE && cuts_columns(&loops, OP_INPUTS_MAX, node->out[0], index) &&
                cuts_columns(&loops, operand, node->in[operand], index);
    }
    return cuts && !node->in[operand]->base && has_views(graph, node->out[0]);
}

/* Columns that go on as columns have the segments of what follows. */
static enum status find_segments_of(const struct graph *graph, const struct node *node, struct shard_choices *out) {
    const struct shard_choice *choice = &out->nodes[node->id];
    const struct tensor *first = node->out[0];
    struct op_loops loops;
    if (choice->index == OP_INDEX_NONE || !op_loops_of(node, choice->way, &loops)) return STATUS_OK;
    if (!cuts_columns(&loops, OP_INPUTS_MAX, first, choice->index)) return STATUS_OK;
    if (has_views(graph, first)) TRY(find_tiles(graph, first, &out->segments[first->id]));
    for (int k = 0; k < OP_INPUTS_MAX && out->segments[first->id].count > 0; k++)
        if (cuts_columns(&loops, k, node->in[k], choice->index) && !node->in[k]->base)
            out->segments[node->in[k]->id] = out->segments[first->id];
    return STATUS_OK;
}

enum status shard_choices_of_strategies(const struct graph *graph, const struct device_mesh *mesh,
                                        const struct strategy *const *strategies, struct shard_choices *out) {
    *out = (struct shard_choices){.parts = device_mesh_devices(mesh, device_mesh_all_axes(mesh)),
                                  .nodes = mem_array(graph->nodes.count, sizeof *out->nodes),
                                  .segments = mem_array(graph->tensors.count, sizeof *out->segments)};
    if (!out->nodes || !out->segments) return STATUS_FAILED;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        out->nodes[n] = choice_of(strategies[n], mesh);
        out->zigzag |= takes_zigzag(graph->nodes.items[n], &out->nodes[n]);
    }
    for (size_t n = graph->nodes.count; n-- > 0;)
        TRY(find_segments_of(graph, graph->nodes.items[n], out));
    return STATUS_OK;
}
