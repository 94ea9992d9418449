/* A worker a stream: a thread that issues the stream's instructions, each when what it waits for has ended. A worker
 * that sleeps says what it sleeps for, and is woken when that is there and not before: most instructions of small
 * models are shorter than a wake. */
#include <errno.h>
#include <omp.h>
#include <string.h>

#include "base/fault.h"
#include "runtime/runner_state.h"

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

/* With the lock held: whether the worker sleeps for what is there by now. It counts as awake from then on. */
static bool take_ready(struct runner *runner, struct worker *worker) {
    if (!worker->sleeps || runner->ended[worker->awaited] < worker->required) return false;
    worker->sleeps = false;
    return true;
}

/* Tells the other workers that the stream's instructions from one to another are issued. They are woken without the
 * lock, which they need at once. */
static void notify(struct runner *runner, int stream, int32_t first, int32_t last) {
    const struct program *program = runner->executable->program;
    bool ready[STREAMS_MAX] = {false};
    pthread_mutex_lock(&runner->lock);
    for (int32_t i = first; i <= last; i++)
        if (program->instructions.items[i].stream == stream) runner->ended[i]++;
    for (int s = 0; s < program->streams; s++)
        ready[s] = take_ready(runner, &runner->workers[s]);
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

static void end_step(struct runner *runner) {
    pthread_mutex_lock(&runner->lock);
    bool last = --runner->streams_left == 0;
    pthread_mutex_unlock(&runner->lock);
    if (last) pthread_cond_signal(&runner->step_ended);
}

static void *work(void *argument) {
    struct worker *worker = argument;
    struct runner *runner = worker->runner;
    runner_enter(runner);
    if (has_kernels(runner->executable, worker->stream))
        runner->executable->backend->set_threads(runner->executable->threads);
    for (int64_t step = 0; await_step(worker, step); step++) {
        issue_step(worker, step);
        end_step(runner);
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
