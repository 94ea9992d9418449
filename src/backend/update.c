#include "backend/update.h"

#include <math.h>

#include "backend/backend.h"
#include "backend/moment_numbers.h"

double update_step_factor(const struct shape *matrix) {
    int64_t longer = matrix->dims[0] > matrix->dims[1] ? matrix->dims[0] : matrix->dims[1];
    return 0.2 * sqrt((double)longer);
}

struct update_step update_step_of(const struct node *node, const struct kernel_call *call) {
    const struct update_attributes *attributes = NODE_ATTRIBUTES(node, update_attributes);
    enum update_rule rule = update_rule_of(node->op);
    double rate = call->scalars[SCALAR_LEARNING_RATE];
    double correction = rule == UPDATE_ADAMW  ? call->scalars[SCALAR_BIAS_CORRECTION]
                        : rule == UPDATE_MUON ? update_step_factor(&node->in[0]->shape)
                                              : 1;
    return (struct update_step){
        .decay = (float)(rule == UPDATE_SGD ? attributes->weight_decay : 1 - rate * attributes->weight_decay),
        .beta1 = (float)attributes->beta1,
        .beta2 = (float)attributes->beta2,
        .blend1 = (float)(1 - attributes->beta1),
        .blend2 = (float)(1 - attributes->beta2),
        .step = (float)(rate * correction),
        .root = (float)call->scalars[SCALAR_BIAS_CORRECTION_SQ],
        .epsilon = (float)attributes->epsilon,
        .seed = attributes->seed,
        .number = attributes->number,
        .count = (uint32_t)call->scalars[SCALAR_STEP],
    };
}

struct update_run update_run_of(const struct node *node, const struct kernel_call *call) {
    const struct update_attributes *attributes = NODE_ATTRIBUTES(node, update_attributes);
    int moments = update_rule_moments(update_rule_of(node->op));
    bool split = attributes->split_master, whole = attributes->has_master && !split;
    return (struct update_run){
        .gradient = call->in[0],
        .weight = split   ? NULL
                  : whole ? call->out[1 + moments]
                          : call->out[0],
        .moments = {call->out[1], moments > 1 ? call->out[2] : NULL},
        .scales = {call->out[2 + moments], moments > 1 ? call->out[3 + moments] : NULL},
        .rounded = whole ? call->out[0] : NULL,
        .upper = split ? call->out[0] : NULL,
        .lower = split ? call->out[1 + moments] : NULL,
        .first = call->first_element,
        .bf16_weight = !attributes->has_master && attributes->parameter == DTYPE_BF16,
        .bf16_moments = attributes->moments == DTYPE_BF16,
    };
}

static void *advance(void *data, enum dtype dtype, int64_t elements) {
    return (char *)data + elements * dtype_bytes(dtype);
}

struct update_run update_run_from(const struct update_run *run, int64_t begin) {
    struct update_run from = *run;
    from.gradient += begin;
    if (run->weight) from.weight = advance(run->weight, run->bf16_weight ? DTYPE_BF16 : DTYPE_F32, begin);
    enum dtype moments = run->scales[0] ? DTYPE_U8 : run->bf16_moments ? DTYPE_BF16 : DTYPE_F32;
    for (int i = 0; i < UPDATE_MOMENTS_MAX; i++) {
        if (run->moments[i]) from.moments[i] = advance(run->moments[i], moments, begin);
        if (run->scales[i]) from.scales[i] += begin / UPDATE_SCALE_BLOCK;
    }
    if (run->direction) from.direction += begin;
    if (run->rounded) from.rounded += begin;
    if (run->upper) from.upper += begin, from.lower += begin;
    from.first += begin;
    return from;
}

/* The maps of moments in 8 bits. The numbers of the signed one are also those of scales (ir/weight_format.h). */
static const float unsigned_numbers[MOMENT_CODES] = {MOMENT_UNSIGNED_NUMBERS};

const struct moment_map moment_map_signed = {.numbers = weight_scale_map, .zero = 127, .levels = MOMENT_LEVELS_OF(1)};
const struct moment_map moment_map_unsigned = {.numbers = unsigned_numbers, .zero = 0, .levels = MOMENT_LEVELS_OF(2)};
