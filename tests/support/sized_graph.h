/* The loss of a new model of a family, in bf16, as a graph of a few sizes. */
#pragma once

#include "model/model.h"

struct sized_graph {
    int64_t layers, hidden, heads, vocab, sequences, length;
};
/* The caller frees. */
struct graph *sized_graph_make(const char *family, const struct sized_graph *sizes);
