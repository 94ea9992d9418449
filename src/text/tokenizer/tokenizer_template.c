/* TemplateProcessing: the special tokens before and after a text. */
#include <string.h>

#include "base/json.h"
#include "text/tokenizer/tokenizer_parts.h"

/* Appends the ids of one special token of the template. */
static enum status special_append(const struct tokenizer *tokenizer, const char *where, const json_t *specials,
                                  const char *name, struct token_ids *out) {
    const json_t *special = json_object_get(specials, name), *ids;
    if (!json_is_object(special)) return status_set(STATUS_BAD_INPUT, "%s: special_tokens: has no %.60s", where, name);
    TRY(json_require_array(where, special, "ids", &ids));
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *value = json_array_get(ids, i);
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || (size_t)id >= tokenizer->tokens.count || !tokenizer->tokens.items[id].text)
            return status_set(STATUS_BAD_INPUT, "%s: special_tokens: %.60s: an id that no token has", where, name);
        TRY(vec_push(out, (uint32_t)id));
    }
    return STATUS_OK;
}

struct template_reader {
    const struct tokenizer *tokenizer;
    const char *where;
    const json_t *specials;
    struct token_ids before, after;
    size_t sequences;
};

static enum status piece_read(struct template_reader *reader, const json_t *piece) {
    const json_t *sequence = json_object_get(piece, "Sequence"), *special = json_object_get(piece, "SpecialToken");
    const char *where = reader->where, *id = NULL;
    if (json_object_size(piece) != 1 || !json_is_object(sequence ? sequence : special))
        return status_set(STATUS_BAD_INPUT, "%s: single: must hold Sequence and SpecialToken objects", where);
    TRY(json_only(where, sequence ? sequence : special, (const char *const[]){"id", "type_id", NULL}));
    TRY(json_require_string(where, sequence ? sequence : special, "id", &id));
    if (special)
        return special_append(reader->tokenizer, where, reader->specials, id,
                              reader->sequences ? &reader->after : &reader->before);
    reader->sequences++;
    return strcmp(id, "A") == 0 ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: single: Sequence %.60s", where, id);
}

/* A later template goes around an earlier one. */
static enum status template_add(struct tokenizer *tokenizer, const struct template_reader *reader) {
    struct token_ids *before = &tokenizer->before, *after = &tokenizer->after;
    size_t added = reader->before.count;
    TRY(vec_reserve(before, before->count + added));
    TRY(vec_reserve(after, after->count + reader->after.count));
    if (before->count > 0) memmove(before->items + added, before->items, before->count * sizeof *before->items);
    if (added > 0) memcpy(before->items, reader->before.items, added * sizeof *before->items);
    before->count += added;
    for (size_t i = 0; i < reader->after.count; i++)
        after->items[after->count++] = reader->after.items[i];
    return STATUS_OK;
}

enum status tokenizer_read_template(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    struct template_reader reader = {.tokenizer = tokenizer, .where = where};
    const json_t *single, *pair;
    TRY(json_only(where, object, (const char *const[]){"type", "single", "pair", "special_tokens", NULL}));
    TRY(json_require_array(where, object, "single", &single));
    TRY(json_require_array(where, object, "pair", &pair)); /* Ballast has no pairs of texts */
    TRY(json_require_object(where, object, "special_tokens", &reader.specials));
    enum status status;
    for (size_t i = 0; i < json_array_size(single); i++)
        TRY_GOTO(status, piece_read(&reader, json_array_get(single, i)), done);
    if (reader.sequences != 1)
        TRY_GOTO(status, status_set(STATUS_BAD_INPUT, "%s: single: must hold the sequence A once", where), done);
    TRY_GOTO(status, template_add(tokenizer, &reader), done);
done:
    vec_free(&reader.before);
    vec_free(&reader.after);
    return status;
}
