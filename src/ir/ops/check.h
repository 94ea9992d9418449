/* Helpers of the operators' definitions: checks of shapes, example values, and a rule of gradients. */
#pragma once

#include "ir/differentiate.h"
#include "ir/ops/ops.h"

/* BAD_INPUT "input K is SHAPE, expected SHAPE" when they differ; of weights in fewer bits it is the numbers' shape. */
enum status check_shape(const struct node *node, int input, const struct shape *expected);
/* The same for an optional input: left out is fine. */
enum status check_optional(const struct node *node, int input, const struct shape *expected);
/* Activations: [S, T, C] in bf16 or fp32. */
enum status check_activation(const struct node *node, int input);
/* The activation's shape with another last dimension. */
struct shape with_columns(struct shape shape, int64_t columns);
/* fp32 of the same dimensions: what accumulates the gradient of a parameter. */
struct shape as_accumulator(struct shape shape);
struct shape vector_of(enum dtype dtype, int64_t count);

/* Indices 's' and 't' of an activation [S,T,…], or of tokens [S,T]. */
void loops_add_tokens(struct op_loops *loops, const struct tensor *tensor);
/* What is cut by positions outside a node whose work takes all tokens. */
void loops_add_outside_positions(struct op_loops *loops, const struct tensor *tensor);
/* Loops of operators that treat each element of activations of one shape apart; all operands are such. */
bool loops_alike(const struct node *node, int way, struct op_loops *out);

/* Element `index` of the ranges of experts whose slots go to them in turn, for measuring. */
double example_range(int64_t slots, int64_t experts, int64_t index);

/* gradient_deliver for a gradient that node `of` made without an addend: where the tensor has other uses, adds a node
 * that sums it with their gradients. */
void gradient_deliver_sum(struct gradients *gradients, const struct node *of, struct tensor *tensor,
                          struct tensor *gradient);
