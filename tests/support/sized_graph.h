/* The graph of the loss of a new bf16 model of a family, in a few sizes. */
#pragma once

#include "model/model.h"

struct sized_graph {
    int64_t layers, hidden, heads, vocab, sequences, length;
};
/* The caller frees. */
struct graph *sized_graph_make(const char *family, const struct sized_graph *sizes);
