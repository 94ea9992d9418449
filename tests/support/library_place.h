/* For tests of ballast.h: a model, a text and options to train with, and expected results of calls. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ballast.h"

/* The text of the place, which the model's tokenizer is made of. */
extern const char library_text[];

/* The options of a run of 6 steps: as support/tiny_run.h has them. */
struct library_place {
    char model[512], data[512], run[700];
    const char *data_paths[1];
    struct ballast_plan_options plan;
    struct ballast_train_options train;
    struct ballast_train_events events;
};
/* In a directory; `out` is not moved. */
void library_place_make(const char *folder, struct library_place *out);
enum ballast_status library_train(const struct library_place *place, const char *run);

/* `message`: what the message has, NULL: whatever it likes. */
void expect_public(enum ballast_status status, enum ballast_status expected, const char *message);
#define EXPECT_OK(status) expect_public(status, BALLAST_OK, NULL)
#define EXPECT_BAD(status, message) expect_public(status, BALLAST_BAD_INPUT, message)

/* "folder/name", in `out`. */
char *name_in(const char *folder, const char *name, char out[700]);
/* Metrics and weights. */
void expect_same_runs(const char *a, const char *b);

/* Text that a call gives piece by piece, with library_keep_text as its callback. */
struct library_text_kept {
    char bytes[1000];
    size_t used;
    int calls, end_after; /* so many calls; 0: never */
    bool stop;            /* by ballast_stop */
};
int library_keep_text(const char *bytes, size_t count, void *kept);
