#include "plan/layout/shard_share.h"

static int dimension_of(const struct share *share, int operand, int index) {
    for (int d = 0; d < TENSOR_RANK_MAX && index != OP_INDEX_NONE; d++)
        if (share->loops.of[operand][d] == index) return d;
    return WHOLE;
}

static bool has_positions(const struct share *share, int index) {
    return share->loops.indices[index].letter == 't' || share->loops.indices[index].letter == 'z';
}

int share_part_of_operand(const struct share *share, int axis, int operand) {
    int index = share->index[axis];
    bool gathered = index != OP_INDEX_NONE && operand < OP_INPUTS_MAX && (share->loops.whole >> operand & 1) &&
                    has_positions(share, index);
    return gathered ? WHOLE : dimension_of(share, operand, index);
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
        if (has_positions(share, i)) return dimension_of(share, OP_INPUTS_MAX, i);
    return WHOLE;
}

bool share_is_added_later(const struct share *share, int k) {
    return share_summed_axes(share) != 0 && share->loops.added >> k & 1;
}

unsigned share_apart_axes(const struct share *share, int operand) {
    unsigned axes = 0;
    for (int axis = 0; axis < SHARD_AXES_MAX && share->loops.apart >> operand & 1; axis++)
        if (share->index[axis] != OP_INDEX_NONE && dimension_of(share, operand, share->index[axis]) == WHOLE)
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
