#include "plan/layout/shard_choice.h"

#include "ir/weight_format.h"

struct group_part conversion_step_part(const struct device_mesh *mesh, const struct layout_step *step, int64_t device) {
    int64_t place[DEVICE_MESH_AXES_MAX], stride = 1;
    device_mesh_place(mesh, device, place);
    for (int axis = step->axis + 1; axis < mesh->axes; axis++)
        stride *= mesh->sizes[axis];
    return (struct group_part){.parts = mesh->sizes[step->axis], .position = place[step->axis], .stride = stride};
}

struct tensor *conversion_add_step(struct graph *graph, const char *name, struct tensor *x, struct group_part part,
                                   const struct layout_step *step, bool partial) {
    switch (step->action) {
    case LAYOUT_GATHER: return ops_gather(graph, name, x, part, step->from, partial);
    case LAYOUT_ALL_TO_ALL: return ops_all_to_all(graph, name, x, part, step->from, step->to);
    case LAYOUT_CUT: return ops_cut(graph, name, x, part, step->to);
    }
    BUG("a step of no kind");
}

/* A hint lists at most this many rank counts. */
enum { RANKS_LISTED = 64, RANKS_TEXT = 64 };

struct converted {
    struct reading reading;
    struct tensor *tensor;
    struct converted *next;
};
/* A tensor of the one rank's graph, as this rank has it. */
struct value {
    struct tensor *own; /* NULL: not made yet */
    struct layout layout;
    unsigned partial;            /* parameters: as a reading's */
    unsigned apart;              /* axes whose ranks keep their parts of the sum that it, or its gradient, is */
    struct converted *converted; /* the same otherwise */
};

struct sharder {
    const struct graph *from;
    const struct shard_choices *choices;
    int64_t position; /* this rank's, of choices->parts */
    struct graph *graph;
    struct value *values; /* by tensor id of `from` */
    bool *learns;         /* by the same: a gradient flows to it */
    struct conversion_cache conversions;
};

/* ---- axes ---- */

static int axis_count(const struct sharder *sharder) { return sharder->choices->mesh.axes; }
static unsigned all_axes(const struct sharder *sharder) { return device_mesh_all_axes(&sharder->choices->mesh); }

/* The ranks along some axes: all of the group, or those of one axis. */
static struct group_part group_of(const struct sharder *sharder, unsigned axes) {
    const struct shard_choices *choices = sharder->choices;
    if (axes == all_axes(sharder)) return (struct group_part){choices->parts, sharder->position, 0, choices->zigzag};
    struct layout_step along = {.axis = __builtin_ctz(axes)};
    struct group_part part = conversion_step_part(&choices->mesh, &along, sharder->position);
    part.zigzag = choices->zigzag;
    return part;
}

static struct group_axis group_axis_of(const struct sharder *sharder, unsigned axes) {
    struct group_part part = group_of(sharder, axes);
    return (struct group_axis){part.parts, part.stride};
}

/* Conversions along several axes happen at once along all of them, or along one after the other. Returns the next axes
 * of `left`, or none at the end. */
static unsigned next_axes(const struct sharder *sharder, unsigned left) {
    return left == all_axes(sharder) ? left : left & -left;
}

/* As differentiation has it (ir/differentiate.c): activations that come from elsewhere want their gradients. */
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

/* Segments of the columns that an axis cuts. */
static struct tensor_segments segments_of(const struct sharder *sharder, const struct node *node,
                                          const struct share *share, int axis) {
    struct tensor_segments none = {0};
    for (int i = 0; i < OP_OPERANDS_MAX; i++) {
        const struct tensor *tensor = i < OP_INPUTS_MAX ? node->in[i] : node->out[i - OP_INPUTS_MAX];
        if (!tensor || tensor->kind != TENSOR_ACTIVATION) continue;
        const struct tensor_segments *segments = &sharder->choices->segments[tensor->id];
        if (segments->count > 0 && share_part_of_operand(share, axis, i) == tensor->shape.rank - 1) return *segments;
    }
    return none;
}

/* The axes that cut a dimension, and all that cut any. */
static unsigned cutting_axes(const struct layout *layout) {
    unsigned axes = 0;
    for (int axis = 0; axis < SHARD_AXES_MAX; axis++)
        axes |= (unsigned)(layout->dimension[axis] != WHOLE) << axis;
    return axes;
}

/* This rank's part of a parameter, by its layout. */
static struct tensor_part part_of_parameter(const struct sharder *sharder, const struct node *node,
                                            const struct share *share, const struct tensor *from,
                                            const struct layout *layout) {
    unsigned cutting = cutting_axes(layout), left = cutting, others = all_axes(sharder) & ~cutting;
    struct tensor_part part = {.whole = *tensor_values(from),
                               .whole_format = from->code.format,
                               .axis = group_axis_of(sharder, cutting),
                               .copies = 1};
    if (others) part.copies = group_of(sharder, others).parts, part.copy = group_of(sharder, others).position;
    while (left) {
        int axis = __builtin_ctz(left);
        unsigned axes = layout_axes_of(layout, layout->dimension[axis]);
        struct group_part group = group_of(sharder, axes);
        part.cuts[part.count++] = (struct tensor_cut){.dimension = layout->dimension[axis],
                                                      .segments = segments_of(sharder, node, share, axis),
                                                      .part = group.position,
                                                      .parts = group.parts};
        left &= ~axes;
    }
    return part;
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
static struct tensor *make_quantized(struct sharder *sharder, const struct tensor *from, const struct shape *shape,
                                     bool is_part) {
    struct weight_code code = from->code;
    code.values = *shape;
    if (is_part) code.format = weight_part_format(code.format);
    return graph_quantized_parameter(sharder->graph, from->name, &code);
}

/* Whether blocks lie within the parts of so many ranks, which cut a weight as `is` does. */
static bool fits_ranks(const struct tensor *from, const struct tensor_part *is, int64_t ranks) {
    struct tensor tensor = *from;
    struct tensor_part part = *is;
    int64_t *size = &tensor.code.values.dims[part.cuts[0].dimension];
    if (*size % ranks != 0) return false;
    *size /= ranks;
    part.cuts[0].part = 0, part.cuts[0].parts = ranks;
    tensor.code.format = weight_part_format(from->code.format);
    tensor.part = &part;
    return weight_format_fits(from->code.format, from->code.block, tensor.code.values.dims[1]) &&
           weight_part_fits(&tensor);
}

/* The numbers of ranks that would do, as "2, 4"; "1" where none but that does. */
static void print_ranks_that_fit(const struct tensor *from, const struct tensor_part *is, char text[RANKS_TEXT]) {
    size_t used = 0;
    for (int64_t ranks = 2; is->count == 1 && ranks <= RANKS_LISTED && used + RANKS_TEXT / 8 < RANKS_TEXT; ranks++)
        if (fits_ranks(from, is, ranks))
            used += (size_t)snprintf(text + used, RANKS_TEXT - used, "%s%lld", used > 0 ? ", " : "", (long long)ranks);
    if (used == 0) snprintf(text, RANKS_TEXT, "1");
}

static struct tensor *refuse_blocks(struct sharder *sharder, const struct tensor *from, const struct tensor_part *is) {
    const struct weight_layout layout = weight_code_layout(&from->code);
    char ranks[RANKS_TEXT];
    print_ranks_that_fit(from, is, ranks);
    sharder->graph->status = status_set(
        STATUS_BAD_INPUT,
        "tensor-parallel: %s: blocks of %lld numbers of %s would lie across the parts of ranks" HINT
        "its blocks stay whole with --tensor-parallel %s; or --quantize-base int8, whose rows may be cut; or leave "
        "--tensor-parallel out: "
        "--partition cuts such weights too",
        from->name, (long long)layout.block, weight_format_name(layout.format), ranks);
    return NULL;
}

static struct tensor *make_parameter(struct sharder *sharder, const struct tensor *from, const struct tensor_part *is) {
    struct shape shape = *tensor_values(from);
    bool quantized = from->code.format != WEIGHT_PLAIN;
    for (int c = 0; is && c < is->count; c++) {
        int64_t *size = &shape.dims[is->cuts[c].dimension];
        *size = index_part_size(&(struct index_part){.size = *size, .parts = is->cuts[c].parts});
    }
    if (is && quantized && !weight_format_fits(from->code.format, from->code.block, shape.dims[1]))
        return refuse_blocks(sharder, from, is);
    struct tensor *made =
        quantized ? make_quantized(sharder, from, &shape, is != NULL) : make_plain(sharder, from, &shape);
    if (made && from->stack.name)
        graph_stack(sharder->graph, made, from->stack.name, from->stack.index, from->stack.count);
    if (!made || !is) return made;
    struct tensor_part *part = scratch_alloc(&sharder->graph->memory, 1, sizeof *part);
    if (part)
        *part = *is;
    else
        sharder->graph->status = STATUS_FAILED;
    made->part = part;
    if (part && quantized && !weight_part_fits(made)) refuse_blocks(sharder, from, is);
    return made;
}

/* Whether two parts have one layout. */
static bool same_part(const struct tensor_part *a, const struct tensor_part *b) {
    for (int c = 0; a && b && c < a->count; c++)
        if (!tensor_segments_equal(&a->cuts[c].segments, &b->cuts[c].segments)) return false;
    return true;
}

/* Every use of a parameter cuts it alike. */
static enum status take_parameter(struct sharder *sharder, const struct node *node, int k, const struct share *share,
                                  struct tensor **out) {
    const struct tensor *from = node->in[k];
    struct value *value = &sharder->values[from->id];
    struct reading reading = share_reading_of_parameter(share, k);
    struct tensor_part part = {.count = 0}, *is = NULL;
    if (cutting_axes(&reading.layout))
        part = part_of_parameter(sharder, node, share, from, &reading.layout), is = &part;
    bool first = !value->own;
    if (first) *value = (struct value){make_parameter(sharder, from, is), reading.layout, reading.partial, 0, NULL};
    if (!value->own) return graph_status(sharder->graph);
    if (first && reading.partial) value->own->gradient_parts = group_axis_of(sharder, reading.partial);
    if (!layout_equal(&value->layout, &reading.layout) || !same_part(value->own->part, is) ||
        value->partial != reading.partial)
        return status_set(STATUS_BAD_INPUT, "tensor-parallel: %s: its uses would have other parts of it", from->name);
    *out = value->own;
    return STATUS_OK;
}

/* A view of a tensor that is cut by columns has the same columns of each part. */
static struct tensor *make_view(struct sharder *sharder, const struct tensor *from, const struct value *base) {
    int64_t parts = layout_parts(&base->layout, &sharder->choices->mesh, from->shape.rank - 1);
    return graph_view(sharder->graph, base->own, from->base_column / parts, shape_columns(&from->shape) / parts);
}

static struct value *value_of(struct sharder *sharder, const struct tensor *tensor) {
    struct value *value = &sharder->values[tensor->id];
    if (value->own) return value;
    *value = (struct value){.layout = layout_replicated()};
    if (tensor->base) {
        const struct value *base = value_of(sharder, tensor->base);
        *value = (struct value){make_view(sharder, tensor, base), base->layout, 0, base->apart, NULL};
    } else if (tensor->kind == TENSOR_INPUT || tensor->kind == TENSOR_RESULT || !tensor->producer) {
        value->own = graph_tensor(sharder->graph, tensor->kind, tensor->name, tensor->shape);
    } else {
        BUG_IF(sharder->graph->status == STATUS_OK, "%s is used before it is made", tensor->name);
    }
    return value;
}

/* Parts of several segments, side by side, are not the whole one after the other. */
static enum status check_segments(const struct sharder *sharder, const struct tensor *tensor,
                                  const struct layout_step *step) {
    int columns = tensor->shape.rank - 1;
    bool moves = step->from == columns || step->to == columns;
    if (!moves || sharder->choices->segments[tensor->id].count <= 1) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT,
                      "tensor-parallel: %s: its columns are cut in segments, which only its views have in order",
                      tensor->name);
}

/* A tensor on its way from one layout to another. */
struct conversion {
    struct sharder *sharder;
    const struct tensor *tensor;
    struct reading to;
    struct tensor *at;
    int steps;
};

/* The tensor's name after a step: "x.shared", "x.whole" or "x.part" along one axis, else for example "x.S0RR.0" with
 * the partial axes. Names are the same on all ranks, which match tensors by name. */
static const char *name_of_step(const struct conversion *conversion, const char *of_one_axis) {
    struct graph *graph = conversion->sharder->graph;
    char text[LAYOUT_TEXT];
    if (axis_count(conversion->sharder) == 1)
        return graph_format(graph, "%s.%s", conversion->tensor->name, of_one_axis);
    layout_print(&conversion->to.layout, conversion->tensor->shape.rank, text);
    return graph_format(graph, "%s.%s.%u.%d", conversion->tensor->name, text, conversion->to.partial,
                        conversion->steps);
}

static enum status take_step(struct conversion *conversion, const struct layout_step *step, unsigned axes,
                             bool partial) {
    struct sharder *sharder = conversion->sharder;
    static const char *const names[] = {[LAYOUT_GATHER] = "whole", [LAYOUT_ALL_TO_ALL] = "part", [LAYOUT_CUT] = "part"};
    TRY(check_segments(sharder, conversion->tensor, step));
    conversion->at = conversion_add_step(sharder->graph, name_of_step(conversion, names[step->action]), conversion->at,
                                         group_of(sharder, axes), step, partial);
    conversion->steps++;
    return graph_status(sharder->graph);
}

/* Gradients that are parts of a sum are added on the way back, before what is cut is put together. */
static void share_copies(struct conversion *conversion, unsigned axes) {
    for (unsigned now; axes; axes &= ~now, conversion->steps++) {
        now = next_axes(conversion->sharder, axes);
        conversion->at = ops_copy_in(conversion->sharder->graph, name_of_step(conversion, "shared"), conversion->at,
                                     group_of(conversion->sharder, now));
    }
}

/* All axes have the same dimension, or none. */
static bool is_flat(const struct sharder *sharder, const struct layout *layout) {
    unsigned axes = cutting_axes(layout);
    return axes == 0 || layout_axes_of(layout, layout->dimension[__builtin_ctz(axes)]) == all_axes(sharder);
}

static enum status go_at_once(struct conversion *conversion, const struct layout *from) {
    int before = from->dimension[0], after = conversion->to.layout.dimension[0];
    struct layout_step step = {.action = after == WHOLE    ? LAYOUT_GATHER
                                         : before == WHOLE ? LAYOUT_CUT
                                                           : LAYOUT_ALL_TO_ALL,
                               .from = before,
                               .to = after};
    return take_step(conversion, &step, all_axes(conversion->sharder), conversion->to.partial != 0);
}

/* Whether a later step of the way gathers along the axis too. */
static bool gathers_again(const struct conversion_step *steps, int count, int axis) {
    for (int i = 0; i < count; i++)
        if (steps[i].step.axis == axis && steps[i].step.action == LAYOUT_GATHER) return true;
    return false;
}

/* Sizes of a tensor whose last parts are filled up. */
static struct layout_shape filled_up(const struct sharder *sharder, const struct tensor *tensor,
                                     const struct layout *layout) {
    struct layout_shape shape = {.rank = tensor->shape.rank};
    for (int d = 0; d < shape.rank; d++) {
        int64_t parts = layout_parts(layout, &sharder->choices->mesh, d);
        shape.dims[d] = (tensor->shape.dims[d] + parts - 1) / parts * parts;
    }
    return shape;
}

static enum status go_by_steps(struct conversion *conversion, const struct layout *from) {
    struct sharder *sharder = conversion->sharder;
    const struct conversions *ways;
    struct conversion_step steps[CONVERSION_STEPS_MAX];
    struct layout_shape shape = filled_up(sharder, conversion->tensor, from);
    TRY(conversion_cache_find(&sharder->conversions, &shape, dtype_bytes(conversion->tensor->shape.dtype), &ways));
    int count = conversions_path(ways, from, &conversion->to.layout, steps);
    if (count == 0)
        return status_set(STATUS_BAD_INPUT, "tensor-parallel: %s: has no parts of one size along two axes of ranks",
                          conversion->tensor->name);
    for (int i = 0; i < count; i++) {
        const struct layout_step *step = &steps[i].step;
        bool last = step->action == LAYOUT_GATHER && !gathers_again(steps + i + 1, count - i - 1, step->axis);
        TRY(take_step(conversion, step, 1u << step->axis, last && (conversion->to.partial >> step->axis & 1)));
    }
    return STATUS_OK;
}

static struct tensor *convert(struct sharder *sharder, const struct tensor *tensor, const struct value *value,
                              const struct reading *to) {
    struct conversion conversion = {sharder, tensor, *to, value->own, 0};
    unsigned copies = to->partial & ~cutting_axes(&value->layout), kept = to->partial & ~copies;
    bool flat = is_flat(sharder, &value->layout) && is_flat(sharder, &to->layout);
    enum status status = STATUS_OK;
    share_copies(&conversion, copies);
    conversion.to.partial = kept;
    if (!layout_equal(&value->layout, &to->layout))
        status = flat && (kept == 0 || kept == all_axes(sharder)) ? go_at_once(&conversion, &value->layout)
                                                                  : go_by_steps(&conversion, &value->layout);
    if (status != STATUS_OK) sharder->graph->status = status;
    return conversion.at;
}

/* The tensor as a node reads it. */
static struct tensor *in_layout(struct sharder *sharder, const struct tensor *tensor, struct reading reading) {
    struct value *value = value_of(sharder, tensor);
    if (!sharder->learns[tensor->base ? tensor->base->id : tensor->id]) reading.partial = 0;
    if (layout_equal(&value->layout, &reading.layout) && !reading.partial) return value->own;
    struct converted *made = value->converted;
    while (made && (!layout_equal(&made->reading.layout, &reading.layout) || made->reading.partial != reading.partial))
        made = made->next;
    if (made) return made->tensor;
    made = scratch_alloc(&sharder->graph->memory, 1, sizeof *made);
    if (!made) {
        sharder->graph->status = STATUS_FAILED;
        return NULL;
    }
    *made = (struct converted){reading, convert(sharder, tensor, value, &reading), value->converted};
    value->converted = made;
    return made->tensor;
}

/* ---- nodes ---- */

/* A tensor that ranks keep apart may only go to nodes that accept it so. */
static enum status check_apart(struct sharder *sharder, const struct node *node, const struct share *share, int k) {
    if (value_of(sharder, node->in[k])->apart == share_apart_axes(share, k)) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "tensor-parallel: %s: ranks have other parts of the work of %s", node->name,
                      node->in[k]->name);
}

static enum status take_inputs(struct sharder *sharder, const struct node *node, const struct share *share,
                               struct tensor *in[OP_INPUTS_MAX]) {
    for (int k = 0; k < OP_INPUTS_MAX; k++) {
        const struct tensor *tensor = node->in[k];
        if (!tensor) continue;
        if (tensor->kind == TENSOR_PARAMETER) {
            TRY(take_parameter(sharder, node, k, share, &in[k]));
            continue;
        }
        TRY(check_apart(sharder, node, share, k));
        in[k] = in_layout(sharder, tensor, share_reading_of(share, k));
    }
    return STATUS_OK;
}

/* Adds the operator's addend after the ranks have summed. */
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

/* The sum along some axes: scattered by the axes that leave positions cut, then whole on the others. */
static struct tensor *add_up(struct sharder *sharder, const struct node *node, const struct share *share,
                             struct tensor *sum) {
    struct graph *graph = sharder->graph;
    unsigned summed = share_summed_axes(share), scattered = 0, now;
    bool one = axis_count(sharder) == 1;
    const char *name = graph_format(graph, "%s.reduced", node->name);
    for (int axis = 0; axis < SHARD_AXES_MAX; axis++)
        scattered |= (unsigned)(share_part_of_sum(share, axis) != WHOLE) << axis & summed;
    for (unsigned left = scattered; left; left &= ~now) {
        now = next_axes(sharder, left);
        const char *own = one ? name : graph_format(graph, "%s.%u", name, now);
        sum = ops_scatter(graph, own, sum, group_of(sharder, now), share_part_of_sum(share, __builtin_ctz(now)));
    }
    for (unsigned left = summed & ~scattered; left; left &= ~now) {
        now = next_axes(sharder, left);
        sum = ops_reduce_out(graph, one ? name : graph_format(graph, "%s.%u", name, now), sum, group_of(sharder, now));
    }
    return sum;
}

/* A result's parts are added where it is read, once a step. */
static struct tensor *finish_sum(struct sharder *sharder, const struct node *node, const struct share *share,
                                 struct tensor *part, struct tensor *const later[OP_INPUTS_MAX]) {
    if (part->kind == TENSOR_RESULT) {
        part->result_parts = group_axis_of(sharder, share_summed_axes(share));
        return part;
    }
    return add_later(sharder, node, add_up(sharder, node, share, part), later);
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
        struct layout layout = layout_replicated();
        for (int axis = 0; axis < SHARD_AXES_MAX; axis++) {
            bool sum = i == 0 && (share_summed_axes(share) >> axis & 1);
            layout.dimension[axis] =
                (int8_t)(sum ? share_part_of_sum(share, axis) : share_part_of_operand(share, axis, OP_INPUTS_MAX + i));
        }
        sharder->values[node->out[i]->id] =
            (struct value){i == 0 ? first : made->out[i], layout, 0, share_apart_axes(share, OP_INPUTS_MAX + i), NULL};
    }
}

/* The node's attributes become those of its part; what it needs of others' is made. */
static void take_indices(struct sharder *sharder, const struct node *node, struct share *share, void *attributes,
                         struct tensor *in[OP_INPUTS_MAX]) {
    struct index_part parts[OP_INDICES_MAX];
    for (int i = 0; i < share->loops.count; i++) {
        unsigned axes = share_axes_with(share, i);
        if (!axes) continue;
        struct group_part group = group_of(sharder, axes);
        parts[i] = (struct index_part){share->loops.indices[i].size, group.parts, group.position, group.stride};
        if (node->op->take_part) node->op->take_part(attributes, share->loops.indices[i].letter, &parts[i]);
    }
    for (int i = 0; i < share->loops.count && node->op->collective_parts; i++) {
        unsigned axes = share_axes_with(share, i);
        char letter = share->loops.indices[i].letter;
        if (axes && node->op->collective_parts(sharder->graph, node->name, letter, &parts[i], attributes, in))
            share->combined |= axes;
    }
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
    struct share share = {.index = {OP_INDEX_NONE, OP_INDEX_NONE}};
    struct tensor *in[OP_INPUTS_MAX] = {0}, *later[OP_INPUTS_MAX] = {0}, *into[OP_OUTPUTS_MAX] = {0};
    char attributes[OP_ATTRIBUTES_BYTES_MAX];
    begin_blocks(sharder, node->block);
    if (op_loops_of(node, choice->way, &share.loops)) {
        memcpy(share.index, choice->index, sizeof share.index);
        memcpy(share.positions, choice->positions, sizeof share.positions);
    }
    TRY(take_inputs(sharder, node, &share, in));
    for (int k = 0; k < OP_INPUTS_MAX; k++)
        if (share_is_added_later(&share, k)) later[k] = in[k], in[k] = NULL;
    memcpy(attributes, node->attributes, node->op->attribute_bytes);
    take_indices(sharder, node, &share, attributes, in);
    struct node part = {.op = node->op, .name = node->name, .attributes = attributes};
    memcpy(part.in, in, sizeof part.in);
    TRY(graph_status(sharder->graph));
    TRY(make_targets(sharder, node, &part, into));
    struct node *made = graph_add(sharder->graph, node->op, node->name, in, attributes, into);
    if (!made) return graph_status(sharder->graph);
    struct tensor *first =
        share_summed_axes(&share) ? finish_sum(sharder, node, &share, made->out[0], later) : made->out[0];
    take_outputs(sharder, node, &share, made, first);
    return graph_status(sharder->graph);
}

static enum status shard_nodes(struct sharder *sharder) {
    for (size_t n = 0; n < sharder->from->nodes.count; n++)
        TRY(shard_node(sharder, sharder->from->nodes.items[n]));
    return STATUS_OK;
}

/* The whole tensor, without the padding of its last parts. */
static struct tensor *whole_of(struct sharder *sharder, const struct tensor *tensor) {
    struct tensor *whole = in_layout(sharder, tensor, (struct reading){layout_replicated(), 0});
    if (!whole || shape_equal(&whole->shape, &tensor->shape)) return whole;
    struct tensor *used = graph_view(sharder->graph, whole, 0, shape_columns(&tensor->shape));
    const char *name = graph_format(sharder->graph, "%s.used", tensor->name);
    return used ? ops_convert(sharder->graph, name, used, tensor->shape) : NULL;
}

enum status layout_shard_graph(const struct graph *graph, const struct shard_choices *choices, int64_t position,
                               bool trains, const struct tensor *last, struct graph **out, struct tensor **out_last) {
    struct sharder sharder = {.from = graph,
                              .choices = choices,
                              .position = position,
                              .graph = graph_create(graph->dtype, graph->micro_batch_sequences, graph->sequence_length),
                              .values = mem_array(graph->tensors.count, sizeof *sharder.values),
                              .learns = mem_array(graph->tensors.count, sizeof *sharder.learns),
                              .conversions = {.mesh = choices->mesh, .pricer = conversion_price_s}};
    enum status status = sharder.graph && sharder.values && sharder.learns ? STATUS_OK : STATUS_FAILED;
    if (status == STATUS_OK && trains) find_learning(&sharder);
    if (status == STATUS_OK) status = shard_nodes(&sharder);
    if (status == STATUS_OK) *out_last = whole_of(&sharder, last), status = graph_status(sharder.graph);
    if (status == STATUS_OK)
        (*out_last)->kept = last->kept, (*out_last)->name = graph_format(sharder.graph, "%s", last->name);
    conversion_cache_free(&sharder.conversions);
    mem_free(sharder.values);
    mem_free(sharder.learns);
    *out = sharder.graph;
    if (status != STATUS_OK) graph_free(sharder.graph), *out = NULL;
    return status;
}
