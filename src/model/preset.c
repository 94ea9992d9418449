#include "model/weights.h"

#include <strings.h>

#include "base/text.h"

#define PRESET(name, hub, type, text)                                                                                  \
    { name, hub, "{\"model_type\": \"" type "\", " text "}" }
#define SIZES(hidden, ffn, layers, heads, kv_heads)                                                                    \
    "\"hidden_size\": " #hidden ", \"intermediate_size\": " #ffn ", \"num_hidden_layers\": " #layers                   \
    ", \"num_attention_heads\": " #heads ", \"num_key_value_heads\": " #kv_heads
#define VOCAB(vocab, context) "\"vocab_size\": " #vocab ", \"max_position_embeddings\": " #context

#define GPT2(name, hub, hidden, layers, heads)                                                                         \
    PRESET(name, hub, "gpt2",                                                                                          \
           "\"vocab_size\": 50257, \"n_positions\": 1024, \"n_embd\": " #hidden ", \"n_layer\": " #layers              \
           ", \"n_head\": " #heads)

#define OPT(name, hub, hidden, layers, heads, more)                                                                    \
    PRESET(name, hub, "opt",                                                                                           \
           VOCAB(50272, 2048) ", \"activation_function\": \"relu\", \"hidden_size\": " #hidden                         \
                              ", \"num_hidden_layers\": " #layers ", \"num_attention_heads\": " #heads more)

/* `more` has further keys, each with a comma before it. */
#define DECODER(type, name, hub, hidden, ffn, layers, heads, kv_heads, vocab, context, epsilon, theta, more)           \
    PRESET(name, hub, type,                                                                                            \
           "\"hidden_act\": \"silu\", " SIZES(hidden, ffn, layers, heads, kv_heads) ", " VOCAB(                        \
               vocab, context) ", \"rms_norm_eps\": " #epsilon ", \"rope_theta\": " #theta more)

#define TIED ", \"tie_word_embeddings\": true"
#define UNTIED ", \"tie_word_embeddings\": false"
#define HEAD_DIM(size) ", \"head_dim\": " #size
#define WINDOW(tokens) ", \"sliding_window\": " #tokens
#define GEMMA2(name, hub, hidden, ffn, layers, heads, kv_heads, head_dim, scalar)                                      \
    PRESET(name, hub, "gemma2",                                                                                        \
           VOCAB(256000, 8192) ", " SIZES(hidden, ffn, layers, heads, kv_heads)                                        \
               HEAD_DIM(head_dim) ", \"query_pre_attn_scalar\": " #scalar)

/* The text model. From 4B up the published one also has a vision tower. */
#define GEMMA3(name, hub, hidden, ffn, layers, heads, kv_heads, head_dim, scalar, vocab, context, window, more)        \
    PRESET(name, hub, "gemma3_text",                                                                                   \
           VOCAB(vocab, context) ", " SIZES(hidden, ffn, layers, heads, kv_heads)                                      \
               HEAD_DIM(head_dim) ", \"query_pre_attn_scalar\": " #scalar WINDOW(window) more)

#define LINEAR_ROPE(factor) ", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": " #factor "}"
#define GRANITE(scores, logits)                                                                                        \
    ", \"attention_multiplier\": " #scores ", \"embedding_multiplier\": 12.0, \"residual_multiplier\": 0.22"           \
    ", \"logits_scaling\": " #logits
/* Qwen3-MoE: number of experts, experts per token, and the width of each. */
#define EXPERTS(experts, each, width)                                                                                  \
    ", \"num_experts\": " #experts ", \"num_experts_per_tok\": " #each ", \"moe_intermediate_size\": " #width          \
    ", \"norm_topk_prob\": true"
/* Experts in MXFP4, as published. */
#define GPT_OSS(name, hub, layers, experts)                                                                            \
    PRESET(name, hub, "gpt_oss",                                                                                       \
           VOCAB(201088, 131072) ", " SIZES(2880, 2880, layers, 64, 8)                                                 \
               HEAD_DIM(64) ", \"num_local_experts\": " #experts ", \"num_experts_per_tok\": 4" WINDOW(                \
                   128) ", \"quantization_config\": {\"quant_method\": \"mxfp4\"}")

#define LLAMA3_ROPE(factor)                                                                                            \
    ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": " #factor                                             \
    ", \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}"

/* As published on 2026-11-22. Columns of DECODER: hidden, feed-forward, layers, heads, key-value heads, vocabulary,
 * context, epsilon of norms, base of rotary positions. */
const struct model_preset model_presets[] = {
    /* clang-format off */
    GPT2("gpt2", "openai-community/gpt2", 768, 12, 12),
    GPT2("gpt2-medium", "openai-community/gpt2-medium", 1024, 24, 16),
    GPT2("gpt2-large", "openai-community/gpt2-large", 1280, 36, 20),
    GPT2("gpt2-xl", "openai-community/gpt2-xl", 1600, 48, 25),

    DECODER("llama", "llama-2-7b", "meta-llama/Llama-2-7b-hf", 4096, 11008, 32, 32, 32, 32000, 4096, 1e-5, 1e4, UNTIED),
    DECODER("llama", "llama-2-13b", "meta-llama/Llama-2-13b-hf", 5120, 13824, 40, 40, 40, 32000, 4096, 1e-5, 1e4, UNTIED),
    DECODER("llama", "llama-2-70b", "meta-llama/Llama-2-70b-hf", 8192, 28672, 80, 64, 8, 32000, 4096, 1e-5, 1e4, UNTIED),
    DECODER("llama", "llama-3-8b", "meta-llama/Meta-Llama-3-8B", 4096, 14336, 32, 32, 8, 128256, 8192, 1e-5, 5e5, UNTIED),
    DECODER("llama", "llama-3-70b", "meta-llama/Meta-Llama-3-70B", 8192, 28672, 80, 64, 8, 128256, 8192, 1e-5, 5e5, UNTIED),
    DECODER("llama", "llama-3.1-8b", "meta-llama/Llama-3.1-8B", 4096, 14336, 32, 32, 8, 128256, 131072, 1e-5, 5e5,
            UNTIED LLAMA3_ROPE(8.0)),
    DECODER("llama", "llama-3.1-70b", "meta-llama/Llama-3.1-70B", 8192, 28672, 80, 64, 8, 128256, 131072, 1e-5, 5e5,
            UNTIED LLAMA3_ROPE(8.0)),
    DECODER("llama", "llama-3.1-405b", "meta-llama/Llama-3.1-405B", 16384, 53248, 126, 128, 8, 128256, 131072, 1e-5, 5e5,
            UNTIED LLAMA3_ROPE(8.0)),
    DECODER("llama", "llama-3.2-1b", "meta-llama/Llama-3.2-1B", 2048, 8192, 16, 32, 8, 128256, 131072, 1e-5, 5e5,
            HEAD_DIM(64) TIED LLAMA3_ROPE(32.0)),
    DECODER("llama", "llama-3.2-3b", "meta-llama/Llama-3.2-3B", 3072, 8192, 28, 24, 8, 128256, 131072, 1e-5, 5e5,
            HEAD_DIM(128) TIED LLAMA3_ROPE(32.0)),
    DECODER("llama", "llama-3.3-70b", "meta-llama/Llama-3.3-70B-Instruct", 8192, 28672, 80, 64, 8, 128256, 131072, 1e-5, 5e5,
            UNTIED LLAMA3_ROPE(8.0)),
    DECODER("llama", "tinyllama-1.1b", "TinyLlama/TinyLlama-1.1B-Chat-v1.0", 2048, 5632, 22, 32, 4, 32000, 2048, 1e-5, 1e4, UNTIED),

    DECODER("llama", "smollm-135m", "HuggingFaceTB/SmolLM-135M", 576, 1536, 30, 9, 3, 49152, 2048, 1e-5, 1e4, TIED),
    DECODER("llama", "smollm-360m", "HuggingFaceTB/SmolLM-360M", 960, 2560, 32, 15, 5, 49152, 2048, 1e-5, 1e4, TIED),
    DECODER("llama", "smollm-1.7b", "HuggingFaceTB/SmolLM-1.7B", 2048, 8192, 24, 32, 32, 49152, 2048, 1e-5, 1e4, TIED),
    DECODER("llama", "smollm2-135m", "HuggingFaceTB/SmolLM2-135M", 576, 1536, 30, 9, 3, 49152, 8192, 1e-5, 1e5, TIED),
    DECODER("llama", "smollm2-360m", "HuggingFaceTB/SmolLM2-360M", 960, 2560, 32, 15, 5, 49152, 8192, 1e-5, 1e5, TIED),
    DECODER("llama", "smollm2-1.7b", "HuggingFaceTB/SmolLM2-1.7B", 2048, 8192, 24, 32, 32, 49152, 8192, 1e-5, 1.3e5, TIED),

    GEMMA2("gemma-2-2b", "google/gemma-2-2b", 2304, 9216, 26, 8, 4, 256, 256),
    GEMMA2("gemma-2-9b", "google/gemma-2-9b", 3584, 14336, 42, 16, 8, 256, 256),
    GEMMA2("gemma-2-27b", "google/gemma-2-27b", 4608, 36864, 46, 32, 16, 128, 144),
    GEMMA3("gemma-3-270m", "google/gemma-3-270m", 640, 2048, 18, 4, 1, 256, 256, 262144, 32768, 512, ""),
    GEMMA3("gemma-3-1b", "google/gemma-3-1b-pt", 1152, 6912, 26, 4, 1, 256, 256, 262144, 32768, 512, ""),
    GEMMA3("gemma-3-4b", "google/gemma-3-4b-pt", 2560, 10240, 34, 8, 4, 256, 256, 262208, 131072, 1024, LINEAR_ROPE(8.0)),
    GEMMA3("gemma-3-12b", "google/gemma-3-12b-pt", 3840, 15360, 48, 16, 8, 256, 256, 262208, 131072, 1024, LINEAR_ROPE(8.0)),
    GEMMA3("gemma-3-27b", "google/gemma-3-27b-pt", 5376, 21504, 62, 32, 16, 128, 168, 262208, 131072, 1024, LINEAR_ROPE(8.0)),

    DECODER("granite", "granite-3.1-2b", "ibm-granite/granite-3.1-2b-base", 2048, 8192, 40, 32, 8, 49155, 131072, 1e-5, 5e6,
            TIED GRANITE(0.015625, 8.0)),
    DECODER("granite", "granite-3.1-8b", "ibm-granite/granite-3.1-8b-base", 4096, 12800, 40, 32, 8, 49155, 131072, 1e-5, 1e7,
            TIED GRANITE(0.0078125, 16.0)),
    DECODER("olmo2", "olmo-2-1b", "allenai/OLMo-2-0425-1B", 2048, 8192, 16, 16, 16, 100352, 4096, 1e-6, 5e5, UNTIED),
    DECODER("olmo2", "olmo-2-7b", "allenai/OLMo-2-1124-7B", 4096, 11008, 32, 32, 32, 100352, 4096, 1e-6, 5e5, UNTIED),
    DECODER("olmo2", "olmo-2-13b", "allenai/OLMo-2-1124-13B", 5120, 13824, 40, 40, 40, 100352, 4096, 1e-6, 5e5, UNTIED),
    DECODER("olmo2", "olmo-2-32b", "allenai/OLMo-2-0325-32B", 5120, 27648, 64, 40, 8, 100352, 4096, 1e-6, 5e5, UNTIED),
    DECODER("smollm3", "smollm3-3b", "HuggingFaceTB/SmolLM3-3B", 2048, 11008, 36, 16, 4, 128256, 65536, 1e-6, 5e6, TIED),
    DECODER("mistral", "mistral-7b-v0.1", "mistralai/Mistral-7B-v0.1", 4096, 14336, 32, 32, 8, 32000, 32768, 1e-5, 1e4,
            UNTIED WINDOW(4096)),
    DECODER("mistral", "mistral-7b-v0.3", "mistralai/Mistral-7B-v0.3", 4096, 14336, 32, 32, 8, 32768, 32768, 1e-5, 1e6,
            UNTIED WINDOW(null)),
    DECODER("mistral", "mistral-nemo-12b", "mistralai/Mistral-Nemo-Base-2407", 5120, 14336, 40, 32, 8, 131072, 131072, 1e-5, 1e6,
            HEAD_DIM(128) UNTIED WINDOW(null)),

    DECODER("qwen2", "qwen2-0.5b", "Qwen/Qwen2-0.5B", 896, 4864, 24, 14, 2, 151936, 131072, 1e-6, 1e6, TIED),
    DECODER("qwen2", "qwen2-1.5b", "Qwen/Qwen2-1.5B", 1536, 8960, 28, 12, 2, 151936, 131072, 1e-6, 1e6, TIED),
    DECODER("qwen2", "qwen2-7b", "Qwen/Qwen2-7B", 3584, 18944, 28, 28, 4, 152064, 131072, 1e-6, 1e6, UNTIED),
    DECODER("qwen2", "qwen2-72b", "Qwen/Qwen2-72B", 8192, 29568, 80, 64, 8, 152064, 131072, 1e-5, 1e6, UNTIED),
    DECODER("qwen2", "qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B", 896, 4864, 24, 14, 2, 151936, 32768, 1e-6, 1e6, TIED),
    DECODER("qwen2", "qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B", 1536, 8960, 28, 12, 2, 151936, 131072, 1e-6, 1e6, TIED),
    DECODER("qwen2", "qwen2.5-3b", "Qwen/Qwen2.5-3B", 2048, 11008, 36, 16, 2, 151936, 32768, 1e-6, 1e6, TIED),
    DECODER("qwen2", "qwen2.5-7b", "Qwen/Qwen2.5-7B", 3584, 18944, 28, 28, 4, 152064, 131072, 1e-6, 1e6, UNTIED),
    DECODER("qwen2", "qwen2.5-14b", "Qwen/Qwen2.5-14B", 5120, 13824, 48, 40, 8, 152064, 131072, 1e-5, 1e6, UNTIED),
    DECODER("qwen2", "qwen2.5-32b", "Qwen/Qwen2.5-32B", 5120, 27648, 64, 40, 8, 152064, 131072, 1e-5, 1e6, UNTIED),
    DECODER("qwen2", "qwen2.5-72b", "Qwen/Qwen2.5-72B", 8192, 29568, 80, 64, 8, 152064, 131072, 1e-5, 1e6, UNTIED),
    DECODER("qwen3", "qwen3-0.6b", "Qwen/Qwen3-0.6B", 1024, 3072, 28, 16, 8, 151936, 40960, 1e-6, 1e6, HEAD_DIM(128) TIED),
    DECODER("qwen3", "qwen3-1.7b", "Qwen/Qwen3-1.7B", 2048, 6144, 28, 16, 8, 151936, 40960, 1e-6, 1e6, HEAD_DIM(128) TIED),
    DECODER("qwen3", "qwen3-4b", "Qwen/Qwen3-4B", 2560, 9728, 36, 32, 8, 151936, 40960, 1e-6, 1e6, HEAD_DIM(128) TIED),
    DECODER("qwen3", "qwen3-8b", "Qwen/Qwen3-8B", 4096, 12288, 36, 32, 8, 151936, 40960, 1e-6, 1e6, HEAD_DIM(128) UNTIED),
    DECODER("qwen3", "qwen3-14b", "Qwen/Qwen3-14B", 5120, 17408, 40, 40, 8, 151936, 40960, 1e-6, 1e6, HEAD_DIM(128) UNTIED),
    DECODER("qwen3", "qwen3-32b", "Qwen/Qwen3-32B", 5120, 25600, 64, 64, 8, 151936, 40960, 1e-6, 1e6, HEAD_DIM(128) UNTIED),
    DECODER("qwen3_moe", "qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", 2048, 6144, 48, 32, 4, 151936, 40960, 1e-6, 1e6,
            HEAD_DIM(128) UNTIED EXPERTS(128, 8, 768)),
    DECODER("qwen3_moe", "qwen3-235b-a22b", "Qwen/Qwen3-235B-A22B", 4096, 12288, 94, 64, 4, 151936, 40960, 1e-6, 1e6,
            HEAD_DIM(128) UNTIED EXPERTS(128, 8, 1536)),

    GPT_OSS("gpt-oss-20b", "openai/gpt-oss-20b", 24, 32),
    GPT_OSS("gpt-oss-120b", "openai/gpt-oss-120b", 36, 128),

    OPT("opt-125m", "facebook/opt-125m", 768, 12, 12, ", \"ffn_dim\": 3072"),
    OPT("opt-350m", "facebook/opt-350m", 1024, 24, 16,
        ", \"ffn_dim\": 4096, \"word_embed_proj_dim\": 512, \"do_layer_norm_before\": false"),
    OPT("opt-1.3b", "facebook/opt-1.3b", 2048, 24, 32, ", \"ffn_dim\": 8192"),
    OPT("opt-2.7b", "facebook/opt-2.7b", 2560, 32, 32, ", \"ffn_dim\": 10240"),
    OPT("opt-6.7b", "facebook/opt-6.7b", 4096, 32, 32, ", \"ffn_dim\": 16384"),
    OPT("opt-13b", "facebook/opt-13b", 5120, 40, 40, ", \"ffn_dim\": 20480"),
    OPT("opt-30b", "facebook/opt-30b", 7168, 48, 56, ", \"ffn_dim\": 28672"),
    OPT("opt-66b", "facebook/opt-66b", 9216, 64, 72, ", \"ffn_dim\": 36864"),

    DECODER("phi3", "phi-3-mini", "microsoft/Phi-3-mini-4k-instruct", 3072, 8192, 32, 32, 32, 32064, 4096, 1e-5, 1e4,
            UNTIED WINDOW(2047)),
    DECODER("phi3", "phi-3-medium", "microsoft/Phi-3-medium-4k-instruct", 5120, 17920, 40, 40, 10, 32064, 4096, 1e-5, 1e4,
            UNTIED WINDOW(2047)),
    /* Without longrope's factors, on which no size depends. */
    DECODER("phi3", "phi-3.5-mini", "microsoft/Phi-3.5-mini-instruct", 3072, 8192, 32, 32, 32, 32064, 131072, 1e-5, 1e4,
            UNTIED WINDOW(262144)),
    DECODER("phi3", "phi-4-mini", "microsoft/Phi-4-mini-instruct", 3072, 8192, 32, 24, 8, 200064, 131072, 1e-5, 1e4,
            ", \"partial_rotary_factor\": 0.75" TIED WINDOW(262144)),
    DECODER("phi3", "phi-4", "microsoft/phi-4", 5120, 17920, 40, 40, 10, 100352, 16384, 1e-5, 2.5e5, UNTIED WINDOW(null)),
    /* clang-format on */
};
const int model_preset_count = sizeof model_presets / sizeof *model_presets;

const struct model_preset *model_preset_find(const char *name) {
    for (int i = 0; i < model_preset_count; i++) {
        const struct model_preset *preset = &model_presets[i];
        if (strcasecmp(name, preset->name) == 0 || strcasecmp(name, preset->hub) == 0 ||
            strcasecmp(name, path_name(preset->hub)) == 0)
            return preset;
    }
    return NULL;
}

enum status model_preset_hint(enum status code, const char *name) {
    struct nearest nearest = {.wanted = name};
    for (int i = 0; i < model_preset_count; i++)
        nearest_consider(&nearest, model_presets[i].name);
    if (nearest.best)
        return status_hint(code, "did you mean the preset %s? `ballast help presets` lists all", nearest.best);
    return status_hint(code, "`ballast help presets` lists the names of published models that are known");
}

enum status model_preset_config(const struct model_preset *preset, json_t **out) {
    *out = json_loads(preset->config, 0, NULL);
    return *out ? STATUS_OK : status_no_memory(0, "a preset's config");
}

static enum status print_row(const struct model_preset *preset, FILE *out) {
    struct model *model;
    struct graph *graph;
    TRY(model_open_preset(preset, &model));
    enum status status = model_build_small_graph(model, &graph);
    if (status == STATUS_OK) {
        double millions = (double)model_parameter_count(graph) * 1e-6;
        fprintf(out, "%-18s %8.*f %c %7lld %7lld %8lld  %s\n", preset->name, millions < 999.5 ? 0 : 2,
                millions < 999.5 ? millions : millions * 1e-3, millions < 999.5 ? 'M' : 'B',
                (long long)model->config.layers, (long long)model->config.hidden, (long long)model->config.context,
                preset->hub);
        graph_free(graph);
    }
    model_free(model);
    return status;
}

enum status model_preset_print_list(FILE *out) {
    fputs("Published models whose dimensions are built in. `ballast plan`, `profile`, `simulate --model` and `init "
          "--like`\n"
          "take their names where no directory has that name, without a download; training needs the model's "
          "directory.\n\n",
          out);
    fprintf(out, "%-18s %10s %7s %7s %8s  %s\n", "name", "parameters", "layers", "hidden", "context", "published as");
    for (int i = 0; i < model_preset_count; i++)
        TRY(print_row(&model_presets[i], out));
    return STATUS_OK;
}
