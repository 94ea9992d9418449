/* Descriptions of a model: its shape, by which a file recognizes its own model; as JSON; docs/models.md. */

#include "model/config.h"
#include "model/weights.h"

static const struct shape_field {
    const char *name;
    size_t offset;
} fields[] = {
#define FIELD(name)                                                                                                    \
    { #name, offsetof(struct model_config, name) }
    FIELD(vocab_size), FIELD(hidden), FIELD(layers),  FIELD(heads),      FIELD(kv_heads),
    FIELD(head_dim),   FIELD(ffn),    FIELD(experts), FIELD(expert_ffn), FIELD(shared_ffn),
};
enum { FIELDS = sizeof fields / sizeof *fields };

static int64_t value_of(const struct model_config *config, const struct shape_field *field) {
    int64_t value;
    memcpy(&value, (const char *)config + field->offset, sizeof value);
    return value;
}

json_t *model_shape_to_json(const struct model_config *config) {
    json_t *object = json_pack("{s:s}", "family", config->family->name);
    int failed = !object;
    for (int i = 0; i < FIELDS; i++)
        failed |= json_object_set_new(object, fields[i].name, json_integer(value_of(config, &fields[i])));
    if (!failed) return object;
    json_decref(object);
    return NULL;
}

/* Appends text such as "layers 4 (here 6)". */
static void add_difference(const char *name, const json_t *theirs, const json_t *ours, char *text, size_t bytes) {
    char *there = json_dumps(theirs, JSON_ENCODE_ANY), *here = json_dumps(ours, JSON_ENCODE_ANY);
    size_t used = strlen(text);
    if (there && here)
        snprintf(text + used, bytes - used, "%s%s %s (here %s)", used > 0 ? ", " : "", name, there, here);
    free(there);
    free(here);
}

enum status model_shape_check(const char *file, const json_t *shape, const struct model_config *config) {
    char differences[512] = "";
    const char *name;
    json_t *ours, *here = model_shape_to_json(config);
    if (!here) return status_no_memory(0, "a model's shape");
    json_object_foreach(here, name, ours) {
        const json_t *theirs = json_object_get(shape, name);
        if (theirs && !json_equal(theirs, ours)) add_difference(name, theirs, ours, differences, sizeof differences);
    }
    json_decref(here);
    if (!differences[0]) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: is for another model: %s", file, differences);
}

/* Files, bytes, and the number of tensors of each dtype. */
static json_t *summarise_weights(const struct safetensors *weights) {
    json_t *dtypes = json_object();
    size_t bytes = 0;
    for (size_t i = 0; dtypes && i < weights->tensors.count; i++) {
        const struct safetensors_tensor *tensor = &weights->tensors.items[i];
        json_int_t before = json_integer_value(json_object_get(dtypes, tensor->dtype_name));
        if (json_object_set_new(dtypes, tensor->dtype_name, json_integer(before + 1)) != 0) {
            json_decref(dtypes);
            return NULL;
        }
        bytes += tensor->bytes;
    }
    return json_pack("{s:I, s:I, s:I, s:o}", "files", (json_int_t)weights->inputs.count, "tensors",
                     (json_int_t)weights->tensors.count, "bytes", (json_int_t)bytes, "dtypes", dtypes);
}

static int64_t windowed_layers(const struct model_config *config) {
    int64_t count = 0;
    for (int64_t layer = 0; layer < config->layers; layer++)
        count += config->windowed[layer];
    return count;
}

static json_t *summarise_config(const struct model_config *config) {
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:b, s:b, s:b, s:f}", "vocab_size",
        (json_int_t)config->vocab_size, "hidden", (json_int_t)config->hidden, "layers", (json_int_t)config->layers,
        "heads", (json_int_t)config->heads, "kv_heads", (json_int_t)config->kv_heads, "head_dim",
        (json_int_t)config->head_dim, "ffn", (json_int_t)config->ffn, "context", (json_int_t)config->context, "window",
        (json_int_t)config->window, "windowed_layers", (json_int_t)windowed_layers(config), "activation",
        activation_name(config->activation), "norm_epsilon", config->norm_epsilon, "tied", (int)config->tied,
        "attention_bias", (int)config->attention_bias, "mlp_bias", (int)config->mlp_bias, "dropout", config->dropout);
}

static json_t *summarise_rope(const struct rope_table_attributes *rope) {
    bool plain = rope->scaling == ROPE_SCALING_NONE;
    return json_pack("{s:f, s:s, s:f}", "theta", rope->theta, "scaling",
                     plain ? "none" : config_rope_scaling_name(rope->scaling), "factor", plain ? 1.0 : rope->factor);
}

static bool set(json_t *object, const char *key, json_t *value) {
    return value && json_object_set_new(object, key, value) == 0;
}

static json_t *summarise_adapter(const struct model *model) {
    const struct adapter *adapter = &model->config.adapter;
    return json_pack("{s:I, s:f, s:o, s:o}", "rank", (json_int_t)adapter->rank, "alpha", adapter->alpha, "targets",
                     adapter_list_targets(adapter), "weights", summarise_weights(model->adapter_weights));
}

enum status model_summarise(const struct model *model, json_t **out) {
    struct graph *graph;
    TRY(model_build_small_graph(model, &graph));
    json_t *summary = json_pack("{s:s, s:s, s:s?, s:I, s:I}", "kind", "model", "family", model->config.family->name,
                                "folder", model->folder, "parameters", (json_int_t)model_parameter_count(graph),
                                "matrix_parameters", (json_int_t)model_matrix_parameter_count(graph));
    graph_free(graph);
    bool good = summary && set(summary, "config", summarise_config(&model->config)) &&
                (model->config.rope.head_dim == 0 || set(summary, "rope", summarise_rope(&model->config.rope))) &&
                (!model->weights || set(summary, "weights", summarise_weights(model->weights))) &&
                (model->config.adapter.rank == 0 || set(summary, "adapter", summarise_adapter(model)));
    if (!good) {
        json_decref(summary);
        return status_no_memory(0, "a summary");
    }
    *out = summary;
    return STATUS_OK;
}

/* --- docs/models.md, from the tables of the families --- */

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

/* Prints the kind of MLP, or of experts. */
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
    TRY(model_config_init(family->name, &config));
    config.vocab_size = config.context = config.layers = 1;
    config.hidden = 4;
    config.heads = 2;
    TRY(model_create(&config, &model));
    enum status status = model_build_small_graph(model, &graph);
    if (status == STATUS_OK) {
        print_row(model, graph, out);
        graph_free(graph);
    }
    model_free(model);
    return status;
}

/* "- WHAT: `a`, `b`" of the keys with that use; nothing if there are none. */
static void print_keys(const char *what, const struct config_key *keys, enum config_use use, FILE *out) {
    bool any = false;
    for (; keys->name; keys++) {
        const char *const one[] = {keys->name, NULL}, *const *name = keys->names ? keys->names : one;
        for (; keys->use == use && *name; name++) {
            fprintf(out, "%s%s%s`%s", any ? "" : "- ", any ? "" : what, any ? ", " : ": ", *name);
            fprintf(out, "%s%s`", use == CONFIG_FIXED ? ": " : "", use == CONFIG_FIXED ? keys->text : "");
            any = true;
        }
    }
    if (any) fputs("\n", out);
}

static const char *classes_of(const struct config_key *keys) {
    while (keys->use != CONFIG_ARCHITECTURES)
        keys++;
    return keys->text;
}

static void print_settings(const struct config_key *keys, FILE *out) {
    const char *separator = "- read: ";
    for (const struct config_key *key = keys; key->name; key++) {
        if (key->use != CONFIG_ELSEWHERE && key->use >= CONFIG_DROPOUT) continue;
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

extern const unsigned char model_prose[]; /* document.md, in parts */

/* Prints a part; returns the next one. */
static const char *print_part(const char *prose, FILE *out) {
    fputs(prose, out);
    return prose + strlen(prose) + 1;
}

enum status model_print_document(FILE *out) {
    const char *prose = print_part((const char *)model_prose, out);
    for (int i = 0; i < model_family_count; i++)
        TRY(print_family_row(model_families[i], out));
    for (int i = 0; i < model_family_count; i++) {
        const struct model_family *family = model_families[i];
        fprintf(out, "\n## `%s`\n\n%s.\n\n- classes: `%s`\n", family->name, family->models, classes_of(family->keys));
        print_settings(family->keys, out);
        fprintf(out, "- `ballast init` starts from: %s\n", family->initial);
        print_ffn(&family->ffn, out);
    }
    prose = print_part(prose, out);
    print_names("activations", config_activation_name, out);
    print_names("`rope_type` in `rope_parameters` (transformers 5) or `rope_scaling` (before)", config_rope_type_name,
                out);
    prose = print_part(prose, out);
    print_keys("only with this value", config_common_keys, CONFIG_FIXED, out);
    print_keys("change nothing", config_common_keys, CONFIG_IGNORED, out);
    (void)print_part(prose, out);
    return STATUS_OK;
}
