/* What puts tensors into parts and back, for the operations of group_collectives.c.
 *
 * An operation works on parts that lie one after the other, [parts, …], and sums are of fp32. So a call of ops.h is a
 * short chain of nodes: what converts, the operation, what converts back. A conversion that changes nothing takes over
 * its input's bytes. Between the nodes of a chain a gradient has the dtype that it has at the chain's ends: what
 * travels of it is as small as that of the values. */
#ifndef BALLAST_IR_OPS_TENSOR_PARTS_H
#define BALLAST_IR_OPS_TENSOR_PARTS_H

#include "ir/ops/check.h"

/* ---- shapes ---- */

struct shape shape_with_dtype(struct shape shape, enum dtype dtype);
/* [parts, …] of a part's shape […], and the other way round. */
struct shape parts_stacked(const struct shape *part, int64_t parts);
struct shape parts_one_of(const struct shape *stack);
/* The whole of a part, and a part of the whole, whose parts are along a dimension. */
struct shape parts_joined(struct shape part, const struct parts_order *order);
struct shape parts_part_of(struct shape whole, const struct parts_order *order);
/* Whether such parts lie one after the other in memory. */
bool parts_are_stacked(const struct shape *whole, const struct parts_order *order);
/* BAD_INPUT naming input 0 where the whole has no such parts of equal size. */
enum status parts_check(const struct node *node, const struct shape *whole, const struct parts_order *order);
/* For `cost_key` of an operator that has such parts. */
void parts_key(const struct parts_order *order, struct op_key *key);

/* ---- chains ---- */

/* Output 0 of a new node of one input, in forward, and in backward, there in `into` unless that is NULL. */
struct tensor *chain_add(struct graph *graph, const struct op *op, const char *name, struct tensor *x,
                         const void *attributes);
struct tensor *chain_add_backward(struct gradients *gradients, const struct op *op, const struct node *of,
                                  struct tensor *x, const void *attributes, struct tensor *into);
/* The same of op_convert. */
struct tensor *chain_convert(struct graph *graph, const char *name, struct tensor *x, struct shape to);
struct tensor *chain_convert_backward(struct gradients *gradients, const struct node *of, struct tensor *x,
                                      struct shape to, struct tensor *into);
/* The gradient of the node's input is what `op` makes of dy, in dy's dtype. Where the input has another it is within a
 * chain, and has no other use. */
void chain_deliver(struct gradients *gradients, const struct node *node, const struct op *op, struct tensor *dy,
                   const void *attributes);
/* The same where dy has the elements of the gradient in their order. */
void chain_deliver_converted(struct gradients *gradients, const struct node *node, struct tensor *dy);

#endif
