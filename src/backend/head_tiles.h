/* The head's loss in tiles of tokens (ir/ops/head.c), for every backend: how many tokens a tile has, its GEMMs, and
 * where things are in the workspace. Logits of one tile are held at a time. */
#ifndef BALLAST_BACKEND_HEAD_TILES_H
#define BALLAST_BACKEND_HEAD_TILES_H

#include "backend/backend.h"
#include "backend/matmul_spec.h"
#include "ir/ops/ops.h"

/* Where the gradients are among a node's outputs: behind the loss, where it makes that. */
enum head_gradient { HEAD_DX, HEAD_DWEIGHT, HEAD_DBIAS };
static inline int head_output(const struct node *node, enum head_gradient gradient) {
    return (node->op == &op_head_log_probability_grad ? 0 : 1) + (int)gradient;
}

struct head_tiles {
    int64_t rows, vocab, columns; /* tokens, logits of each, features */
    int64_t logits_row;           /* elements from one row of logits to the next */
    int64_t tile, last;           /* tokens of a tile, and of the last one */
};

/* The sizes with which a backend is fastest. */
struct head_limits {
    int64_t logits_bytes; /* the most that a tile's logits take; a tile has at least 32 tokens all the same */
    int64_t tile_tokens;  /* the most tokens of a tile */
    int64_t logits_row;   /* the row stride of the logits is a multiple of it, in elements */
};

/* Tiles of a head's loss: as many tokens in each as the limits allow, evenly divided. */
struct head_tiles head_tiles_of(const struct node *node, const struct head_limits *limits);
/* One tile of all tokens, whose logits have no gaps: for the operator whose output is the logits. */
struct head_tiles head_tiles_whole(const struct node *node);
/* Tokens of the tile that begins with token `first`. */
static inline int64_t head_tile_tokens(const struct head_tiles *tiles, int64_t first) {
    return first + tiles->tile < tiles->rows ? tiles->tile : tiles->rows - first;
}

/* GEMMs of a tile of so many tokens. Logits in fp32, without their bias; the gradient of x; the weight's gradient,
 * added to. The last two only where the node has such outputs. */
struct matmul_spec head_logits_spec(const struct node *node, const struct head_tiles *tiles, int64_t tokens);
struct matmul_spec head_dx_spec(const struct node *node, const struct head_tiles *tiles, int64_t tokens);
struct matmul_spec head_dweight_spec(const struct node *node, const struct head_tiles *tiles, int64_t tokens);

/* Offsets into a workspace whose first part is the logits. Gradients in fp32 lie where the logits were. Those in bf16
 * have a place of their own, or where `in_rows` says so the first half of each row of logits. */
struct head_workspace {
    int64_t gradients; /* of a tile's logits, in the dtype of x */
    int64_t losses;    /* double, of all tokens */
    int64_t end;       /* where the backend's own part begins */
};
/* The loss alone is in the statistics of a vocabulary whose parts lie on several ranks. */
static inline bool head_makes_logits(const struct node *node, bool gradient) { return gradient || !node->in[4]; }
struct head_workspace head_workspace_of(const struct node *node, const struct head_tiles *tiles, bool gradient,
                                        bool in_rows);

#endif
