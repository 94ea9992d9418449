/* Muon's update of a whole matrix (ops/ops.h): the moment and a direction, element by element; the direction made
 * orthogonal by products; the weight, element by element. Products are in the parameter's dtype, their results and what
 * is made of them in fp32, rounded once. */
#include <math.h>

#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/matmul.h"
#include "backend/update_step.h"

/* x is the direction [rows][columns], side the shorter of the two; the square is [side][side]. */
struct muon_kernel {
    struct kernel kernel;
    int64_t rows, columns, side;
    enum dtype dtype; /* of x and the square */
    struct matmul *square, *squared, *product;
    /* In the workspace. */
    int64_t x, square_at, sums, square_sums, norms, scratch;
};

enum { SQUARES_A_TASK = 16 * GRADIENT_NORM_BLOCK };

static int64_t elements_of(const struct muon_kernel *kernel) { return kernel->rows * kernel->columns; }
static bool is_tall(const struct muon_kernel *kernel) { return kernel->rows > kernel->columns; }

/* ---- products ---- */

/* x xt or, of a tall x, xt x. */
static struct matmul_spec square_spec(const struct muon_kernel *kernel) {
    bool tall = is_tall(kernel);
    int64_t columns = kernel->columns;
    return (struct matmul_spec){.m = kernel->side,
                                .n = kernel->side,
                                .k = tall ? kernel->rows : columns,
                                .a_row = tall ? 1 : columns,
                                .a_k = tall ? columns : 1,
                                .b_k = tall ? columns : 1,
                                .b_column = tall ? 1 : columns,
                                .c_row = kernel->side,
                                .dtype = kernel->dtype,
                                .out_dtype = DTYPE_F32};
}

static struct matmul_spec plain_spec(enum dtype dtype, int64_t m, int64_t n, int64_t k) {
    return (struct matmul_spec){.m = m,
                                .n = n,
                                .k = k,
                                .a_row = k,
                                .a_k = 1,
                                .b_k = n,
                                .b_column = 1,
                                .c_row = n,
                                .dtype = dtype,
                                .out_dtype = DTYPE_F32};
}

static enum status create_products(struct muon_kernel *kernel) {
    int64_t side = kernel->side;
    struct matmul_spec square = square_spec(kernel), squared = plain_spec(kernel->dtype, side, side, side);
    struct matmul_spec product = plain_spec(kernel->dtype, kernel->rows, kernel->columns, side);
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
    enum dtype dtype = work->kernel->dtype;
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
    void *square = workspace_at(call, kernel->square_at);
    float *sums = workspace_at(call, kernel->sums), *square_sums = workspace_at(call, kernel->square_sums);
    int64_t squares = kernel->side * kernel->side;
    multiply(kernel, call, kernel->square, x, x, square_sums);
    mix(squares, (struct mixing){kernel->dtype, .scales = true, .b = 1, .y = square_sums, .x = square});
    multiply(kernel, call, kernel->squared, square, square, square_sums);
    mix(squares, (struct mixing){kernel->dtype, .a = b, .b = c, .y = square_sums, .x = square});
    multiply(kernel, call, kernel->product, is_tall(kernel) ? x : square, is_tall(kernel) ? square : x, sums);
    mix(elements_of(kernel), (struct mixing){kernel->dtype, .a = a, .b = 1, .y = sums, .x = x});
}

static enum status muon_run(const struct kernel *of, const struct kernel_call *call) {
    const struct muon_kernel *kernel = (const struct muon_kernel *)of;
    int64_t count = elements_of(kernel);
    double clip = call->in[1] ? ((const double *)call->in[1])[1] : 1;
    if (isnan(clip)) return STATUS_OK;
    struct muon_work work = {.kernel = kernel,
                             .step = update_step_of(of->node, call),
                             .run = update_run_of(of->node, call),
                             .x = workspace_at(call, kernel->x),
                             .norms = workspace_at(call, kernel->norms)};
    work.step.clip = (float)clip;
    work.run.direction = workspace_at(call, kernel->sums);
    parallel_for(count, parallel_rows(1), move_body, &work);
    float scale = scale_of(&work, count);
    mix(count, (struct mixing){kernel->dtype, .scales = true, .b = scale, .y = work.run.direction, .x = work.x});
    for (int step = 0; step < MUON_STEPS; step++)
        make_orthogonal(kernel, call, work.x);
    parallel_for(count, parallel_rows(1), follow_body, &work);
    return STATUS_OK;
}

/* ---- making it ---- */

static int64_t take(int64_t bytes, int64_t *end) {
    int64_t at = *end;
    *end += workspace_align(bytes);
    return at;
}

/* The direction lies where sums of products will. */
static void lay_out(struct muon_kernel *kernel) {
    int64_t count = elements_of(kernel), squares = kernel->side * kernel->side, end = 0, most = 0;
    const struct matmul *products[] = {kernel->square, kernel->squared, kernel->product};
    kernel->x = take(count * dtype_bytes(kernel->dtype), &end);
    kernel->sums = take(count * (int64_t)sizeof(float), &end);
    kernel->square_at = take(squares * dtype_bytes(kernel->dtype), &end);
    kernel->square_sums = take(squares * (int64_t)sizeof(float), &end);
    kernel->norms = take(gradient_norm_blocks(count) * (int64_t)sizeof(double), &end);
    kernel->scratch = end;
    for (int i = 0; i < 3; i++)
        if (matmul_workspace_bytes(products[i]) > most) most = matmul_workspace_bytes(products[i]);
    kernel->kernel.workspace_bytes = end + workspace_align(most);
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
    kernel->rows = node->in[0]->shape.dims[0];
    kernel->columns = node->in[0]->shape.dims[1];
    kernel->side = is_tall(kernel) ? kernel->columns : kernel->rows;
    kernel->dtype = NODE_ATTRIBUTES(node, update_attributes)->parameter;
    enum status status = create_products(kernel);
    if (status != STATUS_OK) {
        muon_release(&kernel->kernel);
        return status;
    }
    lay_out(kernel);
    *out = &kernel->kernel;
    return STATUS_OK;
}
