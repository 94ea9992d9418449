#include "run/runner_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"

void *runner_operand(const struct runner *runner, const struct operand *operand, int64_t run) {
    if (operand->buffer < 0) return NULL;
    const struct buffer *buffer = &runner->executable->program->buffers.items[operand->buffer];
    char *base = runner->arenas[buffer->tier].base;
    return base ? base + buffer->offset + operand->offset + run * operand->stride : NULL;
}

/* Copies are filled from their homes without changing them. */
static bool changes_state(const struct program *program, const struct instruction *instruction) {
    for (int i = 0; i < OPERANDS_MAX; i++) {
        const struct operand *operand = &instruction->operands[i];
        if (operand->buffer < 0 || operand->access == ACCESS_READ) continue;
        const struct buffer *buffer = &program->buffers.items[operand->buffer];
        bool state = buffer->kind == BUFFER_PARAMETERS || buffer->kind == BUFFER_OPTIMIZER;
        if (state && buffer->home < 0) return true;
    }
    return false;
}

static void run_kernel(struct runner *runner, const struct instruction *instruction, int64_t run) {
    struct kernel_call call = {.scalars = instruction->deferred ? runner->left : runner->scalars};
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        call.in[i] = runner_operand(runner, &instruction->operands[i], run);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        call.out[i] = runner_operand(runner, &instruction->operands[OP_INPUTS_MAX + i], run);
    call.workspace = runner_operand(runner, &instruction->operands[OPERAND_WORKSPACE], run);
    const struct kernel *kernel = runner->executable->kernels[instruction->node->id];
    kernel->run(kernel, &call);
}

static enum status run_copy(struct runner *runner, const struct instruction *instruction) {
    const struct program *program = runner->executable->program;
    const struct buffer *from = &program->buffers.items[instruction->operands[0].buffer];
    const struct buffer *to = &program->buffers.items[instruction->operands[OP_INPUTS_MAX].buffer];
    const struct arena *source = &runner->arenas[from->tier], *target = &runner->arenas[to->tier];
    if (target->base)
        return arena_read(source, from->offset, (char *)target->base + to->offset,
                          program_moved_bytes(program, from->bytes), instruction->stream);
    return arena_write(target, to->offset, (const char *)source->base + from->offset,
                       program_moved_bytes(program, from->bytes), instruction->stream);
}

static void keep_failure(struct runner *runner) {
    pthread_mutex_lock(&runner->lock);
    if (!runner->failed) {
        snprintf(runner->message, sizeof runner->message, "%s", status_message());
        snprintf(runner->hint, sizeof runner->hint, "%s", status_hint_text());
    }
    runner->failed = true;
    pthread_mutex_unlock(&runner->lock);
}

enum status runner_status(struct runner *runner) {
    if (!runner->failed) return STATUS_OK;
    enum status status = status_set(STATUS_FAILED, "%s", runner->message);
    return runner->hint[0] ? status_hint(status, "%s", runner->hint) : status;
}

static bool leaves_out(const struct runner *runner, const struct instruction *instruction) {
    return !(runner->parts & (instruction->deferred ? PART_DEFERRED : PART_STEP));
}

void runner_run_instruction(struct runner *runner, const struct instruction *instruction, int64_t run) {
    if (leaves_out(runner, instruction) || runner->failed) return;
    if (runner->gate && changes_state(runner->executable->program, instruction)) runner->gate(runner->gate_payload);
    const struct operand *target = &instruction->operands[OP_INPUTS_MAX];
    switch (instruction->opcode) {
    case OPCODE_KERNEL: run_kernel(runner, instruction, run); return;
    case OPCODE_ZERO: runner->executable->backend->zero(runner_operand(runner, target, run), target->bytes); return;
    case OPCODE_COPY:
        if (run_copy(runner, instruction) != STATUS_OK) keep_failure(runner);
        return;
    }
}

/* Each issue has an event of its own, which no other thread touches. */
static void record(const struct runner *runner, int32_t index, int64_t run, int64_t start_ns) {
    const struct instruction *instruction = &runner->executable->program->instructions.items[index];
    int64_t end_ns = leaves_out(runner, instruction) ? start_ns : clock_now_ns();
    struct timeline_event *event = timeline_find(runner->recorder, index, run);
    event->start_s = (double)(start_ns - runner->began_ns) * 1e-9;
    event->end_s = (double)(end_ns - runner->began_ns) * 1e-9;
}

static void run_issue(struct runner *runner, int32_t index, int64_t run) {
    bool recorded = runner->recorder && (runner->parts & PART_STEP);
    int64_t start_ns = recorded ? clock_now_ns() : 0;
    runner_run_instruction(runner, &runner->executable->program->instructions.items[index], run);
    if (recorded) record(runner, index, run, start_ns);
}

static void run_in_order(struct runner *runner) {
    const struct program *program = runner->executable->program;
    for (size_t s = 0; s < program->sections.count; s++) {
        const struct section *section = &program->sections.items[s];
        for (int64_t run = 0; run < section->repeat; run++)
            for (int32_t i = section->first; i < section->first + section->count; i++) {
                run_issue(runner, i, run);
                if (runner->observer) runner->observer(runner->observer_payload, runner, i, run);
            }
    }
}

static void await(struct runner *runner, int32_t instruction, int64_t step, int64_t run) {
    const struct program *program = runner->executable->program;
    const struct instruction *self = &program->instructions.items[instruction];
    for (int32_t w = 0; w < self->wait_count; w++) {
        int64_t required = program_issues_required(program, self->waits[w], instruction, step, run);
        while (runner->ended[self->waits[w]] < required)
            pthread_cond_wait(&runner->changed, &runner->lock);
    }
}

static void run_stream_step(struct runner *runner, int stream, int64_t step) {
    const struct program *program = runner->executable->program;
    for (size_t s = 0; s < program->sections.count; s++) {
        const struct section *section = &program->sections.items[s];
        for (int64_t run = 0; run < section->repeat; run++)
            for (int32_t i = section->first; i < section->first + section->count; i++) {
                if (program->instructions.items[i].stream != stream) continue;
                pthread_mutex_lock(&runner->lock);
                await(runner, i, step, run);
                pthread_mutex_unlock(&runner->lock);
                run_issue(runner, i, run);
                pthread_mutex_lock(&runner->lock);
                runner->ended[i]++;
                pthread_cond_broadcast(&runner->changed);
                pthread_mutex_unlock(&runner->lock);
            }
    }
}

static bool has_kernels(const struct program *program, int stream) {
    for (size_t i = 0; i < program->instructions.count; i++)
        if (program->instructions.items[i].stream == stream && program->instructions.items[i].opcode != OPCODE_COPY)
            return true;
    return false;
}

static void *work(void *argument) {
    struct worker *worker = argument;
    struct runner *runner = worker->runner;
    if (has_kernels(runner->executable->program, worker->stream))
        runner->executable->backend->set_threads(runner->executable->threads);
    for (int64_t step = 0;; step++) {
        pthread_mutex_lock(&runner->lock);
        while (runner->steps_begun == step && !runner->stopping)
            pthread_cond_wait(&runner->changed, &runner->lock);
        bool stop = runner->steps_begun == step;
        pthread_mutex_unlock(&runner->lock);
        if (stop) return NULL;
        run_stream_step(runner, worker->stream, step);
        pthread_mutex_lock(&runner->lock);
        runner->steps_ended[worker->stream]++;
        pthread_cond_broadcast(&runner->changed);
        pthread_mutex_unlock(&runner->lock);
    }
}

static void run_on_workers(struct runner *runner) {
    pthread_mutex_lock(&runner->lock);
    int64_t steps = ++runner->steps_begun;
    pthread_cond_broadcast(&runner->changed);
    for (int s = 0; s < runner->executable->program->streams; s++)
        while (runner->steps_ended[s] < steps)
            pthread_cond_wait(&runner->changed, &runner->lock);
    pthread_mutex_unlock(&runner->lock);
}

void runner_begin(struct runner *runner, int parts, const double *scalars) {
    runner->scalars = scalars;
    runner->parts = parts | (runner->pending ? PART_DEFERRED : 0);
    runner->began_ns = clock_now_ns();
}

void runner_end(struct runner *runner) {
    bool stepped = runner->parts & PART_STEP;
    runner->pending = stepped && runner->executable->program->defers;
    if (stepped) memcpy(runner->left, runner->scalars, sizeof runner->left);
    if (stepped && runner->recorder) timeline_end(runner->recorder);
}

static enum status run_parts(struct runner *runner, int parts, const double *scalars) {
    runner_begin(runner, parts, scalars);
    if (runner->executable->program->streams == 1 || runner->observer)
        run_in_order(runner);
    else
        run_on_workers(runner);
    runner_end(runner);
    return runner_status(runner);
}

enum status runner_step(struct runner *runner, const double *scalars) { return run_parts(runner, PART_STEP, scalars); }

enum status runner_finish(struct runner *runner) {
    return runner->pending ? run_parts(runner, 0, NULL) : runner_status(runner);
}

static enum status start_workers(struct runner *runner) {
    int streams = runner->executable->program->streams;
    for (int s = 0; s < streams && streams > 1; s++) {
        struct worker *worker = &runner->workers[s];
        *worker = (struct worker){.runner = runner, .stream = s};
        int error = fault_point(FAULT_SUBMIT) ? errno : pthread_create(&worker->thread, NULL, work, worker);
        if (error) return status_set(STATUS_FAILED, "cannot start a worker thread: %s", strerror(error));
        worker->started = true;
    }
    return STATUS_OK;
}

static enum status make_room(struct runner *runner) {
    const struct program *program = runner->executable->program;
    runner->ended = mem_array(program->instructions.count, sizeof *runner->ended);
    if (program->tier_bytes[TIER_DISK] > 0 && runner->ended) {
        runner->window = mem_aligned(DISK_ALIGNMENT, RUNNER_WINDOW_BYTES);
        return runner->window ? STATUS_OK : STATUS_FAILED;
    }
    return runner->ended ? STATUS_OK : STATUS_FAILED;
}

enum status runner_create(const struct executable *executable, const struct arena *arenas, struct runner **out) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        BUG_IF(arenas[tier].bytes < executable->program->tier_bytes[tier], "an arena smaller than its program");
    struct runner *runner = mem_array(1, sizeof *runner);
    if (!runner) return STATUS_FAILED;
    *runner = (struct runner){.executable = executable, .arenas = arenas};
    pthread_mutex_init(&runner->lock, NULL);
    pthread_cond_init(&runner->changed, NULL);
    enum status status = make_room(runner);
    if (status == STATUS_OK) status = start_workers(runner);
    if (status != STATUS_OK) {
        runner_free(runner);
        return status;
    }
    *out = runner;
    return STATUS_OK;
}

void runner_free(struct runner *runner) {
    if (!runner) return;
    pthread_mutex_lock(&runner->lock);
    runner->stopping = true;
    pthread_cond_broadcast(&runner->changed);
    pthread_mutex_unlock(&runner->lock);
    for (int s = 0; s < STREAMS_MAX; s++)
        if (runner->workers[s].started) pthread_join(runner->workers[s].thread, NULL);
    pthread_mutex_destroy(&runner->lock);
    pthread_cond_destroy(&runner->changed);
    mem_free(runner->ended);
    mem_free(runner->window);
    mem_free(runner);
}

void runner_set_gate(struct runner *runner, runner_gate *gate, void *payload) {
    runner->gate = gate;
    runner->gate_payload = payload;
}

void runner_set_observer(struct runner *runner, runner_observer *observer, void *payload) {
    runner->observer = observer;
    runner->observer_payload = payload;
}

void runner_set_recorder(struct runner *runner, struct timeline *timeline) {
    runner->recorder = timeline;
    if (timeline) timeline->measured = true;
}
