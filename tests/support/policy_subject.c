#include "support/policy_subject.h"

#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "support/harness.h"
#include "support/unit.h"

enum { BATCH = 7, TOKENS = 13, VOCAB = 211 };

const struct policy_subject policy_subjects[POLICY_SUBJECTS] = {
    {"gpt2", NULL, NULL, DTYPE_F32},          {"llama", NULL, NULL, DTYPE_BF16},
    {"mistral", NULL, NULL, DTYPE_F32},       {"opt", NULL, NULL, DTYPE_BF16},
    {"phi3", NULL, NULL, DTYPE_BF16},         {"qwen2_tied", NULL, NULL, DTYPE_BF16},
    {"qwen3_bias", NULL, NULL, DTYPE_F32},    {"gpt2", "2,4,c_attn,c_fc", NULL, DTYPE_BF16},
    {"llama_tied", NULL, "*.0.*", DTYPE_F32}, {"opt_post_norm", NULL, NULL, DTYPE_F32},
};

static struct model_config deep_config(void) {
    struct model_config config;
    assert_int_equal(model_config_init("llama", &config), STATUS_OK);
    config.hidden = 24;
    config.layers = POLICY_SUBJECT_BLOCKS - 2;
    config.heads = 3;
    config.kv_heads = config.head_dim = config.ffn = 0;
    config.vocab_size = VOCAB;
    config.context = 32;
    return config;
}

static void train(const struct harness_options *options, bool interleaved, struct policy_outcome *out) {
    struct harness harness;
    harness_open(options, &harness);
    for (int step = 0; step < POLICY_STEPS; step++) {
        int32_t tokens[BATCH * TOKENS], targets[BATCH * TOKENS];
        for (uint64_t i = 0; i < BATCH * TOKENS; i++) {
            tokens[i] = (int32_t)(random_u64(5, RANDOM_TEST, (uint32_t)step, i) % VOCAB);
            targets[i] = i % 11 == 0 ? -100 : (tokens[i] * 7 + 3) % VOCAB;
        }
        harness_set_inputs(&harness, tokens, targets);
        out->losses[step] = harness_step(&harness, 1e-3, interleaved);
        out->norms[step] = ((const double *)harness_data(&harness, "clip"))[0];
    }
    out->weights = harness_fingerprint(&harness);
    harness_close(&harness);
}

struct policy_outcome policy_train(const struct policy_subject *subject, const struct policy_way *way) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s/models/%s", BALLAST_FIXTURES, subject->model ? subject->model : "");
    struct model_config config = deep_config();
    struct harness_options options = {.backend = way->backend,
                                      .folder = subject->model ? folder : NULL,
                                      .config = &config,
                                      .lora = subject->lora,
                                      .freeze = subject->freeze,
                                      .purpose = MODEL_LOSS,
                                      .dtype = subject->dtype,
                                      .batch = BATCH,
                                      .sequence_length = TOKENS,
                                      .grain_sequences = 2,
                                      .grains_per_pass = way->policy ? way->policy->grains_per_pass : 1,
                                      .policy = way->policy ? *way->policy : (struct policy){0},
                                      .policy_seed = way->policy_seed,
                                      .clip_norm = 0.5,
                                      .weight_decay = 0.1,
                                      .streams = way->streams,
                                      /* Also that of adapters' first values: the same in all ways. */
                                      .seed = way->seed ? way->seed : 3};
    struct policy_outcome outcome;
    train(&options, way->interleaved, &outcome);
    return outcome;
}

void policy_require_equal(const struct policy_subject *subject, const struct policy_way *way,
                          const struct policy_outcome *plain, const struct policy_outcome *other) {
    bool equal = memcmp(plain->losses, other->losses, sizeof plain->losses) == 0 &&
                 memcmp(plain->norms, other->norms, sizeof plain->norms) == 0 && plain->weights == other->weights;
    if (equal) return;
    fail_msg("%s: the policy of seed %llu ('%s'; %d streams of seed %llu) changes the bits: loss %.17g, plain %.17g",
             subject->model ? subject->model : "six layers", (unsigned long long)way->policy_seed,
             way->policy ? way->policy->schedule : "", way->streams, (unsigned long long)way->seed,
             other->losses[POLICY_STEPS - 1], plain->losses[POLICY_STEPS - 1]);
}
