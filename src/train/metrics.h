/* RUN_DIR/metrics.jsonl: one JSON object a line, one line a step, and one for each validation and each
 * change of the plan. Numbers are printed with
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
    bool every_step; /* each step has a line: what is missing is warned of */
};
/* Opens the file, new or old, and cuts it. `validated` tells whether a validation of the cut's step stays. Nothing that
 * is needed to go on is in the file alone, so damage is only warned of: lines that are missing, and lines before the
 * cut that are no metrics objects or of an earlier step than the one before; these are left out, and PATH.damaged keeps
 * the file as it was. BAD_INPUT or FAILED when it cannot be read or written. */
enum status metrics_open(const char *path, const struct metrics_cut *cut, struct metrics *out, bool *validated);
void metrics_close(struct metrics *metrics);
/* Of metrics_open: the bytes that stay of the file, which is written anew where lines before them do not. A missing
 * file has none. */
enum status metrics_cut_find(const char *path, const struct metrics_cut *cut, size_t *bytes, bool *validated);

/* None of them allocates. FAILED when the file cannot be written. They do nothing where it was never opened, as on all
 * ranks but one. */
enum status metrics_append(struct metrics *metrics, const char *line, size_t bytes); /* with the line's end */
enum status metrics_write_step(struct metrics *metrics, const struct train_step *step);
/* `figures`: means of the loss's (engine.h), all of them where they are of `pairs`, else the loss alone. */
enum status metrics_write_validation(struct metrics *metrics, int64_t step, const double *figures, bool pairs);
/* The slots of experts in a step, behind the step's line, and how even they are. */
struct expert_counts;
enum status metrics_write_experts(struct metrics *metrics, int64_t step, const struct expert_counts *counts);
enum status metrics_write_replan(struct metrics *metrics, const struct train_replan *replan);
enum status metrics_sync(struct metrics *metrics);
/* What the open file holds, even one that has no name any more, as a new file. */
enum status metrics_copy(const struct metrics *metrics, const char *path);

#endif
