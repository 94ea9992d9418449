#include "backend/head_tiles.h"

#include "backend/kernel_parts.h"

enum { TILE_TOKENS_MIN = 32 };

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct head_tiles head_tiles_whole(const struct node *node) {
    int64_t rows = shape_rows(&node->in[0]->shape), vocab = node->in[1]->shape.dims[0];
    return (struct head_tiles){.rows = rows,
                               .vocab = vocab,
                               .columns = shape_columns(&node->in[0]->shape),
                               .logits_row = vocab,
                               .tile = rows,
                               .last = rows};
}

struct head_tiles head_tiles_of(const struct node *node, const struct head_limits *limits) {
    struct head_tiles tiles = head_tiles_whole(node);
    tiles.logits_row = divide_up(tiles.vocab, limits->logits_row) * limits->logits_row;
    int64_t max = limits->logits_bytes / (4 * tiles.logits_row);
    if (max < TILE_TOKENS_MIN) max = TILE_TOKENS_MIN;
    if (max > limits->tile_tokens) max = limits->tile_tokens;
    tiles.tile = divide_up(tiles.rows, divide_up(tiles.rows, max));
    tiles.last = tiles.rows - (tiles.rows - 1) / tiles.tile * tiles.tile;
    return tiles;
}

struct matmul_spec head_logits_spec(const struct node *node, const struct head_tiles *tiles, int64_t tokens) {
    const struct tensor *x = node->in[0];
    return (struct matmul_spec){.m = tokens,
                                .n = tiles->vocab,
                                .k = tiles->columns,
                                .a_row = tensor_row_stride(x),
                                .a_k = 1,
                                .b_k = 1,
                                .b_column = tiles->columns,
                                .c_row = tiles->logits_row,
                                .dtype = x->shape.dtype,
                                .out_dtype = DTYPE_F32};
}

struct matmul_spec head_dx_spec(const struct node *node, const struct head_tiles *tiles, int64_t tokens) {
    const struct tensor *dx = node->out[head_output(node, HEAD_DX)];
    return (struct matmul_spec){.m = tokens,
                                .n = tiles->columns,
                                .k = tiles->vocab,
                                .a_row = tiles->logits_row,
                                .a_k = 1,
                                .b_k = tiles->columns,
                                .b_column = 1,
                                .c_row = tensor_row_stride(dx),
                                .dtype = dx->shape.dtype,
                                .out_dtype = dx->shape.dtype};
}

struct matmul_spec head_dweight_spec(const struct node *node, const struct head_tiles *tiles, int64_t tokens) {
    const struct tensor *x = node->in[0];
    return (struct matmul_spec){.m = tiles->vocab,
                                .n = tiles->columns,
                                .k = tokens,
                                .a_row = 1,
                                .a_k = tiles->logits_row,
                                .b_k = tensor_row_stride(x),
                                .b_column = 1,
                                .c_row = tiles->columns,
                                .addend_row = tiles->columns,
                                .dtype = x->shape.dtype,
                                .out_dtype = DTYPE_F32};
}

struct head_workspace head_workspace_of(const struct node *node, const struct head_tiles *tiles, bool gradient,
                                        bool in_rows) {
    int64_t elements = head_makes_logits(node, gradient) ? tiles->tile * tiles->logits_row : 0,
            logits_bytes = workspace_align(4 * elements);
    bool apart = gradient && !in_rows && node->in[0]->shape.dtype == DTYPE_BF16;
    struct head_workspace workspace = {.gradients = apart ? logits_bytes : 0};
    workspace.losses = logits_bytes + (apart ? workspace_align(2 * elements) : 0);
    workspace.end = workspace.losses + workspace_align(tiles->rows * (int64_t)sizeof(double));
    return workspace;
}
