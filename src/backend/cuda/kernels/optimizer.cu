/* The update: norms, clipping, parameters. Operands are whole parameters or runs of their elements, without
 * gaps; one launch works on several. */
#include "backend/cuda/kernels/stochastic_rounding.cuh"

extern "C" {
#include "backend/cuda/kernel.h"
#include "backend/kernel_parts.h"
#include "backend/moment_numbers.h"
}

static_assert(GRADIENT_NORM_BLOCK % (THREADS * VECTOR<float>) == 0, "blocks begin at multiples of 16 bytes");

/* Parameters that one launch works on: given to the device by value. Blocks of the grid are dealt to them in order. */
template <typename ENTRY, int MAX = KERNELS_TOGETHER> struct table {
    int count;
    ENTRY at[MAX]; /* each with `first`, its first block of the grid */
};

/* The entry of the thread's block: the last that begins at it or before. */
template <typename ENTRY, int MAX>
__device__ inline const ENTRY &entry_of_block(const struct table<ENTRY, MAX> &table) {
    int low = 0, high = table.count;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (table.at[middle].first <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    return table.at[low];
}

struct squares {
    const float *gradient;
    double *sums; /* one for each block of GRADIENT_NORM_BLOCK elements */
    int64_t count;
    unsigned first;
};

/* Sum of a block of GRADIENT_NORM_BLOCK elements, in double: each thread every THREADS-th four. */
__global__ void __launch_bounds__(THREADS) square_kernel(const __grid_constant__ struct table<squares> table) {
    constexpr int W = VECTOR<float>;
    const struct squares &own = entry_of_block(table);
    int64_t begin = (int64_t)(blockIdx.x - own.first) * GRADIENT_NORM_BLOCK;
    int64_t end = begin + GRADIENT_NORM_BLOCK < own.count ? begin + GRADIENT_NORM_BLOCK : own.count;
    double sum = 0;
#pragma unroll 4
    for (int64_t i = begin + (int64_t)threadIdx.x * W; i < end; i += THREADS * W) {
        vector<float, W> values = {};
        if (i + W <= end)
            values = load<float, W>(own.gradient, i);
        else
#pragma unroll 1
            for (int w = 0; i + w < end; w++)
                values.at[w] = own.gradient[i + w];
#pragma unroll
        for (int w = 0; w < W; w++)
            sum = fma((double)values.at[w], (double)values.at[w], sum);
    }
    sum = team_sum<THREADS>(sum);
    if (threadIdx.x == 0) own.sums[blockIdx.x - own.first] = sum;
}

__device__ inline double sum_of(const double *values, int64_t count) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < count; i += THREADS)
        sum += values[i];
    return team_sum<THREADS>(sum);
}

struct total {
    const double *sums; /* of one gradient */
    int64_t count;
    double *out;
    unsigned first;
};

__global__ void __launch_bounds__(THREADS) total_kernel(const __grid_constant__ struct table<total> table) {
    const struct total &own = entry_of_block(table);
    double total = sum_of(own.sums, own.count);
    if (threadIdx.x == 0) *own.out = total;
}

__global__ void __launch_bounds__(THREADS)
    clip_kernel(const double *squares, int64_t count, double limit, double *out) {
    double norm = sqrt(sum_of(squares, count)), factor = limit > 0 ? limit / (norm + 1e-6) : 1;
    if (factor > 1) factor = 1;
    if (threadIdx.x > 0) return;
    out[0] = norm;
    out[1] = isfinite(norm) ? factor : (double)NAN;
}

static enum status squared_sums_run(const struct kernel *const *kernels, const struct kernel_call *calls, int count) {
    struct table<squares> table = {
        .count = count
    };
    unsigned blocks = 0;
    for (int i = 0; i < count; i++) {
        int64_t elements = kernel_elements(kernels[i], &calls[i]);
        BUG_IF((uintptr_t)calls[i].in[0] % 16 != 0, "%s: a gradient that is not aligned", kernels[i]->node->name);
        table.at[i] = {(const float *)calls[i].in[0], (double *)calls[i].out[0], elements, blocks};
        blocks += grid_size(gradient_norm_blocks(elements));
    }
    launch(known<square_kernel>(), grid_size(blocks), THREADS, 0, stream_of(calls), table);
    return cuda_outcome();
}

static enum status squared_norms_run(const struct kernel *const *kernels, const struct kernel_call *calls, int count) {
    struct table<total> table = {
        .count = count
    };
    for (int i = 0; i < count; i++)
        table.at[i] = {(const double *)calls[i].in[0], shape_elements(&kernels[i]->node->in[0]->shape),
                       (double *)calls[i].out[0], (unsigned)i};
    launch(known<total_kernel>(), grid_size(count), THREADS, 0, stream_of(calls), table);
    return cuda_outcome();
}

template <kernel_run_together *TOGETHER>
static enum status alone(const struct kernel *kernel, const struct kernel_call *call) {
    return TOGETHER(&kernel, call, 1);
}

/* A kernel that one launch can call together with others like it. */
template <kernel_run_together *TOGETHER>
static enum status together_create(const struct node *node, struct kernel **out) {
    TRY(kernel_plain(node, alone<TOGETHER>, 0, out));
    (*out)->run_together = TOGETHER;
    return STATUS_OK;
}

CUDA_KERNEL_MAKER(squared_sums, together_create<squared_sums_run>)

CUDA_KERNEL_MAKER(squared_norm, together_create<squared_norms_run>)

static enum status clip_factor_run(const struct kernel *kernel, const struct kernel_call *call) {
    launch(known<clip_kernel>(), 1, THREADS, 0, stream_of(call), (const double *)call->in[0],
           shape_elements(&kernel->node->in[0]->shape), NODE_ATTRIBUTES(kernel->node, clip_attributes)->limit,
           (double *)call->out[0]);
    return cuda_outcome();
}

CUDA_KERNEL(clip_factor, clip_factor_run)

/* The constants from which a step's numbers are computed, together with the step's values. */
struct update_constants {
    double weight_decay;
    uint64_t seed;
    float beta1, beta2, blend1, blend2, epsilon; /* as in struct update_step */
    uint32_t number;
};

static struct update_constants constants_of(const struct node *node) {
    const struct update_attributes *attributes = NODE_ATTRIBUTES(node, update_attributes);
    return {.weight_decay = attributes->weight_decay,
            .seed = attributes->seed,
            .beta1 = (float)attributes->beta1,
            .beta2 = (float)attributes->beta2,
            .blend1 = (float)(1 - attributes->beta1),
            .blend2 = (float)(1 - attributes->beta2),
            .epsilon = (float)attributes->epsilon,
            .number = attributes->number};
}

/* update_step_of, with the clip factor: each operation rounded by itself. */
template <enum update_rule RULE>
__device__ inline struct update_step step_of(const struct update_constants &constants, const double *scalars,
                                             double clip) {
    double rate = scalars[SCALAR_LEARNING_RATE], decay = __dmul_rn(rate, constants.weight_decay);
    double correction = RULE == UPDATE_ADAMW ? scalars[SCALAR_BIAS_CORRECTION] : 1;
    return {.decay = __double2float_rn(RULE == UPDATE_SGD ? constants.weight_decay : __dsub_rn(1, decay)),
            .clip = __double2float_rn(clip),
            .beta1 = constants.beta1,
            .beta2 = constants.beta2,
            .blend1 = constants.blend1,
            .blend2 = constants.blend2,
            .step = __double2float_rn(__dmul_rn(rate, correction)),
            .root = __double2float_rn(scalars[SCALAR_BIAS_CORRECTION_SQ]),
            .epsilon = constants.epsilon,
            .seed = constants.seed,
            .number = constants.number,
            .count = (uint32_t)scalars[SCALAR_STEP]};
}

struct update {
    const float *gradient;
    const double *clip; /* [2]: the factor is the second; NULL: it is 1 */
    void *weight, *moments[UPDATE_MOMENTS_MAX];
    __nv_bfloat16 *rounded; /* NULL, or a copy of the weight, or its upper halves */
    int64_t count;
    const double *scalars; /* of the step, in the device's memory */
    struct update_constants constants;
    uint32_t draws; /* the block of random numbers of the first four elements */
    unsigned first;
    bool vectors;
    bool halves; /* `weight` has its lower ones */
};
static_assert(sizeof(struct table<update>) <= 4096, "all that a kernel may be given by value before CUDA 12.1");

/* Every operation is written out as exactly rounded, in the order of the CPU's (backend/cpu/simd/optimizer.c), so
 * that both give the same bits. `second`: AdamW's second moment. Muon's direction stands in the weight's place. */
template <enum update_rule RULE>
__device__ inline void update_element(const struct update_step &step, float gradient, float *weight, float *moment,
                                      float *second) {
    float g = __fmul_rn(gradient, step.clip), m = *moment;
    if (RULE == UPDATE_ADAMW) {
        *moment = m = __fmaf_rn(step.blend1, __fsub_rn(g, m), m);
        *second = __fmaf_rn(__fmul_rn(g, step.blend2), g, __fmul_rn(*second, step.beta2));
        float divisor = __fmaf_rn(__fsqrt_rn(*second), step.root, step.epsilon);
        *weight = __fmaf_rn(__fdiv_rn(m, divisor), -step.step, __fmul_rn(*weight, step.decay));
    } else if (RULE == UPDATE_LION) {
        float blend = __fmaf_rn(step.blend1, __fsub_rn(g, m), m), sign = blend > 0 ? 1 : blend < 0 ? -1 : 0;
        *weight = __fmaf_rn(sign, -step.step, __fmul_rn(*weight, step.decay));
        *moment = __fmaf_rn(step.blend2, __fsub_rn(g, m), m);
    } else if (RULE == UPDATE_MUON) {
        *moment = m = __fmaf_rn(step.blend1, __fsub_rn(g, m), m);
        *weight = __fmaf_rn(step.blend1, __fsub_rn(g, m), m);
    } else {
        *moment = __fmaf_rn(m, step.beta1, __fmaf_rn(*weight, step.decay, g));
        *weight = __fmaf_rn(*moment, -step.step, *weight);
    }
}

/* P: the dtype that the weight is computed in, or bf16, which is rounded stochastically. */
template <typename P, int W> __device__ inline vector<P, W> load_weight(const struct update &own, int64_t i) {
    if (sizeof(P) == 2 || !own.halves) return load<P, W>(own.weight, i);
    vector<uint16_t, W> lower = load<uint16_t, W>(own.weight, i), upper = load<uint16_t, W>(own.rounded, i);
    vector<P, W> weight;
#pragma unroll
    for (int w = 0; w < W; w++)
        weight.at[w] = narrow<P>(halves_join({upper.at[w], lower.at[w]}));
    return weight;
}

template <int W> __device__ inline void store_halves(const struct update &own, int64_t i, const float values[W]) {
    vector<uint16_t, W> lower, upper;
#pragma unroll
    for (int w = 0; w < W; w++) {
        struct halves halves = halves_split(values[w]);
        upper.at[w] = halves.upper, lower.at[w] = halves.lower;
    }
    store<uint16_t, W>(own.weight, i, lower);
    store<uint16_t, W>(own.rounded, i, upper);
}

/* `values`: as computed; `random`: the block of random numbers of a weight that is rounded so. */
template <typename P, int W>
__device__ inline void store_weight(const struct update &own, int64_t i, const float values[W],
                                    const uint32_t random[4]) {
    constexpr bool stochastic = sizeof(P) == 2;
    if (!stochastic && own.halves) return store_halves<W>(own, i, values);
    vector<P, W> weight;
    vector<__nv_bfloat16, W> rounded;
#pragma unroll
    for (int w = 0; w < W; w++) {
        int word = W == 1 ? (int)(i % 4) : w;
        weight.at[w] = narrow_stochastic<P>(values[w], stochastic ? random[word] & 0xffffu : 0);
        rounded.at[w] = narrow<__nv_bfloat16>(values[w]);
    }
    store<P, W>(own.weight, i, weight);
    if (!stochastic && own.rounded) store<__nv_bfloat16, W>(own.rounded, i, rounded);
}

/* W neighbours, of one block of random numbers; W divides the count. P, M: the dtypes of weight and moments. */
template <enum update_rule RULE, typename P, typename M, int W>
__device__ inline void update_neighbours(const struct update &own, const struct update_step &step, int64_t i) {
    constexpr bool rounds_m = sizeof(M) == 2, rounds_p = sizeof(P) == 2, two = RULE == UPDATE_ADAMW;
    vector<float, W> gradient = load<float, W>(own.gradient, i);
    vector<P, W> weight = {};
    if (RULE != UPDATE_MUON) weight = load_weight<P, W>(own, i);
    vector<M, W> m = load<M, W>(own.moments[0], i), v = {};
    float values[W];
    uint32_t state[4], random[4] = {}, block = own.draws + (uint32_t)(i / 4);
    if (two) v = load<M, W>(own.moments[1], i);
    if (rounds_m) draw_block({step.seed, step.number, step.count}, RANDOM_ROUND_STATE, block, state);
    if (rounds_p) draw_block({step.seed, step.number, step.count}, RANDOM_ROUND_WEIGHT, block, random);
#pragma unroll
    for (int w = 0; w < W; w++) {
        int word = W == 1 ? (int)(i % 4) : w;
        float weight_w = widen(weight.at[w]), m_w = widen(m.at[w]), v_w = widen(v.at[w]);
        update_element<RULE>(step, gradient.at[w], &weight_w, &m_w, &v_w);
        values[w] = weight_w;
        m.at[w] = narrow_stochastic<M>(m_w, rounds_m ? state[word] & 0xffffu : 0);
        v.at[w] = narrow_stochastic<M>(v_w, rounds_m ? state[word] >> 16 : 0);
    }
    store_weight<P, W>(own, i, values, random);
    store<M, W>(own.moments[0], i, m);
    if (two) store<M, W>(own.moments[1], i, v);
}

/* The clip factor is NaN: a weight that is rounded from another is written all the same. */
__device__ inline void update_nothing(const struct update &own, int64_t i) {
    if (own.rounded && !own.halves) own.rounded[i] = narrow<__nv_bfloat16>(((const float *)own.weight)[i]);
}

constexpr int UPDATE_BLOCK = 4 * THREADS; /* elements */

template <enum update_rule RULE, typename P, typename M>
__global__ void __launch_bounds__(THREADS) update_kernel(const __grid_constant__ struct table<update> table) {
    const struct update &own = entry_of_block(table);
    double clip = own.clip ? own.clip[1] : 1;
    int64_t begin = (int64_t)(blockIdx.x - own.first) * UPDATE_BLOCK;
    if (isnan(clip)) {
        for (int64_t i = begin + threadIdx.x; i < begin + UPDATE_BLOCK && i < own.count; i += THREADS)
            update_nothing(own, i);
        return;
    }
    struct update_step step = step_of<RULE>(own.constants, own.scalars, clip);
    if (own.vectors) {
        int64_t i = begin + (int64_t)threadIdx.x * 4;
        if (i < own.count) update_neighbours<RULE, P, M, 4>(own, step, i);
    } else {
        for (int64_t i = begin + threadIdx.x; i < begin + UPDATE_BLOCK && i < own.count; i += THREADS)
            update_neighbours<RULE, P, M, 1>(own, step, i);
    }
}

/* `direction`: NULL, or what Muon writes in place of the weight. */
static struct update update_of(const struct kernel *kernel, const struct kernel_call *call, float *direction,
                               unsigned first) {
    struct update_run run = update_run_of(kernel->node, call);
    bool halves = run.upper && !direction;
    if (halves) run.weight = run.lower, run.rounded = run.upper;
    if (direction) run.weight = direction, run.rounded = NULL;
    struct update update = {
        .gradient = run.gradient,
        .clip = (const double *)call->in[1],
        .weight = run.weight,
        .moments = {run.moments[0], run.moments[1]},
        .rounded = (__nv_bfloat16 *)run.rounded,
        .count = kernel_elements(kernel, call),
        .scalars = call->scalars,
        .constants = constants_of(kernel->node),
        .draws = (uint32_t)(run.first / 4),
        .first = first,
        .halves = halves,
    };
    uintptr_t all = (uintptr_t)update.gradient | (uintptr_t)update.weight | (uintptr_t)update.moments[0] |
                    (uintptr_t)update.moments[1] | (uintptr_t)update.rounded;
    update.vectors = all % 16 == 0 && update.count % 4 == 0;
    return update;
}

template <enum update_rule RULE, typename P, typename M>
static enum status updates_run(const struct kernel *const *kernels, const struct kernel_call *calls, int count) {
    struct table<update> table = {
        .count = count
    };
    unsigned blocks = 0;
    for (int i = 0; i < count; i++) {
        table.at[i] = update_of(kernels[i], &calls[i], NULL, blocks);
        blocks += grid_size(divide_up(table.at[i].count, UPDATE_BLOCK));
    }
    launch(known<update_kernel<RULE, P, M>>(), grid_size(blocks), THREADS, 0, stream_of(calls), table);
    return cuda_outcome();
}

/* ---- moments in 8 bits (backend/kernel_parts.h) ---- */

__device__ const float unsigned_numbers[] = {MOMENT_UNSIGNED_NUMBERS};
__device__ const float signed_magnitudes[] = {MOMENT_SIGNED_MAGNITUDES};
__device__ const struct moment_level unsigned_levels[] = MOMENT_LEVELS_OF(2);
__device__ const struct moment_level signed_levels[] = MOMENT_LEVELS_OF(1);
constexpr int SIGNED_ZERO = MOMENT_CODES / 2 - 1;

template <bool SIGNED> __device__ inline float moment_number(uint8_t code) {
    if (!SIGNED) return unsigned_numbers[code];
    return code < SIGNED_ZERO ? -signed_magnitudes[SIGNED_ZERO - code] : signed_magnitudes[code - SIGNED_ZERO];
}

/* The code of the nearest, as codes_of of backend/cpu/simd/optimizer.c finds it. */
template <bool SIGNED> __device__ inline uint8_t moment_code(float x) {
    bool negative = x < 0;
    float magnitude = negative ? -x : x;
    const struct moment_level *level = SIGNED ? signed_levels : unsigned_levels;
#pragma unroll 1
    for (int i = 1; i < MOMENT_LEVELS && magnitude > level[1].above; i++)
        level++;
    float place = __fmaf_rn(magnitude, level->slope, level->offset);
    int code = level->code + (place > 0 ? (int)place : 0);
    code = code < level->last ? code : level->last;
    if (!SIGNED) return (uint8_t)(negative ? 0 : code);
    return (uint8_t)(negative ? SIGNED_ZERO - (code < SIGNED_ZERO ? code : SIGNED_ZERO) : SIGNED_ZERO + code);
}

/* A moment of the thread's element becomes a code, and the block's scale is written. */
template <bool SIGNED> __device__ inline void pack_moment(float moment, bool inside, uint8_t *code, float *scale) {
    float largest = team_largest<THREADS>(inside ? fabsf(moment) : 0);
    if (inside) *code = moment_code<SIGNED>(__fdiv_rn(moment, largest));
    if (threadIdx.x == 0) *scale = largest;
}

struct quantized_update {
    struct update update; /* whose moments are codes */
    float *scales[UPDATE_MOMENTS_MAX];
    unsigned first;
};
constexpr int QUANTIZED_TOGETHER = 16;
static_assert(sizeof(struct table<quantized_update, QUANTIZED_TOGETHER>) <= 4096, "as above");
static_assert((int)THREADS == (int)UPDATE_SCALE_BLOCK, "a block of the grid has a block of moments");

template <enum update_rule RULE, typename P>
__global__ void __launch_bounds__(THREADS)
    quantized_update_kernel(const __grid_constant__ struct table<quantized_update, QUANTIZED_TOGETHER> table) {
    constexpr bool rounds_p = sizeof(P) == 2, two = RULE == UPDATE_ADAMW;
    const struct quantized_update &quantized = entry_of_block(table);
    const struct update &own = quantized.update;
    double clip = own.clip ? own.clip[1] : 1;
    int64_t block = blockIdx.x - quantized.first, i = block * UPDATE_SCALE_BLOCK + threadIdx.x;
    bool inside = i < own.count;
    if (isnan(clip)) {
        if (inside) update_nothing(own, i);
        return;
    }
    struct update_step step = step_of<RULE>(own.constants, own.scalars, clip);
    uint8_t *codes[] = {(uint8_t *)own.moments[0] + i, (uint8_t *)own.moments[1] + i};
    float m = 0, v = 0;
    if (inside) {
        uint32_t words[4] = {};
        float weight = RULE == UPDATE_MUON ? 0 : widen(load_weight<P, 1>(own, i).at[0]);
        m = __fmul_rn(moment_number<true>(*codes[0]), quantized.scales[0][block]);
        if (two) v = __fmul_rn(moment_number<false>(*codes[1]), quantized.scales[1][block]);
        update_element<RULE>(step, own.gradient[i], &weight, &m, &v);
        if (rounds_p)
            draw_block({step.seed, step.number, step.count}, RANDOM_ROUND_WEIGHT, own.draws + (uint32_t)(i / 4), words);
        store_weight<P, 1>(own, i, &weight, words);
    }
    pack_moment<true>(m, inside, codes[0], &quantized.scales[0][block]);
    if (two) pack_moment<false>(v, inside, codes[1], &quantized.scales[1][block]);
}

template <enum update_rule RULE, typename P>
static enum status launch_quantized(const struct kernel *const *kernels, const struct kernel_call *calls, int count) {
    struct table<quantized_update, QUANTIZED_TOGETHER> table = {
        .count = count
    };
    unsigned blocks = 0;
    for (int i = 0; i < count; i++) {
        const struct update_run run = update_run_of(kernels[i]->node, &calls[i]);
        table.at[i] = {update_of(kernels[i], &calls[i], NULL, 0), {run.scales[0], run.scales[1]}, blocks};
        blocks += grid_size(divide_up(table.at[i].update.count, UPDATE_SCALE_BLOCK));
    }
    launch(known<quantized_update_kernel<RULE, P>>(), grid_size(blocks), THREADS, 0, stream_of(calls), table);
    return cuda_outcome();
}

template <enum update_rule RULE, typename P>
static enum status quantized_updates_run(const struct kernel *const *kernels, const struct kernel_call *calls,
                                         int count) {
    for (int i = 0; i < count; i += QUANTIZED_TOGETHER)
        TRY((launch_quantized<RULE, P>(kernels + i, calls + i,
                                       count - i < QUANTIZED_TOGETHER ? count - i : QUANTIZED_TOGETHER)));
    return STATUS_OK;
}

template <enum update_rule RULE, typename P>
static enum status update_create_of(const struct node *node, struct kernel **out) {
    if (NODE_ATTRIBUTES(node, update_attributes)->moments == DTYPE_U8)
        return together_create<quantized_updates_run<RULE, P>>(node, out);
    return NODE_ATTRIBUTES(node, update_attributes)->moments == DTYPE_BF16
               ? together_create<updates_run<RULE, P, __nv_bfloat16>>(node, out)
               : together_create<updates_run<RULE, P, float>>(node, out);
}

template <enum update_rule RULE> static enum status update_create(const struct node *node, struct kernel **out) {
    const struct update_attributes *attributes = NODE_ATTRIBUTES(node, update_attributes);
    bool stochastic = attributes->parameter == DTYPE_BF16 && !attributes->has_master;
    return stochastic ? update_create_of<RULE, __nv_bfloat16>(node, out) : update_create_of<RULE, float>(node, out);
}

CUDA_KERNEL_MAKER(adamw, update_create<UPDATE_ADAMW>)

CUDA_KERNEL_MAKER(lion, update_create<UPDATE_LION>)

CUDA_KERNEL_MAKER(sgd, update_create<UPDATE_SGD>)

/* ---- Muon (muon.cu) ---- */

template <typename M>
static void move_matrix(const struct kernel *kernel, const struct kernel_call *call, float *direction) {
    struct table<update> table = {
        .count = 1
    };
    table.at[0] = update_of(kernel, call, direction, 0);
    launch(known<update_kernel<UPDATE_MUON, float, M>>(), grid_size(divide_up(table.at[0].count, UPDATE_BLOCK)),
           THREADS, 0, stream_of(call), table);
}

static void move_quantized_matrix(const struct kernel *kernel, const struct kernel_call *call, float *direction) {
    struct table<quantized_update, QUANTIZED_TOGETHER> table = {
        .count = 1
    };
    const struct update_run run = update_run_of(kernel->node, call);
    table.at[0] = {update_of(kernel, call, direction, 0), {run.scales[0], run.scales[1]}, 0};
    launch(known<quantized_update_kernel<UPDATE_MUON, float>>(),
           grid_size(divide_up(table.at[0].update.count, UPDATE_SCALE_BLOCK)), THREADS, 0, stream_of(call), table);
}

enum status cuda_muon_move(const struct kernel *kernel, const struct kernel_call *call, float *direction) {
    enum dtype moments = NODE_ATTRIBUTES(kernel->node, update_attributes)->moments;
    if (moments == DTYPE_U8)
        move_quantized_matrix(kernel, call, direction);
    else if (moments == DTYPE_BF16)
        move_matrix<__nv_bfloat16>(kernel, call, direction);
    else
        move_matrix<float>(kernel, call, direction);
    return cuda_outcome();
}

void cuda_squared_norm_of(const float *data, int64_t count, double *sums, double *out, void *stream) {
    int64_t blocks = gradient_norm_blocks(count);
    struct table<squares> squares = {
        .count = 1
    };
    struct table<total> total = {
        .count = 1
    };
    squares.at[0] = {data, sums, count, 0};
    total.at[0] = {sums, blocks, out, 0};
    launch(known<square_kernel>(), grid_size(blocks), THREADS, 0, (cudaStream_t)stream, squares);
    launch(known<total_kernel>(), 1, THREADS, 0, (cudaStream_t)stream, total);
}
