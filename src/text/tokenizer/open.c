/* Reads a tokenizer.json: the model, the added tokens, and the chains of steps that text and tokens go through. */

#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer/parts.h"

/* --- "model": BPE's settings, vocabulary and merges --- */

/* Settings that would change ids and are not supported. */
static enum status settings_check(const char *where, const json_t *model) {
    const char *type = "BPE", *prefix = "", *suffix = "";
    double dropout = 0;
    TRY(json_read_string(where, model, "type", &type));
    if (strcmp(type, "BPE") != 0)
        return status_set(STATUS_BAD_INPUT, "%s: %.60s is not supported (supported: BPE)", where, type);
    TRY(json_only(where, model,
                  "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback "
                  "ignore_merges vocab merges"));
    TRY(json_read_double(where, model, "dropout", 0, 1, &dropout));
    TRY(json_read_string(where, model, "continuing_subword_prefix", &prefix));
    TRY(json_read_string(where, model, "end_of_word_suffix", &suffix));
    const char *refused = dropout > 0 ? "dropout"
                          : prefix[0] ? "continuing_subword_prefix"
                          : suffix[0] ? "end_of_word_suffix"
                                      : NULL;
    return refused ? status_set(STATUS_BAD_INPUT, "%s: %s: is set, which is not supported", where, refused) : STATUS_OK;
}

/* Makes space for a token; *out is its place, with text NULL where no token has this id yet. */
static enum status token_reserve(struct tokenizer *tokenizer, size_t id, struct tokenizer_token **out) {
    size_t old = tokenizer->tokens.count;
    if (id >= old) {
        TRY(vec_reserve(&tokenizer->tokens, id + 1));
        memset(tokenizer->tokens.items + old, 0, (id + 1 - old) * sizeof *tokenizer->tokens.items);
        tokenizer->tokens.count = id + 1;
    }
    *out = &tokenizer->tokens.items[id];
    return STATUS_OK;
}

static enum status vocabulary_read(struct tokenizer *tokenizer, const char *where, const json_t *model) {
    const json_t *vocabulary;
    const char *key;
    json_t *value;
    TRY(json_require_object(where, model, "vocab", &vocabulary));
    if (json_object_size(vocabulary) == 0) return status_set(STATUS_BAD_INPUT, "%s: vocab: is empty", where);
    TRY(string_table_reserve(&tokenizer->model.vocabulary, json_object_size(vocabulary)));
    json_object_foreach((json_t *)(uintptr_t)vocabulary, key, value) {
        struct tokenizer_token *token;
        size_t bytes = strlen(key);
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= TOKENIZER_IDS_MAX)
            return status_set(STATUS_BAD_INPUT, "%s: vocab: %.60s: must be a whole number from 0 to %d", where, key,
                              TOKENIZER_IDS_MAX - 1);
        TRY(token_reserve(tokenizer, (size_t)id, &token));
        if (token->text)
            return status_set(STATUS_BAD_INPUT, "%s: vocab: %.60s and %.60s have one id, %lld", where, token->text, key,
                              (long long)id);
        char *text = scratch_alloc(&tokenizer->memory, bytes + 1, 1);
        if (!text) return STATUS_FAILED;
        memcpy(text, key, bytes);
        *token = (struct tokenizer_token){.text = text, .bytes = (uint32_t)bytes};
        TRY(bpe_model_add_token(&tokenizer->model, text, (uint32_t)bytes, (uint32_t)id));
    }
    return STATUS_OK;
}

/* "a b", or ["a", "b"]. */
static bool merge_parts(const json_t *merge, const char *part[2], size_t bytes[2]) {
    if (json_is_string(merge)) {
        const char *text = json_string_value(merge), *space = strchr(text, ' ');
        if (!space || strchr(space + 1, ' ')) return false;
        part[0] = text, bytes[0] = (size_t)(space - text);
        part[1] = space + 1, bytes[1] = strlen(space + 1);
        return true;
    }
    if (!json_is_array(merge) || json_array_size(merge) != 2) return false;
    for (size_t i = 0; i < 2; i++) {
        part[i] = json_string_value(json_array_get(merge, i));
        if (!part[i]) return false;
        bytes[i] = strlen(part[i]);
    }
    return true;
}

static enum status merge_read(struct bpe_model *model, const char *where, size_t index, const json_t *merge,
                              struct text_buffer *whole) {
    const char *part[2];
    size_t bytes[2];
    uint32_t ids[3];
    if (!merge_parts(merge, part, bytes))
        return status_set(STATUS_BAD_INPUT, "%s: merges[%zu]: must be \"a b\" or [\"a\", \"b\"]", where, index);
    whole->count = 0;
    TRY(text_append(whole, part[0], bytes[0]));
    TRY(text_append(whole, part[1], bytes[1]));
    const char *texts[3] = {part[0], part[1], whole->items};
    const size_t lengths[3] = {bytes[0], bytes[1], whole->count};
    for (size_t i = 0; i < 3; i++)
        if (!string_table_find(&model->vocabulary, texts[i], lengths[i], &ids[i]))
            return status_set(STATUS_BAD_INPUT, "%s: merges[%zu]: the vocabulary has no token \"%.*s\"", where, index,
                              lengths[i] < 60 ? (int)lengths[i] : 60, lengths[i] ? texts[i] : "");
    TRY(bpe_alphabet_note_merge(&model->alphabet, part[0], bytes[0], part[1], bytes[1]));
    return bpe_model_add_merge(model, ids[0], ids[1], ids[2]);
}

static enum status merges_read(struct tokenizer *tokenizer, const char *where, const json_t *model) {
    const json_t *merges;
    AUTO_VEC struct text_buffer whole = {0};
    TRY(json_require_array(where, model, "merges", &merges));
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < json_array_size(merges); i++)
        status = merge_read(&tokenizer->model, where, i, json_array_get(merges, i), &whole);
    return status;
}

static enum status alphabet_read(struct tokenizer *tokenizer, const char *where, const json_t *model) {
    struct bpe_alphabet *alphabet = &tokenizer->model.alphabet;
    const char *unknown = NULL;
    uint32_t id;
    alphabet->bytes = tokenizer->byte_level;
    alphabet->unknown_id = BPE_NO_ID;
    TRY(json_read_bool(where, model, "byte_fallback", &alphabet->byte_fallback));
    TRY(json_read_bool(where, model, "fuse_unk", &alphabet->fuse_unknown));
    TRY(json_read_string(where, model, "unk_token", &unknown));
    TRY(bpe_alphabet_read(alphabet, &tokenizer->model.vocabulary));
    /* Used only by a vocabulary that lacks characters. */
    if (alphabet->all_known || !unknown) return STATUS_OK;
    if (!string_table_find(&tokenizer->model.vocabulary, unknown, strlen(unknown), &id))
        return status_set(STATUS_BAD_INPUT, "%s: unk_token: %.60s is not in the vocabulary", where, unknown);
    alphabet->unknown_id = id;
    return STATUS_OK;
}

static enum status model_read(struct tokenizer *tokenizer, const char *where, const json_t *model) {
    TRY(settings_check(where, model));
    TRY(json_read_bool(where, model, "ignore_merges", &tokenizer->model.ignore_merges));
    TRY(vocabulary_read(tokenizer, where, model));
    TRY(alphabet_read(tokenizer, where, model));
    return merges_read(tokenizer, where, model);
}

/* --- "added_tokens" --- */

static enum status token_parse(struct tokenizer *tokenizer, const char *where, const json_t *object,
                               struct added_token *out) {
    int64_t id = 0;
    const char *content = NULL;
    if (!json_is_object(object)) return status_set(STATUS_BAD_INPUT, "%s: must be an object", where);
    TRY(json_only(where, object, "id content single_word lstrip rstrip normalized special"));
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
    AUTO_VEC struct text_buffer text = {0};
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
    struct tokenizer_token *place;
    TRY(token_reserve(tokenizer, token->id, &place));
    *place = (struct tokenizer_token){.text = token->pattern, .bytes = (uint32_t)token->pattern_bytes};
    return string_table_add(&tokenizer->added_ids, token->content, (uint32_t)token->content_bytes, token->id);
}

/* A token is skipped when its text is that of a special token. */
static enum status specials_mark(struct tokenizer *tokenizer) {
    AUTO(string_table_free) struct string_table specials = {0};
    uint32_t id;
    for (size_t i = 0; i < tokenizer->added.count; i++) {
        const struct added_token *token = &tokenizer->added.items[i];
        if (token->special) TRY(string_table_add(&specials, token->content, (uint32_t)token->content_bytes, token->id));
    }
    for (size_t i = 0; i < tokenizer->added.count; i++) {
        struct tokenizer_token *token = &tokenizer->tokens.items[tokenizer->added.items[i].id];
        token->special = string_table_find(&specials, token->text, token->bytes, &id);
    }
    return STATUS_OK;
}

static enum status added_read(struct tokenizer *tokenizer, const char *where, const json_t *list) {
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

/* --- the file --- */

static enum status unused_check(const char *name, const json_t *file) {
    const char *version = "1.0";
    TRY(json_only(name, file,
                  "version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder model"));
    TRY(json_read_string(name, file, "version", &version));
    if (strcmp(version, "1.0") != 0)
        return status_set(STATUS_BAD_INPUT, "%s: version: %.60s is not supported (supported: 1.0)", name, version);
    return STATUS_OK; /* texts are taken whole: transformers clears truncation and padding too */
}

static enum status steps_join(struct tokenizer *tokenizer) {
    TRY(vec_push(&tokenizer->steps, (struct text_step_spec){&text_fix_step, NULL}));
    if (tokenizer->raw_added.trie.count > 0)
        TRY(vec_push(&tokenizer->steps, (struct text_step_spec){&text_added_step, &tokenizer->raw_added}));
    for (size_t i = 0; i < tokenizer->normalizers.count; i++)
        TRY(vec_push(&tokenizer->steps, tokenizer->normalizers.items[i]));
    if (tokenizer->normalized_added.trie.count > 0)
        TRY(vec_push(&tokenizer->steps, (struct text_step_spec){&text_added_step, &tokenizer->normalized_added}));
    for (size_t i = 0; i < tokenizer->pre_tokenizers.count; i++)
        TRY(vec_push(&tokenizer->steps, tokenizer->pre_tokenizers.items[i]));
    return vec_push(&tokenizer->steps, (struct text_step_spec){&text_bpe_step, &tokenizer->model});
}

/* Without a decoder the library puts a space between tokens. */
static enum status decoder_read(struct tokenizer *tokenizer, const char *name, const json_t *file) {
    static const struct text_prefix space = {
        .text = " ", .bytes = 1, .place = PREFIX_LATER, .unless_there = false, .empty_too = true};
    const json_t *decoder = json_object_get(file, "decoder");
    if (decoder && !json_is_null(decoder)) return tokenizer_read_component(tokenizer, name, file, TOKENIZER_DECODER);
    return vec_push(&tokenizer->decoders, (struct text_step_spec){&text_prefix_step, &space});
}

/* For the library a segment is the first when it comes from the text's first character as it was before normalizers,
 * which may have made several of it, or taken it away. */
static enum status first_check(const struct tokenizer *tokenizer, const char *name) {
    bool known = tokenizer->normalizers.count == 0 || !(tokenizer->beginning_moves || tokenizer->first_of_split ||
                                                        tokenizer->normalized_added.trie.count > 0);
    if (known || !tokenizer->first_matters) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "%s: pre_tokenizer: prepend_scheme: first is not supported with this normalizer",
                     name);
    return status_hint(STATUS_BAD_INPUT,
                       "Replace, Strip and StripAccents stand against it; and any normalizer together "
                       "with normalized added tokens, or a pre-tokenizer before Metaspace");
}

static enum status parts_read(struct tokenizer *tokenizer, const char *name, const json_t *file) {
    const json_t *model;
    TRY(unused_check(name, file));
    TRY(json_require_object(name, file, "model", &model));
    const char *model_where = scratch_format(&tokenizer->memory, "%s: model", name);
    const char *added_where = scratch_format(&tokenizer->memory, "%s: added_tokens", name);
    if (!model_where || !added_where) return STATUS_FAILED;
    TRY(tokenizer_read_component(tokenizer, name, file, TOKENIZER_NORMALIZER));
    TRY(tokenizer_read_component(tokenizer, name, file, TOKENIZER_PRE_TOKENIZER));
    TRY(decoder_read(tokenizer, name, file));
    TRY(model_read(tokenizer, model_where, model));
    TRY(added_read(tokenizer, added_where, json_object_get(file, "added_tokens")));
    TRY(first_check(tokenizer, name));
    TRY(tokenizer_read_component(tokenizer, name, file, TOKENIZER_POST_PROCESSOR));
    return steps_join(tokenizer);
}

static enum status hint_at_file(enum status status) {
    if (status != STATUS_BAD_INPUT) return status;
    return status_hint_else(status, "use the tokenizer.json of the model's authors; see `ballast help tokenizers`");
}

enum status tokenizer_read(const char *name, json_t *file, struct tokenizer **out) {
    struct tokenizer *made = mem_array(1, sizeof *made);
    enum status status = made ? parts_read(made, name, file) : STATUS_FAILED;
    json_decref(file);
    if (status != STATUS_OK) return tokenizer_free(made), hint_at_file(status);
    *out = made;
    return STATUS_OK;
}

enum status tokenizer_open(const char *path, struct tokenizer **out) {
    json_t *file;
    enum status status = json_read_object(path, TOKENIZER_LARGEST_FILE_BYTES, &file);
    return status == STATUS_OK ? tokenizer_read(path, file, out) : hint_at_file(status);
}

void tokenizer_free(struct tokenizer *tokenizer) {
    if (!tokenizer) return;
    bpe_model_free(&tokenizer->model);
    vec_free(&tokenizer->tokens);
    vec_free(&tokenizer->added);
    string_table_free(&tokenizer->added_ids);
    token_trie_free(&tokenizer->raw_added.trie);
    token_trie_free(&tokenizer->normalized_added.trie);
    for (size_t i = 0; i < tokenizer->patterns.count; i++)
        split_pattern_free(tokenizer->patterns.items[i]);
    vec_free(&tokenizer->patterns);
    vec_free(&tokenizer->normalizers);
    vec_free(&tokenizer->pre_tokenizers);
    vec_free(&tokenizer->steps);
    vec_free(&tokenizer->decoders);
    vec_free(&tokenizer->before);
    vec_free(&tokenizer->after);
    scratch_free(&tokenizer->memory);
    mem_free(tokenizer);
}

int64_t tokenizer_vocab_size(const struct tokenizer *tokenizer) { return (int64_t)tokenizer->tokens.count; }

bool tokenizer_find(const struct tokenizer *tokenizer, const char *content, uint32_t *id) {
    size_t bytes = strlen(content);
    return string_table_find(&tokenizer->added_ids, content, bytes, id) ||
           string_table_find(&tokenizer->model.vocabulary, content, bytes, id);
}

const struct token_ids *tokenizer_before(const struct tokenizer *tokenizer) { return &tokenizer->before; }

const struct token_ids *tokenizer_after(const struct tokenizer *tokenizer) { return &tokenizer->after; }

bool tokenizer_is_special(const struct tokenizer *tokenizer, uint32_t id) {
    return id < tokenizer->tokens.count && tokenizer->tokens.items[id].special;
}
