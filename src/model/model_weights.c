#include "model/model_weights.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/random.h"
#include "model/model_build.h"

static const char head_name[] = "lm_head.weight";

void weights_find_prefix(struct model *model) {
    const struct model_family *family = model->config.family;
    model->prefix = safetensors_find(model->weights, family->embedding) ? "" : family->prefix;
}

/* `pattern` with '#' for one or more digits. */
static bool matches(const char *pattern, const char *name) {
    for (; *pattern; pattern++) {
        if (*pattern != '#') {
            if (*pattern != *name++) return false;
            continue;
        }
        if (!isdigit((unsigned char)*name)) return false;
        while (isdigit((unsigned char)*name))
            name++;
    }
    return *name == '\0';
}

static bool is_buffer(const struct model *model, const char *name) {
    size_t length = strlen(model->prefix);
    if (strncmp(name, model->prefix, length) != 0) return false;
    for (const char *const *pattern = model->config.family->buffers; *pattern; pattern++)
        if (matches(*pattern, name + length)) return true;
    return false;
}

/* Where a parameter comes from. */
static const struct safetensors *source_of(const struct model *model, const struct tensor *parameter) {
    return adapter_owns(parameter->name) ? model->adapter_weights : model->weights;
}

static enum status check_parameter(const struct safetensors_tensor *found, const struct shape *wanted) {
    if (!safetensors_has_shape(found, wanted)) {
        char dims[SHAPE_TEXT];
        struct safetensors_tensor asked = {.rank = wanted->rank, .dims = wanted->dims};
        status_set(STATUS_BAD_INPUT, "%s: %s: shape is %s", found->file, found->name,
                   safetensors_print_dims(found, dims));
        const char *message = status_message();
        return status_set(STATUS_BAD_INPUT, "%s, but %s asks for %s", message,
                          adapter_owns(found->name) ? "adapter_config.json" : "config.json",
                          safetensors_print_dims(&asked, dims));
    }
    bool good = found->dtype == SAFETENSORS_F32 || found->dtype == SAFETENSORS_BF16 || found->dtype == SAFETENSORS_F16;
    if (good) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s: dtype %.30s is not supported for weights (F32, BF16, F16 are)",
                      found->file, found->name, found->dtype_name);
}

/* A tensor that is no parameter: a known buffer, a tied head stored all the same, or refused. */
static enum status check_extra(const struct model *model, const struct safetensors_tensor *found) {
    if (is_buffer(model, found->name)) return STATUS_OK;
    if (model->config.tied && strcmp(found->name, head_name) == 0) {
        char *name = mem_format("%s%s", model->prefix, model->config.family->embedding);
        if (!name) return STATUS_FAILED;
        const struct safetensors_tensor *embedding = safetensors_find(model->weights, name);
        mem_free(name);
        if (embedding && safetensors_equal(model->weights, found, embedding)) return STATUS_OK;
        return status_set(STATUS_BAD_INPUT, "%s: %s: differs from the embedding, but config.json ties the two",
                          found->file, found->name);
    }
    status_set(STATUS_BAD_INPUT, "%s: %s: unexpected tensor: no parameter of this model", found->file, found->name);
    return status_hint(STATUS_BAD_INPUT, "config.json may not be the one that these weights were saved with");
}

static enum status missing(const struct model *model, const char *name) {
    const struct safetensors *weights = model->weights;
    bool one_file = weights->maps.count == 1 && weights->tensors.count > 0;
    return status_set(STATUS_BAD_INPUT, "%s: %s: missing; config.json asks for it",
                      one_file ? weights->tensors.items[0].file : model->folder, name);
}

static enum status check_names(const struct model *model, const struct graph *graph, bool *used) {
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != TENSOR_PARAMETER || tensor->base) continue;
        const struct safetensors_tensor *found = safetensors_find(model->weights, tensor->name);
        if (!found) return missing(model, tensor->name);
        TRY(check_parameter(found, &tensor->shape));
        used[found - model->weights->tensors.items] = true;
    }
    for (size_t i = 0; i < model->weights->tensors.count; i++)
        if (!used[i]) TRY(check_extra(model, &model->weights->tensors.items[i]));
    return STATUS_OK;
}

enum status weights_check(const struct model *model) {
    struct graph *graph;
    struct tensor *logits;
    bool *used = mem_array(model->weights->tensors.count, sizeof *used);
    if (!used) return STATUS_FAILED;
    enum status status = model_build_graph(model, MODEL_LOGITS, DTYPE_F32, 1, 1, &graph, &logits);
    if (status == STATUS_OK) {
        status = check_names(model, graph, used);
        graph_free(graph);
    }
    mem_free(used);
    return status;
}

enum status weights_check_one(const struct model *model, const struct tensor *parameter) {
    const struct safetensors *set = source_of(model, parameter);
    const struct safetensors_tensor *found = safetensors_find(set, parameter->name);
    if (found) return check_parameter(found, &parameter->shape);
    return status_set(STATUS_BAD_INPUT, "%s: %s: missing; adapter_config.json asks for it",
                      set->tensors.count ? set->tensors.items[0].file : "adapter_model.safetensors", parameter->name);
}

/* Work is handed to threads in pieces of this many elements; pieces change nothing in the values. */
enum { PIECE_ELEMENTS = 1 << 18 };

static int64_t piece_count(int64_t elements) { return (elements + PIECE_ELEMENTS - 1) / PIECE_ELEMENTS; }

static int64_t piece_elements(int64_t elements, int64_t piece) {
    int64_t left = elements - piece * PIECE_ELEMENTS;
    return left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS;
}

static void *piece_data(const struct weight_target *target, int64_t piece) {
    return (char *)target->data + piece * PIECE_ELEMENTS * dtype_bytes(target->dtype);
}

/* FNV-1a, 64 bits: which random numbers a parameter gets depends on its name alone. */
static uint64_t hash_name(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

static void store(void *data, enum dtype dtype, int64_t index, float value) {
    if (dtype == DTYPE_BF16)
        ((uint16_t *)data)[index] = bf16_from_float(value);
    else
        ((float *)data)[index] = value;
}

/* A random number of a parameter: (seed, key, first + index). */
struct draw {
    uint32_t key;
    uint64_t first;
};

static struct draw draw_for(const struct tensor *parameter) {
    enum { INDEX_BITS = 40 }; /* of the counter; the hash's other bits stand above them */
    uint64_t hash = hash_name(parameter->name);
    return (struct draw){(uint32_t)hash, (hash >> 32) << INDEX_BITS};
}

static void initialise_one(const struct weight_target *target, uint64_t seed, double deviation) {
    struct draw draw = draw_for(target->tensor);
    int64_t elements = shape_elements(&target->tensor->shape), pieces = piece_count(elements);
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t count = piece_elements(elements, piece);
        for (int64_t i = 0; i < count; i++) {
            uint64_t counter = draw.first + (uint64_t)(piece * PIECE_ELEMENTS + i);
            double value = deviation < 0 ? 1 : 0;
            if (deviation > 0) value = deviation * random_normal(seed, RANDOM_INIT, draw.key, counter);
            store(piece_data(target, piece), target->dtype, i, (float)value);
        }
    }
}

/* A: uniform within 1 / sqrt(in), which is what He's initialisation with a = sqrt(5) comes to, as in peft; B: zero, so
 * that training starts at the base model. */
static void initialise_adapter(const struct weight_target *target, uint64_t seed) {
    struct draw draw = draw_for(target->tensor);
    int64_t elements = shape_elements(&target->tensor->shape);
    double bound = 1 / sqrt((double)shape_columns(&target->tensor->shape));
    bool zero = name_ends(target->tensor->name, adapter_suffix_b);
    for (int64_t i = 0; i < elements; i++) {
        double uniform = random_uniform(seed, RANDOM_INIT, draw.key, draw.first + (uint64_t)i);
        store(target->data, target->dtype, i, zero ? 0 : (float)((2 * uniform - 1) * bound));
    }
}

/* Adapters are small: one that goes to a store is made in memory as a whole. */
static enum status make_adapter(const struct weight_target *target, uint64_t seed) {
    if (target->data) {
        initialise_adapter(target, seed);
        return STATUS_OK;
    }
    int64_t bytes = shape_elements(&target->tensor->shape) * dtype_bytes(target->dtype);
    struct weight_target made = *target;
    made.data = mem_array((size_t)bytes, 1);
    if (!made.data) return STATUS_FAILED;
    initialise_adapter(&made, seed);
    enum status status = target->store->write(target->store->payload, target->home, 0, bytes, made.data);
    mem_free(made.data);
    return status;
}

static enum status add_load(const struct model *model, const struct weight_target *target,
                            struct safetensors_load *loads, size_t *count) {
    const struct safetensors *set = source_of(model, target->tensor);
    if (!set) return make_adapter(target, model->adapter_seed);
    const struct safetensors_tensor *source = safetensors_find(set, target->tensor->name);
    if (!source) return missing(model, target->tensor->name);
    TRY(check_parameter(source, &target->tensor->shape));
    BUG_IF(target->dtype != DTYPE_F32 && target->dtype != DTYPE_BF16, "%s: weights as %s", source->name,
           dtype_name(target->dtype));
    loads[(*count)++] =
        (struct safetensors_load){set, source, target->dtype, target->data, target->store, target->home};
    return STATUS_OK;
}

enum status model_load_weights(const struct model *model, const struct weight_target *targets, int count) {
    BUG_IF(!model->weights, "loading the weights of a model made from scratch");
    struct safetensors_load *loads = mem_array((size_t)count, sizeof *loads);
    if (!loads) return STATUS_FAILED;
    size_t load_count = 0;
    enum status status = STATUS_OK;
    for (int i = 0; i < count && status == STATUS_OK; i++)
        status = add_load(model, &targets[i], loads, &load_count);
    if (status == STATUS_OK) status = safetensors_load(loads, load_count);
    mem_free(loads);
    return status;
}

void model_initialise_weights(const struct model *model, uint64_t seed, const struct weight_target *targets,
                              int count) {
    const struct model_config *config = &model->config;
    for (int i = 0; i < count; i++) {
        BUG_IF(targets[i].dtype != DTYPE_F32 && targets[i].dtype != DTYPE_BF16, "%s: weights as %s",
               targets[i].tensor->name, dtype_name(targets[i].dtype));
        if (adapter_owns(targets[i].tensor->name))
            initialise_adapter(&targets[i], seed);
        else
            initialise_one(&targets[i], seed, config->family->initial_deviation(config, targets[i].tensor));
    }
}
