/* Command lines of benchmarks that run training steps. A table lists the options of a program. */
#pragma once

#include "support/model_step.h"

/* One of number, count, text, dtype and flag is set: where the value goes. */
struct bench_option {
    const char *name; /* "layers": --layers N; of one letter: -o TEXT; NULL: the table's end */
    int64_t *number;  /* a whole number from 1 to `max` */
    int *count;       /* the same */
    int64_t max;
    const char **text; /* borrowed from the command line */
    enum dtype *dtype; /* fp32 or bf16 */
    bool *flag;        /* takes no value: set to true */
    bool *given;       /* where the value is a setting's (plan/settings.h), that it was given. NULL: it is none */
};
/* The last field. */
#define BENCH_SETTING(options, field) .given = &(options)->given.of[SETTING_##field]
enum { BENCH_OPTIONS_MAX = 32 };

/* Appends, to a table that has space for BENCH_OPTIONS_MAX entries and its end, those for a model whose sizes are
 * given and for a disk tier: --layers, --hidden, --heads, --vocab, --batch, --seq, --micro-batch, --dtype and --disk.
 */
void bench_options_append(struct bench_option *options, struct model_step_options *step);
/* BAD_INPUT with a message that names the option, or else `source`, the file whose first comment lists them. */
enum status bench_options_read(int count, char **arguments, const struct bench_option *options, const char *source);
/* BAD_INPUT where --disk was not given. */
enum status bench_options_require_disk(const struct model_step_options *step);
/* A GPT-2 that a step of some tenths of a second trains: 4 layers of 256 columns, 2048 tokens in the vocabulary, 4 x
 * 256 tokens a step in micro-batches of one sequence, fp32. */
struct model_step_options bench_options_small(void);
