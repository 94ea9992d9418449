/* Operators, from which model builders make a graph.
 *
 * Files, in the order to read them:
 *     list: all operators, with the shapes of their operands; attributes: what kernels read besides operands;
 *     ops: builder calls;
 *     elementwise, norm, linear, embedding, rope, attention, head: a family of operators each, defined by its shapes,
 *         costs and gradient; losses are in head;
 *     routing, expert: layers in which a token takes a few experts;
 *     group_collectives: parts of tensors, and collectives of a group;
 *     optimizer: the update, and the nodes that make it;
 *     check: what these definitions share.
 *
 * Weights of linear and linear_dx, and of experts, may be quantized (ir/weight_format.h) if they are frozen.
 *
 * Activations have the shape [S, T, C]: the sequences of one micro-batch, the positions, the features; "rows" are the
 * S*T tokens. Heads lie side by side in the features: [S, T, heads * head_dim]. `d` marks a gradient. Sums are in fp32
 * whatever the dtype of the operands; bf16 results are rounded once, to nearest even. All functions pass NULL operands
 * on (graph.h). */
#pragma once

#include "ir/graph.h"
#include "ir/ops/attributes.h"
#include "ir/ops/list.h"

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
/* The experts and rows that a micro-batch's tokens are routed to. */
struct routing {
    struct tensor *weights, *places, *ranges, *slots;
};
/* `targets` tell padding from tokens; they may be NULL. */
struct routing ops_route(struct graph *graph, const char *name, struct tensor *logits, struct tensor *targets,
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
/* The weight after the activation, and the number of its input features, of an expert's node or its gradient's. */
const struct tensor *expert_down(const struct node *node);
int64_t expert_width(const struct node *node);
/* The mean number of rows that an expert has. */
double expert_mean_rows(const struct node *node);
/* `previous` is that of the layer before, NULL in the first. */
struct tensor *ops_expert_load(struct graph *graph, const char *name, struct tensor *logits, struct routing routing,
                               struct tensor *targets, struct tensor *previous);
struct tensor *ops_add(struct graph *graph, const char *name, struct tensor *a, struct tensor *b);
/* `bias` and `residual` may be NULL. */
struct tensor *ops_add_bias(struct graph *graph, const char *name, struct tensor *x, struct tensor *bias,
                            struct tensor *residual);
struct tensor *ops_scale(struct graph *graph, const char *name, struct tensor *x, double factor);
/* Collectives of a group. Each tensor is whole on all ranks, or each rank has its part along a dimension. The gradient
 * of a whole tensor is the same on all ranks, or each rank has a part of its sum. All ranks of the group have the same
 * nodes. With one part each is x itself. A sum is added in a fixed order, by halves of the group (lane_tree.h); of
 * bf16, each edge of that tree rounds, and the sum.
 *     copy_in     x whole, used by what each rank has a part of. Gradient: summed
 *     reduce_out  x a part of a sum -> the sum, whole. Gradient: as it is
 *     gather      x a part along the dimension -> whole. Gradient: the part of it, or where `partial` of its sum
 *     scatter     x a part of a sum -> this rank's part of it along the dimension. Gradient: gathered
 *     cut         x whole -> this rank's part along the dimension. Gradient: gathered
 *     all_to_all    x a part along `from` -> a part along `to`. Gradient: the other way round
 * Parts along the first dimension, or behind dimensions of size 1, lie one after the other in memory; those along
 * others are copied to lie so before the collective, or back after it. BAD_INPUT where the dimension has no parts of
 * equal size. */
struct tensor *ops_copy_in(struct graph *graph, const char *name, struct tensor *x, struct group_part part);
struct tensor *ops_reduce_out(struct graph *graph, const char *name, struct tensor *x, struct group_part part);
struct tensor *ops_gather(struct graph *graph, const char *name, struct tensor *x, struct group_part part,
                          int dimension, bool partial);
struct tensor *ops_scatter(struct graph *graph, const char *name, struct tensor *x, struct group_part part,
                           int dimension);
struct tensor *ops_cut(struct graph *graph, const char *name, struct tensor *x, struct group_part part, int dimension);
struct tensor *ops_all_to_all(struct graph *graph, const char *name, struct tensor *x, struct group_part part, int from,
                              int to);
/* x's elements in their order, in another shape or dtype. */
struct tensor *ops_convert(struct graph *graph, const char *name, struct tensor *x, struct shape to);
/* The loss of a step: TENSOR_RESULT "loss", fp64 [1], a sum over all micro-batches. `bias` may be NULL. */
struct tensor *ops_head_loss(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                             struct tensor *targets, struct tensor *bias, struct head_attributes attributes);
/* `bias` may be NULL. */
struct tensor *ops_head_log_probability(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                                        struct tensor *targets, struct tensor *bias, struct head_attributes attributes);
/* The loss of pairs: TENSOR_RESULT "loss", fp64 [PREFERENCE_FIGURES], sums over all micro-batches. */
struct tensor *ops_preference_loss(struct graph *graph, const char *name, struct tensor *y, struct tensor *targets,
                                   struct tensor *reference, struct preference_attributes attributes);
/* The loss of targets with that of the experts' load: TENSOR_RESULT "loss", fp64 [1], a sum over all micro-batches. */
struct tensor *ops_balanced_loss(struct graph *graph, const char *name, struct tensor *y, struct tensor *targets,
                                 struct tensor *load, struct balance_attributes attributes);
struct tensor *ops_head_logits(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                               struct tensor *bias, struct head_attributes attributes);

/* Adds finish and update to a differentiated graph:
 * - sums of accumulators, sums of squares, squared norms in parameter order, the clip factor (result "clip");
 * - the rule's operator for every trainable parameter, with its state tensors (named by role; the name is the
 *   parameter's). They are moments, with scales ("exp_avg_absmax") if moments have 8 bits, and "master" or "master_low"
 *   if the graph's dtype is bf16.
 *
 * Without clipping, updates do not read the factor, and so wait for no gradient but their own. If ranks have parts of
 * parameters (ir/tensor.h), partial gradients are summed first, and the norm covers all parts. */
struct optimizer_options {
    enum update_rule rule;
    double beta1, beta2, epsilon, weight_decay, clip_norm;
    double muon_momentum;    /* of UPDATE_MUON; its other numbers are AdamW's, which updates parameters that are not
                              * matrices */
    enum dtype moments;      /* fp32, bf16 or uint8 */
    bool no_masters;         /* of bf16 parameters */
    bool split_masters;      /* of bf16 parameters: "master_low" in place of "master" */
    uint64_t seed;           /* of stochastic rounding */
    struct group_part group; /* of ranks that have parts of parameters; {0, 0}: none has */
};
/* Says of a graph's parameters, before its optimizer is added, which ones the rule updates whole: of UPDATE_MUON
 * trained matrices that are neither looked up (embeddings) nor make logits (heads), of all others none. Programs that
 * do not update say it too, so that parameters lie alike in all (plan/chunks.h). */
void ops_mark_whole_updates(struct graph *graph, enum update_rule rule);
enum status ops_add_optimizer(struct graph *graph, const struct optimizer_options *options);
