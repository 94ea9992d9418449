/* Happens-before: the order that streams and waits guarantee, as vector clocks over the unrolled program. Waits are
 * added by these clocks; the proof of a program has its own (verify.c).
 *
 * (Mattern, "Virtual time and global states of distributed systems", 1989.) An issue of an instruction is identified by
 * its stream and its number on that stream. `before` of an issue holds, for each stream, how many issues have certainly
 * ended when it starts. */
#pragma once

#include "compiler/program.h"

enum { STREAMS_MAX = 8 };

struct clock {
    int64_t ended[STREAMS_MAX];
};

struct walk {
    const struct program *program;
    int64_t issued[STREAMS_MAX];       /* on each stream so far */
    struct clock streams[STREAMS_MAX]; /* what has ended when the stream's latest issue ends */
    struct clock *latest;              /* by instruction: what has ended when its latest issue ends */
    bool *started;                     /* by instruction: has been issued */
    /* The present issue. */
    int step; /* 0 or 1 */
    size_t section;
    int64_t repetition; /* of the section */
    int32_t instruction;
    int64_t number; /* on its stream, from 1 */
    struct clock before;
};

enum { WALK_STEPS = 2, WALK_REPETITIONS_MAX = 3 };

/* How many issues of `waited` must have ended, over all steps, before the issue of `instruction` in this step and
 * repetition of its section may start: the rule of waits, for everything that executes or simulates a program. */
int64_t program_issues_required(const struct program *program, int32_t waited, int32_t instruction, int64_t step,
                                int64_t repetition);

/* Visits every issue of two steps, with repeated sections cut to three repetitions, which covers every pair of
 * neighbours. The visitor may add waits to the present instruction and then call walk_refresh. Stops at the first
 * status that is not OK. */
enum status walk_program(const struct program *program, enum status (*visitor)(void *payload, struct walk *walk),
                         void *payload);
/* Computes `before` again after waits were added. */
void walk_refresh(struct walk *walk);
/* True when issue `number` of `stream` is certain to have ended before the present one starts. */
static inline bool walk_ended(const struct walk *walk, int stream, int64_t number) {
    return walk->before.ended[stream] >= number;
}
