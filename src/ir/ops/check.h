/* Shared by the operators' definitions: shapes and checks of them, loops, rules of gradients, and builder calls. */
#pragma once

#include "ir/differentiate.h"
#include "ir/ops/ops.h"

/* Up to OP_INPUTS_MAX operands; those left out are NULL. */
#define OPERANDS(...) ((struct tensor *[OP_INPUTS_MAX]){__VA_ARGS__})

/* ---- shapes ---- */

/* BAD_INPUT "input K is SHAPE, expected SHAPE" when they differ; of weights in fewer bits it is the numbers' shape. An
 * optional input that is left out is fine. */
enum status check_shape(const struct node *node, int input, struct shape expected);
/* Activations: [S, T, C] in bf16 or fp32. */
enum status check_activation(const struct node *node, int input);
/* Log-probabilities of a loss, fp32 [S, T, 1], and targets: inputs 0 and 1. */
enum status check_log_probabilities(const struct node *node);
/* The activation's shape with another last dimension. */
struct shape with_columns(struct shape shape, int64_t columns);
struct shape with_dtype(struct shape shape, enum dtype dtype);
/* fp32 of the same dimensions: what accumulates the gradient of a parameter. */
struct shape as_accumulator(struct shape shape);
struct shape vector_of(enum dtype dtype, int64_t count);
/* Ids of an activation's tokens, int32 [S, T]. */
struct shape tokens_of(const struct shape *activation);
/* The shape of one part of [parts, …]. */
struct shape parts_one_of(const struct shape *stack);

/* ---- loops ---- */

/* Indices 's' and 't' of an activation [S,T,…], or of tokens [S,T]. */
void loops_add_tokens(struct op_loops *loops, const struct tensor *tensor);
/* Adds the tensor's positions, which are cut outside a node whose work takes all tokens. */
void loops_add_outside_positions(struct op_loops *loops, const struct tensor *tensor);
/* Loops of operators that treat each element of activations of one shape apart; all operands are such. */
bool loops_alike(const struct node *node, int way, struct op_loops *out);

/* Element `index` of the ranges of experts whose slots go to them in turn, for measuring. */
double example_range(int64_t slots, int64_t experts, int64_t index);

/* ---- gradients ---- */

/* The tensor where it wants a gradient, else NULL. */
struct tensor *gradient_if_wanted(const struct gradients *gradients, struct tensor *tensor);
/* Adds the backward node `op` of `node`, and delivers what it makes: output i is the gradient of of[i], which is NULL
 * where there is no such output, or a result that is written itself. Adds nothing where no other of these wants a
 * gradient. If one has other uses whose sum (gradient_partial) is no optional input of the node, a further node adds
 * it. */
void gradient_add_rule(struct gradients *gradients, const struct op *op, const struct node *node,
                       struct tensor *const *in, const void *attributes, struct tensor *const *of);
/* gradient_deliver for a gradient that node `of` made without an addend: where the tensor has other uses, adds a node
 * that sums it with their gradients. */
void gradient_deliver_sum(struct gradients *gradients, const struct node *of, struct tensor *tensor,
                          struct tensor *gradient);

/* ---- builder calls ---- */

/* Output 0 of a new node; NULL where a required operand is. */
struct tensor *ops_apply(struct graph *graph, const struct op *op, const char *name, struct tensor *const *in,
                         const void *attributes);
/* The same of a loss, which is the result "loss", fp64 [figures]. */
struct tensor *ops_apply_loss(struct graph *graph, const struct op *op, const char *name, struct tensor *const *in,
                              const void *attributes, int64_t figures);
