#include "support/policy_subject.h"

#include "support/unit.h"

/* The last micro-batch is not full. */
enum { MICRO_BATCH = 2, BATCH = MICRO_BATCH * POLICY_SUBJECT_MICRO_BATCHES - 1, TOKENS = 13 };
enum { LONG_LENGTH = 32, LONG_MICRO_BATCH = POLICY_LONG_TOKENS / LONG_LENGTH };

/* Adapters are "rank,alpha,layers" (adapter_parse). They start with B = 0, so that the norms of their gradients are
 * small: where one is below POLICY_SUBJECT_CLIP_NORM, name more layers. Of the two dtypes, each family has one of each;
 * which, is free. */
#define ON(format) STATE_FP32, MASTER_WEIGHTS_FP32, UPDATE_ADAMW, WEIGHT_##format
#define USUAL ON(PLAIN)
#define SUBJECTS_OF(family, adapters, adapter_dtype, frozen_dtype)                                                     \
    {#family " in fp32", #family, DTYPE_F32, false, NULL, NULL, USUAL},                                                \
        {"another " #family " in bf16", #family, DTYPE_BF16, true, NULL, NULL, USUAL},                                 \
        {#family " with adapters", #family, adapter_dtype, false, adapters, NULL, USUAL}, {                            \
#family " with frozen layers", #family, frozen_dtype, false, NULL, "*.0.*,*.3.*", USUAL                        \
    }

const struct policy_subject policy_subjects[] = {
    SUBJECTS_OF(gemma2, "2,4,all-linear", DTYPE_BF16, DTYPE_F32),
    SUBJECTS_OF(gemma3_text, "2,4,all-linear", DTYPE_F32, DTYPE_BF16),
    SUBJECTS_OF(gpt2, "2,4,c_attn,c_fc", DTYPE_BF16, DTYPE_F32),
    SUBJECTS_OF(gpt_oss, "2,4,all-linear", DTYPE_BF16, DTYPE_F32),
    SUBJECTS_OF(granite, "2,4,all-linear", DTYPE_F32, DTYPE_BF16),
    SUBJECTS_OF(llama, "2,4,all-linear", DTYPE_F32, DTYPE_BF16),
    SUBJECTS_OF(mistral, "3,4,q_proj,v_proj", DTYPE_BF16, DTYPE_F32),
    SUBJECTS_OF(mixtral, "2,4,all-linear", DTYPE_F32, DTYPE_BF16),
    SUBJECTS_OF(olmo2, "2,4,all-linear", DTYPE_BF16, DTYPE_F32),
    SUBJECTS_OF(olmoe, "2,4,all-linear", DTYPE_BF16, DTYPE_F32),
    SUBJECTS_OF(opt, "2,4,all-linear", DTYPE_F32, DTYPE_BF16),
    SUBJECTS_OF(phi3, "2,4,qkv_proj,down_proj", DTYPE_BF16, DTYPE_F32),
    SUBJECTS_OF(qwen2, "1,4,all-linear", DTYPE_F32, DTYPE_BF16),
    SUBJECTS_OF(qwen2_moe, "2,4,all-linear", DTYPE_BF16, DTYPE_F32),
    SUBJECTS_OF(qwen3, "2,4,k_proj,gate_proj", DTYPE_BF16, DTYPE_F32),
    SUBJECTS_OF(qwen3_moe, "2,4,all-linear", DTYPE_F32, DTYPE_BF16),
    SUBJECTS_OF(smollm3, "2,4,all-linear", DTYPE_F32, DTYPE_BF16),
    {"llama in bf16 with bf16 moments and split masters", "llama", DTYPE_BF16, false, NULL, NULL, STATE_BF16,
     MASTER_WEIGHTS_SPLIT, UPDATE_ADAMW, WEIGHT_PLAIN},
    {"another gpt2 in bf16 with bf16 moments and no masters", "gpt2", DTYPE_BF16, true, NULL, NULL, STATE_BF16,
     MASTER_WEIGHTS_NONE, UPDATE_ADAMW, WEIGHT_PLAIN},
    {"qwen3 in fp32 with bf16 moments", "qwen3", DTYPE_F32, false, NULL, NULL, STATE_BF16, MASTER_WEIGHTS_FP32,
     UPDATE_ADAMW, WEIGHT_PLAIN},
    {"opt in bf16 with adapters and no masters", "opt", DTYPE_BF16, false, "2,4,all-linear", NULL, STATE_FP32,
     MASTER_WEIGHTS_NONE, UPDATE_ADAMW, WEIGHT_PLAIN},
    {"qwen2 in bf16 by Lion with split masters", "qwen2", DTYPE_BF16, false, NULL, NULL, STATE_FP32,
     MASTER_WEIGHTS_SPLIT, UPDATE_LION, WEIGHT_PLAIN},
    {"gpt2 in bf16 by Lion with a bf16 moment and no masters", "gpt2", DTYPE_BF16, false, NULL, NULL, STATE_BF16,
     MASTER_WEIGHTS_NONE, UPDATE_LION, WEIGHT_PLAIN},
    {"llama in fp32 by SGD", "llama", DTYPE_F32, false, NULL, NULL, STATE_FP32, MASTER_WEIGHTS_FP32, UPDATE_SGD,
     WEIGHT_PLAIN},
    {"another phi3 in bf16 by SGD with a bf16 moment", "phi3", DTYPE_BF16, true, NULL, NULL, STATE_BF16,
     MASTER_WEIGHTS_FP32, UPDATE_SGD, WEIGHT_PLAIN},
    {"qwen3 in bf16 with int8 moments and no masters", "qwen3", DTYPE_BF16, false, NULL, NULL, STATE_INT8,
     MASTER_WEIGHTS_NONE, UPDATE_ADAMW, WEIGHT_PLAIN},
    {"another llama in fp32 with int8 moments", "llama", DTYPE_F32, true, NULL, NULL, STATE_INT8, MASTER_WEIGHTS_FP32,
     UPDATE_ADAMW, WEIGHT_PLAIN},
    {"gpt2 in bf16 by Lion with an int8 moment", "gpt2", DTYPE_BF16, false, NULL, NULL, STATE_INT8, MASTER_WEIGHTS_FP32,
     UPDATE_LION, WEIGHT_PLAIN},
    {"llama in bf16 by Muon with split masters", "llama", DTYPE_BF16, false, NULL, NULL, STATE_FP32,
     MASTER_WEIGHTS_SPLIT, UPDATE_MUON, WEIGHT_PLAIN},
    {"gpt2 in bf16 by Muon with int8 moments and no masters", "gpt2", DTYPE_BF16, false, NULL, NULL, STATE_INT8,
     MASTER_WEIGHTS_NONE, UPDATE_MUON, WEIGHT_PLAIN},
    {"another llama in bf16 with adapters by Muon", "llama", DTYPE_BF16, true, "2,4,all-linear", NULL, STATE_FP32,
     MASTER_WEIGHTS_FP32, UPDATE_MUON, WEIGHT_PLAIN},
    {"mixtral in fp32 by Muon with bf16 moments", "mixtral", DTYPE_F32, false, NULL, NULL, STATE_BF16,
     MASTER_WEIGHTS_FP32, UPDATE_MUON, WEIGHT_PLAIN},
    {"phi3 in bf16 with adapters, int8 moments and split masters", "phi3", DTYPE_BF16, false, "2,4,qkv_proj,down_proj",
     NULL, STATE_INT8, MASTER_WEIGHTS_SPLIT, UPDATE_ADAMW, WEIGHT_PLAIN},
    {"llama in bf16 with adapters on nf4", "llama", DTYPE_BF16, false, "2,4,all-linear", NULL, ON(NF4)},
    {"another qwen3 in fp32 with adapters on int8", "qwen3", DTYPE_F32, true, "2,4,all-linear", NULL, ON(INT8)},
    {"gpt2 in bf16 with adapters on int8", "gpt2", DTYPE_BF16, false, "2,4,c_attn,c_fc", NULL, ON(INT8)},
    {"mixtral in bf16 with adapters on nf4", "mixtral", DTYPE_BF16, false, "2,4,all-linear", NULL, ON(NF4)},
    {"another mixtral in fp32 with adapters on mxfp4", "mixtral", DTYPE_F32, true, "2,4,all-linear", NULL, ON(MXFP4)},
    {"olmoe in fp32 with adapters on int8", "olmoe", DTYPE_F32, false, "2,4,all-linear", NULL, ON(INT8)},
    {"another qwen2_moe in bf16 with adapters on nf4", "qwen2_moe", DTYPE_BF16, true, "2,4,all-linear", NULL, ON(NF4)},
    {"qwen3_moe in bf16 with adapters on mxfp4", "qwen3_moe", DTYPE_BF16, false, "2,4,all-linear", NULL, ON(MXFP4)},
};
const size_t policy_subject_count = sizeof policy_subjects / sizeof *policy_subjects;

const struct policy_subject *policy_subject_named(const char *name) {
    for (size_t s = 0; s < policy_subject_count; s++)
        if (strcmp(policy_subjects[s].name, name) == 0) return &policy_subjects[s];
    fail_msg("no subject is called %s", name);
    return NULL;
}

#define HAS(config, field) model_family_has((config)->family, offsetof(struct model_config, field))

bool policy_subject_has_experts(const struct policy_subject *subject) {
    const struct model_family *family;
    assert_int_equal(model_family_find("a test", "family", subject->family, &family), STATUS_OK);
    return model_family_has(family, offsetof(struct model_config, experts));
}

static void take_other_form(struct model_config *config) {
    if (HAS(config, tied)) config->tied = !config->tied;
    if (HAS(config, attention_bias)) config->attention_bias = config->mlp_bias = !config->attention_bias;
    if (HAS(config, window)) model_config_set_window(config, 7);
    if (HAS(config, normalise_experts)) config->normalise_experts = !config->normalise_experts;
    if (HAS(config, balances_experts)) config->balances_experts = true, config->balance_coefficient = 0.5;
    if (HAS(config, scale_by_inverse_layer)) config->scale_by_inverse_layer = true;
    if (HAS(config, embedding_width)) config->embedding_width = 17, config->norm_after = true;
}

/* Rows of mxfp4 are whole blocks. */
static void take_whole_blocks(struct model_config *config) {
    config->hidden = 32;
    config->heads = 2;
    config->head_dim = 16;
    config->ffn = config->expert_ffn = 64;
}

static struct model_config config_of(const struct policy_subject *subject) {
    struct model_config config;
    assert_int_equal(model_config_init(subject->family, &config), STATUS_OK);
    config.layers = POLICY_SUBJECT_BLOCKS - 2;
    config.hidden = 30;
    config.heads = 3;
    config.kv_heads = HAS(&config, kv_heads);
    config.head_dim = 10;
    config.ffn = 47;
    config.vocab_size = OUTCOME_VOCAB;
    config.context = 32;
    if (HAS(&config, experts)) config.experts = 4;
    if (HAS(&config, glu_limit)) config.glu_limit = 0.05; /* some numbers pass it */
    /* Granite's own make gradients of 1e-4. */
    if (HAS(&config, embedding_multiplier)) config.embedding_multiplier = 1.5, config.logits_divisor = 0.4;
    if (subject->quantize_base == WEIGHT_MXFP4) take_whole_blocks(&config);
    if (subject->other) take_other_form(&config);
    return config;
}

struct harness_options policy_options(const struct policy_subject *subject, const struct policy_way *way,
                                      struct model_config *config) {
    double clip_norm = way->clip_norm < 0 ? 0 : way->clip_norm > 0 ? way->clip_norm : POLICY_SUBJECT_CLIP_NORM;
    int64_t batch = way->batch > 0 ? way->batch : way->long_micro_batches ? LONG_MICRO_BATCH : BATCH;
    *config = config_of(subject);
    return (struct harness_options){.backend = way->backend,
                                    .config = config,
                                    .lora = subject->lora,
                                    .freeze = subject->freeze,
                                    .optimizer = subject->optimizer,
                                    .optimizer_dtype = subject->optimizer_dtype,
                                    .master_weights = subject->master_weights,
                                    .quantize_base = subject->quantize_base,
                                    .purpose = MODEL_LOSS,
                                    .dtype = subject->dtype,
                                    .batch = batch,
                                    .sequence_length = way->long_micro_batches ? LONG_LENGTH : TOKENS,
                                    .micro_batch_sequences = way->long_micro_batches ? LONG_MICRO_BATCH : MICRO_BATCH,
                                    .micro_batches_per_wave = way->policy ? way->policy->micro_batches_per_wave : 1,
                                    .policy = way->policy ? *way->policy : (struct policy){0},
                                    .policy_seed = way->policy_seed,
                                    .policy_traits = way->policy_traits,
                                    .stages = way->stages,
                                    .spans = way->spans,
                                    .partition = way->partition ? *way->partition : (struct partition){0},
                                    .flat = way->flat,
                                    .clip_norm = clip_norm,
                                    .threads = way->threads,
                                    .comm = way->comm,
                                    .weight_decay = 0.1,
                                    .lanes = way->lanes,
                                    .round_micro_batches = way->round_micro_batches,
                                    .reduce_dtype = way->reduce_dtype,
                                    .streams = way->streams,
                                    .stream_seed = way->stream_seed,
                                    .seed = 3};
}

struct outcome policy_train(const struct policy_subject *subject, const struct policy_way *way) {
    struct model_config config;
    struct harness_options options = policy_options(subject, way, &config);
    return outcome_train(&options, way->interleaved);
}
