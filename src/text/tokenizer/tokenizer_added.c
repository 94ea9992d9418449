/* The "added_tokens" of a tokenizer.json. */
#include <string.h>

#include "base/json.h"
#include "text/tokenizer/tokenizer_parts.h"

static enum status token_parse(struct tokenizer *tokenizer, const char *where, const json_t *object,
                               struct added_token *out) {
    int64_t id = 0;
    const char *content = NULL;
    static const char *const fields[] = {"id",     "content",    "single_word", "lstrip",
                                         "rstrip", "normalized", "special",     NULL};
    if (!json_is_object(object)) return status_set(STATUS_BAD_INPUT, "%s: must be an object", where);
    TRY(json_only(where, object, fields));
    TRY(json_require(where, object, "id"));
    TRY(json_read_int(where, object, "id", 0, TOKENIZER_IDS_MAX - 1, &id));
    TRY(json_require_string(where, object, "content", &content));
    TRY(json_require_bool(where, object, "single_word", &out->single_word));
    TRY(json_require_bool(where, object, "lstrip", &out->left_strip));
    TRY(json_require_bool(where, object, "rstrip", &out->right_strip));
    TRY(json_require_bool(where, object, "normalized", &out->normalized));
    TRY(json_require_bool(where, object, "special", &out->special));
    out->id = (uint32_t)id;
    out->content = scratch_format(&tokenizer->memory, "%s", content);
    if (!out->content) return STATUS_FAILED;
    out->content_bytes = strlen(content);
    if (out->content_bytes == 0) return status_set(STATUS_BAD_INPUT, "%s: content: is empty", where);
    return STATUS_OK;
}

/* The `tokenizers` library does not use the ids that the file states: a token of the model keeps the model's id, and
 * the others are numbered from the size of the vocabulary. A file that states other ids is ambiguous. */
static enum status id_check(const struct tokenizer *tokenizer, const char *where, const struct added_token *token,
                            uint32_t *next_id) {
    uint32_t id, other;
    if (string_table_find(&tokenizer->added_ids, token->content, token->content_bytes, &other))
        return status_set(STATUS_BAD_INPUT, "%s: content: %.60s is there twice", where, token->content);
    if (!string_table_find(&tokenizer->model.vocabulary, token->content, token->content_bytes, &id)) id = (*next_id)++;
    if (id != token->id)
        return status_set(STATUS_BAD_INPUT, "%s: id: is %u, but by its vocabulary %.60s has %u", where, token->id,
                          token->content, id);
    bool known = id < tokenizer->tokens.count && tokenizer->tokens.items[id].text;
    if (known && strcmp(tokenizer->tokens.items[id].text, token->content) != 0)
        return status_set(STATUS_BAD_INPUT, "%s: id: %u is that of %.60s too", where, id,
                          tokenizer->tokens.items[id].text);
    return STATUS_OK;
}

static enum status pattern_take(void *payload, const char *text, size_t bytes, bool end) {
    (void)end;
    return text_append(payload, text, bytes);
}

static enum status ids_drop(void *payload, const uint32_t *ids, size_t count) {
    (void)payload, (void)ids, (void)count;
    return STATUS_OK;
}

/* The content, normalized where the token is looked for in normalized text. */
static enum status pattern_make(struct tokenizer *tokenizer, const char *where, struct added_token *token) {
    token->pattern = token->content;
    token->pattern_bytes = token->content_bytes;
    if (!token->normalized || tokenizer->normalizers.count == 0) return STATUS_OK;
    struct text_buffer text = {0};
    struct text_chain *chain = NULL;
    enum status status =
        text_chain_create(tokenizer->normalizers.items, tokenizer->normalizers.count,
                          (struct text_sink){pattern_take, &text}, (struct token_sink){ids_drop, NULL}, &chain);
    if (status == STATUS_OK) status = text_chain_write(chain, token->content, token->content_bytes, true);
    text_chain_free(chain);
    if (status == STATUS_OK && text.count == 0)
        status = status_set(STATUS_BAD_INPUT, "%s: content: nothing is left when it is normalized", where);
    if (status == STATUS_OK) {
        token->pattern = scratch_format(&tokenizer->memory, "%.*s", (int)text.count, text.items);
        token->pattern_bytes = text.count;
        if (!token->pattern) status = STATUS_FAILED;
    }
    vec_free(&text);
    return status;
}

static enum status set_add(struct tokenizer *tokenizer, const char *where, const struct added_token *token) {
    struct added_set *set = token->normalized ? &tokenizer->normalized_added : &tokenizer->raw_added;
    bool added = false;
    set->strips_left |= token->left_strip;
    TRY(token_trie_add(&set->trie, token->pattern, token->pattern_bytes, (uint32_t)tokenizer->added.count, &added));
    if (added) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: content: %.60s is another's when normalized", where, token->content);
}

/* Decoding gives the pattern, as the library does. */
static enum status token_place(struct tokenizer *tokenizer, const struct added_token *token) {
    size_t old = tokenizer->tokens.count, wanted = (size_t)token->id + 1;
    if (wanted > old) {
        TRY(vec_reserve(&tokenizer->tokens, wanted));
        memset(tokenizer->tokens.items + old, 0, (wanted - old) * sizeof *tokenizer->tokens.items);
        tokenizer->tokens.count = wanted;
    }
    tokenizer->tokens.items[token->id] =
        (struct tokenizer_token){.text = token->pattern, .bytes = (uint32_t)token->pattern_bytes};
    return string_table_add(&tokenizer->added_ids, token->content, (uint32_t)token->content_bytes, token->id);
}

/* A token is skipped when its text is that of a special token. */
static enum status specials_mark(struct tokenizer *tokenizer) {
    struct string_table specials = {0};
    uint32_t id;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < tokenizer->added.count; i++) {
        const struct added_token *token = &tokenizer->added.items[i];
        if (token->special)
            TRY_GOTO(status, string_table_add(&specials, token->content, (uint32_t)token->content_bytes, token->id),
                     done);
    }
    for (size_t i = 0; i < tokenizer->added.count; i++) {
        struct tokenizer_token *token = &tokenizer->tokens.items[tokenizer->added.items[i].id];
        token->special = string_table_find(&specials, token->text, token->bytes, &id);
    }
done:
    string_table_free(&specials);
    return status;
}

enum status tokenizer_read_added(struct tokenizer *tokenizer, const char *where, const json_t *list) {
    if (!list || json_is_null(list)) return STATUS_OK;
    if (!json_is_array(list)) return status_set(STATUS_BAD_INPUT, "%s: must be an array", where);
    uint32_t next_id = (uint32_t)tokenizer->model.vocabulary.count;
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct added_token token = {0};
        const char *place = scratch_format(&tokenizer->memory, "%s[%zu]", where, i);
        if (!place) return STATUS_FAILED;
        TRY(token_parse(tokenizer, place, json_array_get(list, i), &token));
        TRY(id_check(tokenizer, place, &token, &next_id));
        TRY(pattern_make(tokenizer, place, &token));
        TRY(set_add(tokenizer, place, &token));
        TRY(token_place(tokenizer, &token));
        TRY(vec_push(&tokenizer->added, token));
    }
    tokenizer->raw_added.tokens = tokenizer->normalized_added.tokens = tokenizer->added.items;
    return specials_mark(tokenizer);
}
