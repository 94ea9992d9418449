/* The update: sums of accumulators, norms, clipping, parameters. Operands are whole
 * parameters or runs of their elements, without gaps. */
#include <math.h>

#include "backend/cpu/kernel.h"
#include "backend/cpu/matmul/matmul.h"
#include "backend/kernel_parts.h"
#include "base/half.h"

static void gradient_sum_body(const void *context, int64_t begin, int64_t end) {
    const struct kernel_call *call = context;
    const float *a = call->in[0], *b = call->in[1];
    cpu_simd()->add(DTYPE_F32, end - begin, a + begin, b + begin, (float *)call->out[0] + begin);
}

static enum status gradient_sum_run(const struct kernel *kernel, const struct kernel_call *call) {
    parallel_for(shape_elements(&kernel->node->out[0]->shape), parallel_rows(1), gradient_sum_body, call);
    return STATUS_OK;
}

CPU_KERNEL(gradient_sum, gradient_sum_run)

enum { SQUARES_A_TASK = 16 * GRADIENT_NORM_BLOCK }; /* elements that are worth a block */

/* Sums of squares, block by block. */
struct squares {
    const float *values;
    double *sums;
};

static void squares_body(const void *context, int64_t begin, int64_t end) {
    const struct squares *squares = context;
    for (int64_t i = begin; i < end; i += GRADIENT_NORM_BLOCK) {
        int64_t left = end - i < GRADIENT_NORM_BLOCK ? end - i : GRADIENT_NORM_BLOCK;
        squares->sums[i / GRADIENT_NORM_BLOCK] = cpu_simd()->squared_sum(left, squares->values + i);
    }
}

static enum status squared_sums_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct squares squares = {call->in[0], call->out[0]};
    parallel_for(kernel_elements(kernel, call), SQUARES_A_TASK, squares_body, &squares);
    return STATUS_OK;
}

CPU_KERNEL(squared_sums, squared_sums_run)

static double sum_of(const double *values, int64_t count) {
    double total = 0;
    for (int64_t i = 0; i < count; i++)
        total += values[i];
    return total;
}

static enum status squared_norm_run(const struct kernel *kernel, const struct kernel_call *call) {
    *(double *)call->out[0] = sum_of(call->in[0], shape_elements(&kernel->node->in[0]->shape));
    return STATUS_OK;
}

CPU_KERNEL(squared_norm, squared_norm_run)

static enum status clip_factor_run(const struct kernel *kernel, const struct kernel_call *call) {
    double *out = call->out[0], limit = NODE_ATTRIBUTES(kernel->node, clip_attributes)->limit;
    double norm = sqrt(sum_of(call->in[0], shape_elements(&kernel->node->in[0]->shape)));
    double factor = limit > 0 ? limit / (norm + 1e-6) : 1;
    if (factor > 1) factor = 1;
    out[0] = norm;
    out[1] = isfinite(norm) ? factor : (double)NAN;
    return STATUS_OK;
}

CPU_KERNEL(clip_factor, clip_factor_run)

static void round_body(const void *context, int64_t begin, int64_t end) {
    const struct update_run *run = context;
    const float *weight = run->weight;
    for (int64_t i = begin; i < end; i++)
        run->rounded[i] = bf16_from_float(weight[i]);
}

/* A step that changes nothing: what is made of a master is written all the same (backend/kernel_parts.h). */
static void update_nothing(int64_t elements, const struct update_run *run) {
    if (run->rounded) parallel_for(elements, parallel_rows(1), round_body, run);
}

struct update_work {
    const struct node *node;
    struct update_step step;
    struct update_run all;
};

static void update_body(const void *context, int64_t begin, int64_t end) {
    const struct update_work *work = context;
    struct update_run run = update_run_from(&work->all, begin);
    cpu_simd()->update(update_rule_of(work->node->op), end - begin, &work->step, &run);
}

static enum status update_run(const struct kernel *kernel, const struct kernel_call *call) {
    double clip = call->in[1] ? ((const double *)call->in[1])[1] : 1;
    int64_t elements = kernel_elements(kernel, call);
    struct update_work work = {
        .node = kernel->node, .step = update_step_of(kernel->node, call), .all = update_run_of(kernel->node, call)};
    work.step.clip = (float)clip;
    if (isnan(clip))
        update_nothing(elements, &work.all);
    else
        parallel_for(elements, parallel_rows(1), update_body, &work);
    return STATUS_OK;
}

CPU_KERNEL(adamw, update_run)

CPU_KERNEL(lion, update_run)

CPU_KERNEL(sgd, update_run)

/* Muon's update of a whole matrix (ir/ops/ops.h): the moment and a direction, element by element; the direction made
 * orthogonal by GEMMs; the weight, element by element. GEMMs are in the parameter's dtype, their results and what
 * is made of them in fp32, rounded once. */

struct muon_kernel {
    struct kernel kernel;
    struct muon_sizes sizes;
    struct matmul *products[MUON_PRODUCTS];
};

static int64_t elements_of(const struct muon_kernel *kernel) { return kernel->sizes.rows * kernel->sizes.columns; }
static bool is_tall(const struct muon_kernel *kernel) { return kernel->sizes.rows > kernel->sizes.columns; }

/* ---- GEMMs ---- */

static void multiply(const struct muon_kernel *kernel, const struct kernel_call *call, enum muon_product product,
                     const void *a, const void *b, float *c) {
    const struct matmul_operands operands = {.a = a, .b = b, .c = c};
    matmul_run(kernel->products[product], &operands, workspace_at(call, kernel->sizes.end));
}

/* ---- element by element ---- */

struct muon_work {
    const struct muon_kernel *kernel;
    struct update_step step;
    struct update_run run;
    void *x;
};

static void move_body(const void *context, int64_t begin, int64_t end) {
    const struct muon_work *work = context;
    struct update_run run = update_run_from(&work->run, begin);
    cpu_simd()->update(UPDATE_MUON, end - begin, &work->step, &run);
}

static void follow_body(const void *context, int64_t begin, int64_t end) {
    const struct muon_work *work = context;
    struct update_run run = update_run_from(&work->run, begin);
    enum dtype dtype = work->kernel->sizes.dtype;
    cpu_simd()->follow(dtype, end - begin, &work->step, &run, (const char *)work->x + begin * dtype_bytes(dtype));
}

/* x = a x + b y; `scales`: x = b y. */
struct mixing {
    enum dtype dtype;
    bool scales;
    float a, b;
    const float *y;
    void *x;
};

static void mix_body(const void *context, int64_t begin, int64_t end) {
    const struct mixing *mixing = context;
    void *x = (char *)mixing->x + begin * dtype_bytes(mixing->dtype);
    if (mixing->scales)
        cpu_simd()->scale(end - begin, DTYPE_F32, mixing->y + begin, mixing->b, mixing->dtype, x);
    else
        cpu_simd()->mix(mixing->dtype, end - begin, mixing->a, mixing->b, mixing->y + begin, x);
}

static void mix(int64_t count, struct mixing mixing) { parallel_for(count, parallel_rows(1), mix_body, &mixing); }

/* ---- the update ---- */

/* 1 / |direction|, in the order of blocks. */
static float scale_of(const float *direction, int64_t count, double *sums) {
    const struct squares squares = {direction, sums};
    parallel_for(count, SQUARES_A_TASK, squares_body, &squares);
    return (float)(1 / fmax(sqrt(sum_of(sums, gradient_norm_blocks(count))), 1e-7));
}

/* One step of Newton and Schulz. */
static void make_orthogonal(const struct muon_kernel *kernel, const struct kernel_call *call, void *x) {
    static const float a = 3.4445f, b = -4.775f, c = 2.0315f;
    void *square = workspace_at(call, kernel->sizes.square);
    float *sums = workspace_at(call, kernel->sizes.sums), *square_sums = workspace_at(call, kernel->sizes.square_sums);
    int64_t squares = kernel->sizes.side * kernel->sizes.side;
    multiply(kernel, call, MUON_SQUARE, x, x, square_sums);
    mix(squares, (struct mixing){kernel->sizes.dtype, .scales = true, .b = 1, .y = square_sums, .x = square});
    multiply(kernel, call, MUON_SQUARED, square, square, square_sums);
    mix(squares, (struct mixing){kernel->sizes.dtype, .a = b, .b = c, .y = square_sums, .x = square});
    multiply(kernel, call, MUON_PRODUCT, is_tall(kernel) ? x : square, is_tall(kernel) ? square : x, sums);
    mix(elements_of(kernel), (struct mixing){kernel->sizes.dtype, .a = a, .b = 1, .y = sums, .x = x});
}

static enum status muon_run(const struct kernel *of, const struct kernel_call *call) {
    const struct muon_kernel *kernel = (const struct muon_kernel *)of;
    int64_t count = elements_of(kernel);
    double clip = call->in[1] ? ((const double *)call->in[1])[1] : 1;
    struct muon_work work = {.kernel = kernel,
                             .step = update_step_of(of->node, call),
                             .run = update_run_of(of->node, call),
                             .x = workspace_at(call, kernel->sizes.x)};
    if (isnan(clip)) {
        update_nothing(count, &work.run);
        return STATUS_OK;
    }
    work.step.clip = (float)clip;
    work.run.direction = workspace_at(call, kernel->sizes.sums);
    parallel_for(count, parallel_rows(1), move_body, &work);
    float scale = scale_of(work.run.direction, count, workspace_at(call, kernel->sizes.norms));
    mix(count, (struct mixing){kernel->sizes.dtype, .scales = true, .b = scale, .y = work.run.direction, .x = work.x});
    for (int step = 0; step < MUON_STEPS; step++)
        make_orthogonal(kernel, call, work.x);
    parallel_for(count, parallel_rows(1), follow_body, &work);
    return STATUS_OK;
}

/* ---- making it ---- */

static void muon_release(struct kernel *kernel) {
    matmul_free_all(((struct muon_kernel *)kernel)->products, MUON_PRODUCTS);
    mem_free(kernel);
}

enum status cpu_muon_create(const struct node *node, struct kernel **out) {
    struct muon_kernel *kernel = kernel_new(node, sizeof *kernel, muon_run);
    if (!kernel) return STATUS_FAILED;
    kernel->kernel.release = muon_release;
    kernel->sizes = muon_sizes_of(node);
    enum status status = STATUS_OK;
    for (enum muon_product i = 0; i < MUON_PRODUCTS && status == STATUS_OK; i++) {
        const struct matmul_spec spec = muon_product_spec(&kernel->sizes, i);
        status = matmul_create(&spec, &kernel->products[i]);
    }
    kernel->kernel.workspace_bytes =
        kernel->sizes.end + workspace_align(matmul_max_workspace_bytes(kernel->products, MUON_PRODUCTS));
    return kernel_finish(&kernel->kernel, status, out);
}
