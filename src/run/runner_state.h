/* What the ways of running a program share; private to src/run. */
#ifndef BALLAST_RUN_RUNNER_STATE_H
#define BALLAST_RUN_RUNNER_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "ops/ops.h"
#include "program/happens.h"
#include "run/runner.h"

struct worker {
    struct runner *runner;
    int stream;
    pthread_t thread;
    bool started;
};

enum { RUNNER_MESSAGE_BYTES = 1024, RUNNER_WINDOW_BYTES = 1 << 20 };

/* Which instructions a step runs. */
enum { PART_STEP = 1, PART_DEFERRED = 2 };

struct runner {
    const struct executable *executable;
    const struct arena *arenas;
    const double *scalars; /* of the step that is running */
    runner_gate *gate;
    void *gate_payload;
    runner_observer *observer;
    void *observer_payload;
    struct timeline *recorder; /* NULL: none */
    int64_t began_ns;          /* the step that is recorded */
    /* Deferred updates: */
    int parts;                 /* of the step that is running */
    bool pending;              /* a step has left updates */
    double left[SCALAR_COUNT]; /* that step's values */
    void *window;              /* RUNNER_WINDOW_BYTES, aligned for the disk: NULL in programs that do not use it */
    /* Several streams: */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t *ended;      /* by instruction: issues that have ended, over all steps */
    int64_t steps_begun; /* workers run a step when this passes their own count */
    int64_t steps_ended[STREAMS_MAX];
    bool stopping;
    atomic_bool failed; /* a copy failed; nothing runs any more */
    char message[RUNNER_MESSAGE_BYTES], hint[RUNNER_MESSAGE_BYTES];
    struct worker workers[STREAMS_MAX];
};

/* Runs one issue of an instruction, if the step has it. A failure is kept for runner_status. */
void runner_run_instruction(struct runner *runner, const struct instruction *instruction, int64_t run);
/* The first failure, OK when there was none. */
enum status runner_status(struct runner *runner);
/* Chooses the parts of the step to come and, after it, remembers what it left. */
void runner_begin(struct runner *runner, int parts, const double *scalars);
void runner_end(struct runner *runner);

#endif
