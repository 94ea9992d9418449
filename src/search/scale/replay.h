/* Simulates instructions of ranks by discrete events, and finds their times.
 *
 * A stage (one rank that represents all that do the same) has two queues, for kernels and for collectives. Each
 * executes in the order in which its instructions were added. An instruction begins when the one before it on its queue
 * has ended and, for each of its waits, so many seconds have passed since that one ended. During a collective a stage's
 * kernels take 1 + slows times as long. */
#pragma once

#include "base/base.h"

enum replay_queue { REPLAY_KERNELS, REPLAY_COLLECTIVES, REPLAY_QUEUE_COUNT };
enum { REPLAY_NONE = -1 };
/* Purpose of an instruction, for timelines only. */
enum replay_kind {
    REPLAY_FORWARD,
    REPLAY_BACKWARD, /* including recomputation */
    REPLAY_UPDATE,
    REPLAY_GATHER,   /* of parameters */
    REPLAY_REDUCE,   /* of gradients, including reduce-scatters */
    REPLAY_HAND_OUT, /* of new parameters */
    REPLAY_KIND_COUNT
};

struct replay_wait {
    int32_t instruction; /* REPLAY_NONE: no wait */
    double after_s;      /* after its end */
};

struct replay_instruction {
    int32_t stage;
    enum replay_queue queue;
    enum replay_kind kind;
    double seconds; /* with nothing concurrent */
    double slows;   /* a collective: relative slowdown of concurrent kernels; 0.1: 10% */
    struct replay_wait waits[2];
    double start_s, end_s; /* set by replay_run */
};

struct replay {
    VEC(struct replay_instruction) instructions;
    int32_t stages;
    double busy_s; /* kernel time of the busiest stage with nothing concurrent; set by replay_run */
    double end_s;  /* set by replay_run */
};

/* Appends an instruction. Returns its index through `out`, unless that is NULL. */
enum status replay_add(struct replay *replay, struct replay_instruction instruction, int32_t *out);
static inline struct replay_wait replay_wait(int32_t instruction, double after_s) {
    return (struct replay_wait){instruction, after_s};
}
static inline struct replay_wait replay_no_wait(void) { return (struct replay_wait){REPLAY_NONE, 0}; }
/* Sets start_s, end_s of all and end_s of the replay. Waits must not form a cycle. FAILED without memory. */
enum status replay_run(struct replay *replay);
void replay_free(struct replay *replay);
