/* Drawing a token from logits. */
#ifndef BALLAST_TRAIN_SAMPLER_H
#define BALLAST_TRAIN_SAMPLER_H

#include <stdint.h>

#include "base/status.h"
#include "train/generate.h"

struct sampler {
    const struct generate_options *options; /* borrowed */
    uint64_t seed;
    int64_t vocab;
    struct sampler_choice *choices; /* one for each token */
};

/* BAD_INPUT when an option is out of range. The caller frees with sampler_free. */
enum status sampler_create(const struct generate_options *options, uint64_t seed, int64_t vocab, struct sampler *out);
void sampler_free(struct sampler *sampler);

/* The token for `position`, from logits [vocab]: softmax(logits / temperature), cut to the top_k likeliest, of these to
 * the fewest that hold top_p of the rest's probability (Holtzman et al., arXiv 1904.09751, section 3.1), then drawn by
 * (seed, position). Temperature 0: the likeliest, of equals the first. FAILED when a logit is NaN. */
enum status sampler_draw(struct sampler *sampler, const float *logits, int64_t position, uint32_t *token);

#endif
