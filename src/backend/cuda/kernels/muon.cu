/* Muon's update of a whole matrix (ir/ops/ops.h), in the order of the CPU's (backend/cpu/optimizer.c): the moment and
 * a direction, element by element (optimizer.cu); the direction made orthogonal by GEMMs of cuBLASLt; the weight,
 * element by element. GEMMs are in the parameter's dtype, their results and what is made of them in fp32, rounded
 * once. cuBLASLt adds in another order than the CPU: the moments have the CPU's bits, the weights have not. */
#include "backend/cuda/kernels/stochastic_rounding.cuh"
#include "backend/cuda/matmul.h"

extern "C" {
#include "backend/cuda/kernel.h"
#include "backend/kernel_parts.h"
}

struct muon_kernel {
    struct kernel kernel;
    struct muon_sizes sizes;
    struct cuda_matmul *products[MUON_PRODUCTS];
};

/* ---- element by element ---- */

/* x = b y or, with `adds`, a x + b y; `norm`: b is 1 / |y|, of its squared norm. */
struct mixing {
    float a, b;
    bool adds;
    const double *norm;
    const float *y;
    int64_t count;
};

template <typename T> __global__ void __launch_bounds__(THREADS) mix_kernel(struct mixing at, T *x) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= at.count) return;
    float b = at.norm ? (float)(1 / fmax(sqrt(*at.norm), 1e-7)) : at.b, part = __fmul_rn(at.y[i], b);
    x[i] = narrow<T>(at.adds ? __fmaf_rn(widen(x[i]), at.a, part) : part);
}

template <typename T> static void mix(const struct mixing &at, void *x, cudaStream_t stream) {
    launch(known<mix_kernel<T>>(), grid_size(divide_up(at.count, THREADS)), THREADS, 0, stream, at, (T *)x);
}

/* The weight follows the direction. */
struct following {
    const void *direction;
    const double *clip, *scalars;
    void *weight;
    __nv_bfloat16 *rounded;  /* NULL, or a copy of the weight */
    uint16_t *upper, *lower; /* NULL, or its halves in place of both */
    int64_t count;
    double weight_decay, factor;
    uint64_t seed;
    uint32_t number;
};

/* T, P: the dtypes of direction and weight. */
template <typename T, typename P> __global__ void __launch_bounds__(THREADS) follow_kernel(struct following at) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= at.count) return;
    if (at.clip && isnan(at.clip[1])) {
        if (at.rounded) at.rounded[i] = narrow<__nv_bfloat16>(((const float *)at.weight)[i]);
        return;
    }
    double rate = at.scalars[SCALAR_LEARNING_RATE];
    float decay = __double2float_rn(__dsub_rn(1, __dmul_rn(rate, at.weight_decay)));
    float step = __double2float_rn(__dmul_rn(rate, at.factor));
    uint32_t words[4] = {};
    if (sizeof(P) == 2)
        draw_block({at.seed, at.number, (uint32_t)at.scalars[SCALAR_STEP]}, RANDOM_ROUND_WEIGHT, (uint32_t)(i / 4),
                   words);
    bool halves = sizeof(P) == 4 && at.upper;
    float weight = halves ? halves_join({at.upper[i], at.lower[i]}) : widen(((const P *)at.weight)[i]);
    weight = __fmaf_rn(widen(((const T *)at.direction)[i]), -step, __fmul_rn(weight, decay));
    if (halves) {
        struct halves parts = halves_split(weight);
        at.upper[i] = parts.upper, at.lower[i] = parts.lower;
        return;
    }
    ((P *)at.weight)[i] = narrow_stochastic<P>(weight, words[i % 4] & 0xffffu);
    if (at.rounded) at.rounded[i] = narrow<__nv_bfloat16>(weight);
}

template <typename T> static void follow(const struct following &at, bool stochastic, cudaStream_t stream) {
    auto kernel = stochastic ? known<follow_kernel<T, __nv_bfloat16>>() : known<follow_kernel<T, float>>();
    launch(kernel, grid_size(divide_up(at.count, THREADS)), THREADS, 0, stream, at);
}

/* ---- the update ---- */

static void multiply(const struct muon_kernel *kernel, const struct kernel_call *call, enum muon_product product,
                     const void *a, const void *b, float *c) {
    struct matmul_operands operands = {};
    operands.a = a, operands.b = b, operands.c = c;
    cuda_matmul_run(kernel->products[product], &operands, workspace_at(call, kernel->sizes.end), stream_of(call));
}

static struct mixing mixing_of(float a, float b, bool adds, const float *y, int64_t count) {
    struct mixing mixing = {};
    mixing.a = a, mixing.b = b, mixing.adds = adds, mixing.y = y, mixing.count = count;
    return mixing;
}

/* One step of Newton and Schulz. */
template <typename T>
static void make_orthogonal(const struct muon_kernel *kernel, const struct kernel_call *call, void *x) {
    const float a = 3.4445f, b = -4.775f, c = 2.0315f;
    const struct muon_sizes *sizes = &kernel->sizes;
    cudaStream_t stream = stream_of(call);
    void *square = workspace_at(call, sizes->square);
    float *sums = (float *)workspace_at(call, sizes->sums);
    float *square_sums = (float *)workspace_at(call, sizes->square_sums);
    int64_t squares = sizes->side * sizes->side;
    bool tall = sizes->rows > sizes->columns;
    multiply(kernel, call, MUON_SQUARE, x, x, square_sums);
    mix<T>(mixing_of(0, 1, false, square_sums, squares), square, stream);
    multiply(kernel, call, MUON_SQUARED, square, square, square_sums);
    mix<T>(mixing_of(b, c, true, square_sums, squares), square, stream);
    multiply(kernel, call, MUON_PRODUCT, tall ? x : square, tall ? square : x, sums);
    mix<T>(mixing_of(a, 1, true, sums, sizes->rows * sizes->columns), x, stream);
}

static struct following following_of(const struct node *node, const struct kernel_call *call, const void *direction) {
    const struct update_attributes *attributes = NODE_ATTRIBUTES(node, update_attributes);
    const struct update_run run = update_run_of(node, call);
    struct following at = {};
    at.direction = direction, at.clip = (const double *)call->in[1], at.scalars = call->scalars;
    at.weight = run.weight, at.rounded = (__nv_bfloat16 *)run.rounded;
    at.upper = run.upper, at.lower = run.lower;
    at.count = shape_elements(&node->in[0]->shape);
    at.weight_decay = attributes->weight_decay, at.factor = update_step_factor(&node->in[0]->shape);
    at.seed = attributes->seed, at.number = attributes->number;
    return at;
}

template <typename T> static enum status muon_run(const struct kernel *of, const struct kernel_call *call) {
    const struct muon_kernel *kernel = (const struct muon_kernel *)of;
    const struct muon_sizes *sizes = &kernel->sizes;
    int64_t count = sizes->rows * sizes->columns;
    void *x = workspace_at(call, sizes->x);
    float *direction = (float *)workspace_at(call, sizes->sums);
    double *norms = (double *)workspace_at(call, sizes->norms);
    TRY(cuda_muon_move(of, call, direction));
    cuda_squared_norm_of(direction, count, norms + 1, norms, call->stream);
    struct mixing scaling = mixing_of(0, 0, false, direction, count);
    scaling.norm = norms;
    mix<T>(scaling, x, stream_of(call));
    for (int step = 0; step < MUON_STEPS; step++)
        make_orthogonal<T>(kernel, call, x);
    follow<T>(following_of(of->node, call, x), update_run_of(of->node, call).bf16_weight, stream_of(call));
    return cuda_outcome();
}

/* ---- making it ---- */

static enum status create_products(struct muon_kernel *kernel) {
    for (int i = 0; i < MUON_PRODUCTS; i++) {
        const struct cuda_matmul_spec spec =
            cuda_matmul_aligned(muon_product_spec(&kernel->sizes, (enum muon_product)i));
        TRY(cuda_matmul_create(&spec, &kernel->products[i]));
    }
    return STATUS_OK;
}

static void muon_release(struct kernel *kernel) {
    cuda_matmul_free_all(((struct muon_kernel *)kernel)->products, MUON_PRODUCTS);
    mem_free(kernel);
}

enum status cuda_muon_create(const struct node *node, struct kernel **out) {
    bool bf16 = NODE_ATTRIBUTES(node, update_attributes)->parameter == DTYPE_BF16;
    struct muon_kernel *kernel =
        (struct muon_kernel *)kernel_new(node, sizeof *kernel, bf16 ? muon_run<__nv_bfloat16> : muon_run<float>);
    if (!kernel) return STATUS_FAILED;
    kernel->kernel.release = muon_release;
    kernel->sizes = muon_sizes_of(node);
    enum status status = create_products(kernel);
    kernel->kernel.workspace_bytes =
        kernel->sizes.end + cuda_matmul_max_workspace_bytes(kernel->products, MUON_PRODUCTS);
    return kernel_finish(&kernel->kernel, status, out);
}
