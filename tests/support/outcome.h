/* Short training runs that are compared to the bit. */
#pragma once

#include "support/harness.h"
#include "support/model_cases.h"

enum { OUTCOME_STEPS = 3, OUTCOME_VOCAB = MODEL_CASE_VOCAB };

/* What must not depend on the policy. */
struct outcome {
    double losses[OUTCOME_STEPS], norms[OUTCOME_STEPS];
    uint64_t weights; /* harness_fingerprint */
    /* And this is what they did not depend on. */
    struct policy policy;
};

/* Sets the batch of a step: random tokens, and targets of which some are ignored. */
void outcome_set_batch(struct harness *harness, int step);
/* Opens, trains OUTCOME_STEPS steps, each with a batch and a rate of its own, and closes. */
struct outcome outcome_train(const struct harness_options *options, bool interleaved);
/* Fails the test, telling where, unless both are equal to the bit. */
void outcome_require_equal(const char *what, const struct outcome *plain, const struct outcome *other);
