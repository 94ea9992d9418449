/* The loss of pairs of sequences. There are few numbers: one thread goes through them. */
#include <math.h>

#include "backend/cpu/kernel.h"

/* One sequence of a pair. */
struct side {
    const float *y;
    const int32_t *targets;
    double gain, reward;
    int64_t tokens; /* that are targets */
};

static struct side side_of(const struct node *node, const struct kernel_call *call, int64_t sequence, double beta) {
    int64_t length = node->in[0]->shape.dims[1];
    struct side side = {.y = (const float *)call->in[0] + sequence * length,
                        .targets = (const int32_t *)call->in[1] + sequence * length};
    double sum = 0;
    for (int64_t t = 0; t < length; t++) {
        if (side.targets[t] < 0) continue;
        sum += (double)side.y[t];
        side.tokens++;
    }
    side.gain = sum - ((const double *)call->in[2])[sequence];
    side.reward = beta * side.gain;
    return side;
}

/* -log sigmoid(margin) */
static double log_loss(double margin) { return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin; }

static double a_token(const struct side *side, double value) {
    return value / (double)(side->tokens > 0 ? side->tokens : 1);
}

/* Of a pair. Slopes are those of its log-probabilities, times the scale. */
struct pair_result {
    double loss, chosen_slope, rejected_slope;
};

static struct pair_result compute_pair(const struct preference_attributes *attributes, const struct side *chosen,
                                       const struct side *rejected, double scale) {
    const struct pair_weights weights = pair_weights_of(attributes);
    double beta = attributes->beta, margin = chosen->reward - rejected->reward;
    switch (attributes->loss) {
    case PAIR_LOSS_HINGE: {
        double slope = margin < 1 ? beta * scale : 0;
        return (struct pair_result){margin < 1 ? 1 - margin : 0, -slope, slope};
    }
    case PAIR_LOSS_IPO: {
        double short_of = a_token(chosen, chosen->gain) - a_token(rejected, rejected->gain) - 1 / (2 * beta);
        double slope = 2 * short_of * scale;
        return (struct pair_result){short_of * short_of, a_token(chosen, slope), -a_token(rejected, slope)};
    }
    default: {
        double all = beta * scale,
               slope = weights.right * all / (1 + exp(margin)) - weights.wrong * all / (1 + exp(-margin));
        double loss = weights.right * log_loss(margin) + weights.wrong * log_loss(-margin);
        return (struct pair_result){loss, -slope, slope};
    }
    }
}

static void add_figures(const struct side *chosen, const struct side *rejected, double loss, double *figures) {
    figures[PREFERENCE_LOSS] += loss;
    figures[PREFERENCE_CHOSEN] += chosen->reward;
    figures[PREFERENCE_REJECTED] += rejected->reward;
    figures[PREFERENCE_RIGHT] += chosen->reward > rejected->reward;
}

static void write_gradient(const struct side *side, int64_t length, double slope, float *out) {
    float dy = (float)slope;
    for (int64_t t = 0; t < length; t++)
        out[t] = side->targets[t] >= 0 ? dy : 0;
}

static enum status run_pairs(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    const struct preference_attributes *attributes = NODE_ATTRIBUTES(node, preference_attributes);
    int64_t sequences = node->in[0]->shape.dims[0], length = node->in[0]->shape.dims[1];
    float *dy = call->out[1];
    for (int64_t s = 0; s < sequences; s += 2) {
        struct side chosen = side_of(node, call, s, attributes->beta),
                    rejected = side_of(node, call, s + 1, attributes->beta);
        bool counts = chosen.tokens > 0;
        double scale = dy && counts ? call->scalars[SCALAR_LOSS_SCALE] : 0;
        struct pair_result pair = compute_pair(attributes, &chosen, &rejected, scale);
        if (counts) add_figures(&chosen, &rejected, pair.loss, call->out[0]);
        if (!dy) continue;
        write_gradient(&chosen, length, pair.chosen_slope, dy + s * length);
        write_gradient(&rejected, length, pair.rejected_slope, dy + (s + 1) * length);
    }
    return STATUS_OK;
}

CPU_KERNEL(preference_loss, run_pairs)

CPU_KERNEL(preference_loss_grad, run_pairs)
