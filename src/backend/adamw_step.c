#include "backend/adamw_step.h"

#include "backend/backend.h"
#include "ops/ops.h"

struct adamw_step adamw_step_of(const struct node *node, const struct kernel_call *call) {
    const struct adamw_attributes *attributes = NODE_ATTRIBUTES(node, adamw_attributes);
    double rate = call->scalars[SCALAR_LEARNING_RATE];
    return (struct adamw_step){
        .decay = (float)(1 - rate * attributes->weight_decay),
        .beta2 = (float)attributes->beta2,
        .blend1 = (float)(1 - attributes->beta1),
        .blend2 = (float)(1 - attributes->beta2),
        .step = (float)(rate * call->scalars[SCALAR_BIAS_CORRECTION]),
        .root = (float)call->scalars[SCALAR_BIAS_CORRECTION_SQ],
        .epsilon = (float)attributes->epsilon,
        .seed = attributes->seed,
        .number = attributes->number,
        .count = (uint32_t)call->scalars[SCALAR_STEP],
    };
}

struct adamw_run adamw_run_of(const struct node *node, const struct kernel_call *call) {
    const struct adamw_attributes *attributes = NODE_ATTRIBUTES(node, adamw_attributes);
    return (struct adamw_run){
        .gradient = call->in[0],
        .weight = attributes->has_master ? call->out[3] : call->out[0],
        .exp_avg = call->out[1],
        .exp_avg_sq = call->out[2],
        .rounded = attributes->has_master ? call->out[0] : NULL,
        .first = call->first_element,
        .bf16_weight = !attributes->has_master && attributes->parameter == DTYPE_BF16,
        .bf16_moments = attributes->moments == DTYPE_BF16,
    };
}

static void *advance(void *data, bool bf16, int64_t elements) {
    return (char *)data + elements * dtype_bytes(bf16 ? DTYPE_BF16 : DTYPE_F32);
}

struct adamw_run adamw_run_from(const struct adamw_run *run, int64_t begin) {
    struct adamw_run from = *run;
    from.gradient += begin;
    from.weight = advance(run->weight, run->bf16_weight, begin);
    from.exp_avg = advance(run->exp_avg, run->bf16_moments, begin);
    from.exp_avg_sq = advance(run->exp_avg_sq, run->bf16_moments, begin);
    if (run->rounded) from.rounded += begin;
    from.first += begin;
    return from;
}
