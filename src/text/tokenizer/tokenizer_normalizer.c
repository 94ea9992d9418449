/* Normalizers. */
#include <string.h>

#include "base/json.h"
#include "text/tokenizer/tokenizer_parts.h"

static enum status normalizer_add(struct tokenizer *tokenizer, const char *where, const json_t *object,
                                  struct text_step_spec spec) {
    TRY(json_only(where, object, (const char *const[]){"type", NULL}));
    return vec_push(&tokenizer->normalizers, spec);
}

enum status tokenizer_read_nfc(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return normalizer_add(tokenizer, where, object, (struct text_step_spec){&text_normalize_step, &text_nfc});
}

enum status tokenizer_read_nfd(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return normalizer_add(tokenizer, where, object, (struct text_step_spec){&text_normalize_step, &text_nfd});
}

enum status tokenizer_read_nfkc(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return normalizer_add(tokenizer, where, object, (struct text_step_spec){&text_normalize_step, &text_nfkc});
}

enum status tokenizer_read_nfkd(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return normalizer_add(tokenizer, where, object, (struct text_step_spec){&text_normalize_step, &text_nfkd});
}

enum status tokenizer_read_lowercase(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return normalizer_add(tokenizer, where, object, (struct text_step_spec){&text_map_step, &text_lowercase});
}

enum status tokenizer_read_strip_accents(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    tokenizer->beginning_moves = true;
    return normalizer_add(tokenizer, where, object, (struct text_step_spec){&text_map_step, &text_strip_accents});
}

enum status tokenizer_read_prepend(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    const char *text = NULL;
    TRY(json_only(where, object, (const char *const[]){"type", "prepend", NULL}));
    TRY(json_require_string(where, object, "prepend", &text));
    struct text_prefix *prefix = scratch_alloc(&tokenizer->memory, 1, sizeof *prefix);
    char *kept = scratch_format(&tokenizer->memory, "%s", text);
    if (!prefix || !kept) return STATUS_FAILED;
    *prefix = (struct text_prefix){.text = kept, .bytes = strlen(kept), .place = PREFIX_EACH};
    return vec_push(&tokenizer->normalizers, (struct text_step_spec){&text_prefix_step, prefix});
}

enum status tokenizer_read_replace_normalizer(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    struct text_step_spec spec;
    tokenizer->beginning_moves = true;
    TRY(tokenizer_read_replace(tokenizer, where, object, &spec));
    return vec_push(&tokenizer->normalizers, spec);
}

enum status tokenizer_read_strip_normalizer(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    bool left = false, right = false;
    TRY(json_only(where, object, (const char *const[]){"type", "strip_left", "strip_right", NULL}));
    TRY(json_require_bool(where, object, "strip_left", &left));
    TRY(json_require_bool(where, object, "strip_right", &right));
    struct text_strip *strip = scratch_alloc(&tokenizer->memory, 1, sizeof *strip);
    if (!strip) return STATUS_FAILED;
    *strip = (struct text_strip){STRIP_SPACE, left ? SIZE_MAX : 0, right ? SIZE_MAX : 0};
    tokenizer->beginning_moves |= left;
    return vec_push(&tokenizer->normalizers, (struct text_step_spec){&text_strip_step, strip});
}
