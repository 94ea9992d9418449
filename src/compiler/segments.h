/* The bytes of each tier, cut into segments at every border of an operand: two operands overlap where they share a
 * segment. */
#pragma once

#include "compiler/program.h"

/* Segments [first, end). */
struct reach {
    int32_t first, end;
};

struct segments {
    int64_t *borders;      /* by segment: where it begins in its tier's arena; tier by tier, ascending */
    int32_t count;         /* of all tiers; no operand has the last of a tier, which begins at its last border */
    struct reach *reaches; /* of the operands that there are, instruction by instruction: the same in all repetitions */
    int32_t *first_reach;  /* by instruction: where its own begin */
};

/* The caller frees. FAILED without memory. */
enum status segments_create(const struct program *program, struct segments *out);
void segments_free(struct segments *segments);

/* The segments of an instruction's operands, one reach for each that there is, in their order. Inputs' slices of all
 * repetitions count as one. */
static inline const struct reach *segments_of(const struct segments *segments, int32_t instruction) {
    return segments->reaches + segments->first_reach[instruction];
}

/* Where a segment begins in its tier's arena; it ends where the next one begins. */
static inline int64_t segments_begin(const struct segments *segments, int32_t segment) {
    return segments->borders[segment];
}
