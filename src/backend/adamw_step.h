/* AdamW's numbers in a step, rounded alike on every backend: its bits are the same on all of them. */
#ifndef BALLAST_BACKEND_ADAMW_STEP_H
#define BALLAST_BACKEND_ADAMW_STEP_H

struct kernel_call;
struct node;

struct adamw_step {
    float decay;          /* the weight is multiplied by it: 1 - lr * weight_decay */
    float clip;           /* the gradient is multiplied by it */
    float beta2;          /* of the second moment */
    float blend1, blend2; /* 1 - beta1, 1 - beta2, rounded from double */
    float step, root;     /* lr * correction, correction of the root */
    float epsilon;
};

/* All but the clip factor, which the step computes. A device with the call's scalars in its own memory computes the
 * same there, operation by operation (optimizer.cu). */
struct adamw_step adamw_step_of(const struct node *node, const struct kernel_call *call);

#endif
