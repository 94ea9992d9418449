/* The bytes of each tier, cut into segments at every border of an operand: two operands overlap where they share a
 * segment. */
#ifndef BALLAST_PROGRAM_SEGMENTS_H
#define BALLAST_PROGRAM_SEGMENTS_H

#include "program/program.h"

/* Segments [first, end). */
struct reach {
    int32_t first, end;
};

struct segments {
    VEC(int64_t) borders[TIER_COUNT]; /* ascending, without duplicates */
    int32_t first[TIER_COUNT];        /* index of the tier's first segment among all */
    int32_t count;                    /* of all tiers */
    struct reach *reaches; /* by instruction * OPERANDS_MAX + operand: the same in all repetitions of a section */
};

enum status segments_create(const struct program *program, struct segments *out);
void segments_free(struct segments *segments);

/* The segments of operand k of an instruction. Inputs' slices of all repetitions count as one. */
static inline struct reach segments_of(const struct segments *segments, int32_t instruction, int k) {
    return segments->reaches[(size_t)instruction * OPERANDS_MAX + (size_t)k];
}

/* Where a segment begins in its tier's arena; it ends where the next one begins. */
static inline int64_t segments_begin(const struct segments *segments, enum tier tier, int32_t segment) {
    return segments->borders[tier].items[segment - segments->first[tier]];
}

#endif
