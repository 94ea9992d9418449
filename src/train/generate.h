/* Text from a model. There is no key-value cache yet: each new token computes the whole window again, so the time for a
 * token grows with --seq. */
#ifndef BALLAST_TRAIN_GENERATE_H
#define BALLAST_TRAIN_GENERATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/train_options.h"

/* generate_options_init sets the defaults given here. */
struct generate_options {
    const char *prompt; /* "" starts with the end-of-text token, if the model has one */
    int64_t tokens;     /* 100: at most so many new ones; fewer when the end-of-text token comes */
    double temperature; /* 0.8; 0 takes the likeliest token */
    int64_t top_k;      /* 0: all; else draws among the k likeliest */
    double top_p;       /* 1: all; else draws among the fewest likeliest that hold this much probability */
    bool ignore_end;    /* false: go on after an end-of-text token */
};
void generate_options_init(struct generate_options *out);

/* New text as soon as it is whole characters; `bytes` bytes, not NUL-terminated. False stops. */
typedef bool generate_sink(void *payload, const char *text, size_t bytes);

struct generate_result {
    int64_t prompt_tokens, tokens;
    double seconds; /* of the new tokens */
};

/* Writes the continuation of the prompt (without it) to `sink`. The window is the plan's sequence length (default: the
 * model's context, at most GENERATE_DEFAULT_WINDOW): of longer texts, the last so many tokens are seen. Draws depend on
 * the seed and the position only. Statuses as train_begin. `result` may be NULL. */
enum status generate_text(const char *model_folder, const struct plan_options *plan,
                          const struct generate_options *options, generate_sink *sink, void *payload,
                          struct generate_result *result);
enum { GENERATE_DEFAULT_WINDOW = 256 };

#endif
