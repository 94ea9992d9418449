/* The update: sums and norms of gradients, the clip factor, the parameters'; and adding the nodes of these to a graph.
 */

#include "ir/ops/check.h"

static const struct {
    const struct op *op;
    const char *moments[UPDATE_MOMENTS_MAX];
} rules[] = {[UPDATE_ADAMW] = {&op_adamw, {"exp_avg", "exp_avg_sq"}},
             [UPDATE_LION] = {&op_lion, {"exp_avg"}},
             [UPDATE_SGD] = {&op_sgd, {"momentum_buffer"}},
             [UPDATE_MUON] = {&op_muon, {"momentum_buffer"}}};

const char *update_rule_name(enum update_rule rule) { return rules[rule].op->name; }

enum update_rule update_rule_of(const struct op *op) {
    enum update_rule rule = 0;
    while (rule < UPDATE_RULE_COUNT && rules[rule].op != op)
        rule++;
    return rule;
}

const char *update_rule_moment(enum update_rule rule, int moment) { return rules[rule].moments[moment]; }

int update_rule_moments(enum update_rule rule) {
    int count = 0;
    while (count < UPDATE_MOMENTS_MAX && rules[rule].moments[count])
        count++;
    return count;
}

/* The shape of a gradient, and of a second one if it is present. */
static enum status infer_gradient(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    out[0] = node->in[0]->shape;
    return check_shape(node, 1, out[0]);
}

const struct op op_gradient_sum = {
    .name = "gradient_sum",
    .inputs = 2,
    .outputs = 1,
    .infer = infer_gradient,
    .in_place_input = 1 + 0,
};

int64_t gradient_norm_blocks(int64_t elements) { return (elements + GRADIENT_NORM_BLOCK - 1) / GRADIENT_NORM_BLOCK; }

static enum status infer_squared_sums(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    out[0] = vector_of(DTYPE_F64, gradient_norm_blocks(shape_elements(&node->in[0]->shape)));
    return STATUS_OK;
}

const struct op op_squared_sums = {
    .name = "squared_sums",
    .inputs = 1,
    .outputs = 1,
    .infer = infer_squared_sums,
    .work = OP_WORK_SQUARED_NORM,
    .by_elements = true,
};

/* The norm's square; the norm itself, and the factor. */
static enum status infer_figures(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    out[0] = vector_of(DTYPE_F64, node->op == &op_clip_factor ? 2 : 1);
    return STATUS_OK;
}

const struct op op_squared_norm = {
    .name = "squared_norm",
    .inputs = 1,
    .outputs = 1,
    .infer = infer_figures,
};

const struct op op_clip_factor = {
    .name = "clip_factor",
    .attribute_bytes = sizeof(struct clip_attributes),
    .inputs = 1,
    .outputs = 1,
    .infer = infer_figures,
    .cost_key = op_key_nothing,
};

static struct shape scales_of(const struct shape *moment) {
    int64_t elements = shape_elements(moment);
    return vector_of(DTYPE_F32, (elements + UPDATE_SCALE_BLOCK - 1) / UPDATE_SCALE_BLOCK);
}

/* Output 0 has the parameter's shape; the state's tensors are existing ones, given as outputs. */
static enum status infer_update(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct shape *gradient = &node->in[0]->shape;
    const struct update_attributes *attributes = NODE_ATTRIBUTES(node, update_attributes);
    int moments = update_rule_moments(update_rule_of(node->op));
    TRY(check_shape(node, 1, vector_of(DTYPE_F64, 2)));
    for (int i = 0; i < 1 + moments + attributes->has_master; i++) {
        out[i] = *gradient;
        if (i <= moments) out[i].dtype = i == 0 ? attributes->parameter : attributes->moments;
        if (i > moments && attributes->split_master) out[i].dtype = DTYPE_U16;
    }
    for (int i = 0; i < moments && attributes->moments == DTYPE_U8; i++)
        out[2 + moments + i] = scales_of(gradient);
    return STATUS_OK;
}

/* A parameter that is its master, rounded: of an update rule that keeps a whole master. */
static uint32_t update_overwrites(const struct node *node) {
    const struct update_attributes *attributes = NODE_ATTRIBUTES(node, update_attributes);
    return attributes->has_master && !attributes->split_master ? 1u << 0 : 0;
}

/* FLOPs of five steps on a matrix x [k, l], k <= l: x xt, g g, and their product with x. */
static double muon_flops(const struct node *node) {
    double rows = (double)node->in[0]->shape.dims[0], columns = (double)node->in[0]->shape.dims[1];
    double k = rows < columns ? rows : columns, l = rows < columns ? columns : rows;
    return MUON_STEPS * (4 * k * k * l + 2 * k * k * k);
}

static enum status infer_muon(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    char text[SHAPE_TEXT];
    if (node->in[0]->shape.rank != 2)
        return status_set(STATUS_BAD_INPUT, "input 0 is %s, not a matrix", shape_print(&node->in[0]->shape, text));
    return infer_update(node, out);
}

#define UPDATE_OP(rule, moments, ...)                                                                                  \
    const struct op op_##rule = {                                                                                      \
        .name = #rule,                                                                                                 \
        .attribute_bytes = sizeof(struct update_attributes),                                                           \
        .inputs = 2,                                                                                                   \
        .optional = 1,                                                                                                 \
        .outputs = 2 + 2 * (moments),                                                                                  \
        .cost_key = op_key_nothing,                                                                                    \
        .updates = (1u << (2 + 2 * (moments))) - 1,                                                                    \
        .overwrites = update_overwrites,                                                                               \
        .reads_scalars = true,                                                                                         \
        __VA_ARGS__,                                                                                                   \
    };
UPDATE_OP(adamw, 2, .infer = infer_update, .work = OP_WORK_OPTIMIZER, .by_elements = true)
UPDATE_OP(lion, 1, .infer = infer_update, .work = OP_WORK_OPTIMIZER, .by_elements = true)
UPDATE_OP(sgd, 1, .infer = infer_update, .work = OP_WORK_OPTIMIZER, .by_elements = true)
UPDATE_OP(muon, 1, .infer = infer_muon, .work = OP_WORK_MATRIX_UPDATE, .flops = muon_flops, .by_parameter = true)

const struct op op_gradient_reduce = {
    .name = "gradient_reduce",
    .attribute_bytes = sizeof(struct collective_attributes),
    .inputs = 1,
    .outputs = 1,
    .infer = infer_gradient,
    .collective = OP_COLLECTIVE_ALL_REDUCE,
    .by_elements = true,
    .in_place_input = 1 + 0,
    .updates = 1u << 0,
};

static enum status infer_gather_norms(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    int64_t parts = NODE_ATTRIBUTES(node, collective_attributes)->part.parts;
    out[0] = vector_of(DTYPE_F64, parts * shape_elements(&node->in[0]->shape));
    return STATUS_OK;
}

const struct op op_gather_norms = {
    .name = "gather_norms",
    .attribute_bytes = sizeof(struct collective_attributes),
    .inputs = 1,
    .outputs = 1,
    .infer = infer_gather_norms,
    .collective = OP_COLLECTIVE_ALL_GATHER,
};

struct trained {
    struct tensor *parameter, *gradient, *squares;
};

/* This rank's place among those along an axis of the group's mesh. */
static struct group_part along(struct group_part group, struct group_axis axis) {
    if (axis.stride == 0) return group;
    return (struct group_part){axis.parts, group.position / axis.stride % axis.parts, axis.stride, group.zigzag};
}

/* The accumulators of one parameter, in the order in which differentiation made them, added up in the first. */
static struct tensor *complete_gradient(struct graph *graph, const struct tensor *parameter, size_t tensors) {
    struct tensor *sum = NULL;
    for (size_t i = 0; i < tensors; i++) {
        struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != TENSOR_GRADIENT || tensor->parameter != parameter) continue;
        if (!sum) {
            sum = tensor;
            continue;
        }
        graph_add(graph, &op_gradient_sum, graph_format(graph, "sum.%s", parameter->name), OPERANDS(sum, tensor), NULL,
                  OPERANDS(sum));
    }
    return sum;
}

static struct tensor *add_state(struct graph *graph, struct tensor *parameter, const char *role, struct shape shape) {
    if (!role) return NULL;
    struct tensor *state =
        graph_tensor(graph, TENSOR_STATE, graph_format(graph, "%s.%s", role, parameter->name), shape);
    if (!state) return NULL;
    state->parameter = parameter;
    state->role = role;
    return state;
}

/* An element for each of the parameter's. */
static struct tensor *state_tensor(struct graph *graph, struct tensor *parameter, const char *role, enum dtype dtype) {
    struct tensor *state = add_state(graph, parameter, role, with_dtype(parameter->shape, dtype));
    if (state) state->part = parameter->part;
    return state;
}

/* The rule's moments and the master, and with moments in 8 bits their scales. */
static void add_states(struct graph *graph, struct tensor *parameter, enum update_rule rule,
                       const struct update_attributes *attributes, struct tensor *into[OP_OUTPUTS_MAX]) {
    int moments = update_rule_moments(rule);
    for (int i = 0; i < moments; i++)
        into[1 + i] = state_tensor(graph, parameter, update_rule_moment(rule, i), attributes->moments);
    if (attributes->has_master && attributes->split_master)
        into[1 + moments] = state_tensor(graph, parameter, "master_low", DTYPE_U16);
    else if (attributes->has_master)
        into[1 + moments] = state_tensor(graph, parameter, "master", DTYPE_F32);
    for (int i = 0; i < moments && attributes->moments == DTYPE_U8; i++) {
        const char *role = graph_format(graph, "%s_absmax", update_rule_moment(rule, i));
        struct tensor *scales = add_state(graph, parameter, role, scales_of(&parameter->shape));
        if (scales) scales->block_elements = UPDATE_SCALE_BLOCK;
        into[2 + moments + i] = scales;
    }
}

static void add_update(struct graph *graph, const struct trained *trained, uint32_t number, struct tensor *clip,
                       const struct optimizer_options *options) {
    struct tensor *parameter = trained->parameter;
    bool apart = options->rule == UPDATE_MUON && !parameter->updated_whole; /* Muon is for what is updated whole */
    enum update_rule rule = apart ? UPDATE_ADAMW : options->rule;
    struct update_attributes attributes = {
        .beta1 = rule == UPDATE_MUON ? options->muon_momentum : options->beta1,
        .beta2 = options->beta2,
        .epsilon = options->epsilon,
        .weight_decay = parameter->decays ? options->weight_decay : 0,
        .parameter = parameter->shape.dtype,
        .moments = options->moments,
        .has_master = parameter->shape.dtype != DTYPE_F32 && !options->no_masters,
        .split_master = parameter->shape.dtype != DTYPE_F32 && options->split_masters,
        .seed = options->seed,
        .number = number,
    };
    struct tensor *in[OP_INPUTS_MAX] = {trained->gradient, options->clip_norm > 0 ? clip : NULL};
    struct tensor *into[OP_OUTPUTS_MAX] = {parameter};
    add_states(graph, parameter, rule, &attributes, into);
    const char *name = graph_format(graph, "%s.%s", update_rule_name(rule), parameter->name);
    graph_add(graph, rules[rule].op, name, in, &attributes, into);
}

/* Adds the sums of a gradient's squares as soon as it is complete. */
static struct tensor *add_squares(struct graph *graph, struct tensor *gradient, struct tensor *parameter) {
    const struct shape shape = vector_of(DTYPE_F64, gradient_norm_blocks(shape_elements(&gradient->shape)));
    struct tensor *sums = graph_tensor(graph, TENSOR_RESULT, graph_format(graph, "squares.%s", parameter->name), shape);
    if (!sums) return NULL;
    sums->parameter = parameter;
    sums->block_elements = GRADIENT_NORM_BLOCK;
    graph_add(graph, &op_squared_sums, graph_format(graph, "squares.%s", parameter->name), OPERANDS(gradient), NULL,
              OPERANDS(sums));
    return sums;
}

static struct tensor *add_results(struct graph *graph, const char *name, int64_t count) {
    return graph_tensor(graph, TENSOR_RESULT, name, vector_of(DTYPE_F64, count));
}

static void add_squared_norm(struct graph *graph, const char *of, struct tensor *squares, struct tensor *norms,
                             int64_t column) {
    struct tensor *norm = graph_view(graph, norms, column, 1);
    if (squares && norm)
        graph_add(graph, &op_squared_norm, graph_format(graph, "norm.%s", of), OPERANDS(squares), NULL, OPERANDS(norm));
}

/* The axis whose ranks have parts of a parameter; none for a whole parameter. */
static struct group_axis axis_of(const struct trained *trained) {
    return trained->parameter->part ? trained->parameter->part->axis : (struct group_axis){0, 0};
}

static bool same_axis(struct group_axis a, struct group_axis b) { return a.parts == b.parts && a.stride == b.stride; }

/* How many of the first `count` lie so. */
static int count_alike(const struct trained *trained, int count, struct group_axis axis) {
    int alike = 0;
    for (int i = 0; i < count; i++)
        alike += same_axis(axis_of(&trained[i]), axis);
    return alike;
}

/* Adds squared norms in parameter order, either of whole parameters or of parameters cut along one axis. */
static void add_squared_norms(struct graph *graph, const struct trained *trained, int count, struct group_axis axis,
                              struct tensor *norms) {
    int column = 0;
    for (int i = 0; i < count; i++)
        if (same_axis(axis_of(&trained[i]), axis))
            add_squared_norm(graph, trained[i].gradient->name, trained[i].squares, norms, column++);
}

/* "", or of an axis that is not the whole group ".2". */
static const char *axis_suffix(struct graph *graph, struct group_axis axis) {
    return axis.stride == 0 ? "" : graph_format(graph, ".%lld", (long long)axis.stride);
}

/* The squares of the parts of all ranks along an axis are one more column: a sum over ranks, each in parameter order.
 */
static void add_part_norms(struct graph *graph, struct tensor *own, struct group_axis axis, struct group_part group,
                           struct tensor *norms, int column) {
    const struct collective_attributes attributes = {.part = along(group, axis)};
    const char *suffix = axis_suffix(graph, axis);
    if (!own) return;
    struct tensor *all = add_results(graph, graph_format(graph, "squared_norms.parts%s", suffix),
                                     attributes.part.parts * shape_elements(&own->shape));
    if (!all) return;
    graph_add(graph, &op_gather_norms, graph_format(graph, "gather_norms%s", suffix), OPERANDS(own), &attributes,
              OPERANDS(all));
    add_squared_norm(graph, graph_format(graph, "parts%s", suffix), all, norms, column);
}

/* The axes along which ranks have parts of parameters, in the order of their first: all of the group, or one of two. */
enum { PART_AXES_MAX = 1 + TENSOR_CUTS_MAX };
static int find_part_axes(const struct trained *trained, int count, struct group_axis out[PART_AXES_MAX]) {
    int axes = 0;
    for (int i = 0; i < count; i++)
        if (trained[i].parameter->part && count_alike(trained, i, axis_of(&trained[i])) == 0) {
            BUG_IF(axes == PART_AXES_MAX, "parts along more than %d axes", PART_AXES_MAX);
            out[axes++] = axis_of(&trained[i]);
        }
    return axes;
}

/* Squared norms are columns of one tensor, which the clip factor sums: whole parameters first, then those cut along
 * each axis. The columns of a pipeline stage come first, since stages gather them before the work that all of
 * them do. */
static struct tensor *add_clipping(struct graph *graph, const struct trained *trained, int count,
                                   const struct optimizer_options *options) {
    static const struct group_axis whole = {0, 0};
    struct group_axis axes[PART_AXES_MAX];
    struct tensor *own[PART_AXES_MAX];
    int wholes = count_alike(trained, count, whole), parts = find_part_axes(trained, count, axes);
    struct tensor *norms = add_results(graph, "squared_norms", wholes + parts);
    if (!norms) return NULL;
    add_squared_norms(graph, trained, count, whole, norms);
    for (int a = 0; a < parts; a++) { /* of each parameter's part on this rank, [parameters of the axis] */
        const char *name = graph_format(graph, "squared_norms.own%s", axis_suffix(graph, axes[a]));
        own[a] = add_results(graph, name, count_alike(trained, count, axes[a]));
        if (own[a]) add_squared_norms(graph, trained, count, axes[a], own[a]);
    }
    for (int a = 0; a < parts; a++)
        add_part_norms(graph, own[a], axes[a], options->group, norms, wholes + a);
    struct tensor *clip = add_results(graph, "clip", 2);
    struct clip_attributes attributes = {.limit = options->clip_norm};
    if (clip) graph_add(graph, &op_clip_factor, "clip_factor", OPERANDS(norms), &attributes, OPERANDS(clip));
    return clip;
}

/* Complete gradients of trained parameters, and the sums of their squares. */
static int add_finish(struct graph *graph, size_t tensors, struct group_part group, struct trained *out) {
    int count = 0;
    for (size_t i = 0; i < tensors; i++) {
        struct tensor *parameter = graph->tensors.items[i];
        if (parameter->kind != TENSOR_PARAMETER || !parameter->trainable) continue;
        struct tensor *gradient = complete_gradient(graph, parameter, tensors);
        if (!gradient) continue; /* the loss does not depend on it */
        const struct collective_attributes reduced = {.part = along(group, parameter->gradient_parts),
                                                      .edges = DTYPE_F32};
        if (parameter->gradient_parts.parts > 0)
            graph_add(graph, &op_gradient_reduce, graph_format(graph, "reduced.%s", gradient->name), OPERANDS(gradient),
                      &reduced, OPERANDS(gradient));
        out[count++] = (struct trained){parameter, gradient, add_squares(graph, gradient, parameter)};
    }
    return count;
}

enum status ops_add_optimizer(struct graph *graph, const struct optimizer_options *options) {
    TRY(graph_status(graph));
    graph->phase = PHASE_FINISH;
    graph_begin_block(graph, "update");
    size_t tensors = graph->tensors.count;
    struct trained *trained = mem_array(tensors, sizeof *trained);
    if (!trained) return STATUS_FAILED;
    int count = add_finish(graph, tensors, options->group, trained);
    graph->phase = PHASE_UPDATE;
    struct tensor *clip = count > 0 ? add_clipping(graph, trained, count, options) : NULL;
    for (int i = 0; i < count && clip; i++)
        add_update(graph, &trained[i], (uint32_t)i, clip, options);
    mem_free(trained);
    if (graph->status == STATUS_OK && count == 0)
        return status_set(STATUS_BAD_INPUT, "nothing to train: every parameter is frozen");
    return graph_status(graph);
}

static bool is_table(const struct node *node) {
    switch (node->op->work) {
    case OP_WORK_LOOKUP:
    case OP_WORK_LOGITS:
    case OP_WORK_LOSS: return true;
    default: return false;
    }
}

void ops_mark_whole_updates(struct graph *graph, enum update_rule rule) {
    for (size_t i = 0; i < graph->tensors.count; i++) {
        struct tensor *tensor = graph->tensors.items[i];
        bool matrix = tensor->kind == TENSOR_PARAMETER && tensor->trainable && tensor->shape.rank == 2;
        tensor->updated_whole = matrix && rule == UPDATE_MUON;
    }
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        for (int i = 0; i < node->op->inputs && is_table(node); i++)
            if (node->in[i]) node->in[i]->updated_whole = false;
    }
}
