/* Reads complete batches of a dataset. */
#pragma once

#include "data/dataset.h"

/* dataset_fill_rows with all rows of the batch. */
static inline enum status dataset_fill(const struct dataset *dataset, enum dataset_split split, int64_t step,
                                       int64_t batch, const struct dataset_batch *out, int64_t *targets) {
    struct dataset_rows rows = {.step = step, .batch = batch, .count = batch};
    return dataset_fill_rows(dataset, split, &rows, out, targets);
}
