/* Shared by the runner's files; private to src/runtime. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "compiler/order.h"
#include "ir/ops/ops.h"
#include "runtime/runner.h"
#include "runtime/segments.h"
#include "runtime/store/arena.h"

struct worker {
    struct runner *runner;
    int stream;
    pthread_t thread;
    bool started;
    pthread_cond_t wake;
    /* The condition that it sleeps for within a step: an instruction has ended this many times, over all steps. */
    bool sleeps;
    int32_t awaited;
    int64_t required;
};

enum { RUNNER_BOUNCE_BYTES = 1 << 20 };

/* The instructions that a step executes. */
enum { PART_STEP = 1, PART_DEFERRED = 2 };
/* Before so many it is not known how long this machine takes for an instruction. */
enum { COLD_STEPS = 2 };

struct runner {
    const struct executable *executable;
    const struct arena *arenas;
    struct comm *comm;                  /* NULL: one rank */
    struct comm_operation **operations; /* by the program's collective */
    const double *scalars;              /* of the present step */
    runner_gate *gate;
    void *gate_payload;
    runner_observer *observer;
    void *observer_payload;
    struct timeline *recorder; /* NULL: none */
    int64_t began_ns;          /* the step that is recorded */
    int64_t steps_made;        /* and updates made alone; counted where the others watch them */
    double longest_s;          /* no instruction takes longer, on any machine that is fit for it */
    /* Deferred updates: */
    int parts;                 /* of the present step */
    bool pending;              /* the last step left its updates to the next */
    double left[SCALAR_COUNT]; /* the last step's values */
    void *bounce_buffer;       /* RUNNER_BOUNCE_BYTES, aligned for the disk: NULL in programs that do not use it */
    /* Backends with streams and memory of their own: */
    void *streams[STREAMS_MAX];                /* the backend's, by the program's; all NULL where it has none */
    void **events;                             /* by instruction; NULL for one that no other waits for */
    struct copy_staging stagings[STREAMS_MAX]; /* by stream; for streams that need one */
    void **mirrors;                            /* by buffer; NULL for those with addresses for the CPU */
    double *values; /* where the device's kernels read a step's values: those of the present step, then `left` */
    /* Backends with graphs: */
    struct graph_segments graph_segments;
    void **graphs;    /* by graph segment; NULL before it is captured, and where it cannot be */
    bool warm;        /* a step has been made */
    bool captured;    /* all graph segments that can be captured are */
    bool launches;    /* the present step launches its graph segments */
    int32_t *batches; /* by instruction: the last of the batch that begins there (segments.h) */
    /* Several streams: */
    pthread_mutex_t lock;
    int64_t *ended;      /* by instruction: issues that have ended, over all steps */
    int64_t steps_begun; /* workers begin a step when this passes their own count */
    int streams_left;    /* which have not ended the present step */
    pthread_cond_t step_ended;
    bool stopping;
    atomic_bool failed;         /* a kernel, a copy or the device failed; nothing more is executed */
    struct status_copy failure; /* the first one */
    struct worker workers[STREAMS_MAX];
};

/* Enqueues or executes the graph segment, the batch or the single instruction that begins there, and returns its last
 * instruction. Recorded and observed instructions are single. */
int32_t runner_execute_from(struct runner *runner, int32_t index, int64_t repetition, void *stream);
/* Executes or enqueues one issue of an instruction, or of a batch from `first` to `last`, if the step has it. A failure
 * is kept for runner_status. */
void runner_execute(struct runner *runner, int32_t first, int32_t last, int64_t repetition, void *stream);
/* Executes or enqueues the work of one issue of an instruction, or of a batch from `first` to `last`, without waits and
 * records. FAILED where a kernel or a disk copy fails. */
enum status runner_enqueue(struct runner *runner, int32_t first, int32_t last, int64_t repetition, void *stream);
/* Whether it changes parameters or the optimizer's state. */
bool runner_changes_state(const struct program *program, const struct instruction *instruction);
/* The status. A failure's message names the instruction, which may only have noticed the failure of an earlier one. */
enum status runner_name_failure(const struct instruction *instruction, enum status status);
/* Keeps the calling thread's message, if it is the first failure. */
void runner_keep_failure(struct runner *runner);

/* Workers, where there are several streams (streams.c). Opening makes what they wait with, starting the threads:
 * FAILED where the system has none left. A step returns when all streams have ended it; one at a time. */
void runner_workers_open(struct runner *runner);
enum status runner_workers_start(struct runner *runner);
void runner_workers_step(struct runner *runner);
void runner_workers_close(struct runner *runner);

/* Calls the gate, if there is one. */
void runner_pass_gate(struct runner *runner);

/* Streams of the backend (streams.c). All do nothing where it has none. */
enum status runner_streams_open(struct runner *runner);
void runner_streams_close(struct runner *runner);
/* Whether the thread does the work itself, synchronously. */
bool runner_on_host(const struct program *program, const struct instruction *instruction);
/* Waits for all work on the stream. */
void runner_finish_stream(struct runner *runner, void *stream);
/* Makes the backend's device current in the calling thread. */
void runner_enter(struct runner *runner);

/* Graph segments as graphs (segments.c). All do nothing where the backend has none. */
enum status runner_graph_segments_open(struct runner *runner);
void runner_graph_segments_close(struct runner *runner);
/* Chooses, with no work enqueued, whether the next step launches its graph segments; the first such step captures them.
 * Steps that are recorded or observed do not, since each instruction is waited for. */
void runner_graph_segments_begin(struct runner *runner);
/* The graph segment to be launched that begins at the instruction; NULL: none. */
const struct graph_segment *runner_graph_segment_at(const struct runner *runner, int32_t instruction);
/* Launches it. A failure is kept for runner_status. */
void runner_launch(struct runner *runner, const struct graph_segment *graph_segment, void *stream);

/* The operand's address for kernels and copies; NULL on the disk. */
void *runner_address(const struct runner *runner, const struct operand *operand, int64_t repetition);
/* Mirrors: CPU copies of device-only inputs and results, and the values of the step that runner_begin began
 * (tensors.c). */
enum status runner_mirrors_open(struct runner *runner);
void runner_mirrors_close(struct runner *runner);
enum status runner_mirrors_send(struct runner *runner);
enum status runner_mirrors_fetch(struct runner *runner);
/* The first failure, OK when there was none. */
enum status runner_status(struct runner *runner);
/* Chooses the parts of the next step and, after it, notes whether it left updates. */
void runner_begin(struct runner *runner, int parts, const double *scalars);
void runner_end(struct runner *runner);
