/* Patterns of components, and Replace, which normalizers and decoders have in common. */
#include <string.h>

#include "base/json.h"
#include "tokenizer/tokenizer_parts.h"

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
                                   struct text_stage_spec *out) {
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
    *out = (struct text_stage_spec){&text_replace_stage, made};
    return STATUS_OK;
}
