/* RUN_DIR/metrics.jsonl: one JSON object a line. There is a line for each step, each validation and each change of the
 * plan. Numbers have 17 digits, which restore the same double. */
#pragma once

#include "base/base.h"
#include "generate/generate.h"
#include "runtime/runner.h"
#include "session/engine.h"
#include "text/tokenizer/tokenizer.h"
#include "train/train.h"

/* RUN_DIR/timeline.json: when each instruction of one settled step ran (search/sim/timeline.h). */

struct step_record {
    struct timeline timeline;
    int64_t step;    /* the step whose timeline is written, from 0; -1: none */
    int64_t settled; /* the step that a prediction is compared with, even if no timeline is written; -1: none */
};

/* Chooses a step among `first` to `steps` - 1: the third, or the last if there are fewer. Never the first, which has
 * cold caches and new pages. The caller calls step_record_close, also after a failure. */
enum status step_record_open(const struct program *program, int64_t first, int64_t steps, struct step_record *out);
void step_record_close(struct step_record *record);
/* Call these before and after step number `step`, which took `seconds`. Records the step if its timeline is to be
 * written, or if `wanted`. Writes only the former's file, replacing an older one. The timeline is that of the last
 * recorded step. It has no events if none can be recorded. */
void step_record_begin(struct step_record *record, struct runner *runner, int64_t step, bool wanted);
enum status step_record_end(struct step_record *record, struct runner *runner, int64_t step, double seconds,
                            const char *run_folder);

struct metrics {
    char *path;
    int descriptor;
};

/* Which part of an older file to keep: the lines of steps up to `step`. A validation of `step` that is not due by
 * `valid_every` ended a shorter run and is dropped. */
struct metrics_cut {
    int64_t step, valid_every;
    bool every_step; /* each step has a line: warn of missing ones */
};
/* Opens the file, new or old, and cuts it. `validated`: whether a validation of the cut's step is kept. Resuming needs
 * nothing from this file, so damage only causes warnings. Damage is a missing line, a line that is no metrics object,
 * or a line of an earlier step than the line before it. Bad lines are dropped, and PATH.damaged keeps the original
 * file. BAD_INPUT or FAILED if the file cannot be read or written. */
enum status metrics_open(const char *path, const struct metrics_cut *cut, struct metrics *out, bool *validated);
void metrics_close(struct metrics *metrics);
/* None of them allocates. FAILED if the file cannot be written. They do nothing if it was never opened, as on all ranks
 * but one. */
enum status metrics_append(struct metrics *metrics, const char *line, size_t bytes); /* including the newline */
enum status metrics_write_step(struct metrics *metrics, const struct train_step *step);
/* `figures`: means of the loss's (engine.h). With `pairs` all are used, else only the loss. */
enum status metrics_write_validation(struct metrics *metrics, int64_t step, const double *figures, bool pairs);
/* Writes the slots of experts in a step, and their balance, after the step's line. */
struct expert_counts;
enum status metrics_write_experts(struct metrics *metrics, int64_t step, const struct expert_counts *counts);
enum status metrics_write_replan(struct metrics *metrics, const struct train_replan *replan);
enum status metrics_sync(struct metrics *metrics);
/* Copies the open file, even if it was removed, to a new file. */
enum status metrics_copy(const struct metrics *metrics, const char *path);

/* RUN_DIR/samples.jsonl: text that the model generates during training, one JSON object a line. */

struct samples {
    struct tokenizer *tokenizer;
    struct generation_config config;
    struct token_ids prompt;
    struct metrics file;
};

/* Prepares tokenizer and prompt; does nothing if the options request no samples. BAD_INPUT if the model has no
 * tokenizer, or no first token. The caller calls samples_close in any case, on a struct that was zeroed. */
enum status samples_prepare(const struct model *model, const struct train_options *options, struct samples *samples);
/* Opens the file and cuts it to the samples before `step`. */
enum status samples_open(const char *run_folder, int64_t step, struct samples *samples);
void samples_close(struct samples *samples);

/* Writes the model's continuation after `step`, which depends only on the weights. `*text` is in fresh memory. */
enum status samples_take(struct samples *samples, const struct engine *engine, const struct train_options *options,
                         int64_t step, char **text);

/* RUN_DIR/events.out.tfevents.*: the metrics for TensorBoard, as TFRecords of Event messages (event.proto). Each
 * process of a run writes its own file. After a resume, TensorBoard drops older files' later events. A build without
 * protobuf-c writes none (event_file_absent.c). */

struct event_scalar {
    const char *tag;
    double value; /* omitted if it is not finite */
};
enum { EVENT_SCALARS_MAX = 8 };

/* Creates a file in the run's directory; older files have `done` steps (0: a new run). The caller calls
 * metrics_close. */
enum status event_file_open(const char *folder, int64_t done, struct metrics *out);
/* Allocates nothing. FAILED if the file cannot be written. Does nothing if it was never opened. */
enum status event_file_write(struct metrics *file, int64_t step, const struct event_scalar *scalars, size_t count);
