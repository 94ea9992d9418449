/* The head's loss and gradients of its first tokens, without space for their logits: these lie where the gradient of
 * the weight will be, in slices of the vocabulary.
 *
 *     logits  [V/SLICE][tokens][SLICE]      a slice takes tokens * SLICE numbers,
 *     dweight [V/SLICE][SLICE][C]           and one of these has C * SLICE; so tokens are at most C
 *
 * Slice v of the logits lies in slice v - 1 of dweight, the first one in the workspace. When all logits have become
 * their gradients, and dx is made of them, slices of dweight are made from the last to the first: each is written where
 * the logits behind it were. It is written once, where tiles of tokens (head.c) would add to it again and again,
 * from memory. */
#include <math.h>

#include "backend/cpu/head.h"
#include "backend/cpu/matmul/matmul.h"
#include "backend/kernel_parts.h"
#include "base/half.h"

enum { SLICE = 2048 };

struct head_slices {
    const struct node *node;
    int64_t tokens, vocab, columns;
    int64_t count; /* of slices */
    float softcap;
    struct matmul *whole[HEAD_PRODUCTS], *last[HEAD_PRODUCTS]; /* of the last slice, where it has fewer columns */
    int64_t first_bytes, sums_bytes; /* parts of the workspace: the first slice's logits; dx in fp32 */
};

static const struct head_loss_grad_attributes *attributes_of(const struct node *node) { return node->attributes; }

static int64_t tokens_of(const struct node *node) {
    int64_t rows = shape_rows(&node->in[0]->shape), columns = shape_columns(&node->in[0]->shape);
    return rows < columns ? rows : columns;
}

bool head_slices_apply(const struct node *node) {
    if (node->op != &op_head_loss_grad || node->in[4]) return false;
    const struct head_loss_grad_attributes *attributes = attributes_of(node);
    bool whole = attributes->part.tokens == 0 && attributes->dweight && attributes->begins;
    if (node->in[1]->shape.dims[0] <= SLICE) return false; /* of a single slice all logits would have their own place */
    return whole && 2 * tokens_of(node) >= shape_rows(&node->in[0]->shape);
}

int64_t head_slices_tokens(const struct head_slices *slices) { return slices->tokens; }

/* Columns of the logits of a slice. */
static int64_t slice_width(const struct head_slices *slices, int64_t v) {
    int64_t left = slices->vocab - v * SLICE;
    return left < SLICE ? left : SLICE;
}

static struct matmul *const *products_of(const struct head_slices *slices, int64_t v) {
    return slice_width(slices, v) < SLICE ? slices->last : slices->whole;
}

/* ---- making ---- */

static enum status create_products(const struct head_slices *slices, int64_t width, struct matmul *out[HEAD_PRODUCTS]) {
    const struct node *node = slices->node;
    const struct head_tiles tiles = {.rows = slices->tokens,
                                     .vocab = width,
                                     .columns = slices->columns,
                                     .logits_row = SLICE,
                                     .tile = slices->tokens,
                                     .last = slices->tokens};
    int64_t gradient_row = SLICE * (int64_t)sizeof(float) / dtype_bytes(node->in[0]->shape.dtype);
    struct matmul_spec logits = head_logits_spec(node, &tiles, slices->tokens);
    struct matmul_spec dweight = head_dweight_spec(node, &tiles, slices->tokens);
    logits.bias = node->in[3] != NULL;
    dweight.a_k = gradient_row;
    dweight.addend_row = 0;
    TRY(matmul_create(&logits, &out[HEAD_LOGITS]));
    TRY(matmul_create(&dweight, &out[HEAD_DWEIGHT_PRODUCT]));
    if (!attributes_of(node)->dx) return STATUS_OK;
    struct matmul_spec dx = head_dx_spec(node, &tiles, slices->tokens);
    dx.a_row = gradient_row;
    dx.c_row = dx.addend_row = slices->columns;
    dx.out_dtype = DTYPE_F32;
    return matmul_create(&dx, &out[HEAD_DX_PRODUCT]);
}

void head_slices_free(struct head_slices *slices) {
    if (!slices) return;
    matmul_free_all(slices->whole, HEAD_PRODUCTS);
    matmul_free_all(slices->last, HEAD_PRODUCTS);
    mem_free(slices);
}

enum status head_slices_create(const struct node *node, struct head_slices **out) {
    struct head_slices *slices = mem_array(1, sizeof *slices);
    if (!slices) return STATUS_FAILED;
    int64_t vocab = node->in[1]->shape.dims[0], columns = shape_columns(&node->in[0]->shape);
    *slices = (struct head_slices){.node = node,
                                   .tokens = tokens_of(node),
                                   .vocab = vocab,
                                   .columns = columns,
                                   .count = (vocab + SLICE - 1) / SLICE,
                                   .softcap = (float)attributes_of(node)->softcap};
    slices->first_bytes = workspace_align(slices->tokens * SLICE * (int64_t)sizeof(float));
    slices->sums_bytes = workspace_align(slices->tokens * columns * (int64_t)sizeof(float));
    enum status status = create_products(slices, SLICE, slices->whole);
    if (status == STATUS_OK && vocab % SLICE > 0) status = create_products(slices, vocab % SLICE, slices->last);
    if (status == STATUS_OK)
        *out = slices;
    else
        head_slices_free(slices);
    return status;
}

int64_t head_slices_workspace_bytes(const struct head_slices *slices) {
    return slices->first_bytes + slices->sums_bytes;
}

int64_t head_slices_products_bytes(const struct head_slices *slices) {
    int64_t whole = matmul_max_workspace_bytes(slices->whole, HEAD_PRODUCTS);
    int64_t last = matmul_max_workspace_bytes(slices->last, HEAD_PRODUCTS);
    return whole > last ? whole : last;
}

/* ---- running ---- */

struct slices_run {
    const struct head_slices *slices;
    const struct kernel_call *call;
    float *first, *sums;
    void *products;
    double *losses;
    float scale;
};

static float *dweight_slice(const struct slices_run *run, int64_t v) {
    float *dweight = run->call->out[head_output(run->slices->node, HEAD_DWEIGHT)];
    return dweight + v * SLICE * run->slices->columns;
}

/* Logits of slice v, and then their gradients, in the first halves of the rows where they are bf16. */
static float *slice_logits(const struct slices_run *run, int64_t v) {
    return v == 0 ? run->first : dweight_slice(run, v - 1);
}

static const char *weight_slice(const struct slices_run *run, int64_t v) {
    const struct tensor *weight = run->slices->node->in[1];
    return (const char *)run->call->in[1] + v * SLICE * run->slices->columns * dtype_bytes(weight->shape.dtype);
}

static void make_logits(const struct slices_run *run) {
    const struct node *node = run->slices->node;
    const char *bias = run->call->in[3];
    int64_t element = dtype_bytes(node->in[0]->shape.dtype);
    for (int64_t v = 0; v < run->slices->count; v++) {
        const struct matmul_operands operands = {.a = run->call->in[0],
                                                 .b = weight_slice(run, v),
                                                 .bias = bias ? bias + v * SLICE * element : NULL,
                                                 .c = slice_logits(run, v)};
        matmul_run(products_of(run->slices, v)[HEAD_LOGITS], &operands, run->products);
    }
}

/* The log of the sum of exponentials of a token's logits: the sums of slices, in their order. */
static double row_lse(const struct slices_run *run, int64_t row) {
    const struct head_slices *slices = run->slices;
    double largest = -INFINITY, sum = 0;
    for (int64_t v = 0; v < slices->count; v++) {
        float *logits = slice_logits(run, v) + row * SLICE;
        int64_t width = slice_width(slices, v);
        if (slices->softcap > 0) cpu_simd()->soft_cap(width, slices->softcap, logits);
        struct logits_sum own = cpu_simd()->sum_exp(width, logits);
        double max = fmax(largest, (double)own.largest);
        sum = v == 0 ? own.sum : sum * exp(largest - max) + own.sum * exp((double)own.largest - max);
        largest = v == 0 ? (double)own.largest : max;
    }
    return largest + log(sum);
}

static void write_gradients(const struct slices_run *run, int64_t row, int64_t target, double lse, double logit) {
    const struct head_slices *slices = run->slices;
    enum dtype dtype = slices->node->in[0]->shape.dtype;
    for (int64_t v = 0; v < slices->count; v++) {
        float *logits = slice_logits(run, v) + row * SLICE;
        cpu_simd()->softmax(dtype, slice_width(slices, v), logits, (float)lse, run->scale, slices->softcap, logits);
    }
    char *at = (char *)(slice_logits(run, target / SLICE) + row * SLICE);
    head_write_target(slices->softcap, run->scale, logit, lse, dtype, at + target % SLICE * dtype_bytes(dtype));
}

static void slices_rows(const void *context, int64_t begin, int64_t end) {
    const struct slices_run *run = context;
    const struct head_slices *slices = run->slices;
    const int32_t *targets = run->call->in[2];
    for (int64_t row = begin; row < end; row++) {
        int64_t target = targets[row];
        BUG_IF(target >= slices->vocab, "target %lld of a vocabulary of %lld", (long long)target,
               (long long)slices->vocab);
        if (target < 0) {
            run->losses[row] = 0;
            for (int64_t v = 0; v < slices->count; v++)
                memset(slice_logits(run, v) + row * SLICE, 0, (size_t)slice_width(slices, v) * sizeof(float));
            continue;
        }
        double lse = row_lse(run, row);
        double logit = (double)slice_logits(run, target / SLICE)[row * SLICE + target % SLICE];
        run->losses[row] = lse - logit;
        write_gradients(run, row, target, lse, logit);
    }
}

static void make_dx(const struct slices_run *run) {
    const struct head_slices *slices = run->slices;
    const struct tensor *tensor = slices->node->out[head_output(slices->node, HEAD_DX)];
    if (!tensor) return;
    memset(run->sums, 0, (size_t)(slices->tokens * slices->columns) * sizeof(float));
    for (int64_t v = 0; v < slices->count; v++) {
        const struct matmul_operands operands = {
            .a = slice_logits(run, v), .b = weight_slice(run, v), .addend = run->sums, .c = run->sums};
        matmul_run(products_of(slices, v)[HEAD_DX_PRODUCT], &operands, run->products);
    }
    char *dx = run->call->out[head_output(slices->node, HEAD_DX)];
    enum dtype dtype = tensor->shape.dtype;
    int64_t stride = tensor_row_stride(tensor) * dtype_bytes(dtype);
    for (int64_t row = 0; row < slices->tokens; row++) {
        const float *from = run->sums + row * slices->columns;
        if (dtype == DTYPE_F32) memcpy(dx + row * stride, from, (size_t)slices->columns * sizeof *from);
        for (int64_t i = 0; i < slices->columns && dtype == DTYPE_BF16; i++)
            ((uint16_t *)(void *)(dx + row * stride))[i] = bf16_from_float(from[i]);
    }
}

static void make_dweight(const struct slices_run *run) {
    const struct head_slices *slices = run->slices;
    const struct node *node = slices->node;
    enum dtype dtype = node->in[0]->shape.dtype;
    float *dbias = run->call->out[head_output(node, HEAD_DBIAS)];
    for (int64_t v = slices->count; v-- > 0;) {
        float *gradients = slice_logits(run, v);
        if (dbias)
            sum_columns(dtype, slices->tokens, slice_width(slices, v), gradients,
                        SLICE * (int64_t)sizeof(float) / dtype_bytes(dtype), dbias + v * SLICE);
        const struct matmul_operands operands = {.a = gradients, .b = run->call->in[0], .c = dweight_slice(run, v)};
        matmul_run(products_of(slices, v)[HEAD_DWEIGHT_PRODUCT], &operands, run->products);
    }
}

void head_slices_run(const struct head_slices *slices, const struct kernel_call *call, void *workspace, void *products,
                     double *losses) {
    const struct slices_run run = {.slices = slices,
                                   .call = call,
                                   .first = workspace,
                                   .sums = (float *)(void *)((char *)workspace + slices->first_bytes),
                                   .products = products,
                                   .losses = losses,
                                   .scale = (float)call->scalars[SCALAR_LOSS_SCALE]};
    make_logits(&run);
    parallel_for(slices->tokens, parallel_rows(slices->vocab), slices_rows, &run);
    make_dx(&run);
    make_dweight(&run);
}
