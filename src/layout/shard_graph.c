#include "layout/shard_graph.h"

#include <string.h>

#include "graph/weight_part.h"
#include "layout/conversion_nodes.h"
#include "ops/tensor_parts.h"

enum { WHOLE = LAYOUT_REPLICATED };

/* A tensor of the one rank's graph, as this rank has it. */
struct value {
    struct tensor *own; /* NULL: not made yet */
    int dimension;      /* that is in parts, or WHOLE */
    /* The same in another layout, by 1 + dimension, and whole with a gradient that is a part of its sum. */
    struct tensor *converted[TENSOR_RANK_MAX + 1], *shared;
};

struct sharder {
    const struct graph *from;
    const struct shard_choices *choices;
    struct group_part group;
    struct graph *graph;
    struct value *values; /* by tensor id of `from` */
    bool *learns;         /* by the same: a gradient flows to it */
};

/* The index that the ranks share of a node, and its operands'. */
struct share {
    struct op_loops loops;
    int index;
    bool positions; /* as struct shard_choice */
    bool told;      /* ranks have told each other what makes the node's outputs whole */
};

static int dimension_of(const struct share *share, int operand, int index) {
    for (int d = 0; d < TENSOR_RANK_MAX && index != OP_INDEX_NONE; d++)
        if (share->loops.of[operand][d] == index) return d;
    return WHOLE;
}

static bool has_positions(const struct share *share, int index) {
    return share->loops.indices[index].letter == 't' || share->loops.indices[index].letter == 'z';
}

/* The dimension of an operand that is in parts while the node works. */
static int part_of_operand(const struct share *share, int operand) {
    bool gathered = share->index != OP_INDEX_NONE && operand < OP_INPUTS_MAX && (share->loops.whole >> operand & 1) &&
                    has_positions(share, share->index);
    return gathered ? WHOLE : dimension_of(share, operand, share->index);
}

/* Whether what the node makes are parts of a sum. */
static bool sums(const struct share *share) {
    return share->index != OP_INDEX_NONE && !share->told && part_of_operand(share, OP_INPUTS_MAX) == WHOLE;
}

static struct index_part index_part_of(const struct sharder *sharder, const struct share *share) {
    return (struct index_part){share->loops.indices[share->index].size, sharder->group.parts, sharder->group.position};
}

/* The dimension along which a sum is scattered, or WHOLE. */
static int part_of_sum(const struct share *share) {
    for (int i = 0; i < share->loops.count && share->positions; i++)
        if (has_positions(share, i)) return dimension_of(share, OP_INPUTS_MAX, i);
    return WHOLE;
}

static bool is_added_later(const struct share *share, int k) { return sums(share) && share->loops.added >> k & 1; }

/* As differentiation has it (graph/differentiate.c): activations that come from elsewhere want their gradients. */
static void find_learning(struct sharder *sharder) {
    for (size_t i = 0; i < sharder->from->tensors.count; i++) {
        const struct tensor *tensor = sharder->from->tensors.items[i];
        sharder->learns[i] =
            tensor->kind == TENSOR_ACTIVATION && !tensor->producer && !tensor->base && tensor->shape.dtype != DTYPE_I32;
    }
    for (size_t n = 0; n < sharder->from->nodes.count; n++) {
        const struct node *node = sharder->from->nodes.items[n];
        bool learns = false;
        for (int k = 0; k < OP_INPUTS_MAX && (node->op->differentiate || node->op->differentiate_loss); k++) {
            const struct tensor *in = node->in[k];
            if (!in) continue;
            bool trained = in->kind == TENSOR_PARAMETER && in->trainable;
            learns |= trained || sharder->learns[in->base ? in->base->id : in->id];
        }
        for (int i = 0; i < OP_OUTPUTS_MAX; i++)
            if (node->out[i]) sharder->learns[node->out[i]->id] = learns;
    }
}

/* ---- tensors ---- */

static struct tensor_segments segments_of(const struct sharder *sharder, const struct node *node,
                                          const struct share *share) {
    struct tensor_segments none = {0};
    for (int i = 0; i < OP_OPERANDS_MAX; i++) {
        const struct tensor *tensor = i < OP_INPUTS_MAX ? node->in[i] : node->out[i - OP_INPUTS_MAX];
        if (!tensor || tensor->kind != TENSOR_ACTIVATION) continue;
        const struct tensor_segments *segments = &sharder->choices->segments[tensor->id];
        if (segments->count > 0 && part_of_operand(share, i) == tensor->shape.rank - 1) return *segments;
    }
    return none;
}

static struct tensor *make_plain(struct sharder *sharder, const struct tensor *from, const struct shape *shape) {
    struct tensor *made =
        graph_parameter(sharder->graph, from->name, shape->rank, shape->dims[0], shape->rank > 1 ? shape->dims[1] : 1);
    if (!made) return NULL;
    made->trainable = from->trainable;
    made->decays = from->decays;
    made->updated_whole = from->updated_whole;
    return made;
}

/* In fewer bits. */
static struct tensor *make_coded(struct sharder *sharder, const struct tensor *from, const struct shape *shape,
                                 int dimension) {
    struct weight_code code = from->code;
    code.values = *shape;
    if (dimension != WHOLE) code.format = weight_part_format(code.format);
    return graph_coded_parameter(sharder->graph, from->name, &code);
}

static void refuse_blocks(struct sharder *sharder, const struct tensor *from) {
    const struct weight_layout layout = weight_code_layout(&from->code);
    sharder->graph->status = status_hint(
        status_set(STATUS_BAD_INPUT,
                   "tensor: %s: blocks of %lld numbers of %s would lie across the parts of %lld ranks", from->name,
                   (long long)layout.block, weight_format_name(layout.format), (long long)sharder->group.parts),
        "fewer ranks for --tensor; or --base-dtype int8, whose rows may be cut; or leave --tensor out: "
        "--partition cuts such weights too");
}

static struct tensor *make_parameter(struct sharder *sharder, const struct tensor *from, int dimension,
                                     struct tensor_segments segments) {
    const struct shape *whole = tensor_values(from);
    struct shape shape = *whole;
    bool coded = from->code.format != WEIGHT_PLAIN;
    if (dimension != WHOLE)
        shape.dims[dimension] = index_part_size(&(struct index_part){shape.dims[dimension], sharder->group.parts, 0});
    if (coded && !weight_format_fits(from->code.format, from->code.block, shape.dims[1])) {
        refuse_blocks(sharder, from);
        return NULL;
    }
    struct tensor *made = coded ? make_coded(sharder, from, &shape, dimension) : make_plain(sharder, from, &shape);
    if (!made || dimension == WHOLE) return made;
    struct tensor_part *part = scratch_alloc(&sharder->graph->memory, 1, sizeof *part);
    if (part)
        *part = (struct tensor_part){.whole = *whole,
                                     .dimension = dimension,
                                     .segments = segments,
                                     .part = sharder->group.position,
                                     .parts = sharder->group.parts,
                                     .whole_format = from->code.format};
    else
        sharder->graph->status = STATUS_FAILED;
    made->part = part;
    if (part && coded && !weight_part_fits(made)) refuse_blocks(sharder, from);
    return made;
}

static bool same_part(const struct tensor_part *part, struct tensor_segments segments) {
    return !part || (part->segments.count == segments.count &&
                     memcmp(part->segments.size, segments.size, sizeof segments.size[0] * (size_t)segments.count) == 0);
}

/* Every use of a parameter cuts it alike. */
static enum status take_parameter(struct sharder *sharder, const struct node *node, int k, const struct share *share,
                                  struct tensor **out) {
    const struct tensor *from = node->in[k];
    struct value *value = &sharder->values[from->id];
    int dimension = part_of_operand(share, k);
    bool whole_of_all = is_added_later(share, k) && part_of_sum(share) == WHOLE;
    bool whole_of_part = share->index != OP_INDEX_NONE && dimension == WHOLE && !whole_of_all;
    struct tensor_segments segments =
        dimension == WHOLE ? (struct tensor_segments){0} : segments_of(sharder, node, share);
    bool first = !value->own;
    if (first) *value = (struct value){make_parameter(sharder, from, dimension, segments), dimension, {0}, NULL};
    if (!value->own) return graph_status(sharder->graph);
    if (first) value->own->partial_gradient = whole_of_part;
    if (value->dimension != dimension || !same_part(value->own->part, segments) ||
        value->own->partial_gradient != whole_of_part)
        return status_set(STATUS_BAD_INPUT, "tensor: %s: its uses would have other parts of it", from->name);
    *out = value->own;
    return STATUS_OK;
}

/* Columns of what is cut by columns are the same columns of each part. */
static struct tensor *make_view(struct sharder *sharder, const struct tensor *from, const struct value *base) {
    bool columns = base->dimension == from->shape.rank - 1;
    int64_t parts = columns ? sharder->group.parts : 1;
    return graph_view(sharder->graph, base->own, from->base_column / parts, shape_columns(&from->shape) / parts);
}

static struct value *value_of(struct sharder *sharder, const struct tensor *tensor) {
    struct value *value = &sharder->values[tensor->id];
    if (value->own) return value;
    *value = (struct value){.dimension = WHOLE};
    if (tensor->base) {
        const struct value *base = value_of(sharder, tensor->base);
        *value = (struct value){make_view(sharder, tensor, base), base->dimension, {0}, NULL};
    } else if (tensor->kind == TENSOR_INPUT || tensor->kind == TENSOR_RESULT || !tensor->producer) {
        value->own = graph_tensor(sharder->graph, tensor->kind, tensor->name, tensor->shape);
    } else {
        BUG_IF(sharder->graph->status == STATUS_OK, "%s is used before it is made", tensor->name);
    }
    return value;
}

/* Parts of several segments, side by side, are not the whole one after the other. */
static bool is_cut_in_segments(const struct sharder *sharder, const struct tensor *tensor, int dimension) {
    return dimension == tensor->shape.rank - 1 && sharder->choices->segments[tensor->id].count > 1;
}

static struct tensor *convert(struct sharder *sharder, const struct tensor *tensor, struct value *value, int dimension,
                              bool partial) {
    struct graph *graph = sharder->graph;
    const char *name = graph_format(graph, "%s.%s", tensor->name,
                                    value->dimension == dimension ? "shared"
                                    : dimension == WHOLE          ? "whole"
                                                                  : "part");
    if (value->dimension == dimension) return ops_copy_in(graph, name, value->own, sharder->group);
    if (is_cut_in_segments(sharder, tensor, value->dimension) || is_cut_in_segments(sharder, tensor, dimension)) {
        graph->status = status_set(STATUS_BAD_INPUT,
                                   "tensor: %s: its columns are cut in segments, which only its views "
                                   "have in order",
                                   tensor->name);
        return NULL;
    }
    struct layout_step step = {.action = dimension == WHOLE          ? LAYOUT_GATHER
                                         : value->dimension == WHOLE ? LAYOUT_CUT
                                                                     : LAYOUT_ALL_TO_ALL,
                               .from = value->dimension,
                               .to = dimension};
    return conversion_add_step(graph, name, value->own, sharder->group, &step, partial);
}

/* The tensor in parts along the dimension, or whole; `shared`: whole, for nodes each of which gives it a part of its
 * gradient. */
static struct tensor *in_layout(struct sharder *sharder, const struct tensor *tensor, int dimension, bool shared) {
    struct value *value = value_of(sharder, tensor);
    bool learns = sharder->learns[tensor->base ? tensor->base->id : tensor->id];
    bool partial = shared && learns;
    if (value->dimension == dimension && !partial) return value->own;
    struct tensor **made = partial ? &value->shared : &value->converted[1 + dimension];
    if (!*made) *made = convert(sharder, tensor, value, dimension, partial);
    return *made;
}

/* ---- nodes ---- */

static enum status take_inputs(struct sharder *sharder, const struct node *node, const struct share *share,
                               struct tensor *in[OP_INPUTS_MAX]) {
    for (int k = 0; k < OP_INPUTS_MAX; k++) {
        const struct tensor *tensor = node->in[k];
        int dimension = part_of_operand(share, k);
        if (!tensor) continue;
        if (tensor->kind == TENSOR_PARAMETER)
            TRY(take_parameter(sharder, node, k, share, &in[k]));
        else if (is_added_later(share, k))
            in[k] = in_layout(sharder, tensor, part_of_sum(share), false);
        else
            in[k] = in_layout(sharder, tensor, dimension, share->index != OP_INDEX_NONE && dimension == WHOLE);
    }
    return STATUS_OK;
}

/* What the operator adds to its sums, which ranks have just made. */
static struct tensor *add_later(struct sharder *sharder, const struct node *node, struct tensor *sum,
                                struct tensor *const later[OP_INPUTS_MAX]) {
    struct tensor *bias = NULL, *residual = NULL;
    for (int k = 0; k < OP_INPUTS_MAX; k++) {
        if (later[k] && later[k]->kind == TENSOR_PARAMETER) bias = later[k];
        if (later[k] && later[k]->kind != TENSOR_PARAMETER) residual = later[k];
    }
    const char *name = graph_format(sharder->graph, "%s.sum", node->name);
    if (bias) return ops_add_bias(sharder->graph, name, sum, bias, residual);
    return residual ? ops_add(sharder->graph, name, sum, residual) : sum;
}

/* A result's parts are added where it is read, once a step. */
static struct tensor *finish_sum(struct sharder *sharder, const struct node *node, const struct share *share,
                                 struct tensor *part, struct tensor *const later[OP_INPUTS_MAX]) {
    struct graph *graph = sharder->graph;
    const char *name = graph_format(graph, "%s.reduced", node->name);
    int dimension = part_of_sum(share);
    if (part->kind == TENSOR_RESULT) {
        part->partial_result = true;
        return part;
    }
    struct tensor *sum = dimension == WHOLE ? ops_reduce_out(graph, name, part, sharder->group)
                                            : ops_scatter(graph, name, part, sharder->group, dimension);
    return add_later(sharder, node, sum, later);
}

/* Blocks begin in the order in which nodes reach them. */
static void begin_blocks(struct sharder *sharder, int block) {
    const struct graph *from = sharder->from;
    while (sharder->graph->status == STATUS_OK && (int)sharder->graph->blocks.count <= block &&
           sharder->graph->blocks.count < from->blocks.count)
        graph_begin_block(sharder->graph, from->blocks.items[sharder->graph->blocks.count]);
}

static void take_outputs(struct sharder *sharder, const struct node *node, const struct share *share,
                         const struct node *made, struct tensor *first) {
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) {
        if (!node->out[i]) continue;
        struct value *value = &sharder->values[node->out[i]->id];
        int dimension = i == 0 && sums(share) ? part_of_sum(share) : part_of_operand(share, OP_INPUTS_MAX + i);
        *value = (struct value){i == 0 ? first : made->out[i], dimension, {0}, NULL};
    }
}

/* The node's attributes become those of its part; what it needs of others' is made. */
static void take_index(struct sharder *sharder, const struct node *node, struct share *share, void *attributes,
                       struct tensor *in[OP_INPUTS_MAX]) {
    if (share->index == OP_INDEX_NONE) return;
    struct index_part part = index_part_of(sharder, share);
    char letter = share->loops.indices[share->index].letter;
    if (node->op->take_part) node->op->take_part(attributes, letter, &part);
    if (node->op->tell_parts)
        share->told = node->op->tell_parts(sharder->graph, node->name, letter, &part, attributes, in);
}

/* Results, which nodes add to, and caches, of the shape that the node's part has. */
static enum status make_targets(struct sharder *sharder, const struct node *node, const struct node *part,
                                struct tensor *into[OP_OUTPUTS_MAX]) {
    struct shape shapes[OP_OUTPUTS_MAX] = {0};
    bool caches = node->out[1] && node->out[1]->kind == TENSOR_CACHE;
    if (caches) TRY(node->op->infer(part, shapes));
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) {
        if (node->out[i] && node->out[i]->kind == TENSOR_RESULT) into[i] = value_of(sharder, node->out[i])->own;
        if (node->out[i] && node->out[i]->kind == TENSOR_CACHE)
            into[i] = graph_tensor(sharder->graph, TENSOR_CACHE, node->out[i]->name, shapes[i]);
    }
    return STATUS_OK;
}

static enum status shard_node(struct sharder *sharder, const struct node *node) {
    const struct shard_choice *choice = &sharder->choices->nodes[node->id];
    struct share share = {.index = OP_INDEX_NONE};
    struct tensor *in[OP_INPUTS_MAX] = {0}, *later[OP_INPUTS_MAX] = {0}, *into[OP_OUTPUTS_MAX] = {0};
    char attributes[OP_ATTRIBUTES_MOST_BYTES];
    begin_blocks(sharder, node->block);
    if (op_loops_of(node, choice->way, &share.loops)) share.index = choice->index, share.positions = choice->positions;
    TRY(take_inputs(sharder, node, &share, in));
    for (int k = 0; k < OP_INPUTS_MAX; k++)
        if (is_added_later(&share, k)) later[k] = in[k], in[k] = NULL;
    memcpy(attributes, node->attributes, node->op->attribute_bytes);
    take_index(sharder, node, &share, attributes, in);
    struct node part = {.op = node->op, .name = node->name, .attributes = attributes};
    memcpy(part.in, in, sizeof part.in);
    TRY(graph_status(sharder->graph));
    TRY(make_targets(sharder, node, &part, into));
    struct node *made = graph_add(sharder->graph, node->op, node->name, in, attributes, into);
    if (!made) return graph_status(sharder->graph);
    struct tensor *first = sums(&share) ? finish_sum(sharder, node, &share, made->out[0], later) : made->out[0];
    take_outputs(sharder, node, &share, made, first);
    return graph_status(sharder->graph);
}

static enum status shard_nodes(struct sharder *sharder) {
    for (size_t n = 0; n < sharder->from->nodes.count; n++)
        TRY(shard_node(sharder, sharder->from->nodes.items[n]));
    return STATUS_OK;
}

/* The tensor whole, without what filled up its last parts. */
static struct tensor *whole_of(struct sharder *sharder, const struct tensor *tensor) {
    struct tensor *whole = in_layout(sharder, tensor, WHOLE, false);
    if (!whole || shape_equal(&whole->shape, &tensor->shape)) return whole;
    struct tensor *used = graph_view(sharder->graph, whole, 0, shape_columns(&tensor->shape));
    const char *name = graph_format(sharder->graph, "%s.used", tensor->name);
    return used ? chain_convert(sharder->graph, name, used, tensor->shape) : NULL;
}

enum status layout_shard_graph(const struct graph *graph, const struct shard_choices *choices, int64_t position,
                               bool trains, const struct tensor *last, struct graph **out, struct tensor **out_last) {
    struct sharder sharder = {.from = graph,
                              .choices = choices,
                              .group = {choices->parts, position, 0, choices->zigzag},
                              .graph = graph_create(graph->dtype, graph->grain_sequences, graph->sequence_length),
                              .values = mem_array(graph->tensors.count, sizeof *sharder.values),
                              .learns = mem_array(graph->tensors.count, sizeof *sharder.learns)};
    enum status status = sharder.graph && sharder.values && sharder.learns ? STATUS_OK : STATUS_FAILED;
    if (status == STATUS_OK && trains) find_learning(&sharder);
    if (status == STATUS_OK) status = shard_nodes(&sharder);
    if (status == STATUS_OK) *out_last = whole_of(&sharder, last), status = graph_status(sharder.graph);
    if (status == STATUS_OK)
        (*out_last)->kept = last->kept, (*out_last)->name = graph_format(sharder.graph, "%s", last->name);
    mem_free(sharder.values);
    mem_free(sharder.learns);
    *out = sharder.graph;
    if (status != STATUS_OK) graph_free(sharder.graph), *out = NULL;
    return status;
}
