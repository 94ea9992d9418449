/* A recipe has one result, whatever the micro-batches per wave, the streams and their order, and in every run. */
/* ctest: PROCESSORS 2 TIMEOUT 600 LABELS long */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
/* ctest-again: cuda BALLAST_TEST_BACKEND=cuda */
#include <stdio.h>

#include "support/outcome.h"
#include "support/unit.h"

enum { BATCH = 7, TOKENS = 13 };

static struct outcome train_part(const char *name, const char *lora, const char *freeze, enum dtype dtype, int threads,
                                 int64_t micro_batches_per_wave, int streams, bool interleaved, uint64_t seed) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s/models/%s", BALLAST_FIXTURES, name);
    struct harness_options options = {.folder = folder,
                                      .lora = lora,
                                      .freeze = freeze,
                                      .purpose = MODEL_LOSS,
                                      .dtype = dtype,
                                      .batch = BATCH,
                                      .sequence_length = TOKENS,
                                      .micro_batch_sequences = 2,
                                      .micro_batches_per_wave = micro_batches_per_wave,
                                      .clip_norm = 0.5,
                                      .weight_decay = 0.1,
                                      .streams = streams,
                                      .threads = threads,
                                      .seed = seed};
    return outcome_train(&options, interleaved);
}

static struct outcome train(const char *name, enum dtype dtype, int64_t micro_batches_per_wave, int streams,
                            bool interleaved, uint64_t seed) {
    return train_part(name, NULL, NULL, dtype, 0, micro_batches_per_wave, streams, interleaved, seed);
}

static const char *const models[] = {"gpt2",          "llama", "llama_tied", "mistral",   "opt",
                                     "opt_post_norm", "phi3",  "qwen2_tied", "qwen3_bias"};

static void repeats_and_micro_batches_in_a_wave_change_no_bit(void **state) {
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (int d = 0; d < 2; d++) {
            enum dtype dtype = d ? DTYPE_BF16 : DTYPE_F32;
            struct outcome plain = train(models[m], dtype, 1, 1, false, 0);
            for (int64_t micro_batches = 1; micro_batches <= 4; micro_batches++) {
                struct outcome other = train(models[m], dtype, micro_batches, 1, false, 0);
                char what[128];
                snprintf(what, sizeof what, "%s, %s, %d micro-batches per wave", models[m], dtype_name(dtype),
                         (int)micro_batches);
                outcome_require_equal(what, &plain, &other);
            }
        }
}

/* Adapters, and a part of the weights frozen. */
static void parts_of_models_have_the_same_bits(void **state) {
    (void)state;
    static const struct {
        const char *name, *lora, *freeze;
    } parts[] = {
        {"llama", "3,5,all-linear", ""}, {"gpt2", "2,4,c_attn,c_fc", ""}, {"phi3", "4,4,all-linear", "*lora_A*"},
        {"opt", "", "*.weight"},         {"llama_tied", "", "*.0.*"},     {"gpt2", "", "*.bias"}};
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
        for (int d = 0; d < 2; d++) {
            enum dtype dtype = d ? DTYPE_BF16 : DTYPE_F32;
            struct outcome plain = train_part(parts[p].name, parts[p].lora, parts[p].freeze, dtype, 0, 1, 1, false, 0);
            for (int64_t micro_batches = 2; micro_batches <= 4; micro_batches++) {
                struct outcome other =
                    train_part(parts[p].name, parts[p].lora, parts[p].freeze, dtype, 0, micro_batches, 3, true, 0);
                char what[128];
                snprintf(what, sizeof what, "%s, lora %s, freeze %s, %s, %d micro-batches per wave", parts[p].name,
                         parts[p].lora, parts[p].freeze, dtype_name(dtype), (int)micro_batches);
                outcome_require_equal(what, &plain, &other);
            }
        }
}

static void random_interleavings_change_no_bit(void **state) {
    (void)state;
    static const char *const names[] = {"llama_tied", "gpt2", "phi3", "opt_post_norm", "qwen3_bias"};
    enum { NAMES = sizeof names / sizeof *names };
    struct outcome plain[NAMES];
    for (int i = 0; i < NAMES; i++)
        plain[i] = train(names[i], DTYPE_BF16, 1, 1, false, 0);
    for (uint64_t seed = 1, last = unit_sweep(20, 400); seed <= last; seed++) {
        int which = (int)(seed % NAMES);
        struct outcome other = train(names[which], DTYPE_BF16, 1 + (int64_t)seed % 4, 2 + (int)seed % 4, true, seed);
        char what[128];
        snprintf(what, sizeof what, "%s: interleaving with seed %d", names[which], (int)seed);
        outcome_require_equal(what, &plain[which], &other);
    }
}

static void several_workers_change_no_bit(void **state) {
    (void)state;
    struct outcome plain = train("llama", DTYPE_F32, 1, 1, false, 0);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct outcome other = train("llama", DTYPE_F32, 2, 3, false, seed);
        outcome_require_equal("three workers", &plain, &other);
    }
}

static void the_number_of_threads_changes_no_bit(void **state) {
    (void)state;
    static const int counts[] = {1, 3, 4, 8, 16};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (int d = 0; d < 2; d++) {
            enum dtype dtype = d ? DTYPE_BF16 : DTYPE_F32;
            const char *lora = m % 2 ? "3,5,all-linear" : NULL;
            struct outcome two = train_part(models[m], lora, NULL, dtype, 2, 2, 1, false, 0);
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                struct outcome other = train_part(models[m], lora, NULL, dtype, counts[i], 2, 1, false, 0);
                char what[128];
                snprintf(what, sizeof what, "%s, %s, %d threads", models[m], dtype_name(dtype), counts[i]);
                outcome_require_equal(what, &two, &other);
            }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeats_and_micro_batches_in_a_wave_change_no_bit),
        cmocka_unit_test(parts_of_models_have_the_same_bits),
        cmocka_unit_test(random_interleavings_change_no_bit),
        cmocka_unit_test(several_workers_change_no_bit),
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
