/* Adapters in a model: the nodes that they add, the frozen parameters, and the origin of a model with adapters. */
#include "model/weights.h"

#include <fnmatch.h>

#include "base/file.h"
#include "base/half.h"
#include "base/json.h"
#include "base/terminal.h"
#include "model/families/builder.h"
#include "model/safetensors.h"

enum { ADAPTER_LAYER_BYTES = 256, ADAPTER_CONFIG_LIMIT_BYTES = 1 << 20 };
static const char all_linear[] = "all-linear";

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
    /* peft uses transformers' names, which have this prefix even if the files' names do not. */
    const char *layer = graph_format(graph, "%s%s", builder->config->family->prefix, name);
    if (!layer || !adapter_wanted(&builder->config->adapter, layer)) return y;
    return add_adapter(builder, layer, node_name, x, sizes, y);
}

static bool is_parameter(const struct tensor *tensor) { return tensor->kind == TENSOR_PARAMETER && !tensor->base; }

/* Freezes the parameters that match the pattern. BAD_INPUT if none does. */
static enum status freeze(struct graph *graph, const char *pattern) {
    const char *some = "";
    bool matched = false;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        struct tensor *tensor = graph->tensors.items[i];
        if (!is_parameter(tensor)) continue;
        some = tensor->name;
        if (fnmatch(pattern, tensor->name, 0) != 0) continue;
        tensor->trainable = false;
        matched = true;
    }
    if (matched) return STATUS_OK;
    status_set(STATUS_BAD_INPUT, "freeze: '%.200s' matches no weight of the model", pattern);
    return status_hint(STATUS_BAD_INPUT, "names are such as %s; `ballast inspect` lists the file's", some);
}

static enum status freeze_all(struct graph *graph, const char *patterns) {
    for (const char *at = patterns; *at;) {
        size_t length = strcspn(at, ",");
        char *pattern = mem_format("%.*s", (int)length, at);
        if (!pattern) return STATUS_FAILED;
        enum status status = freeze(graph, pattern);
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
    TRY(model_build_small_graph(model, &graph));
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

/* Extracts the layer's name from that of its A; false for other parameters. */
static bool layer_of(const struct tensor *tensor, char layer[ADAPTER_LAYER_BYTES]) {
    if (!is_parameter(tensor) || !adapter_owns(tensor->name) || !name_ends(tensor->name, adapter_suffix_a))
        return false;
    size_t length = strlen(tensor->name) - strlen(adapter_prefix) - strlen(adapter_suffix_a);
    snprintf(layer, ADAPTER_LAYER_BYTES, "%.*s", (int)length, tensor->name + strlen(adapter_prefix));
    return true;
}

/* Whether one of the targets has this name. */
static bool names_target(const char *targets, const char *name, size_t length) {
    struct adapter_target target;
    while (adapter_take_target(&targets, &target))
        if (target.length == length && strncmp(target.name, name, length) == 0) return true;
    return false;
}

/* The last parts of the names of layers with adapters, without duplicates. */
static void list_layers(const struct graph *graph, char targets[ADAPTER_TARGETS_BYTES]) {
    targets[0] = '\0';
    for (size_t i = 0; i < graph->tensors.count; i++) {
        char layer[ADAPTER_LAYER_BYTES];
        if (!layer_of(graph->tensors.items[i], layer)) continue;
        const char *dot = strrchr(layer, '.'), *last = dot ? dot + 1 : layer;
        size_t used = strlen(targets);
        if (names_target(targets, last, strlen(last))) continue;
        snprintf(targets + used, ADAPTER_TARGETS_BYTES - used, "%s%s", used ? "," : "", last);
    }
}

/* Replaces all-linear by the layers' names, as peft does. */
static enum status name_targets(struct model *model) {
    struct graph *graph;
    if (strcmp(model->config.adapter.targets, all_linear) != 0) return STATUS_OK;
    TRY(model_build_small_graph(model, &graph));
    list_layers(graph, model->config.adapter.targets);
    graph_free(graph);
    return STATUS_OK;
}

static enum status hint_layers(const struct model *model) {
    struct model all = *model;
    struct adapter_target target;
    char text[512] = "";
    strcpy(all.config.adapter.targets, all_linear);
    all.frozen = NULL;
    if (name_targets(&all) != STATUS_OK) return STATUS_FAILED;
    for (const char *left = all.config.adapter.targets; adapter_take_target(&left, &target);) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%.*s", used ? ", " : "", (int)target.length, target.name);
    }
    return status_hint(STATUS_BAD_INPUT, "linear layers of the model: %s", text);
}

/* `field` names the targets. */
static enum status check_targets(const struct model *model, const char *field) {
    struct adapter_target target;
    struct graph *graph;
    char layer[ADAPTER_LAYER_BYTES];
    bool good = true;
    if (strcmp(model->config.adapter.targets, all_linear) == 0) return STATUS_OK;
    TRY(model_build_small_graph(model, &graph));
    for (const char *left = model->config.adapter.targets; good && adapter_take_target(&left, &target);) {
        good = false;
        for (size_t i = 0; i < graph->tensors.count && !good; i++)
            good = layer_of(graph->tensors.items[i], layer) && adapter_matches(layer, &target);
    }
    graph_free(graph);
    if (good) return STATUS_OK;
    status_set(STATUS_BAD_INPUT, "%s: '%.*s' is not a linear layer that takes an adapter", field, (int)target.length,
               target.name);
    return hint_layers(model);
}

/* Whether each of the targets is in `others`. */
static bool are_among(const char *targets, const char *others) {
    struct adapter_target target;
    while (adapter_take_target(&targets, &target))
        if (!names_target(others, target.name, target.length)) return false;
    return true;
}

enum status model_set_adapter(struct model *model, const char *text, uint64_t seed) {
    struct adapter *own = &model->config.adapter, wanted;
    char own_text[ADAPTER_TEXT_BYTES], wanted_text[ADAPTER_TEXT_BYTES];
    if (!*text) return STATUS_OK;
    TRY(adapter_parse(text, &wanted));
    if (own->rank > 0) { /* the same layers in any order; all-linear means the model's */
        struct model other = *model;
        const struct adapter *named = &other.config.adapter;
        other.config.adapter = wanted;
        TRY(name_targets(&other));
        if (own->rank == named->rank && own->alpha == named->alpha && are_among(own->targets, named->targets) &&
            are_among(named->targets, own->targets))
            return STATUS_OK;
        (void)adapter_print(own, own_text), (void)adapter_print(&wanted, wanted_text);
        status_set(STATUS_BAD_INPUT, "lora: %.200s differs from the model's adapter, %.200s", wanted_text, own_text);
        return status_hint(STATUS_BAD_INPUT, "leave the option out to train that adapter further");
    }
    if (model->config.experts > 0 && strcmp(wanted.targets, all_linear) == 0)
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
            return SAFETENSORS_REFUSE(found, "unexpected tensor: no adapter that adapter_config.json asks for");
    }
    return STATUS_OK;
}

static enum status open_weights(struct model *model, const char *folder, const char *file) {
    AUTO(graph_release) struct graph *graph = NULL;
    AUTO_FREE char *path = path_join(folder, adapter_weights_name), *field = mem_format("%s: target_modules", file);
    TRY(path && field ? STATUS_OK : STATUS_FAILED);
    if (!file_exists(path)) TRY(foreign_weights_refuse_folder(folder));
    TRY(safetensors_open(path, &model->adapter_weights));
    TRY(check_targets(model, field));
    TRY(name_targets(model));
    TRY(model_build_small_graph(model, &graph));
    return check_weights(model, graph);
}

static bool holds_model(const char *folder) {
    return model_folder_has(folder, "config.json") || model_folder_has(folder, adapter_config_name) ||
           model_folder_has(folder, "run.json");
}

/* The base's directory, for the caller to free. A relative path is resolved in the working directory, as in peft. If
 * there is no model, it is resolved in the adapter's directory. */
static char *find_base(const char *folder, const char *base) {
    if (base[0] == '/' || holds_model(base)) return mem_string(base);
    char *beside = path_join(folder, base);
    if (!beside || holds_model(beside)) return beside;
    mem_free(beside);
    return mem_string(base);
}

static enum status open_base(const char *folder, const char *file, const char *base, struct model **out) {
    AUTO_FREE char *found = base ? find_base(folder, base) : NULL;
    enum status status = STATUS_FAILED;
    if (found && file_is_folder(found)) {
        status = model_open_base(file, found, out);
    } else if (found || !base) {
        status = base ? status_set(STATUS_BAD_INPUT, "%s: base_model_name_or_path: '%.200s' is no directory here", file,
                                   base)
                      : status_set(STATUS_BAD_INPUT, "%s: base_model_name_or_path: missing", file);
        status_hint(status, "merge it with the model it belongs to: ballast merge ADAPTER_DIR --base MODEL_DIR -o DIR");
    }
    return status;
}

enum status model_open_adapter(const char *given, const char *base_folder, struct model **out) {
    char *folder = NULL, *file = NULL;
    json_t *object = NULL;
    const char *base = NULL;
    struct adapter adapter;
    struct model *model = NULL;
    enum status status;
    TRY_GOTO(status, model_folder_find(given, &folder), done);
    file = path_join(folder, adapter_config_name);
    TRY_GOTO(status, file ? STATUS_OK : STATUS_FAILED, done);
    TRY_GOTO(status, json_read_object(file, ADAPTER_CONFIG_LIMIT_BYTES, &object), done);
    TRY_GOTO(status, adapter_read_config(file, object, &adapter, &base), done);
    TRY_GOTO(status, open_base(folder, file, base_folder ? base_folder : base, &model), done);
    model->config.adapter = adapter;
    model->adapter_folder = mem_string(folder);
    TRY_GOTO(status, model->adapter_folder ? STATUS_OK : STATUS_FAILED, done);
    double dropout = json_number_value(json_object_get(object, "lora_dropout"));
    if (dropout > 0) log_warning("%s asks for dropout (%g), which is not applied", file, dropout);
    status = open_weights(model, folder, file);
done:
    json_decref(object);
    mem_free(file);
    mem_free(folder);
    if (status == STATUS_OK)
        *out = model;
    else
        model_free(model);
    return status;
}

/* --- merging adapters into a model --- */

/* W += factor B A in fp32; W [out, in], or [in, out] where `kn`. */
static void add_product(float *weight, const float *a, const float *b, const struct linear_sizes *sizes, int64_t rank,
                        float factor) {
    int64_t in = sizes->in, out = sizes->out;
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < in; i++) {
            float sum = 0;
            for (int64_t r = 0; r < rank; r++)
                sum += b[o * rank + r] * a[r * in + i];
            weight[sizes->weight_is_kn ? i * out + o : o * in + i] += factor * sum;
        }
}

static enum status load(const struct model *model, const struct tensor *parameter, enum dtype dtype, void **out) {
    void *data = mem_array((size_t)shape_elements(&parameter->shape), (size_t)dtype_bytes(dtype));
    if (!data) return STATUS_FAILED;
    struct weight_target target = weight_whole(parameter, dtype, data);
    enum status status = model_load_weights(model, &target, 1);
    if (status != STATUS_OK) mem_free(data);
    *out = status == STATUS_OK ? data : NULL;
    return status;
}

/* The linear node that multiplies by this parameter; NULL if there is none. */
static const struct node *product_of(const struct graph *graph, const struct tensor *weight) {
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (graph->nodes.items[i]->op == &op_linear && graph->nodes.items[i]->in[1] == weight)
            return graph->nodes.items[i];
    return NULL;
}

static const struct tensor *adapter_of(const struct model *model, struct graph *graph, const struct tensor *weight,
                                       const char *suffix) {
    const char *name = weight->name + strlen(model->prefix), *family = model->config.family->prefix;
    static const char end[] = ".weight";
    if (!name_ends(name, end)) return NULL;
    int length = (int)(strlen(name) - strlen(end));
    const char *wanted = graph_format(graph, "%s%s%.*s%s", adapter_prefix, family, length, name, suffix);
    return wanted ? graph_find(graph, wanted) : NULL;
}

/* Rounds in place: a written value never precedes values that are still to be read. */
static void round_to(struct weight_target *target, enum dtype dtype) {
    if (dtype == DTYPE_F32) return;
    int64_t elements = shape_elements(&target->tensor->shape);
    for (int64_t i = 0; i < elements; i++) {
        float value;
        memcpy(&value, (char *)target->data + i * (int64_t)sizeof value, sizeof value);
        uint16_t rounded = bf16_from_float(value);
        memcpy((char *)target->data + i * (int64_t)sizeof rounded, &rounded, sizeof rounded);
    }
    target->dtype = dtype;
}

static enum status merge_one(const struct model *model, struct graph *graph, struct weight_target *target) {
    const struct tensor *weight = target->tensor;
    const struct node *node = product_of(graph, weight);
    const struct tensor *a = node ? adapter_of(model, graph, weight, adapter_suffix_a) : NULL;
    const struct tensor *b = a ? adapter_of(model, graph, weight, adapter_suffix_b) : NULL;
    TRY(graph_status(graph));
    const struct safetensors_tensor *source = safetensors_find(model->weights, weight->name);
    enum dtype dtype = source->dtype == SAFETENSORS_BF16 ? DTYPE_BF16 : DTYPE_F32;
    AUTO_FREE void *a_data = NULL, *b_data = NULL;
    target->dtype = b ? DTYPE_F32 : dtype;
    TRY(load(model, weight, target->dtype, &target->data));
    if (!b) return STATUS_OK;
    const struct adapter *adapter = &model->config.adapter;
    struct linear_sizes sizes = {.in = a->shape.dims[1],
                                 .out = b->shape.dims[0],
                                 .weight_is_kn = NODE_ATTRIBUTES(node, linear_attributes)->weight_is_kn};
    TRY(load(model, a, DTYPE_F32, &a_data));
    TRY(load(model, b, DTYPE_F32, &b_data));
    add_product(target->data, a_data, b_data, &sizes, adapter->rank, (float)(adapter->alpha / (double)adapter->rank));
    round_to(target, dtype);
    return STATUS_OK;
}

enum status model_write_merged(const struct model *model, const char *folder) {
    BUG_IF(!model->adapter_weights, "a model without adapters is merged");
    if (model->config.base_format != WEIGHT_PLAIN)
        return status_hint(status_set(STATUS_BAD_INPUT, "%s: weights in %s cannot take adapters in", model->folder,
                                      weight_format_name(model->config.base_format)),
                           "merge into the model that they were made from: --base MODEL_DIR");
    struct graph *graph;
    int count = 0;
    TRY(model_build_small_graph(model, &graph));
    struct weight_target *targets = mem_array(graph->tensors.count, sizeof *targets);
    progress_begin(PROGRESS_COUNT, model_parameter_count(graph), "merging adapters into weights");
    enum status status = targets ? STATUS_OK : STATUS_FAILED;
    for (size_t i = 0, tensors = graph->tensors.count; i < tensors && status == STATUS_OK; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (!is_parameter(tensor) || adapter_owns(tensor->name)) continue;
        targets[count] = weight_whole(tensor, DTYPE_F32, NULL);
        status = merge_one(model, graph, &targets[count++]);
        progress_add(shape_elements(&tensor->shape));
    }
    progress_end();
    struct model plain = *model;
    plain.config.adapter.rank = 0;
    if (status == STATUS_OK) status = model_write(&plain, folder, targets, count, NULL);
    for (int i = 0; i < count; i++)
        mem_free(targets[i].data);
    mem_free(targets);
    graph_free(graph);
    return status;
}

/* Writes an adapter's settings. */

static bool has_kn(const struct graph *graph) {
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        if (node->op == &op_linear && NODE_ATTRIBUTES(node, linear_attributes)->weight_is_kn) return true;
    }
    return false;
}

enum status adapter_write_settings(const struct model *model, const char *path, struct manifest *manifest) {
    struct graph *graph;
    struct file_sums *sums;
    TRY(manifest_add(manifest, path, &sums));
    TRY(model_build_small_graph(model, &graph));
    json_t *targets = adapter_list_targets(&model->config.adapter);
    json_auto_t *object = NULL;
    if (targets)
        object =
            adapter_write_config(&model->config.adapter, model->folder ? model->folder : "", targets, has_kn(graph));
    graph_free(graph);
    return object ? json_write_summed(path, object, sums) : status_set(STATUS_FAILED, "%s: no memory", path);
}
