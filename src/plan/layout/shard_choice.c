#include "plan/layout/shard_choice.h"

/* The views of a graph's tensors. By tensor id: of a base how many it has, and the id of the last, from which `earlier`
 * leads on. */
struct view_link {
    int count, last, earlier;
};
struct views {
    const struct graph *graph;
    struct view_link *links;
};

static enum status views_create(const struct graph *graph, struct views *out) {
    *out = (struct views){.graph = graph};
    TRY(mem_items(&out->links, graph->tensors.count));
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (!tensor->base) continue;
        struct view_link *base = &out->links[tensor->base->id];
        out->links[i].earlier = base->last;
        base->last = (int)i;
        base->count++;
    }
    return STATUS_OK;
}

static bool has_views(const struct views *views, const struct tensor *base) { return views->links[base->id].count > 0; }

/* The view of a base that begins at this column, or NULL. */
static const struct tensor *find_view(const struct views *views, const struct tensor *base, int64_t column) {
    int id = views->links[base->id].last;
    for (int v = 0; v < views->links[base->id].count; v++, id = views->links[id].earlier)
        if (views->graph->tensors.items[id]->base_column == column) return views->graph->tensors.items[id];
    return NULL;
}

/* The views of a base lie side by side, and make up all of it. */
static bool views_tile(const struct views *views, const struct tensor *base, struct tensor_segments *out) {
    int count = views->links[base->id].count;
    int64_t column = 0;
    *out = (struct tensor_segments){0};
    while (out->count < count && out->count < TENSOR_SEGMENTS_MAX) {
        const struct tensor *view = find_view(views, base, column);
        if (!view) return false;
        out->size[out->count] = shape_columns(&view->shape);
        column += out->size[out->count++];
    }
    return out->count == count && column == shape_columns(&base->shape);
}

/* The walk's state of a tensor: whether all of its uses can continue with columns of it, and whether it is cut. */
struct use {
    int uses;
    bool refused;  /* by one of them */
    bool gathered; /* all of them read it whole, but its producer may make columns, which are then gathered */
    bool cut;
};

struct chooser {
    const struct graph *graph;
    struct shard_choices *choices;
    struct views views;
    struct use *uses;
    int64_t vocabulary; /* rows of the head's weight */
};

static bool is_activation(const struct tensor *tensor) { return tensor && tensor->kind == TENSOR_ACTIVATION; }

static int column_index(const struct op_loops *loops, int operand, const struct tensor *tensor) {
    return loops->of[operand][tensor->shape.rank - 1];
}

/* ---- from the last node to the first: who can go on with columns ---- */

/* Columns of a view: as they are, or gathered from equal parts. */
static bool takes_or_gathers(const struct chooser *chooser, const struct tensor *view) {
    const struct use *use = &chooser->uses[view->id];
    bool gathers = use->gathered && shape_columns(&view->shape) % chooser->choices->parts == 0;
    return use->uses > 0 && (!use->refused || gathers);
}

static bool views_take_columns(const struct chooser *chooser, const struct tensor *base) {
    const struct view_link *links = chooser->views.links;
    int id = links[base->id].last;
    for (int v = 0; v < links[base->id].count; v++, id = links[id].earlier)
        if (!takes_or_gathers(chooser, chooser->graph->tensors.items[id])) return false;
    return true;
}

/* Whether all uses of a node's output, which have been seen, go on with columns. */
static bool takes_columns(const struct chooser *chooser, const struct tensor *tensor) {
    const struct use *use = &chooser->uses[tensor->id];
    if (!is_activation(tensor) || tensor->kept) return false;
    if (has_views(&chooser->views, tensor))
        return use->uses == 0 && !use->refused && views_take_columns(chooser, tensor);
    return use->uses > 0 && !use->refused;
}

/* The index by which a parameter that no other node uses is cut. */
static bool cuts_parameter(const struct chooser *chooser, const struct node *node, const struct op_loops *loops,
                           int index) {
    for (int k = 0; k < OP_INPUTS_MAX; k++) {
        const struct tensor *tensor = node->in[k];
        if (tensor && tensor->kind == TENSOR_PARAMETER && op_loops_has(loops, k, index))
            return chooser->uses[tensor->id].uses <= 1;
    }
    return false;
}

/* Whether a node makes columns: its uses take them, or it is a GEMM whose columns are gathered for them. */
static bool makes_columns(const struct chooser *chooser, const struct node *node, const struct op_loops *loops) {
    int index = column_index(loops, OP_INPUTS_MAX, node->out[0]);
    if (takes_columns(chooser, node->out[0])) return true;
    return is_activation(node->out[0]) && chooser->uses[node->out[0]->id].gathered && index != OP_INDEX_NONE &&
           loops->indices[index].size % chooser->choices->parts == 0 && cuts_parameter(chooser, node, loops, index);
}

/* Whether the tensor is thin, as the output of an adapter's first GEMM: features between two GEMMs, fewer than the GEMM
 * sums over or too few for each rank to have some. If they were cut, the input could not be, and the weight next to it
 * reads the same input. */
static bool is_thin(const struct chooser *chooser, const struct tensor *tensor) {
    const struct node *node = tensor->producer;
    int64_t size = shape_columns(&tensor->shape);
    if (node && node->op == &op_scale) node = node->in[0]->producer;
    return node && node->op->work == OP_WORK_PRODUCT &&
           (size < shape_columns(&node->in[0]->shape) || size % chooser->choices->parts != 0);
}

/* The index that columns of input k are, if the node can continue with columns; else OP_INDEX_NONE. An index that the
 * node sums over needs no further use. */
static int index_of_columns(const struct chooser *chooser, const struct node *node, const struct op_loops *loops,
                            int k) {
    const struct tensor *first = node->out[0];
    if (!is_activation(node->in[k]) || !is_activation(first)) return OP_INDEX_NONE;
    int index = column_index(loops, k, node->in[k]);
    if (index == OP_INDEX_NONE) return OP_INDEX_NONE;
    bool kept = column_index(loops, OP_INPUTS_MAX, first) == index;
    if (!kept && op_loops_has(loops, OP_INPUTS_MAX, index)) return OP_INDEX_NONE;
    if (!kept && is_thin(chooser, node->in[k])) return OP_INDEX_NONE;
    bool makes = makes_columns(chooser, node, loops);
    if (!makes && chooser->uses[first->id].gathered) return OP_INDEX_NONE; /* too few heads: all ranks make them */
    return makes == kept ? index : OP_INDEX_NONE;
}

bool tensor_segments_equal(const struct tensor_segments *a, const struct tensor_segments *b) {
    return a->count == b->count && memcmp(a->size, b->size, (size_t)a->count * sizeof *a->size) == 0;
}

/* Whether input k is whole because it has fewer heads than ranks: heads that attention reads in full, and operators
 * applied to them before. */
static bool reads_whole(const struct chooser *chooser, const struct node *node, const struct op_loops *loops, int k) {
    struct op_loops first;
    const struct tensor *out = node->out[0];
    if (!is_activation(node->in[k]) || !is_activation(out)) return false;
    if (chooser->choices->nodes[node->id].way > 0)
        return op_loops_of(node, 0, &first) && column_index(&first, k, node->in[k]) != OP_INDEX_NONE;
    int index = column_index(loops, k, node->in[k]);
    return chooser->uses[out->id].gathered && index != OP_INDEX_NONE &&
           index == column_index(loops, OP_INPUTS_MAX, out);
}

/* Columns that continue as columns have the segments of their consumers. */
static void add_use(struct chooser *chooser, const struct node *node, const struct op_loops *loops, int k) {
    static const struct tensor_segments none = {0};
    const struct tensor *tensor = node->in[k];
    struct use *use = &chooser->uses[tensor->id];
    int index = loops ? index_of_columns(chooser, node, loops, k) : OP_INDEX_NONE;
    bool whole = loops && index == OP_INDEX_NONE && reads_whole(chooser, node, loops, k);
    bool goes_on = index != OP_INDEX_NONE && op_loops_has(loops, OP_INPUTS_MAX, index);
    const struct tensor_segments *segments = goes_on ? &chooser->choices->segments[node->out[0]->id] : &none;
    struct tensor_segments *own = &chooser->choices->segments[tensor->id];
    use->refused |= index == OP_INDEX_NONE || (use->uses > 0 && !tensor_segments_equal(own, segments));
    use->refused |= tensor->base && segments->count > 0;
    use->gathered = whole && (use->uses == 0 || use->gathered);
    if (use->uses == 0) *own = *segments;
    use->uses++;
}

/* The first way whose columns of the result have equal parts; the first of all where none has. */
static int choose_way(const struct chooser *chooser, const struct node *node) {
    struct op_loops loops;
    for (int way = 0; op_loops_of(node, way, &loops); way++) {
        int index = column_index(&loops, OP_INPUTS_MAX, node->out[0]);
        if (index == OP_INDEX_NONE) return 0;
        if (loops.indices[index].size % chooser->choices->parts == 0) return way;
    }
    return 0;
}

static bool is_head(const struct node *node) {
    return node->op->work == OP_WORK_LOSS || node->op->work == OP_WORK_LOGITS;
}

static void walk_back(struct chooser *chooser) {
    for (size_t n = chooser->graph->nodes.count; n-- > 0;) {
        const struct node *node = chooser->graph->nodes.items[n];
        struct op_loops loops;
        int way = chooser->choices->nodes[n].way = choose_way(chooser, node);
        bool has_loops = op_loops_of(node, way, &loops);
        for (int i = 0; i < OP_OUTPUTS_MAX; i++)
            if (node->out[i] && has_views(&chooser->views, node->out[i]))
                chooser->uses[node->out[i]->id].refused |=
                    !views_tile(&chooser->views, node->out[i], &chooser->choices->segments[node->out[i]->id]);
        if (is_head(node)) chooser->vocabulary = node->in[1]->shape.dims[0];
        for (int k = 0; k < OP_INPUTS_MAX; k++)
            if (node->in[k]) add_use(chooser, node, has_loops ? &loops : NULL, k);
    }
}

/* ---- choices, from the first node to the last ---- */

static bool is_cut(const struct chooser *chooser, const struct tensor *tensor) {
    return chooser->uses[tensor->base ? tensor->base->id : tensor->id].cut;
}

/* The index of rows of the vocabulary, where the node's table has them all: the tokens' and the head's. */
static int vocabulary_index(const struct chooser *chooser, const struct op_loops *loops) {
    for (int i = 0; i < loops->count; i++)
        if (loops->indices[i].letter == 'v' && loops->indices[i].size == chooser->vocabulary) return i;
    return OP_INDEX_NONE;
}

static int choose_index(const struct chooser *chooser, const struct node *node, const struct op_loops *loops) {
    int rows = vocabulary_index(chooser, loops), features = op_loops_find(loops, 'f');
    if (rows != OP_INDEX_NONE) return rows;
    if (features != OP_INDEX_NONE) return features;
    for (int k = 0; k < OP_INPUTS_MAX; k++) {
        if (!node->in[k] || !is_cut(chooser, node->in[k])) continue;
        int index = index_of_columns(chooser, node, loops, k);
        if (index != OP_INDEX_NONE) return index;
    }
    if (!makes_columns(chooser, node, loops)) return OP_INDEX_NONE;
    int index = column_index(loops, OP_INPUTS_MAX, node->out[0]);
    return index != OP_INDEX_NONE && cuts_parameter(chooser, node, loops, index) ? index : OP_INDEX_NONE;
}

static const char *name_of_index(char letter) {
    return letter == 'h' || letter == 'q' ? "heads" : letter == 'g' ? "groups" : letter == 'v' ? "rows" : "features";
}

/* A tensor whose columns are the index has equal parts in every segment, and so has the index. */
static enum status check_parts(const struct chooser *chooser, const struct node *node, const struct op_loops *loops,
                               int index) {
    int64_t parts = chooser->choices->parts, size = loops->indices[index].size;
    const struct tensor_segments *segments = &chooser->choices->segments[node->out[0]->id];
    bool columns = column_index(loops, OP_INPUTS_MAX, node->out[0]) == index;
    bool divides = size % parts == 0 || loops->indices[index].padded;
    for (int s = 0; s < segments->count && columns; s++)
        divides &= segments->size[s] % parts == 0;
    if (divides) return STATUS_OK;
    enum status status =
        status_set(STATUS_BAD_INPUT, "tensor-parallel: %s: %lld %s are not divisible by %lld ranks", node->name,
                   (long long)size, name_of_index(loops->indices[index].letter), (long long)parts);
    return status_hint(status, "use a --tensor-parallel that divides them, or 1");
}

static enum status walk_forward(struct chooser *chooser) {
    for (size_t n = 0; n < chooser->graph->nodes.count; n++) {
        const struct node *node = chooser->graph->nodes.items[n];
        struct op_loops loops;
        struct shard_choice *choice = &chooser->choices->nodes[n];
        *choice = shard_choice_none(choice->way);
        if (!op_loops_of(node, choice->way, &loops)) continue;
        int index = choice->index[0] = choose_index(chooser, node, &loops);
        if (index == OP_INDEX_NONE) continue;
        TRY(check_parts(chooser, node, &loops, index));
        for (int i = 0; i < OP_OUTPUTS_MAX; i++)
            if (node->out[i]) chooser->uses[node->out[i]->id].cut = op_loops_has(&loops, OP_INPUTS_MAX + i, index);
    }
    return STATUS_OK;
}

/* ---- whole tensors, cut along positions ---- */

/* Between regions: what a gradient flows through, and what no other index cuts. */
static bool lies_between(const struct node *node, const struct shard_choice *choice) {
    return choice->index[0] == OP_INDEX_NONE && node->op->differentiate && is_activation(node->out[0]);
}

static enum status check_positions(const struct chooser *chooser) {
    int64_t length = chooser->graph->sequence_length, parts = chooser->choices->parts;
    if (length % parts == 0) return STATUS_OK;
    enum status status =
        status_set(STATUS_BAD_INPUT, "sequence-parallel: %lld tokens are not divisible by %lld tensor-parallel ranks",
                   (long long)length, (long long)parts);
    return status_hint(status, "leave out --sequence-parallel, or use a --seq that is a multiple of %lld",
                       (long long)parts);
}

static enum status cut_positions(struct chooser *chooser) {
    TRY(check_positions(chooser));
    for (size_t n = 0; n < chooser->graph->nodes.count; n++) {
        const struct node *node = chooser->graph->nodes.items[n];
        struct shard_choice *choice = &chooser->choices->nodes[n];
        struct op_loops loops;
        if (!op_loops_of(node, choice->way, &loops)) continue;
        if (lies_between(node, choice))
            choice->index[0] = op_loops_find(&loops, 't');
        else
            choice->positions[0] = choice->index[0] != OP_INDEX_NONE;
    }
    return STATUS_OK;
}

static enum status shard_choices_create(const struct graph *graph, const struct device_mesh *mesh,
                                        struct shard_choices *out) {
    *out = (struct shard_choices){.mesh = *mesh, .parts = device_mesh_devices(mesh, device_mesh_all_axes(mesh))};
    TRY(mem_items(&out->nodes, graph->nodes.count));
    return mem_items(&out->segments, graph->tensors.count);
}

static enum status choose_all(struct chooser *chooser, bool sequence) {
    TRY(mem_items(&chooser->uses, chooser->graph->tensors.count));
    TRY(views_create(chooser->graph, &chooser->views));
    walk_back(chooser);
    TRY(walk_forward(chooser));
    return sequence ? cut_positions(chooser) : STATUS_OK;
}

enum status shard_choices_make(const struct graph *graph, int64_t parts, bool sequence, struct shard_choices *out) {
    struct chooser chooser = {.graph = graph, .choices = out};
    TRY(shard_choices_create(graph, &(struct device_mesh){.axes = 1, .sizes = {parts}}, out));
    enum status status = choose_all(&chooser, sequence);
    mem_free(chooser.uses);
    mem_free(chooser.views.links);
    return status;
}

void shard_choices_free(struct shard_choices *choices) {
    mem_free(choices->nodes);
    mem_free(choices->segments);
    *choices = (struct shard_choices){0};
}

static bool has_positions(const struct share *share, int index) {
    return share->loops.indices[index].letter == 't' || share->loops.indices[index].letter == 'z';
}

int share_part_of_operand(const struct share *share, int axis, int operand) {
    int index = share->index[axis];
    bool gathered = index != OP_INDEX_NONE && operand < OP_INPUTS_MAX && (share->loops.whole >> operand & 1) &&
                    has_positions(share, index);
    return gathered ? WHOLE : op_loops_dimension(&share->loops, operand, index);
}

unsigned share_summed_axes(const struct share *share) {
    unsigned axes = 0;
    for (int axis = 0; axis < SHARD_AXES_MAX && !(share->loops.apart >> OP_INPUTS_MAX & 1); axis++)
        if (share->index[axis] != OP_INDEX_NONE && !(share->combined >> axis & 1) &&
            share_part_of_operand(share, axis, OP_INPUTS_MAX) == WHOLE)
            axes |= 1u << axis;
    return axes;
}

int share_part_of_sum(const struct share *share, int axis) {
    for (int i = 0; i < share->loops.count && share->positions[axis]; i++)
        if (has_positions(share, i)) return op_loops_dimension(&share->loops, OP_INPUTS_MAX, i);
    return WHOLE;
}

bool share_is_added_later(const struct share *share, int k) {
    return share_summed_axes(share) != 0 && share->loops.added >> k & 1;
}

unsigned share_apart_axes(const struct share *share, int operand) {
    unsigned axes = 0;
    for (int axis = 0; axis < SHARD_AXES_MAX && share->loops.apart >> operand & 1; axis++)
        if (share->index[axis] != OP_INDEX_NONE &&
            op_loops_dimension(&share->loops, operand, share->index[axis]) == WHOLE)
            axes |= 1u << axis;
    return axes;
}

struct reading share_reading_of(const struct share *share, int k) {
    struct reading reading = {layout_replicated(), 0};
    unsigned summed = share_is_added_later(share, k) ? share_summed_axes(share) : 0, apart = share_apart_axes(share, k);
    for (int axis = 0; axis < SHARD_AXES_MAX; axis++) {
        bool after = summed >> axis & 1;
        int dimension = after ? share_part_of_sum(share, axis) : share_part_of_operand(share, axis, k);
        reading.layout.dimension[axis] = (int8_t)dimension;
        bool partial = share->index[axis] != OP_INDEX_NONE && !after && dimension == WHOLE && !(apart >> axis & 1);
        if (partial) reading.partial |= 1u << axis;
    }
    return reading;
}

struct reading share_reading_of_parameter(const struct share *share, int k) {
    struct reading reading = share_reading_of(share, k);
    unsigned summed = share_is_added_later(share, k) ? share_summed_axes(share) : 0;
    for (int axis = 0; axis < SHARD_AXES_MAX; axis++)
        if (summed >> axis & 1) {
            reading.layout.dimension[axis] = WHOLE;
            if (share_part_of_sum(share, axis) != WHOLE) reading.partial |= 1u << axis;
        }
    return reading;
}

unsigned share_axes_with(const struct share *share, int index) {
    unsigned axes = 0;
    for (int axis = 0; axis < SHARD_AXES_MAX; axis++)
        axes |= (unsigned)(share->index[axis] == index) << axis;
    return axes;
}

/* ---- by strategies ---- */

static struct shard_choice choice_of(const struct strategy *strategy, const struct device_mesh *mesh) {
    struct shard_choice choice = shard_choice_none(strategy->way);
    unsigned taken = strategy_axes_taken(strategy, mesh);
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

/* Columns that continue as columns have the segments of their consumers. */
static enum status find_segments_of(const struct views *views, const struct node *node, struct shard_choices *out) {
    const struct shard_choice *choice = &out->nodes[node->id];
    const struct tensor *first = node->out[0];
    struct op_loops loops;
    int index = OP_INDEX_NONE;
    if (!op_loops_of(node, choice->way, &loops)) return STATUS_OK;
    for (int axis = 0; axis < SHARD_AXES_MAX; axis++)
        if (strategy_cuts_columns(&loops, OP_INPUTS_MAX, first, choice->index[axis])) index = choice->index[axis];
    if (index == OP_INDEX_NONE) return STATUS_OK;
    if (has_views(views, first) && !views_tile(views, first, &out->segments[first->id]))
        return status_set(STATUS_BAD_INPUT,
                          "tensor-parallel: %s: its views do not make up all of it, so its columns are not cut",
                          first->name);
    for (int k = 0; k < OP_INPUTS_MAX && out->segments[first->id].count > 0; k++)
        if (strategy_cuts_columns(&loops, k, node->in[k], index) && !node->in[k]->base)
            out->segments[node->in[k]->id] = out->segments[first->id];
    return STATUS_OK;
}

enum status shard_choices_of_strategies(const struct graph *graph, const struct device_mesh *mesh,
                                        const struct strategy *const *strategies, struct shard_choices *out) {
    TRY(shard_choices_create(graph, mesh, out));
    for (size_t n = 0; n < graph->nodes.count; n++) {
        out->nodes[n] = choice_of(strategies[n], mesh);
        out->zigzag |= takes_zigzag(graph->nodes.items[n], &out->nodes[n]);
    }
    struct views views;
    enum status status = views_create(graph, &views);
    for (size_t n = graph->nodes.count; n-- > 0 && status == STATUS_OK;)
        status = find_segments_of(&views, graph->nodes.items[n], out);
    mem_free(views.links);
    return status;
}

/* Nodes have the same names; the head may have another. NULL: only texts need it. */
static const struct node *find_node(const struct graph *batch, const struct node *of) {
    for (size_t n = 0; n < batch->nodes.count; n++) {
        const struct node *node = batch->nodes.items[n];
        if (is_head(of) ? is_head(node) : strcmp(node->name, of->name) == 0) return node;
    }
    return NULL;
}

/* The letter that an axis takes of a node's work. '\0' for none, and for tokens, since generation has few tokens a
 * text. */
static char letter_of(const struct node *node, const struct shard_choice *choice, int axis) {
    struct op_loops loops;
    if (choice->index[axis] == OP_INDEX_NONE || !op_loops_of(node, choice->way, &loops)) return '\0';
    char letter = loops.indices[choice->index[axis]].letter;
    return strchr("stz", letter) ? '\0' : letter;
}

/* The first way whose loops have all of these letters. */
static struct shard_choice choose_letters(const struct node *node, const char letters[SHARD_AXES_MAX]) {
    struct op_loops loops;
    for (int way = 0; op_loops_of(node, way, &loops); way++) {
        struct shard_choice choice = shard_choice_none(way);
        bool has_all = true;
        for (int axis = 0; axis < SHARD_AXES_MAX; axis++) {
            choice.index[axis] = op_loops_find(&loops, letters[axis]);
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
    TRY(shard_choices_create(texts, &choices->mesh, out));
    for (size_t n = 0; n < texts->nodes.count; n++) {
        const struct node *node = texts->nodes.items[n], *from = find_node(batch, node);
        out->nodes[n] = from ? choose(from, &choices->nodes[from->id], node) : shard_choice_none(0);
    }
    for (size_t i = 0; i < batch->tensors.count; i++)
        take_segments(batch, i, &choices->segments[i], texts, out);
    return STATUS_OK;
}
