/* Vector kernels: this directory is compiled once for each instruction set.
 *
 * Files, in the order to read them:
 *     kernels: the table of them, for their callers;
 *     table: the table of the instruction set that is being compiled;
 *     simd: vectors of floats, and the declarations of that table's functions;
 *     elementwise, norm, optimizer: rows, for the operators of src/ir/ops by these names, and for activations, rope and
 *         the head's loss; optimizer also rounds stochastically and packs moments in 8 bits;
 *     gemm: GEMMs of packed panels, by vectors and by the processor's tiles (amx);
 *     words: matrices packed in words, and GEMMs of which one side is short;
 *     unpack: weights in fewer bits;
 *     attention_tile, attention: attention in tiles, and of one query;
 *     attention_pairs: attention by pairs of bf16, of which attention_dots and attention_amx are the variants by dot
 *         products of vectors and by the processor's tiles.
 *
 * They work on single rows, tiles and tasks; their callers in backend/cpu know graphs and threads. `dtype` is
 * DTYPE_F32 or DTYPE_BF16, `n` counts elements; rows are contiguous and of `dtype` unless said otherwise, and need no
 * alignment. Where an output may be an input, it may only be the very same row. */
#pragma once

#include "backend/kernel_parts.h"
#include "base/base.h"
#include "ir/ops/ops.h"
#include "ir/tensor.h"

/* Rows of a norm's gradient; outputs that are not wanted are NULL. */
struct norm_grad_row {
    const void *dy, *x, *weight, *addend;
    void *dx;
    float *dweight, *dbias; /* added to */
    float mean, rstd;
    bool one_plus; /* the weight is 1 + what is stored */
};

/* Statistics of a row of logits: the largest (-infinity if there are none), and the sum of exponentials of the logits
 * minus it. */
struct logits_sum {
    float largest;
    double sum;
};

/* One head of one sequence. Pointers are to its first feature at position 0, strides are in elements. */
struct attention_head {
    enum dtype dtype;
    int64_t length, head_dim, window;
    float scale, softcap;    /* softcap 0: scores stay */
    float sink;              /* a score more, whose value is 0; -infinity: none. Not for the gradient */
    const int32_t *segments; /* [length] or NULL */
    const void *q, *k, *v;
    int64_t q_stride, k_stride, v_stride;
    void *y;
    int64_t y_stride;
    float *lse; /* [length]; read by the gradient */
    /* For the gradient only. */
    const void *dy;
    void *dq, *dk, *dv;
    int64_t dy_stride, dq_stride, dk_stride, dv_stride;
    float *delta;   /* [length]: dy . y of each query */
    float *dq_sums; /* [length rounded up to `tile`][columns], in the kernels' own order within a tile */
};

/* One query that sees `keys` rows of keys and values; pointers are to the head's features in their first, strides in
 * elements. */
struct attention_query {
    enum dtype dtype;
    int64_t head_dim, keys;
    float scale, softcap, sink; /* as in struct attention_head */
    bool rounds;                /* exponentials to bf16, as attention by pairs does */
    const void *q, *k, *v;
    int64_t k_stride, v_stride;
    void *y;
};

/* A matrix of `lines` (rows of a, columns of b) and steps of k, to be packed in words of 32 bits. A word is a step in
 * fp32, or a pair of steps in bf16, whose second step is 0 after an odd last one. Strides are in elements; one of them
 * is 1. */
struct word_source {
    enum dtype dtype;
    const void *data;
    int64_t lines, steps;
    int64_t line_stride, step_stride;
};

/* A part of c that is made from its sums: c = sums (+ bias, of bias_dtype) (+ addend, of c's dtype). Strides are in
 * elements. bias and addend may be NULL, the addend may be c. `turned`: a row of the sums is a column of c (gemm_pairs
 * alone). */
struct gemm_result {
    int64_t rows, columns;
    bool turned;
    enum dtype bias_dtype, dtype;
    const void *bias, *addend;
    int64_t addend_row;
    void *c;
    int64_t c_row;
};

/* Steps of an operand of a GEMM, to be packed in panels [panel][step][width], width being gemm_rows of a or
 * gemm_columns of b: `left` rows or columns from the first panel's on, zeros after them. Strides are in elements of
 * `dtype`: from one step to the next, and across a panel; one of them is 1. */
struct gemm_packing {
    enum dtype dtype;
    int64_t width, panels, steps, left;
    const void *from;
    int64_t step_stride, stride;
    float *to;
    int64_t panel_stride; /* of `to` */
};

/* Bytes that a later GEMM reads: so many lines of `bytes`, with a stride in bytes. 0 lines: none. */
struct gemm_later {
    const void *from;
    int64_t lines, bytes, stride;
};

/* sums[rows][columns] (+)= a b over packed steps: summed in the order of steps, then added. The sums, fp32, lie
 * [panel of columns][rows rounded up to panels][columns of a panel]; with a result they are not stored but become c. */
struct gemm_block {
    int64_t rows, columns, steps;
    const float *a, *b;
    int64_t a_stride, b_stride; /* from one panel to the next */
    float *sums;
    bool accumulate;
    const struct gemm_result *result; /* NULL: more steps follow */
    struct gemm_later later;          /* asked for meanwhile */
};

/* c[rows][columns] (+)= a b in fp32. a lies in words, [rows][words] of 32 bits: as pack_lines makes them, or as rows of
 * a matrix whose length is whole words. For multiply_words b is [words][columns], as pack_steps makes it, or unpacked
 * rows of a matrix, [steps][columns], all of whole vectors. For multiply_lines b is [columns][words], like a. Sums are
 * made over these words, then added to c. bf16 needs the processor's instruction for pairs. */
struct word_product {
    enum dtype dtype;
    bool b_packed;
    bool accumulate; /* else c is written */
    int64_t rows, columns, words;
    const void *a, *b;
    int64_t a_row_bytes, b_row_bytes;
    float *c; /* writable to whole vectors of columns */
    int64_t c_row;
};

/* A weight's sections (ir/weight_format.h). */
struct quantized_weight {
    enum weight_format format;
    int64_t block; /* numbers that share a scale */
    const uint8_t *codes;
    const void *scales;
    const float *groups, *offset;
    const int8_t *zeros; /* of blocks; NULL: all 0 */
};

/* Every vector kernel: result, name, arguments. Each is a function SIMD_NAME(simd_NAME) in a file of the operator's
 * name, compiled once for each instruction set; a new one is that function and a line here. */
#define SIMD_LIST(X)                                                                                                   \
    /* Elementwise (elementwise.c). */                                                                                 \
    X(void, add, (enum dtype dtype, int64_t n, const void *a, const void *b, void *out))                               \
    /* sum (fp32) += x */                                                                                              \
    X(void, accumulate, (enum dtype dtype, int64_t n, const void *x, float *sum))                                      \
    /* out = a * factor, between any two dtypes */                                                                     \
    X(void, scale, (int64_t n, enum dtype from, const void *a, float factor, enum dtype to, void *out))                \
    /* In double, in an order that is the same for all instruction sets. */                                            \
    X(double, squared_sum, (int64_t n, const float *x))                                                                \
    /* Activations (elementwise.c). Any output may be any input. */                                                    \
    X(void, activation, (enum dtype dtype, enum activation function, int64_t n, const void *x, void *y))               \
    X(void, activation_grad,                                                                                           \
      (enum dtype dtype, enum activation function, int64_t n, const void *dy, const void *x, void *dx))                \
    X(void, gated, (enum dtype dtype, enum activation function, int64_t n, const void *gate, const void *up, void *y)) \
    X(void, gated_grad,                                                                                                \
      (enum dtype dtype, enum activation function, int64_t n, const void *dy, const void *gate, const void *up,        \
       void *dgate, void *dup))                                                                                        \
    /* n results from n pairs in z (expert_glu of ops.h); the gradient of z, which may overwrite z. */                 \
    X(void, glu, (enum dtype dtype, int64_t n, float alpha, float limit, const void *z, void *y))                      \
    X(void, glu_grad,                                                                                                  \
      (enum dtype dtype, int64_t n, float alpha, float limit, const void *dy, const void *z, void *dz))                \
    /* Norms (norm.c). */                                                                                              \
    X(void, rms_norm,                                                                                                  \
      (enum dtype dtype, int64_t n, struct norm_attributes attributes, const void *x, const void *weight, void *y,     \
       float *rstd))                                                                                                   \
    X(void, layer_norm,                                                                                                \
      (enum dtype dtype, int64_t n, double epsilon, const void *x, const void *weight, const void *bias, void *y,      \
       float *mean, float *rstd))                                                                                      \
    X(void, rms_norm_grad, (enum dtype dtype, int64_t n, const struct norm_grad_row *row))                             \
    X(void, layer_norm_grad, (enum dtype dtype, int64_t n, const struct norm_grad_row *row))                           \
    /* Rotary embedding of one head (elementwise.c): `half` cosines, then `half` sines in the table. y may be x. */    \
    X(void, rope, (enum dtype dtype, int64_t half, float sign, const void *x, const float *table, void *y))            \
    /* The head's loss (elementwise.c), from one row of fp32 logits. */                                                \
    X(struct logits_sum, sum_exp, (int64_t n, const float *logits))                                                    \
    /* out = scale * exp(logits - lse), in the given dtype; out may be the logits (in fp32). With a soft cap, times    \
     * the slope of the cap: 1 - (logits / softcap)^2. */                                                              \
    X(void, softmax,                                                                                                   \
      (enum dtype dtype, int64_t n, const float *logits, float lse, float scale, float softcap, void *out))            \
    /* logits = softcap * tanh(logits / softcap) */                                                                    \
    X(void, soft_cap, (int64_t n, float softcap, float *logits))                                                       \
    /* An update (optimizer.c) of the run's first n elements. */                                                       \
    X(void, update, (enum update_rule rule, int64_t n, const struct update_step *step, const struct update_run *run))  \
    /* Muon's: the weight follows a direction of the dtype, rounded and kept as in an update. */                       \
    X(void, follow,                                                                                                    \
      (enum dtype dtype, int64_t n, const struct update_step *step, const struct update_run *run,                      \
       const void *direction))                                                                                         \
    /* x = a x + b y */                                                                                                \
    X(void, mix, (enum dtype dtype, int64_t n, float a, float b, const float *y, void *x))                             \
    /* GEMMs (gemm.c). */                                                                                              \
    X(void, gemm, (const struct gemm_block *block))                                                                    \
    /* The same of bf16 by the processor's tiles (gemm.c): steps and strides are in words of two steps, a              \
     * multiple of 16; panels are of 32 rows, [32][words] (pack_lines), and of 32 columns, [words][32] (pack_steps).   \
     */                                                                                                                \
    X(void, gemm_pairs, (const struct gemm_block *block))                                                              \
    X(void, gemm_pack, (const struct gemm_packing *packing))                                                           \
    X(void, gemm_finish, (const struct gemm_result *result, const float *sums, int64_t sums_row))                      \
    /* GEMMs of words (words.c). */                                                                                    \
    /* b by steps, by lines. */                                                                                        \
    X(void, multiply_words, (const struct word_product *product))                                                      \
    X(void, multiply_lines, (const struct word_product *product))                                                      \
    /* Packs a and b in words (words.c), with zeros after the last step and line; `words` is a multiple of 16.         \
     * By steps: [words][width], width a multiple of 16 and not less than the lines. By lines: [lines][words]. */      \
    X(void, pack_steps, (const struct word_source *source, int64_t words, int64_t width, float *to))                   \
    X(void, pack_lines, (const struct word_source *source, int64_t words, float *to))                                  \
    /* Numbers of a weight (unpack.c): `count` from the first on, each rounded to `dtype` and written in `to`,         \
     * which is that or fp32. */                                                                                       \
    X(void, unpack,                                                                                                    \
      (const struct quantized_weight *weight, int64_t first, int64_t count, enum dtype dtype, enum dtype to,           \
       void *out))                                                                                                     \
    /* Attention of one query (attention.c); `scores` holds `keys` floats. */                                          \
    X(void, attention_query, (const struct attention_query *query, float *scores))

/* Attention of one head in tiles: functions SIMD_NAME(simd_attention_NAME), and, for bf16 alone, by pairs of it, tables
 * SIMD_NAME(simd_attention_UNIT) for the units that multiply them. Workspaces are in floats. */
#define ATTENTION_LIST(X)                                                                                              \
    /* Queries [tile * queries, …) (attention.c, attention_pairs.h). */                                              \
    X(int64_t, workspace, (int64_t head_dim))                                                                          \
    X(void, attend, (const struct attention_head *head, int64_t tile, float *workspace))                               \
    /* The gradient (attention.c, attention_pairs.h), between tiles of `tile` keys and of as many                      \
     * queries. First call prepare for each tile of queries; it makes delta and clears dq_sums. Then for each tile of  \
     * keys call start, its pairs with tiles of queries that may see it, and finish. finish writes dk and dv: sums     \
     * over all pairs since start, also of several query heads that share the keys. After a pair, `queries` adds the   \
     * pair's part to dq_sums. The pair of equal tiles is the last, and writes dq. */                                  \
    /* Floats of dq_sums per position. */                                                                              \
    X(int64_t, columns, (int64_t head_dim))                                                                            \
    X(int64_t, grad_workspace, (int64_t head_dim))                                                                     \
    X(void, grad_prepare, (const struct attention_head *head, int64_t query_tile))                                     \
    X(void, grad_start, (const struct attention_head *head, int64_t key_tile, float *workspace))                       \
    X(void, grad_pair, (const struct attention_head *head, int64_t key_tile, int64_t query_tile, float *workspace))    \
    X(void, grad_queries, (const struct attention_head *head, int64_t key_tile, int64_t query_tile, float *workspace)) \
    X(void, grad_finish, (const struct attention_head *head, int64_t key_tile, float *workspace))

#define SIMD_MEMBER(result, name, arguments) result(*name) arguments;
struct attention_kernels {
    int64_t queries; /* of a tile */
    int64_t tile;    /* queries, and keys, of a tile of the gradient */
    bool rounds;     /* exponentials to bf16, before their GEMM with the values */
    ATTENTION_LIST(SIMD_MEMBER)
};

struct simd_kernels {
    const char *name;                /* of the instruction set */
    int64_t gemm_rows, gemm_columns; /* of panels */
    struct attention_kernels attention;
    /* For bf16, by dot products and by tiles, where the processor has these; NULL: the set has none. */
    const struct attention_kernels *attention_dots, *attention_amx;
    SIMD_LIST(SIMD_MEMBER)
};
#undef SIMD_MEMBER

/* The tables of this build; cpu/kernel.c finds which of them the processor supports. */
extern const struct simd_kernels simd_kernels_avx512, simd_kernels_avx2, simd_kernels_generic;
