#include "run/runner_state.h"

#include <string.h>

void *runner_operand(const struct runner *runner, const struct operand *operand, int64_t run) {
    if (operand->buffer < 0) return NULL;
    const struct buffer *buffer = &runner->executable->program->buffers.items[operand->buffer];
    return (char *)runner->arena->base + buffer->offset + operand->offset + run * operand->stride;
}

static bool changes_state(const struct program *program, const struct instruction *instruction) {
    for (int i = 0; i < OPERANDS_MAX; i++) {
        const struct operand *operand = &instruction->operands[i];
        if (operand->buffer < 0 || operand->access == ACCESS_READ) continue;
        enum buffer_kind kind = program->buffers.items[operand->buffer].kind;
        if (kind == BUFFER_PARAMETERS || kind == BUFFER_OPTIMIZER) return true;
    }
    return false;
}

void runner_run_instruction(struct runner *runner, const struct instruction *instruction, int64_t run) {
    const struct executable *executable = runner->executable;
    if (runner->gate && changes_state(executable->program, instruction)) runner->gate(runner->gate_payload);
    if (instruction->opcode == OPCODE_ZERO) {
        executable->backend->zero(runner_operand(runner, &instruction->operands[0], run),
                                  instruction->operands[0].bytes);
        return;
    }
    struct kernel_call call = {.scalars = runner->scalars};
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        call.in[i] = runner_operand(runner, &instruction->operands[i], run);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        call.out[i] = runner_operand(runner, &instruction->operands[OP_INPUTS_MAX + i], run);
    call.workspace = runner_operand(runner, &instruction->operands[OPERAND_WORKSPACE], run);
    const struct kernel *kernel = executable->kernels[instruction->node->id];
    kernel->run(kernel, &call);
}

int64_t runner_required(const struct program *program, int32_t waited, int32_t instruction, int64_t step, int64_t run) {
    const struct section *theirs = &program->sections.items[program->instructions.items[waited].section];
    int section = program->instructions.items[instruction].section;
    int their_section = program->instructions.items[waited].section;
    int64_t this_step = their_section < section ? theirs->repeat : 0;
    if (their_section == section) this_step = run + (waited < instruction);
    return step * theirs->repeat + this_step;
}

static void run_in_order(struct runner *runner) {
    const struct program *program = runner->executable->program;
    for (size_t s = 0; s < program->sections.count; s++) {
        const struct section *section = &program->sections.items[s];
        for (int64_t run = 0; run < section->repeat; run++)
            for (int32_t i = section->first; i < section->first + section->count; i++) {
                runner_run_instruction(runner, &program->instructions.items[i], run);
                if (runner->observer) runner->observer(runner->observer_payload, runner, i, run);
            }
    }
}

static void await(struct runner *runner, int32_t instruction, int64_t step, int64_t run) {
    const struct program *program = runner->executable->program;
    const struct instruction *self = &program->instructions.items[instruction];
    for (int32_t w = 0; w < self->wait_count; w++) {
        int64_t required = runner_required(program, self->waits[w], instruction, step, run);
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
                runner_run_instruction(runner, &program->instructions.items[i], run);
                pthread_mutex_lock(&runner->lock);
                runner->ended[i]++;
                pthread_cond_broadcast(&runner->changed);
                pthread_mutex_unlock(&runner->lock);
            }
    }
}

static void *work(void *argument) {
    struct worker *worker = argument;
    struct runner *runner = worker->runner;
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

enum status runner_step(struct runner *runner, const double *scalars) {
    int streams = runner->executable->program->streams;
    runner->scalars = scalars;
    if (streams == 1) {
        run_in_order(runner);
        return STATUS_OK;
    }
    pthread_mutex_lock(&runner->lock);
    int64_t steps = ++runner->steps_begun;
    pthread_cond_broadcast(&runner->changed);
    for (int s = 0; s < streams; s++)
        while (runner->steps_ended[s] < steps)
            pthread_cond_wait(&runner->changed, &runner->lock);
    pthread_mutex_unlock(&runner->lock);
    return STATUS_OK;
}

static enum status start_workers(struct runner *runner) {
    int streams = runner->executable->program->streams;
    for (int s = 0; s < streams && streams > 1; s++) {
        struct worker *worker = &runner->workers[s];
        *worker = (struct worker){.runner = runner, .stream = s};
        int error = pthread_create(&worker->thread, NULL, work, worker);
        if (error) return status_set(STATUS_FAILED, "cannot start a worker thread: %s", strerror(error));
        worker->started = true;
    }
    return STATUS_OK;
}

enum status runner_create(const struct executable *executable, const struct arena *arena, struct runner **out) {
    BUG_IF(arena->bytes < executable->program->tier_bytes[TIER_DEVICE], "an arena smaller than its program");
    struct runner *runner = mem_array(1, sizeof *runner);
    if (!runner) return STATUS_FAILED;
    *runner = (struct runner){.executable = executable, .arena = arena};
    pthread_mutex_init(&runner->lock, NULL);
    pthread_cond_init(&runner->changed, NULL);
    runner->ended = mem_array(executable->program->instructions.count, sizeof *runner->ended);
    enum status status = runner->ended ? start_workers(runner) : STATUS_FAILED;
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
    mem_free(runner);
}

void *runner_data(const struct runner *runner, const struct tensor *tensor) {
    const struct buffer *buffer = program_find_buffer(runner->executable->program, tensor);
    return buffer ? (char *)runner->arena->base + buffer->offset : NULL;
}

void runner_set_gate(struct runner *runner, runner_gate *gate, void *payload) {
    runner->gate = gate;
    runner->gate_payload = payload;
}

void runner_set_observer(struct runner *runner, runner_observer *observer, void *payload) {
    BUG_IF(runner->executable->program->streams > 1, "an observer of several streams");
    runner->observer = observer;
    runner->observer_payload = payload;
}
