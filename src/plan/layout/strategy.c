#include "plan/layout/strategy.h"

#include <math.h>

/* An axis takes an index of the loops or none, with or without positions cut outside, or passes whole operands round a
 * ring. */
struct option {
    int8_t index;
    bool positions, passes;
};
enum { OPTIONS_MAX = 1 + 2 * OP_INDICES_MAX };

/* One way of a node. */
struct maker {
    const struct node *node;
    const struct node_profile *profile;
    const struct device_mesh *mesh;
    const struct device_rates *rates;
    struct op_loops loops;
    int way;
    struct option options[DEVICE_MESH_AXES_MAX][OPTIONS_MAX];
    int option_count[DEVICE_MESH_AXES_MAX];
};

static struct tensor *operand_of(const struct node *node, int operand) {
    return operand < OP_INPUTS_MAX ? node->in[operand] : node->out[operand - OP_INPUTS_MAX];
}

struct layout_shape strategy_shape(const struct tensor *tensor) {
    struct layout_shape shape = {.rank = tensor->shape.rank};
    for (int d = 0; d < shape.rank; d++)
        shape.dims[d] = tensor->shape.dims[d];
    return shape;
}

static int positions_index(const struct op_loops *loops) {
    for (int i = 0; i < loops->count; i++)
        if (loops->indices[i].letter == 't' || loops->indices[i].letter == 'z') return i;
    return OP_INDEX_NONE;
}

/* Only activations with a producer and a gradient need communication. */
static bool is_activation(const struct tensor *tensor) {
    return tensor && tensor->kind == TENSOR_ACTIVATION && tensor->shape.dtype != DTYPE_I32;
}

/* Whether an operand is gathered or scattered along positions by an axis that took this index. */
static bool moves_positions(const struct maker *maker, int operand, int index) {
    int positions = positions_index(&maker->loops);
    bool apart = maker->loops.apart >> operand & 1;
    return !apart && is_activation(operand_of(maker->node, operand)) && positions != OP_INDEX_NONE &&
           index != positions && op_loops_dimension(&maker->loops, operand, index) == LAYOUT_REPLICATED &&
           op_loops_dimension(&maker->loops, operand, positions) != LAYOUT_REPLICATED;
}

static bool any_moves_positions(const struct maker *maker, int index) {
    for (int operand = 0; operand < OP_OPERANDS_MAX; operand++)
        if (moves_positions(maker, operand, index)) return true;
    return false;
}

/* Another way may have told the same. */
static enum status add_dropped(const struct maker *maker, int axis, int index, struct strategies *out) {
    struct op_loops loops;
    const struct op_index *own = &maker->loops.indices[index];
    for (size_t i = 0; i < out->dropped.count; i++) {
        const struct strategy_dropped *dropped = &out->dropped.items[i];
        bool same =
            dropped->axis == axis && dropped->size == own->size && op_loops_of(maker->node, dropped->way, &loops);
        if (same && loops.indices[dropped->index].letter == own->letter) return STATUS_OK;
    }
    int64_t devices = maker->mesh->sizes[axis];
    return vec_push(&out->dropped, (struct strategy_dropped){maker->way, axis, index, own->size, devices});
}

static enum status make_options(struct maker *maker, int axis, struct strategies *out) {
    struct option *options = maker->options[axis];
    int64_t devices = maker->mesh->sizes[axis];
    int count = 0, positions = positions_index(&maker->loops);
    options[count++] = (struct option){.index = OP_INDEX_NONE};
    for (int i = 0; i < maker->loops.count; i++) {
        int64_t size = maker->loops.indices[i].size;
        if (maker->loops.indices[i].outside) continue;
        if (size % devices != 0 && !maker->loops.indices[i].padded) {
            TRY(add_dropped(maker, axis, i, out));
            continue;
        }
        options[count++] = (struct option){.index = (int8_t)i};
        if (devices > 1 && i == positions && maker->loops.whole)
            options[count++] = (struct option){.index = (int8_t)i, .passes = true};
        if (devices > 1 && any_moves_positions(maker, i) && maker->loops.indices[positions].size % devices == 0)
            options[count++] = (struct option){.index = (int8_t)i, .positions = true};
    }
    maker->option_count[axis] = count;
    return STATUS_OK;
}

/* --- layouts --- */

static void set_layouts(const struct maker *maker, struct strategy *strategy) {
    int positions = positions_index(&maker->loops);
    for (int operand = 0; operand < OP_OPERANDS_MAX; operand++) {
        strategy->operand[operand] = layout_replicated();
        for (int axis = 0; axis < maker->mesh->axes; axis++) {
            int index = strategy->index[axis];
            if (index == OP_INDEX_NONE) continue;
            if (strategy->positions[axis] && moves_positions(maker, operand, index)) index = positions;
            strategy->operand[operand].dimension[axis] = (int8_t)op_loops_dimension(&maker->loops, operand, index);
        }
    }
}

/* Axes that took one index must divide it together, and so must the axes that leave positions cut. */
static bool divides(const struct maker *maker, const struct strategy *strategy) {
    int64_t parts[OP_INDICES_MAX] = {0}, outside = 1;
    for (int i = 0; i < maker->loops.count; i++)
        parts[i] = 1;
    for (int axis = 0; axis < maker->mesh->axes; axis++) {
        if (strategy->index[axis] == OP_INDEX_NONE) continue;
        parts[strategy->index[axis]] *= maker->mesh->sizes[axis];
        if (strategy->positions[axis]) outside *= maker->mesh->sizes[axis];
    }
    int positions = positions_index(&maker->loops);
    if (positions != OP_INDEX_NONE && maker->loops.indices[positions].size % (parts[positions] * outside) != 0)
        return false;
    for (int i = 0; i < maker->loops.count; i++)
        if (maker->loops.indices[i].size % parts[i] != 0 && !maker->loops.indices[i].padded) return false;
    return true;
}

/* --- costs --- */

static double local_bytes(const struct maker *maker, const struct strategy *strategy, int operand) {
    struct tensor *tensor = operand_of(maker->node, operand);
    struct layout_shape shape = strategy_shape(tensor);
    return (double)layout_local_elements(&strategy->operand[operand], maker->mesh, &shape) *
           (double)dtype_bytes(tensor->shape.dtype);
}

/* Whether an operand that lacks the index is, or has as gradient, a sum over it. */
static bool is_summed(const struct maker *maker, int operand, int index) {
    if (op_loops_dimension(&maker->loops, operand, index) != LAYOUT_REPLICATED) return false;
    if (maker->loops.apart >> operand & 1) return false;
    bool after = operand < OP_INPUTS_MAX && (maker->loops.added >> operand & 1);
    return !after || op_loops_dimension(&maker->loops, OP_INPUTS_MAX, index) != LAYOUT_REPLICATED;
}

/* The axes over which the operand is summed: the axes that leave its positions cut, or the others. */
static unsigned summed_axes(const struct maker *maker, const struct strategy *strategy, int operand, bool positions) {
    unsigned axes = 0;
    for (int axis = 0; axis < maker->mesh->axes; axis++) {
        int index = strategy->index[axis];
        if (index == OP_INDEX_NONE || !is_summed(maker, operand, index)) continue;
        if ((strategy->positions[axis] && moves_positions(maker, operand, index)) == positions) axes |= 1u << axis;
    }
    return axes;
}

/* --- operands that are read whole --- */

/* The axes that took positions, and gather the whole operands or pass them round a ring. */
static unsigned whole_axes(const struct maker *maker, const struct strategy *strategy, bool passes) {
    unsigned axes = 0;
    for (int axis = 0; axis < maker->mesh->axes; axis++) {
        bool taken = strategy->index[axis] != OP_INDEX_NONE && strategy->index[axis] == positions_index(&maker->loops);
        if (taken && strategy->passes[axis] == passes) axes |= 1u << axis;
    }
    return axes;
}

static bool is_read_whole(const struct maker *maker, int operand) {
    return operand < OP_INPUTS_MAX && (maker->loops.whole >> operand & 1);
}

/* Gathered for forward, and again for backward, whose gradients are reduced and scattered. */
static void add_gathers(const struct maker *maker, struct strategy *strategy, int operand) {
    unsigned axes = whole_axes(maker, strategy, false);
    double outside = local_bytes(maker, strategy, operand);
    double inside = outside * (double)device_mesh_devices(maker->mesh, axes);
    double gather_s = device_mesh_all_gather_s(maker->mesh, axes, inside);
    strategy->forward_s += gather_s;
    strategy->backward_s += gather_s + device_mesh_reduce_scatter_s(maker->mesh, axes, inside);
    strategy->gathered_bytes += (int64_t)(inside - outside);
}

/* The part of n - 1 hops that the n equal parts of the work do not overlap. */
static double uncovered_s(const struct device_mesh *mesh, unsigned axes, double block_bytes, double work_s) {
    double devices = (double)device_mesh_devices(mesh, axes);
    if (devices <= 1) return 0;
    double whole = block_bytes * devices, ring_s = device_mesh_all_gather_s(mesh, axes, whole);
    double latency_s = device_mesh_all_gather_s(mesh, axes, 0);
    double hop_s = latency_s + (ring_s - latency_s) / (devices - 1);
    return (devices - 1) * fmax(0, hop_s - work_s / devices);
}

/* Blocks of keys and values go round during forward; during backward they do with the sums of their gradients in fp32.
 * A device has the block that it works on and the one that comes. */
static void add_waves(const struct maker *maker, struct strategy *strategy) {
    unsigned axes = whole_axes(maker, strategy, true);
    double bytes = 0, elements = 0, flops = maker->profile->forward.flops + maker->profile->backward.flops;
    for (int operand = 0; operand < OP_INPUTS_MAX; operand++) {
        if (!is_read_whole(maker, operand) || !maker->node->in[operand]) continue;
        double gathered = (double)device_mesh_devices(maker->mesh, whole_axes(maker, strategy, false));
        bytes += local_bytes(maker, strategy, operand) * gathered;
        elements += local_bytes(maker, strategy, operand) * gathered /
                    (double)dtype_bytes(maker->node->in[operand]->shape.dtype);
    }
    if (device_mesh_devices(maker->mesh, axes) <= 1 || flops <= 0) return;
    double forward_s = strategy->compute_s * maker->profile->forward.flops / flops;
    double sums = elements * (double)dtype_bytes(DTYPE_F32);
    strategy->forward_s += uncovered_s(maker->mesh, axes, bytes, forward_s);
    strategy->backward_s += uncovered_s(maker->mesh, axes, bytes + sums, strategy->compute_s - forward_s);
    strategy->gathered_bytes += (int64_t)(bytes + sums);
}

/* Adds a sum over the axes to the sum's direction and to the other one. Axes that leave positions cut reduce-scatter,
 * and all-gather in the other direction. */
static void add_sum(const struct maker *maker, struct strategy *strategy, int operand, double *sum_s, double *other_s) {
    unsigned scattered = summed_axes(maker, strategy, operand, true);
    unsigned reduced = summed_axes(maker, strategy, operand, false);
    double outside = local_bytes(maker, strategy, operand);
    double inside = outside * (double)device_mesh_devices(maker->mesh, scattered);
    *sum_s += device_mesh_reduce_scatter_s(maker->mesh, scattered, inside);
    *other_s += device_mesh_all_gather_s(maker->mesh, scattered, inside);
    *sum_s += device_mesh_all_reduce_s(maker->mesh, reduced, outside);
    strategy->gathered_bytes += (int64_t)(inside - outside);
}

static void add_parameter_sum(const struct maker *maker, struct strategy *strategy, int operand) {
    struct tensor *tensor = maker->node->in[operand];
    double elements = local_bytes(maker, strategy, operand) / (double)dtype_bytes(tensor->shape.dtype);
    strategy->parameter_bytes += (int64_t)local_bytes(maker, strategy, operand);
    if (!tensor->trainable) return;
    double sum_s = device_mesh_all_reduce_s(maker->mesh, summed_axes(maker, strategy, operand, false),
                                            elements * (double)dtype_bytes(DTYPE_F32));
    strategy->backward_s += sum_s / maker->rates->micro_batches;
}

/* Adds the messages between parts of an index. The other axes decide the tokens of each device. */
static void add_collectives(const struct maker *maker, struct strategy *strategy) {
    for (int i = 0; i < maker->loops.count; i++) {
        unsigned taken = 0, others = 0;
        if (maker->loops.indices[i].collective_bytes == 0) continue;
        for (int axis = 0; axis < maker->mesh->axes; axis++) {
            if (strategy->index[axis] == i) taken |= 1u << axis;
            if (strategy->index[axis] != i && strategy->index[axis] != OP_INDEX_NONE) others |= 1u << axis;
        }
        double bytes = maker->loops.indices[i].collective_bytes / (double)device_mesh_devices(maker->mesh, others);
        strategy->forward_s += device_mesh_all_reduce_s(maker->mesh, taken, bytes);
    }
}

static void add_communication(const struct maker *maker, struct strategy *strategy) {
    for (int operand = 0; operand < OP_OPERANDS_MAX; operand++) {
        struct tensor *tensor = operand_of(maker->node, operand);
        if (!tensor) continue;
        if (operand >= OP_INPUTS_MAX)
            add_sum(maker, strategy, operand, &strategy->forward_s, &strategy->backward_s);
        else if (tensor->kind == TENSOR_PARAMETER)
            add_parameter_sum(maker, strategy, operand);
        else if (is_activation(tensor))
            add_sum(maker, strategy, operand, &strategy->backward_s, &strategy->forward_s);
        if (is_read_whole(maker, operand)) add_gathers(maker, strategy, operand);
    }
    add_waves(maker, strategy);
    add_collectives(maker, strategy);
}

/* Bytes of all operands that each device reads and writes in both directions. */
static double local_traffic(const struct maker *maker, const struct strategy *strategy) {
    double bytes = 0, whole = 0;
    for (int operand = 0; operand < OP_OPERANDS_MAX; operand++) {
        const struct tensor *tensor = operand_of(maker->node, operand);
        if (!tensor) continue;
        bytes += local_bytes(maker, strategy, operand);
        whole += (double)shape_bytes(&tensor->shape);
    }
    return bytes / whole * (maker->profile->forward.bytes + maker->profile->backward.bytes);
}

/* How much more the busiest device has than if all had the same. */
static double imbalance(const struct maker *maker, const struct strategy *strategy) {
    double factor = 1;
    for (int i = 0; i < maker->loops.count; i++) {
        int64_t parts = 1;
        for (int axis = 0; axis < maker->mesh->axes; axis++)
            if (strategy->index[axis] == i) parts *= maker->mesh->sizes[axis];
        const struct op_index *index = &maker->loops.indices[i];
        if (parts > 1 && index->largest_share) factor *= index->largest_share(maker->node, parts) * (double)parts;
    }
    return factor;
}

static void add_compute(const struct maker *maker, struct strategy *strategy) {
    unsigned taken = 0;
    double extra_flops = 0;
    for (int axis = 0; axis < maker->mesh->axes; axis++) {
        int index = strategy->index[axis];
        if (index == OP_INDEX_NONE || maker->mesh->sizes[axis] == 1) continue;
        if (extra_flops == 0) extra_flops = maker->loops.indices[index].extra_flops;
        taken |= 1u << axis;
    }
    double parts = (double)device_mesh_devices(maker->mesh, taken);
    double flops = maker->profile->forward.flops + maker->profile->backward.flops + extra_flops;
    flops *= imbalance(maker, strategy);
    strategy->compute_s =
        fmax(flops / parts / maker->rates->flops_per_s, local_traffic(maker, strategy) / maker->rates->bytes_per_s);
}

static void add_memory(const struct maker *maker, struct strategy *strategy) {
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) {
        const struct tensor *tensor = maker->node->out[i];
        if (is_activation(tensor) && maker->profile->saved_outputs >> i & 1)
            strategy->saved_bytes += (int64_t)local_bytes(maker, strategy, OP_INPUTS_MAX + i);
    }
}

static enum status add_strategy(const struct maker *maker, const int *chosen, struct strategies *out) {
    struct strategy strategy = {.way = maker->way};
    uint32_t taken = 0;
    for (int axis = 0; axis < DEVICE_MESH_AXES_MAX; axis++) {
        struct option option =
            axis < maker->mesh->axes ? maker->options[axis][chosen[axis]] : (struct option){.index = OP_INDEX_NONE};
        strategy.index[axis] = option.index;
        strategy.positions[axis] = option.positions, strategy.passes[axis] = option.passes;
        if (option.index != OP_INDEX_NONE) taken |= 1u << option.index;
    }
    bool again = maker->way > 0 && (taken == 0 || (taken & maker->loops.own) != maker->loops.own);
    if (again || !divides(maker, &strategy)) return STATUS_OK;
    set_layouts(maker, &strategy);
    add_compute(maker, &strategy);
    add_communication(maker, &strategy);
    add_memory(maker, &strategy);
    return vec_push(&out->kept, strategy);
}

/* All combinations of the axes' options, the last axis's fastest. */
static enum status add_way(struct maker *maker, struct strategies *out) {
    int chosen[DEVICE_MESH_AXES_MAX] = {0}, axis = 0;
    for (axis = 0; axis < maker->mesh->axes; axis++)
        TRY(make_options(maker, axis, out));
    do {
        TRY(add_strategy(maker, chosen, out));
        for (axis = maker->mesh->axes - 1; axis >= 0 && ++chosen[axis] == maker->option_count[axis]; axis--)
            chosen[axis] = 0;
    } while (axis >= 0);
    return STATUS_OK;
}

enum status strategies_make(const struct node *node, const struct node_profile *profile, const struct device_mesh *mesh,
                            const struct device_rates *rates, struct strategies *out) {
    struct maker maker = {.node = node, .profile = profile, .mesh = mesh, .rates = rates};
    *out = (struct strategies){0};
    TRY(device_mesh_check(mesh));
    if (!(rates->flops_per_s > 0 && rates->bytes_per_s > 0 && rates->micro_batches >= 1))
        return status_set(STATUS_BAD_INPUT,
                          "%g FLOP/s, %g bytes/s, %g micro-batches: must be above 0, and at least 1 micro-batch",
                          rates->flops_per_s, rates->bytes_per_s, rates->micro_batches);
    if (!op_loops_of(node, 0, &maker.loops)) return add_way(&maker, out); /* without an index */
    for (; op_loops_of(node, maker.way, &maker.loops); maker.way++)
        TRY(add_way(&maker, out));
    return STATUS_OK;
}

void strategies_free(struct strategies *strategies) {
    vec_free(&strategies->kept);
    vec_free(&strategies->dropped);
}

const char *strategy_index_name(char letter) {
    switch (letter) {
    case 's': return "sequences";
    case 't': return "positions";
    case 'z': return "pairs of positions";
    case 'h':
    case 'q': return "heads";
    case 'g': return "groups of features";
    case 'v': return "rows of the vocabulary";
    case 'k':
    case 'f': return "inner features";
    default: return "features";
    }
}

char *strategy_print_dropped(const struct node *node, const struct strategy_dropped *dropped,
                             char text[STRATEGY_TEXT]) {
    struct op_loops loops;
    if (!op_loops_of(node, dropped->way, &loops)) BUG("a way that there is not");
    snprintf(text, STRATEGY_TEXT, "%lld %s do not divide by the %lld devices of axis %d", (long long)dropped->size,
             strategy_index_name(loops.indices[dropped->index].letter), (long long)dropped->parts, dropped->axis);
    return text;
}

/* --- strategies that ranks can execute --- */

unsigned strategy_axes_taken(const struct strategy *strategy, const struct device_mesh *mesh) {
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
    unsigned taken = strategy_axes_taken(strategy, mesh);
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

struct parameter_use strategy_parameter_use(const struct node *node, const struct strategy *strategy, int operand) {
    struct parameter_use use = {strategy->operand[operand], 0};
    struct op_loops loops;
    if (!op_loops_of(node, strategy->way, &loops)) return use;
    for (int axis = 0; axis < DEVICE_MESH_AXES_MAX; axis++) {
        int index = strategy->index[axis];
        if (index == OP_INDEX_NONE) continue;
        bool after = (loops.added >> operand & 1) && !op_loops_has(&loops, OP_INPUTS_MAX, index);
        bool apart = loops.apart >> operand & 1;
        bool partial = !op_loops_has(&loops, operand, index) && !apart && !(after && !strategy->positions[axis]);
        use.partial |= (unsigned)partial << axis;
    }
    return use;
}

unsigned strategy_apart_axes(const struct node *node, const struct strategy *strategy, int operand) {
    struct op_loops loops;
    unsigned axes = 0;
    if (!op_loops_of(node, strategy->way, &loops) || !(loops.apart >> operand & 1)) return 0;
    for (int axis = 0; axis < DEVICE_MESH_AXES_MAX; axis++)
        if (strategy->index[axis] != OP_INDEX_NONE && !op_loops_has(&loops, operand, strategy->index[axis]))
            axes |= 1u << axis;
    return axes;
}

bool parameter_use_equal(const struct parameter_use *a, const struct parameter_use *b) {
    return layout_equal(&a->layout, &b->layout) && a->partial == b->partial;
}

static bool has_views(const struct graph *graph, const struct tensor *base) {
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (graph->tensors.items[i]->base == base) return true;
    return false;
}

bool strategy_cuts_columns(const struct op_loops *loops, int operand, const struct tensor *tensor, int index) {
    return index != OP_INDEX_NONE && tensor && tensor->kind == TENSOR_ACTIVATION &&
           loops->of[operand][tensor->shape.rank - 1] == index;
}

bool strategy_takes_segments(const struct graph *graph, const struct node *node, const struct strategy *strategy,
                             int operand) {
    struct op_loops loops;
    bool cuts = false;
    if (!op_loops_of(node, strategy->way, &loops)) return false;
    for (int axis = 0; axis < DEVICE_MESH_AXES_MAX; axis++) {
        int index = strategy->index[axis];
        cuts |= strategy_cuts_columns(&loops, OP_INPUTS_MAX, node->out[0], index) &&
                strategy_cuts_columns(&loops, operand, node->in[operand], index);
    }
    return cuts && !node->in[operand]->base && has_views(graph, node->out[0]);
}
