#include "train/sampler.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/random.h"

struct sampler_choice {
    double weight;
    uint32_t token;
};

enum status sampler_create(const struct generate_options *options, uint64_t seed, int64_t vocab, struct sampler *out) {
    if (!(options->temperature >= 0 && options->temperature <= 1e6))
        return status_set(STATUS_BAD_INPUT, "temperature: %g is not in 0 to 1e6", options->temperature);
    if (!(options->top_p > 0 && options->top_p <= 1))
        return status_set(STATUS_BAD_INPUT, "top-p: %g is not above 0 and at most 1", options->top_p);
    if (options->top_k < 0) return status_set(STATUS_BAD_INPUT, "top-k: %" PRId64 " is negative", options->top_k);
    struct sampler sampler = {.options = options, .seed = seed, .vocab = vocab};
    sampler.choices = mem_array((size_t)vocab, sizeof *sampler.choices);
    if (!sampler.choices) return STATUS_FAILED;
    *out = sampler;
    return STATUS_OK;
}

void sampler_free(struct sampler *sampler) {
    mem_free(sampler->choices);
    sampler->choices = NULL;
}

static int by_weight(const void *a, const void *b) {
    const struct sampler_choice *x = a, *y = b;
    if (x->weight > y->weight || x->weight < y->weight) return x->weight > y->weight ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}

static uint32_t likeliest(const float *logits, int64_t vocab) {
    int64_t best = 0;
    for (int64_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return (uint32_t)best;
}

/* How many of the sorted choices stay, and their sum. */
static int64_t cut_tail(const struct sampler *sampler, double *sum) {
    int64_t count = sampler->vocab, top_k = sampler->options->top_k;
    if (top_k > 0 && top_k < count) count = top_k;
    double all = 0, kept = 0;
    for (int64_t i = 0; i < count; i++)
        all += sampler->choices[i].weight;
    int64_t used = 0;
    while (used < count && (used == 0 || kept < sampler->options->top_p * all))
        kept += sampler->choices[used++].weight;
    *sum = kept;
    return used;
}

enum status sampler_draw(struct sampler *sampler, const float *logits, int64_t position, uint32_t *token) {
    for (int64_t i = 0; i < sampler->vocab; i++)
        if (isnan(logits[i])) return status_set(STATUS_FAILED, "the logit of token %" PRId64 " is not a number", i);
    *token = likeliest(logits, sampler->vocab);
    if (sampler->options->temperature <= 0) return STATUS_OK;
    double most = (double)logits[*token];
    for (int64_t i = 0; i < sampler->vocab; i++) {
        double weight = exp(((double)logits[i] - most) / sampler->options->temperature);
        sampler->choices[i] = (struct sampler_choice){.weight = weight, .token = (uint32_t)i};
    }
    qsort(sampler->choices, (size_t)sampler->vocab, sizeof *sampler->choices, by_weight);
    double sum;
    int64_t count = cut_tail(sampler, &sum);
    double at = random_uniform(sampler->seed, RANDOM_SAMPLE, 0, (uint64_t)position) * sum;
    int64_t chosen = 0;
    for (; chosen < count - 1; chosen++) {
        at -= sampler->choices[chosen].weight;
        if (at < 0) break;
    }
    *token = sampler->choices[chosen].token;
    return STATUS_OK;
}
