/* Texts from a model: prompts are computed in chunks, then one token at a time, with the keys and values of what came
 * before in caches.
 *
 * Files, in the order to read them: generate (options and results, and what a model's directory says of both); writer
 * (logits from caches, the next token drawn from them, a model that writes, and a text on its way); batch (many texts
 * at a time); chat (conversations). */
#pragma once

#include <signal.h>

#include "base/base.h"
#include "model/model.h"
#include "session/options.h"
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

/* generation_config.json of a model's directory: what ends a text, and how its authors want tokens to be drawn.
 *
 * Read are eos_token_id, do_sample, temperature, top_p, top_k and repetition_penalty. A key that changes what
 * transformers would write and is not supported, or is not known, is told of by a warning; keys that change nothing
 * here (lengths, caches, what is returned, …) are passed over: the table in generate.c has all of them. */

struct generation_config {
    struct token_ids
        ends; /* tokens that end a text: those of the file, else of config.json or the tokenizer; may be none */
    size_t ends_given;           /* how many of them, from the first on, are the file's */
    bool has_ends;               /* whether the file says it, be it none */
    bool greedy;                 /* do_sample is false */
    struct settings_given given; /* which of these four the file says (plan/settings.h) */
    double temperature, top_p, repetition_penalty;
    int64_t top_k;
};

/* Of a model that was read from a directory, or of its adapter's directory, whether or not that has the file; the
 * tokenizer may be NULL. `warns`: of keys that are not applied. BAD_INPUT, naming file and field, when a value is of
 * another type or out of range. The caller frees with generation_config_free. */
enum status generation_config_read(const struct model *model, const struct tokenizer *tokenizer, bool warns,
                                   struct generation_config *out);
/* The same of an object for a model of `vocab` tokens, without config.json's ends. `path` is for messages. */
enum status generation_config_from_json(const char *path, const json_t *object, int64_t vocab,
                                        struct generation_config *out);
void generation_config_free(struct generation_config *config);

bool generation_config_is_end(const struct generation_config *config, uint32_t token);

enum { GENERATION_NOTE_BYTES = 512 };
/* Sets what the options leave open: to what the file says, else to the defaults of generate_options. `note` tells what
 * is taken from the file, "" where nothing is. */
void generation_config_apply(const struct generation_config *config, struct generate_options *options,
                             char note[GENERATION_NOTE_BYTES]);
