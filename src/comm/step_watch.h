/* Whether a step moves on. A thread that computes for ever uses processor time as one that works does; so in a step
 * work is what ends instructions. The longest that one took so far says how long the next may take.
 *
 * The threads that execute a step call what is above the line, the heartbeat's thread what is below. */
#ifndef BALLAST_COMM_STEP_WATCH_H
#define BALLAST_COMM_STEP_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct step_watch {
    atomic_bool steps;           /* a step is under way */
    atomic_int held;             /* threads in it that wait for something outside */
    atomic_uint ended;           /* instructions */
    _Atomic int64_t patience_ns; /* as the step asks */
    /* The heartbeat's thread: */
    unsigned seen;
    int64_t moved_ns, looked_ns; /* since when `seen` stands; when it was last looked at */
    int64_t longest_ns;          /* the longest that it was seen to stand in a step, with nobody waited for */
    bool watched, waited;        /* at the last look; whether the rank waited for others since moved_ns */
};

/* `patience_s`: an instruction may take so long, however long others took. */
void step_watch_begin(struct step_watch *watch, double patience_s);
void step_watch_end(struct step_watch *watch);
/* An instruction has ended, or was enqueued. */
static inline void step_watch_note(struct step_watch *watch) {
    atomic_fetch_add_explicit(&watch->ended, 1, memory_order_relaxed);
}
/* Between these a thread of the step waits for a thread that is not of it, such as one that writes a checkpoint. */
void step_watch_hold(struct step_watch *watch);
void step_watch_release(struct step_watch *watch);

/* ---- */

enum step_watch_answer {
    WATCH_NOT,   /* no step is under way: other signs say whether the rank works */
    WATCH_MOVES, /* an instruction ended since it was last asked, or may still take its time */
    WATCH_STANDS /* none has ended for the step's patience, and for ten times the longest so far */
};
/* `waits`: the rank waits for others. */
enum step_watch_answer step_watch_look(struct step_watch *watch, bool waits, int64_t now_ns);

#endif
