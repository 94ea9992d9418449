/* Texts from a model: prompts are computed in chunks, then one token at a time, with the keys and values of what came
 * before in caches.
 *
 * Files, in the order to read them: generate (options and results, one text); writer (a model that writes, and a text
 * on its way); decode (logits from caches, and the next token drawn from them); config (what a model's directory says
 * of both); batch (many texts at a time); chat (conversations). */
#pragma once

#include <signal.h>

#include "base/base.h"
#include "session/train_options.h"
#include "text/tokenizer/tokenizer.h"

/* Names, legal values and defaults stand in plan/settings.h. generation_config_apply fills what was not given: with
 * what the model's generation_config.json says, else the default. */
struct generate_options {
    struct settings_given given; /* of the numbers from temperature to repetition_penalty */
    /* At most so many new ones; fewer when an end-of-text token or a stop comes. 0: as many as the caches hold besides
     * the prompt, at least 1 */
    int64_t tokens;
    double temperature; /* 0 takes the likeliest token */
    int64_t top_k;      /* 0: all; else draws among the k likeliest */
    double top_p;       /* 1: all; else draws among the fewest likeliest that hold this much probability */
    /* 1: none. Divides the logits of tokens that are in the prompt or the text, if they are positive, else multiplies
     * them (Keskar et al., arXiv 1909.05858, section 4.1) */
    double repetition_penalty;
    bool ignore_end; /* false: go on after an end-of-text token */
    /* None: a text ends before the first of these strings (none empty). Borrowed. */
    const char *const *stops;
    size_t stop_count;
    /* NULL: texts end when it is not 0 any more. Borrowed */
    const volatile sig_atomic_t *interrupted;
};
extern const struct settings_holder text_settings;
/* Nothing given, the default number of tokens. */
void generate_options_init(struct generate_options *out);
/* BAD_INPUT for what the sampler does not check. */
enum status generate_options_check(const struct generate_options *options);

/* New text as soon as it is whole characters and no part of a stop; `bytes` bytes, not NUL-terminated. False stops. */
typedef bool generate_sink(void *payload, const char *text, size_t bytes);

/* Why a text ended: an end-of-text token, one of the stops, as many tokens as asked for, or interrupted. */
#define GENERATE_FINISH_LIST(X) X(END, "end") X(STOP, "stop") X(LENGTH, "length") X(INTERRUPTED, "interrupted")
enum generate_finish {
#define GENERATE_FINISH_ENUM(name, text) GENERATE_FINISH_##name,
    GENERATE_FINISH_LIST(GENERATE_FINISH_ENUM)
#undef GENERATE_FINISH_ENUM
};
const char *generate_finish_name(enum generate_finish finish);

struct generate_result {
    int64_t prompt_tokens, tokens;
    double prompt_seconds; /* of the prompt, to the first new token */
    double seconds;        /* of the new tokens after it */
    enum generate_finish finish;
};

struct writer;
/* Writes the continuation of a prompt (without it) to `sink`: the text of number `text` (0 for one alone), in the first
 * caches. What these hold is the beginning of the prompt (decoding_keep). Draws depend on seed, text and position only.
 * `ids`, the prompt, gets the new tokens too, and `result` may be NULL. decoding_read says what texts that outgrow the
 * caches see. */
enum status generate_continue(struct writer *writer, uint32_t text, struct token_ids *ids, generate_sink *sink,
                              void *payload, struct generate_result *result);
