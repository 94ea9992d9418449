/* What readers of components share: strict fields, components by their type, patterns, Replace. */
#include <string.h>

#include "base/json.h"
#include "text/tokenizer/tokenizer_parts.h"

enum status json_only(const char *where, const json_t *object, const char *const *fields) {
    for (void *item = json_object_iter((json_t *)object); item; item = json_object_iter_next((json_t *)object, item)) {
        const char *key = json_object_iter_key(item);
        size_t i = 0;
        while (fields[i] && strcmp(fields[i], key) != 0)
            i++;
        if (!fields[i]) return status_set(STATUS_BAD_INPUT, "%s: %.60s: not a setting that is supported", where, key);
    }
    return STATUS_OK;
}

static enum status require(const char *where, const json_t *object, const char *field, bool is_type, const char *type) {
    TRY(json_require(where, object, field));
    return is_type ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: %s: must be %s", where, field, type);
}

enum status json_require_array(const char *where, const json_t *object, const char *field, const json_t **out) {
    *out = json_object_get(object, field);
    return require(where, object, field, json_is_array(*out), "an array");
}

enum status json_require_object(const char *where, const json_t *object, const char *field, const json_t **out) {
    *out = json_object_get(object, field);
    return require(where, object, field, json_is_object(*out), "an object");
}

enum status json_require_string(const char *where, const json_t *object, const char *field, const char **out) {
    TRY(json_require(where, object, field));
    return json_read_string(where, object, field, out);
}

enum status json_require_bool(const char *where, const json_t *object, const char *field, bool *out) {
    TRY(json_require(where, object, field));
    return json_read_bool(where, object, field, out);
}

enum status json_require_character(const char *where, const json_t *object, const char *field, uint32_t *code) {
    const char *text = NULL;
    size_t length = 0;
    TRY(json_require_string(where, object, field, &text));
    if (text[0]) *code = utf8_decode_valid(text, &length);
    if (length > 0 && text[length] == '\0') return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s: must be one character", where, field);
}

/* "A, B, C" of a table. */
static enum status types_write(const struct tokenizer_component *table, struct text_buffer *out) {
    for (size_t i = 0; table[i].type; i++) {
        if (i > 0) TRY(text_append(out, ", ", 2));
        TRY(text_append(out, table[i].type, strlen(table[i].type)));
    }
    return text_append(out, "", 1);
}

static enum status component_refuse(const struct tokenizer_component *table, const char *where, const char *type) {
    struct text_buffer known = {0};
    enum status status = types_write(table, &known);
    if (status == STATUS_OK) {
        (void)status_set(STATUS_BAD_INPUT, "%s: %.60s is not supported", where, type);
        status = status_hint(STATUS_BAD_INPUT, "supported: %s", known.items);
    }
    vec_free(&known);
    return status;
}

enum status component_read(struct tokenizer *tokenizer, const struct tokenizer_component *table, const char *where,
                           const json_t *value) {
    if (!value || json_is_null(value)) return STATUS_OK;
    if (!json_is_object(value)) return status_set(STATUS_BAD_INPUT, "%s: must be an object or null", where);
    const char *type = NULL;
    TRY(json_require_string(where, value, "type", &type));
    for (size_t i = 0; table[i].type; i++)
        if (strcmp(table[i].type, type) == 0) return table[i].read(tokenizer, where, value);
    return component_refuse(table, where, type);
}

enum status component_read_sequence(struct tokenizer *tokenizer, const struct tokenizer_component *table,
                                    const char *where, const json_t *object, const char *field) {
    const json_t *list;
    TRY(json_only(where, object, (const char *const[]){"type", field, NULL}));
    TRY(json_require_array(where, object, field, &list));
    if (++tokenizer->depth > TOKENIZER_DEEPEST_SEQUENCE)
        return status_set(STATUS_BAD_INPUT, "%s: too many Sequences within Sequences", where);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *place = scratch_format(&tokenizer->memory, "%s.%s[%zu]", where, field, i);
        if (!place) return STATUS_FAILED;
        if (json_is_null(item)) return status_set(STATUS_BAD_INPUT, "%s: is null", place);
        TRY(component_read(tokenizer, table, place, item));
    }
    tokenizer->depth--;
    return STATUS_OK;
}

enum status tokenizer_read_pattern(struct tokenizer *tokenizer, const char *where, const json_t *object,
                                   const char **text, bool *literal) {
    const json_t *pattern;
    TRY(json_require_object(where, object, "pattern", &pattern));
    const char *place = scratch_format(&tokenizer->memory, "%s.pattern", where);
    if (!place) return STATUS_FAILED;
    *literal = json_object_get(pattern, "String") != NULL;
    const char *kind = *literal ? "String" : "Regex";
    TRY(json_only(place, pattern, (const char *const[]){kind, NULL}));
    TRY(json_require_string(place, pattern, kind, text));
    return **text ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: the pattern is empty", place);
}

enum status tokenizer_add_pattern(struct tokenizer *tokenizer, const char *where, const char *pattern, bool literal,
                                  const struct split_pattern **out) {
    const char *place = scratch_format(&tokenizer->memory, "%s.pattern", where);
    if (!place) return STATUS_FAILED;
    TRY(vec_reserve(&tokenizer->patterns, tokenizer->patterns.count + 1));
    struct split_pattern *compiled;
    TRY(split_pattern_compile(place, pattern, strlen(pattern), literal, &compiled));
    tokenizer->patterns.items[tokenizer->patterns.count++] = compiled;
    *out = compiled;
    return STATUS_OK;
}

enum status tokenizer_read_replace(struct tokenizer *tokenizer, const char *where, const json_t *object,
                                   struct text_step_spec *out) {
    const char *text = NULL, *content = NULL;
    bool literal = false;
    TRY(json_only(where, object, (const char *const[]){"type", "pattern", "content", NULL}));
    TRY(tokenizer_read_pattern(tokenizer, where, object, &text, &literal));
    TRY(json_require_string(where, object, "content", &content));
    struct text_replace *made = scratch_alloc(&tokenizer->memory, 1, sizeof *made);
    if (!made) return STATUS_FAILED;
    made->content = scratch_format(&tokenizer->memory, "%s", content);
    if (!made->content) return STATUS_FAILED;
    made->content_bytes = strlen(content);
    if (literal) {
        made->string = scratch_format(&tokenizer->memory, "%s", text);
        if (!made->string) return STATUS_FAILED;
        made->string_bytes = strlen(text);
    } else {
        TRY(tokenizer_add_pattern(tokenizer, where, text, false, &made->pattern));
    }
    *out = (struct text_step_spec){&text_replace_step, made};
    return STATUS_OK;
}
