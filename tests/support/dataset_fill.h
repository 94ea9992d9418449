/* Whole batches of a dataset. */
#ifndef BALLAST_TESTS_DATASET_FILL_H
#define BALLAST_TESTS_DATASET_FILL_H

#include "data/dataset.h"

/* dataset_fill_rows with all rows of the batch. */
static inline enum status dataset_fill(const struct dataset *dataset, enum dataset_split split, int64_t step,
                                       int64_t batch, const struct dataset_batch *out, int64_t *targets) {
    struct dataset_rows rows = {.step = step, .batch = batch, .count = batch};
    return dataset_fill_rows(dataset, split, &rows, out, targets);
}

#endif
