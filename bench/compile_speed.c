/* Measures the time to compile a training step, by compiler pass. A search compiles several steps before a run starts.
 *
 *     build/bench/compile_speed [RUNS]
 *
 * Uses models without weights: a tiny one, GPT-2 with 12 layers and GPT-3 with 96. Compiles each with the plain policy,
 * and with a policy that recomputes layers and keeps everything possible on the disk, with waves of 1 or 8
 * micro-batches. Reports processor time, the minimum over the runs. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/backend.h"
#include "base/terminal.h"
#include "compiler/program.h"
#include "plan/chunks.h"
#include "support/block_chunks.h"
#include "support/step_graph.h"

static const struct step_graph_size sizes[] = {
    {"tiny", 2, 64, 2, 512, 64, 8},
    {"12 layers, hidden 768", 12, 768, 12, 50257, 1024, 8},
    {"96 layers, hidden 12288", 96, 12288, 96, 50257, 2048, 8},
};

static const struct way {
    const char *name;
    bool streams;
    int64_t micro_batches_per_wave;
} ways[] = {{"plain", false, 1}, {"streaming", true, 1}, {"streaming, 8 micro-batches a wave", true, 8}};

enum wave { SCHEDULE, MOVE, PLACE, SYNCHRONISE, VERIFY, WAVES };

static enum status choose_policy(const struct graph *graph, const struct way *way, struct policy *out) {
    *out = (struct policy){.micro_batches_per_wave = way->micro_batches_per_wave};
    if (!way->streams) return STATUS_OK;
    out->parameters = out->gradients = out->optimizer = TIER_DISK;
    out->lookahead = 1;
    int32_t blocks = graph_count_blocks(graph);
    size_t used = (size_t)snprintf(out->schedule, sizeof out->schedule, "f0-%d d0-%d", blocks - 1, blocks - 2);
    for (int32_t i = blocks; i-- > 0;)
        used += (size_t)snprintf(out->schedule + used, sizeof out->schedule - used,
                                 i > 0 && i < blocks - 1 ? " f%d b%d" : " b%d", i, i);
    struct chunk_list chunks;
    int64_t bytes, min;
    TRY(chunks_choose_bytes(graph, &bytes));
    TRY(chunks_pack(graph, bytes, &chunks));
    TRY(max_chunks_in_a_block(graph, &chunks, 0, &min));
    chunks_free(&chunks);
    out->buffers = min + 2;
    return STATUS_OK;
}

static enum status compile_once(const struct graph *graph, const struct plan *plan,
                                const struct workspace_table *workspace, double seconds[WAVES], size_t counts[2]) {
    struct program *program;
    double times[WAVES + 1];
    times[SCHEDULE] = step_graph_now_s();
    TRY(program_schedule(graph, plan, workspace, &program));
    times[MOVE] = step_graph_now_s();
    enum status status = program_gather(program, &plan->policy);
    if (status == STATUS_OK) status = program_move(program, &plan->policy);
    times[PLACE] = step_graph_now_s();
    if (status == STATUS_OK) status = program_place(program);
    times[SYNCHRONISE] = step_graph_now_s();
    if (status == STATUS_OK) status = program_synchronise(program);
    times[VERIFY] = step_graph_now_s();
    if (status == STATUS_OK) status = program_verify(program);
    times[WAVES] = step_graph_now_s();
    for (int wave = 0; wave < WAVES; wave++)
        seconds[wave] = fmin(seconds[wave], times[wave + 1] - times[wave]);
    counts[0] = program->instructions.count;
    counts[1] = program->buffers.count;
    program_free(program);
    return status;
}

static enum status measure(const struct step_graph_size *size, const struct graph *graph,
                           const struct workspace_table *workspace, const struct way *way, int runs) {
    struct plan plan = {.recipe = {.dtype = graph->dtype,
                                   .batch = size->micro_batches,
                                   .sequence_length = size->sequence,
                                   .micro_batch_sequences = 1},
                        .threads = 1};
    double seconds[WAVES] = {INFINITY, INFINITY, INFINITY, INFINITY, INFINITY}, sum = 0;
    size_t counts[2];
    TRY(choose_policy(graph, way, &plan.policy));
    for (int run = 0; run < runs; run++)
        TRY(compile_once(graph, &plan, workspace, seconds, counts));
    for (int wave = 0; wave < WAVES; wave++)
        sum += seconds[wave];
    printf("  %-27s %6zu %6zu %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f\n", way->name, counts[0], counts[1],
           1e3 * seconds[SCHEDULE], 1e3 * seconds[MOVE], 1e3 * seconds[PLACE], 1e3 * seconds[SYNCHRONISE],
           1e3 * seconds[VERIFY], 1e3 * sum);
    return STATUS_OK;
}

static enum status measure_size(const struct step_graph_size *size, int runs) {
    struct graph *graph;
    double start = step_graph_now_s();
    TRY(step_graph_build(size, &graph));
    printf("%s: %zu nodes, graph in %.1f ms\n", size->name, graph->nodes.count, 1e3 * (step_graph_now_s() - start));
    printf("  %-27s %6s %6s %8s %8s %8s %8s %8s %8s ms\n", "", "instr.", "buff.", "schedule", "move", "place",
           "synchr.", "verify", "all");
    int64_t *bytes = mem_array(graph->nodes.count, sizeof *bytes);
    enum status status = bytes ? STATUS_OK : STATUS_FAILED;
    /* About the workspace of attention kernels. Its size does not affect compile times. */
    for (size_t n = 0; n < graph->nodes.count && bytes; n++)
        bytes[n] = n % 4 == 0 ? size->hidden * size->sequence : 0;
    struct workspace_table workspace = {.bytes = bytes, .count = (int)graph->nodes.count};
    for (size_t i = 0; i < sizeof ways / sizeof *ways && status == STATUS_OK; i++)
        status = measure(size, graph, &workspace, &ways[i], runs);
    mem_free(bytes);
    graph_free(graph);
    return status;
}

int main(int count, char **arguments) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    int runs = count > 1 ? atoi(arguments[1]) : 3;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (measure_size(&sizes[i], runs > 0 ? runs : 1) != STATUS_OK) {
            fprintf(stderr, "compile_speed: %s: %s\n", sizes[i].name, status_message());
            return 1;
        }
    return 0;
}
