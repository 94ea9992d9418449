/* Who is silent. Each rank counts its own beats, how many operations it has started, and the periods in which it did
 * anything, and passes on what it knows of all others to ranks 1, 2, 4, … further in turn, so that news of a rank
 * reaches all after log2(ranks) passings. A rank whose beats have not risen for the time allowed is dead or stopped.
 * The one that has started fewest operations is what the others wait for: as long as it works they wait, however long
 * its step is; where it does nothing for the time allowed, it hangs. No messages here: mpi_pulse.c sends them. */
#ifndef BALLAST_COMM_PULSE_H
#define BALLAST_COMM_PULSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct pulse_entry {
    uint32_t beat, started, worked;
};

struct pulse {
    int ranks, me;
    struct pulse_entry *entry; /* by rank */
    int64_t *heard_ns;         /* when the beat was last seen to rise */
    int64_t *worked_ns;        /* the same of its work */
    int64_t even_ns;           /* since then all have started as many operations as this rank; -1: some rank has not */
    int64_t timeout_ns;
};

enum status pulse_create(int ranks, int me, int64_t timeout_ns, int64_t now_ns, struct pulse *out);
void pulse_free(struct pulse *pulse);
/* Once a period: one's own. `worked`: it did something since the last beat. A rank that was itself stopped for half the
 * timeout has heard nobody meanwhile: it begins to wait anew. */
void pulse_beat(struct pulse *pulse, uint32_t started, bool worked, int64_t now_ns);
/* What another rank knows. */
void pulse_merge(struct pulse *pulse, const struct pulse_entry *theirs, int64_t now_ns);
/* The lowest rank of those not heard of for longer than the timeout, or -1. */
int pulse_silent(const struct pulse *pulse, int64_t now_ns);
/* The lowest of the ranks that have started fewest operations, where that is fewer than this rank; else -1. */
int pulse_behind(const struct pulse *pulse);
/* That rank, or one that has started no more, where it has done nothing for longer than the timeout; else -1. */
int pulse_hanging(const struct pulse *pulse, int64_t now_ns);
/* How many ranks each passes on to; the k-th, from 0, is 2^k further. */
int pulse_distances(int ranks);

#endif
