/* Decoders, as steps whose segments are tokens. */
#include "base/json.h"
#include "text/tokenizer/tokenizer_parts.h"

static enum status decoder_add(struct tokenizer *tokenizer, const char *where, const json_t *object,
                               const struct text_step_type *type) {
    TRY(json_only(where, object, (const char *const[]){"type", NULL}));
    return vec_push(&tokenizer->decoders, (struct text_step_spec){type, NULL});
}

enum status tokenizer_read_byte_fallback(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return decoder_add(tokenizer, where, object, &text_byte_fallback_step);
}

enum status tokenizer_read_fuse(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return decoder_add(tokenizer, where, object, &text_fuse_step);
}

enum status tokenizer_read_byte_level_decoder(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    bool unused = false;
    static const char *const settings[] = {"type", "add_prefix_space", "trim_offsets", "use_regex", NULL};
    TRY(json_only(where, object, settings));
    for (size_t i = 1; settings[i]; i++)
        TRY(json_read_bool(where, object, settings[i], &unused));
    TRY(vec_push(&tokenizer->decoders, (struct text_step_spec){&text_byte_level_step, NULL}));
    return vec_push(&tokenizer->decoders, (struct text_step_spec){&text_fix_step, NULL});
}

enum status tokenizer_read_replace_decoder(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    struct text_step_spec spec;
    TRY(tokenizer_read_replace(tokenizer, where, object, &spec));
    return vec_push(&tokenizer->decoders, spec);
}

enum status tokenizer_read_strip_decoder(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    enum { MAX = 1 << 20 };
    int64_t start = 0, stop = 0;
    struct text_strip *strip = scratch_alloc(&tokenizer->memory, 1, sizeof *strip);
    if (!strip) return STATUS_FAILED;
    TRY(json_only(where, object, (const char *const[]){"type", "content", "start", "stop", NULL}));
    TRY(json_require_character(where, object, "content", &strip->code));
    TRY(json_require(where, object, "start"));
    TRY(json_require(where, object, "stop"));
    TRY(json_read_int(where, object, "start", 0, MAX, &start));
    TRY(json_read_int(where, object, "stop", 0, MAX, &stop));
    strip->start = (size_t)start;
    strip->stop = (size_t)stop;
    return vec_push(&tokenizer->decoders, (struct text_step_spec){&text_strip_step, strip});
}
