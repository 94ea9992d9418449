/* Order of the work on a backend's streams, by events. */
#include <omp.h>

#include "base/fault.h"
#include "runtime/runner_state.h"

static const struct backend_streams *streams_of(const struct runner *runner) {
    return runner->executable->backend->streams;
}

bool runner_on_host(const struct program *program, const struct instruction *instruction) {
    if (opcode_is_collective(instruction->opcode)) return true; /* what others wait for is begun when it can be */
    if (instruction->opcode != OPCODE_COPY) return instruction->tier == TIER_HOST;
    return program->buffers.items[instruction->operands[0].buffer].tier == TIER_DISK ||
           program->buffers.items[instruction->operands[OP_INPUTS_MAX].buffer].tier == TIER_DISK;
}

/* Whether the copy goes through a staging buffer. */
static bool needs_staging(const struct runner *runner, const struct instruction *instruction) {
    const struct program *program = runner->executable->program;
    if (instruction->opcode != OPCODE_COPY || !runner_on_host(program, instruction)) return false;
    enum tier from = program->buffers.items[instruction->operands[0].buffer].tier;
    enum tier to = program->buffers.items[instruction->operands[OP_INPUTS_MAX].buffer].tier;
    return !runner->arenas[from == TIER_DISK ? to : from].mapped;
}

enum status runner_streams_open(struct runner *runner) {
    const struct backend_streams *streams = streams_of(runner);
    const struct program *program = runner->executable->program;
    if (!streams) return STATUS_OK;
    TRY(streams->enter());
    for (int s = 0; s < program->streams; s++)
        TRY(streams->create(&runner->streams[s]));
    runner->events = mem_array(program->instructions.count, sizeof *runner->events);
    if (!runner->events) return STATUS_FAILED;
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        struct copy_staging *staging = &runner->stagings[instruction->stream];
        for (int32_t w = 0; w < instruction->wait_count; w++) {
            void **event = &runner->events[instruction->waits[w]];
            if (!*event) TRY(streams->create_event(event));
        }
        if (needs_staging(runner, instruction) && !staging->place[0])
            TRY(copy_staging_open(runner->executable->backend, staging));
    }
    return STATUS_OK;
}

void runner_streams_close(struct runner *runner) {
    const struct backend_streams *streams = streams_of(runner);
    if (!streams) return;
    for (int s = 0; s < STREAMS_MAX; s++) {
        copy_staging_close(runner->executable->backend, &runner->stagings[s]);
        if (runner->streams[s]) streams->free(runner->streams[s]);
    }
    for (size_t i = 0; runner->events && i < runner->executable->program->instructions.count; i++)
        if (runner->events[i]) streams->free_event(runner->events[i]);
    mem_free(runner->events);
}

/* Later work on the stream waits for the issues that the instruction waits for; these are enqueued already. The event
 * may have been recorded again since, for a later issue: that cannot wait for this instruction, so there is no
 * deadlock. */
static void runner_order(struct runner *runner, int32_t index) {
    const struct backend_streams *streams = streams_of(runner);
    if (!streams || runner->failed) return;
    const struct program *program = runner->executable->program;
    const struct instruction *instruction = &program->instructions.items[index];
    bool on_host = runner_on_host(program, instruction);
    enum status status = STATUS_OK;
    for (int32_t w = 0; w < instruction->wait_count && status == STATUS_OK; w++) {
        void *event = runner->events[instruction->waits[w]];
        status = on_host ? streams->await(event) : streams->wait(runner->streams[instruction->stream], event);
    }
    if (status != STATUS_OK) runner_keep_failure(runner);
}

/* Records the instruction's event behind its issue, which is enqueued already. */
static void runner_record(struct runner *runner, int32_t index) {
    const struct backend_streams *streams = streams_of(runner);
    if (!streams || runner->failed || !runner->events[index]) return;
    int stream = runner->executable->program->instructions.items[index].stream;
    if (streams->record(runner->events[index], runner->streams[stream]) != STATUS_OK) runner_keep_failure(runner);
}

/* Also after a failure: no work may be left on the streams when the caller goes on. */
void runner_finish_stream(struct runner *runner, void *stream) {
    const struct backend_streams *streams = streams_of(runner);
    if (streams && streams->finish(stream) != STATUS_OK) runner_keep_failure(runner);
}

void runner_enter(struct runner *runner) {
    const struct backend_streams *streams = streams_of(runner);
    if (streams && streams->enter() != STATUS_OK) runner_keep_failure(runner);
}

/* A worker a stream: a thread that issues the stream's instructions, each when what it waits for has ended. A worker
 * that sleeps says what it sleeps for, and is woken when that is there and not before: most instructions of small
 * models are shorter than a wake. */

void runner_workers_open(struct runner *runner) {
    pthread_mutex_init(&runner->lock, NULL);
    pthread_cond_init(&runner->step_ended, NULL);
    for (int s = 0; s < STREAMS_MAX; s++)
        pthread_cond_init(&runner->workers[s].wake, NULL);
}

/* With the lock held, which it is again on return. */
static void await(struct worker *worker, int32_t instruction, int64_t step, int64_t repetition) {
    struct runner *runner = worker->runner;
    const struct program *program = runner->executable->program;
    const struct instruction *self = &program->instructions.items[instruction];
    for (int32_t w = 0; w < self->wait_count; w++) {
        worker->awaited = self->waits[w];
        worker->required = program_issues_required(program, worker->awaited, instruction, step, repetition);
        while (runner->ended[worker->awaited] < worker->required) {
            worker->sleeps = true;
            pthread_cond_wait(&worker->wake, &runner->lock);
        }
    }
    worker->sleeps = false;
}

/* Tells the other workers that the stream's instructions from one to another are issued. They are woken without the
 * lock, which they need at once. */
static void notify(struct runner *runner, int stream, int32_t first, int32_t last) {
    const struct program *program = runner->executable->program;
    bool ready[STREAMS_MAX] = {false};
    pthread_mutex_lock(&runner->lock);
    for (int32_t i = first; i <= last; i++)
        if (program->instructions.items[i].stream == stream) runner->ended[i]++;
    for (int s = 0; s < program->streams; s++) {
        struct worker *worker = &runner->workers[s];
        ready[s] = worker->sleeps && runner->ended[worker->awaited] >= worker->required;
        if (ready[s]) worker->sleeps = false; /* it counts as awake from now on */
    }
    pthread_mutex_unlock(&runner->lock);
    for (int s = 0; s < program->streams; s++)
        if (ready[s]) pthread_cond_signal(&runner->workers[s].wake);
}

static void issue_step(struct worker *worker, int64_t step) {
    struct runner *runner = worker->runner;
    const struct program *program = runner->executable->program;
    int stream = worker->stream;
    for (size_t s = 0; s < program->sections.count; s++) {
        const struct section *section = &program->sections.items[s];
        for (int64_t repetition = 0; repetition < section->repeat; repetition++)
            for (int32_t i = section->first; i < section->first + section->count; i++) {
                if (program->instructions.items[i].stream != stream) continue;
                pthread_mutex_lock(&runner->lock);
                await(worker, i, step, repetition);
                pthread_mutex_unlock(&runner->lock);
                runner_order(runner, i);
                int32_t first = i;
                i = runner_execute_from(runner, i, repetition, runner->streams[stream]);
                runner_record(runner, i);
                notify(runner, stream, first, i);
            }
    }
    runner_finish_stream(runner, runner->streams[stream]);
}

/* Whether kernels are computed in the stream's worker. */
static bool has_kernels(const struct executable *executable, int stream) {
    const struct program *program = executable->program;
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        bool copies = instruction->opcode == OPCODE_COPY || instruction->opcode == OPCODE_TAKE;
        if (instruction->stream != stream || copies || opcode_is_collective(instruction->opcode)) continue;
        if (!executable->backend->streams || runner_on_host(program, instruction)) return true;
    }
    return false;
}

/* Whether there is a step after so many; waits for it or for the end. */
static bool await_step(struct worker *worker, int64_t steps) {
    struct runner *runner = worker->runner;
    pthread_mutex_lock(&runner->lock);
    while (runner->steps_begun == steps && !runner->stopping)
        pthread_cond_wait(&worker->wake, &runner->lock);
    bool begun = runner->steps_begun > steps;
    pthread_mutex_unlock(&runner->lock);
    return begun;
}

static void *work(void *argument) {
    struct worker *worker = argument;
    struct runner *runner = worker->runner;
    runner_enter(runner);
    if (has_kernels(runner->executable, worker->stream))
        runner->executable->backend->set_threads(runner->executable->threads);
    for (int64_t step = 0; await_step(worker, step); step++) {
        issue_step(worker, step);
        pthread_mutex_lock(&runner->lock);
        bool last = --runner->streams_left == 0;
        pthread_mutex_unlock(&runner->lock);
        if (last) pthread_cond_signal(&runner->step_ended);
    }
    return NULL;
}

void runner_workers_step(struct runner *runner) {
    int streams = runner->executable->program->streams;
    pthread_mutex_lock(&runner->lock);
    runner->steps_begun++;
    runner->streams_left = streams;
    for (int s = 0; s < streams; s++)
        pthread_cond_signal(&runner->workers[s].wake);
    while (runner->streams_left > 0)
        pthread_cond_wait(&runner->step_ended, &runner->lock);
    pthread_mutex_unlock(&runner->lock);
}

enum status runner_workers_start(struct runner *runner) {
    int streams = runner->executable->program->streams;
    /* GNU's OpenMP counts the threads of all teams: with more than there are cores, none waits in a loop for the next
     * loop. The caller's team has nothing to do while workers do the step. */
    if (streams > 1) omp_pause_resource_all(omp_pause_soft);
    for (int s = 0; s < streams && streams > 1; s++) {
        struct worker *worker = &runner->workers[s];
        worker->runner = runner;
        worker->stream = s;
        int error = fault_point(FAULT_SUBMIT) ? errno : pthread_create(&worker->thread, NULL, work, worker);
        if (error) return status_set(STATUS_FAILED, "cannot start a worker thread: %s", strerror(error));
        worker->started = true;
    }
    return STATUS_OK;
}

void runner_workers_close(struct runner *runner) {
    pthread_mutex_lock(&runner->lock);
    runner->stopping = true;
    for (int s = 0; s < STREAMS_MAX; s++)
        pthread_cond_signal(&runner->workers[s].wake);
    pthread_mutex_unlock(&runner->lock);
    for (int s = 0; s < STREAMS_MAX; s++) {
        if (runner->workers[s].started) pthread_join(runner->workers[s].thread, NULL);
        pthread_cond_destroy(&runner->workers[s].wake);
    }
    pthread_mutex_destroy(&runner->lock);
    pthread_cond_destroy(&runner->step_ended);
}
