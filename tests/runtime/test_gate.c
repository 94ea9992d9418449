/* The gate before a step's update: until it opens, no weight or optimizer state changes, on any stream. */
/* ctest: PROCESSORS 2 */
#include <pthread.h>
#include <stdio.h>

#include "support/outcome.h"
#include "support/unit.h"

enum { BATCH = 5, TOKENS = 13 };

struct gate {
    struct harness *harness;
    pthread_mutex_t lock;
    int calls; /* of this step */
    uint64_t before;
    bool same;
};

/* Streams that come while the first one looks wait for the lock, and so change nothing. */
static void look(void *payload) {
    struct gate *gate = payload;
    pthread_mutex_lock(&gate->lock);
    if (gate->calls++ == 0) gate->same = harness_fingerprint(gate->harness) == gate->before;
    pthread_mutex_unlock(&gate->lock);
}

static void train_gated(const char *name, const char *lora, enum dtype dtype, int streams) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s/models/%s", BALLAST_FIXTURES, name);
    struct harness_options options = {.folder = folder,
                                      .lora = lora,
                                      .purpose = MODEL_LOSS,
                                      .dtype = dtype,
                                      .batch = BATCH,
                                      .sequence_length = TOKENS,
                                      .micro_batch_sequences = 2,
                                      .micro_batches_per_wave = 1,
                                      .clip_norm = 1,
                                      .streams = streams,
                                      .seed = 7};
    struct harness harness;
    harness_open(&options, &harness);
    struct gate gate = {.harness = &harness, .lock = PTHREAD_MUTEX_INITIALIZER};
    runner_set_gate(harness.runner, look, &gate);
    for (int step = 0; step < OUTCOME_STEPS; step++) {
        outcome_set_batch(&harness, step);
        gate.calls = 0;
        gate.before = harness_fingerprint(&harness);
        (void)harness_step(&harness, 1e-3, false);
        assert_true(gate.calls > 0);
        assert_true(gate.same);
        assert_true(harness_fingerprint(&harness) != gate.before);
    }
    harness_close(&harness);
}

static void nothing_changes_before_the_gate(void **state) {
    (void)state;
    for (int streams = 1; streams <= 3; streams++) {
        train_gated("llama", NULL, DTYPE_F32, streams);
        train_gated("llama_tied", NULL, DTYPE_BF16, streams);
        train_gated("gpt2", NULL, DTYPE_F32, streams);
        train_gated("llama", "4,8,all-linear", DTYPE_BF16, streams);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_changes_before_the_gate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
