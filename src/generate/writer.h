/* A model that writes, and a text on its way: what single texts, many at once, chats and samples share. */
#pragma once

#include "generate/config.h"
#include "generate/decode.h"
#include "generate/generate.h"

/* Text on its way out, cut before the first of some strings. */

struct stop_text {
    const char *const *stops; /* none empty; borrowed */
    size_t stop_count;
    generate_sink *sink;
    void *payload;
    VEC(char) held; /* what may be the beginning of a stop */
    bool stopped;   /* a stop was found, or the sink wants no more */
};

/* Puts out what can be no part of a stop. After a stop nothing more is taken. FAILED when out of memory. */
enum status stop_text_push(struct stop_text *text, const char *bytes, size_t count);
/* Puts out the rest. */
void stop_text_finish(struct stop_text *text);
void stop_text_free(struct stop_text *text);

/* What the options leave open is taken from `config`, which says too what ends a text. */
struct writer {
    const struct tokenizer *tokenizer;      /* borrowed */
    const struct generation_config *config; /* borrowed */
    struct generate_options options;        /* all given */
    char note[GENERATION_NOTE_BYTES];       /* what came from the config */
    struct sampler sampler;
    struct decoding decoding;
};

/* By an engine that has the programs for it. BAD_INPUT when an option is out of range. The caller frees with
 * writer_free. */
enum status writer_create(const struct engine *engine, const struct tokenizer *tokenizer,
                          const struct generation_config *config, const struct generate_options *options,
                          struct writer *out);
void writer_free(struct writer *writer);

/* Appends the prompt's ids, with the template's special tokens; the end-of-text token where it is empty. BAD_INPUT when
 * there are none. */
enum status writer_encode_prompt(const struct model *model, const struct tokenizer *tokenizer, const char *prompt,
                                 struct token_ids *ids);

/* A text on its way. */
struct written_text {
    uint32_t number;       /* among those written together: its draws depend on it */
    struct token_ids *ids; /* the prompt, then what is new; borrowed */
    int64_t new_tokens, max;
    struct tokenizer_decoder *decoder;
    struct stop_text out;
    bool finished;
    enum generate_finish finish;
};
/* The caller frees with written_text_free, also after a failure. */
enum status written_text_begin(const struct writer *writer, uint32_t number, struct token_ids *ids, generate_sink *sink,
                               void *payload, struct written_text *out);
/* Draws the next token from logits [vocab] and takes it, or finishes. */
enum status written_text_take(struct writer *writer, struct written_text *text, const float *logits);
void written_text_free(struct written_text *text);

/* A model that was opened with all that a writer takes. */
struct writer_model {
    struct session session;
    struct session_plan plan;
    struct generation_config config;
    struct tokenizer *tokenizer;
    struct engine engine;
};
/* Compiles the programs and reads the settings, in this order; writer_model_load then takes memory and reads the
 * weights, so that what is wrong with prompts can be said before. Statuses as train_begin. The caller calls
 * writer_model_close in any case, on a struct that was zeroed; it must not be moved. */
enum status writer_model_open(const char *folder, const struct plan_options *plan, struct writer_model *out);
enum status writer_model_load(struct writer_model *model);
void writer_model_close(struct writer_model *model);
