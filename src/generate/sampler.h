/* Drawing a token from logits. */
#ifndef BALLAST_GENERATE_SAMPLER_H
#define BALLAST_GENERATE_SAMPLER_H

#include <stdint.h>

#include "base/status.h"
#include "generate/generate.h"

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

#endif
