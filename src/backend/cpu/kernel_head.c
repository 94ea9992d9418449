/* The head with the loss, in tiles of tokens: logits of one tile are held at a time, in the workspace. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/matmul.h"
#include "backend/head_tiles.h"
#include "base/half.h"

static const struct head_limits limits = {.logits_bytes = 104 << 20, .tile_tokens = 512, .logits_row = 1};

/* Products of a tile of so many tokens; NULL where not wanted. */
struct head_products {
    struct matmul *logits, *dx, *dweight;
};

struct head_kernel {
    struct kernel kernel;
    struct head_tiles tiles;
    struct head_products products, final; /* of a tile, and of the last one where that is shorter */
    struct head_workspace workspace;      /* then that of the products */
    float softcap;
};

/* The tile being computed; pointers are to its first token. */
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

static enum status create_logits(const struct head_kernel *head, bool bias, int64_t tokens, struct matmul **out) {
    struct matmul_spec spec = head_logits_spec(head->kernel.node, &head->tiles, tokens);
    spec.bias = bias;
    return matmul_create(&spec, out);
}

static enum status create_dx(const struct head_kernel *head, int64_t tokens, struct matmul **out) {
    if (!head->kernel.node->out[1]) return STATUS_OK;
    struct matmul_spec spec = head_dx_spec(head->kernel.node, &head->tiles, tokens);
    return matmul_create(&spec, out);
}

static enum status create_dweight(const struct head_kernel *head, int64_t tokens, struct matmul **out) {
    if (!head->kernel.node->out[2]) return STATUS_OK;
    struct matmul_spec spec = head_dweight_spec(head->kernel.node, &head->tiles, tokens);
    return matmul_create(&spec, out);
}

static enum status create_products(const struct head_kernel *head, bool gradient, int64_t tokens,
                                   struct head_products *out) {
    TRY(create_logits(head, head->kernel.node->in[3] != NULL, tokens, &out->logits));
    if (!gradient) return STATUS_OK;
    TRY(create_dx(head, tokens, &out->dx));
    return create_dweight(head, tokens, &out->dweight);
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

static float softcap_of(const struct node *node, bool gradient) {
    return (float)(gradient ? NODE_ATTRIBUTES(node, head_loss_grad_attributes)->softcap
                            : NODE_ATTRIBUTES(node, head_attributes)->softcap);
}

static enum status head_create(const struct node *node, bool gradient, kernel_run *run, struct kernel **out) {
    struct head_kernel *head = kernel_new(node, sizeof *head, run);
    if (!head) return STATUS_FAILED;
    head->softcap = softcap_of(node, gradient);
    head->kernel.release = head_release;
    head->tiles = head_tiles_of(node, &limits);
    enum status status = create_products(head, gradient, head->tiles.tile, &head->products);
    if (status == STATUS_OK && head->tiles.last != head->tiles.tile)
        status = create_products(head, gradient, head->tiles.last, &head->final);
    if (status != STATUS_OK) {
        head_release(&head->kernel);
        return status;
    }
    int64_t products = workspace_most(&head->products), final = workspace_most(&head->final);
    head->workspace = head_workspace_of(node, &head->tiles, gradient);
    head->kernel.workspace_bytes = head->workspace.end + (products > final ? products : final);
    *out = &head->kernel;
    return STATUS_OK;
}

/* d(loss)/d(logits) = scale * (softmax - one at the target), times the slope of a soft cap; `out` may be the logits.
 */
static void write_gradient(const struct head_tile *tile, const float *logits, int32_t target, double lse, void *out) {
    enum dtype dtype = tile->head->kernel.node->in[0]->shape.dtype;
    float softcap = tile->head->softcap;
    double logit = (double)logits[target], bent = softcap > 0 ? logit / (double)softcap : 0;
    float at_target = (float)((exp(logit - lse) - 1) * (double)tile->scale * (1 - bent * bent));
    cpu_simd()->softmax(dtype, tile->head->tiles.vocab, logits, (float)lse, tile->scale, softcap, out);
    if (dtype == DTYPE_BF16)
        ((uint16_t *)out)[target] = bf16_from_float(at_target);
    else
        ((float *)out)[target] = at_target;
}

static void head_rows(const void *context, int64_t begin, int64_t end) {
    const struct head_tile *tile = context;
    int64_t vocab = tile->head->tiles.vocab, bytes = vocab * dtype_bytes(tile->head->kernel.node->in[0]->shape.dtype);
    for (int64_t row = begin; row < end; row++) {
        float *logits = tile->logits + row * vocab;
        void *gradient = tile->gradients ? tile->gradients + row * bytes : NULL;
        int32_t target = tile->targets[row];
        BUG_IF(target >= vocab, "target %d of a vocabulary of %lld", target, (long long)vocab);
        if (target < 0) {
            tile->losses[row] = 0;
            if (gradient) memset(gradient, 0, (size_t)bytes);
            continue;
        }
        if (tile->head->softcap > 0) cpu_simd()->soft_cap(vocab, tile->head->softcap, logits);
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
        sum_columns(node->in[0]->shape.dtype, tile->rows, tile->head->tiles.vocab, tile->gradients,
                    tile->head->tiles.vocab, call->out[3]);
}

static void head_tiles(const struct head_kernel *head, const struct kernel_call *call, bool gradient) {
    const struct head_tiles *tiles = &head->tiles;
    struct head_tile tile = {.head = head, .logits = call->workspace};
    if (gradient) tile.gradients = workspace_at(call, head->workspace.gradients);
    tile.scale = gradient ? (float)call->scalars[SCALAR_LOSS_SCALE] : 0;
    double *losses = workspace_at(call, head->workspace.losses);
    void *workspace = workspace_at(call, head->workspace.end);
    for (int64_t first = 0; first < tiles->rows; first += tiles->tile) {
        tile.rows = head_tile_tokens(tiles, first);
        const struct head_products *products = tile.rows < tiles->tile ? &head->final : &head->products;
        tile.targets = (const int32_t *)call->in[2] + first;
        tile.losses = losses + first;
        struct matmul_operands logits = {.a = operand_row(head->kernel.node->in[0], call->in[0], first),
                                         .b = call->in[1],
                                         .bias = call->in[3],
                                         .c = tile.logits};
        matmul_run(products->logits, &logits, workspace);
        parallel_for(tile.rows, parallel_rows(tiles->vocab), head_rows, &tile);
        if (gradient) tile_products_run(&tile, products, call, first, workspace);
    }
    double total = 0;
    for (int64_t i = 0; i < tiles->rows; i++)
        total += losses[i];
    *(double *)call->out[0] += total;
}

static enum status head_loss_run(const struct kernel *kernel, const struct kernel_call *call) {
    head_tiles((const struct head_kernel *)kernel, call, false);
    return STATUS_OK;
}

enum status cpu_head_loss_create(const struct node *node, struct kernel **out) {
    return head_create(node, false, head_loss_run, out);
}

static enum status head_loss_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    head_tiles((const struct head_kernel *)kernel, call, true);
    return STATUS_OK;
}

enum status cpu_head_loss_grad_create(const struct node *node, struct kernel **out) {
    return head_create(node, true, head_loss_grad_run, out);
}

static void cap_rows(const void *context, int64_t begin, int64_t end) {
    const struct head_tile *tile = context;
    int64_t vocab = tile->head->tiles.vocab;
    for (int64_t row = begin; row < end; row++)
        cpu_simd()->soft_cap(vocab, tile->head->softcap, tile->logits + row * vocab);
}

static enum status head_logits_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct head_kernel *head = (const struct head_kernel *)kernel;
    struct matmul_operands operands = {.a = call->in[0], .b = call->in[1], .bias = call->in[2], .c = call->out[0]};
    matmul_run(head->products.logits, &operands, call->workspace);
    struct head_tile tile = {.head = head, .rows = head->tiles.rows, .logits = call->out[0]};
    if (head->softcap > 0) parallel_for(tile.rows, parallel_rows(head->tiles.vocab), cap_rows, &tile);
    return STATUS_OK;
}

enum status cpu_head_logits_create(const struct node *node, struct kernel **out) {
    struct head_kernel *head = kernel_new(node, sizeof *head, head_logits_run);
    if (!head) return STATUS_FAILED;
    head->kernel.release = head_release;
    head->tiles = head_tiles_whole(node);
    head->softcap = softcap_of(node, false);
    BUG_IF(tensor_row_stride(node->out[0]) != head->tiles.vocab, "logits in a view");
    enum status status = create_logits(head, node->in[2] != NULL, head->tiles.rows, &head->products.logits);
    if (status != STATUS_OK) {
        head_release(&head->kernel);
        return status;
    }
    head->kernel.workspace_bytes = matmul_workspace_bytes(head->products.logits);
    *out = &head->kernel;
    return STATUS_OK;
}
