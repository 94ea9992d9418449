/* Which of several sources each row of training comes from: in exact proportions, and a pure function of the position,
 * so that there is nothing to save.
 *
 * The sources' weights are whole numbers with the sum W. Any W positions in a row hold exactly weight[k] draws of
 * source k, and any n positions at least 1 - K fewer or more than n * weight[k] / W would be (K sources). */
#ifndef BALLAST_DATA_MIXTURE_H
#define BALLAST_DATA_MIXTURE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct mixture {
    struct mixture_part {
        int64_t weight;
        int64_t rest;   /* of the weights from this part on */
        int64_t offset; /* 0 to rest - 1: where in the rotation the first position stands */
    } * parts;
    size_t count;
};

/* Weights of at least 1 whose sum fits 62 bits (BAD_INPUT otherwise); `seed` picks where the rotation begins. */
enum status mixture_create(const int64_t *weights, size_t count, uint64_t seed, struct mixture *out);
void mixture_free(struct mixture *mixture);

/* Draw number `ordinal` (from 0, without gaps as positions grow) of source `part`. */
struct mixture_draw {
    size_t part;
    int64_t ordinal;
};
/* `position` is at least 0 and below INT64_MAX. */
struct mixture_draw mixture_at(const struct mixture *mixture, int64_t position);

#endif
