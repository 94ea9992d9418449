/* The head with the loss, in tiles of tokens: logits of one tile are held at a time, in the workspace. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/matmul.h"
#include "base/half.h"

enum { LOGITS_BYTES_MOST = 104 << 20, TILE_TOKENS_LEAST = 32, TILE_TOKENS_MOST = 512 };

/* Products of a tile of so many tokens; NULL where not wanted. */
struct head_products {
    struct matmul *logits, *dx, *dweight;
};

struct head_kernel {
    struct kernel kernel;
    int64_t rows, vocab, columns;
    int64_t tile, last;                   /* tokens of a tile, and of the last one */
    struct head_products products, final; /* of a tile, and of the last one; may be the same */
    /* Offsets into the workspace, whose first part is the logits. Products take whole rows without gaps, so gradients
     * in bf16 have a place of their own; those in fp32 lie where the logits were. */
    int64_t gradients_at, losses_at, matmul_at;
};

/* One tile on its way; pointers are to its first token. */
struct head_tile {
    const struct head_kernel *head;
    int64_t rows;
    const int32_t *targets;
    float *logits;
    char *gradients; /* of the logits, in the dtype of x; NULL: not wanted */
    double *losses;
    float scale;
};

static void products_free(struct head_products *products) {
    matmul_free(products->logits);
    matmul_free(products->dx);
    matmul_free(products->dweight);
}

static void head_release(struct kernel *kernel) {
    struct head_kernel *head = (struct head_kernel *)kernel;
    products_free(&head->products);
    products_free(&head->final);
    mem_free(head);
}

static enum status create_logits(const struct head_kernel *head, bool bias, int64_t rows, struct matmul **out) {
    const struct tensor *x = head->kernel.node->in[0];
    struct matmul_spec spec = {
        .m = rows,
        .n = head->vocab,
        .k = head->columns,
        .a_row = tensor_row_stride(x),
        .a_k = 1,
        .b_k = 1,
        .b_column = head->columns,
        .c_row = head->vocab,
        .dtype = x->shape.dtype,
        .out_dtype = DTYPE_F32,
        .bias = bias,
    };
    return matmul_create(&spec, out);
}

static enum status create_dx(const struct head_kernel *head, int64_t rows, struct matmul **out) {
    const struct tensor *dx = head->kernel.node->out[1];
    if (!dx) return STATUS_OK;
    struct matmul_spec spec = {
        .m = rows,
        .n = head->columns,
        .k = head->vocab,
        .a_row = head->vocab,
        .a_k = 1,
        .b_k = head->columns,
        .b_column = 1,
        .c_row = tensor_row_stride(dx),
        .dtype = dx->shape.dtype,
        .out_dtype = dx->shape.dtype,
    };
    return matmul_create(&spec, out);
}

static enum status create_dweight(const struct head_kernel *head, int64_t rows, struct matmul **out) {
    const struct tensor *x = head->kernel.node->in[0];
    if (!head->kernel.node->out[2]) return STATUS_OK;
    struct matmul_spec spec = {
        .m = head->vocab,
        .n = head->columns,
        .k = rows,
        .a_row = 1,
        .a_k = head->vocab,
        .b_k = tensor_row_stride(x),
        .b_column = 1,
        .c_row = head->columns,
        .dtype = x->shape.dtype,
        .out_dtype = DTYPE_F32,
        .addend_row = head->columns,
    };
    return matmul_create(&spec, out);
}

static enum status create_products(const struct head_kernel *head, bool gradient, int64_t rows,
                                   struct head_products *out) {
    TRY(create_logits(head, head->kernel.node->in[3] != NULL, rows, &out->logits));
    if (!gradient) return STATUS_OK;
    TRY(create_dx(head, rows, &out->dx));
    return create_dweight(head, rows, &out->dweight);
}

static int64_t workspace_most(const struct head_products *products) {
    const struct matmul *const all[] = {products->logits, products->dx, products->dweight};
    int64_t most = 0;
    for (int i = 0; i < 3; i++) {
        int64_t bytes = all[i] ? matmul_workspace_bytes(all[i]) : 0;
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Tokens of a tile: as many as the limit allows, evenly divided. */
static int64_t tile_tokens(int64_t rows, int64_t vocab) {
    int64_t most = LOGITS_BYTES_MOST / (4 * vocab);
    if (most < TILE_TOKENS_LEAST) most = TILE_TOKENS_LEAST;
    if (most > TILE_TOKENS_MOST) most = TILE_TOKENS_MOST;
    int64_t tiles = (rows + most - 1) / most;
    return (rows + tiles - 1) / tiles;
}

static void head_measure(struct head_kernel *head) {
    const struct node *node = head->kernel.node;
    head->rows = shape_rows(&node->in[0]->shape);
    head->columns = shape_columns(&node->in[0]->shape);
    head->vocab = node->in[1]->shape.dims[0];
    head->tile = tile_tokens(head->rows, head->vocab);
    head->last = head->rows - (head->rows - 1) / head->tile * head->tile;
}

static enum status head_create(const struct node *node, bool gradient,
                               void (*run)(const struct kernel *, const struct kernel_call *), struct kernel **out) {
    struct head_kernel *head = cpu_kernel_new(node, sizeof *head, run);
    if (!head) return STATUS_FAILED;
    head->kernel.release = head_release;
    head_measure(head);
    enum status status = create_products(head, gradient, head->tile, &head->products);
    if (status == STATUS_OK && head->last != head->tile)
        status = create_products(head, gradient, head->last, &head->final);
    if (status != STATUS_OK) {
        head_release(&head->kernel);
        return status;
    }
    int64_t products = workspace_most(&head->products), final = workspace_most(&head->final);
    bool apart = gradient && node->in[0]->shape.dtype == DTYPE_BF16;
    int64_t logits_bytes = workspace_align(head->tile * head->vocab * 4);
    head->gradients_at = apart ? logits_bytes : 0;
    head->losses_at = logits_bytes + (apart ? workspace_align(head->tile * head->vocab * 2) : 0);
    head->matmul_at = head->losses_at + workspace_align(head->rows * (int64_t)sizeof(double));
    head->kernel.workspace_bytes = head->matmul_at + (products > final ? products : final);
    *out = &head->kernel;
    return STATUS_OK;
}

/* d(loss)/d(logits) = scale * (softmax - one at the target); `out` may be the logits. */
static void write_gradient(const struct head_tile *tile, const float *logits, int32_t target, double lse, void *out) {
    enum dtype dtype = tile->head->kernel.node->in[0]->shape.dtype;
    float at_target = (float)((exp((double)logits[target] - lse) - 1) * (double)tile->scale);
    cpu_simd()->softmax(dtype, tile->head->vocab, logits, (float)lse, tile->scale, out);
    if (dtype == DTYPE_BF16)
        ((uint16_t *)out)[target] = bf16_from_float(at_target);
    else
        ((float *)out)[target] = at_target;
}

static void head_rows(const void *context, int64_t begin, int64_t end) {
    const struct head_tile *tile = context;
    int64_t vocab = tile->head->vocab, bytes = vocab * dtype_bytes(tile->head->kernel.node->in[0]->shape.dtype);
    for (int64_t row = begin; row < end; row++) {
        const float *logits = tile->logits + row * vocab;
        void *gradient = tile->gradients ? tile->gradients + row * bytes : NULL;
        int32_t target = tile->targets[row];
        BUG_IF(target >= vocab, "target %d of a vocabulary of %lld", target, (long long)vocab);
        if (target < 0) {
            tile->losses[row] = 0;
            if (gradient) memset(gradient, 0, (size_t)bytes);
            continue;
        }
        double lse = cpu_simd()->log_sum_exp(vocab, logits);
        tile->losses[row] = lse - (double)logits[target];
        if (gradient) write_gradient(tile, logits, target, lse, gradient);
    }
}

static void tile_products_run(const struct head_tile *tile, const struct head_products *products,
                              const struct kernel_call *call, int64_t first, void *workspace) {
    const struct node *node = tile->head->kernel.node;
    const void *x = operand_row(node->in[0], call->in[0], first);
    struct matmul_operands dx = {
        .a = tile->gradients, .b = call->in[1], .c = operand_row(node->out[1], call->out[1], first)};
    struct matmul_operands dweight = {.a = tile->gradients, .b = x, .addend = call->out[2], .c = call->out[2]};
    if (products->dx) matmul_run(products->dx, &dx, workspace);
    if (products->dweight) matmul_run(products->dweight, &dweight, workspace);
    if (call->out[3])
        sum_columns(node->in[0]->shape.dtype, tile->rows, tile->head->vocab, tile->gradients, tile->head->vocab,
                    call->out[3]);
}

static void head_tiles(const struct head_kernel *head, const struct kernel_call *call, bool gradient) {
    struct head_tile tile = {.head = head, .logits = call->workspace};
    if (gradient) tile.gradients = workspace_at(call, head->gradients_at);
    tile.scale = gradient ? (float)call->scalars[SCALAR_LOSS_SCALE] : 0;
    double *losses = workspace_at(call, head->losses_at);
    void *workspace = workspace_at(call, head->matmul_at);
    for (int64_t first = 0; first < head->rows; first += head->tile) {
        bool is_last = first + head->tile >= head->rows;
        const struct head_products *products = is_last && head->final.logits ? &head->final : &head->products;
        tile.rows = is_last ? head->last : head->tile;
        tile.targets = (const int32_t *)call->in[2] + first;
        tile.losses = losses + first;
        struct matmul_operands logits = {.a = operand_row(head->kernel.node->in[0], call->in[0], first),
                                         .b = call->in[1],
                                         .bias = call->in[3],
                                         .c = tile.logits};
        matmul_run(products->logits, &logits, workspace);
        parallel_for(tile.rows, parallel_rows(head->vocab), head_rows, &tile);
        if (gradient) tile_products_run(&tile, products, call, first, workspace);
    }
    double total = 0;
    for (int64_t i = 0; i < head->rows; i++)
        total += losses[i];
    *(double *)call->out[0] += total;
}

static void head_loss_run(const struct kernel *kernel, const struct kernel_call *call) {
    head_tiles((const struct head_kernel *)kernel, call, false);
}

enum status cpu_head_loss_create(const struct node *node, struct kernel **out) {
    return head_create(node, false, head_loss_run, out);
}

static void head_loss_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    head_tiles((const struct head_kernel *)kernel, call, true);
}

enum status cpu_head_loss_grad_create(const struct node *node, struct kernel **out) {
    return head_create(node, true, head_loss_grad_run, out);
}

static void head_logits_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct head_kernel *head = (const struct head_kernel *)kernel;
    struct matmul_operands operands = {.a = call->in[0], .b = call->in[1], .bias = call->in[2], .c = call->out[0]};
    matmul_run(head->products.logits, &operands, call->workspace);
}

enum status cpu_head_logits_create(const struct node *node, struct kernel **out) {
    struct head_kernel *head = cpu_kernel_new(node, sizeof *head, head_logits_run);
    if (!head) return STATUS_FAILED;
    head->kernel.release = head_release;
    head_measure(head);
    BUG_IF(tensor_row_stride(node->out[0]) != head->vocab, "logits in a view");
    enum status status = create_logits(head, node->in[2] != NULL, head->rows, &head->products.logits);
    if (status != STATUS_OK) {
        head_release(&head->kernel);
        return status;
    }
    head->kernel.workspace_bytes = matmul_workspace_bytes(head->products.logits);
    *out = &head->kernel;
    return STATUS_OK;
}
