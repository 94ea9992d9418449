/* The loss of pairs of sequences: a block for each pair, then their figures in the order of pairs. */
#include "backend/cuda/kernels/device.cuh"

struct pairs {
    const float *y;
    const int32_t *targets;
    const double *reference, *scalars;
    double *figures; /* [pairs][PREFERENCE_FIGURES] */
    float *dy;       /* NULL: not wanted */
    int64_t length;
    double beta;
    enum pair_loss loss;
    struct pair_weights weights;
};

/* One sequence of a pair. */
struct side {
    double gain, reward;
    int tokens; /* that are targets */
};

/* Log-probabilities are added in the order of tokens, as everywhere: a model that has not learned gives the bits of its
 * reference. For all threads of a block. */
__device__ struct side side_of(const struct pairs &pairs, int64_t sequence) {
    __shared__ double values[THREADS];
    __shared__ double sum;
    const float *y = pairs.y + sequence * pairs.length;
    const int32_t *targets = pairs.targets + sequence * pairs.length;
    double own = 0;
    int tokens = 0;
    for (int64_t first = 0; first < pairs.length; first += THREADS) {
        int64_t t = first + threadIdx.x;
        bool has_target = t < pairs.length && targets[t] >= 0;
        __syncthreads(); /* the values before have been added */
        values[threadIdx.x] = has_target ? (double)y[t] : 0;
        tokens += has_target;
        __syncthreads();
        for (int i = 0; threadIdx.x == 0 && i < THREADS; i++)
            own += values[i];
    }
    if (threadIdx.x == 0) sum = own;
    tokens = team_sum<THREADS>(tokens);
    double gain = sum - pairs.reference[sequence];
    return {gain, pairs.beta * gain, tokens};
}

/* -log sigmoid(margin) */
__device__ inline double log_loss(double margin) {
    return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
}

__device__ inline double a_token(const struct side &side, double value) {
    return value / (side.tokens > 0 ? side.tokens : 1);
}

/* Of a pair. Slopes are those of its log-probabilities, times the scale. */
struct pair_result {
    double loss, chosen_slope, rejected_slope;
};

__device__ struct pair_result compute_pair(const struct pairs &pairs, const struct side &chosen,
                                           const struct side &rejected, double scale) {
    double margin = chosen.reward - rejected.reward, all = pairs.beta * scale;
    if (pairs.loss == PAIR_LOSS_HINGE) {
        double slope = margin < 1 ? all : 0;
        return {margin < 1 ? 1 - margin : 0, -slope, slope};
    }
    if (pairs.loss == PAIR_LOSS_IPO) {
        double short_of = a_token(chosen, chosen.gain) - a_token(rejected, rejected.gain) - 1 / (2 * pairs.beta);
        double slope = 2 * short_of * scale;
        return {short_of * short_of, a_token(chosen, slope), -a_token(rejected, slope)};
    }
    double right = pairs.weights.right, wrong = pairs.weights.wrong;
    double slope = right * all / (1 + exp(margin)) - wrong * all / (1 + exp(-margin));
    return {right * log_loss(margin) + wrong * log_loss(-margin), -slope, slope};
}

__device__ void write_figures(const struct side &chosen, const struct side &rejected, double loss, double *figures) {
    bool counts = chosen.tokens > 0;
    figures[PREFERENCE_LOSS] = counts ? loss : 0;
    figures[PREFERENCE_CHOSEN] = counts ? chosen.reward : 0;
    figures[PREFERENCE_REJECTED] = counts ? rejected.reward : 0;
    figures[PREFERENCE_RIGHT] = counts && chosen.reward > rejected.reward ? 1 : 0;
}

__device__ void write_gradients(const struct pairs &pairs, int64_t sequence, double slope) {
    float dy = (float)slope;
    const int32_t *targets = pairs.targets + sequence * pairs.length;
    for (int64_t t = threadIdx.x; t < pairs.length; t += THREADS)
        pairs.dy[sequence * pairs.length + t] = targets[t] >= 0 ? dy : 0.0f;
}

__global__ void __launch_bounds__(THREADS) pair_kernel(struct pairs pairs) {
    int64_t pair = blockIdx.x, sequence = 2 * pair;
    struct side chosen = side_of(pairs, sequence), rejected = side_of(pairs, sequence + 1);
    double scale = pairs.dy && chosen.tokens > 0 ? pairs.scalars[SCALAR_LOSS_SCALE] : 0;
    struct pair_result result = compute_pair(pairs, chosen, rejected, scale);
    if (threadIdx.x == 0) write_figures(chosen, rejected, result.loss, pairs.figures + pair * PREFERENCE_FIGURES);
    if (!pairs.dy) return;
    write_gradients(pairs, sequence, result.chosen_slope);
    write_gradients(pairs, sequence + 1, result.rejected_slope);
}

/* A thread for each figure. */
__global__ void __launch_bounds__(WARP) add_pairs_kernel(const double *figures, int64_t count, double *out) {
    if (threadIdx.x >= PREFERENCE_FIGURES) return;
    double sum = out[threadIdx.x];
    for (int64_t i = 0; i < count; i++)
        sum += figures[i * PREFERENCE_FIGURES + threadIdx.x];
    out[threadIdx.x] = sum;
}

static enum status pairs_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    const struct preference_attributes *attributes = NODE_ATTRIBUTES(node, preference_attributes);
    const struct shape *y = &node->in[0]->shape;
    struct pairs pairs = {};
    pairs.y = (const float *)call->in[0];
    pairs.targets = (const int32_t *)call->in[1];
    pairs.reference = (const double *)call->in[2];
    pairs.scalars = call->scalars;
    pairs.figures = (double *)call->workspace;
    pairs.dy = (float *)call->out[1];
    pairs.length = y->dims[1];
    pairs.beta = attributes->beta;
    pairs.loss = attributes->loss;
    pairs.weights = pair_weights_of(attributes);
    launch(known<pair_kernel>(), grid_size(y->dims[0] / 2), THREADS, 0, stream_of(call), pairs);
    launch(known<add_pairs_kernel>(), 1, WARP, 0, stream_of(call), pairs.figures, y->dims[0] / 2,
           (double *)call->out[0]);
    return cuda_outcome();
}

static enum status pairs_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, pairs_run, cuda_preference_bytes(node), out);
}

CUDA_KERNEL_MAKER(preference_loss, pairs_create)

CUDA_KERNEL_MAKER(preference_loss_grad, pairs_create)
