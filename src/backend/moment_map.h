/* Moments in 8 bits: what codes stand for, and which one a number becomes (Dettmers et al., arXiv 2110.02861).
 *
 * A code stands for a number of a map between -1 and 1, or 0 and 1, times its block's scale: the largest magnitude of
 * the block. The maps are bitsandbytes' dynamic ones, ascending: 0, 1, and in each of seven powers of ten twice as many
 * numbers, equally far apart, as in the one below. The signed map has the same numbers with both signs, but for -1.
 * A number becomes the code of the nearest: by its magnitude's level, and within it by its place, both in fp32
 * operations that are exactly rounded, so that all processors find the same. NaN becomes 0. */
#ifndef BALLAST_BACKEND_MOMENT_MAP_H
#define BALLAST_BACKEND_MOMENT_MAP_H

#include <stdint.h>

#include "ir/ops/ops.h"

enum { MOMENT_CODES = 256, MOMENT_LEVELS = 9 };

/* Magnitudes above `above`, and not above the next level's, have the codes code + trunc(x * slope + offset), at most
 * `last`. The first level is 0, the last 1, the others are the powers of ten. */
struct moment_level {
    float above, slope, offset;
    int32_t code, last;
};

struct moment_map {
    const float *numbers;                      /* by code */
    int32_t zero;                              /* the code of 0: the number of negative ones */
    struct moment_level levels[MOMENT_LEVELS]; /* of magnitudes, counted from 0's code */
};
extern const struct moment_map moment_map_signed, moment_map_unsigned;

/* That of a rule's moment: second moments of AdamW are not negative. */
static inline const struct moment_map *moment_map_of(enum update_rule rule, int moment) {
    return rule == UPDATE_ADAMW && moment == 1 ? &moment_map_unsigned : &moment_map_signed;
}

/* The levels of a map that has `first` numbers in the lowest power of ten, which CUDA's kernels have as a constant of
 * their own. In the power of ten that ends at e there are n numbers e * (0.1 + 0.9 * (k + 1/2) / n). */
#define MOMENT_POWER(first, n, e, below)                                                                               \
    {                                                                                                                  \
        (float)(((e) * (0.1 + 0.45 / (n)) + (below)) / 2), (float)((n) / (0.9 * (e))), (float)(-(n) / 9.0),            \
            (n) - (first) + 1, 2 * (n) - (first)                                                                       \
    }
/* The largest number of n in that which ends at e. */
#define MOMENT_LARGEST(n, e) ((e) * (1 - 0.45 / (n)))
#define MOMENT_LEVELS_OF(first)                                                                                        \
    {                                                                                                                  \
        {-1.0f, 0.0f, 0.0f, 0, 0}, MOMENT_POWER(first, (first), 1e-6, 0),                                              \
            MOMENT_POWER(first, 2 * (first), 1e-5, MOMENT_LARGEST((first), 1e-6)),                                     \
            MOMENT_POWER(first, 4 * (first), 1e-4, MOMENT_LARGEST(2 * (first), 1e-5)),                                 \
            MOMENT_POWER(first, 8 * (first), 1e-3, MOMENT_LARGEST(4 * (first), 1e-4)),                                 \
            MOMENT_POWER(first, 16 * (first), 1e-2, MOMENT_LARGEST(8 * (first), 1e-3)),                                \
            MOMENT_POWER(first, 32 * (first), 1e-1, MOMENT_LARGEST(16 * (first), 1e-2)),                               \
            MOMENT_POWER(first, 64 * (first), 1.0, MOMENT_LARGEST(32 * (first), 1e-1)), {                              \
            (float)((1 + MOMENT_LARGEST(64 * (first), 1.0)) / 2), 0.0f, 0.0f, 127 * (first) + 1, 127 * (first) + 1     \
        }                                                                                                              \
    }

#endif
