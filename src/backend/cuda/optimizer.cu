/* The update: norms, clipping, AdamW. Operands are whole parameters, without gaps. */
#include "backend/cuda/device.cuh"

extern "C" {
#include "backend/adamw_step.h"
}

/* Sum of a block of GRADIENT_NORM_BLOCK elements, in double: each thread every THREADS-th element. */
__global__ void __launch_bounds__(THREADS) square_kernel(const float *gradient, int64_t count, double *sums) {
    int64_t begin = (int64_t)blockIdx.x * GRADIENT_NORM_BLOCK;
    int64_t end = begin + GRADIENT_NORM_BLOCK < count ? begin + GRADIENT_NORM_BLOCK : count;
    double sum = 0;
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
        double value = (double)gradient[i];
        sum = fma(value, value, sum);
    }
    sum = team_sum<THREADS>(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__device__ inline double sum_of(const double *values, int64_t count) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < count; i += THREADS)
        sum += values[i];
    return team_sum<THREADS>(sum);
}

__global__ void __launch_bounds__(THREADS) total_kernel(const double *sums, int64_t count, double *out) {
    double total = sum_of(sums, count);
    if (threadIdx.x == 0) *out = total;
}

__global__ void __launch_bounds__(THREADS)
    clip_kernel(const double *squares, int64_t count, double limit, double *out) {
    double norm = sqrt(sum_of(squares, count)), factor = limit > 0 ? limit / (norm + 1e-6) : 1;
    if (factor > 1) factor = 1;
    if (threadIdx.x > 0) return;
    out[0] = norm;
    out[1] = isfinite(norm) ? factor : (double)NAN;
}

static int64_t norm_blocks(const struct node *node) {
    return divide_up(shape_elements(&node->in[0]->shape), GRADIENT_NORM_BLOCK);
}

static void squared_norm_run(const struct kernel *kernel, const struct kernel_call *call) {
    int64_t blocks = norm_blocks(kernel->node), count = shape_elements(&kernel->node->in[0]->shape);
    double *sums = (double *)call->workspace;
    launch(square_kernel, grid_size(blocks), THREADS, 0, stream_of(call), (const float *)call->in[0], count, sums);
    launch(total_kernel, 1, THREADS, 0, stream_of(call), (const double *)sums, blocks, (double *)call->out[0]);
}

enum status cuda_squared_norm_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, squared_norm_run, norm_blocks(node) * (int64_t)sizeof(double), out);
}

static void clip_factor_run(const struct kernel *kernel, const struct kernel_call *call) {
    launch(clip_kernel, 1, THREADS, 0, stream_of(call), (const double *)call->in[0],
           shape_elements(&kernel->node->in[0]->shape), NODE_ATTRIBUTES(kernel->node, clip_attributes)->limit,
           (double *)call->out[0]);
}

enum status cuda_clip_factor_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, clip_factor_run, 0, out);
}

struct adamw {
    const float *gradient;
    const double *clip; /* [2]: the factor is the second */
    float *weight, *exp_avg, *exp_avg_sq;
    __nv_bfloat16 *rounded; /* NULL, or a copy of the weight */
    int64_t count;
    struct adamw_step step; /* its clip factor is not known here */
};

/* Every operation is written out as exactly rounded, in the order of the CPU's (backend/cpu/simd/simd_adamw.c), so that
 * both give the same bits. */
__device__ inline void adamw_element(const struct adamw_step &step, float clip, float gradient, float *weight, float *m,
                                     float *v) {
    float g = __fmul_rn(gradient, clip);
    *m = __fmaf_rn(step.blend1, __fsub_rn(g, *m), *m);
    *v = __fmaf_rn(__fmul_rn(g, step.blend2), g, __fmul_rn(*v, step.beta2));
    float divisor = __fmaf_rn(__fsqrt_rn(*v), step.root, step.epsilon);
    *weight = __fmaf_rn(__fdiv_rn(*m, divisor), -step.step, __fmul_rn(*weight, step.decay));
}

/* Each thread has W neighbours; W divides the count. */
template <int W> __global__ void __launch_bounds__(THREADS) adamw_kernel(struct adamw adamw) {
    double clip = adamw.clip[1];
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;
    if (isnan(clip) || i >= adamw.count) return;
    vector<float, W> gradient = load<float, W>(adamw.gradient, i), weight = load<float, W>(adamw.weight, i);
    vector<float, W> m = load<float, W>(adamw.exp_avg, i), v = load<float, W>(adamw.exp_avg_sq, i);
#pragma unroll
    for (int w = 0; w < W; w++)
        adamw_element(adamw.step, (float)clip, gradient.at[w], &weight.at[w], &m.at[w], &v.at[w]);
    store<float, W>(adamw.weight, i, weight);
    store<float, W>(adamw.exp_avg, i, m);
    store<float, W>(adamw.exp_avg_sq, i, v);
    if (!adamw.rounded) return;
    vector<__nv_bfloat16, W> rounded;
    for (int w = 0; w < W; w++)
        rounded.at[w] = narrow<__nv_bfloat16>(weight.at[w]);
    store<__nv_bfloat16, W>(adamw.rounded, i, rounded);
}

static struct adamw adamw_of(const struct node *node, const struct kernel_call *call) {
    return {
        .gradient = (const float *)call->in[0],
        .clip = (const double *)call->in[1],
        .weight = (float *)(call->out[3] ? call->out[3] : call->out[0]),
        .exp_avg = (float *)call->out[1],
        .exp_avg_sq = (float *)call->out[2],
        .rounded = call->out[3] ? (__nv_bfloat16 *)call->out[0] : NULL,
        .count = shape_elements(&node->in[0]->shape),
        .step = adamw_step_of(node, call),
    };
}

static void adamw_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct adamw adamw = adamw_of(kernel->node, call);
    uintptr_t all = (uintptr_t)adamw.gradient | (uintptr_t)adamw.weight | (uintptr_t)adamw.exp_avg |
                    (uintptr_t)adamw.exp_avg_sq | (uintptr_t)adamw.rounded;
    bool vectors = all % 16 == 0 && adamw.count % 4 == 0;
    int64_t threads = vectors ? adamw.count / 4 : adamw.count;
    launch(vectors ? adamw_kernel<4> : adamw_kernel<1>, grid_size(divide_up(threads, THREADS)), THREADS, 0,
           stream_of(call), adamw);
}

enum status cuda_adamw_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, adamw_run, 0, out);
}
