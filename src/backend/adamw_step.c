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
    };
}
