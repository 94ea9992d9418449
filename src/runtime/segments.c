#include "runtime/segments.h"

#include "runtime/runner_state.h"

struct batch {
    int32_t members[KERNELS_TOGETHER];
    int count;
};

static bool operands_clash(const struct program *program, const struct operand *a, const struct operand *b) {
    if (a->buffer < 0 || b->buffer < 0 || (a->access == ACCESS_READ && b->access == ACCESS_READ)) return false;
    const struct buffer *x = &program->buffers.items[a->buffer], *y = &program->buffers.items[b->buffer];
    int64_t x_begin = x->offset + a->offset, y_begin = y->offset + b->offset;
    return x->tier == y->tier && x_begin < y_begin + b->bytes && y_begin < x_begin + a->bytes;
}

static bool instructions_clash(const struct program *program, const struct instruction *a,
                               const struct instruction *b) {
    for (int i = 0; i < OPERANDS_MAX; i++)
        for (int k = 0; k < OPERANDS_MAX; k++)
            if (operands_clash(program, &a->operands[i], &b->operands[k])) return true;
    return false;
}

/* The function that executes several kernels in one call; NULL where the instruction has none. */
static kernel_run_together *together_of(const struct executable *executable, const struct instruction *instruction) {
    bool of_device = instruction->opcode == OPCODE_KERNEL && instruction->tier != TIER_HOST &&
                     !runner_on_host(executable->program, instruction);
    const struct kernel *kernel = of_device ? executable->kernels[instruction->node->id] : NULL;
    return kernel && kernel->workspace_bytes == 0 ? kernel->run_together : NULL;
}

/* Whether the instruction may extend the batch, whose last instruction no other waits for. */
static bool may_join(const struct executable *executable, const struct batch *batch,
                     const struct instruction *instruction) {
    const struct program *program = executable->program;
    if (batch->count == KERNELS_TOGETHER || instruction->wait_count > 0) return false;
    const struct instruction *first = &program->instructions.items[batch->members[0]];
    if (together_of(executable, first) != together_of(executable, instruction)) return false;
    if (first->deferred != instruction->deferred) return false;
    for (int i = 0; i < batch->count; i++)
        if (instructions_clash(program, &program->instructions.items[batch->members[i]], instruction)) return false;
    return true;
}

/* By instruction, whether another waits for it; NULL when out of memory. */
static bool *find_waited(const struct program *program) {
    bool *waited = mem_array(program->instructions.count, sizeof *waited);
    for (size_t i = 0; waited && i < program->instructions.count; i++)
        for (int32_t w = 0; w < program->instructions.items[i].wait_count; w++)
            waited[program->instructions.items[i].waits[w]] = true;
    return waited;
}

static void find_batches(const struct executable *executable, const struct section *section, int stream,
                         const bool *waited, int32_t *last) {
    struct batch batch = {.count = 0};
    for (int32_t i = section->first; i < section->first + section->count; i++) {
        const struct instruction *instruction = &executable->program->instructions.items[i];
        if (instruction->stream != stream) continue;
        if (batch.count > 0 && !may_join(executable, &batch, instruction)) batch.count = 0;
        if (!together_of(executable, instruction)) continue;
        batch.members[batch.count++] = i;
        last[batch.members[0]] = i;
        if (waited[i]) batch.count = 0;
    }
}

enum status batches_find(const struct executable *executable, int32_t **last) {
    const struct program *program = executable->program;
    bool *waited = find_waited(program);
    *last = mem_array(program->instructions.count, sizeof **last);
    enum status status = *last && waited ? STATUS_OK : STATUS_FAILED;
    for (size_t i = 0; status == STATUS_OK && i < program->instructions.count; i++)
        (*last)[i] = (int32_t)i;
    for (size_t s = 0; status == STATUS_OK && s < program->sections.count; s++)
        for (int stream = 0; stream < program->streams; stream++)
            find_batches(executable, &program->sections.items[s], stream, waited, *last);
    mem_free(waited);
    return status;
}

struct finder {
    const struct program *program;
    bool *waited; /* by instruction: another waits for it */
    struct graph_segment open;
    struct graph_segments *out;
};

/* Inputs are at other addresses in each repetition of a section. */
static bool moves_on(const struct program *program, const struct instruction *instruction) {
    if (program->sections.items[instruction->section].repeat == 1) return false;
    for (int k = 0; k < OPERANDS_MAX; k++)
        if (instruction->operands[k].buffer >= 0 && instruction->operands[k].stride != 0) return true;
    return false;
}

static bool can_be_captured(const struct program *program, const struct instruction *instruction) {
    return !instruction->deferred && !opcode_is_collective(instruction->opcode) &&
           !runner_on_host(program, instruction) && !moves_on(program, instruction);
}

static enum status close_graph_segment(struct finder *finder) {
    struct graph_segment graph_segment = finder->open;
    finder->open = (struct graph_segment){0};
    return graph_segment.count < GRAPH_SEGMENT_MIN ? STATUS_OK : vec_push(&finder->out->all, graph_segment);
}

static enum status add_instruction(struct finder *finder, int32_t index) {
    const struct program *program = finder->program;
    const struct instruction *instruction = &program->instructions.items[index];
    bool captured = can_be_captured(program, instruction);
    bool changes_state = runner_changes_state(program, instruction);
    struct graph_segment *open = &finder->open;
    if (!captured || open->changes_state != changes_state || instruction->wait_count > 0)
        TRY(close_graph_segment(finder));
    if (!captured) return STATUS_OK;
    if (open->count++ == 0) open->first = index;
    open->last = index;
    open->runs = program->sections.items[instruction->section].repeat;
    open->changes_state = changes_state;
    return finder->waited[index] ? close_graph_segment(finder) : STATUS_OK;
}

static enum status find_segments(struct finder *finder) {
    const struct program *program = finder->program;
    for (size_t s = 0; s < program->sections.count; s++)
        for (int stream = 0; stream < program->streams; stream++) {
            const struct section *section = &program->sections.items[s];
            for (int32_t i = section->first; i < section->first + section->count; i++)
                if (program->instructions.items[i].stream == stream) TRY(add_instruction(finder, i));
            TRY(close_graph_segment(finder));
        }
    return STATUS_OK;
}

static int compare(const void *a, const void *b) {
    const struct graph_segment *x = a, *y = b;
    if (x->runs != y->runs) return x->runs > y->runs ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

enum status graph_segments_find(const struct program *program, struct graph_segments *out) {
    size_t count = program->instructions.count;
    struct finder finder = {.program = program, .waited = find_waited(program), .out = out};
    *out = (struct graph_segments){.at = mem_array(count, sizeof *out->at)};
    enum status status;
    TRY_GOTO(status, out->at && finder.waited ? STATUS_OK : STATUS_FAILED, done);
    memset(out->at, -1, count * sizeof *out->at);
    TRY_GOTO(status, find_segments(&finder), done);
    if (out->all.count > 1) qsort(out->all.items, out->all.count, sizeof *out->all.items, compare);
    for (size_t s = 0; s < out->all.count; s++)
        out->at[out->all.items[s].first] = (int32_t)s;
done:
    mem_free(finder.waited);
    return status;
}

void graph_segments_free(struct graph_segments *graph_segments) {
    vec_free(&graph_segments->all);
    mem_free(graph_segments->at);
    *graph_segments = (struct graph_segments){0};
}

/* Graphs of a program's graph segments. They are captured together before the second step. The first step has loaded
 * the code that kernels and libraries load at first use, which a capture does not allow. Between steps no work is in
 * flight. Segments that cannot be captured are enqueued call by call from then on. */

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
        status = runner_enqueue(runner, i, last, 0, stream);
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
