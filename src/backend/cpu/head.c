/* The head with the loss, in tiles of tokens. The workspace holds the logits of one tile at a time. While the weight's
 * gradient is still empty, it holds the logits of the first tokens (head_slices.c). */
#include "backend/cpu/head.h"

#include <math.h>

#include "backend/cpu/matmul/matmul.h"
#include "backend/kernel_parts.h"
#include "base/half.h"

static const struct head_limits limits = {.logits_bytes = 104 << 20, .tile_tokens = 512, .logits_row = 1};

enum { REST_TOKENS = 256 }; /* of a tile behind those in slices, at most */

struct head_kernel {
    struct kernel kernel;
    struct head_slices *slices;                                    /* of the first tokens; NULL: all are in tiles */
    struct head_tiles tiles;                                       /* of the others */
    struct matmul *products[HEAD_PRODUCTS], *final[HEAD_PRODUCTS]; /* of a tile; of the last one, where it is shorter */
    struct head_workspace workspace;                               /* then that of the GEMMs */
    struct head_settings settings;
};

/* The tile being computed; pointers are to its first token. */
struct head_tile {
    const struct head_kernel *head;
    int64_t rows;
    const int32_t *targets;
    const float *statistics; /* of the whole vocabulary; NULL: the logits are of all of it */
    float *logits;
    char *gradients; /* of the logits, in the dtype of x; NULL: not wanted */
    double *losses;
    float *own; /* statistics that are made of the logits; NULL: the losses are */
    float scale;
    const float *dy; /* of log-probabilities; NULL: the loss's gradients are wanted, times the scale */
};

static void head_release(struct kernel *kernel) {
    struct head_kernel *head = (struct head_kernel *)kernel;
    matmul_free_all(head->products, HEAD_PRODUCTS);
    matmul_free_all(head->final, HEAD_PRODUCTS);
    head_slices_free(head->slices);
    mem_free(head);
}

static enum status create_logits(const struct head_kernel *head, bool bias, int64_t tokens, struct matmul **out) {
    struct matmul_spec spec = head_logits_spec(head->kernel.node, &head->tiles, tokens);
    spec.bias = bias;
    return matmul_create(&spec, out);
}

/* Row stride of the logits' gradients: in bf16 they occupy the first halves of the logits' rows. */
static int64_t gradient_row(const struct head_kernel *head) {
    int64_t logits = head->tiles.logits_row * (int64_t)sizeof(float);
    return logits / dtype_bytes(head->kernel.node->in[0]->shape.dtype);
}

static enum status create_products(const struct head_kernel *head, bool gradient, int64_t tokens,
                                   struct matmul *out[HEAD_PRODUCTS]) {
    const struct node *node = head->kernel.node;
    const struct head_tiles *tiles = &head->tiles;
    if (head_makes_logits(node, gradient)) TRY(create_logits(head, node->in[3] != NULL, tokens, &out[HEAD_LOGITS]));
    if (gradient && node->out[head_output(node, HEAD_DX)]) {
        struct matmul_spec dx = head_dx_spec(node, tiles, tokens);
        dx.a_row = gradient_row(head);
        TRY(matmul_create(&dx, &out[HEAD_DX_PRODUCT]));
    }
    if (!gradient || !node->out[head_output(node, HEAD_DWEIGHT)]) return STATUS_OK;
    struct matmul_spec dweight = head_dweight_spec(node, tiles, tokens);
    dweight.a_k = gradient_row(head);
    return matmul_create(&dweight, &out[HEAD_DWEIGHT_PRODUCT]);
}

static int64_t first_of_tiles(const struct head_kernel *head) {
    return head->slices ? head_slices_tokens(head->slices) : 0;
}

/* Logits of a tile and what slices need are not there at once. */
static void lay_out(struct head_kernel *head, bool gradient) {
    struct head_workspace *workspace = &head->workspace;
    int64_t products = matmul_max_workspace_bytes(head->products, HEAD_PRODUCTS);
    int64_t final = matmul_max_workspace_bytes(head->final, HEAD_PRODUCTS);
    if (final > products) products = final;
    *workspace = head_workspace_of(head->kernel.node, &head->tiles, gradient, true);
    if (head->slices) {
        int64_t more = head_slices_workspace_bytes(head->slices) - workspace->losses;
        int64_t own = head_slices_products_bytes(head->slices);
        if (more > 0) workspace->losses += more, workspace->end += more;
        if (own > products) products = own;
    }
    head->kernel.workspace_bytes = workspace->end + products;
}

/* The column of the target's logit; -1 where another part has it. */
static int64_t column_of(const struct head_tile *tile, int32_t target) {
    const struct vocabulary_part *part = &tile->head->settings.part;
    BUG_IF(target >= part->tokens, "target %d of a vocabulary of %lld", target, (long long)part->tokens);
    return target >= part->first && target < part->first + part->rows ? target - part->first : -1;
}

void head_write_target(float softcap, float scale, double logit, double lse, enum dtype dtype, void *out) {
    double bent = softcap > 0 ? logit / (double)softcap : 0;
    float at_target = (float)((exp(logit - lse) - 1) * (double)scale * (1 - bent * bent));
    if (dtype == DTYPE_BF16)
        *(uint16_t *)out = bf16_from_float(at_target);
    else
        *(float *)out = at_target;
}

/* d(loss)/d(logits) = scale * (softmax - one at the target), times the slope of a soft cap; `out` is where the logits
 * are: no element of it lies behind what was read for it.
 * Columns behind the part's end have none. */
static void write_gradient(const struct head_kernel *head, float scale, const float *logits, int64_t target, double lse,
                           char *out) {
    enum dtype dtype = head->kernel.node->in[0]->shape.dtype;
    int64_t rows = head->settings.part.rows, element = dtype_bytes(dtype);
    double logit = target >= 0 ? (double)logits[target] : 0;
    cpu_simd()->softmax(dtype, rows, logits, (float)lse, scale, head->settings.softcap, out);
    memset(out + rows * element, 0, (size_t)((head->tiles.vocab - rows) * element));
    if (target >= 0) head_write_target(head->settings.softcap, scale, logit, lse, dtype, out + target * element);
}

/* The log of the sum of exponentials of a row, and less the target's logit, its loss. */
static double row_loss(const struct head_tile *tile, int64_t row, int64_t target, double *lse) {
    if (tile->statistics) {
        const float *all = tile->statistics + row * HEAD_STATISTICS;
        *lse = (double)all[STATISTIC_LARGEST] + log((double)all[STATISTIC_SUM]);
        return *lse - (double)all[STATISTIC_TARGET];
    }
    const float *logits = tile->logits + row * tile->head->tiles.vocab;
    struct logits_sum sum = cpu_simd()->sum_exp(tile->head->tiles.vocab, logits);
    *lse = (double)sum.largest + log(sum.sum);
    return *lse - (double)logits[target];
}

static void write_statistics(const struct head_tile *tile, int64_t row, const float *logits, int64_t target) {
    struct logits_sum sum = cpu_simd()->sum_exp(tile->head->settings.part.rows, logits);
    float *own = tile->own + row * HEAD_STATISTICS;
    own[STATISTIC_LARGEST] = sum.largest;
    own[STATISTIC_SUM] = (float)sum.sum;
    own[STATISTIC_TARGET] = target >= 0 ? logits[target] : 0;
}

/* A token without a target. */
static void blank_row(const struct head_tile *tile, int64_t row, void *gradient, int64_t bytes) {
    if (tile->own)
        memcpy(tile->own + row * HEAD_STATISTICS, (const float[HEAD_STATISTICS]){[STATISTIC_SUM] = 1},
               HEAD_STATISTICS * sizeof(float));
    else
        tile->losses[row] = 0;
    if (gradient) memset(gradient, 0, (size_t)bytes);
}

static void head_rows(const void *context, int64_t begin, int64_t end) {
    const struct head_tile *tile = context;
    const struct head_kernel *head = tile->head;
    int64_t vocab = head->tiles.vocab, bytes = vocab * dtype_bytes(head->kernel.node->in[0]->shape.dtype);
    for (int64_t row = begin; row < end; row++) {
        float *logits = tile->logits + row * vocab;
        char *gradient = tile->gradients ? tile->gradients + row * vocab * (int64_t)sizeof(float) : NULL;
        int32_t target = tile->targets[row];
        int64_t column = column_of(tile, target);
        double lse = 0;
        if (target < 0) {
            blank_row(tile, row, gradient, bytes);
            continue;
        }
        bool has_logits = head->products[HEAD_LOGITS] != NULL;
        if (has_logits && head->settings.softcap > 0)
            cpu_simd()->soft_cap(head->settings.part.rows, head->settings.softcap, logits);
        if (tile->own)
            write_statistics(tile, row, logits, column);
        else
            tile->losses[row] = row_loss(tile, row, column, &lse);
        float scale = tile->dy ? -tile->dy[row] : tile->scale; /* a token's loss is less its log-probability */
        if (gradient) write_gradient(head, scale, logits, column, lse, gradient);
    }
}

static void tile_products_run(const struct head_tile *tile, struct matmul *const *products,
                              const struct kernel_call *call, int64_t first, void *workspace) {
    const struct node *node = tile->head->kernel.node;
    void *const *out = call->out + head_output(node, HEAD_DX);
    const struct tensor *dx_tensor = node->out[head_output(node, HEAD_DX)];
    const void *x = operand_row(node->in[0], call->in[0], first);
    struct matmul_operands dx = {
        .a = tile->gradients, .b = call->in[1], .c = operand_row(dx_tensor, out[HEAD_DX], first)};
    struct matmul_operands dweight = {
        .a = tile->gradients, .b = x, .addend = out[HEAD_DWEIGHT], .c = out[HEAD_DWEIGHT]};
    if (products[HEAD_DX_PRODUCT]) matmul_run(products[HEAD_DX_PRODUCT], &dx, workspace);
    if (products[HEAD_DWEIGHT_PRODUCT]) matmul_run(products[HEAD_DWEIGHT_PRODUCT], &dweight, workspace);
    if (out[HEAD_DBIAS])
        sum_columns(node->in[0]->shape.dtype, tile->rows, tile->head->tiles.vocab, tile->gradients,
                    gradient_row(tile->head), out[HEAD_DBIAS]);
}

/* `statistics`: what is made of the logits of all tokens; else their losses are. */
static void head_tiles(const struct head_kernel *head, const struct kernel_call *call, bool gradient,
                       float *statistics) {
    const struct head_tiles *tiles = &head->tiles;
    struct head_tile tile = {.head = head, .logits = call->workspace};
    const float *dy = call->in[5];
    if (gradient) tile.gradients = workspace_at(call, head->workspace.gradients);
    tile.scale = gradient && !dy ? (float)call->scalars[SCALAR_LOSS_SCALE] : 0;
    double *losses = workspace_at(call, head->workspace.losses);
    void *workspace = workspace_at(call, head->workspace.end);
    if (head->slices) head_slices_run(head->slices, call, call->workspace, workspace, losses);
    for (int64_t first = first_of_tiles(head); first < tiles->rows; first += tiles->tile) {
        tile.rows = head_tile_tokens(tiles, first);
        struct matmul *const *products = tile.rows < tiles->tile ? head->final : head->products;
        tile.targets = (const int32_t *)call->in[2] + first;
        tile.losses = losses + first;
        tile.own = statistics ? statistics + first * HEAD_STATISTICS : NULL;
        tile.dy = dy ? dy + first : NULL;
        if (call->in[4]) tile.statistics = (const float *)call->in[4] + first * HEAD_STATISTICS;
        struct matmul_operands logits = {.a = operand_row(head->kernel.node->in[0], call->in[0], first),
                                         .b = call->in[1],
                                         .bias = call->in[3],
                                         .c = tile.logits};
        if (products[HEAD_LOGITS]) matmul_run(products[HEAD_LOGITS], &logits, workspace);
        parallel_for(tile.rows, parallel_rows(tiles->vocab), head_rows, &tile);
        if (gradient) tile_products_run(&tile, products, call, first, workspace);
    }
}

static enum status head_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct head_kernel *head = (const struct head_kernel *)kernel;
    const struct op *op = kernel->node->op;
    const double *losses = workspace_at(call, head->workspace.losses);
    head_tiles(head, call, head_makes_gradients(kernel->node), op == &op_head_statistics ? call->out[0] : NULL);
    double total = 0;
    for (int64_t i = 0; i < head->tiles.rows && (op == &op_head_loss || op == &op_head_loss_grad); i++)
        total += losses[i];
    if (op == &op_head_loss || op == &op_head_loss_grad) *(double *)call->out[0] += total;
    for (int64_t i = 0; i < head->tiles.rows && op == &op_head_log_probability; i++)
        ((float *)call->out[0])[i] = (float)(0 - losses[i]);
    return STATUS_OK;
}

static enum status head_create(const struct node *node, struct kernel **out) {
    bool gradient = head_makes_gradients(node);
    struct head_kernel *head = kernel_new(node, sizeof *head, head_run);
    if (!head) return STATUS_FAILED;
    head->settings = head_settings_of(node);
    head->kernel.release = head_release;
    head->tiles = head_tiles_of(node, &limits);
    struct head_tiles *tiles = &head->tiles;
    enum status status = STATUS_OK;
    if (gradient && head_slices_apply(node)) status = head_slices_create(node, &head->slices);
    if (head->slices) {
        int64_t rest = tiles->rows - first_of_tiles(head), count = (rest + REST_TOKENS - 1) / REST_TOKENS;
        tiles->tile = count > 0 ? (rest + count - 1) / count : 0;
        tiles->last = count > 0 ? rest - (count - 1) * tiles->tile : 0;
    }
    if (status == STATUS_OK && tiles->tile > 0) status = create_products(head, gradient, tiles->tile, head->products);
    if (status == STATUS_OK && tiles->last != tiles->tile)
        status = create_products(head, gradient, tiles->last, head->final);
    if (status == STATUS_OK) lay_out(head, gradient);
    return kernel_finish(&head->kernel, status, out);
}

CPU_KERNEL_MAKER(head_loss, head_create)
CPU_KERNEL_MAKER(head_loss_grad, head_create)
CPU_KERNEL_MAKER(head_log_probability, head_create)
CPU_KERNEL_MAKER(head_log_probability_grad, head_create)
CPU_KERNEL_MAKER(head_statistics, head_create)

/* The statistics of tokens from those of all parts. */
static void join_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    int64_t apart = shape_elements(&node->out[0]->shape), count = node->in[0]->shape.dims[0];
    for (int64_t row = begin; row < end; row++) {
        const float *parts = (const float *)call->in[0] + row * HEAD_STATISTICS;
        float *out = (float *)call->out[0] + row * HEAD_STATISTICS, largest = parts[STATISTIC_LARGEST];
        double sum = 0, target = 0;
        for (int64_t p = 1; p < count; p++)
            largest = fmaxf(largest, parts[p * apart + STATISTIC_LARGEST]);
        for (int64_t p = 0; p < count; p++) {
            const float *part = parts + p * apart;
            sum += (double)part[STATISTIC_SUM] * exp((double)part[STATISTIC_LARGEST] - (double)largest);
            target += (double)part[STATISTIC_TARGET];
        }
        out[STATISTIC_LARGEST] = largest;
        out[STATISTIC_SUM] = (float)sum;
        out[STATISTIC_TARGET] = (float)target;
    }
}

CPU_ROWS_KERNEL(join_statistics, join_rows)

static void cap_rows(const void *context, int64_t begin, int64_t end) {
    const struct head_tile *tile = context;
    int64_t vocab = tile->head->tiles.vocab;
    for (int64_t row = begin; row < end; row++)
        cpu_simd()->soft_cap(vocab, tile->head->settings.softcap, tile->logits + row * vocab);
}

static enum status head_logits_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct head_kernel *head = (const struct head_kernel *)kernel;
    struct matmul_operands operands = {.a = call->in[0], .b = call->in[1], .bias = call->in[2], .c = call->out[0]};
    matmul_run(head->products[HEAD_LOGITS], &operands, call->workspace);
    struct head_tile tile = {.head = head, .rows = head->tiles.rows, .logits = call->out[0]};
    if (head->settings.softcap > 0) parallel_for(tile.rows, parallel_rows(head->tiles.vocab), cap_rows, &tile);
    return STATUS_OK;
}

enum status cpu_head_logits_create(const struct node *node, struct kernel **out) {
    struct head_kernel *head = kernel_new(node, sizeof *head, head_logits_run);
    if (!head) return STATUS_FAILED;
    head->kernel.release = head_release;
    head->tiles = head_tiles_whole(node);
    head->settings = head_settings_of(node);
    BUG_IF(tensor_row_stride(node->out[0]) != head->tiles.vocab, "logits in a view");
    enum status status = create_logits(head, node->in[2] != NULL, head->tiles.rows, &head->products[HEAD_LOGITS]);
    head->kernel.workspace_bytes = matmul_workspace_bytes(head->products[HEAD_LOGITS]);
    return kernel_finish(&head->kernel, status, out);
}
