/* The cost of operators that go once over a parameter (norm, sum of gradients, update): measured at a few sizes and
 * interpolated, since a model has many sizes, some of them gigabytes. */
#pragma once

#include "profile/operands.h"

enum { CURVE_POINTS = 3 };
extern const int64_t curve_elements[CURVE_POINTS];

bool curve_fits(const struct node *node);
/* Elements of the parameter. */
int64_t curve_size(const struct node *node);

/* The same operator on a parameter of another size. Its tensors are its own; it must not be moved. */
struct curve_node {
    struct node node;
    struct tensor tensors[OPERAND_COUNT];
    struct operands operands;
};
void curve_node_make(const struct operands *operands, int64_t elements, struct curve_node *out);

/* Linear between two points; below the first equal to it, above the last in proportion. */
double curve_seconds(const double seconds[CURVE_POINTS], int64_t elements);
