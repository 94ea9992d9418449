/* Shared by the kernels of all backends: creating them, and cutting operators into GEMMs and tiles. */
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
    /* For b: then b is a quantized weight's sections (ir/weight_format.h), and the b_k or b_column that is not 1 is the
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

/* Positions of the gradients among a node's outputs: after the loss, if the node has it. */
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

/* Settings of the head's operators, whose attributes differ: the soft cap, and the weight's part of the vocabulary (all
 * of it if the node gives none). */
struct head_settings {
    float softcap;
    struct vocabulary_part part;
};
bool head_makes_gradients(const struct node *node);
struct head_settings head_settings_of(const struct node *node);

/* The GEMMs of a tile of tokens, or of a slice of the vocabulary; NULL for those that a kernel does not need. */
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

/* `side` is the shorter side of a matrix [rows][columns]. Then places in the workspace: */
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

/* An update rule's numbers in a step (ir/ops/ops.h), rounded alike on every backend: its bits are the same on all of
 * them.
 *
 * STOCHASTIC ROUNDING. An fp32 number becomes one of the two bf16 numbers next to it: 16 random bits are added to the
 * 16 that bf16 lacks, and these are cut off. NaN stays NaN. The random bits of element e of a parameter's tensor are in
 * word e % 4 of the block random_block(seed, stream, step, number << 32 | e / 4) of base/random.h. In the stream
 * RANDOM_ROUND_STATE, the lower half of the word is for the first moment and the upper half for the second. In
 * RANDOM_ROUND_WEIGHT, the lower half is for a weight without a master. `number` is the index of the parameter among
 * the trained ones, and `step` counts from 1. A tensor has less than 2^34 elements.
 *
 * NOTHING. If the clip factor is NaN, masters, moments and weights without a master stay as they are. A weight that is
 * its rounded master is written even then, so that no update has to fetch it.
 *
 * MUON. An update of runs changes the moment and writes the direction; the weight is changed when the direction is
 * orthogonal, which takes all of it.
 *
 * MOMENTS IN 8 BITS. A block of UPDATE_SCALE_BLOCK elements is unpacked to fp32, updated as moments in fp32 are, and
 * packed again (moment_map below). The weight is changed by the moments before they are packed. */

struct kernel_call;

struct update_step {
    float decay; /* the weight is multiplied by it: 1 - lr * weight_decay; SGD: weight_decay */
    float clip;  /* the gradient is multiplied by it */
    float beta1, beta2;
    float blend1, blend2; /* 1 - beta1, 1 - beta2, rounded from double */
    float step;           /* lr, AdamW: times the first moment's correction; Muon: times the matrix's factor */
    float root;           /* AdamW: correction of the root */
    float epsilon;
    uint64_t seed; /* of stochastic rounding */
    uint32_t number, count;
};

/* A run of a parameter. */
struct update_run {
    const float *gradient;
    void *weight; /* fp32; bf16, rounded stochastically, where `bf16_weight`; NULL next to halves */
    void *moments[UPDATE_MOMENTS_MAX]; /* fp32; bf16, rounded stochastically, where `bf16_moments`; codes where there
                                          are scales; NULL: no such moment */
    float *scales[UPDATE_MOMENTS_MAX]; /* NULL, or those of the moments' blocks, which begin with the run */
    float *direction;                  /* Muon: what the matrix is made orthogonal from, which an update of this run
                                          writes in place of the weight; NULL: of other rules */
    uint16_t *rounded;                 /* NULL, or a copy of the weight, rounded to nearest even */
    uint16_t *upper, *lower;           /* NULL, or halves of the weight (base/half.h) */
    int64_t first;                     /* number of its first element within the tensor: a multiple of 64 */
    bool bf16_weight, bf16_moments;
};

/* All but the clip factor, which the step computes. A device with the call's scalars in its own memory computes the
 * same there, operation by operation (optimizer.cu). */
struct update_step update_step_of(const struct node *node, const struct kernel_call *call);
/* Muon's factor of the learning rate: an update then has the root of mean squares that AdamW's have, since singular
 * values of 1 make it 1 / sqrt(columns) of a matrix that has no fewer rows. */
double update_step_factor(const struct shape *matrix);
/* The run of a call, with the pointers of its operands. */
struct update_run update_run_of(const struct node *node, const struct kernel_call *call);
/* The same from its element `begin` on, where a block of moments begins. */
struct update_run update_run_from(const struct update_run *run, int64_t begin);

/* Moments in 8 bits: what codes stand for, and which one a number becomes (Dettmers et al., arXiv 2110.02861).
 *
 * A code stands for a number of a map between -1 and 1, or 0 and 1, times its block's scale: the largest magnitude of
 * the block. The maps are bitsandbytes' dynamic ones, ascending: 0, 1, and in each of seven powers of ten twice as many
 * numbers, equally far apart, as in the one below. The signed map has the same numbers with both signs, but for -1.
 * A number becomes the code of the nearest: by its magnitude's level, and within it by its place, both in fp32
 * operations that are exactly rounded, so that all processors find the same. NaN becomes 0. */

enum { MOMENT_CODES = 256, MOMENT_LEVELS = 9 };

/* Magnitudes above `above`, and not above the next level's, have the codes code + trunc(x * slope + offset), at most
 * `last`. The first level is 0, the last 1, the others are the powers of ten. */
struct moment_level {
    float above, slope, offset;
    int32_t code, last;
};

struct moment_map {
    const float *numbers;                      /* by code */
    int32_t zero;                              /* the code of 0: the number of negative ones */
    struct moment_level levels[MOMENT_LEVELS]; /* of magnitudes, counted from 0's code */
};
extern const struct moment_map moment_map_signed, moment_map_unsigned;

/* That of a rule's moment: second moments of AdamW are not negative. */
static inline const struct moment_map *moment_map_of(enum update_rule rule, int moment) {
    return rule == UPDATE_ADAMW && moment == 1 ? &moment_map_unsigned : &moment_map_signed;
}

/* The levels of a map that has `first` numbers in the lowest power of ten, which CUDA's kernels have as a constant of
 * their own. In the power of ten that ends at e there are n numbers e * (0.1 + 0.9 * (k + 1/2) / n). */
#define MOMENT_POWER(first, n, e, below)                                                                               \
    {                                                                                                                  \
        (float)(((e) * (0.1 + 0.45 / (n)) + (below)) / 2), (float)((n) / (0.9 * (e))), (float)(-(n) / 9.0),            \
            (n) - (first) + 1, 2 * (n) - (first)                                                                       \
    }

/* The largest number in the run of n numbers that ends at e. */
#define MOMENT_LARGEST(n, e) ((e) * (1 - 0.45 / (n)))
#define MOMENT_LEVELS_OF(first)                                                                                        \
    {                                                                                                                  \
        {-1.0f, 0.0f, 0.0f, 0, 0}, MOMENT_POWER(first, (first), 1e-6, 0),                                              \
            MOMENT_POWER(first, 2 * (first), 1e-5, MOMENT_LARGEST((first), 1e-6)),                                     \
            MOMENT_POWER(first, 4 * (first), 1e-4, MOMENT_LARGEST(2 * (first), 1e-5)),                                 \
            MOMENT_POWER(first, 8 * (first), 1e-3, MOMENT_LARGEST(4 * (first), 1e-4)),                                 \
            MOMENT_POWER(first, 16 * (first), 1e-2, MOMENT_LARGEST(8 * (first), 1e-3)),                                \
            MOMENT_POWER(first, 32 * (first), 1e-1, MOMENT_LARGEST(16 * (first), 1e-2)),                               \
            MOMENT_POWER(first, 64 * (first), 1.0, MOMENT_LARGEST(32 * (first), 1e-1)), {                              \
            (float)((1 + MOMENT_LARGEST(64 * (first), 1.0)) / 2), 0.0f, 0.0f, 127 * (first) + 1, 127 * (first) + 1     \
        }                                                                                                              \
    }
