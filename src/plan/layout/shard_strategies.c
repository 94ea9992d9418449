#include "plan/layout/shard_strategies.h"

/* ---- what can be executed ---- */

/* The axes of more than one device that took an index, as bits. */
static unsigned axes_taken(const struct strategy *strategy, const struct device_mesh *mesh) {
    unsigned taken = 0;
    for (int axis = 0; axis < mesh->axes; axis++)
        if (mesh->sizes[axis] > 1 && strategy->index[axis] != OP_INDEX_NONE) taken |= 1u << axis;
    return taken;
}

static bool is_positions(const struct op_index *index) { return index->letter == 't' || index->letter == 'z'; }

/* Parts of positions are two runs each where they are on any mesh of these devices, so that cuts along one axis are
 * those of the others cut again. */
static const char *why_not_order(const struct op_index *index, const struct device_mesh *mesh) {
    int64_t devices = device_mesh_devices(mesh, device_mesh_all_axes(mesh));
    int64_t positions = index->letter == 'z' ? 2 * index->size : index->size;
    bool zigzag = positions % (2 * devices) == 0;
    if (index->letter == 't' && index->largest_share && zigzag)
        return "positions that divide so are cut in zigzag, which is balanced";
    if (index->letter == 'z' && !zigzag) return "positions that do not divide by all ranks are cut in runs";
    return NULL;
}

/* Two axes that take one index cut it together. Positions that an axis leaves cut are cut again after those of the
 * axes before it. */
static const char *why_not_together(const struct op_loops *loops, const struct strategy *strategy, unsigned taken) {
    for (int a = 0; a < DEVICE_MESH_AXES_MAX; a++)
        for (int b = a + 1; b < DEVICE_MESH_AXES_MAX; b++) {
            if (!(taken >> a & 1) || !(taken >> b & 1)) continue;
            bool same = strategy->index[a] == strategy->index[b];
            if (same && strategy->positions[a] != strategy->positions[b])
                return "axes that cut one index leave positions cut alike";
            if (strategy->positions[a] && is_positions(&loops->indices[strategy->index[b]]))
                return "what an axis leaves cut by positions is cut after the node's own";
        }
    return NULL;
}

const char *strategy_why_not(const struct node *node, const struct strategy *strategy, const struct device_mesh *mesh) {
    struct op_loops loops;
    unsigned taken = axes_taken(strategy, mesh);
    const char *why_not = NULL;
    if (taken == 0) return NULL;
    if (taken >> SHARD_AXES_MAX) return "ranks share a node along two axes";
    if (!op_loops_of(node, strategy->way, &loops)) BUG("a way that there is not");
    for (int axis = 0; axis < SHARD_AXES_MAX && !why_not; axis++) {
        if (!(taken >> axis & 1)) continue;
        if (strategy->passes[axis]) why_not = "what parts read whole is gathered, not passed round";
        if (!why_not) why_not = why_not_order(&loops.indices[strategy->index[axis]], mesh);
    }
    return why_not ? why_not : why_not_together(&loops, strategy, taken);
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
    struct shard_choice choice = shard_choice_none(strategy->way);
    unsigned taken = axes_taken(strategy, mesh);
    BUG_IF(taken >> SHARD_AXES_MAX, "a strategy along more than %d axes", SHARD_AXES_MAX);
    for (int axis = 0; axis < SHARD_AXES_MAX; axis++)
        if (taken >> axis & 1)
            choice.index[axis] = strategy->index[axis], choice.positions[axis] = strategy->positions[axis];
    return choice;
}

static bool takes_zigzag(const struct node *node, const struct shard_choice *choice) {
    struct op_loops loops;
    bool takes = false;
    if (!op_loops_of(node, choice->way, &loops)) return false;
    for (int axis = 0; axis < SHARD_AXES_MAX; axis++)
        takes |= choice->index[axis] != OP_INDEX_NONE && loops.indices[choice->index[axis]].letter == 'z';
    return takes;
}

static bool has_index(const struct op_loops *loops, int operand, int index) {
    for (int d = 0; d < TENSOR_RANK_MAX; d++)
        if (loops->of[operand][d] == index) return true;
    return false;
}

struct parameter_use strategy_parameter_use(const struct node *node, const struct strategy *strategy, int operand) {
    struct parameter_use use = {strategy->operand[operand], 0};
    struct op_loops loops;
    if (!op_loops_of(node, strategy->way, &loops)) return use;
    for (int axis = 0; axis < DEVICE_MESH_AXES_MAX; axis++) {
        int index = strategy->index[axis];
        if (index == OP_INDEX_NONE) continue;
        bool after = (loops.added >> operand & 1) && !has_index(&loops, OP_INPUTS_MAX, index);
        bool apart = loops.apart >> operand & 1;
        bool partial = !has_index(&loops, operand, index) && !apart && !(after && !strategy->positions[axis]);
        use.partial |= (unsigned)partial << axis;
    }
    return use;
}

unsigned strategy_apart_axes(const struct node *node, const struct strategy *strategy, int operand) {
    struct op_loops loops;
    unsigned axes = 0;
    if (!op_loops_of(node, strategy->way, &loops) || !(loops.apart >> operand & 1)) return 0;
    for (int axis = 0; axis < DEVICE_MESH_AXES_MAX; axis++)
        if (strategy->index[axis] != OP_INDEX_NONE && !has_index(&loops, operand, strategy->index[axis]))
            axes |= 1u << axis;
    return axes;
}

bool parameter_use_equal(const struct parameter_use *a, const struct parameter_use *b) {
    return layout_equal(&a->layout, &b->layout) && a->partial == b->partial;
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
    return status_set(STATUS_BAD_INPUT,
                      "tensor-parallel: %s: its views do not make up all of it, so its columns are not cut",
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
    int index = OP_INDEX_NONE;
    if (!op_loops_of(node, choice->way, &loops)) return STATUS_OK;
    for (int axis = 0; axis < SHARD_AXES_MAX; axis++)
        if (choice->index[axis] != OP_INDEX_NONE && cuts_columns(&loops, OP_INPUTS_MAX, first, choice->index[axis]))
            index = choice->index[axis];
    if (index == OP_INDEX_NONE) return STATUS_OK;
    if (has_views(graph, first)) TRY(find_tiles(graph, first, &out->segments[first->id]));
    for (int k = 0; k < OP_INPUTS_MAX && out->segments[first->id].count > 0; k++)
        if (cuts_columns(&loops, k, node->in[k], index) && !node->in[k]->base)
            out->segments[node->in[k]->id] = out->segments[first->id];
    return STATUS_OK;
}

enum status shard_choices_of_strategies(const struct graph *graph, const struct device_mesh *mesh,
                                        const struct strategy *const *strategies, struct shard_choices *out) {
    *out = (struct shard_choices){.mesh = *mesh,
                                  .parts = device_mesh_devices(mesh, device_mesh_all_axes(mesh)),
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

static bool is_head(const struct node *node) {
    return node->op->work == OP_WORK_LOSS || node->op->work == OP_WORK_LOGITS;
}

/* Nodes have the same names; the head may have another. NULL: only texts need it. */
static const struct node *find_node(const struct graph *batch, const struct node *of) {
    for (size_t n = 0; n < batch->nodes.count; n++) {
        const struct node *node = batch->nodes.items[n];
        if (is_head(of) ? is_head(node) : strcmp(node->name, of->name) == 0) return node;
    }
    return NULL;
}

/* The letter that an axis takes of a node's work, '\0' for none and for tokens, of which texts have few. */
static char letter_of(const struct node *node, const struct shard_choice *choice, int axis) {
    struct op_loops loops;
    if (choice->index[axis] == OP_INDEX_NONE || !op_loops_of(node, choice->way, &loops)) return '\0';
    char letter = loops.indices[choice->index[axis]].letter;
    return strchr("stz", letter) ? '\0' : letter;
}

static int index_of_letter(const struct op_loops *loops, char letter) {
    for (int i = 0; i < loops->count && letter; i++)
        if (loops->indices[i].letter == letter) return i;
    return OP_INDEX_NONE;
}

/* The first way whose loops have all of these letters. */
static struct shard_choice choose_letters(const struct node *node, const char letters[SHARD_AXES_MAX]) {
    struct op_loops loops;
    for (int way = 0; op_loops_of(node, way, &loops); way++) {
        struct shard_choice choice = shard_choice_none(way);
        bool has_all = true;
        for (int axis = 0; axis < SHARD_AXES_MAX; axis++) {
            choice.index[axis] = index_of_letter(&loops, letters[axis]);
            has_all &= letters[axis] == '\0' || choice.index[axis] != OP_INDEX_NONE;
        }
        if (has_all) return choice;
    }
    return shard_choice_none(0);
}

static struct shard_choice choose(const struct node *from, const struct shard_choice *choice, const struct node *node) {
    char letters[SHARD_AXES_MAX];
    for (int axis = 0; axis < SHARD_AXES_MAX; axis++)
        letters[axis] = letter_of(from, choice, axis);
    return choose_letters(node, letters);
}

static void take_segments(const struct graph *batch, size_t id, const struct tensor_segments *segments,
                          const struct graph *texts, struct shard_choices *out) {
    for (size_t i = 0; i < texts->tensors.count && segments->count > 0; i++) {
        const struct tensor *tensor = texts->tensors.items[i];
        if (tensor->kind == TENSOR_ACTIVATION && strcmp(tensor->name, batch->tensors.items[id]->name) == 0)
            out->segments[i] = *segments;
    }
}

enum status shard_choices_of_texts(const struct graph *batch, const struct shard_choices *choices,
                                   const struct graph *texts, struct shard_choices *out) {
    *out = (struct shard_choices){.mesh = choices->mesh,
                                  .parts = choices->parts,
                                  .nodes = mem_array(texts->nodes.count, sizeof *out->nodes),
                                  .segments = mem_array(texts->tensors.count, sizeof *out->segments)};
    if (!out->nodes || !out->segments) return STATUS_FAILED;
    for (size_t n = 0; n < texts->nodes.count; n++) {
        const struct node *node = texts->nodes.items[n], *from = find_node(batch, node);
        out->nodes[n] = from ? choose(from, &choices->nodes[from->id], node) : shard_choice_none(0);
    }
    for (size_t i = 0; i < batch->tensors.count; i++)
        take_segments(batch, i, &choices->segments[i], texts, out);
    return STATUS_OK;
}
