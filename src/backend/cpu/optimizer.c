/* The update: sums of accumulators, norms, clipping, parameters. Operands are whole
 * parameters or runs of their elements, without gaps. */
#include <math.h>

#include "backend/cpu/kernel.h"
#include "backend/cpu/matmul/matmul.h"
#include "backend/kernel_parts.h"
#include "backend/update.h"
#include "base/half.h"

struct update_work {
    const struct node *node;
    const struct kernel_call *call;
    struct update_step step;
    struct update_run all;
};

static void gradient_sum_body(const void *context, int64_t begin, int64_t end) {
    const struct kernel_call *call = ((const struct update_work *)context)->call;
    const float *a = call->in[0], *b = call->in[1];
    cpu_simd()->add(DTYPE_F32, end - begin, a + begin, b + begin, (float *)call->out[0] + begin);
}

static enum status gradient_sum_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct update_work work = {.call = call};
    parallel_for(shape_elements(&kernel->node->out[0]->shape), parallel_rows(1), gradient_sum_body, &work);
    return STATUS_OK;
}

enum status cpu_gradient_sum_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, gradient_sum_run, 0, out);
}

enum { SQUARES_A_TASK = 16 * GRADIENT_NORM_BLOCK }; /* elements that are worth a block */

static void squared_sums_body(const void *context, int64_t begin, int64_t end) {
    const struct kernel_call *call = ((const struct update_work *)context)->call;
    const float *gradient = call->in[0];
    double *sums = call->out[0];
    for (int64_t i = begin; i < end; i += GRADIENT_NORM_BLOCK) {
        int64_t left = end - i;
        sums[i / GRADIENT_NORM_BLOCK] =
            cpu_simd()->squared_sum(left < GRADIENT_NORM_BLOCK ? left : GRADIENT_NORM_BLOCK, gradient + i);
    }
}

static enum status squared_sums_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct update_work work = {.call = call};
    parallel_for(kernel_elements(kernel, call), SQUARES_A_TASK, squared_sums_body, &work);
    return STATUS_OK;
}

enum status cpu_squared_sums_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, squared_sums_run, 0, out);
}

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

enum status cpu_squared_norm_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, squared_norm_run, 0, out);
}

static enum status clip_factor_run(const struct kernel *kernel, const struct kernel_call *call) {
    double *out = call->out[0], limit = NODE_ATTRIBUTES(kernel->node, clip_attributes)->limit;
    double norm = sqrt(sum_of(call->in[0], shape_elements(&kernel->node->in[0]->shape)));
    double factor = limit > 0 ? limit / (norm + 1e-6) : 1;
    if (factor > 1) factor = 1;
    out[0] = norm;
    out[1] = isfinite(norm) ? factor : (double)NAN;
    return STATUS_OK;
}

enum status cpu_clip_factor_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, clip_factor_run, 0, out);
}

static void round_body(const void *context, int64_t begin, int64_t end) {
    const struct update_run *run = context;
    const float *weight = run->weight;
    for (int64_t i = begin; i < end; i++)
        run->rounded[i] = bf16_from_float(weight[i]);
}

/* A step that changes nothing: what is made of a master is written all the same (backend/update.h). */
static void update_nothing(int64_t elements, const struct update_run *run) {
    if (run->rounded) parallel_for(elements, parallel_rows(1), round_body, run);
}

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

enum status cpu_adamw_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, update_run, 0, out);
}

enum status cpu_lion_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, update_run, 0, out);
}

enum status cpu_sgd_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, update_run, 0, out);
}

/* Muon's update of a whole matrix (ir/ops/ops.h): the moment and a direction, element by element; the direction made
 * orthogonal by GEMMs; the weight, element by element. GEMMs are in the parameter's dtype, their results and what
 * is made of them in fp32, rounded once. */

struct muon_kernel {
    struct kernel kernel;
    struct muon_sizes sizes;
    struct matmul *square, *squared, *product;
    int64_t scratch; /* in the workspace */
};

static int64_t elements_of(const struct muon_kernel *kernel) { return kernel->sizes.rows * kernel->sizes.columns; }
static bool is_tall(const struct muon_kernel *kernel) { return kernel->sizes.rows > kernel->sizes.columns; }

/* ---- GEMMs ---- */

static enum status create_products(struct muon_kernel *kernel) {
    struct matmul_spec square = muon_square_spec(&kernel->sizes), squared = muon_squared_spec(&kernel->sizes);
    struct matmul_spec product = muon_product_spec(&kernel->sizes);
    TRY(matmul_create(&square, &kernel->square));
    TRY(matmul_create(&squared, &kernel->squared));
    return matmul_create(&product, &kernel->product);
}

static void multiply(const struct muon_kernel *kernel, const struct kernel_call *call, struct matmul *matmul,
                     const void *a, const void *b, float *c) {
    const struct matmul_operands operands = {.a = a, .b = b, .c = c};
    matmul_run(matmul, &operands, workspace_at(call, kernel->scratch));
}

/* ---- element by element ---- */

struct muon_work {
    const struct muon_kernel *kernel;
    struct update_step step;
    struct update_run run;
    void *x;
    double *norms; /* sums of squares, of blocks */
};

static void move_body(const void *context, int64_t begin, int64_t end) {
    const struct muon_work *work = context;
    struct update_run run = update_run_from(&work->run, begin);
    cpu_simd()->update(UPDATE_MUON, end - begin, &work->step, &run);
}

static void squares_body(const void *context, int64_t begin, int64_t end) {
    const struct muon_work *work = context;
    for (int64_t i = begin; i < end; i += GRADIENT_NORM_BLOCK) {
        int64_t left = end - i < GRADIENT_NORM_BLOCK ? end - i : GRADIENT_NORM_BLOCK;
        work->norms[i / GRADIENT_NORM_BLOCK] = cpu_simd()->squared_sum(left, work->run.direction + i);
    }
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
static float scale_of(const struct muon_work *work, int64_t count) {
    double sum = 0;
    parallel_for(count, SQUARES_A_TASK, squares_body, work);
    for (int64_t block = 0; block < gradient_norm_blocks(count); block++)
        sum += work->norms[block];
    return (float)(1 / fmax(sqrt(sum), 1e-7));
}

/* One step of Newton and Schulz. */
static void make_orthogonal(const struct muon_kernel *kernel, const struct kernel_call *call, void *x) {
    static const float a = 3.4445f, b = -4.775f, c = 2.0315f;
    void *square = workspace_at(call, kernel->sizes.square);
    float *sums = workspace_at(call, kernel->sizes.sums), *square_sums = workspace_at(call, kernel->sizes.square_sums);
    int64_t squares = kernel->sizes.side * kernel->sizes.side;
    multiply(kernel, call, kernel->square, x, x, square_sums);
    mix(squares, (struct mixing){kernel->sizes.dtype, .scales = true, .b = 1, .y = square_sums, .x = square});
    multiply(kernel, call, kernel->squared, square, square, square_sums);
    mix(squares, (struct mixing){kernel->sizes.dtype, .a = b, .b = c, .y = square_sums, .x = square});
    multiply(kernel, call, kernel->product, is_tall(kernel) ? x : square, is_tall(kernel) ? square : x, sums);
    mix(elements_of(kernel), (struct mixing){kernel->sizes.dtype, .a = a, .b = 1, .y = sums, .x = x});
}

static enum status muon_run(const struct kernel *of, const struct kernel_call *call) {
    const struct muon_kernel *kernel = (const struct muon_kernel *)of;
    int64_t count = elements_of(kernel);
    double clip = call->in[1] ? ((const double *)call->in[1])[1] : 1;
    struct muon_work work = {.kernel = kernel,
                             .step = update_step_of(of->node, call),
                             .run = update_run_of(of->node, call),
                             .x = workspace_at(call, kernel->sizes.x),
                             .norms = workspace_at(call, kernel->sizes.norms)};
    if (isnan(clip)) {
        update_nothing(count, &work.run);
        return STATUS_OK;
    }
    work.step.clip = (float)clip;
    work.run.direction = workspace_at(call, kernel->sizes.sums);
    parallel_for(count, parallel_rows(1), move_body, &work);
    float scale = scale_of(&work, count);
    mix(count, (struct mixing){kernel->sizes.dtype, .scales = true, .b = scale, .y = work.run.direction, .x = work.x});
    for (int step = 0; step < MUON_STEPS; step++)
        make_orthogonal(kernel, call, work.x);
    parallel_for(count, parallel_rows(1), follow_body, &work);
    return STATUS_OK;
}

/* ---- making it ---- */

static void lay_out(struct muon_kernel *kernel) {
    const struct matmul *products[] = {kernel->square, kernel->squared, kernel->product};
    int64_t max = 0;
    for (int i = 0; i < 3; i++)
        if (matmul_workspace_bytes(products[i]) > max) max = matmul_workspace_bytes(products[i]);
    kernel->scratch = kernel->sizes.end;
    kernel->kernel.workspace_bytes = kernel->scratch + workspace_align(max);
}

static void muon_release(struct kernel *of) {
    struct muon_kernel *kernel = (struct muon_kernel *)of;
    matmul_free(kernel->square);
    matmul_free(kernel->squared);
    matmul_free(kernel->product);
    mem_free(kernel);
}

enum status cpu_muon_create(const struct node *node, struct kernel **out) {
    struct muon_kernel *kernel = kernel_new(node, sizeof *kernel, muon_run);
    if (!kernel) return STATUS_FAILED;
    kernel->kernel.release = muon_release;
    kernel->sizes = muon_sizes_of(node);
    enum status status = create_products(kernel);
    if (status != STATUS_OK) {
        muon_release(&kernel->kernel);
        return status;
    }
    lay_out(kernel);
    *out = &kernel->kernel;
    return STATUS_OK;
}
