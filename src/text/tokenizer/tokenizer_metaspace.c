/* Metaspace, which writes spaces as a character of their own (U+2581), as a pre-tokenizer and as a decoder. */
#include <string.h>

#include "base/json.h"
#include "text/tokenizer/tokenizer_parts.h"

enum scheme { SCHEME_ALWAYS, SCHEME_FIRST, SCHEME_NEVER };

struct metaspace {
    char *text; /* the character that stands for a space */
    enum scheme scheme;
    bool split;
};

static enum status scheme_read(const char *where, const json_t *object, enum scheme *out) {
    static const char *const names[] = {"always", "first", "never"};
    const char *name = names[SCHEME_ALWAYS];
    bool prefix_space = true;
    TRY(json_read_string(where, object, "prepend_scheme", &name));
    TRY(json_read_bool(where, object, "add_prefix_space", &prefix_space)); /* of older files */
    size_t i = 0;
    while (i < 3 && strcmp(names[i], name) != 0)
        i++;
    if (i == 3) return status_set(STATUS_BAD_INPUT, "%s: prepend_scheme: %.60s is not supported", where, name);
    *out = (enum scheme)i;
    if (prefix_space || *out == SCHEME_NEVER) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: add_prefix_space: is false, but prepend_scheme is not never", where);
}

static enum status metaspace_read(struct tokenizer *tokenizer, const char *where, const json_t *object,
                                  struct metaspace *out) {
    static const char *const settings[] = {"type",    "replacement", "add_prefix_space", "prepend_scheme", "split",
                                           "str_rep", NULL};
    uint32_t code;
    char text[4];
    TRY(json_only(where, object, settings));
    TRY(json_require_character(where, object, "replacement", &code));
    TRY(scheme_read(where, object, &out->scheme));
    out->split = true;
    TRY(json_read_bool(where, object, "split", &out->split));
    out->text = scratch_format(&tokenizer->memory, "%.*s", (int)utf8_encode(code, text), text);
    return out->text ? STATUS_OK : STATUS_FAILED;
}

static enum status replace_make(struct tokenizer *tokenizer, const char *string, const char *content,
                                bool drop_in_first, struct text_step_spec *out) {
    struct text_replace *replace = scratch_alloc(&tokenizer->memory, 1, sizeof *replace);
    if (!replace) return STATUS_FAILED;
    *replace = (struct text_replace){.string = string,
                                     .string_bytes = strlen(string),
                                     .content = content,
                                     .content_bytes = strlen(content),
                                     .drop_in_first = drop_in_first};
    *out = (struct text_step_spec){&text_replace_step, replace};
    return STATUS_OK;
}

static enum status prefix_add(struct tokenizer *tokenizer, const struct metaspace *metaspace) {
    struct text_prefix *prefix = scratch_alloc(&tokenizer->memory, 1, sizeof *prefix);
    if (!prefix) return STATUS_FAILED;
    *prefix = (struct text_prefix){.text = metaspace->text,
                                   .bytes = strlen(metaspace->text),
                                   .place = metaspace->scheme == SCHEME_FIRST ? PREFIX_FIRST : PREFIX_EACH,
                                   .unless_there = true};
    return vec_push(&tokenizer->pre_tokenizers, (struct text_step_spec){&text_prefix_step, prefix});
}

static enum status split_add(struct tokenizer *tokenizer, const char *where, const struct metaspace *metaspace) {
    struct text_split *split = scratch_alloc(&tokenizer->memory, 1, sizeof *split);
    if (!split) return STATUS_FAILED;
    split->behavior = SPLIT_MERGED_WITH_NEXT;
    TRY(tokenizer_add_pattern(tokenizer, where, metaspace->text, true, &split->pattern));
    return vec_push(&tokenizer->pre_tokenizers, (struct text_step_spec){&text_split_step, split});
}

enum status tokenizer_read_metaspace(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    struct metaspace metaspace = {0};
    struct text_step_spec replace;
    if (tokenizer->byte_level)
        return status_set(STATUS_BAD_INPUT, "%s: a pre-tokenizer after ByteLevel is not supported", where);
    TRY(metaspace_read(tokenizer, where, object, &metaspace));
    tokenizer->first_matters |= metaspace.scheme == SCHEME_FIRST;
    tokenizer->first_of_split |= metaspace.scheme == SCHEME_FIRST && tokenizer->pre_tokenizers.count > 0;
    TRY(replace_make(tokenizer, " ", metaspace.text, false, &replace));
    TRY(vec_push(&tokenizer->pre_tokenizers, replace));
    if (metaspace.scheme != SCHEME_NEVER) TRY(prefix_add(tokenizer, &metaspace));
    return metaspace.split ? split_add(tokenizer, where, &metaspace) : STATUS_OK;
}

enum status tokenizer_read_metaspace_decoder(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    struct metaspace metaspace = {0};
    struct text_step_spec replace;
    TRY(metaspace_read(tokenizer, where, object, &metaspace));
    TRY(replace_make(tokenizer, metaspace.text, " ", metaspace.scheme != SCHEME_NEVER, &replace));
    return vec_push(&tokenizer->decoders, replace);
}
