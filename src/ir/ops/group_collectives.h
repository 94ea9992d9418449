/* Chains of nodes around a collective, for operators that make collectives themselves (op.collective_parts).
 *
 * An operation works on parts that lie one after the other, [parts, …], and sums are of fp32. So a call of ops.h is a
 * short chain of nodes: what converts, the operation, what converts back. A conversion that changes nothing takes over
 * its input's bytes. Between the nodes of a chain a gradient has the dtype that it has at the chain's ends: what
 * travels of it is as small as that of the values. */
#pragma once

#include "ir/ops/check.h"

/* The shape of one part of [parts, …]. */
struct shape parts_one_of(const struct shape *stack);

/* Output 0 of a new node of one input, in forward, and in backward, there in `into` unless that is NULL. */
struct tensor *chain_add(struct graph *graph, const struct op *op, const char *name, struct tensor *x,
                         const void *attributes);
/* The same of op_convert. */
struct tensor *chain_convert(struct graph *graph, const char *name, struct tensor *x, struct shape to);
