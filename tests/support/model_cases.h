/* The models among the fixtures (tests/reference/make_fixtures.py), by directory. */
#pragma once

/* Tokens in the vocabulary of every model. */
enum { MODEL_CASE_VOCAB = 53 };

/* With logits, gradients and twenty steps of training. */
#define FULL_MODEL_CASES DENSE_MODEL_CASES, EXPERT_MODEL_CASES
#define DENSE_MODEL_CASES                                                                                              \
    "gemma2", "gemma2_bias", "gemma3_text", "gemma3_text_bias", "gpt2", "gpt2_gelu", "gpt2_relu",                      \
        "gpt2_inverse_layer", "granite", "granite_bias", "llama", "llama_tied", "llama_bias", "llama_rope_linear",     \
        "llama_rope_llama3", "llama_rope_yarn", "mistral", "olmo2", "olmo2_bias", "opt", "opt_post_norm", "phi3",      \
        "phi3_longrope", "phi3_longrope_long", "qwen2", "qwen2_tied", "qwen3", "qwen3_bias", "smollm3", "smollm3_bias"
#define EXPERT_MODEL_CASES                                                                                             \
    "gpt_oss", "gpt_oss_even", "gpt_oss_balanced", "mixtral", "mixtral_all", "mixtral_balanced", "olmoe",              \
        "olmoe_bias", "qwen2_moe", "qwen2_moe_tied", "qwen3_moe", "qwen3_moe_balanced", "qwen3_moe_bias"
/* With logits alone: other spellings of config.json, names, dtypes and files. */
#define LIGHT_MODEL_CASES                                                                                              \
    "gemma2_older", "gemma3_text_older", "gemma3_wrapped", "gemma3_wrapped_modules", "gpt2_bare", "gpt2_f16",          \
        "gpt_oss_older", "granite_older", "llama_bf16", "llama_sharded", "llama_rope_scaling_linear",                  \
        "llama_rope_scaling_llama3", "mistral_older", "mixtral_older", "olmo2_older", "opt_bare", "phi3_older",        \
        "phi3_longrope_older", "qwen2_older", "qwen3_older", "qwen3_moe_older", "smollm3_interval"
/* The same with weights in fewer bits. */
#define QUANTIZED_MODEL_CASES "gpt_oss_mxfp4"
