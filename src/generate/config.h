/* generation_config.json of a model's directory: what ends a text, and how its authors want tokens to be drawn.
 *
 * Read are eos_token_id, do_sample, temperature, top_p, top_k and repetition_penalty. A key that changes what
 * transformers would write and is not supported, or is not known, is told of by a warning; keys that change nothing
 * here (lengths, caches, what is returned, …) are passed over: the table in config.c has all of them. */
#pragma once

#include "generate/generate.h"
#include "model/model.h"
#include "text/tokenizer/tokenizer.h"

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
 * tokenizer may be NULL. BAD_INPUT, naming file and field, when a value is of another type or out of range. The caller
 * frees with generation_config_free. */
enum status generation_config_read(const struct model *model, const struct tokenizer *tokenizer,
                                   struct generation_config *out);
/* The same without warnings, for callers that want the ends alone. */
enum status generation_config_read_ends(const struct model *model, const struct tokenizer *tokenizer,
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
