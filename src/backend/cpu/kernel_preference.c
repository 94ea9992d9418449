/* The loss of pairs of sequences. There are few numbers: one thread goes through them. */
#include <math.h>

#include "backend/cpu/cpu_kernel.h"

/* One sequence of a pair. */
struct side {
    const float *y;
    const int32_t *targets;
    double reward;
    bool counts; /* it has targets */
};

static struct side side_of(const struct node *node, const struct kernel_call *call, int64_t sequence, double beta) {
    int64_t length = node->in[0]->shape.dims[1];
    struct side side = {.y = (const float *)call->in[0] + sequence * length,
                        .targets = (const int32_t *)call->in[1] + sequence * length};
    double sum = 0;
    for (int64_t t = 0; t < length; t++) {
        if (side.targets[t] < 0) continue;
        sum += (double)side.y[t];
        side.counts = true;
    }
    side.reward = beta * (sum - ((const double *)call->in[2])[sequence]);
    return side;
}

/* -log sigmoid(margin) */
static double loss_of(double margin) { return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin; }

static void add_figures(const struct side *chosen, const struct side *rejected, double *figures) {
    figures[PREFERENCE_LOSS] += loss_of(chosen->reward - rejected->reward);
    figures[PREFERENCE_CHOSEN] += chosen->reward;
    figures[PREFERENCE_REJECTED] += rejected->reward;
    figures[PREFERENCE_RIGHT] += chosen->reward > rejected->reward;
}

static void write_gradient(const struct side *side, int64_t length, float dy, float *out) {
    for (int64_t t = 0; t < length; t++)
        out[t] = side->counts && side->targets[t] >= 0 ? dy : 0;
}

static enum status run_pairs(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    double beta = NODE_ATTRIBUTES(node, preference_attributes)->beta;
    int64_t sequences = node->in[0]->shape.dims[0], length = node->in[0]->shape.dims[1];
    float *dy = call->out[1];
    for (int64_t s = 0; s < sequences; s += 2) {
        struct side chosen = side_of(node, call, s, beta), rejected = side_of(node, call, s + 1, beta);
        if (chosen.counts) add_figures(&chosen, &rejected, call->out[0]);
        if (!dy) continue;
        double scale = chosen.counts ? beta * call->scalars[SCALAR_LOSS_SCALE] : 0;
        float slope = (float)(scale / (1 + exp(chosen.reward - rejected.reward)));
        write_gradient(&chosen, length, -slope, dy + s * length);
        write_gradient(&rejected, length, slope, dy + (s + 1) * length);
    }
    return STATUS_OK;
}

enum status cpu_preference_loss_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, run_pairs, 0, out);
}

enum status cpu_preference_loss_grad_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, run_pairs, 0, out);
}
