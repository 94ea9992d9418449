#include "support/policy_subject.h"

#include <stdio.h>

#include "support/unit.h"

enum { BATCH = 7, TOKENS = 13 };

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
    config.vocab_size = OUTCOME_VOCAB;
    config.context = 32;
    return config;
}

struct outcome policy_train(const struct policy_subject *subject, const struct policy_way *way) {
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
    return outcome_train(&options, way->interleaved);
}
