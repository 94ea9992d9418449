/* Small training runs of a fixture's model, for tests of src/train. */
#pragma once

#include "support/model_cases.h"
#include "train/train.h"

enum { TINY_TOKENS = 16, TINY_BATCH = 3, TINY_VOCAB = MODEL_CASE_VOCAB };

struct tiny_run {
    char model[512], data[512], valid[512]; /* the model is tests/fixtures/models/NAME */
    const char *data_paths[1], *valid_paths[1];
    struct plan_options plan;     /* batch 3 in micro-batches of 2, 16 tokens, 2 threads, fp32 */
    struct train_options options; /* 6 steps, checkpoint every 2, validation every 3 */
};

/* Writes token files into `folder`. The struct must not be moved. */
void tiny_run_make(const char *folder, const char *name, struct tiny_run *out);
/* train_begin, without events. */
enum status tiny_run_begin(const struct tiny_run *run, const char *run_folder, const struct train_events *events);
/* To so many steps; 0: as many as the run has. */
#define TINY_RESUME(wanted)                                                                                            \
    &(struct train_options) { .given.of[SETTING_steps] = (wanted) > 0, .steps = (wanted) }
/* train_resume with nothing given but `steps`. */
enum status tiny_run_resume(const char *run_folder, int64_t steps, const struct train_events *events);

/* The metrics' lines without what a clock or the policy decides, as one string; mem_free. */
char *tiny_run_metrics(const char *run_folder);
/* Whether two files hold the same bytes. */
bool files_equal(const char *a, const char *b);
/* Ends the test unless the status is this one and the message has this text. */
void expect_status(enum status status, enum status expected, const char *text);
