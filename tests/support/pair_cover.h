/* Builds a pairwise cover: rows with one value per axis, in which each pair of values of two axes occurs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PAIR_COVER_AXES = 16, PAIR_COVER_VALUES = 64 };

struct pair_cover {
    int axes;
    int values[PAIR_COVER_AXES]; /* of each axis: it has 0 to values - 1 */
    bool (*is_legal)(const int *row);
    uint64_t seed;
};

/* A legal row, the same for the same seed and number. */
void pair_cover_draw(const struct pair_cover *cover, uint64_t number, int row[PAIR_COVER_AXES]);
/* Rows in fresh memory. A pair that no legal row could be drawn with is left out. */
struct pair_row {
    int value[PAIR_COVER_AXES];
};
struct pair_row *pair_cover_make(const struct pair_cover *cover, size_t *count);
