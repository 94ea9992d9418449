/* The loss of pairs of sequences: a block for each pair, then their figures in the order of pairs. */
#include "backend/cuda/device.cuh"

struct pairs {
    const float *y;
    const int32_t *targets;
    const double *reference, *scalars;
    double *figures; /* [pairs][PREFERENCE_FIGURES] */
    float *dy;       /* NULL: not wanted */
    int64_t length;
    double beta;
};

/* The sum of a sequence's log-probabilities in the order of its tokens, as it is added up everywhere: a model that has
 * not learned gives the bits of its reference. For all threads of a block. */
__device__ double sequence_sum(const struct pairs &pairs, int64_t sequence, bool *counts) {
    __shared__ double values[THREADS];
    __shared__ double sum;
    const float *y = pairs.y + sequence * pairs.length;
    const int32_t *targets = pairs.targets + sequence * pairs.length;
    double own = 0;
    bool any = false;
    for (int64_t first = 0; first < pairs.length; first += THREADS) {
        int64_t t = first + threadIdx.x;
        bool has_target = t < pairs.length && targets[t] >= 0;
        __syncthreads(); /* the values before have been added */
        values[threadIdx.x] = has_target ? (double)y[t] : 0;
        any = __syncthreads_or(has_target) || any;
        for (int i = 0; threadIdx.x == 0 && i < THREADS; i++)
            own += values[i];
    }
    if (threadIdx.x == 0) sum = own;
    __syncthreads();
    *counts = any;
    return sum;
}

/* -log sigmoid(margin) */
__device__ inline double loss_of(double margin) {
    return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
}

__device__ void write_figures(double chosen, double rejected, bool counts, double *figures) {
    figures[PREFERENCE_LOSS] = counts ? loss_of(chosen - rejected) : 0;
    figures[PREFERENCE_CHOSEN] = counts ? chosen : 0;
    figures[PREFERENCE_REJECTED] = counts ? rejected : 0;
    figures[PREFERENCE_RIGHT] = counts && chosen > rejected ? 1 : 0;
}

__device__ void write_gradients(const struct pairs &pairs, int64_t sequence, float dy) {
    const int32_t *targets = pairs.targets + sequence * pairs.length;
    for (int64_t t = threadIdx.x; t < pairs.length; t += THREADS)
        pairs.dy[sequence * pairs.length + t] = targets[t] >= 0 ? dy : 0.0f;
}

__global__ void __launch_bounds__(THREADS) pair_kernel(struct pairs pairs) {
    int64_t pair = blockIdx.x, sequence = 2 * pair;
    bool counts, other;
    double chosen = sequence_sum(pairs, sequence, &counts), rejected = sequence_sum(pairs, sequence + 1, &other);
    chosen = pairs.beta * (chosen - pairs.reference[sequence]);
    rejected = pairs.beta * (rejected - pairs.reference[sequence + 1]);
    if (threadIdx.x == 0) write_figures(chosen, rejected, counts, pairs.figures + pair * PREFERENCE_FIGURES);
    if (!pairs.dy) return;
    double scale = counts ? pairs.beta * pairs.scalars[SCALAR_LOSS_SCALE] : 0;
    float slope = (float)(scale / (1 + exp(chosen - rejected)));
    write_gradients(pairs, sequence, -slope);
    write_gradients(pairs, sequence + 1, slope);
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
    const struct shape *y = &node->in[0]->shape;
    struct pairs pairs = {};
    pairs.y = (const float *)call->in[0];
    pairs.targets = (const int32_t *)call->in[1];
    pairs.reference = (const double *)call->in[2];
    pairs.scalars = call->scalars;
    pairs.figures = (double *)call->workspace;
    pairs.dy = (float *)call->out[1];
    pairs.length = y->dims[1];
    pairs.beta = NODE_ATTRIBUTES(node, preference_attributes)->beta;
    launch(known<pair_kernel>(), grid_size(y->dims[0] / 2), THREADS, 0, stream_of(call), pairs);
    launch(known<add_pairs_kernel>(), 1, WARP, 0, stream_of(call), pairs.figures, y->dims[0] / 2,
           (double *)call->out[0]);
    return cuda_outcome();
}

static enum status pairs_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, pairs_run, cuda_preference_bytes(node), out);
}

enum status cuda_preference_loss_create(const struct node *node, struct kernel **out) {
    return pairs_create(node, out);
}

enum status cuda_preference_loss_grad_create(const struct node *node, struct kernel **out) {
    return pairs_create(node, out);
}
