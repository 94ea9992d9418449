/* Reverse-mode differentiation of a graph, by the rules that operators hold.
 *
 * The gradients become nodes of the same graph. A rule reads the gradient of its node's outputs and, for each input
 * that wants one, adds a node which writes into gradient_target() and takes gradient_partial() as its addend, then
 * calls gradient_deliver(). So sums over several uses of a tensor are fused into the operators and have one fixed
 * order: from the last use to the first. */
#pragma once

#include "ir/graph.h"

/* Adds backward nodes (PHASE_BACKWARD) for d(loss)/d(parameter) of every trainable parameter that `loss` depends on.
 * `loss` is output 0 of a node with differentiate_loss; that node is removed from the graph, its successor makes the
 * same tensor. Each use of a parameter gets its own accumulator (TENSOR_GRADIENT, fp32): with several uses (tied
 * embeddings) one accumulator's sums would depend on how many micro-batches a wave holds; they are added up once a step
 * instead. With graph->one_micro_batch a rule may go on in the accumulator of the use before (gradient_joined_target).
 */
enum status graph_differentiate(struct graph *graph, struct tensor *loss);
/* The same for a part of a model whose loss is elsewhere. The gradients of activations that the part makes and does not
 * read are inputs (activations without a producer). It also computes the gradients of the activations that the part
 * receives. */
enum status graph_differentiate_part(struct graph *graph);

/* For rules. */
struct graph *gradients_graph(struct gradients *gradients);
/* The complete gradient of a node's output, NULL when none flows. */
struct tensor *gradient_of(struct gradients *gradients, struct tensor *tensor);
bool gradient_wanted(const struct gradients *gradients, const struct tensor *tensor);
/* The sum over later uses so far, or NULL: what the new node must add to its own contribution. Parameters: always NULL.
 */
struct tensor *gradient_partial(struct gradients *gradients, struct tensor *tensor);
/* The tensor that the new node must write: a fresh activation; columns of the base's gradient if `tensor` is a view; a
 * new accumulator if it is a parameter. */
struct tensor *gradient_target(struct gradients *gradients, struct tensor *tensor);
/* For a parameter: the accumulator of its previous use, if the step has one micro-batch and there is such a use; else
 * as gradient_target. A rule that calls this computes its own sum apart, from zero, and adds it. So the bits equal
 * those of adding two accumulators. */
struct tensor *gradient_joined_target(struct gradients *gradients, struct tensor *parameter);
/* The target now holds the partial and this use's contribution: where there is a partial, the node that writes the
 * target must read it. A rule whose node takes no addend calls gradient_deliver_sum (ir/ops/check.h) instead. */
void gradient_deliver(struct gradients *gradients, struct tensor *tensor, struct tensor *gradient);
/* A contribution that exists already (the gradient of a sum, for each of its terms): shared, not copied. It must be the
 * first of its tensor, which holds since a sum comes after all that is computed from its terms. */
void gradient_contribute(struct gradients *gradients, struct tensor *tensor, struct tensor *gradient);
/* Adds a backward node named "NAME.grad" with `into` as graph_add has it. */
struct node *gradient_add_node(struct gradients *gradients, const struct op *op, const struct node *of,
                               struct tensor *const *in, const void *attributes, struct tensor *const *into);
