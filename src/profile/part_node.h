/* Large operators are measured on a part of their tokens or of their vocabulary: a GEMM of a model with billions of
 * parameters takes seconds, which would make starts slow. */
#pragma once

#include "profile/operands.h"

enum { PARTS_MAX = 2 };

/* The dimensions of a part; 0: the node's own. */
struct part {
    int64_t tokens; /* of the micro-batch, as one sequence */
    int64_t vocab;  /* rows of the head's weight or of the embedding's table */
};

/* How a node is measured: as it is (`count` 0), or by parts of it. With W the FLOPs of the node, its cost is that of
 * - two parts: on the line through them at W;
 * - one part: in proportion to W; the same where the operator has no FLOPs (an embedding reads the rows of its tokens,
 *   however many others there are).
 * GEMMs and attention have two, since a part of what they do (packing weights, adding gradients) does not depend on
 * the tokens; the head has one, as it works tile by tile. */
struct parts {
    int count;
    struct part part[PARTS_MAX]; /* the smaller one first */
};

/* Nodes with at most `large_flops` are measured whole; 0: all are. */
struct parts parts_of(const struct node *node, double large_flops);

/* The same operator on a part. Its tensors are its own; it must not be moved. */
struct part_node {
    struct node node;
    struct tensor tensors[OPERAND_COUNT], bases[OPERAND_COUNT];
    struct operands operands;
    _Alignas(max_align_t) char attributes[OP_ATTRIBUTES_BYTES_MAX]; /* where they hold the table's rows */
};
void part_node_make(const struct operands *operands, const struct part *part, struct part_node *out);

/* Seconds of a node from those of its parts. */
double parts_seconds(const struct operands *operands, const struct parts *parts, const double seconds[PARTS_MAX]);
