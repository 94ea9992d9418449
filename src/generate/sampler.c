#include "generate/sampler.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"

enum status sampler_create(const struct generate_options *options, uint64_t seed, int64_t vocab, struct sampler *out) {
#define CHECK(field, type)                                                                                             \
    TRY(setting_check_##type(&setting_table[SETTING_##field], setting_table[SETTING_##field].name, options->field));
    CHECK(temperature, float)
    CHECK(top_k, int)
    CHECK(top_p, float)
    CHECK(repetition_penalty, float)
    struct sampler sampler = {.options = options, .seed = seed, .vocab = vocab};
    sampler.scores = mem_array((size_t)vocab, sizeof *sampler.scores);
    sampler.choices = mem_array((size_t)vocab, sizeof *sampler.choices);
    if (!sampler.scores || !sampler.choices) {
        sampler_free(&sampler);
        return STATUS_FAILED;
    }
    *out = sampler;
    return STATUS_OK;
}

void sampler_free(struct sampler *sampler) {
    mem_free(sampler->scores);
    mem_free(sampler->choices);
    sampler->scores = NULL;
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

/* How many of the sorted choices stay. */
static int64_t cut_tail(const struct sampler *sampler) {
    int64_t count = sampler->vocab, top_k = sampler->options->top_k;
    if (top_k > 0 && top_k < count) count = top_k;
    double all = 0, kept = 0;
    for (int64_t i = 0; i < count; i++)
        all += sampler->choices[i].weight;
    int64_t used = 0;
    while (used < count && (used == 0 || kept < sampler->options->top_p * all))
        kept += sampler->choices[used++].weight;
    return used;
}

/* However often a token is there, it counts once. */
static enum status score(struct sampler *sampler, const struct sampler_input *input) {
    for (int64_t i = 0; i < sampler->vocab; i++)
        if (isnan(input->logits[i]))
            return status_set(STATUS_FAILED, "the logit of token %" PRId64 " is not a number", i);
    memcpy(sampler->scores, input->logits, (size_t)sampler->vocab * sizeof *sampler->scores);
    float penalty = (float)sampler->options->repetition_penalty;
    for (size_t i = 0; i < input->count; i++) {
        float logit = input->logits[input->ids[i]];
        sampler->scores[input->ids[i]] = logit < 0 ? logit * penalty : logit / penalty;
    }
    return STATUS_OK;
}

enum status sampler_choose(struct sampler *sampler, const struct sampler_input *input, int64_t *count) {
    TRY(score(sampler, input));
    uint32_t best = likeliest(sampler->scores, sampler->vocab);
    if (sampler->options->temperature <= 0) {
        sampler->choices[0] = (struct sampler_choice){.weight = 1, .token = best};
        *count = 1;
        return STATUS_OK;
    }
    double max = (double)sampler->scores[best];
    for (int64_t i = 0; i < sampler->vocab; i++) {
        double weight = exp(((double)sampler->scores[i] - max) / sampler->options->temperature);
        sampler->choices[i] = (struct sampler_choice){.weight = weight, .token = (uint32_t)i};
    }
    qsort(sampler->choices, (size_t)sampler->vocab, sizeof *sampler->choices, by_weight);
    *count = cut_tail(sampler);
    return STATUS_OK;
}

enum status sampler_draw(struct sampler *sampler, const struct sampler_input *input, uint32_t text, int64_t position,
                         uint32_t *token) {
    int64_t count, chosen = 0;
    TRY(sampler_choose(sampler, input, &count));
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += sampler->choices[i].weight;
    double at = random_uniform(sampler->seed, RANDOM_SAMPLE, text, (uint64_t)position) * sum;
    for (; chosen < count - 1; chosen++) {
        at -= sampler->choices[chosen].weight;
        if (at < 0) break;
    }
    *token = sampler->choices[chosen].token;
    return STATUS_OK;
}
