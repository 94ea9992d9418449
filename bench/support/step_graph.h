/* Graphs of training steps like GPT-2's without weights, and the time of one thread, for benchmarks of the compiler. */
#pragma once

#include "ir/graph.h"

struct step_graph_size {
    const char *name;
    int64_t layers, hidden, heads, vocabulary, sequence, micro_batches;
};

/* Forward alone, in bf16, a micro-batch of so many sequences. The caller frees with graph_free. */
enum status step_graph_forward(const struct step_graph_size *size, int64_t sequences, struct graph **out,
                               struct tensor **loss);
/* In bf16, micro-batches of one sequence, AdamW and clipping included. The caller frees with graph_free. */
enum status step_graph_build(const struct step_graph_size *size, struct graph **out);

/* Processor time of this thread alone: one thread compiles, and others may be busy. */
double step_graph_now_s(void);
