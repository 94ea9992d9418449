/* The operators: what model builders call, and the attributes that kernels read.
 *
 * Files, in the order to read them:
 *     ops, op_table: the list of all;
 *     elementwise, activation, norm, linear, embedding, rope, attention, head: a family of operators each, defined by
 *         its shapes, costs and gradient;
 *     select_heads: key-value heads of a part of the query heads;
 *     routing, expert, expert_glu: layers of which a token takes a few experts; balance: counts of their slots, and
 *         the loss that evens them out;
 *     tensor_parts, group_exchange: parts of tensors, and what the ranks of a group exchange of them;
 *     preference: the loss of pairs of sequences;
 *     attention_cache: attention of new tokens over caches, for generating texts;
 *     optimizer: the update, and the nodes that make it; muon: that of whole matrices;
 *     check: what these definitions share.
 *
 * Weights of linear and linear_dx, and of experts, may be in a format of fewer bits (graph/weight_format.h): frozen.
 *
 * Activations have the shape [S, T, C]: the sequences of one grain, the positions, the features; "rows" are the S*T
 * tokens. Heads lie side by side in the features: [S, T, heads * head_dim]. `d` marks a gradient. Sums are in fp32
 * whatever the dtype of the operands; bf16 results are rounded once, to nearest even. All functions pass NULL operands
 * on (graph.h). */
#ifndef BALLAST_OPS_OPS_H
#define BALLAST_OPS_OPS_H

#include "graph/graph.h"

/* Every operator, in one list: backends look kernels up in it; tests and benchmarks go through it.
 * Signatures: inputs -> outputs; [x] is optional, += is a sum over grains (or an update in place). */
#define OP_LIST(X)                                                                                                     \
    /* embedding.c: tokens [S,T] int32, table [V,C] -> y [S,T,C] = table[tokens + first_row], or 0 */                  \
    X(embedding)                                                                                                       \
    /* tokens, dy -> dtable += [V,C] fp32, adding rows in token order */                                               \
    X(embedding_grad)                                                                                                  \
    /* linear.c: x [S,T,K], weight, [bias [N]], [residual [S,T,N]] -> y [S,T,N] = x W + bias + residual */             \
    X(linear)                                                                                                          \
    /* dy [S,T,N], weight, [addend [S,T,K]] -> dx [S,T,K] = dy Wt + addend */                                          \
    X(linear_dx)                                                                                                       \
    /* x, dy -> dweight += (fp32, the weight's shape), [dbias += [N] fp32] */                                          \
    X(linear_dw)                                                                                                       \
    /* dy [S,T,N] -> dbias += [N] fp32: where the weight is frozen and the bias is not */                              \
    X(bias_grad)                                                                                                       \
    /* norm.c: x [S,T,C], weight [G] -> y, rstd [S,T,C/G] fp32; rstd = (mean(x^2) + epsilon)^-1/2, y = x * rstd *      \
     *  weight, or (1 + weight). Each run of G features, G a divisor of C, is a norm of its own: G = C normalises      \
     *  tokens, G = head_dim the heads of tokens */                                                                    \
    X(rms_norm)                                                                                                        \
    /* dy, x, weight, rstd, [addend] -> dx (+ addend), dweight += */                                                   \
    X(rms_norm_grad)                                                                                                   \
    /* x [S,T,C], weight [G], [bias [G]] -> y, mean [S,T,C/G] fp32, rstd [S,T,C/G] fp32 */                             \
    X(layer_norm)                                                                                                      \
    /* dy, x, weight, mean, rstd, [addend] -> dx (+ addend), dweight +=, [dbias +=] */                                 \
    X(layer_norm_grad)                                                                                                 \
    /* rope.c: positions [S,T] int32 -> table [S,T,R] fp32: cosines of R/2 angles, then their sines; R = head_dim, or  \
     *  as many of a head's features as are rotated */                                                                 \
    X(rope_table)                                                                                                      \
    /* x [S,T,heads*head_dim], table -> y; halves of each head's first R features rotated as Llama's rotate_half, the  \
     *  others as they are; sign -1 turns back (the gradient) */                                                       \
    X(rope)                                                                                                            \
    /* attention.c: q [S,T,Hq*D], k [S,T,Hk*D], v [S,T,Hk*D], [segments [S,T] int32], [sinks [Hq]]                     \
     *  -> y [S,T,Hq*D], lse [S,Hq,T] fp32 (log of the sum of exponentials of the scaled scores, and of the head's     \
     *  sink: one more score, whose value is 0) */                                                                     \
    X(attention)                                                                                                       \
    /* dy, q, k, v, y, lse, [segments] -> dq, dk, dv. Of a part of the queries (attributes) T of q, y and lse is its   \
     *  own; of k, v and segments that of all positions */                                                             \
    X(attention_grad)                                                                                                  \
    /* dy, y, lse, sinks -> dsinks += [Hq] fp32 = -(sum over queries of exp(sink - lse) * dy . y) */                   \
    X(attention_sinks_grad)                                                                                            \
    /* select_heads.c: x [S,T,H*D] -> y [S,T,N*D]: N of the heads, in order, one maybe several times */                \
    X(select_heads)                                                                                                    \
    /* dy [S,T,N*D] -> dx [S,T,H*D]: sums over the uses of each head, 0 where there is none */                         \
    X(select_heads_grad)                                                                                               \
    /* attention_cache.c: q [S,T,Hq*D], k [S,T,Hk*D], v [S,T,Hk*D], rows [S,T] int32, [sinks [Hq]]                     \
     *  -> y [S,T,Hq*D], keys += [N,P,Hk*D], values += [N,P,Hk*D], caches of N texts: all k and v go to the caches'    \
     *  rows, text * P + position, then each token sees the rows of its text up to its own. A token with row -1 does   \
     *  not count: it leaves the caches alone and has y = 0. No two tokens have one row */                             \
    X(attention_cache)                                                                                                 \
    /* x [S,T,C] -> y [S,1,C]: the last token that counts, SCALAR_NEW_TOKENS - 1 */                                    \
    X(last_token)                                                                                                      \
    /* activation.c: x -> y = f(x) */                                                                                  \
    X(activation)                                                                                                      \
    /* dy, x -> dx */                                                                                                  \
    X(activation_grad)                                                                                                 \
    /* gate, up -> y = f(gate) * up */                                                                                 \
    X(gated_activation)                                                                                                \
    /* dy, gate, up -> dgate, dup */                                                                                   \
    X(gated_activation_grad)                                                                                           \
    /* elementwise.c: a, b -> a + b */                                                                                 \
    X(add)                                                                                                             \
    /* x [S,T,N], [bias [N]], [residual [S,T,N]] -> y = x + bias + residual: what follows a product whose sum ranks    \
     * make                                                                                                            \
     */                                                                                                                \
    X(add_bias)                                                                                                        \
    /* x -> factor * x */                                                                                              \
    X(scale)                                                                                                           \
    /* group_exchange.c: x -> y with the same elements in their order, in another shape or dtype */                    \
    X(convert)                                                                                                         \
    /* x -> y [parts, …], the parts of a dimension one after the other; from_parts the other way round */            \
    X(to_parts)                                                                                                        \
    X(from_parts)                                                                                                      \
    /* x -> y, this rank's part of a dimension */                                                                      \
    X(cut)                                                                                                             \
    /* x -> y = x, whose gradients all ranks of the group have a part of */                                            \
    X(copy_in)                                                                                                         \
    /* head.c: x [S,T,C], weight [V,C], targets [S,T] int32 (negative: masked), [bias [V]], [statistics [S,T,3]]       \
     *  -> loss += fp64 [1]: sum over unmasked tokens of -log softmax(x W^t)[target], unscaled; logits may be capped.  \
     *  Where the weight has a part of the vocabulary, statistics are those of all of it */                            \
    X(head_loss)                                                                                                       \
    /* x, weight, targets, [bias], [statistics] -> loss +=, dx, [dweight +=], [dbias +=]; gradients times              \
     *  SCALAR_LOSS_SCALE, dx of the weight's rows alone */                                                            \
    X(head_loss_grad)                                                                                                  \
    /* x, weight, targets, [bias], [statistics] -> y [S,T,1] fp32: log softmax(x W^t)[target], 0 where masked; logits  \
     *  and parts as in head_loss */                                                                                   \
    X(head_log_probability)                                                                                            \
    /* x, weight, targets, [bias], [statistics], dy -> [dx], [dweight +=], [dbias +=]; logits are made again */        \
    X(head_log_probability_grad)                                                                                       \
    /* x, weight, targets, [bias] -> statistics [S,T,3] fp32 of the weight's rows: the largest logit, the sum of       \
     *  exponentials of logits less it, and the target's logit, or 0 where another part has it */                      \
    X(head_statistics)                                                                                                 \
    /* statistics of parts [N,S,T,3] -> statistics [S,T,3] of the whole, added in the order of the parts */            \
    X(join_statistics)                                                                                                 \
    /* x, weight, [bias] -> logits [S,T,V] fp32: for comparison and sampling, small models and short inputs */         \
    X(head_logits)                                                                                                     \
    /* preference.c: log-probabilities y [S,T,1] fp32, targets [S,T] int32, reference [S,1] fp64 -> loss += fp64 [4]   \
     *  (enum preference_figure), unscaled. Sequences 2i and 2i+1 are a pair: the chosen and the rejected. With a      \
     *  sequence's gain = sum of its y - its reference, its reward = beta * gain, and m = the chosen one's reward -    \
     *  the rejected one's, the loss of sigmoid and robust is -log sigmoid(m) and -log sigmoid(-m), weighted           \
     *  (pair_weights_of); of hinge (Zhao et al., arXiv 2305.10425) max(0, 1 - m); of ipo (Azar et al.,                \
     *  arXiv 2310.12036) (the difference of both gains, each over its targets, - 1 / (2 beta))^2. Sums are in fp64,   \
     *  in token order. A pair without targets does not count */                                                       \
    X(preference_loss)                                                                                                 \
    /* the same -> loss +=, dy times SCALAR_LOSS_SCALE, 0 where masked */                                              \
    X(preference_loss_grad)                                                                                            \
    /* routing.c: logits [S,T,E] -> weights [S,T,k] fp32, places [S,T,k] int32, ranges [E,2] int32: the k experts of   \
     *  a token with the largest logits, of equal ones the first; largest first. Their probabilities, the softmax over \
     *  all E, are the weights, or with `normalised` these over their sum. A slot is a token's choice of an expert;    \
     *  places say in which row each lies when slots are sorted by expert, those of an expert by token. Each expert's  \
     *  rows begin at a multiple of routing_tile: ranges hold where, and where its slots end */                        \
    X(route)                                                                                                           \
    /* dweights, logits, weights, places, ranges -> dlogits */                                                         \
    X(route_grad)                                                                                                      \
    /* x [S,T,C], places -> rows [S,R,C]: those of experts, 0 where there is no slot */                                \
    X(dispatch)                                                                                                        \
    /* drows, places, [addend [S,T,C]] -> dx (+ addend), added in the order of slots */                                \
    X(dispatch_grad)                                                                                                   \
    /* rows [S,R,C], weights, places, [residual [S,T,C]] -> y [S,T,C] = the sum, in the order of slots, of rows times  \
     *  weights, + residual */                                                                                         \
    X(combine)                                                                                                         \
    /* dy, rows, weights, places -> drows, 0 where there is no slot, dweights */                                       \
    X(combine_grad)                                                                                                    \
    /* x [S,T,C], gate [S,T,1], [residual [S,T,C]] -> y = x * sigmoid(gate) + residual */                              \
    X(token_gate)                                                                                                      \
    /* dy, x, gate -> dx, dgate */                                                                                     \
    X(token_gate_grad)                                                                                                 \
    /* expert.c: rows [S,R,C], ranges, gate [F,C], up [F,C], down [C,F], [previous [S,R,C]] -> y [S,R,C]: in the       \
     *  expert's rows down (f(gate x) * (up x)), in others those of previous, or 0 */                                  \
    X(expert_mlp)                                                                                                      \
    /* dy, rows, ranges, gate, up, down, [previous] -> [drows], likewise, [dgate +=], [dup +=], [ddown +=]. Gate and   \
     *  up are made again, so that no more is kept of a row than its features */                                       \
    X(expert_mlp_grad)                                                                                                 \
    /* expert_glu.c: rows [S,R,C], ranges, gate_up [2F,C], down [C,F], or [C,2F] and [F,C], gate_up_bias [2F],         \
     *  down_bias [C], [previous [S,R,C]] -> y [S,R,C], rows as expert_mlp has them: with g and u the even and the odd \
     *  numbers of gate_up x + gate_up_bias, g at most `limit` and u within it, down ((u + 1) g sigmoid(alpha g)) +    \
     *  down_bias */                                                                                                   \
    X(expert_glu)                                                                                                      \
    /* dy, rows, ranges, gate_up, down, gate_up_bias, [previous] -> [drows], [dgate_up +=], [ddown +=],                \
     *  [dgate_up_bias +=], [ddown_bias +=] */                                                                         \
    X(expert_glu_grad)                                                                                                 \
    /* balance.c: logits [S,T,E], ranges, [previous] -> load [2,E] fp32: the slots of each expert, the sum over tokens \
     *  of its probabilities, + previous */                                                                            \
    X(expert_load)                                                                                                     \
    /* dload, logits -> dlogits */                                                                                     \
    X(expert_load_grad)                                                                                                \
    /* log-probabilities y [S,T,1] fp32, targets [S,T] int32, load -> loss += fp64 [1]: -(sum of y over targets) +     \
     *  targets * coefficient * E * (sum over experts of slots / rows * probabilities / rows), unscaled */             \
    X(balanced_loss)                                                                                                   \
    /* the same -> loss +=, dy, 0 where masked, [dload], times SCALAR_LOSS_SCALE */                                    \
    X(balanced_loss_grad)                                                                                              \
    /* ranges -> slots += [E] fp64: how many each expert has. A node of backward, which each grain goes through once   \
     */                                                                                                                \
    X(count_slots)                                                                                                     \
    /* optimizer.c: a, b -> a = a + b in fp32: two accumulators of one parameter (PHASE_FINISH) */                     \
    X(gradient_sum)                                                                                                    \
    /* gradient -> fp64 [blocks]: the sum of squares of each block of GRADIENT_NORM_BLOCK elements */                  \
    X(squared_sums)                                                                                                    \
    /* fp64 [blocks] -> fp64 [1]: their sum, in an order that depends on their number alone */                         \
    X(squared_norm)                                                                                                    \
    /* any number of fp64 [1], as columns of one fp64 [count] -> fp64 [2]: norm over all, clip factor (see there) */   \
    X(clip_factor)                                                                                                     \
    /* gradient fp32, [clip fp64 [2]] -> parameter +=, moments +=, [master +=]; moments in fp32 or bf16: exp_avg,      \
     * exp_avg_sq */                                                                                                   \
    X(adamw)                                                                                                           \
    /* the same with exp_avg */                                                                                        \
    X(lion)                                                                                                            \
    /* the same with momentum_buffer */                                                                                \
    X(sgd)                                                                                                             \
    /* muon.c: the same, of a matrix */                                                                                \
    X(muon)

/* Those that the ranks of a group make together (enum op_exchange), of group_exchange.c: no backend has kernels of
 * them. */
#define EXCHANGE_OP_LIST(X)                                                                                            \
    X(all_reduce)                                                                                                      \
    X(reduce_scatter)                                                                                                  \
    X(all_gather)                                                                                                      \
    X(all_to_all)                                                                                                      \
    /* optimizer.c: gradient -> gradient, the sum of what each rank has of it (PHASE_FINISH) */                        \
    X(gradient_reduce)                                                                                                 \
    /* fp64 [count] -> fp64 [parts * count]: each rank's squared norms (PHASE_UPDATE) */                               \
    X(gather_norms)

#define OP_DECLARE(name) extern const struct op op_##name;
OP_LIST(OP_DECLARE)
EXCHANGE_OP_LIST(OP_DECLARE)
#undef OP_DECLARE

/* All that have kernels, in the order of the list. */
extern const struct op *const op_table[];
extern const int op_table_count;

/* Values that each step gets, by slot. */
enum scalar {
    SCALAR_LOSS_SCALE,         /* 1 / unmasked tokens, or pairs, of the whole step, over all grains and ranks */
    SCALAR_LEARNING_RATE,      /* of this step */
    SCALAR_BIAS_CORRECTION,    /* 1 / (1 - beta1^t), t = 1 in the first step */
    SCALAR_BIAS_CORRECTION_SQ, /* 1 / sqrt(1 - beta2^t) */
    SCALAR_STEP,               /* number of the step, from 1 on: t */
    SCALAR_NEW_TOKENS,         /* decoding: how many of the program's tokens count, at least 1 */
    SCALAR_COUNT,
};

struct embedding_attributes {
    int64_t first_row; /* of the table: that of token 0, which may be one that the table lacks */
    int64_t tokens;    /* there are, of which the table has those whose rows are in it; 0: it has all */
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
    bool one_plus; /* rms_norm: what multiplies is 1 + the weight */
};

/* Which outputs exist; the others are NULL. */
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
enum { ROPE_FACTORS_MOST = 128 };
/* By the names that transformers has. What is 0 where it may be is not given. */
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
    float short_factor[ROPE_FACTORS_MOST], long_factor[ROPE_FACTORS_MOST];
};
/* Fills head_dim/2 inverse frequencies in fp32, as transformers computes them (modeling_rope_utils). */
void rope_inverse_frequencies(const struct rope_table_attributes *attributes, float *out);
/* What cosines and sines are multiplied by. */
double rope_attention_factor(const struct rope_table_attributes *attributes);
struct rope_attributes {
    int64_t heads, head_dim;
    int sign; /* +1 forward, -1 gradient */
};

/* Of a rank that has one of `parts` equal runs of the queries' positions, or in zigzag the i-th from the front and the
 * i-th from the back of 2 * parts, and keys, values and segments of all. parts 0 or 1: all queries. */
struct query_part {
    int64_t parts, position;
    bool zigzag;
};
/* The runs of positions of a part of the queries, `length` in all, in their order: one, or two in zigzag. */
enum { QUERY_RUNS_MOST = 2 };
struct query_runs {
    int count;
    int64_t begin[QUERY_RUNS_MOST], length;
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

/* Of `heads` key-value heads, those that a part of the query heads reads: selected head i is that of query first + i *
 * step, of which `group` in a row read one. */
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

/* Activation functions: what they are called here, then in transformers (ACT2FN), where the first name is the one that
 * is written. What a new one takes besides its row is listed in CONTRIBUTING.md. */
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
    bool begins;             /* dweight holds zeros, so that what it holds need not be read */
    double softcap;          /* as in head_attributes */
    struct vocabulary_part part;
};
/* Of a token's logits, in this order. */
enum { STATISTIC_LARGEST, STATISTIC_SUM, STATISTIC_TARGET, HEAD_STATISTICS };
/* What the loss of pairs sums up: losses, rewards, and how many pairs have a larger reward for the chosen sequence. */
enum preference_figure {
    PREFERENCE_LOSS,
    PREFERENCE_CHOSEN,
    PREFERENCE_REJECTED,
    PREFERENCE_RIGHT,
    PREFERENCE_FIGURES
};
/* The loss of a pair by its margin m, or for ipo by what its sequences gained a token. */
#define PAIR_LOSS_LIST(X) X(SIGMOID, "sigmoid") X(HINGE, "hinge") X(IPO, "ipo") X(ROBUST, "robust")
enum pair_loss {
#define PAIR_LOSS_ENUM(name, text) PAIR_LOSS_##name,
    PAIR_LOSS_LIST(PAIR_LOSS_ENUM) PAIR_LOSS_COUNT
#undef PAIR_LOSS_ENUM
};
const char *pair_loss_name(enum pair_loss loss);
/* PAIR_LOSS_COUNT when there is none of that name. */
enum pair_loss pair_loss_find(const char *name);
struct preference_attributes {
    double beta;
    enum pair_loss loss;
    double label_smoothing; /* the part of the pairs that are taken to be the other way round; of sigmoid and robust */
};
/* What -log sigmoid(m) and -log sigmoid(-m) count in the loss: conservative DPO where smoothed, or, robust (Chowdhury
 * et al., arXiv 2403.00409), so that the loss of smoothed pairs is expected to be that of right ones. */
struct pair_weights {
    double right, wrong;
};
struct pair_weights pair_weights_of(const struct preference_attributes *attributes);
struct activation_attributes {
    enum activation function;
};

enum { ROUTING_EXPERTS_MOST = 1024 };
struct route_attributes {
    int64_t chosen; /* experts of a token: k */
    bool normalised;
};
struct dispatch_attributes {
    int64_t experts;
    int64_t features; /* inner ones of each expert, of which ranks may have parts; 0: they have not */
};
/* Each expert's rows are a multiple of this many, with rows of zeros after its slots: as many as fill the tiles of a
 * product where there are slots enough, fewer where an expert has few. */
int64_t routing_tile(int64_t slots, int64_t experts);
/* Rows of each of the sequences of a grain that hold its slots however they are spread: R. */
int64_t routing_rows(int64_t sequences, int64_t slots, int64_t experts);
struct expert_attributes {
    int64_t expert, experts;
    int64_t slots; /* of the grain: S*T*k */
    enum activation function;
};
/* Which outputs exist; dweight: of gate, up and down. */
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
/* Which outputs exist; dweight: of gate_up, down, and their biases. */
struct expert_glu_grad_attributes {
    struct expert_glu_attributes glu;
    bool dx, dweight[4];
};

/* Rows of a load. */
enum { LOAD_SLOTS, LOAD_PROBABILITIES, LOAD_ROWS };
struct balance_attributes {
    double coefficient;
    int64_t rows; /* tokens of the grain times layers */
};
struct balance_grad_attributes {
    struct balance_attributes balance;
    bool dload; /* output 2 exists */
};

/* A rank's place in the group whose ranks have the parts of tensors. */
struct group_part {
    int64_t parts, position;
    /* Of an axis of a mesh: between its neighbours there are so many ranks of the whole group; 0: it is the whole one
     */
    int64_t stride;
    bool zigzag; /* parts of positions (struct parts_order) */
};
/* Of the key-value heads that all query heads read, those that a rank's part of the query heads reads, as few as serve
 * as many queries each. Parts divide queries, and heads do. */
struct select_heads_attributes select_heads_of_queries(int64_t heads, int64_t head_dim, int64_t queries,
                                                       const struct group_part *part);
struct exchange_attributes {
    struct group_part part;
    /* Sums: BF16 where every edge of their tree rounds to it, so that values travel in it; else F32. */
    enum dtype edges;
    bool partial; /* all_gather: each rank has a part of the gradient's sum; else each has the same gradient */
};
struct convert_attributes {
    struct shape to;
};
/* A dimension of the whole tensor, of which each part has `dims[dimension] / parts` elements: a run of them, or in
 * zigzag two, of 2 * parts runs the i-th from the front and the i-th from the back, which only positions are. */
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
/* Where piece `piece` of part `part` begins in the whole. Pieces are the part's rows, runs of its last dimension; where
 * that is cut in zigzag, halves of them. */
struct parts_place {
    int64_t row, column;
};
int64_t parts_pieces_of_row(const struct shape *whole, const struct parts_order *order);
struct parts_place parts_find(const struct shape *whole, const struct parts_order *order, int64_t part, int64_t piece);

/* A shard of a gradient begins at a multiple of it (plan/shards.h). */
enum { GRADIENT_NORM_BLOCK = 4096 };
int64_t gradient_norm_blocks(int64_t elements);
/* norm = sqrt(sum); factor = min(1, limit / (norm + 1e-6)) as torch.nn.utils.clip_grad_norm_; limit 0: factor 1. When
 * the norm is not finite the factor is NaN, and updates that read it then change nothing, so that the step can be
 * examined. */
struct clip_attributes {
    double limit;
};
/* How a step changes a parameter w, with its gradient g times the clip factor, and its moments, which begin at 0:
 * UPDATE_ADAMW: AdamW (Loshchilov and Hutter, arXiv 1711.05101), in the order of torch.optim.AdamW: w -= lr*decay*w;
 *     m += (1-beta1)*(g-m); v = beta2*v + (1-beta2)*g*g; w -= lr*correction * m / (sqrt(v)*correction_sq + epsilon).
 * UPDATE_LION: Lion (Chen et al., arXiv 2302.06675, algorithm 2): w -= lr*decay*w; w -= lr * sign(m + (1-beta1)*(g-m));
 *     m += (1-beta2)*(g-m).
 * UPDATE_SGD: with momentum, as torch.optim.SGD: g += decay*w; m = beta1*m + g; w -= lr*m.
 * UPDATE_MUON: Muon (Jordan et al., kellerjordan.github.io/posts/muon), of matrices [rows, columns], as
 * torch.optim.Muon with "match_rms_adamw" (Liu et al., arXiv 2502.16982): m += (1-momentum)*(g-m); u = m +
 * (1-momentum)*(g-m); w -= lr*decay*w; w -= lr * 0.2*sqrt(max(rows, columns)) * o. o is u / max(|u|, 1e-7) with its
 * singular values near 1, after five steps of Newton and Schulz in the parameter's dtype: x = a x + (b g + c g g) x
 * with g = x xt, where x has more rows than columns x (b g + c g g) with g = xt x, and a, b, c = 3.4445,
 * -4.775, 2.0315. So an update of an element needs all of them. What is no such matrix is updated by AdamW
 * (ops_mark_whole_updates). With a master, it is updated and the parameter is its rounding to nearest; a master in two
 * halves (base/half.h) is the parameter and the lower one. Moments in bf16, and a bf16 parameter without a master, are
 * computed in fp32 and rounded by chance: to the bf16 number above with the probability that the distance to the one
 * below says, so that small changes add up on average (Gupta et al., arXiv 1502.02551). The numbers drawn are a
 * function of seed, step, parameter and element (backend/update_step.h). Moments in 8 bits are codes, with a scale for
 * each block of elements: they are unpacked to fp32 and packed again (backend/moment_map.h). */
#define UPDATE_RULE_LIST(X) X(ADAMW, adamw) X(LION, lion) X(SGD, sgd) X(MUON, muon)
enum update_rule {
#define UPDATE_RULE_ENUM(name, op) UPDATE_##name,
    UPDATE_RULE_LIST(UPDATE_RULE_ENUM) UPDATE_RULE_COUNT
#undef UPDATE_RULE_ENUM
};
enum { MUON_STEPS = 5 };
/* The operator's name. */
const char *update_rule_name(enum update_rule rule);
/* UPDATE_RULE_COUNT when there is none of that name. */
enum update_rule update_rule_find(const char *name);
/* Of an operator that is one of them; UPDATE_RULE_COUNT for others. */
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
    uint32_t number; /* of the parameter among those that are trained */
};

/* Builder calls, one for each operator that models are made of. */
struct tensor *ops_embedding(struct graph *graph, const char *name, struct tensor *tokens, struct tensor *table);
/* The same from a table whose first rows stand for no token. */
struct tensor *ops_embedding_from(struct graph *graph, const char *name, struct tensor *tokens, struct tensor *table,
                                  int64_t first_row);
/* `bias` and `residual` may be NULL. */
struct tensor *ops_linear(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                          struct tensor *bias, struct tensor *residual, struct linear_attributes attributes);
/* The weight's length says what is normalised: a token's features, or each group of that many. */
struct tensor *ops_rms_norm(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                            struct norm_attributes attributes);
struct tensor *ops_layer_norm(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                              struct tensor *bias, double epsilon);
struct tensor *ops_rope_table(struct graph *graph, const char *name, struct tensor *positions,
                              struct rope_table_attributes attributes);
struct tensor *ops_rope(struct graph *graph, const char *name, struct tensor *x, struct tensor *table, int64_t heads,
                        int64_t head_dim);
/* `segments` and `sinks` may be NULL. Causal. */
struct tensor *ops_attention(struct graph *graph, const char *name, struct tensor *q, struct tensor *k,
                             struct tensor *v, struct tensor *segments, struct tensor *sinks,
                             struct attention_attributes attributes);
struct tensor *ops_select_heads(struct graph *graph, const char *name, struct tensor *x,
                                struct select_heads_attributes attributes);
/* The same for tokens that follow others, whose keys and values are in two caches (TENSOR_CACHE), made here. No
 * gradient. */
struct tensor *ops_attention_cache(struct graph *graph, const char *name, struct tensor *q, struct tensor *k,
                                   struct tensor *v, struct tensor *rows, struct tensor *sinks,
                                   struct attention_cache_attributes attributes);
/* The last token that counts. */
struct tensor *ops_last_token(struct graph *graph, const char *name, struct tensor *x);
struct tensor *ops_activation(struct graph *graph, const char *name, struct tensor *x, enum activation function);
struct tensor *ops_gated_activation(struct graph *graph, const char *name, struct tensor *gate, struct tensor *up,
                                    enum activation function);
/* Where the tokens of a grain go. */
struct routing {
    struct tensor *weights, *places, *ranges;
};
struct routing ops_route(struct graph *graph, const char *name, struct tensor *logits,
                         struct route_attributes attributes);
struct tensor *ops_dispatch(struct graph *graph, const char *name, struct tensor *x, struct routing routing,
                            struct dispatch_attributes attributes);
/* `residual` may be NULL. */
struct tensor *ops_combine(struct graph *graph, const char *name, struct tensor *rows, struct routing routing,
                           struct tensor *residual, struct dispatch_attributes attributes);
/* `residual` may be NULL. */
struct tensor *ops_token_gate(struct graph *graph, const char *name, struct tensor *x, struct tensor *gate,
                              struct tensor *residual);
/* `rows` are those of ops_dispatch, which only experts read. `previous` is the result of the expert before, NULL for
 * the first, and read by nothing else; the last one's result has all rows. */
struct expert_weights {
    struct tensor *gate, *up, *down;
};
struct tensor *ops_expert_mlp(struct graph *graph, const char *name, struct tensor *rows, struct routing routing,
                              const struct expert_weights *weights, struct tensor *previous,
                              struct expert_attributes attributes);
struct expert_glu_weights {
    struct tensor *gate_up, *down, *gate_up_bias, *down_bias;
};
struct tensor *ops_expert_glu(struct graph *graph, const char *name, struct tensor *rows, struct routing routing,
                              const struct expert_glu_weights *weights, struct tensor *previous,
                              struct expert_glu_attributes attributes);
/* Of a node of an expert or of its gradient: the weight after the activation, and how many features it takes. */
const struct tensor *expert_down(const struct node *node);
int64_t expert_width(const struct node *node);
/* `previous` is that of the layer before, NULL in the first. */
struct tensor *ops_expert_load(struct graph *graph, const char *name, struct tensor *logits, struct routing routing,
                               struct tensor *previous);
struct tensor *ops_add(struct graph *graph, const char *name, struct tensor *a, struct tensor *b);
/* `bias` and `residual` may be NULL. */
struct tensor *ops_add_bias(struct graph *graph, const char *name, struct tensor *x, struct tensor *bias,
                            struct tensor *residual);
struct tensor *ops_scale(struct graph *graph, const char *name, struct tensor *x, double factor);
/* What the ranks of a group exchange. Each tensor is whole on all of them, or each has its part along a dimension; the
 * gradient of what is whole is the same on all ranks, or each has a part of its sum. All ranks of the group have the
 * same nodes. With one part each is x itself. A sum is added in a fixed order, by halves of the group (lane_tree.h);
 * of bf16, each edge of that tree rounds, and the sum.
 *     copy_in     x whole, used by what each rank has a part of. Gradient: summed
 *     reduce_out  x a part of a sum -> the sum, whole. Gradient: as it is
 *     gather      x a part along the dimension -> whole. Gradient: the part of it, or where `partial` of its sum
 *     scatter     x a part of a sum -> this rank's part of it along the dimension. Gradient: gathered
 *     cut         x whole -> this rank's part along the dimension. Gradient: gathered
 *     exchange    x a part along `from` -> a part along `to`. Gradient: the other way round
 * Parts along the first dimension, or behind dimensions of size 1, lie one after the other in memory; those along
 * others are copied to lie so before they are exchanged, or from there after it. BAD_INPUT where the dimension has no
 * parts of equal size. */
struct tensor *ops_copy_in(struct graph *graph, const char *name, struct tensor *x, struct group_part part);
struct tensor *ops_reduce_out(struct graph *graph, const char *name, struct tensor *x, struct group_part part);
struct tensor *ops_gather(struct graph *graph, const char *name, struct tensor *x, struct group_part part,
                          int dimension, bool partial);
struct tensor *ops_scatter(struct graph *graph, const char *name, struct tensor *x, struct group_part part,
                           int dimension);
struct tensor *ops_cut(struct graph *graph, const char *name, struct tensor *x, struct group_part part, int dimension);
struct tensor *ops_exchange(struct graph *graph, const char *name, struct tensor *x, struct group_part part, int from,
                            int to);
/* The loss of a step: TENSOR_RESULT "loss", fp64 [1], a sum over all grains. `bias` may be NULL. */
struct tensor *ops_head_loss(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                             struct tensor *targets, struct tensor *bias, struct head_attributes attributes);
/* `bias` may be NULL. */
struct tensor *ops_head_log_probability(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                                        struct tensor *targets, struct tensor *bias, struct head_attributes attributes);
/* The loss of pairs: TENSOR_RESULT "loss", fp64 [PREFERENCE_FIGURES], sums over all grains. */
struct tensor *ops_preference_loss(struct graph *graph, const char *name, struct tensor *y, struct tensor *targets,
                                   struct tensor *reference, struct preference_attributes attributes);
/* The loss of targets with that of the experts' load: TENSOR_RESULT "loss", fp64 [1], a sum over all grains. */
struct tensor *ops_balanced_loss(struct graph *graph, const char *name, struct tensor *y, struct tensor *targets,
                                 struct tensor *load, struct balance_attributes attributes);
struct tensor *ops_head_logits(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                               struct tensor *bias, struct head_attributes attributes);

/* Adds finish and update to a differentiated graph: sums of accumulators, sums of squares, squared norms in parameter
 * order, the clip factor (result "clip"), the rule's operator for every trainable parameter, with its state tensors:
 * its moments, with scales ("exp_avg_absmax") where they are in 8 bits, and, when the graph's dtype is bf16, "master"
 * or "master_low" (roles; names are the parameter's). Where nothing is clipped, updates do not read the factor, and so
 * wait for no gradient but their own. Where ranks have parts of parameters (graph/tensor.h), partial gradients are
 * summed first, and the norm is that of all parts. */
struct optimizer_options {
    enum update_rule rule;
    double beta1, beta2, epsilon, weight_decay, clip_norm;
    double muon_momentum;    /* of UPDATE_MUON, whose other numbers are AdamW's, for what is no matrix */
    enum dtype moments;      /* fp32, bf16 or uint8 */
    bool no_masters;         /* of bf16 parameters */
    bool split_masters;      /* of bf16 parameters: "master_low" in place of "master" */
    uint64_t seed;           /* of rounding by chance */
    struct group_part group; /* of ranks that have parts of parameters; {0, 0}: none has */
};
/* Says of a graph's parameters, before its optimizer is added, which ones the rule updates whole: of UPDATE_MUON
 * trained matrices that are neither looked up (embeddings) nor make logits (heads), of all others none. Programs that
 * do not update say it too, so that parameters lie alike in all (plan/chunks.h). */
void ops_mark_whole_updates(struct graph *graph, enum update_rule rule);
enum status ops_add_optimizer(struct graph *graph, const struct optimizer_options *options);

/* Attributes of a node, typed. */
#define NODE_ATTRIBUTES(node, type) ((const struct type *)(node)->attributes)

#endif
