/* The steps of an operation executed on symbols: each segment of a rank's data has a number that depends on where it
 * comes from and on all that was added to it. For schedule_values alone. */
#pragma once

#include "collective/walk.h"

/* 0: nothing. The last bit: it is rounded to bf16. */
typedef uint64_t symbol;

/* A message of one rank. */
struct message_symbols {
    int count;       /* segments, in the order of the pieces */
    int *segment;    /* [count] */
    symbol *payload; /* [count] as they travel */
    bool flies;      /* begun and not finished */
    bool staged;     /* its place in staging is its own */
};

struct rank_symbols {
    symbol *data, *out;               /* by segment */
    struct message_symbols *messages; /* by message */
};

struct symbols {
    const struct schedule_walk *walk;
    const struct comm_spec *spec; /* of the first rank */
    VEC(int64_t) cuts;            /* segment i is [cuts[i], cuts[i + 1]) of data, or of out */
    struct rank_symbols *of;      /* by position */
    struct lane_tree tree;        /* reductions */
    bool *absent;
    struct scratch memory; /* of the arrays by rank */
};

/* The result of an operation's steps, executed on symbols. Private to schedule_proof. */

/* Executes the steps in the walk's order, on a number for each range of bytes that depends on where it comes from and
 * on all that was added to it. FAILED where a rank uses bytes that are on their way, or ends with others than the
 * operation says. `specs` by position in the group. */
enum status schedule_values_check(const struct schedule_walk *walk, const struct comm_spec *const *specs);
