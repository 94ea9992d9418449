/* Small training graphs for tests of the compiler, built from operators without a model's files. */
#pragma once

#include "compiler/program.h"
#include "ir/graph.h"
#include "plan/plan.h"

struct small_graph_options {
    int layers;
    bool tied;          /* head and embedding share their weight */
    bool packed_qkv;    /* q, k, v are columns of one product, as in GPT-2; else three products and rotary embedding */
    bool packed_rotary; /* with packed_qkv: rotary embedding of columns, as in Phi-3 */
    enum dtype dtype;
    int64_t micro_batch_sequences, sequence_length;
    int64_t vocabulary; /* 0: 37 */
    bool forward_only;
    bool unclipped; /* updates wait for no norm */
};

/* A decoder-only transformer with hidden size 20, 2 heads and a vocabulary of 37, with loss, gradients and optimizer.
 * Ends the test when it cannot be built. */
struct graph *small_graph_build(const struct small_graph_options *options);

/* Synthetic workspace sizes for tests without kernels: from nothing to a few KiB, by node. Free with mem_free. */
int64_t *small_graph_workspace(const struct graph *graph);

/* A plan for the graph with this many micro-batches a step. */
struct plan small_plan(const struct graph *graph, int64_t micro_batches, int64_t micro_batches_per_wave);

/* Compiles with synthetic workspace on `streams` streams, to which instructions are dealt at random by `seed`. */
struct program *small_program(const struct graph *graph, int64_t micro_batches, int64_t micro_batches_per_wave,
                              int streams, uint64_t seed);
/* The same under a policy, on its own streams. */
struct program *small_program_under(const struct graph *graph, int64_t micro_batches, const struct policy *policy);
/* Deals the nodes of a scheduled program to streams at random, all instructions of a node to one. */
void small_scatter(struct program *program, int streams, uint64_t seed);
