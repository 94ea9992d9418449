/* The list of all operators (ops.h). */
#pragma once

#include "ir/op.h"

/* Every operator, in one list by files of this directory. Each backend selects the operators that it implements
 * (backend/cpu/kernel.h). Tests and benchmarks go through all.
 * Signatures: inputs -> outputs; [x] is optional, += is a sum over micro-batches (or an update in place). */

/* embedding.c */
#define OP_EMBEDDING_LIST(X)                                                                                           \
    /* tokens [S,T] int32, table [V,C] -> y [S,T,C] = table[tokens + first_row], or 0 */                               \
    X(embedding)                                                                                                       \
    /* tokens, dy -> dtable += [V,C] fp32, adding rows in token order */                                               \
    X(embedding_grad)

/* linear.c */
#define OP_LINEAR_LIST(X)                                                                                              \
    /* x [S,T,K], weight, [bias [N]], [residual [S,T,N]] -> y [S,T,N] = x W + bias + residual */                       \
    X(linear)                                                                                                          \
    /* dy [S,T,N], weight, [addend [S,T,K]] -> dx [S,T,K] = dy Wt + addend */                                          \
    X(linear_dx)                                                                                                       \
    /* x, dy -> dweight += (fp32, the weight's shape), [dbias += [N] fp32] */                                          \
    X(linear_dw)                                                                                                       \
    /* dy [S,T,N] -> dbias += [N] fp32: where the weight is frozen and the bias is not */                              \
    X(bias_grad)

/* norm.c */
#define OP_NORM_LIST(X)                                                                                                \
    /* x [S,T,C], weight [G] -> y, rstd [S,T,C/G] fp32; rstd = (mean(x^2) + epsilon)^-1/2, y = x * rstd *              \
     *  weight, or (1 + weight). Each run of G features, G a divisor of C, is a norm of its own: G = C normalises      \
     *  tokens, G = head_dim the heads of tokens */                                                                    \
    X(rms_norm)                                                                                                        \
    /* dy, x, weight, rstd, [addend] -> dx (+ addend), dweight += */                                                   \
    X(rms_norm_grad)                                                                                                   \
    /* x [S,T,C], weight [G], [bias [G]] -> y, mean [S,T,C/G] fp32, rstd [S,T,C/G] fp32 */                             \
    X(layer_norm)                                                                                                      \
    /* dy, x, weight, mean, rstd, [addend] -> dx (+ addend), dweight +=, [dbias +=] */                                 \
    X(layer_norm_grad)

/* rope.c */
#define OP_ROPE_LIST(X)                                                                                                \
    /* positions [S,T] int32 -> table [S,T,R] fp32: cosines of R/2 angles, then their sines; R = head_dim, or          \
     *  as many of a head's features as are rotated */                                                                 \
    X(rope_table)                                                                                                      \
    /* x [S,T,heads*head_dim], table -> y; halves of each head's first R features rotated as Llama's rotate_half, the  \
     *  others as they are; sign -1 turns back (the gradient) */                                                       \
    X(rope)

/* attention.c */
#define OP_ATTENTION_LIST(X)                                                                                           \
    /* q [S,T,Hq*D], k [S,T,Hk*D], v [S,T,Hk*D], [segments [S,T] int32], [sinks [Hq]]                                  \
     *  -> y [S,T,Hq*D], lse [S,Hq,T] fp32 (log of the sum of exponentials of the scaled scores, and of the head's     \
     *  sink: one more score, whose value is 0) */                                                                     \
    X(attention)                                                                                                       \
    /* dy, q, k, v, y, lse, [segments] -> dq, dk, dv. With a part of the queries (attributes), q, y and lse have the   \
     *  part's T; k, v and segments have that of all positions */                                                      \
    X(attention_grad)                                                                                                  \
    /* dy, y, lse, sinks -> dsinks += [Hq] fp32 = -(sum over queries of exp(sink - lse) * dy . y) */                   \
    X(attention_sinks_grad)                                                                                            \
    /* q [S,T,Hq*D], k [S,T,Hk*D], v [S,T,Hk*D], rows [S,T] int32, [sinks [Hq]]                                        \
     *  -> y [S,T,Hq*D], keys += [N,P,Hk*D], values += [N,P,Hk*D]: caches of N texts. All k and v go to the caches'    \
     *  rows, text * P + position. Then each token sees the rows of its text up to its own. A token with row -1 does   \
     *  not count: it leaves the caches alone and has y = 0. No two tokens share a row */                              \
    X(attention_cache)                                                                                                 \
    /* x [S,T,C] -> y [S,1,C]: the last token that counts, SCALAR_NEW_TOKENS - 1 */                                    \
    X(last_token)                                                                                                      \
    /* x [S,T,H*D] -> y [S,T,N*D]: N of the heads, in order, one maybe several times */                                \
    X(select_heads)                                                                                                    \
    /* dy [S,T,N*D] -> dx [S,T,H*D]: sums over the uses of each head, 0 where there is none */                         \
    X(select_heads_grad)

/* elementwise.c */
#define OP_ELEMENTWISE_LIST(X)                                                                                         \
    /* a, b -> a + b */                                                                                                \
    X(add)                                                                                                             \
    /* x [S,T,N], [bias [N]], [residual [S,T,N]] -> y = x + bias + residual: what follows a GEMM whose sum ranks       \
     * make                                                                                                            \
     */                                                                                                                \
    X(add_bias)                                                                                                        \
    /* x -> factor * x */                                                                                              \
    X(scale)                                                                                                           \
    /* x -> y = f(x) */                                                                                                \
    X(activation)                                                                                                      \
    /* dy, x -> dx */                                                                                                  \
    X(activation_grad)                                                                                                 \
    /* gate, up -> y = f(gate) * up */                                                                                 \
    X(gated_activation)                                                                                                \
    /* dy, gate, up -> dgate, dup */                                                                                   \
    X(gated_activation_grad)

/* group_collectives.c */
#define OP_GROUP_COLLECTIVES_LIST(X)                                                                                   \
    /* x -> y with the same elements in their order, in another shape or dtype */                                      \
    X(convert)                                                                                                         \
    /* x -> y [parts, …], the parts of a dimension one after the other; from_parts the other way round */            \
    X(to_parts)                                                                                                        \
    X(from_parts)                                                                                                      \
    /* x -> y, this rank's part of a dimension */                                                                      \
    X(cut)                                                                                                             \
    /* x -> y = x, whose gradients all ranks of the group have a part of */                                            \
    X(copy_in)

/* head.c */
#define OP_HEAD_LIST(X)                                                                                                \
    /* x [S,T,C], weight [V,C], targets [S,T] int32 (negative: masked), [bias [V]], [statistics [S,T,3]]               \
     *  -> loss += fp64 [1]: sum over unmasked tokens of -log softmax(x W^t)[target], unscaled; logits may be capped.  \
     *  Where the weight has a part of the vocabulary, statistics are those of all of it */                            \
    X(head_loss)                                                                                                       \
    /* x, weight, targets, [bias], [statistics] -> loss +=, dx, [dweight +=], [dbias +=]; gradients times              \
     *  SCALAR_LOSS_SCALE, dx of the weight's rows alone */                                                            \
    X(head_loss_grad)                                                                                                  \
    /* x, weight, targets, [bias], [statistics] -> y [S,T,1] fp32: log softmax(x W^t)[target], 0 where masked; logits  \
     *  and parts as in head_loss */                                                                                   \
    X(head_log_probability)                                                                                            \
    /* x, weight, targets, [bias], [statistics], dy -> [dx], [dweight +=], [dbias +=]; logits are recomputed */        \
    X(head_log_probability_grad)                                                                                       \
    /* x, weight, targets, [bias] -> statistics [S,T,3] fp32 of the weight's rows: the largest logit, the sum of       \
     *  exponentials of logits less it, and the target's logit, or 0 where another part has it */                      \
    X(head_statistics)                                                                                                 \
    /* statistics of parts [N,S,T,3] -> statistics [S,T,3] of the whole, added in the order of the parts */            \
    X(join_statistics)                                                                                                 \
    /* x, weight, [bias] -> logits [S,T,V] fp32: for comparison and sampling, small models and short inputs */         \
    X(head_logits)

/* head.c */
#define OP_PREFERENCE_LIST(X)                                                                                          \
    /* log-probabilities y [S,T,1] fp32, targets [S,T] int32, reference [S,1] fp64 -> loss += fp64 [4] (enum           \
     *  preference_figure), unscaled. Sequences 2i and 2i+1 are a pair: the chosen and the rejected one. A sequence's  \
     *  gain is the sum of its y - its reference; its reward is beta * gain. The margin m is the chosen reward - the   \
     *  rejected reward. Sums are in fp64, in token order. A pair without targets does not count.                      \
     *  - sigmoid, robust: -log sigmoid(m) and -log sigmoid(-m), weighted (pair_weights_of)                            \
     *  - hinge (Zhao et al., arXiv 2305.10425): max(0, 1 - m)                                                         \
     *  - ipo (Azar et al., arXiv 2310.12036): (difference of the gains, each over its targets, - 1 / (2 beta))^2 */   \
    X(preference_loss)                                                                                                 \
    /* the same -> loss +=, dy times SCALAR_LOSS_SCALE, 0 where masked */                                              \
    X(preference_loss_grad)

/* routing.c */
#define OP_ROUTING_LIST(X)                                                                                             \
    /* logits [S,T,E], [targets [S,T] int32] -> weights [S,T,k] fp32, places [S,T,k] int32, ranges [E,2]               \
     *  int32, slots [E] int32: the k experts of a token with the largest logits, of equal ones the first; largest     \
     *  first. Their probabilities, the softmax over all E, are the weights, or with `normalised` these over their     \
     *  sum. A slot is a token's choice of an expert; places say in which row each lies when slots are sorted by       \
     *  expert, those of an expert by token. Each expert's rows begin at a multiple of routing_tile: ranges hold       \
     *  where, and where its slots end. `slots` counts those of tokens that are not padding */                         \
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
    /* logits [S,T,E], slots [E], targets [S,T] int32, [previous] -> load [2,E] fp32: the slots of each                \
     *  expert, the sum of its probabilities over tokens that are not padding, + previous */                           \
    X(expert_load)                                                                                                     \
    /* dload, logits, targets -> dlogits, 0 for padding */                                                             \
    X(expert_load_grad)                                                                                                \
    /* log-probabilities y [S,T,1] fp32, targets [S,T] int32, load -> loss += fp64 [1]: -(sum of y over targets) +     \
     *  targets * coefficient * E * (sum over experts of slots / rows * probabilities / rows), unscaled; rows: tokens  \
     *  that are not padding, times layers */                                                                          \
    X(balanced_loss)                                                                                                   \
    /* the same -> loss +=, dy, 0 where masked, [dload], times SCALAR_LOSS_SCALE */                                    \
    X(balanced_loss_grad)                                                                                              \
    /* slots [E] int32 -> their sums += [E] fp64. A node of backward, which each micro-batch goes through once */      \
    X(count_slots)

/* expert.c */
#define OP_EXPERT_LIST(X)                                                                                              \
    /* rows [S,R,C], ranges, gate [F,C], up [F,C], down [C,F], [previous [S,R,C]] -> y [S,R,C]: in the                 \
     *  expert's rows down (f(gate x) * (up x)), in others those of previous, or 0 */                                  \
    X(expert_mlp)                                                                                                      \
    /* dy, rows, ranges, gate, up, down, [previous] -> [drows], likewise, [dgate +=], [dup +=], [ddown +=]. Gate and   \
     *  up are recomputed, so that no more is kept of a row than its features */                                       \
    X(expert_mlp_grad)                                                                                                 \
    /* rows [S,R,C], ranges, gate_up [2F,C], down [C,F], or [C,2F] and [F,C], gate_up_bias [2F], down_bias [C],        \
     *  [previous [S,R,C]] -> y [S,R,C], with rows as expert_mlp has them: y = down ((u + 1) g sigmoid(alpha g)) +     \
     *  down_bias. Here g and u are the even and the odd numbers of gate_up x + gate_up_bias, with g at most `limit`   \
     *  and u within it */                                                                                             \
    X(expert_glu)                                                                                                      \
    /* dy, rows, ranges, gate_up, down, gate_up_bias, [previous] -> [drows], [dgate_up +=], [ddown +=],                \
     *  [dgate_up_bias +=], [ddown_bias +=] */                                                                         \
    X(expert_glu_grad)

/* optimizer.c */
#define OP_OPTIMIZER_LIST(X)                                                                                           \
    /* a, b -> a = a + b in fp32: two accumulators of one parameter (PHASE_FINISH) */                                  \
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
    /* the same, of a matrix */                                                                                        \
    X(muon)

#define OP_LIST(X)                                                                                                     \
    OP_EMBEDDING_LIST(X)                                                                                               \
    OP_LINEAR_LIST(X)                                                                                                  \
    OP_NORM_LIST(X)                                                                                                    \
    OP_ROPE_LIST(X)                                                                                                    \
    OP_ATTENTION_LIST(X)                                                                                               \
    OP_ELEMENTWISE_LIST(X)                                                                                             \
    OP_GROUP_COLLECTIVES_LIST(X)                                                                                       \
    OP_HEAD_LIST(X)                                                                                                    \
    OP_PREFERENCE_LIST(X)                                                                                              \
    OP_ROUTING_LIST(X)                                                                                                 \
    OP_EXPERT_LIST(X)                                                                                                  \
    OP_OPTIMIZER_LIST(X)

/* Collectives of a group of ranks (enum op_collective), from group_collectives.c. No backend has kernels for them. */
#define COLLECTIVE_OP_LIST(X)                                                                                          \
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
COLLECTIVE_OP_LIST(OP_DECLARE)
#undef OP_DECLARE
