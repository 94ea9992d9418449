/* Graphs of a program's spans. They are captured in one go before the second step: the first has loaded what kernels
 * and libraries load when they are first used, which no capture allows, and between steps nothing is under way. What
 * cannot be captured is asked for call by call for good. */
#include "runtime/runner_state.h"

static const struct backend_graphs *graphs_of(const struct runner *runner) {
    return runner->executable->backend->graphs;
}

enum status runner_spans_open(struct runner *runner) {
    if (!graphs_of(runner)) return STATUS_OK;
    TRY(spans_find(runner->executable->program, &runner->spans));
    runner->graphs = mem_array(runner->spans.all.count, sizeof *runner->graphs);
    return runner->graphs ? STATUS_OK : STATUS_FAILED;
}

void runner_spans_close(struct runner *runner) {
    for (size_t s = 0; runner->graphs && s < runner->spans.all.count; s++)
        if (runner->graphs[s]) graphs_of(runner)->free(runner->graphs[s]);
    mem_free(runner->graphs);
    spans_free(&runner->spans);
}

/* The run of the section is any: addresses are the same in all. */
static enum status enqueue_all(struct runner *runner, const struct span *span, void *stream) {
    const struct program *program = runner->executable->program;
    int own = program->instructions.items[span->first].stream;
    enum status status = STATUS_OK;
    for (int32_t i = span->first; i <= span->last && status == STATUS_OK; i++) {
        if (program->instructions.items[i].stream != own) continue;
        int32_t last = runner->batches[i];
        if (last > span->last) last = i;
        status = last == i ? runner_enqueue(runner, &program->instructions.items[i], 0, stream)
                           : runner_enqueue_batch(runner, i, 0, stream);
        i = last;
    }
    return status;
}

/* NULL where it cannot be. */
static void *capture(struct runner *runner, const struct span *span) {
    const struct backend_graphs *graphs = graphs_of(runner);
    void *stream = runner->streams[runner->executable->program->instructions.items[span->first].stream], *graph;
    if (graphs->begin(stream) != STATUS_OK) return NULL;
    enum status enqueued = enqueue_all(runner, span, stream);
    if (graphs->end(stream, &graph) != STATUS_OK) return NULL;
    if (enqueued == STATUS_OK) return graph;
    graphs->free(graph);
    return NULL;
}

void runner_spans_begin(struct runner *runner) {
    bool as_usual = (runner->parts & PART_STEP) && !runner->recorder && !runner->observer && !runner->failed;
    runner->launches = runner->graphs && runner->warm && as_usual;
    if (!runner->launches || runner->captured) return;
    runner->captured = true;
    for (size_t s = 0; s < runner->spans.all.count; s++)
        runner->graphs[s] = capture(runner, &runner->spans.all.items[s]);
}

const struct span *runner_span_at(const struct runner *runner, int32_t instruction) {
    if (!runner->launches) return NULL;
    int32_t span = runner->spans.at[instruction];
    return span >= 0 && runner->graphs[span] ? &runner->spans.all.items[span] : NULL;
}

void runner_launch(struct runner *runner, const struct span *span, void *stream) {
    const struct instruction *first = &runner->executable->program->instructions.items[span->first];
    if (runner->failed) return;
    if (span->changes_state) runner_pass_gate(runner);
    enum status status = graphs_of(runner)->launch(runner->graphs[span - runner->spans.all.items], stream);
    if (status == STATUS_OK) status = runner->executable->backend->streams->check();
    if (runner_name_failure(first, status) != STATUS_OK) runner_keep_failure(runner);
}
