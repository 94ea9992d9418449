#include "support/outcome.h"

#include <string.h>

#include "base/random.h"
#include "support/unit.h"

void outcome_set_batch(struct harness *harness, int step) {
    int64_t count = harness->options.batch * harness->options.sequence_length;
    int32_t *tokens = mem_array((size_t)count, sizeof *tokens), *targets = mem_array((size_t)count, sizeof *targets);
    assert_true(tokens && targets);
    for (int64_t i = 0; i < count; i++) {
        tokens[i] = (int32_t)(random_u64(5, RANDOM_TEST, (uint32_t)step, (uint64_t)i) % OUTCOME_VOCAB);
        targets[i] = i % 11 == 0 ? (i % 2 == 0 ? TARGET_PADDING : -100) : (tokens[i] * 7 + 3) % OUTCOME_VOCAB;
    }
    harness_set_inputs(harness, tokens, targets);
    mem_free(tokens);
    mem_free(targets);
}

struct outcome outcome_train(const struct harness_options *options, bool interleaved) {
    struct harness harness;
    struct outcome outcome;
    harness_open(options, &harness);
    for (int step = 0; step < OUTCOME_STEPS; step++) {
        outcome_set_batch(&harness, step);
        outcome.losses[step] = harness_step(&harness, 1e-3 / (1 + step), interleaved);
        outcome.norms[step] = ((const double *)harness_data(&harness, "clip"))[0];
    }
    outcome.weights = harness_fingerprint(&harness);
    outcome.policy = harness.options.policy;
    harness_close(&harness);
    return outcome;
}

void outcome_require_equal(const char *what, const struct outcome *plain, const struct outcome *other) {
    for (int step = 0; step < OUTCOME_STEPS; step++)
        if (memcmp(&plain->losses[step], &other->losses[step], sizeof(double)) != 0 ||
            memcmp(&plain->norms[step], &other->norms[step], sizeof(double)) != 0)
            fail_msg("%s: step %d: loss %.17g, norm %.17g; plain run %.17g, %.17g", what, step, other->losses[step],
                     other->norms[step], plain->losses[step], plain->norms[step]);
    if (plain->weights != other->weights) fail_msg("%s: the weights differ", what);
}
