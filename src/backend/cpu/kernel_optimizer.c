/* The update: sums of accumulators, norms, clipping, parameters. Operands are whole
 * parameters or runs of their elements, without gaps. */
#include <math.h>

#include "backend/cpu/cpu_kernel.h"
#include "base/half.h"

struct update_work {
    const struct node *node;
    const struct kernel_call *call;
    struct update_step step;
    struct update_run all;
};

static void gradient_sum_body(const void *context, int64_t begin, int64_t end) {
    const struct kernel_call *call = ((const struct update_work *)context)->call;
    const float *a = call->in[0], *b = call->in[1];
    cpu_simd()->add(DTYPE_F32, end - begin, a + begin, b + begin, (float *)call->out[0] + begin);
}

static enum status gradient_sum_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct update_work work = {.call = call};
    parallel_for(shape_elements(&kernel->node->out[0]->shape), parallel_rows(1), gradient_sum_body, &work);
    return STATUS_OK;
}

enum status cpu_gradient_sum_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, gradient_sum_run, 0, out);
}

enum { SQUARES_A_TASK = 16 * GRADIENT_NORM_BLOCK }; /* elements that are worth a block */

static void squared_sums_body(const void *context, int64_t begin, int64_t end) {
    const struct kernel_call *call = ((const struct update_work *)context)->call;
    const float *gradient = call->in[0];
    double *sums = call->out[0];
    for (int64_t i = begin; i < end; i += GRADIENT_NORM_BLOCK) {
        int64_t left = end - i;
        sums[i / GRADIENT_NORM_BLOCK] =
            cpu_simd()->squared_sum(left < GRADIENT_NORM_BLOCK ? left : GRADIENT_NORM_BLOCK, gradient + i);
    }
}

static enum status squared_sums_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct update_work work = {.call = call};
    parallel_for(kernel_elements(kernel, call), SQUARES_A_TASK, squared_sums_body, &work);
    return STATUS_OK;
}

enum status cpu_squared_sums_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, squared_sums_run, 0, out);
}

static double sum_of(const double *values, int64_t count) {
    double total = 0;
    for (int64_t i = 0; i < count; i++)
        total += values[i];
    return total;
}

static enum status squared_norm_run(const struct kernel *kernel, const struct kernel_call *call) {
    *(double *)call->out[0] = sum_of(call->in[0], shape_elements(&kernel->node->in[0]->shape));
    return STATUS_OK;
}

enum status cpu_squared_norm_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, squared_norm_run, 0, out);
}

static enum status clip_factor_run(const struct kernel *kernel, const struct kernel_call *call) {
    double *out = call->out[0], limit = NODE_ATTRIBUTES(kernel->node, clip_attributes)->limit;
    double norm = sqrt(sum_of(call->in[0], shape_elements(&kernel->node->in[0]->shape)));
    double factor = limit > 0 ? limit / (norm + 1e-6) : 1;
    if (factor > 1) factor = 1;
    out[0] = norm;
    out[1] = isfinite(norm) ? factor : (double)NAN;
    return STATUS_OK;
}

enum status cpu_clip_factor_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, clip_factor_run, 0, out);
}

static void round_body(const void *context, int64_t begin, int64_t end) {
    const struct update_run *run = context;
    const float *weight = run->weight;
    for (int64_t i = begin; i < end; i++)
        run->rounded[i] = bf16_from_float(weight[i]);
}

void cpu_update_nothing(int64_t elements, const struct update_run *run) {
    if (run->rounded) parallel_for(elements, parallel_rows(1), round_body, run);
}

static void update_body(const void *context, int64_t begin, int64_t end) {
    const struct update_work *work = context;
    struct update_run run = update_run_from(&work->all, begin);
    cpu_simd()->update(update_rule_of(work->node->op), end - begin, &work->step, &run);
}

static enum status update_run(const struct kernel *kernel, const struct kernel_call *call) {
    double clip = call->in[1] ? ((const double *)call->in[1])[1] : 1;
    int64_t elements = kernel_elements(kernel, call);
    struct update_work work = {
        .node = kernel->node, .step = update_step_of(kernel->node, call), .all = update_run_of(kernel->node, call)};
    work.step.clip = (float)clip;
    if (isnan(clip))
        cpu_update_nothing(elements, &work.all);
    else
        parallel_for(elements, parallel_rows(1), update_body, &work);
    return STATUS_OK;
}

enum status cpu_adamw_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, update_run, 0, out);
}

enum status cpu_lion_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, update_run, 0, out);
}

enum status cpu_sgd_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, update_run, 0, out);
}
