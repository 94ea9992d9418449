/* A model that generates text, and a text in progress. Single texts, batches, chats and samples share them. */
#pragma once

#include "base/base.h"
#include "base/text.h"
#include "generate/generate.h"
#include "session/engine.h"

/* Computes the logits of the next tokens of several texts, with key-value caches. The prefill program processes tokens
 * that are not in the caches yet, in chunks of one text. Then the decode program processes one token of each text at a
 * time.
 *
 * The prefill program always computes PREFILL_TOKENS tokens and the decode program DECODE_TEXTS, of which some may
 * be padding. So kernels always see the same sizes, and the sums of a token do not depend on its neighbours. The
 * logits of a text therefore do not depend on the texts that are computed with it, nor on their number. */

/* A text in the caches. */
struct cached_text {
    size_t start;     /* index of the token in the first row of the cache */
    size_t filled;    /* tokens in the caches */
    size_t prefilled; /* the first so many of them came from the prefill program */
};

struct decoding {
    const struct engine *engine; /* borrowed; its plan has the programs for generation */
    int64_t positions;           /* cache rows per text: the recipe's sequence length */
    struct cached_text *texts;   /* [request.set.texts of the plan], empty at first */
};

/* The caller calls decoding_free. */
enum status decoding_create(const struct engine *engine, struct decoding *out);
void decoding_free(struct decoding *decoding);

/* Drops all but at most the first `count` tokens of a text from the caches, and returns the number left (0: a new
 * text). Always drops rows of the decode program: their bits may differ from the prefill program's, and the
 * continuation must equal that of a text that is computed as a whole. */
size_t decoding_keep(struct decoding *decoding, int64_t text, size_t count);
/* Whether decoding_step may process the text: its `count` tokens are in the caches, except for the last one, which
 * fits. */
bool decoding_continues(const struct decoding *decoding, int64_t text, size_t count);

/* Computes the logits [vocab] of the token after `ids`, which are valid until the next call. The first ids must
 * equal the tokens in the caches. A text that outgrows the caches is recomputed from its last tokens: as many as the
 * caches hold if the text is new, else half as many. */
enum status decoding_read(struct decoding *decoding, int64_t text, const uint32_t *ids, size_t count,
                          const float **logits);

/* The next token of one of at most DECODE_TEXTS texts, for each of which decoding_continues holds. */
struct decoding_token {
    int64_t text;
    uint32_t id;
};
/* Computes the logits [count][vocab] of the tokens that follow. They are valid until the next call. */
enum status decoding_step(struct decoding *decoding, const struct decoding_token *tokens, size_t count,
                          const float **logits);

/* Samples a token from logits. */

struct sampler_choice {
    double weight; /* proportional to its probability */
    uint32_t token;
};

struct sampler {
    const struct generate_options *options; /* borrowed; all options are given */
    uint64_t seed;
    int64_t vocab;
    float *scores;                  /* [vocab]: logits with the repetition penalty */
    struct sampler_choice *choices; /* [vocab] */
};

/* Returns BAD_INPUT if an option is out of range. The caller calls sampler_free. */
enum status sampler_create(const struct generate_options *options, uint64_t seed, int64_t vocab, struct sampler *out);
void sampler_free(struct sampler *sampler);

/* Input of the sampler: the logits [vocab] of the token after the `count` tokens of `ids`. */
struct sampler_input {
    const float *logits;
    const uint32_t *ids; /* prompt and text */
    size_t count;
};

/* Computes the choices, most likely first, in `sampler->choices`, and their number. Applies the repetition penalty
 * to the tokens of `ids`, then softmax(logits / temperature), top_k, and top_p of the remaining probability
 * (Holtzman et al., arXiv 1904.09751, section 3.1). Temperature 0: the most likely token, the first of equals. The
 * order is that of transformers' processors, which however keep all equals at the limits. Returns FAILED if a logit
 * is NaN. */
enum status sampler_choose(struct sampler *sampler, const struct sampler_input *input, int64_t *count);
/* Samples one of the choices. (seed, text, position) fix the random number: `text` is the text's index in its batch,
 * and `position` the token's in the text. */
enum status sampler_draw(struct sampler *sampler, const struct sampler_input *input, uint32_t text, int64_t position,
                         uint32_t *token);

/* Output of a text that ends before the first of some strings. */

struct stop_text {
    const char *const *stops; /* none is empty; borrowed */
    size_t stop_count;
    generate_sink *sink;
    void *payload;
    VEC(char) held; /* text that may be the beginning of a stop */
    bool stopped;   /* a stop was found, or the sink ended the text */
};

/* Appends text, and outputs the part that cannot belong to a stop. Does nothing after a stop. Returns FAILED when
 * out of memory. */
enum status stop_text_push(struct stop_text *text, const char *bytes, size_t count);
/* Outputs the remaining text. */
void stop_text_finish(struct stop_text *text);
void stop_text_free(struct stop_text *text);

/* Generates texts with an engine. `config` has the end tokens, and values of options that were not given. */
struct writer {
    const struct tokenizer *tokenizer;      /* borrowed */
    const struct generation_config *config; /* borrowed */
    struct generate_options options;        /* all given */
    char note[GENERATION_NOTE_BYTES];       /* the values that came from `config` */
    struct sampler sampler;
    struct decoding decoding;
};

/* Creates a writer for an engine that has the programs for generation. Returns BAD_INPUT if an option is out of
 * range. The caller calls writer_free. */
enum status writer_create(const struct engine *engine, const struct tokenizer *tokenizer,
                          const struct generation_config *config, const struct generate_options *options,
                          struct writer *out);
void writer_free(struct writer *writer);

/* Appends the prompt's ids, with the special tokens of the tokenizer's post-processor. An empty prompt becomes the
 * end-of-text token. Returns BAD_INPUT if there are no ids. */
enum status writer_encode_prompt(const struct model *model, const struct tokenizer *tokenizer, const char *prompt,
                                 struct token_ids *ids);

/* A text in progress. */
struct written_text {
    uint32_t number;       /* index in the batch; sampling depends on it */
    struct token_ids *ids; /* the prompt, then the new tokens; borrowed */
    int64_t new_tokens, max;
    struct tokenizer_decoder *decoder;
    struct stop_text out;
    bool finished;
    enum generate_finish finish;
};
/* The caller calls written_text_free, also after a failure. */
enum status written_text_begin(const struct writer *writer, uint32_t number, struct token_ids *ids, generate_sink *sink,
                               void *payload, struct written_text *out);
/* Samples the next token from logits [vocab], and appends it or finishes the text. */
enum status written_text_take(struct writer *writer, struct written_text *text, const float *logits);
void written_text_free(struct written_text *text);

/* A sink that stores the text, and passes it on to another. */
struct kept_text {
    struct text_buffer text;
    enum status status;  /* whether storing failed */
    generate_sink *sink; /* NULL: none */
    void *payload;
};
bool kept_text_take(void *payload, const char *text, size_t bytes);
static inline void kept_text_free(struct kept_text *kept) { vec_free(&kept->text); }

/* An opened model, with all objects that a writer needs. */
struct writer_model {
    struct session session;
    struct session_plan plan;
    struct generation_config config;
    struct tokenizer *tokenizer;
    struct engine engine;
};
/* writer_model_open compiles the programs and reads generation_config.json and the tokenizer. writer_model_load then
 * allocates memory and reads the weights, so that the caller can check prompts in between. Return the statuses of
 * train_begin. The struct must be zeroed, and stay at its address. The caller calls writer_model_close, also after a
 * failure. */
enum status writer_model_open(const char *folder, const struct plan_options *plan, struct writer_model *out);
enum status writer_model_load(struct writer_model *model);
void writer_model_close(struct writer_model *model);

/* Continues a prompt, and passes the new text to `sink`. Uses the first caches, whose tokens must begin the prompt
 * (decoding_keep). `text` is the text's index (0 for a single one); sampling depends only on seed, text and
 * position. `ids` holds the prompt and receives the new tokens. `result` may be NULL. decoding_read describes texts
 * that outgrow the caches. */
enum status generate_continue(struct writer *writer, uint32_t text, struct token_ids *ids, generate_sink *sink,
                              void *payload, struct generate_result *result);
