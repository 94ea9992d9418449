/* The bytes of each tier cut at every border of an operand's reach, so that "overlaps" becomes "has a segment in
 * common". */
#ifndef BALLAST_PROGRAM_SEGMENTS_H
#define BALLAST_PROGRAM_SEGMENTS_H

#include "program/program.h"

struct segments {
    VEC(int64_t) borders[TIER_COUNT]; /* ascending, without duplicates */
    int32_t first[TIER_COUNT];        /* index of the tier's first segment among all */
    int32_t count;                    /* of all tiers */
};

enum status segments_create(const struct program *program, struct segments *out);
void segments_free(struct segments *segments);

/* Segments [*first, *end) that an operand reaches in the given run of its section. Inputs' slices of all runs count as
 * one. */
void segments_of_operand(const struct segments *segments, const struct program *program, const struct operand *operand,
                         int32_t *first, int32_t *end);

#endif
