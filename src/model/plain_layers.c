#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/stored_format.h"

#include <pcre2.h>

/* Limit on PCRE2's steps to match a name. */
enum { MATCH_STEPS = 1 << 20 };

/* One entry of a list. */
struct pattern {
    char *text;
    pcre2_code *code; /* NULL: `text` is the whole name */
    bool ends;        /* a name that ends with `text` matches, too */
};
struct pattern_list {
    VEC(struct pattern) items;
};

struct plain_layers {
    struct pattern_list left;      /* names of plain layers */
    struct pattern_list quantised; /* layers without a match here are plain, too, if `has_targets` */
    bool has_targets;
    pcre2_general_context *memory;
    pcre2_match_context *limits;
};

static void *allocate(PCRE2_SIZE bytes, void *unused) {
    (void)unused;
    return mem_array(bytes, 1);
}
static void release(void *block, void *unused) { (void)unused, mem_free(block); }

static void list_free(struct pattern_list *list) {
    for (size_t i = 0; i < list->items.count; i++) {
        pcre2_code_free(list->items.items[i].code);
        mem_free(list->items.items[i].text);
    }
    vec_free(&list->items);
}

void plain_layers_free(struct plain_layers *layers) {
    if (!layers) return;
    list_free(&layers->left);
    list_free(&layers->quantised);
    pcre2_match_context_free(layers->limits);
    pcre2_general_context_free(layers->memory);
    mem_free(layers);
}

/* ---- reading ---- */

/* Position of an entry, for messages. */
struct place {
    const char *file, *list;
};

/* `entry`: source of the expression, for messages. */
static enum status compile(const struct plain_layers *layers, const struct place *place, const char *entry,
                           const char *expression, pcre2_code **out) {
    char message[128] = "";
    int error = 0;
    PCRE2_SIZE at;
    pcre2_compile_context *context = pcre2_compile_context_create(layers->memory);
    if (!context) return STATUS_FAILED;
    *out = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error, &at, context);
    pcre2_compile_context_free(context);
    if (*out) return STATUS_OK;
    if (error == PCRE2_ERROR_HEAP_FAILED) return STATUS_FAILED;
    pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof message);
    return status_set(STATUS_BAD_INPUT, "%s: quantization_config: %s: %.100s: not a regular expression: %s",
                      place->file, place->list, entry, message);
}

/* compressed-tensors' match_name; Linear is the only class here. */
static enum status fill_compressed(const struct plain_layers *layers, const struct place *place, const char *text,
                                   struct pattern *out) {
    static const char mark[] = "re:";
    if (strcmp(text, "Linear") == 0) return compile(layers, place, text, "", &out->code);
    if (strncmp(text, mark, strlen(mark)) == 0) return compile(layers, place, text, text + strlen(mark), &out->code);
    return STATUS_OK;
}

/* transformers' should_convert_module: the expression ends at the end of a module's name. */
static enum status fill_skipped(const struct plain_layers *layers, const struct place *place, const char *text,
                                struct pattern *out) {
    AUTO_FREE char *expression = mem_format("(?:%s)(?:(?<=\\.)|(?=\\.|$))", text);
    out->ends = true;
    if (!expression) return STATUS_FAILED;
    return compile(layers, place, text, expression, &out->code);
}

typedef enum status fill_pattern(const struct plain_layers *layers, const struct place *place, const char *text,
                                 struct pattern *out);

static enum status add_pattern(const struct plain_layers *layers, const struct place *place, const json_t *entry,
                               fill_pattern *fill, struct pattern_list *out) {
    const char *text = json_string_value(entry);
    struct pattern pattern = {.text = text ? mem_string(text) : NULL};
    if (!text)
        return status_set(STATUS_BAD_INPUT, "%s: quantization_config: %s: must be a list of texts", place->file,
                          place->list);
    enum status status = pattern.text ? fill(layers, place, text, &pattern) : STATUS_FAILED;
    if (status == STATUS_OK) status = vec_push(&out->items, pattern);
    if (status == STATUS_OK) return STATUS_OK;
    pcre2_code_free(pattern.code);
    mem_free(pattern.text);
    return status;
}

/* Adds a list of `from`, if there is one. */
static enum status add_list(const struct plain_layers *layers, const struct place *place, const json_t *from,
                            fill_pattern *fill, struct pattern_list *out) {
    const json_t *list = json_object_get(from, place->list);
    if (!list || json_is_null(list)) return STATUS_OK;
    if (!json_is_array(list))
        return status_set(STATUS_BAD_INPUT, "%s: quantization_config: %s: must be a list of texts", place->file,
                          place->list);
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(add_pattern(layers, place, json_array_get(list, i), fill, out));
    return STATUS_OK;
}

static enum status read_lists(const char *file, const json_t *object, struct plain_layers *out) {
    const struct place ignore = {file, "ignore"}, targets = {file, "targets"}, skip = {file, "llm_int8_skip_modules"};
    const json_t *groups = json_object_get(object, "config_groups");
    const char *name;
    json_t *group;
    out->memory = pcre2_general_context_create(allocate, release, NULL);
    out->limits = out->memory ? pcre2_match_context_create(out->memory) : NULL;
    if (!out->limits) return STATUS_FAILED;
    pcre2_set_match_limit(out->limits, MATCH_STEPS);
    if (!groups) return add_list(out, &skip, object, fill_skipped, &out->left);
    out->has_targets = true;
    json_object_foreach((json_t *)(uintptr_t)groups, name, group) {
        if (!json_object_get(group, "targets")) out->has_targets = false;
        TRY(add_list(out, &targets, group, fill_compressed, &out->quantised));
    }
    return add_list(out, &ignore, object, fill_compressed, &out->left);
}

enum status plain_layers_read(const char *file, const json_t *object, struct plain_layers **out) {
    struct plain_layers *layers = mem_array(1, sizeof *layers);
    if (!layers) return STATUS_FAILED;
    enum status status = read_lists(file, object, layers);
    if (status == STATUS_OK)
        *out = layers;
    else
        plain_layers_free(layers);
    return status;
}

/* ---- matching ---- */

/* A match that takes too long counts as none: the weight is then reported as missing or of another kind. */
static bool matches(const struct plain_layers *layers, const struct pattern *pattern, const char *name, size_t length) {
    size_t own = strlen(pattern->text);
    if (pattern->ends && length >= own && memcmp(name + length - own, pattern->text, own) == 0) return true;
    if (!pattern->code) return length == own && memcmp(name, pattern->text, own) == 0;
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    if (!data) return false;
    int found = pcre2_match(pattern->code, (PCRE2_SPTR)name, length, 0, PCRE2_ANCHORED, data, layers->limits);
    pcre2_match_data_free(data);
    return found >= 0;
}

static bool has(const struct plain_layers *layers, const struct pattern_list *list, const char *name, size_t length) {
    for (size_t i = 0; i < list->items.count; i++)
        if (matches(layers, &list->items.items[i], name, length)) return true;
    return false;
}

bool plain_layers_have(const struct plain_layers *layers, const char *weight) {
    static const char end[] = ".weight";
    size_t length = strlen(weight);
    if (!layers || length < strlen(end) || strcmp(weight + length - strlen(end), end) != 0) return false;
    length -= strlen(end);
    if (layers->has_targets && !has(layers, &layers->quantised, weight, length)) return true;
    return has(layers, &layers->left, weight, length);
}
