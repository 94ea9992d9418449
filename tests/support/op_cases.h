/* The list of operator cases. Each builds a small graph with one operator, and before a gradient also the forward
 * operator. The tests of tests/backend and the benchmark bench/ops.c use it.
 *
 * Names identify tensors: "d.x" is the gradient of an input "x", and "dy" the gradient of the output. Tokens,
 * targets, positions, segments and clip get suitable values (op_instance.h). The case's node is the last of the
 * graph. */
#pragma once

#include "ir/graph.h"
#include "ir/ops/ops.h"

/* Tokens that are in the first sequence's caches before the case's; each further one has one more. */
enum { OP_CASE_CACHED = 9 };
/* Where in the caches a token of a case of attention_cache goes: the texts are not in the order of the sequences, and
 * the last of several tokens does not count (-1). */
int64_t op_case_cache_row(const struct node *node, int64_t sequence, int64_t token);

struct op_sizes {
    int64_t sequences, length, columns, inner;
    int64_t heads, kv_heads, head_dim, window;
    int64_t vocab;
};

enum op_case_flags {
    CASE_BIAS = 1 << 0,
    CASE_ADDEND = 1 << 1, /* the residual, or the sum over later uses */
    CASE_KN = 1 << 2,
    CASE_SEGMENTS = 1 << 3,
    CASE_VIEWS = 1 << 4,  /* activations are columns of wider ones */
    CASE_FROZEN = 1 << 5, /* no gradient of the weight */
    CASE_NO_DX = 1 << 6,
    CASE_BACK = 1 << 7,          /* rope with sign -1 */
    CASE_TIMED = 1 << 8,         /* in the benchmark */
    CASE_HEADS = 1 << 9,         /* norms: of the heads */
    CASE_FROM = 1 << 10,         /* embeddings: the table's first rows stand for no token */
    CASE_CAPPED = 1 << 11,       /* attention and heads: a soft cap of scores or logits */
    CASE_ONE_PLUS = 1 << 12,     /* rms_norm: by 1 + the weight; route: weights add up to 1 */
    CASE_PARTIAL = 1 << 13,      /* rope: of a part of each head, times a factor */
    CASE_BF16_STATE = 1 << 14,   /* updates: moments in bf16 */
    CASE_INT8_STATE = 1 << 19,   /* in 8 bits */
    CASE_NO_MASTER = 1 << 15,    /* updates: of a bf16 weight without a master */
    CASE_BEGINS = 1 << 24,       /* heads: the weight's gradient holds zeros */
    CASE_SPLIT_MASTER = 1 << 23, /* updates: of a bf16 weight with the lower half of its master */
    CASE_LENGTH = 1 << 16,       /* parts: of the positions; else of the columns */
    CASE_PART = 1 << 18,         /* embeddings and heads: of some rows of the vocabulary, and rows behind them */
    CASE_CONVERTS = 1 << 17,     /* parts: in another dtype than the whole */
    CASE_ZIGZAG = 1 << 22,       /* parts of the positions: two runs each */
    CASE_SINKS = 1 << 20,        /* attention */
    CASE_UNCLIPPED = 1 << 21,    /* updates: without the clip factor */
    CASE_NO_TARGETS = 1 << 25,   /* route: nothing is padding */
};

struct op_case {
    const char *name;
    const struct op *op;
    void (*build)(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes);
    struct op_sizes sizes; /* of tests: odd on purpose */
    unsigned flags;
    enum activation function;
    struct preference_attributes pairs; /* of preferences; beta 0 is 0.3 */
};

extern const struct op_case op_cases[];
extern const int op_case_count;

/* The sizes of GPT-2 124M with one sequence of 1024 tokens. */
extern const struct op_sizes op_sizes_gpt2;

/* The case's graph; NULL when out of memory or when the case does not fit its operator. */
struct graph *op_case_build(const struct op_case *op_case, enum dtype dtype, const struct op_sizes *sizes);
/* The tensor of that name, of any kind; NULL when there is none. */
struct tensor *op_case_tensor(const struct graph *graph, const char *name);
