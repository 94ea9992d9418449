/* Who is silent. Each rank counts its own beats, how many operations it has started, and the periods in which it did
 * anything, and passes on what it knows of all others to ranks 1, 2, 4, … further in turn, so that news of a rank
 * reaches all after log2(ranks) passings. A rank whose beats have not risen for the time allowed is dead or stopped.
 * The one that has started fewest operations is what the others wait for: as long as it works they wait, however long
 * its step is; where it does nothing for the time allowed, it hangs. No messages here: mpi_thread.c sends them. */
#pragma once

#include <stdatomic.h>

#include "base/base.h"

/* Whether a step moves on. A thread that computes for ever uses processor time as one that works does; so in a step
 * work is what ends instructions. The longest that one took so far says how long the next may take.
 *
 * The threads that execute a step call what is above the line, the heartbeat's thread what is below. */

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

struct heartbeat_entry {
    uint32_t beat, started, worked;
};

struct heartbeat {
    int ranks, me;
    struct heartbeat_entry *entry; /* by rank */
    int64_t *heard_ns;             /* when the beat was last seen to rise */
    int64_t *worked_ns;            /* the same of its work */
    int64_t even_ns; /* since then all have started as many operations as this rank; -1: some rank has not */
    int64_t timeout_ns;
};

enum status heartbeat_create(int ranks, int me, int64_t timeout_ns, int64_t now_ns, struct heartbeat *out);
void heartbeat_free(struct heartbeat *heartbeat);
/* Once a period: one's own. `worked`: it did something since the last beat. A rank that was itself stopped for half the
 * timeout has heard nobody meanwhile: it begins to wait anew. */
void heartbeat_beat(struct heartbeat *heartbeat, uint32_t started, bool worked, int64_t now_ns);
/* What another rank knows. */
void heartbeat_merge(struct heartbeat *heartbeat, const struct heartbeat_entry *theirs, int64_t now_ns);
/* The lowest rank of those not heard of for longer than the timeout, or -1. */
int heartbeat_silent(const struct heartbeat *heartbeat, int64_t now_ns);
/* The lowest of the ranks that have started fewest operations, where that is fewer than this rank; else -1. */
int heartbeat_behind(const struct heartbeat *heartbeat);
/* That rank, or one that has started no more, where it has done nothing for longer than the timeout; else -1. */
int heartbeat_hanging(const struct heartbeat *heartbeat, int64_t now_ns);
/* How many ranks each passes on to; the k-th, from 0, is 2^k further. */
int heartbeat_distances(int ranks);
