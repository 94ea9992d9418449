/* Graphs of a program's graph segments. They are captured in one go before the second step: the first has loaded what
 * kernels and libraries load when they are first used, which no capture allows, and between steps nothing is under way.
 * What cannot be captured is asked for call by call for good. */
#include "runtime/runner_state.h"

static const struct backend_graphs *graphs_of(const struct runner *runner) {
    return runner->executable->backend->graphs;
}

enum status runner_graph_segments_open(struct runner *runner) {
    if (!graphs_of(runner)) return STATUS_OK;
    TRY(graph_segments_find(runner->executable->program, &runner->graph_segments));
    runner->graphs = mem_array(runner->graph_segments.all.count, sizeof *runner->graphs);
    return runner->graphs ? STATUS_OK : STATUS_FAILED;
}

void runner_graph_segments_close(struct runner *runner) {
    for (size_t s = 0; runner->graphs && s < runner->graph_segments.all.count; s++)
        if (runner->graphs[s]) graphs_of(runner)->free(runner->graphs[s]);
    mem_free(runner->graphs);
    graph_segments_free(&runner->graph_segments);
}

/* The run of the section is any: addresses are the same in all. */
static enum status enqueue_all(struct runner *runner, const struct graph_segment *graph_segment, void *stream) {
    const struct program *program = runner->executable->program;
    int own = program->instructions.items[graph_segment->first].stream;
    enum status status = STATUS_OK;
    for (int32_t i = graph_segment->first; i <= graph_segment->last && status == STATUS_OK; i++) {
        if (program->instructions.items[i].stream != own) continue;
        int32_t last = runner->batches[i];
        if (last > graph_segment->last) last = i;
        status = last == i ? runner_enqueue(runner, &program->instructions.items[i], 0, stream)
                           : runner_enqueue_batch(runner, i, 0, stream);
        i = last;
    }
    return status;
}

/* NULL where it cannot be. */
static void *capture(struct runner *runner, const struct graph_segment *graph_segment) {
    const struct backend_graphs *graphs = graphs_of(runner);
    void *stream = runner->streams[runner->executable->program->instructions.items[graph_segment->first].stream],
         *graph;
    if (graphs->begin(stream) != STATUS_OK) return NULL;
    enum status enqueued = enqueue_all(runner, graph_segment, stream);
    if (graphs->end(stream, &graph) != STATUS_OK) return NULL;
    if (enqueued == STATUS_OK) return graph;
    graphs->free(graph);
    return NULL;
}

void runner_graph_segments_begin(struct runner *runner) {
    bool as_usual = (runner->parts & PART_STEP) && !runner->recorder && !runner->observer && !runner->failed;
    runner->launches = runner->graphs && runner->warm && as_usual;
    if (!runner->launches || runner->captured) return;
    runner->captured = true;
    for (size_t s = 0; s < runner->graph_segments.all.count; s++)
        runner->graphs[s] = capture(runner, &runner->graph_segments.all.items[s]);
}

const struct graph_segment *runner_graph_segment_at(const struct runner *runner, int32_t instruction) {
    if (!runner->launches) return NULL;
    int32_t graph_segment = runner->graph_segments.at[instruction];
    return graph_segment >= 0 && runner->graphs[graph_segment] ? &runner->graph_segments.all.items[graph_segment]
                                                               : NULL;
}

void runner_launch(struct runner *runner, const struct graph_segment *graph_segment, void *stream) {
    const struct instruction *first = &runner->executable->program->instructions.items[graph_segment->first];
    if (runner->failed) return;
    if (graph_segment->changes_state) runner_pass_gate(runner);
    enum status status =
        graphs_of(runner)->launch(runner->graphs[graph_segment - runner->graph_segments.all.items], stream);
    if (status == STATUS_OK) status = runner->executable->backend->streams->check();
    if (runner_name_failure(first, status) != STATUS_OK) runner_keep_failure(runner);
}
