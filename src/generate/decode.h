/* Logits of the next tokens of several texts, from key-value caches. What is not in them yet goes through the prefill
 * program in chunks of one text; then one token of each text at a time goes through the decode program.
 *
 * The prefill program always computes PREFILL_TOKENS tokens and the decode program DECODE_TEXTS, some of which may not
 * count. Since kernels are called on the same sizes every time and no token's sums depend on its neighbours, the
 * logits of a text do not depend on what other texts are computed with it, nor on how many. */
#pragma once

#include "base/base.h"
#include "generate/generate.h"
#include "session/engine.h"

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
