/* RMSNorm and layer norm with their gradients. A run of features that is normalised together is a group; a row of
 * activations holds one or several. A group is a warp's work, or a block's where it is long. */
#include "backend/cuda/device.cuh"

constexpr int64_t WARP_GROUP_MOST = 512; /* features of a group that a warp takes */

/* Strides in elements; what is not wanted is NULL. */
struct norm {
    const void *x, *weight, *bias;
    void *y;
    float *mean, *rstd; /* [rows][groups] */
    int64_t x_stride, y_stride;
    int64_t count, groups, group; /* groups in all and of a row; features of a group */
    double epsilon;
};

struct norm_gradient {
    const void *dy, *x, *weight, *addend;
    void *dx;
    const float *mean, *rstd;  /* mean NULL: rms_norm */
    float *dweights, *dbiases; /* partial sums */
    int64_t dy_stride, x_stride, addend_stride, dx_stride;
    int64_t count, groups, group, block_groups;
};

__device__ inline float reciprocal_root(float squares, int64_t n, double epsilon) {
    return (float)(1.0 / sqrt((double)squares / (double)n + epsilon));
}

/* The group that this team of threads takes; count or more: none. */
template <int TEAM> __device__ inline int64_t team_group(void) {
    return (int64_t)blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM;
}

template <typename T, int W, int TEAM>
__global__ void __launch_bounds__(THREADS) norm_kernel(struct norm norm, bool centered) {
    int64_t index = team_group<TEAM>(), group = norm.group;
    if (index >= norm.count) return;
    int64_t row = index / norm.groups, first = index % norm.groups * group;
    int64_t x_at = row * norm.x_stride + first, y_at = row * norm.y_stride + first;
    int start = (int)threadIdx.x % TEAM * W;
    float center = 0, squares = 0;
    if (centered) {
        float sum = 0;
        for (int64_t i = start; i < group; i += TEAM * W) {
            vector<T, W> x = load<T, W>(norm.x, x_at + i);
            for (int w = 0; w < W; w++)
                sum += widen(x.at[w]);
        }
        center = team_sum<TEAM>(sum) / (float)group;
    }
    for (int64_t i = start; i < group; i += TEAM * W) {
        vector<T, W> x = load<T, W>(norm.x, x_at + i);
        for (int w = 0; w < W; w++) {
            float value = widen(x.at[w]) - center;
            squares = fmaf(value, value, squares);
        }
    }
    float scale = reciprocal_root(team_sum<TEAM>(squares), group, norm.epsilon);
    for (int64_t i = start; i < group; i += TEAM * W) {
        vector<T, W> x = load<T, W>(norm.x, x_at + i), weight = load<T, W>(norm.weight, i), y;
        for (int w = 0; w < W; w++) {
            float shift = norm.bias ? widen(((const T *)norm.bias)[i + w]) : 0.0f;
            y.at[w] = narrow<T>(fmaf((widen(x.at[w]) - center) * scale, widen(weight.at[w]), shift));
        }
        store<T, W>(norm.y, y_at + i, y);
    }
    if (start > 0) return;
    norm.rstd[index] = scale;
    if (centered) norm.mean[index] = center;
}

/* With h = (x - mean) rstd and g = dy weight: dx = rstd (g - mean of g - h mean of g h) + addend, the mean of g only in
 * layer norm. */
template <typename T, int W, int TEAM>
__global__ void __launch_bounds__(THREADS) norm_dx_kernel(struct norm_gradient norm) {
    int64_t index = team_group<TEAM>(), group = norm.group;
    if (index >= norm.count) return;
    int64_t row = index / norm.groups, first = index % norm.groups * group;
    int64_t dy_at = row * norm.dy_stride + first, x_at = row * norm.x_stride + first;
    int64_t addend_at = row * norm.addend_stride + first, dx_at = row * norm.dx_stride + first;
    int start = (int)threadIdx.x % TEAM * W;
    float rstd = norm.rstd[index], mean = norm.mean ? norm.mean[index] : 0.0f, products = 0, sum = 0;
    for (int64_t i = start; i < group; i += TEAM * W) {
        vector<T, W> dy = load<T, W>(norm.dy, dy_at + i), x = load<T, W>(norm.x, x_at + i);
        vector<T, W> weight = load<T, W>(norm.weight, i);
        for (int w = 0; w < W; w++) {
            float g = widen(dy.at[w]) * widen(weight.at[w]);
            products = fmaf(g, (widen(x.at[w]) - mean) * rstd, products);
            sum += g;
        }
    }
    float along = team_sum<TEAM>(products) / (float)group, across = team_sum<TEAM>(sum) / (float)group;
    if (!norm.mean) across = 0;
    for (int64_t i = start; i < group; i += TEAM * W) {
        vector<T, W> dy = load<T, W>(norm.dy, dy_at + i), x = load<T, W>(norm.x, x_at + i);
        vector<T, W> weight = load<T, W>(norm.weight, i), addend = {}, dx;
        if (norm.addend) addend = load<T, W>(norm.addend, addend_at + i);
        for (int w = 0; w < W; w++) {
            float normal = (widen(x.at[w]) - mean) * rstd, g = widen(dy.at[w]) * widen(weight.at[w]);
            float change = fmaf(normal, -along, g - across);
            dx.at[w] = narrow<T>(fmaf(change, rstd, norm.addend ? widen(addend.at[w]) : 0.0f));
        }
        store<T, W>(norm.dx, dx_at + i, dx);
    }
}

constexpr int WEIGHT_COLUMNS = 32, WEIGHT_LANES = 8;

/* Block (c, b) sums dy h and dy over groups [b * block_groups, …) for WEIGHT_COLUMNS features: each lane every
 * WEIGHT_LANES-th group, then the lanes in order. */
template <typename T> __global__ void norm_weight_kernel(struct norm_gradient norm) {
    __shared__ float dweights[WEIGHT_LANES][WEIGHT_COLUMNS], dbiases[WEIGHT_LANES][WEIGHT_COLUMNS];
    int64_t column = (int64_t)blockIdx.x * WEIGHT_COLUMNS + threadIdx.x, begin = blockIdx.y * norm.block_groups;
    int64_t end = begin + norm.block_groups < norm.count ? begin + norm.block_groups : norm.count;
    bool inside = column < norm.group;
    float dweight = 0, dbias = 0;
    for (int64_t index = begin + threadIdx.y; inside && index < end; index += WEIGHT_LANES) {
        int64_t row = index / norm.groups, at = index % norm.groups * norm.group + column;
        float dy = widen(((const T *)norm.dy)[row * norm.dy_stride + at]);
        float x = widen(((const T *)norm.x)[row * norm.x_stride + at]), mean = norm.mean ? norm.mean[index] : 0.0f;
        dweight = fmaf(dy, (x - mean) * norm.rstd[index], dweight);
        dbias += dy;
    }
    dweights[threadIdx.y][threadIdx.x] = dweight;
    dbiases[threadIdx.y][threadIdx.x] = dbias;
    __syncthreads();
    if (threadIdx.y > 0 || !inside) return;
    for (int lane = 1; lane < WEIGHT_LANES; lane++) {
        dweight += dweights[lane][threadIdx.x];
        dbias += dbiases[lane][threadIdx.x];
    }
    if (norm.dweights) norm.dweights[blockIdx.y * norm.group + column] = dweight;
    if (norm.dbiases) norm.dbiases[blockIdx.y * norm.group + column] = dbias;
}

template <typename T, int W> static void norm_launch(const struct norm &norm, bool centered, cudaStream_t stream) {
    if (norm.group <= WARP_GROUP_MOST)
        launch(norm_kernel<T, W, WARP>, grid_size(divide_up(norm.count, THREADS / WARP)), THREADS, 0, stream, norm,
               centered);
    else
        launch(norm_kernel<T, W, THREADS>, grid_size(norm.count), THREADS, 0, stream, norm, centered);
}

template <typename T, int W> static void dx_launch(const struct norm_gradient &norm, cudaStream_t stream) {
    if (norm.group <= WARP_GROUP_MOST)
        launch(norm_dx_kernel<T, W, WARP>, grid_size(divide_up(norm.count, THREADS / WARP)), THREADS, 0, stream, norm);
    else
        launch(norm_dx_kernel<T, W, THREADS>, grid_size(norm.count), THREADS, 0, stream, norm);
}

template <typename T> static void norm_any(const struct norm &norm, bool centered, bool vectors, cudaStream_t stream) {
    if (vectors)
        norm_launch<T, VECTOR<T>>(norm, centered, stream);
    else
        norm_launch<T, 1>(norm, centered, stream);
}

template <typename T> static void dx_any(const struct norm_gradient &norm, bool vectors, cudaStream_t stream) {
    if (vectors)
        dx_launch<T, VECTOR<T>>(norm, stream);
    else
        dx_launch<T, 1>(norm, stream);
}

static int64_t group_of(const struct node *node, int weight) { return shape_columns(&node->in[weight]->shape); }

static bool groups_are_vectors(const struct shape *shape, int64_t group) {
    return group * dtype_bytes(shape->dtype) % 16 == 0;
}

static void norm_run(const struct kernel *kernel, const struct kernel_call *call) {
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
        .groups = groups,
        .group = group,
        .epsilon = NODE_ATTRIBUTES(node, norm_attributes)->epsilon,
    };
    bool vectors = groups_are_vectors(x, group) && rows_are_vectors(node->in[0], norm.x) &&
                   rows_are_vectors(node->in[1], norm.weight) && rows_are_vectors(node->out[0], norm.y);
    FOR_ELEMENT(x->dtype, norm_any, norm, centered, vectors, stream_of(call));
}

enum status cuda_rms_norm_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, norm_run, 0, out);
}

enum status cuda_layer_norm_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, norm_run, 0, out);
}

template <typename T> static void weight_launch(const struct norm_gradient &norm, cudaStream_t stream) {
    dim3 grid(grid_size(divide_up(norm.group, WEIGHT_COLUMNS)), (unsigned)divide_up(norm.count, norm.block_groups));
    launch(norm_weight_kernel<T>, grid, dim3(WEIGHT_COLUMNS, WEIGHT_LANES), 0, stream, norm);
}

/* dx comes last: it may take over the addend's place, and nothing else reads that. */
static void norm_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
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
        .groups = groups,
        .group = group,
        .block_groups = cuda_sum_block_rows(count),
    };
    if (dweight || dbias) FOR_ELEMENT(x->dtype, weight_launch, norm, stream);
    if (dweight) cuda_sum_combine(stream, cuda_sum_blocks(count), group, norm.dweights, dweight);
    if (dbias) cuda_sum_combine(stream, cuda_sum_blocks(count), group, norm.dbiases, dbias);
    if (!norm.dx) return;
    bool vectors = groups_are_vectors(x, group) && rows_are_vectors(node->in[0], norm.dy) &&
                   rows_are_vectors(node->in[1], norm.x) && rows_are_vectors(node->in[2], norm.weight) &&
                   rows_are_vectors(node->in[addend], norm.addend) && rows_are_vectors(node->out[0], norm.dx);
    FOR_ELEMENT(x->dtype, dx_any, norm, vectors, stream);
}

static enum status norm_grad_create(const struct node *node, struct kernel **out) {
    int64_t group = group_of(node, 2), count = shape_elements(&node->in[1]->shape) / group;
    int wanted = (node->out[1] != NULL) + (node->out[2] != NULL);
    return kernel_plain(node, norm_grad_run, wanted * cuda_sum_workspace(count, group), out);
}

enum status cuda_rms_norm_grad_create(const struct node *node, struct kernel **out) {
    return norm_grad_create(node, out);
}

enum status cuda_layer_norm_grad_create(const struct node *node, struct kernel **out) {
    return norm_grad_create(node, out);
}
