/* A graph in which two nodes may overwrite their input (node_in_place_input), and each other node may not. Those
 * read an input of the step, have no such operand, have the operand twice, leave it to a later reader, or the
 * operand is kept. */
#pragma once

#include <string.h>

#include "ir/ops/ops.h"

static inline struct graph *in_place_graph(void) {
    struct graph *graph = graph_create(DTYPE_F32, 1, 4);
    graph_begin_block(graph, "layer");
    struct tensor *x = graph_tensor(graph, TENSOR_INPUT, "x", shape_make(DTYPE_F32, 3, 1, 4, 8));
    struct tensor *weight = graph_parameter(graph, "weight", 2, 8, 8);
    struct tensor *of_input = ops_scale(graph, "of an input", x, 2);
    struct tensor *product =
        ops_linear(graph, "product", of_input, weight, NULL, NULL, (struct linear_attributes){.weight_is_kn = false});
    struct tensor *twice = ops_add(graph, "both operands", product, product);
    struct tensor *read_later = ops_scale(graph, "in place", twice, 2);
    struct tensor *copy = ops_scale(graph, "read later", read_later, 2);
    struct tensor *sum = ops_add(graph, "also in place", copy, read_later);
    struct tensor *kept = ops_scale(graph, "kept", sum, 2);
    if (kept) kept->kept = true;
    return graph;
}

static inline bool in_place_expected(const struct node *node) {
    return strcmp(node->name, "in place") == 0 || strcmp(node->name, "also in place") == 0;
}
