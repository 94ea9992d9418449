/* RUN_DIR/metrics.jsonl: one JSON object a line, one line a step, and one for each validation. Numbers are printed with
 * 17 digits, which give the same double back. */
#ifndef BALLAST_TRAIN_METRICS_H
#define BALLAST_TRAIN_METRICS_H

#include <stdbool.h>

#include "train/train.h"

struct metrics {
    char *path;
    int descriptor;
};

/* What stays of an older file: the lines of steps up to `step`. A validation of `step` that is not due by `valid_every`
 * was the last one of a run that was shorter, and goes. */
struct metrics_cut {
    int64_t step, valid_every;
    int64_t least; /* the step that the file must reach: `step` where each step has a line, 0 where not */
};
/* Opens the file, new or old, and cuts it. `validated` tells whether a validation of the cut's step stays. BAD_INPUT
 * for a line before the cut that is no metrics object, and when the file does not reach the least step. */
enum status metrics_open(const char *path, const struct metrics_cut *cut, struct metrics *out, bool *validated);
void metrics_close(struct metrics *metrics);

/* None of them allocates. FAILED when the file cannot be written. */
enum status metrics_append(struct metrics *metrics, const char *line, size_t bytes); /* with the line's end */
enum status metrics_write_step(struct metrics *metrics, const struct train_step *step);
enum status metrics_write_validation(struct metrics *metrics, int64_t step, double loss);
enum status metrics_sync(struct metrics *metrics);
/* What the open file holds, even one that has no name any more, as a new file. */
enum status metrics_copy(const struct metrics *metrics, const char *path);

#endif
