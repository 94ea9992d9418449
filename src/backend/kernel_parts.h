/* What the kernels of all backends have in common: making them, and how operators are cut into GEMMs and tiles. */
#pragma once

#include "backend/backend.h"
#include "base/base.h"
#include "ir/graph.h"
#include "ir/ops/ops.h"
#include "ir/tensor.h"

/* A GEMM as data: c = a b (+ bias) (+ addend), sums in fp32. a is [m][k], b is [k][n], c is [m][n]; strides in
 * elements, one of a's and one of b's is 1. */
struct matmul_spec {
    int64_t m, n, k;
    int64_t a_row, a_k;
    int64_t b_k, b_column;
    int64_t c_row;
    int64_t addend_row; /* like c; 0: there is no addend */
    enum dtype dtype;   /* of a, b and the bias */
    /* Of b, which then is a weight's sections (ir/weight_format.h): the b_k or the b_column that is not 1 is the
     * length of its rows. Its numbers are rounded to `dtype`. */
    enum weight_format b_format;
    int64_t b_block;      /* of weight_layout_of */
    enum dtype out_dtype; /* of c and the addend */
    bool bias;            /* [n] is added to each row */
};

/* bias and addend are NULL when the spec has none; the addend may be c. */
struct matmul_operands {
    const void *a, *b, *bias, *addend;
    void *c;
};

/* A zeroed kernel of `bytes` (it begins with a struct kernel), released by freeing it; NULL when out of memory. */
void *kernel_new(const struct node *node, size_t bytes, kernel_run *run);
/* The same for kernels that are a struct kernel and no more. */
enum status kernel_plain(const struct node *node, kernel_run *run, int64_t workspace_bytes, struct kernel **out);
/* Ends the making of a kernel: *out = kernel; or, where `status` is not OK, releases it. Returns the status. */
enum status kernel_finish(struct kernel *kernel, enum status status, struct kernel **out);

/* Elements of input 0 that a kernel of an operator `by_elements` works on. */
int64_t kernel_elements(const struct kernel *kernel, const struct kernel_call *call);

/* Row `row` of an operand, by its tensor's row stride; NULL for an operand that is left out. */
void *operand_row(const struct tensor *tensor, void *data, int64_t row);

/* Parts of a workspace begin at multiples of this. */
enum { WORKSPACE_ALIGN = 64 };
static inline int64_t workspace_align(int64_t bytes) {
    return (bytes + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN;
}

static inline void *workspace_at(const struct kernel_call *call, int64_t offset) {
    return (char *)call->workspace + offset;
}

/* The GEMMs that linear layers and their gradients are (ir/ops/linear.c), for every backend. */

struct linear_product {
    struct matmul_spec spec;
    const struct tensor *a, *b, *addend, *c; /* of the node; addend NULL: there is none */
};

/* y = x w (+ bias) (+ addend); the weight is [k][n] or [n][k]. */
struct linear_product linear_product(const struct node *node);
struct matmul_operands linear_operands(const struct kernel_call *call);

/* dx = dy w^t (+ addend). */
struct linear_product linear_dx_product(const struct node *node);
struct matmul_operands linear_dx_operands(const struct kernel_call *call);

/* dw += the weight's rows times its columns, over the tokens: x and dy, or dy and x. */
struct linear_product linear_dw_product(const struct node *node);
struct matmul_operands linear_dw_operands(const struct node *node, const struct kernel_call *call);

/* The head's loss in tiles of tokens (ir/ops/head.c), for every backend: how many tokens a tile has, its GEMMs, and
 * where things are in the workspace. Logits of one tile are held at a time. */

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

/* Of the operators of the head, whose attributes differ: the soft cap, and the part of the vocabulary that the weight
 * has, all of it where the node says none. */
struct head_settings {
    float softcap;
    struct vocabulary_part part;
};
bool head_makes_gradients(const struct node *node);
struct head_settings head_settings_of(const struct node *node);

/* The GEMMs of a tile of tokens, or of a slice of the vocabulary; a kernel has NULL for those that it does not need. */
enum head_product { HEAD_LOGITS, HEAD_DX_PRODUCT, HEAD_DWEIGHT_PRODUCT, HEAD_PRODUCTS };

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

/* Muon's update of a matrix in what every backend's kernel has of it: its workspace and its GEMMs. The direction x
 * lies in the parameter's dtype; the square is x xt or, of a tall x, xt x. The fp32 direction lies where sums of
 * GEMMs will. */

/* Of a matrix [rows][columns], `side` is the shorter of the two. Then places in the workspace: */
struct muon_sizes {
    int64_t rows, columns, side;
    enum dtype dtype;            /* of x and the square */
    int64_t x, sums;             /* [rows][columns], in fp32 the latter */
    int64_t square, square_sums; /* [side][side], in fp32 the latter */
    int64_t norms;               /* fp64: the squared norm, then sums of blocks of GRADIENT_NORM_BLOCK */
    int64_t end;                 /* of all these; what GEMMs need stands behind it */
};
struct muon_sizes muon_sizes_of(const struct node *node);

/* square = x xt or xt x; square square; square x or x square. */
enum muon_product { MUON_SQUARE, MUON_SQUARED, MUON_PRODUCT, MUON_PRODUCTS };
struct matmul_spec muon_product_spec(const struct muon_sizes *sizes, enum muon_product product);
