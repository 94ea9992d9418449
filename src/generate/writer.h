/* A model that writes, and a text on its way: what single texts, many at once, chats and samples share. */
#pragma once

#include "base/base.h"
#include "base/text.h"
#include "generate/generate.h"
#include "session/engine.h"

/* Logits of the next tokens of several texts, from key-value caches. What is not in them yet goes through the prefill
 * program in chunks of one text; then one token of each text at a time goes through the decode program.
 *
 * The prefill program always computes PREFILL_TOKENS tokens and the decode program DECODE_TEXTS, some of which may not
 * count. Since kernels are called on the same sizes every time and no token's sums depend on its neighbours, the
 * logits of a text do not depend on what other texts are computed with it, nor on how many. */

/* A text in the caches. */
struct cached_text {
    size_t start;     /* index of the token whose key and value are in the first row */
    size_t filled;    /* tokens in the caches */
    size_t prefilled; /* how many of these, from the first on, went through the prefill program */
};

struct decoding {
    const struct engine *engine; /* borrowed; its plan has the programs to write */
    int64_t positions;           /* rows of a text: the recipe's sequence length */
    struct cached_text *texts;   /* [request.set.texts of the plan], empty at first */
};

/* The caller frees with decoding_free. */
enum status decoding_create(const struct engine *engine, struct decoding *out);
void decoding_free(struct decoding *decoding);

/* Forgets all of a text but at most its first `count` tokens, and returns how many are left (0: a new text). Rows of
 * the decode program are dropped: their bits may differ from the prefill's, and what follows must equal a text that is
 * computed as a whole. */
size_t decoding_keep(struct decoding *decoding, int64_t text, size_t count);
/* Whether one new token of `count` is all that the caches lack, and it fits: it may go through decoding_step. */
bool decoding_continues(const struct decoding *decoding, int64_t text, size_t count);

/* The logits [vocab] of the token after `ids`, of which those that are in the caches must be the same; valid until the
 * next call. A text that outgrows the caches is computed anew from its last tokens: as many as they hold where it is
 * new, else half as many. */
enum status decoding_read(struct decoding *decoding, int64_t text, const uint32_t *ids, size_t count,
                          const float **logits);

/* One token each of at most DECODE_TEXTS texts, all of which continue. */
struct decoding_token {
    int64_t text;
    uint32_t id;
};
/* The logits [count][vocab] of the tokens after them, valid until the next call. */
enum status decoding_step(struct decoding *decoding, const struct decoding_token *tokens, size_t count,
                          const float **logits);

/* Drawing a token from logits. */

struct sampler_choice {
    double weight; /* in proportion to its probability */
    uint32_t token;
};

struct sampler {
    const struct generate_options *options; /* borrowed; all given */
    uint64_t seed;
    int64_t vocab;
    float *scores;                  /* [vocab]: logits with the penalty of repetition */
    struct sampler_choice *choices; /* [vocab] */
};

/* BAD_INPUT when an option is out of range. The caller frees with sampler_free. */
enum status sampler_create(const struct generate_options *options, uint64_t seed, int64_t vocab, struct sampler *out);
void sampler_free(struct sampler *sampler);

/* What a token is drawn from: logits [vocab] after the `count` tokens of `ids`. */
struct sampler_input {
    const float *logits;
    const uint32_t *ids; /* prompt and text */
    size_t count;
};

/* The choices, likeliest first, in `sampler->choices`, and how many: of the logits, with the penalty on those of `ids`,
 * softmax(logits / temperature), cut to the top_k likeliest, of these to the fewest that hold top_p of the rest's
 * probability (Holtzman et al., arXiv 1904.09751, section 3.1). Temperature 0: the likeliest, of equals the first. As
 * transformers' processors in their order, but that these keep all of equals. FAILED when a logit is NaN. */
enum status sampler_choose(struct sampler *sampler, const struct sampler_input *input, int64_t *count);
/* One of these by (seed, text, position): the text's number among those written together, and the token's in it. */
enum status sampler_draw(struct sampler *sampler, const struct sampler_input *input, uint32_t text, int64_t position,
                         uint32_t *token);

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

/* A sink that keeps the text, and hands it on. */
struct kept_text {
    struct text_buffer text;
    enum status status;  /* of keeping it */
    generate_sink *sink; /* NULL: none */
    void *payload;
};
bool kept_text_take(void *payload, const char *text, size_t bytes);
static inline void kept_text_free(struct kept_text *kept) { vec_free(&kept->text); }

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

/* Writes the continuation of a prompt (without it) to `sink`: the text of number `text` (0 for one alone), in the first
 * caches. What these hold is the beginning of the prompt (decoding_keep). Draws depend on seed, text and position only.
 * `ids`, the prompt, gets the new tokens too, and `result` may be NULL. decoding_read says what texts that outgrow the
 * caches see. */
enum status generate_continue(struct writer *writer, uint32_t text, struct token_ids *ids, generate_sink *sink,
                              void *payload, struct generate_result *result);
