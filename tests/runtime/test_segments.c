/* Documents packed into one sequence with segments train like the same documents in separate sequences. */
#include "support/unit.h"

#include <math.h>
#include <string.h>

#include "support/harness.h"
#include "support/model_cases.h"
#include "support/weight_files.h"

enum { LENGTH = 24, DOCUMENTS = 3, STEPS = 3, VOCAB = MODEL_CASE_VOCAB };
static const int document_tokens[DOCUMENTS] = {7, 1, 15}; /* and one position of padding */

static int32_t token_of(int document, int at) { return (document * 71 + at * 29 + at * at) % VOCAB; }

static struct harness_options options_for(const char *model, enum model_purpose purpose, int64_t batch) {
    return (struct harness_options){.folder = fixture_model(model),
                                    .purpose = purpose,
                                    .dtype = DTYPE_F32,
                                    .batch = batch,
                                    .sequence_length = LENGTH,
                                    .micro_batch_sequences = 1,
                                    .micro_batches_per_wave = 1};
}

/* One document a row. */
static void set_alone(struct harness *harness) {
    int32_t tokens[DOCUMENTS * LENGTH] = {0}, targets[DOCUMENTS * LENGTH];
    for (int d = 0; d < DOCUMENTS; d++)
        for (int i = 0; i < LENGTH; i++) {
            bool unpadded = i < document_tokens[d];
            tokens[d * LENGTH + i] = unpadded ? token_of(d, i) : 0;
            targets[d * LENGTH + i] = unpadded ? token_of(d, i + 1) : -100;
        }
    harness_set_inputs(harness, tokens, targets);
}

static void set_packed(struct harness *harness) {
    int32_t tokens[LENGTH] = {0}, targets[LENGTH], positions[LENGTH] = {0}, segments[LENGTH];
    int at = 0;
    for (int d = 0; d < DOCUMENTS; d++)
        for (int i = 0; i < document_tokens[d]; i++, at++) {
            tokens[at] = token_of(d, i);
            targets[at] = token_of(d, i + 1);
            positions[at] = i;
            segments[at] = d;
        }
    for (; at < LENGTH; at++) {
        targets[at] = -100;
        segments[at] = DOCUMENTS;
    }
    harness_set_inputs(harness, tokens, targets);
    memcpy(harness_data(harness, "positions"), positions, sizeof positions);
    if (harness_data(harness, "segments")) memcpy(harness_data(harness, "segments"), segments, sizeof segments);
}

static void expect_same_weights(const struct harness *a, const struct harness *b) {
    const struct graph *graph = harness_graph(a);
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != TENSOR_PARAMETER) continue;
        float *x = harness_weights(a, tensor), *y = harness_weights(b, graph_find(harness_graph(b), tensor->name));
        for (int64_t k = 0; k < shape_elements(&tensor->shape); k++)
            if (!(fabsf(x[k] - y[k]) <= 2e-5f * (1 + fabsf(y[k]))))
                fail_msg("%s[%lld]: %g packed, %g alone", tensor->name, (long long)k, (double)x[k], (double)y[k]);
        mem_free(x);
        mem_free(y);
    }
}

static void expect_equal_training(const char *model) {
    struct harness alone, packed;
    struct harness_options one = options_for(model, MODEL_LOSS_SEGMENTED, 1);
    struct harness_options many = options_for(model, MODEL_LOSS, DOCUMENTS);
    harness_open(&one, &packed);
    harness_open(&many, &alone);
    set_packed(&packed);
    set_alone(&alone);
    for (int step = 0; step < STEPS; step++) {
        double x = harness_step(&packed, 1e-3, false), y = harness_step(&alone, 1e-3, false);
        print_message("%-8s step %d: %.9g packed, %.9g alone\n", model, step, x, y);
        assert_true(fabs(x / y - 1) < 1e-5);
    }
    expect_same_weights(&packed, &alone);
    harness_close(&packed);
    harness_close(&alone);
}

static void packed_documents_train_as_alone(void **state) {
    (void)state;
    for (int i = 0; i < model_family_count; i++)
        expect_equal_training(model_families[i]->name);
}

/* The check above would notice attention across: without segments the loss is another. */
static void without_segments_they_do_not(void **state) {
    (void)state;
    struct harness segmented, joined;
    struct harness_options one = options_for("llama", MODEL_LOSS_SEGMENTED, 1);
    struct harness_options other = options_for("llama", MODEL_LOSS, 1);
    harness_open(&one, &segmented);
    harness_open(&other, &joined);
    set_packed(&segmented);
    set_packed(&joined);
    double x = harness_step(&segmented, 0, false), y = harness_step(&joined, 0, false);
    assert_true(fabs(x / y - 1) > 1e-4);
    harness_close(&segmented);
    harness_close(&joined);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_documents_train_as_alone),
        cmocka_unit_test(without_segments_they_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
