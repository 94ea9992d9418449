/* RMSNorm and layer norm with their gradients. Features that are normalised together are a group; a row of activations
 * holds one or several. A warp works on a group, or a block if the group is long. Its threads read the group once and
 * then hold it in registers. The choice of kernels does not change a bit of a gradient. */
#include "backend/cuda/kernels/device.cuh"

/* Strides in elements; what is not wanted is NULL. */
struct norm {
    const void *x, *weight, *bias;
    void *y;
    float *mean, *rstd; /* [rows][groups] */
    int64_t x_stride, y_stride;
    int64_t count, group; /* groups in all; features of each */
    unsigned groups;      /* of a row */
    float share, epsilon; /* 1 / group */
    bool one_plus;        /* the weight is 1 + what is stored */
};

struct norm_gradient {
    const void *dy, *x, *weight, *addend;
    void *dx;
    const float *mean, *rstd;  /* mean NULL: rms_norm */
    float *dweights, *dbiases; /* partial sums */
    int64_t dy_stride, x_stride, addend_stride, dx_stride;
    int64_t count, group, block_groups;
    unsigned groups;
    float share; /* 1 / group */
    bool one_plus;
};

template <typename T> __device__ inline float weight_of(T stored, bool one_plus) {
    return one_plus ? 1.0f + widen(stored) : widen(stored);
}

/* The group that this team of threads takes; count or more: none. */
template <int TEAM> __device__ inline unsigned team_group(void) {
    return blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM;
}

/* A thread's vectors of a group. PIECES 0: more than are held, read again each time. */
template <typename T, int W, int TEAM, int PIECES> struct team_part {
    const void *data;
    int64_t first, group; /* of the group in the data; its features */
    vector<T, W> held[PIECES > 0 ? PIECES : 1];

    __device__ team_part(const void *data, int64_t first, int64_t group) : data(data), first(first), group(group) {
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++)
            if (feature(piece) < group) held[piece] = load<T, W>(data, first + feature(piece));
    }
    static __device__ int feature(int piece) { return (piece * TEAM + (int)threadIdx.x % TEAM) * W; }
    __device__ vector<T, W> at(int piece) const {
        return PIECES > 0 ? held[piece] : load<T, W>(data, first + feature(piece));
    }
    /* body(piece, feature) for each of them. */
    template <typename BODY> __device__ void each(BODY body) const {
        if constexpr (PIECES > 0) {
#pragma unroll
            for (int piece = 0; piece < PIECES; piece++)
                if (feature(piece) < group) body(piece, feature(piece));
        } else {
            for (int piece = 0; feature(piece) < group; piece++)
                body(piece, feature(piece));
        }
    }
};

template <typename T, int W, int TEAM, int PIECES>
__global__ void __launch_bounds__(THREADS) norm_kernel(struct norm norm, bool centered) {
    unsigned index = team_group<TEAM>();
    if (index >= norm.count) return;
    int64_t group = norm.group, row = index / norm.groups, first = index % norm.groups * group,
            y_at = row * norm.y_stride + first;
    team_part<T, W, TEAM, PIECES> x(norm.x, row * norm.x_stride + first, group);
    float center = 0, squares = 0;
    if (centered) {
        float sum = 0;
        x.each([&](int piece, int) {
            vector<T, W> values = x.at(piece);
            for (int w = 0; w < W; w++)
                sum += widen(values.at[w]);
        });
        center = team_sum<TEAM>(sum) * norm.share;
    }
    x.each([&](int piece, int) {
        vector<T, W> values = x.at(piece);
        for (int w = 0; w < W; w++) {
            float value = widen(values.at[w]) - center;
            squares = fmaf(value, value, squares);
        }
    });
    float scale = __frsqrt_rn(fmaf(team_sum<TEAM>(squares), norm.share, norm.epsilon));
    x.each([&](int piece, int i) {
        vector<T, W> values = x.at(piece), weight = load<T, W>(norm.weight, i), bias = {}, y;
        if (norm.bias) bias = load<T, W>(norm.bias, i);
        for (int w = 0; w < W; w++) {
            float shift = norm.bias ? widen(bias.at[w]) : 0.0f;
            y.at[w] =
                narrow<T>(fmaf((widen(values.at[w]) - center) * scale, weight_of(weight.at[w], norm.one_plus), shift));
        }
        store<T, W>(norm.y, y_at + i, y);
    });
    if (threadIdx.x % TEAM > 0) return;
    norm.rstd[index] = scale;
    if (centered) norm.mean[index] = center;
}

/* With h = (x - mean) rstd and g = dy weight: dx = rstd (g - mean of g - h mean of g h) + addend; the mean of g only in
 * layer norm. A team works on one group. Calls also(piece, w, dy, h) for each of the thread's features. */
template <typename T, int W, int TEAM, int PIECES, typename ALSO>
__device__ inline void norm_dx(const struct norm_gradient &norm, unsigned index, ALSO also) {
    int64_t group = norm.group, row = index / norm.groups, first = index % norm.groups * group;
    int64_t addend_at = row * norm.addend_stride + first, dx_at = row * norm.dx_stride + first;
    team_part<T, W, TEAM, PIECES> dy(norm.dy, row * norm.dy_stride + first, group);
    team_part<T, W, TEAM, PIECES> x(norm.x, row * norm.x_stride + first, group);
    float rstd = norm.rstd[index], mean = norm.mean ? norm.mean[index] : 0.0f, products = 0, sum = 0;
    x.each([&](int piece, int i) {
        vector<T, W> slopes = dy.at(piece), values = x.at(piece), weight = load<T, W>(norm.weight, i);
#pragma unroll
        for (int w = 0; w < W; w++) {
            float slope = widen(slopes.at[w]), normal = (widen(values.at[w]) - mean) * rstd;
            float g = slope * weight_of(weight.at[w], norm.one_plus);
            products = fmaf(g, normal, products);
            sum += g;
            also(piece, w, slope, normal);
        }
    });
    float along = team_sum<TEAM>(products) * norm.share, across = norm.mean ? team_sum<TEAM>(sum) * norm.share : 0.0f;
    x.each([&](int piece, int i) {
        vector<T, W> slopes = dy.at(piece), values = x.at(piece), weight = load<T, W>(norm.weight, i), addend = {}, dx;
        if (norm.addend) addend = load<T, W>(norm.addend, addend_at + i);
        for (int w = 0; w < W; w++) {
            float normal = (widen(values.at[w]) - mean) * rstd,
                  g = widen(slopes.at[w]) * weight_of(weight.at[w], norm.one_plus);
            float change = fmaf(normal, -along, g - across);
            dx.at[w] = narrow<T>(fmaf(change, rstd, norm.addend ? widen(addend.at[w]) : 0.0f));
        }
        store<T, W>(norm.dx, dx_at + i, dx);
    });
}

template <typename T, int W, int TEAM, int PIECES>
__global__ void __launch_bounds__(THREADS) norm_dx_kernel(struct norm_gradient norm) {
    unsigned index = team_group<TEAM>();
    if (index < norm.count) norm_dx<T, W, TEAM, PIECES>(norm, index, [](int, int, float, float) {});
}

constexpr int WEIGHT_LANES = THREADS / WARP;

/* A warp's sums over its groups of dy h and dy, of the features that its threads hold. */
template <typename T, int W, int PIECES> struct weight_sums {
    using part = team_part<T, W, WARP, PIECES>;
    float at[PIECES * W];

    /* Over the block's warps, in their order, to `out` [group]. All threads call it. */
    __device__ void write(float *out, int64_t group) const {
        __shared__ float sums[WEIGHT_LANES][PIECES * WARP * W];
        __syncthreads(); /* the sums of the call before have been read */
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++)
#pragma unroll
            for (int w = 0; w < W; w++)
                sums[threadIdx.x / WARP][part::feature(piece) + w] = at[piece * W + w];
        __syncthreads();
        for (int i = (int)threadIdx.x; i < group; i += THREADS) {
            float sum = sums[0][i];
#pragma unroll
            for (int lane = 1; lane < WEIGHT_LANES; lane++)
                sum += sums[lane][i];
            out[i] = sum;
        }
    }
};

/* Fuses the two kernels around this one, to read dy and x once, for groups that a warp holds. Block b has groups [b *
 * block_groups, …), and each warp every WEIGHT_LANES-th of them, so that the sums have norm_weight_kernel's order. Two
 * blocks run on a multiprocessor if the sums leave registers for that. */
template <typename T, int W, int PIECES>
__global__ void __launch_bounds__(THREADS, PIECES *W <= 24 && sizeof(T) == 2 ? 2 : 1)
    norm_grad_kernel(struct norm_gradient norm) {
    unsigned begin = blockIdx.x * (unsigned)norm.block_groups, count = (unsigned)norm.count;
    unsigned end = begin + norm.block_groups < count ? begin + (unsigned)norm.block_groups : count;
    weight_sums<T, W, PIECES> dweight = {}, dbias = {};
    for (unsigned index = begin + threadIdx.x / WARP; index < end; index += WEIGHT_LANES)
        norm_dx<T, W, WARP, PIECES>(norm, index, [&](int piece, int w, float slope, float normal) {
            dweight.at[piece * W + w] = fmaf(slope, normal, dweight.at[piece * W + w]);
            dbias.at[piece * W + w] += slope;
        });
    if (norm.dweights) dweight.write(norm.dweights + blockIdx.x * norm.group, norm.group);
    if (norm.dbiases) dbias.write(norm.dbiases + blockIdx.x * norm.group, norm.group);
}

/* Block (c, b) sums dy h and dy over groups [b * block_groups, …) for WARP * W features: each lane every
 * WEIGHT_LANES-th group, then the lanes in order. */
template <typename T, int W> __global__ void __launch_bounds__(THREADS) norm_weight_kernel(struct norm_gradient norm) {
    int64_t left = (int64_t)blockIdx.x * WARP * W, column = left + threadIdx.x * W;
    int64_t begin = blockIdx.y * norm.block_groups, out_at = blockIdx.y * norm.group + left;
    int64_t end = begin + norm.block_groups < norm.count ? begin + norm.block_groups : norm.count;
    unsigned first = (unsigned)begin + threadIdx.y, row = first / norm.groups, place = first % norm.groups;
    unsigned row_step = WEIGHT_LANES / norm.groups, place_step = WEIGHT_LANES % norm.groups;
    float dweight[W] = {}, dbias[W] = {};
#pragma unroll 4
    for (int64_t index = first; column < norm.group && index < end; index += WEIGHT_LANES) {
        int64_t at = place * norm.group + column;
        vector<T, W> dy = load<T, W>(norm.dy, row * norm.dy_stride + at);
        vector<T, W> x = load<T, W>(norm.x, row * norm.x_stride + at);
        float mean = norm.mean ? norm.mean[index] : 0.0f, rstd = norm.rstd[index];
#pragma unroll
        for (int w = 0; w < W; w++) {
            dweight[w] = fmaf(widen(dy.at[w]), (widen(x.at[w]) - mean) * rstd, dweight[w]);
            dbias[w] += widen(dy.at[w]);
        }
        bool over = place + place_step >= norm.groups;
        row += row_step + over;
        place += place_step - (over ? norm.groups : 0);
    }
    if (norm.dweights) lanes_sum<W>(dweight, norm.dweights + out_at, norm.group - left, false);
    if (norm.dbiases) lanes_sum<W>(dbias, norm.dbiases + out_at, norm.group - left, false);
}

/* Calls run<W, TEAM, PIECES>() with the parameters for groups of this size. */
template <typename T, typename RUN> static void norm_dispatch(int64_t group, bool vectors, const RUN &run) {
    constexpr int W = VECTOR<T>;
    if (!vectors && group <= 16 * WARP)
        run.template operator()<1, WARP, 0>();
    else if (!vectors)
        run.template operator()<1, THREADS, 0>();
    else if (group <= 8 * WARP)
        run.template operator()<W, WARP, 8 / W>();
    else if (group <= 32 * WARP)
        run.template operator()<W, WARP, 32 / W>();
    else if (group <= 8 * THREADS)
        run.template operator()<W, THREADS, 8 / W>();
    else if (group <= 16 * THREADS)
        run.template operator()<W, THREADS, 16 / W>();
    else if (group <= 32 * THREADS)
        run.template operator()<W, THREADS, 32 / W>();
    else
        run.template operator()<W, THREADS, 0>();
}

/* A team for each group. */
template <int TEAM> static unsigned norm_grid(int64_t count) {
    (void)grid_size(count); /* groups are counted in 32 bits */
    return grid_size(divide_up(count, THREADS / TEAM));
}

template <typename T>
static void norm_launch(const struct norm &norm, bool centered, bool vectors, cudaStream_t stream) {
    norm_dispatch<T>(norm.group, vectors, [&]<int W, int TEAM, int PIECES>() {
        launch(known<norm_kernel<T, W, TEAM, PIECES>>(), norm_grid<TEAM>(norm.count), THREADS, 0, stream, norm,
               centered);
    });
}

template <typename T> static void dx_launch(const struct norm_gradient &norm, bool vectors, cudaStream_t stream) {
    norm_dispatch<T>(norm.group, vectors, [&]<int W, int TEAM, int PIECES>() {
        launch(known<norm_dx_kernel<T, W, TEAM, PIECES>>(), norm_grid<TEAM>(norm.count), THREADS, 0, stream, norm);
    });
}

static int64_t group_of(const struct node *node, int weight) { return shape_columns(&node->in[weight]->shape); }

static bool groups_are_vectors(const struct shape *shape, int64_t group) {
    return group * dtype_bytes(shape->dtype) % 16 == 0;
}

static enum status norm_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    bool centered = node->op == &op_layer_norm;
    const struct shape *x = &node->in[0]->shape;
    int64_t group = group_of(node, 1), groups = shape_columns(x) / group;
    struct norm norm = {
        .x = call->in[0],
        .weight = call->in[1],
        .bias = centered ? call->in[2] : NULL,
        .y = call->out[0],
        .mean = centered ? (float *)call->out[1] : NULL,
        .rstd = (float *)call->out[centered ? 2 : 1],
        .x_stride = tensor_row_stride(node->in[0]),
        .y_stride = tensor_row_stride(node->out[0]),
        .count = shape_rows(x) * groups,
        .group = group,
        .groups = (unsigned)groups,
        .share = 1.0f / (float)group,
        .epsilon = (float)NODE_ATTRIBUTES(node, norm_attributes)->epsilon,
        .one_plus = NODE_ATTRIBUTES(node, norm_attributes)->one_plus,
    };
    bool vectors = groups_are_vectors(x, group) && rows_are_vectors(node->in[0], norm.x) &&
                   rows_are_vectors(node->in[1], norm.weight) && rows_are_vectors(node->out[0], norm.y) &&
                   (!norm.bias || rows_are_vectors(node->in[2], norm.bias));
    FOR_ELEMENT(x->dtype, norm_launch, norm, centered, vectors, stream_of(call));
    return cuda_outcome();
}

CUDA_KERNEL(rms_norm, norm_run)

CUDA_KERNEL(layer_norm, norm_run)

template <typename T> static void weight_launch(const struct norm_gradient &norm, bool vectors, cudaStream_t stream) {
    int64_t width = vectors ? VECTOR<T> : 1;
    dim3 grid(grid_size(divide_up(norm.group, WARP * width)), (unsigned)divide_up(norm.count, norm.block_groups));
    launch(vectors ? known<norm_weight_kernel<T, VECTOR<T>>>() : known<norm_weight_kernel<T, 1>>(), grid,
           dim3(WARP, WEIGHT_LANES), 0, stream, norm);
}

/* Whether one kernel makes all that is asked for: where a warp holds a group, and holds enough of it that a few warps
 * keep the memory busy. */
static bool is_one_pass(const struct norm_gradient &norm, bool vectors) {
    return vectors && norm.group > 8 * WARP && norm.group <= 32 * WARP && norm.dx && norm.dweights;
}

template <typename T> static void grad_launch(const struct norm_gradient &norm, cudaStream_t stream) {
    constexpr int W = VECTOR<T>;
    launch(norm.group <= 24 * WARP ? known<norm_grad_kernel<T, W, 24 / W>>() : known<norm_grad_kernel<T, W, 32 / W>>(),
           grid_size(divide_up(norm.count, norm.block_groups)), THREADS, 0, stream, norm);
}

/* dx comes last, or row by row after the addend: it may take over the addend's place, and nothing else reads that. */
static enum status norm_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    bool centered = node->op == &op_layer_norm_grad;
    int rstd = centered ? 4 : 3, addend = rstd + 1;
    const struct shape *x = &node->in[1]->shape;
    cudaStream_t stream = stream_of(call);
    int64_t group = group_of(node, 2), groups = shape_columns(x) / group, count = shape_rows(x) * groups;
    float *dweight = (float *)call->out[1], *dbias = centered ? (float *)call->out[2] : NULL;
    struct norm_gradient norm = {
        .dy = call->in[0],
        .x = call->in[1],
        .weight = call->in[2],
        .addend = call->in[addend],
        .dx = call->out[0],
        .mean = centered ? (const float *)call->in[3] : NULL,
        .rstd = (const float *)call->in[rstd],
        .dweights = dweight ? (float *)call->workspace : NULL,
        .dbiases = dbias ? (float *)workspace_at(call, dweight ? cuda_sum_workspace(count, group) : 0) : NULL,
        .dy_stride = tensor_row_stride(node->in[0]),
        .x_stride = tensor_row_stride(node->in[1]),
        .addend_stride = node->in[addend] ? tensor_row_stride(node->in[addend]) : 0,
        .dx_stride = node->out[0] ? tensor_row_stride(node->out[0]) : 0,
        .count = count,
        .group = group,
        .block_groups = cuda_sum_block_rows(count),
        .groups = (unsigned)groups,
        .share = 1.0f / (float)group,
        .one_plus = NODE_ATTRIBUTES(node, norm_grad_attributes)->one_plus,
    };
    bool vectors = groups_are_vectors(x, group) && rows_are_vectors(node->in[0], norm.dy) &&
                   rows_are_vectors(node->in[1], norm.x) && rows_are_vectors(node->in[2], norm.weight) &&
                   rows_are_vectors(node->in[addend], norm.addend) && rows_are_vectors(node->out[0], norm.dx);
    bool one_pass = is_one_pass(norm, vectors);
    (void)grid_size(count); /* groups are counted in 32 bits */
    if (one_pass)
        FOR_ELEMENT(x->dtype, grad_launch, norm, stream);
    else if (dweight || dbias)
        FOR_ELEMENT(x->dtype, weight_launch, norm, vectors, stream);
    if (dweight) cuda_sum_combine(stream, cuda_sum_blocks(count), group, norm.dweights, dweight);
    if (dbias) cuda_sum_combine(stream, cuda_sum_blocks(count), group, norm.dbiases, dbias);
    if (norm.dx && !one_pass) FOR_ELEMENT(x->dtype, dx_launch, norm, vectors, stream);
    return cuda_outcome();
}

static enum status norm_grad_create(const struct node *node, struct kernel **out) {
    int64_t group = group_of(node, 2), count = shape_elements(&node->in[1]->shape) / group;
    int wanted = (node->out[1] != NULL) + (node->out[2] != NULL);
    return kernel_plain(node, norm_grad_run, wanted * cuda_sum_workspace(count, group), out);
}

CUDA_KERNEL_MAKER(rms_norm_grad, norm_grad_create)

CUDA_KERNEL_MAKER(layer_norm_grad, norm_grad_create)
