/* An expert's MLP and its gradients, on the rows that the routing gave it. Their number is known on the device alone: a
 * GEMM's blocks go through the tiles of its rows, and those beyond them have nothing to do. As on the CPU
 * (backend/cpu/kernel.h), some rows behind the last slot are among them; they hold no slot. Weights in fewer
 * bits are unpacked into the workspace, a slab at a time (matmul.h). */
#include "backend/cuda/kernels/activation.cuh"
#include "backend/cuda/kernels/attention.cuh"
#include "backend/cuda/matmul.h"

/* A block's threads and tiles are those of attention: scores of queries and keys are GEMMs too. */
constexpr int PRODUCT_THREADS = ATTENTION_THREADS, PRODUCT_STEP = 64;
constexpr int64_t PRODUCT_BLOCKS_MAX = 2048;

/* The rows [begin, end) of an expert. */
struct expert_range {
    const int32_t *range;
    int step; /* of rows behind the slots */
};
struct row_range {
    int64_t begin, end;
};
__device__ inline struct row_range rows_of(const struct expert_range &at) {
    int64_t begin = at.range[0], count = at.range[1] - begin;
    return {begin, begin + (count + at.step - 1) / at.step * at.step};
}

/* c = a b (+ bias) (+ what is there). With `sums`, k runs over the expert's rows, and c is fp32; else m does, of a and
 * c. Strides in elements; b's column stride is 1 or its k stride is. */
struct ranged_product {
    struct expert_range rows;
    const void *a, *b, *bias;
    void *c;
    int64_t m, n, k; /* of the dimension of the rows: as many as there may be */
    int64_t a_row, a_k, b_k, b_column, c_row;
    bool sums, adds;
};

template <class TILES> constexpr int64_t product_bytes(void) {
    return (int64_t)sizeof(typename TILES::element) * TILES::STRIDE * (TILES::ROWS + TILES::COLUMNS);
}

/* LINES lines of PRODUCT_STEP steps into a tile, zeros outside; neighbours in memory are read by neighbours. */
template <class TILES, int LINES>
__device__ void product_load(const void *from, int64_t line_stride, int64_t step_stride, int64_t line, int64_t lines,
                             int64_t step, int64_t steps, typename TILES::element *tile) {
    typedef typename TILES::element T;
    for (int i = (int)threadIdx.x; i < LINES * PRODUCT_STEP; i += PRODUCT_THREADS) {
        bool along_steps = step_stride == 1;
        int own_line = along_steps ? i / PRODUCT_STEP : i % LINES,
            own_step = along_steps ? i % PRODUCT_STEP : i / LINES;
        bool inside = line + own_line < lines && step + own_step < steps;
        int64_t index = (line + own_line) * line_stride + (step + own_step) * step_stride;
        tile[own_line * TILES::STRIDE + own_step] = inside ? ((const T *)from)[index] : narrow<T>(0);
    }
}

/* One tile of c from row and column on: rows up to `rows`, steps [k, steps). */
template <class TILES>
__device__ void product_tile(const struct ranged_product &at, int64_t row, int64_t rows, int64_t column, int64_t k,
                             int64_t steps, typename TILES::element *a, typename TILES::element *b) {
    typedef typename TILES::element T;
    float sums[2][TILES::SCORES] = {};
    for (; k < steps; k += PRODUCT_STEP) {
        __syncthreads(); /* the tiles before have been read */
        product_load<TILES, TILES::ROWS>(at.a, at.a_row, at.a_k, row, rows, k, steps, a);
        product_load<TILES, TILES::COLUMNS>(at.b, at.b_column, at.b_k, column, at.n, k, steps, b);
        __syncthreads();
        TILES::product(a, b, sums);
    }
    for (int r = 0; r < 2; r++)
        for (int n = 0; n < TILES::SCORES; n++) {
            int64_t to_row = row + TILES::row(r), to_column = column + TILES::column(n);
            if (to_row >= rows || to_column >= at.n) continue;
            int64_t index = to_row * at.c_row + to_column;
            float value = sums[r][n];
            if (at.bias) value += widen(((const T *)at.bias)[to_column]);
            if (at.sums)
                ((float *)at.c)[index] += value;
            else
                ((T *)at.c)[index] = narrow<T>(at.adds ? value + widen(((const T *)at.c)[index]) : value);
        }
}

template <class TILES> __global__ void __launch_bounds__(PRODUCT_THREADS) product_kernel(struct ranged_product at) {
    DYNAMIC_SHARED(shared);
    typedef typename TILES::element T;
    T *a = (T *)shared, *b = a + TILES::ROWS * TILES::STRIDE;
    struct row_range range = rows_of(at.rows);
    if (range.begin == range.end) return;
    int64_t first = at.sums ? 0 : range.begin, rows = at.sums ? at.m : range.end;
    int64_t down = (rows - first + TILES::ROWS - 1) / TILES::ROWS,
            across = (at.n + TILES::COLUMNS - 1) / TILES::COLUMNS;
    for (int64_t tile = blockIdx.x; tile < down * across; tile += gridDim.x)
        product_tile<TILES>(at, first + tile / across * TILES::ROWS, rows, tile % across * TILES::COLUMNS,
                            at.sums ? range.begin : 0, at.sums ? range.end : at.k, a, b);
}

template <class TILES> static void product_launch(const struct ranged_product &at, cudaStream_t stream) {
    int64_t tiles = divide_up(at.m, TILES::ROWS) * divide_up(at.n, TILES::COLUMNS);
    static_assert(product_bytes<TILES>() <= 48 << 10, "more must be asked for");
    launch(known<product_kernel<TILES>>(), grid_size(tiles < PRODUCT_BLOCKS_MAX ? tiles : PRODUCT_BLOCKS_MAX),
           PRODUCT_THREADS, (size_t)product_bytes<TILES>(), stream, at);
}

static void multiply(enum dtype dtype, const struct ranged_product &at, cudaStream_t stream) {
    if (dtype == DTYPE_BF16)
        product_launch<bf16_tiles<PRODUCT_STEP, 64>>(at, stream);
    else
        product_launch<f32_tiles<PRODUCT_STEP, 32>>(at, stream);
}

/* ---- what operators make of GEMMs' rows, which lie in the workspace at their own numbers ---- */

struct active_rows {
    struct expert_range rows;
    void *gate, *up, *active, *dactive; /* [rows][width]; of pairs: gate [rows][2 width] */
    int64_t width;
    enum activation function;
    float alpha, limit;
};

/* The activation of each pair, or its gradients in the pair's place. */
template <typename T, bool GRADIENT> __device__ void activate_at(const struct active_rows &at, int64_t i) {
    T *gate = (T *)at.gate + i, *up = (T *)at.up + i;
    float slope, value = activate(at.function, widen(*gate), &slope), factor = widen(*up);
    if (!GRADIENT) {
        ((T *)at.active)[i] = narrow<T>(value * factor);
        return;
    }
    float gradient = widen(((const T *)at.dactive)[i]);
    *gate = narrow<T>(gradient * factor * slope);
    *up = narrow<T>(gradient * value);
}

/* expert_glu of ops.h. */
template <typename T, bool GRADIENT> __device__ void clamp_at(const struct active_rows &at, int64_t i) {
    T *pair = (T *)at.gate + 2 * i;
    float z = widen(pair[0]), u = widen(pair[1]), gate = fminf(z, at.limit), up = fminf(fmaxf(u, -at.limit), at.limit);
    float sigmoid = 1.0f / (1.0f + expf(-at.alpha * gate)), value = gate * sigmoid;
    if (!GRADIENT) {
        ((T *)at.active)[i] = narrow<T>((up + 1.0f) * value);
        return;
    }
    float gradient = widen(((const T *)at.dactive)[i]), slope = sigmoid + value * at.alpha * (1.0f - sigmoid);
    pair[0] = narrow<T>(z > at.limit ? 0.0f : gradient * (up + 1.0f) * slope);
    pair[1] = narrow<T>(u > at.limit || u < -at.limit ? 0.0f : gradient * value);
}

template <typename T, bool PAIRS, bool GRADIENT>
__global__ void __launch_bounds__(THREADS) active_kernel(struct active_rows at) {
    struct row_range range = rows_of(at.rows);
    for (int64_t row = range.begin + blockIdx.x; row < range.end; row += gridDim.x)
        for (int64_t c = threadIdx.x; c < at.width; c += THREADS) {
            if (PAIRS)
                clamp_at<T, GRADIENT>(at, row * at.width + c);
            else
                activate_at<T, GRADIENT>(at, row * at.width + c);
        }
}

template <typename T>
static void activate_rows(const struct active_rows &at, int64_t rows, bool pairs, bool gradient, cudaStream_t stream) {
    auto kernel = pairs ? (gradient ? known<active_kernel<T, true, true>>() : known<active_kernel<T, true, false>>())
                        : (gradient ? known<active_kernel<T, false, true>>() : known<active_kernel<T, false, false>>());
    launch(kernel, grid_size(rows < PRODUCT_BLOCKS_MAX ? rows : PRODUCT_BLOCKS_MAX), THREADS, 0, stream, at);
}

/* out (fp32) += the sum of the expert's rows, in their order. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    bias_kernel(struct expert_range rows, const T *data, int64_t stride, int64_t columns, float *out) {
    struct row_range range = rows_of(rows);
    int64_t column = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (column >= columns) return;
    float sum = 0;
    for (int64_t row = range.begin; row < range.end; row++)
        sum += widen(data[row * stride + column]);
    out[column] += sum;
}

template <typename T>
static void add_bias(struct expert_range rows, const void *data, int64_t stride, int64_t columns, void *out,
                     cudaStream_t stream) {
    if (out)
        launch(known<bias_kernel<T>>(), grid_size(divide_up(columns, THREADS)), THREADS, 0, stream, rows,
               (const T *)data, stride, columns, (float *)out);
}

/* ---- both operators ---- */

/* A call of expert_mlp or expert_glu, or of their gradients. */
struct expert_call {
    const struct node *node;
    const struct kernel_call *call;
    struct expert_range range;
    cudaStream_t stream;
    enum dtype dtype;
    int64_t rows, columns, width; /* rows: all that the buffer has */
    int first;                    /* the input of ranges; weights follow */
    bool gradient, pairs, kn;
    int64_t x_row, y_row;
    char *work[4]; /* of the workspace: gate and up, or pairs in both; active, dactive */
    void *slab;    /* behind them: of a weight in fewer bits */
};

static bool is_gradient(const struct node *node) {
    return node->op == &op_expert_mlp_grad || node->op == &op_expert_glu_grad;
}
static bool has_pairs(const struct node *node) { return node->op == &op_expert_glu || node->op == &op_expert_glu_grad; }
/* All four operators' attributes begin with it. */
static const struct expert_attributes *expert_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, expert_attributes);
}

/* Bytes of one activation of all rows. */
static int64_t active_bytes(const struct node *node) {
    const struct shape *rows = &node->in[0]->shape;
    return workspace_align(shape_rows(rows) * expert_width(node) * dtype_bytes(rows->dtype));
}

static int activations_of(const struct node *node) {
    return is_gradient(node) ? CUDA_EXPERT_GRAD_ACTIVATIONS : CUDA_EXPERT_ACTIVATIONS;
}

static struct expert_call open_call(const struct node *node, const struct kernel_call *call) {
    const struct expert_attributes *attributes = expert_of(node);
    const struct shape *rows = &node->in[0]->shape;
    struct expert_call own = {};
    own.gradient = is_gradient(node), own.pairs = has_pairs(node);
    own.kn = own.pairs && NODE_ATTRIBUTES(node, expert_glu_attributes)->weights_are_kn;
    own.node = node, own.call = call, own.stream = stream_of(call), own.dtype = rows->dtype;
    own.first = own.gradient ? 2 : 1;
    own.rows = shape_rows(rows), own.columns = shape_columns(rows), own.width = expert_width(node);
    int64_t tile = routing_tile(attributes->slots, attributes->experts);
    own.range = {(const int32_t *)call->in[own.first] + 2 * attributes->expert, (int)(tile < 16 ? tile : 16)};
    own.x_row = tensor_row_stride(node->in[own.first - 1]);
    own.y_row = own.gradient ? tensor_row_stride(node->in[0]) : tensor_row_stride(node->out[0]);
    for (int i = 0; i < 4; i++)
        own.work[i] = (char *)call->workspace + i * active_bytes(node);
    own.slab = (char *)call->workspace + activations_of(node) * active_bytes(node);
    return own;
}

/* A GEMM whose b is a weight in fewer bits, and the bias one of its columns: some columns at a time. */
static void multiply_quantized(const struct expert_call &own, const struct weight_code *code,
                               const struct ranged_product &whole, cudaStream_t stream) {
    struct weight_layout layout = weight_code_layout(code);
    const struct matmul_spec spec = cuda_expert_product(own.node, whole.n, whole.k);
    int64_t width = cuda_slab_columns(&spec), bytes = dtype_bytes(own.dtype);
    bool along = whole.b_k == 1; /* b's columns are the weight's rows */
    for (int64_t column = 0; column < whole.n; column += width) {
        struct ranged_product slab = whole;
        slab.n = whole.n - column < width ? whole.n - column : width;
        struct cuda_weight_tile rows = {column, slab.n, 0, whole.k}, columns = {0, whole.k, column, slab.n};
        cuda_unpack_weight(stream, &layout, whole.b, along ? &rows : &columns, own.dtype, own.slab);
        slab.b = own.slab;
        slab.b_k = along ? 1 : slab.n, slab.b_column = along ? whole.k : 1;
        if (whole.bias) slab.bias = (const char *)whole.bias + column * bytes;
        slab.c = (char *)whole.c + column * bytes;
        multiply(own.dtype, slab, stream);
    }
}

/* rows [.., in] by a weight from `in` to `out` features, or `turned` by it from `out` to `in`. */
static void by_weight(const struct expert_call &own, const void *a, int64_t a_row, int weight, int64_t out, int64_t in,
                      bool turned, const void *bias, void *c, int64_t c_row, bool adds) {
    struct ranged_product at = {};
    int64_t along_in = own.kn ? out : 1, along_out = own.kn ? 1 : in;
    at.rows = own.range, at.a = a, at.b = own.call->in[own.first + 1 + weight], at.bias = bias, at.c = c;
    at.m = own.rows, at.n = turned ? in : out, at.k = turned ? out : in;
    at.a_row = a_row, at.a_k = 1;
    at.b_k = turned ? along_out : along_in, at.b_column = turned ? along_in : along_out;
    at.c_row = c_row, at.adds = adds;
    const struct weight_code *code = &own.node->in[own.first + 1 + weight]->code;
    if (code->format == WEIGHT_PLAIN)
        multiply(own.dtype, at, own.stream);
    else
        multiply_quantized(own, code, at, own.stream);
}

/* c += the sum over rows of the gradients `dout` of a weight's results times what went in. */
static void by_rows(const struct expert_call &own, const void *dout, int64_t dout_row, int64_t out, const void *in,
                    int64_t in_row, int64_t ins, void *c) {
    if (!c) return;
    struct ranged_product at = {};
    at.rows = own.range, at.c = c, at.sums = true;
    at.a = own.kn ? in : dout, at.a_k = own.kn ? in_row : dout_row, at.a_row = 1;
    at.b = own.kn ? dout : in, at.b_k = own.kn ? dout_row : in_row, at.b_column = 1;
    at.m = own.kn ? ins : out, at.n = own.kn ? out : ins, at.k = own.rows, at.c_row = at.n;
    multiply(own.dtype, at, own.stream);
}

static struct active_rows active_of(const struct expert_call &own, const struct node *node) {
    struct active_rows at = {};
    at.rows = own.range, at.width = own.width;
    at.gate = own.work[0], at.up = own.work[1], at.active = own.work[2], at.dactive = own.work[3];
    at.function = expert_of(node)->function;
    if (!own.pairs) return at;
    const struct expert_glu_attributes *attributes = NODE_ATTRIBUTES(node, expert_glu_attributes);
    at.alpha = (float)attributes->alpha, at.limit = (float)attributes->limit;
    return at;
}

/* Gate and up, and what they make together. */
static void make_active(const struct expert_call &own, const struct node *node) {
    const void *x = own.call->in[own.first - 1];
    int64_t c = own.columns, f = own.width;
    if (own.pairs) {
        by_weight(own, x, own.x_row, 0, 2 * f, c, false, own.call->in[own.first + 3], own.work[0], 2 * f, false);
    } else {
        by_weight(own, x, own.x_row, 0, f, c, false, nullptr, own.work[0], f, false);
        by_weight(own, x, own.x_row, 1, f, c, false, nullptr, own.work[1], f, false);
    }
    FOR_ELEMENT(own.dtype, activate_rows, active_of(own, node), own.rows, own.pairs, false, own.stream);
}

/* The rows of other experts: those of the input `previous`, or zeros. */
static void keep_others(const struct node *node, const struct kernel_call *call, int previous) {
    size_t bytes = (size_t)shape_bytes(&node->out[0]->shape);
    if (!call->in[previous])
        cuda_require(cudaMemsetAsync(call->out[0], 0, bytes, stream_of(call)), "zeros");
    else if (call->in[previous] != call->out[0])
        cuda_require(
            cudaMemcpyAsync(call->out[0], call->in[previous], bytes, cudaMemcpyDeviceToDevice, stream_of(call)),
            "a copy");
}

/* That of the second weight, which ranks with parts of the features add once. */
static const void *down_bias(const struct expert_call &own) {
    bool adds = own.pairs && !NODE_ATTRIBUTES(own.node, expert_glu_attributes)->down_bias_elsewhere;
    return adds ? own.call->in[own.first + 4] : nullptr;
}

static enum status expert_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    struct expert_call own = open_call(node, call);
    keep_others(node, call, own.pairs ? 6 : 5);
    make_active(own, node);
    by_weight(own, own.work[2], own.width, own.pairs ? 1 : 2, own.columns, own.width, false, down_bias(own),
              call->out[0], own.y_row, false);
    return cuda_outcome();
}

static enum status expert_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    struct expert_call own = open_call(node, call);
    const void *dy = call->in[0], *x = call->in[1];
    int64_t c = own.columns, f = own.width;
    int down = own.pairs ? 1 : 2;
    if (call->out[0]) keep_others(node, call, 6);
    make_active(own, node);
    by_weight(own, dy, own.y_row, down, c, f, true, nullptr, own.work[3], f, false);
    by_rows(own, dy, own.y_row, c, own.work[2], f, f, call->out[1 + down]);
    FOR_ELEMENT(own.dtype, activate_rows, active_of(own, node), own.rows, own.pairs, true, own.stream);
    int64_t dx_row = call->out[0] ? tensor_row_stride(node->out[0]) : 0;
    if (own.pairs) {
        FOR_ELEMENT(own.dtype, add_bias, own.range, dy, own.y_row, c, call->out[4], own.stream);
        FOR_ELEMENT(own.dtype, add_bias, own.range, own.work[0], 2 * f, 2 * f, call->out[3], own.stream);
        by_rows(own, own.work[0], 2 * f, 2 * f, x, own.x_row, c, call->out[1]);
        if (call->out[0]) by_weight(own, own.work[0], 2 * f, 0, 2 * f, c, true, nullptr, call->out[0], dx_row, false);
        return cuda_outcome();
    }
    for (int i = 0; i < 2; i++) {
        by_rows(own, own.work[i], f, f, x, own.x_row, c, call->out[1 + i]);
        if (call->out[0]) by_weight(own, own.work[i], f, i, f, c, true, nullptr, call->out[0], dx_row, i > 0);
    }
    return cuda_outcome();
}

static enum status expert_create(const struct node *node, struct kernel **out) {
    int64_t bytes = activations_of(node) * active_bytes(node) + cuda_expert_slab_bytes(node);
    return kernel_plain(node, is_gradient(node) ? expert_grad_run : expert_run, workspace_align(bytes), out);
}

CUDA_KERNEL_MAKER(expert_mlp, expert_create)
CUDA_KERNEL_MAKER(expert_mlp_grad, expert_create)
CUDA_KERNEL_MAKER(expert_glu, expert_create)
CUDA_KERNEL_MAKER(expert_glu_grad, expert_create)
