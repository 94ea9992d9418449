/* Counts, for each policy, the calls of a training step that CUDA graphs replace (src/runtime/segments.h). Needs no
 * GPU.
 *
 *     build/bench/graph_launches
 *
 * Uses GPT-2 124M without weights and 8 micro-batches. Counts the remaining single calls by operator or kind. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/terminal.h"
#include "compiler/program.h"
#include "plan/chunks.h"
#include "runtime/segments.h"
#include "support/block_chunks.h"
#include "support/step_graph.h"

static const struct step_graph_size size = {"GPT-2 124M", 12, 768, 12, 50257, 1024, 8};

static const struct way {
    const char *name;
    int64_t micro_batches_per_wave;
    enum tier states; /* parameters, gradients and optimizer state */
    enum tier update;
} ways[] = {
    {"all on the device", 1, TIER_DEVICE, TIER_DEVICE},
    {"all on the device, 8 micro-batches a wave", 8, TIER_DEVICE, TIER_DEVICE},
    {"states on the host, updates on the device", 1, TIER_HOST, TIER_DEVICE},
    {"states and updates on the host", 1, TIER_HOST, TIER_HOST},
};

static enum status choose_policy(const struct graph *graph, const struct way *way, struct policy *out) {
    struct chunk_list chunks;
    int64_t bytes, min;
    *out = (struct policy){.micro_batches_per_wave = way->micro_batches_per_wave};
    if (way->states == TIER_DEVICE) return STATUS_OK;
    out->parameters = out->gradients = out->optimizer = way->states;
    out->update = way->update;
    out->lookahead = 1;
    TRY(chunks_choose_bytes(graph, &bytes));
    TRY(chunks_pack(graph, bytes, &chunks));
    enum status status = max_chunks_in_a_block(graph, &chunks, 0, &min);
    chunks_free(&chunks);
    out->buffers = min + 2;
    return status;
}

/* Calls outside of graph segments, by name. */
struct rest {
    const char *name;
    int64_t calls;
};
enum { NAMES_MAX = 64 };

static void add(struct rest rest[NAMES_MAX], const char *name, int64_t calls) {
    int i = 0;
    while (rest[i].name && strcmp(rest[i].name, name) != 0)
        i++;
    rest[i].name = name;
    rest[i].calls += calls;
}

static const char *name_of(const struct instruction *instruction) {
    if (instruction->opcode == OPCODE_KERNEL) return instruction->node->op->name;
    return instruction->opcode == OPCODE_ZERO ? "zeros" : "copies";
}

static int by_calls(const void *a, const void *b) {
    const struct rest *x = a, *y = b;
    return (x->calls < y->calls) - (x->calls > y->calls);
}

static enum status count(const struct way *way, const struct program *program) {
    struct rest rest[NAMES_MAX] = {{0}};
    struct graph_segments graph_segments;
    int64_t calls = 0, held = 0, launches = 0;
    bool *within = mem_array(program->instructions.count, sizeof *within);
    if (!within) return STATUS_FAILED;
    TRY(graph_segments_find(program, &graph_segments));
    for (size_t s = 0; s < graph_segments.all.count; s++) {
        const struct graph_segment *graph_segment = &graph_segments.all.items[s];
        int stream = program->instructions.items[graph_segment->first].stream;
        for (int32_t i = graph_segment->first; i <= graph_segment->last; i++)
            if (program->instructions.items[i].stream == stream) within[i] = true;
        launches += graph_segment->runs;
        held += graph_segment->runs * graph_segment->count;
    }
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        int64_t repeat = program->sections.items[instruction->section].repeat;
        calls += repeat;
        if (!within[i]) add(rest, name_of(instruction), repeat);
    }
    printf("%s\n  %" PRId64 " of %" PRId64 " calls in %" PRId64 " launches; alone:", way->name, held, calls, launches);
    qsort(rest, NAMES_MAX, sizeof *rest, by_calls);
    for (int i = 0; i < NAMES_MAX && rest[i].name; i++)
        printf(" %s %" PRId64, rest[i].name, rest[i].calls);
    printf("\n");
    graph_segments_free(&graph_segments);
    mem_free(within);
    return STATUS_OK;
}

static enum status count_way(const struct graph *graph, const struct way *way) {
    struct plan plan = {.recipe = {.dtype = graph->dtype,
                                   .batch = size.micro_batches,
                                   .sequence_length = size.sequence,
                                   .micro_batch_sequences = 1},
                        .threads = 1};
    struct program *program;
    TRY(choose_policy(graph, way, &plan.policy));
    int64_t *bytes = mem_array(graph->nodes.count, sizeof *bytes);
    if (!bytes) return STATUS_FAILED;
    struct workspace_table workspace = {.bytes = bytes, .count = (int)graph->nodes.count};
    enum status status = program_compile(graph, &plan, &workspace, NULL, &program);
    mem_free(bytes);
    TRY(status);
    status = count(way, program);
    program_free(program);
    return status;
}

int main(void) {
    struct graph *graph;
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    enum status status = step_graph_build(&size, &graph);
    for (size_t i = 0; i < sizeof ways / sizeof *ways && status == STATUS_OK; i++)
        status = count_way(graph, &ways[i]);
    if (status != STATUS_OK) fprintf(stderr, "graph_spans: %s\n", status_message());
    graph_free(graph);
    return status;
}
