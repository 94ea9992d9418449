#include "model/weights.h"

#include <ctype.h>
#include <math.h>
#include <xxhash.h>

#include "base/half.h"
#include "base/random.h"
#include "model/config.h"
#include "model/families/builder.h"
#include "model/quantise.h"
#include "model/stored_format.h"

static const char head_name[] = "lm_head.weight";

/* Whether the token embedding has this prefix. */
static bool has_prefix(const struct model *model, const char *prefix) {
    size_t length = strlen(prefix);
    for (size_t i = 0; i < model->weights->tensors.count; i++) {
        const char *name = model->weights->tensors.items[i].name;
        if (strncmp(name, prefix, length) == 0 && strcmp(name + length, model->config.family->embedding) == 0)
            return true;
    }
    return false;
}

/* Sets model->prefix to that of the files. */
static void find_prefix(struct model *model) {
    const struct model_family *family = model->config.family;
    model->prefix = family->prefix;
    if (has_prefix(model, "")) model->prefix = "";
    if (family->stored_prefix && has_prefix(model, family->stored_prefix)) model->prefix = family->stored_prefix;
}

/* If the embedding is tied to the head and only the head is stored, as in some files of OPT, uses it as the
 * embedding. */
static enum status take_head(struct model *model) {
    struct safetensors *weights = model->weights;
    const struct safetensors_tensor *head = model->config.tied ? safetensors_find(weights, head_name) : NULL;
    if (!head || has_prefix(model, model->prefix)) return STATUS_OK;
    AUTO_FREE char *name = mem_format("%s%s", model->prefix, model->config.family->embedding);
    return name ? safetensors_rename(weights, head, name) : STATUS_FAILED;
}

bool weights_is_carried(const struct model *model, const char *name) {
    const char *const *carried = model->config.family->carried;
    for (; carried && *carried; carried++)
        if (strncmp(name, *carried, strlen(*carried)) == 0) return true;
    return false;
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

/* Source of a parameter. */
static const struct safetensors *source_of(const struct model *model, const struct tensor *parameter) {
    return adapter_owns(parameter->name) ? model->adapter_weights : model->weights;
}

static enum status check_parameter(const struct safetensors_tensor *found, const struct shape *wanted) {
    if (!safetensors_has_shape(found, wanted)) {
        char dims[SHAPE_TEXT];
        struct safetensors_tensor expected = {.rank = wanted->rank, .dims = wanted->dims};
        SAFETENSORS_REFUSE(found, "shape is %s", safetensors_print_dims(found, dims));
        const char *message = status_message();
        return status_set(STATUS_BAD_INPUT, "%s, but %s asks for %s", message,
                          adapter_owns(found->name) ? "adapter_config.json" : "config.json",
                          safetensors_print_dims(&expected, dims));
    }
    bool good = safetensors_can_convert(found->dtype, DTYPE_F32);
    if (good) return STATUS_OK;
    return SAFETENSORS_REFUSE(found, "dtype %.30s is not supported for weights (F32, BF16, F16, F64 are)",
                              found->dtype_name);
}

/* A tensor that is no parameter must be a known buffer, or a tied head that is stored anyway. BAD_INPUT for any
 * other. */
static enum status check_extra(const struct model *model, const struct safetensors_tensor *found) {
    if (is_buffer(model, found->name) || weights_is_carried(model, found->name)) return STATUS_OK;
    if (model->config.tied && name_ends(found->name, head_name)) {
        char *name = mem_format("%s%s", model->prefix, model->config.family->embedding);
        if (!name) return STATUS_FAILED;
        const struct safetensors_tensor *embedding = safetensors_find(model->weights, name);
        mem_free(name);
        bool equal = false;
        if (embedding) TRY(safetensors_equal(model->weights, found, embedding, &equal));
        if (equal) return STATUS_OK;
        return SAFETENSORS_REFUSE(found, "differs from the embedding, but config.json ties the two");
    }
    SAFETENSORS_REFUSE(found, "unexpected tensor: no parameter of this model");
    return status_hint(STATUS_BAD_INPUT, "config.json may not be the one that these weights were saved with");
}

static enum status missing(const struct model *model, const char *name) {
    const struct safetensors *weights = model->weights;
    bool one_file = weights->inputs.count == 1 && weights->tensors.count > 0;
    return status_set(STATUS_BAD_INPUT, "%s: %s: missing; config.json asks for it",
                      one_file ? weights->tensors.items[0].file : model->folder, name);
}

static bool is_quantised(const struct safetensors_tensor *tensor) {
    /* Names of the tensors that GPTQ, AWQ, bitsandbytes and compressed-tensors add. */
    static const char *const suffixes[] = {".qweight", ".qzeros", ".absmax", ".SCB", ".weight_packed", ".weight_scale"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (name_ends(tensor->name, suffixes[i])) return true;
    size_t bits = safetensors_dtype_bits(tensor->dtype);
    return bits > 0 && bits <= 8 && tensor->dtype != SAFETENSORS_BOOL;
}

static enum status refuse_quantised(const struct model *model) {
    for (size_t i = 0; i < model->weights->tensors.count; i++) {
        const struct safetensors_tensor *tensor = &model->weights->tensors.items[i];
        if (!is_quantised(tensor) || is_buffer(model, tensor->name) || weights_is_carried(model, tensor->name))
            continue;
        SAFETENSORS_REFUSE(tensor, "the weights are quantised (%s)", tensor->dtype_name);
        return config_hint_quantised(STATUS_BAD_INPUT);
    }
    return STATUS_OK;
}

static enum status check_names(const struct model *model, const struct graph *graph, bool *used) {
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != TENSOR_PARAMETER || tensor->base) continue;
        if (tensor->code.format != WEIGHT_PLAIN) {
            TRY(stored_weight_check(model->weights, tensor, used));
            continue;
        }
        const struct safetensors_tensor *found = safetensors_find(model->weights, tensor->name);
        if (!found && plain_layers_have(model->plain_layers, tensor->name))
            return status_hint(missing(model, tensor->name), "quantization_config leaves this layer plain");
        if (!found) return missing(model, tensor->stack.name ? tensor->stack.name : tensor->name);
        TRY(check_parameter(found, &tensor->shape));
        used[found - model->weights->tensors.items] = true;
    }
    for (size_t i = 0; i < model->weights->tensors.count; i++)
        if (!used[i]) TRY(check_extra(model, &model->weights->tensors.items[i]));
    return STATUS_OK;
}

/* Splits tensors that are several parameters (ir/tensor.h, stack). BAD_INPUT names one with another number. Fused forms
 * hold plain weights. */
static enum status unstack(struct model *model, struct graph *graph) {
    AUTO_VEC struct safetensors_parts parts = {0};
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->stack.name) TRY(stored_weight_list_stacks(graph, tensor, &parts));
        if (tensor->fused.name && tensor->code.format == WEIGHT_PLAIN)
            TRY(vec_push(&parts, (struct safetensors_part){tensor->name, tensor->fused}));
    }
    if (parts.count > 0) TRY(safetensors_unstack(model->weights, parts.items, parts.count));
    return STATUS_OK;
}

/* The files must hold every parameter of the model's graph, in its shape and a convertible dtype. They may hold nothing
 * else except known buffers and, if tied, an equal copy of the embedding as the head. BAD_INPUT names file and
 * tensor. */
static enum status check_all(struct model *model, struct graph *graph) {
    TRY(unstack(model, graph));
    if (!model->base_is_stored) TRY(refuse_quantised(model));
    AUTO_FREE bool *used = mem_array(model->weights->tensors.count, sizeof *used);
    return used ? check_names(model, graph, used) : STATUS_FAILED;
}

enum status weights_open(struct model *model, const char *folder) {
    enum weight_format format = model->config.base_format;
    struct graph *graph;
    TRY(safetensors_open_folder(folder, &model->weights));
    find_prefix(model);
    TRY(take_head(model));
    if (format == WEIGHT_NF4 || format == WEIGHT_NF4_WIDE)
        TRY(stored_format_read_block(model->weights, &model->config.base_block));
    TRY(model_build_small_graph(model, &graph));
    enum status status = check_all(model, graph);
    graph_free(graph);
    return status;
}

enum status weights_check_one(const struct model *model, const struct tensor *parameter) {
    const struct safetensors *set = source_of(model, parameter);
    const struct safetensors_tensor *found = safetensors_find(set, parameter->name);
    if (found) return check_parameter(found, &parameter->shape);
    return status_set(STATUS_BAD_INPUT, "%s: %s: missing; adapter_config.json asks for it",
                      set->tensors.count ? set->tensors.items[0].file : "adapter_model.safetensors", parameter->name);
}

/* FNV-1a, 64 bits: a parameter's random numbers depend only on its name. */
static uint64_t hash_name(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

/* How the initial values of a parameter are drawn: element i from the random number (seed, key, first + i). */
struct initial {
    enum { INITIAL_CONSTANT, INITIAL_NORMAL, INITIAL_UNIFORM } kind;
    double scale; /* the constant, the deviation, or the bound on both sides of 0 */
    uint64_t seed, first;
    uint32_t key;
};

/* Adapters' A: uniform within 1 / sqrt(in), which equals He's initialization with a = sqrt(5), as in peft. B: zero, so
 * that training starts at the base model. */
static struct initial initial_of(const struct model *model, uint64_t seed, const struct tensor *parameter) {
    enum { INDEX_BITS = 40 }; /* of the counter; the hash's other bits are above them */
    uint64_t hash = hash_name(parameter->name);
    struct initial initial = {.seed = seed, .first = (hash >> 32) << INDEX_BITS, .key = (uint32_t)hash};
    if (adapter_owns(parameter->name)) {
        if (name_ends(parameter->name, adapter_suffix_b)) return initial;
        initial.kind = INITIAL_UNIFORM;
        struct shape whole = tensor_whole_shape(parameter);
        initial.scale = 1 / sqrt((double)shape_columns(&whole));
        return initial;
    }
    struct tensor numbers = *parameter;
    numbers.shape = *tensor_values(parameter);
    double deviation = model->config.family->initial_deviation(&model->config, &numbers);
    if (deviation > 0) initial.kind = INITIAL_NORMAL;
    initial.scale = deviation < 0 ? 1 : deviation;
    return initial;
}

enum { DRAW_BLOCK = 4096 };

/* Elements [first, first + count) as fp32. */
static void draw_block(const struct initial *initial, uint64_t first, size_t count, float *out) {
    uint64_t counter = initial->first + first;
    switch (initial->kind) {
    case INITIAL_CONSTANT:
        for (size_t i = 0; i < count; i++)
            out[i] = (float)initial->scale;
        return;
    case INITIAL_NORMAL:
        random_normals(initial->seed, RANDOM_INIT, initial->key, counter, count, initial->scale, out);
        return;
    case INITIAL_UNIFORM:
        for (size_t i = 0; i < count; i++) {
            double uniform = random_uniform(initial->seed, RANDOM_INIT, initial->key, counter + i);
            out[i] = (float)((2 * uniform - 1) * initial->scale);
        }
        return;
    }
    BUG("initial values of kind %d", initial->kind);
}

/* Elements [first, first + count). */
static void draw_values(const struct initial *initial, enum dtype dtype, int64_t first, int64_t count, void *out) {
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < count; at += DRAW_BLOCK) {
        size_t here = (size_t)(count - at < DRAW_BLOCK ? count - at : DRAW_BLOCK);
        bool rounds = dtype == DTYPE_BF16;
        float values[DRAW_BLOCK];
        draw_block(initial, (uint64_t)(first + at), here, rounds ? values : (float *)out + at);
        for (size_t i = 0; i < here && rounds; i++)
            ((uint16_t *)out)[at + (int64_t)i] = bf16_from_float(values[i]);
    }
}

struct drawn_target {
    const struct initial *initial;
    const struct weight_target *target;
};

/* Draws a piece's part of the tensor. */
static enum status read_drawn_target(void *payload, const struct weight_piece *piece) {
    const struct drawn_target *drawn = payload;
    enum dtype dtype = drawn->target->dtype;
    int64_t element = dtype_bytes(dtype), count = piece->bytes / element, run;
    for (int64_t done = 0; done < count; done += run) {
        int64_t whole = tensor_part_find(drawn->target->tensor, piece->first / element + done, &run);
        if (run > count - done) run = count - done;
        if (whole == TENSOR_NOWHERE)
            memset(piece->out + done * element, 0, (size_t)(run * element));
        else
            draw_values(drawn->initial, dtype, whole, run, piece->out + done * element);
    }
    return STATUS_OK;
}

static bool is_quantized(const struct weight_target *target) { return target->tensor->code.format != WEIGHT_PLAIN; }

static enum status read_drawn(const void *payload, int64_t first, int64_t count, float *out) {
    draw_block(payload, (uint64_t)first, (size_t)count, out);
    return STATUS_OK;
}

/* Draws values for a store one piece at a time. */
static enum status initialise(const struct model *model, const struct weight_target *target, uint64_t seed) {
    bool quantized = is_quantized(target);
    const struct tensor whole = quantized ? quantized_weight_whole(target->tensor) : *target->tensor;
    const struct initial initial = initial_of(model, seed, &whole);
    if (quantized) return quantized_weight_quantise(target, &(struct number_source){read_drawn, &initial});
    BUG_IF(target->dtype != DTYPE_F32 && target->dtype != DTYPE_BF16, "%s: weights as %s", target->tensor->name,
           dtype_name(target->dtype));
    struct drawn_target drawn = {&initial, target};
    return weight_target_fill(target, &(struct weight_source){read_drawn_target, &drawn});
}

/* ---- quantized formats ---- */

enum status model_draw_quantized(const void *weights, const struct tensor *tensor, unsigned char *out) {
    const struct initial_weights *initial = weights;
    struct initial values = initial_of(initial->model, initial->seed, tensor);
    return quantise_weight(&tensor->code, &(struct number_source){read_drawn, &values}, out);
}

struct stored_numbers {
    const struct safetensors *set;
    const struct safetensors_tensor *tensor;
};

static enum status read_stored(const void *payload, int64_t first, int64_t count, float *out) {
    const struct stored_numbers *numbers = payload;
    return safetensors_convert(numbers->set, numbers->tensor, (size_t)first, (size_t)count, DTYPE_F32, out);
}

static enum status load_quantized(const struct model *model, const struct weight_target *target) {
    if (model->base_is_stored) return quantized_weight_read(target, model->weights);
    const struct tensor whole = quantized_weight_whole(target->tensor);
    const struct safetensors_tensor *source = safetensors_find(model->weights, whole.name);
    if (!source) return missing(model, whole.name);
    TRY(check_parameter(source, tensor_values(&whole)));
    const struct stored_numbers numbers = {model->weights, source};
    enum status status = quantized_weight_quantise(target, &(struct number_source){read_stored, &numbers});
    return status == STATUS_OK ? STATUS_OK : status_prefix(status, "%s: %s", source->file, whole.name);
}

/* ---- all formats ---- */

/* Adds the runs of the file's tensor that make up a target. */
static enum status add_load(const struct model *model, const struct weight_target *target,
                            struct safetensors_loads *loads) {
    const struct safetensors *set = source_of(model, target->tensor);
    if (!set) return initialise(model, target, model->adapter_seed);
    const struct safetensors_tensor *source = safetensors_find(set, target->tensor->name);
    if (!source) return missing(model, target->tensor->name);
    struct shape whole = tensor_whole_shape(target->tensor);
    TRY(check_parameter(source, &whole));
    BUG_IF(target->dtype != DTYPE_F32 && target->dtype != DTYPE_BF16, "%s: weights as %s", source->name,
           dtype_name(target->dtype));
    struct safetensors_load load = {.set = set,
                                    .tensor = source,
                                    .first = (size_t)target->first,
                                    .elements = (size_t)target->elements,
                                    .dtype = target->dtype,
                                    .out = target->data,
                                    .store = target->store,
                                    .key = target->stored_as};
    return safetensors_add_part(&load, target->tensor, loads);
}

enum status model_load_weights(const struct model *model, const struct weight_target *targets, int count) {
    BUG_IF(!model->weights, "loading the weights of a model made from scratch");
    AUTO_VEC struct safetensors_loads loads = {0};
    for (int i = 0; i < count; i++)
        if (!is_quantized(&targets[i])) TRY(add_load(model, &targets[i], &loads));
    TRY(safetensors_load(loads.items, loads.count));
    for (int i = 0; i < count; i++)
        if (is_quantized(&targets[i])) TRY(load_quantized(model, &targets[i]));
    return STATUS_OK;
}

/* `set` NULL: adds nothing. */
static enum status hash_set(const struct safetensors *set, int part, int parts, XXH3_state_t *state, void *buffer) {
    for (size_t i = 0; set && i < set->tensors.count; i++) {
        const struct safetensors_tensor *tensor = &set->tensors.items[i];
        uint64_t end = tensor->bytes * (uint64_t)(part + 1) / (uint64_t)parts, at;
        for (at = tensor->bytes * (uint64_t)part / (uint64_t)parts; at < end; at += BYTE_STORE_PIECE) {
            size_t bytes = (size_t)(end - at < BYTE_STORE_PIECE ? end - at : BYTE_STORE_PIECE);
            TRY(safetensors_read(set, tensor, at, bytes, buffer));
            XXH3_64bits_update(state, buffer, bytes);
        }
    }
    return STATUS_OK;
}

enum status model_hash_files(const struct model *model, int part, int parts, uint64_t *hash) {
    XXH3_state_t *state = XXH3_createState();
    AUTO_FREE void *buffer = mem_array(BYTE_STORE_PIECE, 1);
    enum status status = state && buffer ? STATUS_OK : status_no_memory(BYTE_STORE_PIECE, "a hash");
    if (status == STATUS_OK) XXH3_64bits_reset(state);
    if (status == STATUS_OK) status = hash_set(model->weights, part, parts, state, buffer);
    if (status == STATUS_OK) status = hash_set(model->adapter_weights, part, parts, state, buffer);
    if (status == STATUS_OK) *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return status;
}

enum status model_initialise_weights(const struct model *model, uint64_t seed, const struct weight_target *targets,
                                     int count) {
    for (int i = 0; i < count; i++)
        TRY(initialise(model, &targets[i], seed));
    return STATUS_OK;
}

static enum status read_initial(void *payload, const void *key, int64_t offset, int64_t bytes, void *to) {
    const struct initial_weights *weights = payload;
    const struct tensor *parameter = key;
    int64_t element = dtype_bytes(parameter->shape.dtype);
    struct initial initial = initial_of(weights->model, weights->seed, parameter);
    draw_values(&initial, parameter->shape.dtype, offset / element, bytes / element, to);
    return STATUS_OK;
}

struct byte_store model_initial_store(struct initial_weights *weights) {
    return (struct byte_store){.read = read_initial, .payload = weights};
}
