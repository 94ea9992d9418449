/* The "model" of a tokenizer.json: BPE's settings, vocabulary and merges. */
#include <string.h>

#include "base/json.h"
#include "text/tokenizer/tokenizer_parts.h"

static const char *const settings[] = {"type",
                                       "dropout",
                                       "unk_token",
                                       "continuing_subword_prefix",
                                       "end_of_word_suffix",
                                       "fuse_unk",
                                       "byte_fallback",
                                       "ignore_merges",
                                       "vocab",
                                       "merges",
                                       NULL};

/* Settings that would change ids and are not supported. */
static enum status settings_check(const char *where, const json_t *model) {
    const char *type = "BPE", *prefix = "", *suffix = "";
    double dropout = 0;
    TRY(json_read_string(where, model, "type", &type));
    if (strcmp(type, "BPE") != 0)
        return status_set(STATUS_BAD_INPUT, "%s: %.60s is not supported (supported: BPE)", where, type);
    TRY(json_only(where, model, settings));
    TRY(json_read_double(where, model, "dropout", 0, 1, &dropout));
    TRY(json_read_string(where, model, "continuing_subword_prefix", &prefix));
    TRY(json_read_string(where, model, "end_of_word_suffix", &suffix));
    const char *refused = dropout > 0 ? "dropout"
                          : prefix[0] ? "continuing_subword_prefix"
                          : suffix[0] ? "end_of_word_suffix"
                                      : NULL;
    return refused ? status_set(STATUS_BAD_INPUT, "%s: %s: is set, which is not supported", where, refused) : STATUS_OK;
}

/* Space for the largest id, and the length of all texts. */
static enum status vocabulary_measure(struct tokenizer *tokenizer, const char *where, const json_t *vocabulary,
                                      size_t *text_bytes) {
    json_int_t largest = -1;
    *text_bytes = 0;
    json_t *object = (json_t *)vocabulary;
    for (void *item = json_object_iter(object); item; item = json_object_iter_next(object, item)) {
        const json_t *value = json_object_iter_value(item);
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= TOKENIZER_IDS_MAX)
            return status_set(STATUS_BAD_INPUT, "%s: vocab: %.60s: must be a whole number from 0 to %d", where,
                              json_object_iter_key(item), TOKENIZER_IDS_MAX - 1);
        if (id > largest) largest = id;
        *text_bytes += strlen(json_object_iter_key(item)) + 1;
    }
    if (largest < 0) return status_set(STATUS_BAD_INPUT, "%s: vocab: is empty", where);
    TRY(vec_reserve(&tokenizer->tokens, (size_t)largest + 1));
    tokenizer->tokens.count = (size_t)largest + 1;
    memset(tokenizer->tokens.items, 0, tokenizer->tokens.count * sizeof *tokenizer->tokens.items);
    return STATUS_OK;
}

static enum status vocabulary_read(struct tokenizer *tokenizer, const char *where, const json_t *model) {
    const json_t *vocabulary;
    size_t text_bytes;
    TRY(json_require_object(where, model, "vocab", &vocabulary));
    TRY(vocabulary_measure(tokenizer, where, vocabulary, &text_bytes));
    TRY(string_table_reserve(&tokenizer->model.vocabulary, json_object_size(vocabulary)));
    char *text = scratch_alloc(&tokenizer->memory, text_bytes, 1);
    if (!text) return STATUS_FAILED;
    json_t *object = (json_t *)vocabulary;
    for (void *item = json_object_iter(object); item; item = json_object_iter_next(object, item)) {
        const char *key = json_object_iter_key(item);
        size_t bytes = strlen(key);
        json_int_t id = json_integer_value(json_object_iter_value(item));
        struct tokenizer_token *token = &tokenizer->tokens.items[id];
        if (token->text)
            return status_set(STATUS_BAD_INPUT, "%s: vocab: %.60s and %.60s have one id, %lld", where, token->text, key,
                              (long long)id);
        memcpy(text, key, bytes + 1);
        *token = (struct tokenizer_token){.text = text, .bytes = (uint32_t)bytes};
        TRY(bpe_model_add_token(&tokenizer->model, text, (uint32_t)bytes, (uint32_t)id));
        text += bytes + 1;
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
    struct text_buffer whole = {0};
    TRY(json_require_array(where, model, "merges", &merges));
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < json_array_size(merges); i++)
        status = merge_read(&tokenizer->model, where, i, json_array_get(merges, i), &whole);
    vec_free(&whole);
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

enum status tokenizer_read_model(struct tokenizer *tokenizer, const char *where, const json_t *model) {
    TRY(settings_check(where, model));
    TRY(json_read_bool(where, model, "ignore_merges", &tokenizer->model.ignore_merges));
    TRY(vocabulary_read(tokenizer, where, model));
    TRY(alphabet_read(tokenizer, where, model));
    return merges_read(tokenizer, where, model);
}
