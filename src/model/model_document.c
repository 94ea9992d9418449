/* docs/models.md, from the tables of the families. */
#include <string.h>

#include "model/model.h"
#include "model/model_config.h"

static const struct node *first_node(const struct graph *graph, const struct op *op) {
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (graph->nodes.items[i]->op == op) return graph->nodes.items[i];
    return NULL;
}

static bool norms_heads(const struct graph *graph, int64_t hidden) {
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        if (node->op == &op_rms_norm && shape_columns(&node->in[1]->shape) < hidden) return true;
    }
    return false;
}

/* Of the MLP, or of experts. */
static void print_mlp(const struct graph *graph, FILE *out) {
    const struct node *expert = first_node(graph, &op_expert_mlp);
    const struct node *plain = first_node(graph, &op_activation), *gated = first_node(graph, &op_gated_activation);
    if (first_node(graph, &op_expert_glu)) {
        fprintf(out, "experts, gated and clamped");
        return;
    }
    if (expert) {
        fprintf(out, "experts, gated %s", activation_name(NODE_ATTRIBUTES(expert, expert_attributes)->function));
        return;
    }
    fprintf(out, "%s%s", gated ? "gated " : "",
            activation_name(NODE_ATTRIBUTES(gated ? gated : plain, activation_attributes)->function));
}

/* A row of the table, from the graph of the family's smallest new model. */
static void print_row(const struct model *model, const struct graph *graph, FILE *out) {
    const struct model_config *config = &model->config;
    fprintf(out, "| `%s` | %s | %s%s | ", config->family->name, first_node(graph, &op_rope) ? "rotary" : "learned",
            first_node(graph, &op_rms_norm) ? "RMSNorm" : "layer norm",
            norms_heads(graph, config->hidden) ? ", also of queries and keys by head" : "");
    print_mlp(graph, out);
    fprintf(out, " | %s | %s | %s |\n",
            model_family_has(config->family, offsetof(struct model_config, kv_heads)) ? "yes" : "no",
            model_family_has(config->family, offsetof(struct model_config, window)) ? "yes" : "no",
            config->tied ? "tied" : "separate");
}

static enum status print_family_row(const struct model_family *family, FILE *out) {
    struct model_config config;
    struct model *model;
    struct graph *graph;
    struct tensor *logits;
    TRY(model_config_init(family->name, &config));
    config.vocab_size = config.context = config.layers = 1;
    config.hidden = 4;
    config.heads = 2;
    TRY(model_create(&config, &model));
    enum status status = model_build_graph(model, MODEL_LOGITS, DTYPE_F32, 1, 1, &graph, &logits);
    if (status == STATUS_OK) {
        print_row(model, graph, out);
        graph_free(graph);
    }
    model_free(model);
    return status;
}

/* "- WHAT: `a`, `b`" of the keys with that use; nothing when there are none. */
static void print_keys(const char *what, const struct config_key *keys, enum config_use use, FILE *out) {
    bool any = false;
    for (; keys->name; keys++) {
        if (keys->use != use) continue;
        if (any)
            fputs(", ", out);
        else
            fprintf(out, "- %s: ", what);
        fprintf(out, "`%s", keys->name);
        if (use == CONFIG_FIXED) fprintf(out, ": %s", keys->text);
        fputc('`', out);
        any = true;
    }
    if (any) fputc('\n', out);
}

static const char *classes_of(const struct config_key *keys) {
    while (keys->use != CONFIG_ARCHITECTURES)
        keys++;
    return keys->text;
}

static bool read_key(const struct config_key *key) { return key->use == CONFIG_ELSEWHERE || key->use < CONFIG_DROPOUT; }

static void print_settings(const struct config_key *keys, FILE *out) {
    const char *separator = "- read: ";
    for (const struct config_key *key = keys; key->name; key++) {
        if (!read_key(key)) continue;
        fprintf(out, "%s`%s`%s", separator, key->name, key->required ? " (required)" : "");
        separator = ", ";
    }
    fputs("\n", out);
    print_keys("read, and said not to be applied", keys, CONFIG_DROPOUT, out);
    print_keys("only with this value", keys, CONFIG_FIXED, out);
    print_keys("change nothing", keys, CONFIG_IGNORED, out);
}

static void print_names(const char *what, const char *(*name_of)(int index), FILE *out) {
    fprintf(out, "- %s: ", what);
    for (int i = 0; name_of(i); i++)
        fprintf(out, "%s`%s`", i ? ", " : "", name_of(i));
    fputs("\n", out);
}

static void print_ffn(const struct model_ffn *ffn, FILE *out) {
    fprintf(out, "- and makes the MLP ");
    if (ffn->denominator == 1)
        fprintf(out, "%lld", (long long)ffn->numerator);
    else
        fprintf(out, "%lld/%lld", (long long)ffn->numerator, (long long)ffn->denominator);
    fprintf(out, " times as wide as --hidden");
    if (ffn->multiple > 1) fprintf(out, ", rounded up to a multiple of %lld", (long long)ffn->multiple);
    fputs("\n", out);
}

static void print_experts(FILE *out) {
    fputs("\n## Mixtures of experts\n\n"
          "No token is dropped: memory holds every choice of an expert, however tokens are spread. Of equal router "
          "logits\n"
          "the expert of the lowest number is taken. The loss that balances experts is a part of the loss where "
          "config.json\n"
          "says `output_router_logits: true`, with its `router_aux_loss_coef`. It is taken over a micro-batch, without "
          "padding,\n"
          "as transformers does with an attention mask; elsewhere it is off. `metrics.jsonl` and the page tell how "
          "many tokens\n"
          "each expert got. An expert's matrices move by themselves where they are not in memory (`--disk`), "
          "`--partition`\n"
          "spreads them over ranks, and `--tensor-parallel` cuts each by its inner features. Files may have the "
          "experts of a "
          "layer\n"
          "fused, as `mlp.experts.gate_up_proj` and `mlp.experts.down_proj` of transformers 5 (`save_original_format="
          "False`);\n"
          "Ballast writes each expert's matrices separately.\n",
          out);
}

static void print_common(FILE *out) {
    fputs("\n## All families\n\n", out);
    print_names("activations", config_activation_name, out);
    print_names("`rope_type` in `rope_parameters` (transformers 5) or `rope_scaling` (before)", config_rope_type_name,
                out);
    fputs(
        "- weights: `model.safetensors`, or shards with an index; F32, BF16 or F16; with or without the prefix that\n"
        "  models have inside their class with a head; as the frozen base of adapters also bitsandbytes' nf4 (scales "
        "in\n"
        "  8 bits or fp32) and int8, and compressed-tensors' mxfp4-pack-quantized, pack-quantized (4 and 8 bits) and\n"
        "  int-quantized (weights alone), of any family, experts included, with layers that `ignore` or\n"
        "  `llm_int8_skip_modules` leaves plain; another `quantization_config` is refused by name. `ballast init\n"
        "  --quantize-base` writes all of them but integers of compressed-tensors\n",
        out);
    print_keys("only with this value", config_common_keys, CONFIG_FIXED, out);
    print_keys("change nothing", config_common_keys, CONFIG_IGNORED, out);
    fputs("\nThe row of the padding token (`pad_token_id`) in the embedding is trained like any other where the token\n"
          "occurs; PyTorch holds it fixed. Data is packed here, so that none is padded.\n",
          out);
}

enum status model_print_document(FILE *out) {
    fputs(
        "# Models\n\nMade by `ballast help models > docs/models.md`; a test compares.\n\n"
        "The `model_type` in a model's config.json names its family. A family reads the settings listed here; any\n"
        "other, and any value that would make another model, is refused by name, and so is a model that holds one of\n"
        "these and other parts, but for `gemma3`. Each family has reference models from transformers, in\n"
        "`tests/fixtures/models`, to which logits, gradients and training are held.\n\n"
        "| `model_type` | positions | norm | MLP | grouped queries | sliding window | head of a new model |\n"
        "|---|---|---|---|---|---|---|\n",
        out);
    for (int i = 0; i < model_family_count; i++)
        TRY(print_family_row(model_families[i], out));
    for (int i = 0; i < model_family_count; i++) {
        const struct model_family *family = model_families[i];
        fprintf(out, "\n## `%s`\n\n%s.\n\n- classes: `%s`\n", family->name, family->models, classes_of(family->keys));
        print_settings(family->keys, out);
        fprintf(out, "- `ballast init` starts from: %s\n", family->initial);
        print_ffn(&family->ffn, out);
    }
    print_experts(out);
    print_common(out);
    return STATUS_OK;
}
