/* Kernel inputs besides the operands: attributes of the node, and values that each step receives (ops.h). */
#pragma once

#include "ir/graph.h"

/* Attributes of a node, typed. */
#define NODE_ATTRIBUTES(node, type) ((const struct type *)(node)->attributes)

/* Targets are token ids; negative ones take no part in the loss. Padding adds nothing to the load of experts either. */
enum { TARGET_IGNORE = -100, TARGET_PADDING = -101 };

/* Values that each step gets, by slot. */
enum scalar {
    SCALAR_LOSS_SCALE,         /* 1 / unmasked tokens, or pairs, of the whole step, over all micro-batches and ranks */
    SCALAR_LEARNING_RATE,      /* of this step */
    SCALAR_BIAS_CORRECTION,    /* 1 / (1 - beta1^t), t = 1 in the first step */
    SCALAR_BIAS_CORRECTION_SQ, /* 1 / sqrt(1 - beta2^t) */
    SCALAR_STEP,               /* number of the step, from 1 on: t */
    SCALAR_NEW_TOKENS,         /* decoding: how many of the program's tokens count, at least 1 */
    SCALAR_COUNT,
};

struct embedding_attributes {
    int64_t first_row; /* of the table: that of token 0, which may be one that the table lacks */
    int64_t tokens;    /* of the whole vocabulary, if the table has some rows of it; 0: it has all */
};
struct embedding_grad_attributes {
    int64_t rows; /* of the table */
    int64_t first_row, tokens;
    bool joined; /* the table holds another use's sum: rows of one token are added up apart from it, and then to it */
};
/* Tokens that a table of so many rows, or all of its parts, have rows of. */
int64_t embedding_tokens(const struct embedding_attributes *attributes, int64_t rows);
struct linear_attributes {
    bool weight_is_kn; /* weight [K,N] (GPT-2's Conv1D) instead of [N,K] (torch.nn.Linear) */
};
struct linear_dw_attributes {
    bool weight_is_kn;
    bool has_bias; /* output 1 exists */
};
struct scale_attributes {
    double factor;
};
struct norm_attributes {
    double epsilon;
    bool one_plus; /* rms_norm: the factor is 1 + the weight */
};

/* The outputs that exist; the others are NULL. */
struct norm_grad_attributes {
    bool dx, dweight, dbias;
    bool one_plus; /* as in norm_attributes */
};

enum rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR,
    ROPE_SCALING_LLAMA3,
    ROPE_SCALING_YARN,    /* Peng et al., arXiv 2309.00071 */
    ROPE_SCALING_LONGROPE /* Ding et al., arXiv 2402.13753 */
};
enum { ROPE_FACTORS_MAX = 128 };
/* Fields have transformers' names. A field that may be 0 is absent if it is 0. */
struct rope_table_attributes {
    int64_t head_dim; /* features that are rotated */
    double partial;   /* partial_rotary_factor: their share of a head; 0: the family rotates all */
    double theta;
    enum rope_scaling scaling;
    double factor;                            /* all but longrope, where it may be 0: no factor of attention */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double original_context;                  /* llama3, yarn, longrope: original_max_position_embeddings */
    double attention_factor;                  /* yarn, longrope: of cosines and sines; 0: by `factor` */
    double beta_fast, beta_slow;              /* yarn; 0: 32 and 1 */
    double mscale, mscale_all_dim;            /* yarn */
    bool untruncated;                         /* yarn: truncate is false */
    bool is_long;                             /* longrope: sequences are longer than original_context */
    int64_t factors;                          /* longrope: how many of each list, half of head_dim */
    float short_factor[ROPE_FACTORS_MAX], long_factor[ROPE_FACTORS_MAX];
};
/* Fills head_dim/2 inverse frequencies in fp32, as transformers computes them (modeling_rope_utils). */
void rope_inverse_frequencies(const struct rope_table_attributes *attributes, float *out);
/* The factor that multiplies cosines and sines. */
double rope_attention_factor(const struct rope_table_attributes *attributes);
struct rope_attributes {
    int64_t heads, head_dim;
    int sign; /* +1 forward, -1 gradient */
};

/* A rank's part of the queries, with keys, values and segments of all positions. It is one of `parts` equal runs of
 * positions; in zigzag order, the i-th of 2 * parts runs from the front and the i-th from the back. parts 0 or 1: all
 * queries. */
struct query_part {
    int64_t parts, position;
    bool zigzag;
};
/* The runs of positions of a part of the queries, `length` in all, in their order: one, or two in zigzag. */
enum { QUERY_RUNS_MAX = 2 };
struct query_runs {
    int count;
    int64_t begin[QUERY_RUNS_MAX], length;
};
struct query_runs query_runs_of(const struct query_part *part, int64_t length);
struct attention_attributes {
    int64_t heads, kv_heads,
        head_dim;   /* heads is a multiple of kv_heads; query head h reads key head h*kv_heads/heads */
    double scale;   /* of the scores, usually head_dim^-1/2 */
    int64_t window; /* position t sees t-window+1 … t; 0: all up to t */
    double softcap; /* scores become softcap * tanh(score / softcap) (Gemma 2, arXiv 2408.00118); 0: they stay */
    struct query_part queries;
};

/* The key-value heads, among `heads`, that a part of the query heads reads. Selected head i is that of query first + i
 * * step; `group` consecutive queries read one head. */
struct select_heads_attributes {
    int64_t heads, head_dim, selected;
    int64_t first, step, group;
};
/* The head that selected head i is. */
int64_t select_heads_find(const struct select_heads_attributes *attributes, int64_t selected);

struct attention_cache_attributes {
    struct attention_attributes attention;
    int64_t texts, positions; /* rows of the caches: texts * positions */
};

/* Activation functions: Ballast's name, then the names in transformers (ACT2FN), the first of which is written.
 * CONTRIBUTING.md lists the other steps of adding one. */
#define ACTIVATION_LIST(X)                                                                                             \
    X(GELU_TANH, "gelu_tanh", "gelu_new", "gelu_pytorch_tanh")                                                         \
    X(GELU_ERF, "gelu_erf", "gelu", "gelu_python")                                                                     \
    X(RELU, "relu", "relu")                                                                                            \
    X(SILU, "silu", "silu", "swish")
enum activation {
#define ACTIVATION_ENUM(name, ...) ACTIVATION_##name,
    ACTIVATION_LIST(ACTIVATION_ENUM)
#undef ACTIVATION_ENUM
};
#define ACTIVATION_ONE(...) +1
enum { ACTIVATION_COUNT = ACTIVATION_LIST(ACTIVATION_ONE) };
#undef ACTIVATION_ONE
const char *activation_name(enum activation function);
/* Its names in transformers, from index 0; NULL where there are no more. */
const char *activation_hub_name(enum activation function, int index);

/* The first `rows` rows of a head's weight are those of tokens from `first` on, of `tokens` that there are; rows behind
 * them stand for none. All 0: the weight has them all. */
struct vocabulary_part {
    int64_t first, rows, tokens;
};
struct head_attributes {
    double softcap; /* logits, with their bias, become softcap * tanh(logit / softcap); 0: they stay */
    struct vocabulary_part part;
};
struct head_loss_grad_attributes {
    bool dx, dweight, dbias; /* which outputs exist */
    bool begins;             /* dweight holds zeros, so that it need not be read */
    double softcap;          /* as in head_attributes */
    struct vocabulary_part part;
};
/* Statistics of a token's logits, in this order. */
enum { STATISTIC_LARGEST, STATISTIC_SUM, STATISTIC_TARGET, HEAD_STATISTICS };
/* Sums of the preference loss: losses, rewards, and the number of pairs whose chosen sequence has the larger reward. */
enum preference_figure {
    PREFERENCE_LOSS,
    PREFERENCE_CHOSEN,
    PREFERENCE_REJECTED,
    PREFERENCE_RIGHT,
    PREFERENCE_FIGURES
};
/* Loss of a pair as a function of its margin m; ipo uses the mean gain per token of its sequences. */
#define PAIR_LOSS_LIST(X) X(SIGMOID, "sigmoid") X(HINGE, "hinge") X(IPO, "ipo") X(ROBUST, "robust")
enum pair_loss {
#define PAIR_LOSS_ENUM(name, text) PAIR_LOSS_##name,
    PAIR_LOSS_LIST(PAIR_LOSS_ENUM) PAIR_LOSS_COUNT
#undef PAIR_LOSS_ENUM
};
const char *pair_loss_name(enum pair_loss loss);
struct preference_attributes {
    double beta;
    enum pair_loss loss;
    double label_smoothing; /* the part of the pairs that are taken to be the other way round; of sigmoid and robust */
};
/* Weights of -log sigmoid(m) and -log sigmoid(-m) in the loss. Label smoothing gives conservative DPO. The robust loss
 * (Chowdhury et al., arXiv 2403.00409) is unbiased: with flipped labels, its expectation is the loss of correct
 * labels. */
struct pair_weights {
    double right, wrong;
};
struct pair_weights pair_weights_of(const struct preference_attributes *attributes);
struct activation_attributes {
    enum activation function;
};

enum { ROUTING_EXPERTS_MAX = 1024 };
struct route_attributes {
    int64_t chosen; /* experts of a token: k */
    bool normalised;
};
struct dispatch_attributes {
    int64_t experts;
    int64_t features; /* inner features of each expert, of which ranks may have parts; 0: ranks have whole experts */
};
/* Each expert's rows are a multiple of this many, with rows of zeros after its slots: as many as fill the tiles of a
 * GEMM where there are slots enough, fewer where an expert has few. */
int64_t routing_tile(int64_t slots, int64_t experts);
/* Rows of each of the sequences of a micro-batch that hold its slots however they are spread: R. */
int64_t routing_rows(int64_t sequences, int64_t slots, int64_t experts);
struct expert_attributes { /* the attributes of all nodes of experts begin with these */
    int64_t expert, experts;
    int64_t slots; /* of the micro-batch: S*T*k */
    enum activation function;
};
/* The outputs that exist; dweight: of gate, up and down. */
struct expert_grad_attributes {
    struct expert_attributes expert;
    bool dx, dweight[3];
};
struct expert_glu_attributes {
    struct expert_attributes expert; /* without a function */
    double alpha, limit;
    bool weights_are_kn;      /* gate_up [C,2F] and down [F,C] */
    bool down_bias_elsewhere; /* of ranks with parts of the features the first adds it: y is without it */
};
/* The outputs that exist; dweight: of gate_up, down, and their biases. */
struct expert_glu_grad_attributes {
    struct expert_glu_attributes glu;
    bool dx, dweight[4];
};

/* Rows of a load. */
enum { LOAD_SLOTS, LOAD_PROBABILITIES, LOAD_ROWS };
struct balance_attributes {
    double coefficient;
    int64_t layers;
};
struct balance_grad_attributes {
    struct balance_attributes balance;
    bool dload; /* output 2 exists */
};

/* A rank's place in the group whose ranks have the parts of tensors. */
struct group_part {
    int64_t parts, position;
    /* along an axis of a mesh: the distance of its neighbours in ranks of the whole group; 0: the whole group */
    int64_t stride;
    bool zigzag; /* parts of positions (struct parts_order) */
};
/* Selects the key-value heads that a rank's part of the query heads reads: the fewest that serve equally many query
 * heads each. Both `parts` and `heads` divide `queries`. */
struct select_heads_attributes select_heads_of_queries(int64_t heads, int64_t head_dim, int64_t queries,
                                                       const struct group_part *part);
struct collective_attributes {
    struct group_part part;
    /* Sums: BF16 where every edge of their tree rounds to it, so that values travel in it; else F32. */
    enum dtype edges;
    bool partial; /* all_gather: each rank has a part of the gradient's sum; else each has the same gradient */
};
struct convert_attributes {
    struct shape to;
};
/* A dimension of the whole tensor that is cut into parts of `dims[dimension] / parts` elements. A part is one run of
 * elements. In zigzag order, which only positions use, it is two of 2 * parts runs: the i-th from the front and the
 * i-th from the back. */
struct parts_order {
    int dimension;
    int64_t parts;
    bool zigzag;
};
/* As the group has parts along a dimension of its activations and inputs, [S, T, …]. */
struct parts_order parts_order_of(const struct group_part *group, int dimension);
struct parts_attributes {
    struct parts_order order;
    enum dtype to; /* of the output */
};
struct cut_attributes {
    int dimension;
    struct group_part part;
    bool drops; /* a part is one element of the dimension, which y lacks */
};
/* The offset of piece `piece` of part `part` in the whole. Pieces are the part's rows, as runs of its last dimension,
 * or half rows if that dimension is cut in zigzag order. */
struct parts_place {
    int64_t row, column;
};
int64_t parts_pieces_of_row(const struct shape *whole, const struct parts_order *order);
struct parts_place parts_find(const struct shape *whole, const struct parts_order *order, int64_t part, int64_t piece);

/* A shard of a gradient begins at a multiple of it (plan/chunks.h). */
enum { GRADIENT_NORM_BLOCK = 4096 };
int64_t gradient_norm_blocks(int64_t elements);
/* norm = sqrt(sum); factor = min(1, limit / (norm + 1e-6)) as torch.nn.utils.clip_grad_norm_; limit 0: factor 1. When
 * the norm is not finite the factor is NaN, and updates that read it then change nothing, so that the step can be
 * examined; a parameter with a master is that, rounded, as ever. */
struct clip_attributes {
    double limit;
};
/* How a step changes a parameter w, with its gradient g times the clip factor, and its moments, which begin at 0.
 *
 * UPDATE_ADAMW: AdamW (Loshchilov and Hutter, arXiv 1711.05101), in the order of torch.optim.AdamW:
 *     w -= lr*decay*w; m += (1-beta1)*(g-m); v = beta2*v + (1-beta2)*g*g;
 *     w -= lr*correction * m / (sqrt(v)*correction_sq + epsilon).
 *
 * UPDATE_LION: Lion (Chen et al., arXiv 2302.06675, algorithm 2):
 *     w -= lr*decay*w; w -= lr * sign(m + (1-beta1)*(g-m)); m += (1-beta2)*(g-m).
 *
 * UPDATE_SGD: with momentum, as torch.optim.SGD: g += decay*w; m = beta1*m + g; w -= lr*m.
 *
 * UPDATE_MUON: Muon (Jordan et al., kellerjordan.github.io/posts/muon), for matrices [rows, columns], as
 * torch.optim.Muon with "match_rms_adamw" (Liu et al., arXiv 2502.16982):
 *     m += (1-momentum)*(g-m); u = m + (1-momentum)*(g-m); w -= lr*decay*w;
 *     w -= lr * 0.2*sqrt(max(rows, columns)) * o.
 *
 * o is u / max(|u|, 1e-7) with its singular values near 1. Five Newton-Schulz steps in the parameter's dtype compute
 * it: x = a x + (b g + c g g) x with g = x xt. If x has more rows than columns, a step is a x + x (b g + c g g) with
 * g = xt x. The constants a, b, c are 3.4445, -4.775, 2.0315. An update of an element needs the whole matrix. Other
 * parameters are updated by AdamW (ops_mark_whole_updates).
 *
 * With a master, the master is updated and the parameter is its rounding to nearest. A master in two halves
 * (base/half.h) is the parameter and the lower half. Moments in bf16, and a bf16 parameter without a master, are
 * computed in fp32 and rounded stochastically: up with a probability proportional to the distance from the bf16 number
 * below, so that small changes add up on average (Gupta et al., arXiv 1502.02551). The random bits are a function of
 * seed, step, parameter and element (backend/kernel_parts.h). 8-bit moments are codes, with a scale for each block of
 * elements. They are unpacked to fp32 and packed again (backend/kernel_parts.h). */
#define UPDATE_RULE_LIST(X) X(ADAMW, adamw) X(LION, lion) X(SGD, sgd) X(MUON, muon)
enum update_rule {
#define UPDATE_RULE_ENUM(name, op) UPDATE_##name,
    UPDATE_RULE_LIST(UPDATE_RULE_ENUM) UPDATE_RULE_COUNT
#undef UPDATE_RULE_ENUM
};
enum { MUON_STEPS = 5 };
/* The operator's name. */
const char *update_rule_name(enum update_rule rule);
/* The update rule of an operator; UPDATE_RULE_COUNT for other operators. */
enum update_rule update_rule_of(const struct op *op);
/* The roles of its moments, which are outputs 1 and, where it has two, 2. The master, or its lower halves, follows, and
 * after it the scales of moments in 8 bits, fp32 [blocks of UPDATE_SCALE_BLOCK elements]. NULL: no such moment. */
enum { UPDATE_MOMENTS_MAX = 2, UPDATE_SCALE_BLOCK = 256 };
const char *update_rule_moment(enum update_rule rule, int moment);
int update_rule_moments(enum update_rule rule);

struct update_attributes {
    double beta1, beta2, epsilon;  /* beta1: Muon's momentum */
    double weight_decay;           /* 0 for parameters that do not decay */
    enum dtype parameter, moments; /* moments: fp32, bf16, or uint8, which are codes */
    bool has_master;               /* the parameter is bf16, and the output after the moments exists */
    bool split_master; /* and it has the lower halves of masters whose upper ones are the parameter, uint16 */
    uint64_t seed;
    uint32_t number; /* index of the parameter among the trained ones */
};
