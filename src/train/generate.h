/* Text from a model: the prompt is computed in chunks, then one token at a time, with the keys and values of what came
 * before in caches (train/decode.h). */
#ifndef BALLAST_TRAIN_GENERATE_H
#define BALLAST_TRAIN_GENERATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/tokenizer.h"
#include "train/train_options.h"

#define GENERATE_TEMPERATURE 0.8
#define GENERATE_TEMPERATURE_MOST 100.0
#define GENERATE_PENALTY_LEAST 1e-3
#define GENERATE_PENALTY_MOST 1e3

/* generate_options_init sets the defaults given here. Negative numbers are "not given": generation_config_apply then
 * takes what the model's generation_config.json says, else the value after the semicolon. */
struct generate_options {
    const char *prompt; /* "" starts with the end-of-text token, if the model has one */
    int64_t tokens;     /* 100: at most so many new ones; fewer when an end-of-text token or a stop comes */
    double temperature; /* -1; GENERATE_TEMPERATURE. 0 takes the likeliest token */
    int64_t top_k;      /* -1; 0, which is all. Else draws among the k likeliest */
    double top_p;       /* -1; 1, which is all. Else draws among the fewest likeliest that hold this much probability */
    /* -1; 1, which is none. Divides the logits of tokens that are in the prompt or the text, if they are positive, else
     * multiplies them (Keskar et al., arXiv 1909.05858, section 4.1) */
    double repetition_penalty;
    bool ignore_end; /* false: go on after an end-of-text token */
    /* None: the text ends before the first of these strings (none empty). Borrowed. */
    const char *const *stops;
    size_t stop_count;
};
void generate_options_init(struct generate_options *out);

/* New text as soon as it is whole characters and no part of a stop; `bytes` bytes, not NUL-terminated. False stops. */
typedef bool generate_sink(void *payload, const char *text, size_t bytes);

struct generate_result {
    int64_t prompt_tokens, tokens;
    double prompt_seconds; /* of the prompt, to the first new token */
    double seconds;        /* of the new tokens after it */
};

struct train_setup;
struct engine;

/* Called when all is compiled and before text comes; for saying what it takes, and which settings are of the model's
 * generation_config.json ("" for none). */
typedef void generate_begin(void *payload, const struct train_setup *setup, const char *note);

/* Writes the continuation of the prompt (without it) to `sink`. The caches hold the plan's sequence length (default:
 * the model's context, at most PLAN_DEFAULT_SEQUENCE) of tokens; decoding_run says what longer texts see. Draws depend
 * on the seed and the position only. Statuses as train_begin. `begin` and `result` may be NULL. */
enum status generate_text(const char *model_folder, const struct plan_options *plan,
                          const struct generate_options *options, generate_begin *begin, generate_sink *sink,
                          void *payload, struct generate_result *result);
enum { GENERATE_CHUNK = 64 }; /* tokens of a prompt that are computed at once */

/* The parts of it, for samples in training. Appends the prompt's ids; BAD_INPUT when there are none. */
struct model;
enum status generate_encode_prompt(const struct model *model, const struct tokenizer *tokenizer, const char *prompt,
                                   struct token_ids *ids);
/* The continuation of `prompt` by an engine that has the programs for it; all options are given. */
struct generation_config;
enum status generate_continue(const struct engine *engine, const struct tokenizer *tokenizer,
                              const struct generation_config *config, const struct token_ids *prompt,
                              const struct generate_options *options, generate_sink *sink, void *payload,
                              struct generate_result *result);

#endif
