/* What the ways of running a program share; private to src/run. */
#ifndef BALLAST_RUN_RUNNER_STATE_H
#define BALLAST_RUN_RUNNER_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "program/happens.h"
#include "run/runner.h"

struct worker {
    struct runner *runner;
    int stream;
    pthread_t thread;
    bool started;
};

struct runner {
    const struct executable *executable;
    const struct arena *arena;
    const double *scalars; /* of the step that is running */
    runner_gate *gate;
    void *gate_payload;
    runner_observer *observer;
    void *observer_payload;
    /* Several streams: */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t *ended;      /* by instruction: issues that have ended, over all steps */
    int64_t steps_begun; /* workers run a step when this passes their own count */
    int64_t steps_ended[STREAMS_MAX];
    bool stopping;
    struct worker workers[STREAMS_MAX];
};

/* Runs one issue of an instruction: its kernel, or a fill with zeros. */
void runner_run_instruction(struct runner *runner, const struct instruction *instruction, int64_t run);
/* How many issues of `waited` must have ended before the issue of `instruction` in this step and run may start. */
int64_t runner_required(const struct program *program, int32_t waited, int32_t instruction, int64_t step, int64_t run);

#endif
