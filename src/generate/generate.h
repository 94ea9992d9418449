/* Generates texts from a model. A prompt is processed in chunks, new tokens one at a time, with key-value caches.
 *
 * Files, in the order to read them: generate (options, results, and generation_config.json); writer (logits from the
 * caches, sampling, a model ready to generate, and a text in progress); batch (many texts at a time); chat
 * (conversations). */
#pragma once

#include <signal.h>

#include "base/base.h"
#include "model/model.h"
#include "session/options.h"
#include "text/tokenizer/tokenizer.h"

/* Options of text generation. plan/settings.h has names, ranges and defaults. generation_config_apply sets the
 * options that were not given, from the model's generation_config.json or else to the defaults. */
struct generate_options {
    struct settings_given given; /* for temperature to repetition_penalty */
    /* Maximum new tokens. 0: as many as the caches hold in addition to the prompt, at least 1. */
    int64_t tokens;
    double temperature; /* divides the logits; 0: greedy decoding */
    int64_t top_k;      /* samples from the k most likely tokens; 0: all */
    double top_p;       /* samples from the fewest most likely tokens with this total probability; 1: all */
    /* Penalty for tokens already in the prompt or text: divides positive logits and multiplies negative ones (Keskar
     * et al., arXiv 1909.05858, section 4.1). 1: none. */
    double repetition_penalty;
    bool ignore_end; /* continue after an end-of-text token */
    /* A text ends before the first of these strings, none of which is empty. Borrowed. */
    const char *const *stops;
    size_t stop_count;
    /* Texts end when this becomes nonzero; NULL: never. Borrowed. */
    const volatile sig_atomic_t *interrupted;
};
extern const struct settings_holder text_settings;
/* Sets the default number of tokens; all other options are not given. */
void generate_options_init(struct generate_options *out);
/* Returns BAD_INPUT for values that the sampler does not check. */
enum status generate_options_check(const struct generate_options *options);

/* Receives new text, as soon as it consists of whole characters and cannot be part of a stop: `bytes` bytes, not
 * NUL-terminated. Return false to end the text. */
typedef bool generate_sink(void *payload, const char *text, size_t bytes);

/* Why a text ended: an end-of-text token, one of the stops, the maximum number of tokens, or an interrupt. */
#define GENERATE_FINISH_LIST(X) X(END, "end") X(STOP, "stop") X(LENGTH, "length") X(INTERRUPTED, "interrupted")
enum generate_finish {
#define GENERATE_FINISH_ENUM(name, text) GENERATE_FINISH_##name,
    GENERATE_FINISH_LIST(GENERATE_FINISH_ENUM)
#undef GENERATE_FINISH_ENUM
};
const char *generate_finish_name(enum generate_finish finish);

struct generate_result {
    int64_t prompt_tokens, tokens;
    double prompt_seconds; /* until the first new token */
    double seconds;        /* after the first new token */
    enum generate_finish finish;
};

/* generation_config.json of a model's directory: end tokens, and the authors' sampling options.
 *
 * Ballast reads eos_token_id, do_sample, temperature, top_p, top_k and repetition_penalty. It warns about unknown
 * keys, and about unsupported keys that would change transformers' texts. It ignores keys that have no effect here,
 * such as lengths, caches and return values. The table in generate.c lists all of them. */

struct generation_config {
    struct token_ids ends;       /* end tokens of the file, else of config.json or the tokenizer; may be empty */
    size_t ends_given;           /* the first so many come from the file */
    bool has_ends;               /* the file lists end tokens, possibly none */
    bool greedy;                 /* do_sample is false */
    struct settings_given given; /* which of these four the file has (plan/settings.h) */
    double temperature, top_p, repetition_penalty;
    int64_t top_k;
};

/* Reads the file in the model's directory, or in its adapter's; the file may be missing. `tokenizer` may be NULL.
 * `warns`: about keys that have no effect. BAD_INPUT names the file and a field with a wrong type or range. The caller
 * calls generation_config_free. */
enum status generation_config_read(const struct model *model, const struct tokenizer *tokenizer, bool warns,
                                   struct generation_config *out);
/* The same of an object for a model of `vocab` tokens, without config.json's ends. `path` is for messages. */
enum status generation_config_from_json(const char *path, const json_t *object, int64_t vocab,
                                        struct generation_config *out);
void generation_config_free(struct generation_config *config);

bool generation_config_is_end(const struct generation_config *config, uint32_t token);

enum { GENERATION_NOTE_BYTES = 512 };
/* Sets the options that are not given, to the file's values or else to the defaults of generate_options. `note`
 * lists the values from the file, or is "". */
void generation_config_apply(const struct generation_config *config, struct generate_options *options,
                             char note[GENERATION_NOTE_BYTES]);
