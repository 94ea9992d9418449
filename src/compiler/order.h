/* Finds the instructions that need an order and the ones that have one, by segments of bytes and vector clocks. */
#pragma once

#include "compiler/program.h"

/* The bytes of each tier, cut into segments at every border of an operand: two operands overlap where they share a
 * segment. Segments [first, end). */
struct reach {
    int32_t first, end;
};

struct segments {
    int64_t *borders;      /* by segment: where it begins in its tier's arena; tier by tier, ascending */
    int32_t count;         /* of all tiers; no operand has the last of a tier, which begins at its last border */
    struct reach *reaches; /* of the operands that there are, instruction by instruction: the same in all repetitions */
    int32_t *first_reach;  /* by instruction: where its own begin */
    struct scratch memory; /* of all but the reaches */
};

/* The caller frees. FAILED without memory. */
enum status segments_create(const struct program *program, struct segments *out);
void segments_free(struct segments *segments);

/* The segments of an instruction's operands, one reach for each that there is, in their order. Inputs' slices of all
 * repetitions count as one. */
static inline const struct reach *segments_of(const struct segments *segments, int32_t instruction) {
    return segments->reaches + segments->first_reach[instruction];
}

/* The first byte of a segment in its tier's arena. The segment ends where the next one begins. */
static inline int64_t segments_begin(const struct segments *segments, int32_t segment) {
    return segments->borders[segment];
}

/* Happens-before: the order that streams and waits guarantee, as vector clocks over the unrolled program. Waits are
 * added by these clocks; the proof of a program has its own (compiler/verify/accesses.c).
 *
 * (Mattern, "Virtual time and global states of distributed systems", 1989.) An issue of an instruction is identified by
 * its stream and its number on that stream. `before` of an issue holds, for each stream, how many issues have certainly
 * ended when it starts. */

struct clock {
    int64_t ended[STREAMS_MAX];
};
static inline void clock_join(struct clock *into, const struct clock *other) {
    for (int s = 0; s < STREAMS_MAX; s++)
        if (other->ended[s] > into->ended[s]) into->ended[s] = other->ended[s];
}

struct walk {
    const struct program *program;
    int64_t issued[STREAMS_MAX];       /* on each stream so far */
    struct clock streams[STREAMS_MAX]; /* the issues that have ended when the stream's latest issue ends */
    struct clock *latest;              /* by instruction: the issues that have ended when its latest issue ends */
    bool *started;                     /* by instruction: has been issued */
    /* The present issue. */
    int step; /* 0 or 1 */
    size_t section;
    int64_t repetition; /* of the section */
    int32_t instruction;
    int64_t number; /* on its stream, from 1 */
    struct clock before;
};

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
