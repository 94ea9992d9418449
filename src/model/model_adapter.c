/* Adapters in a model: the nodes that they add, what is frozen, and where a model with adapters comes from. */
#include <fnmatch.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "model/foreign_weights.h"
#include "model/model.h"
#include "model/model_adapter.h"
#include "model/model_build.h"
#include "model/model_weights.h"

enum { ADAPTER_CONFIG_LIMIT_BYTES = 1 << 20 };

/* y + (alpha / rank) B (A x) */
static struct tensor *add_adapter(struct builder *builder, const char *layer, const char *node_name, struct tensor *x,
                                  const struct linear_sizes *sizes, struct tensor *y) {
    const struct adapter *adapter = &builder->config->adapter;
    struct graph *graph = builder->graph;
    struct tensor *a = graph_parameter(graph, graph_format(graph, "%s%s%s", adapter_prefix, layer, adapter_suffix_a), 2,
                                       adapter->rank, sizes->in);
    struct tensor *b = graph_parameter(graph, graph_format(graph, "%s%s%s", adapter_prefix, layer, adapter_suffix_b), 2,
                                       sizes->out, adapter->rank);
    struct linear_attributes plain = {0};
    struct tensor *low = ops_linear(graph, graph_format(graph, "%s.lora_A", node_name), x, a, NULL, NULL, plain);
    low =
        ops_scale(graph, graph_format(graph, "%s.lora_scale", node_name), low, adapter->alpha / (double)adapter->rank);
    return ops_linear(graph, graph_format(graph, "%s.lora_B", node_name), low, b, NULL, y, plain);
}

struct tensor *build_linear(struct builder *builder, const char *name, const char *node_name, struct tensor *x,
                            const struct linear_sizes *sizes, struct tensor *residual) {
    struct graph *graph = builder->graph;
    int64_t rows = sizes->weight_is_kn ? sizes->in : sizes->out, columns = sizes->weight_is_kn ? sizes->out : sizes->in;
    if (!name || !node_name) return NULL;
    struct tensor *weight = build_matrix(builder, graph_format(graph, "%s.weight", name), rows, columns);
    struct tensor *bias =
        sizes->has_bias ? build_parameter(builder, graph_format(graph, "%s.bias", name), sizes->out, 0) : NULL;
    struct linear_attributes attributes = {.weight_is_kn = sizes->weight_is_kn};
    struct tensor *y = ops_linear(graph, node_name, x, weight, bias, residual, attributes);
    /* peft sees the model as transformers has it, whose names begin so even where the files' do not. */
    const char *layer = graph_format(graph, "%s%s", builder->config->family->prefix, name);
    if (!layer || !adapter_wanted(&builder->config->adapter, layer)) return y;
    return add_adapter(builder, layer, node_name, x, sizes, y);
}

static bool is_parameter(const struct tensor *tensor) { return tensor->kind == TENSOR_PARAMETER && !tensor->base; }

/* How many parameters match the pattern; they are frozen. */
static int freeze(struct graph *graph, const char *pattern) {
    int matched = 0;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        struct tensor *tensor = graph->tensors.items[i];
        if (!is_parameter(tensor) || fnmatch(pattern, tensor->name, 0) != 0) continue;
        tensor->trainable = false;
        matched++;
    }
    return matched;
}

static enum status unmatched(const struct graph *graph, const char *pattern) {
    const char *some = "";
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (is_parameter(graph->tensors.items[i])) some = graph->tensors.items[i]->name;
    status_set(STATUS_BAD_INPUT, "freeze: '%.200s' matches no weight of the model", pattern);
    return status_hint(STATUS_BAD_INPUT, "names are such as %s; `ballast inspect` lists the file's", some);
}

/* Applies every pattern; one that matches nothing is refused. */
static enum status freeze_all(struct graph *graph, const char *patterns) {
    for (const char *at = patterns; *at;) {
        size_t length = strcspn(at, ",");
        char *pattern = mem_format("%.*s", (int)length, at);
        if (!pattern) return STATUS_FAILED;
        enum status status = freeze(graph, pattern) > 0 ? STATUS_OK : unmatched(graph, pattern);
        mem_free(pattern);
        TRY(status);
        at += length + (at[length] == ',');
    }
    return STATUS_OK;
}

enum status adapter_freeze(const struct model *model, struct graph *graph) {
    for (size_t i = 0; i < graph->tensors.count && model->config.adapter.rank > 0; i++) {
        struct tensor *tensor = graph->tensors.items[i];
        if (is_parameter(tensor)) tensor->trainable = adapter_owns(tensor->name);
    }
    return model->frozen ? freeze_all(graph, model->frozen) : STATUS_OK;
}

static enum status try_graph(const struct model *model) {
    struct graph *graph;
    TRY(adapter_small_graph(model, &graph));
    graph_free(graph);
    return STATUS_OK;
}

enum status model_set_frozen(struct model *model, const char *patterns) {
    mem_free(model->frozen);
    model->frozen = NULL;
    if (!*patterns) return STATUS_OK;
    model->frozen = mem_string(patterns);
    return model->frozen ? try_graph(model) : STATUS_FAILED;
}

enum status adapter_small_graph(const struct model *model, struct graph **out) {
    struct tensor *logits;
    return model_build_graph(model, MODEL_LOGITS, DTYPE_F32, 1, 1, out, &logits);
}

/* The layer's name within that of its A; false for other parameters. */
static bool layer_of(const struct tensor *tensor, char layer[ADAPTER_LAYER_BYTES]) {
    if (!is_parameter(tensor) || !adapter_owns(tensor->name) || !name_ends(tensor->name, adapter_suffix_a))
        return false;
    size_t length = strlen(tensor->name) - strlen(adapter_prefix) - strlen(adapter_suffix_a);
    snprintf(layer, ADAPTER_LAYER_BYTES, "%.*s", (int)length, tensor->name + strlen(adapter_prefix));
    return true;
}

/* The last parts of the names of layers with adapters, each once; NULL when out of memory. */
static json_t *list_layers(const struct graph *graph) {
    json_t *names = json_object(), *list = json_array();
    int failed = !names || !list;
    for (size_t i = 0; i < graph->tensors.count && !failed; i++) {
        char layer[ADAPTER_LAYER_BYTES];
        if (!layer_of(graph->tensors.items[i], layer)) continue;
        const char *dot = strrchr(layer, '.'), *last = dot ? dot + 1 : layer;
        if (json_object_get(names, last)) continue;
        failed = json_object_set_new(names, last, json_null()) != 0 || json_array_append_new(list, json_string(last));
    }
    json_decref(names);
    if (!failed) return list;
    json_decref(list);
    (void)status_no_memory(0, "a list of layers");
    return NULL;
}

static void print_names(const json_t *list, const char *between, char *text, size_t bytes) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        size_t used = strlen(text);
        snprintf(text + used, bytes - used, "%s%s", i ? between : "", json_string_value(json_array_get(list, i)));
    }
}

struct target_check {
    const struct graph *graph;
    const struct model *model;
    const char *field; /* that names the targets */
};

static enum status hint_layers(const struct model *model) {
    struct model all = *model;
    struct graph *graph;
    char text[512] = "";
    strcpy(all.config.adapter.targets, "all-linear");
    all.frozen = NULL;
    if (adapter_small_graph(&all, &graph) != STATUS_OK) return STATUS_FAILED;
    json_t *list = list_layers(graph);
    print_names(list, ", ", text, sizeof text);
    json_decref(list);
    graph_free(graph);
    return status_hint(STATUS_BAD_INPUT, "linear layers of the model: %s", text);
}

static enum status check_target(void *payload, const char *target, size_t length) {
    const struct target_check *check = payload;
    if (length == strlen("all-linear") && strncmp(target, "all-linear", length) == 0) return STATUS_OK;
    for (size_t i = 0; i < check->graph->tensors.count; i++) {
        char layer[ADAPTER_LAYER_BYTES];
        if (layer_of(check->graph->tensors.items[i], layer) && adapter_matches(layer, target, length)) return STATUS_OK;
    }
    status_set(STATUS_BAD_INPUT, "%s: '%.*s' is not a linear layer that takes an adapter", check->field, (int)length,
               target);
    return hint_layers(check->model);
}

static enum status check_targets(const struct model *model, const char *field) {
    struct target_check check = {.model = model, .field = field};
    struct graph *graph;
    TRY(adapter_small_graph(model, &graph));
    check.graph = graph;
    enum status status = adapter_each_target(&model->config.adapter, check_target, &check);
    graph_free(graph);
    return status;
}

/* all-linear becomes the layers' names, as peft writes it. */
static enum status name_targets(struct model *model) {
    struct adapter *adapter = &model->config.adapter;
    if (strcmp(adapter->targets, "all-linear") != 0) return STATUS_OK;
    struct graph *graph;
    TRY(adapter_small_graph(model, &graph));
    json_t *list = list_layers(graph);
    graph_free(graph);
    if (!list) return STATUS_FAILED;
    char text[ADAPTER_TARGETS_BYTES] = "";
    print_names(list, ",", text, sizeof text);
    json_decref(list);
    strcpy(adapter->targets, text);
    return STATUS_OK;
}

static enum status find_target(void *payload, const char *target, size_t length) {
    const char *list = payload;
    for (const char *at = list; *at;) {
        size_t here = strcspn(at, ",");
        if (here == length && strncmp(at, target, length) == 0) return STATUS_OK;
        at += here + (at[here] == ',');
    }
    return STATUS_BAD_INPUT;
}

/* Whether both name the same layers, in whatever order; all-linear stands for the model's. */
static enum status compare_adapters(const struct model *model, const struct adapter *wanted, bool *same) {
    struct model other = *model;
    const struct adapter *own = &model->config.adapter, *named = &other.config.adapter;
    other.config.adapter = *wanted;
    TRY(name_targets(&other));
    *same = own->rank == named->rank && own->alpha == named->alpha &&
            adapter_each_target(own, find_target, (void *)(uintptr_t)named->targets) == STATUS_OK &&
            adapter_each_target(named, find_target, (void *)(uintptr_t)own->targets) == STATUS_OK;
    return STATUS_OK;
}

enum status model_set_adapter(struct model *model, const char *text, uint64_t seed) {
    struct adapter *own = &model->config.adapter, wanted;
    char own_text[ADAPTER_TEXT_BYTES], wanted_text[ADAPTER_TEXT_BYTES];
    if (!*text) return STATUS_OK;
    TRY(adapter_parse(text, &wanted));
    if (own->rank > 0) {
        bool same;
        TRY(compare_adapters(model, &wanted, &same));
        if (same) return STATUS_OK;
        (void)adapter_print(own, own_text), (void)adapter_print(&wanted, wanted_text);
        status_set(STATUS_BAD_INPUT, "lora: %.200s differs from the model's adapter, %.200s", wanted_text, own_text);
        return status_hint(STATUS_BAD_INPUT, "leave the option out to train that adapter further");
    }
    if (model->config.experts > 0 && strcmp(wanted.targets, "all-linear") == 0)
        log_warning(
            "lora: all-linear means attention alone in a mixture of experts; peft adapts experts and router too");
    *own = wanted;
    model->adapter_seed = seed;
    TRY(check_targets(model, "lora"));
    return name_targets(model);
}

enum status model_set_base_format(struct model *model, enum weight_format format) {
    if (format == WEIGHT_PLAIN || (model->base_is_stored && format == model->config.base_format)) return STATUS_OK;
    if (model->base_is_stored)
        return status_set(STATUS_BAD_INPUT, "quantize-base: %s, but the model's files have weights in %s",
                          weight_format_name(format), weight_format_name(model->config.base_format));
    if (weight_format_has_groups(format))
        return status_set(STATUS_BAD_INPUT, "quantize-base: %s is read from models that have it, and not made",
                          weight_format_name(format));
    if (model->config.adapter.rank == 0)
        return status_hint(status_set(STATUS_BAD_INPUT,
                                      "quantize-base: weights in %s are frozen, and nothing else is trained",
                                      weight_format_name(format)),
                           "--lora trains adapters on them");
    if (model->config.family->expert_format != WEIGHT_PLAIN)
        return status_hint(status_set(STATUS_BAD_INPUT, "quantize-base: %s: its experts are not quantised here",
                                      model->config.family->name),
                           "files that have them in %s are read so",
                           weight_format_name(model->config.family->expert_format));
    model->config.base_format = format;
    enum status status = try_graph(model);
    return status == STATUS_OK ? STATUS_OK : status_prefix(status, "quantize-base");
}

static enum status check_weights(const struct model *model, const struct graph *graph) {
    size_t expected = 0;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (!is_parameter(tensor) || !adapter_owns(tensor->name)) continue;
        expected++;
        TRY(weights_check_one(model, tensor));
    }
    for (size_t i = 0; i < model->adapter_weights->tensors.count && model->adapter_weights->tensors.count > expected;
         i++) {
        const struct safetensors_tensor *found = &model->adapter_weights->tensors.items[i];
        const struct tensor *tensor = graph_find(graph, found->name);
        if (!tensor || !adapter_owns(tensor->name))
            return status_set(STATUS_BAD_INPUT,
                              "%s: %s: unexpected tensor: no adapter that adapter_config.json asks for", found->file,
                              found->name);
    }
    return STATUS_OK;
}

static enum status check_own_targets(const struct model *model, const char *file) {
    char *field = mem_format("%s: target_modules", file);
    enum status status = field ? check_targets(model, field) : STATUS_FAILED;
    mem_free(field);
    return status;
}

static enum status open_weights(struct model *model, const char *folder, const char *file) {
    struct graph *graph;
    char *path = path_join(folder, adapter_weights_name);
    enum status status = path ? STATUS_OK : STATUS_FAILED;
    if (path && !file_exists(path)) status = foreign_weights_refuse_folder(folder);
    if (status == STATUS_OK) status = safetensors_open(path, &model->adapter_weights);
    mem_free(path);
    TRY(status);
    TRY(check_own_targets(model, file));
    TRY(name_targets(model));
    TRY(adapter_small_graph(model, &graph));
    status = check_weights(model, graph);
    graph_free(graph);
    return status;
}

static bool holds(const char *folder, const char *name) {
    char *path = path_join(folder, name);
    bool there = path && file_exists(path);
    mem_free(path);
    return there;
}

static bool holds_model(const char *folder) {
    return holds(folder, "config.json") || holds(folder, adapter_config_name) || holds(folder, "run.json");
}

/* The base's directory, for the caller to free: a relative path is one of the working directory, as in peft, or, where
 * that has no model, of the adapter's directory. */
static char *find_base(const char *folder, const char *base) {
    if (base[0] == '/' || holds_model(base)) return mem_string(base);
    char *beside = path_join(folder, base);
    if (!beside || holds_model(beside)) return beside;
    mem_free(beside);
    return mem_string(base);
}

static enum status open_base(const char *folder, const char *file, const char *base, struct model **out) {
    static const char merge[] =
        "merge it with the model it belongs to: ballast merge ADAPTER_DIR --base MODEL_DIR -o DIR";
    if (!base)
        return status_hint(status_set(STATUS_BAD_INPUT, "%s: base_model_name_or_path: missing", file), "%s", merge);
    char *found = find_base(folder, base);
    enum status status = STATUS_FAILED;
    if (found && file_is_folder(found))
        status = model_open_base(file, found, out);
    else if (found)
        status = status_hint(
            status_set(STATUS_BAD_INPUT, "%s: base_model_name_or_path: '%.200s' is no directory here", file, base),
            "%s", merge);
    mem_free(found);
    return status;
}

static enum status open_adapter(const char *folder, const char *file, const char *base_folder, struct model **out) {
    json_t *object = NULL;
    const char *base = NULL;
    struct adapter adapter;
    TRY(json_read_object(file, ADAPTER_CONFIG_LIMIT_BYTES, &object));
    enum status status = adapter_read_config(file, object, &adapter, &base);
    if (status == STATUS_OK) status = open_base(folder, file, base_folder ? base_folder : base, out);
    double dropout = json_number_value(json_object_get(object, "lora_dropout"));
    json_decref(object);
    TRY(status);
    struct model *model = *out;
    model->config.adapter = adapter;
    model->adapter_folder = mem_string(folder);
    if (!model->adapter_folder) return STATUS_FAILED;
    if (dropout > 0) log_warning("%s asks for dropout (%g), which is not applied", file, dropout);
    return open_weights(model, folder, file);
}

enum status model_open_adapter(const char *given, const char *base_folder, struct model **out) {
    char *folder;
    TRY(model_folder_find(given, &folder));
    char *file = path_join(folder, adapter_config_name);
    struct model *model = NULL;
    enum status status = file ? open_adapter(folder, file, base_folder, &model) : STATUS_FAILED;
    mem_free(file);
    mem_free(folder);
    if (status != STATUS_OK)
        model_free(model);
    else
        *out = model;
    return status;
}

enum status adapter_find(const char *folder, bool *found) {
    char *file = path_join(folder, adapter_config_name);
    if (!file) return STATUS_FAILED;
    *found = file_exists(file);
    mem_free(file);
    return STATUS_OK;
}
