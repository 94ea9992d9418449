/* RUN_DIR/metrics.jsonl: one JSON object a line, one line a step, and one for each validation and each
 * change of the plan. Numbers are printed with
 * 17 digits, which give the same double back. */
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
    int64_t step;    /* whose timeline is written, from 0; -1: none */
    int64_t settled; /* the same where none is written: the step that a prediction is compared with; -1: none */
};

/* Of the steps `first` to `steps` - 1 the third, or the last if there are fewer; never the first, in which caches are
 * cold and pages are new. The caller calls step_record_close, also after a failure. */
enum status step_record_open(const struct program *program, int64_t first, int64_t steps, struct step_record *out);
void step_record_close(struct step_record *record);
/* Call these before and after step number `step`, which took `seconds`. The step is recorded where it is the one whose
 * timeline is written, or where `wanted`; only the former's file is written, in place of an older one. The timeline is
 * that of the last recorded step; it has no events where none can be recorded. */
void step_record_begin(struct step_record *record, struct runner *runner, int64_t step, bool wanted);
enum status step_record_end(struct step_record *record, struct runner *runner, int64_t step, double seconds,
                            const char *run_folder);

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

/* What the model writes while it is trained: to RUN_DIR/samples.jsonl, one JSON object a line. */

struct samples {
    struct tokenizer *tokenizer;
    struct generation_config config;
    struct token_ids prompt;
    struct metrics file;
};

/* Tokenizer and prompt; nothing where the options want no samples. BAD_INPUT when the model has no tokenizer, or
 * nothing to begin with. The caller calls samples_close in any case, on a struct that was zeroed. */
enum status samples_prepare(const struct model *model, const struct train_options *options, struct samples *samples);
/* Opens the file and cuts it to the samples before `step`. */
enum status samples_open(const char *run_folder, int64_t step, struct samples *samples);
void samples_close(struct samples *samples);

/* Writes the model's continuation after `step`; the same for the same weights. `*text` is in fresh memory. */
enum status samples_take(struct samples *samples, const struct engine *engine, const struct train_options *options,
                         int64_t step, char **text);

/* RUN_DIR/events.out.tfevents.*: the metrics' numbers for TensorBoard, as its event files: TFRecords of Event messages
 * (event.proto). Each process that works on a run writes a file of its own; where a run goes on, TensorBoard drops what
 * older files have from there on. A build without protobuf-c writes none (event_file_absent.c). */

struct event_scalar {
    const char *tag;
    double value; /* left out when it is not finite */
};
enum { EVENT_SCALARS_MAX = 8 };

/* A new file in the run's directory; `done` steps are in older ones (0: a new run). The caller calls metrics_close.
 */
enum status event_file_open(const char *folder, int64_t done, struct metrics *out);
/* Allocates nothing. FAILED when the file cannot be written. Nothing where it was never opened. */
enum status event_file_write(struct metrics *file, int64_t step, const struct event_scalar *scalars, size_t count);
