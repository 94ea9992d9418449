/* Special tokens that only the files next to a tokenizer.json name: they become added tokens, as in transformers 5.
 * Their add_bos_token and add_eos_token change nothing there: the post-processor of tokenizer.json stays. */
#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"
#include "base/terminal.h"
#include "text/tokenizer/parts.h"

enum { BESIDE_LIMIT_BYTES = 1 << 26 };

/* In transformers' order, which is that of new ids. */
static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token"};
enum { NAMES = sizeof names / sizeof *names };

static enum status read_file(const char *folder, const char *name, json_t **out) {
    char *path = path_join(folder, name);
    if (!path) return STATUS_FAILED;
    enum status status = STATUS_OK;
    *out = NULL;
    if (file_exists(path)) status = json_read_object(path, BESIDE_LIMIT_BYTES, out);
    mem_free(path);
    if (status == STATUS_OK && !*out) *out = json_object();
    return status == STATUS_OK && !*out ? status_no_memory(0, name) : status;
}

/* A token's content: a string, or an object with its content. */
static const char *content_of(const json_t *token) {
    if (json_is_object(token)) token = json_object_get(token, "content");
    return json_string_value(token);
}

static bool flag_of(const json_t *token, const char *name, bool otherwise) {
    const json_t *value = json_object_get(token, name);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

/* `additions`: contents of the tokens to add, in order, in the form of tokenizer.json's added_tokens; null for tokens
 * that it has. */
static enum status add_token(json_t *additions, const json_t *token, bool special) {
    const char *content = content_of(token);
    if (!content || !*content || json_object_get(additions, content)) return STATUS_OK;
    special = special || flag_of(token, "special", false);
    json_t *own = json_pack("{s:s, s:b, s:b, s:b, s:b, s:b}", "content", content, "single_word",
                            flag_of(token, "single_word", false), "lstrip", flag_of(token, "lstrip", false), "rstrip",
                            flag_of(token, "rstrip", false), "normalized", flag_of(token, "normalized", !special),
                            "special", special);
    return json_object_set_new(additions, content, own) == 0 ? STATUS_OK : status_no_memory(0, "added tokens");
}

static enum status add_known(json_t *additions, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *content = content_of(json_array_get(list, i));
        if (content && json_object_set_new(additions, content, json_null()) != 0)
            return status_no_memory(0, "added tokens");
    }
    return STATUS_OK;
}

/* An object whose keys or values are ids, by id: `by_id` says that keys are. */
static enum status add_by_id(json_t *additions, const json_t *object, bool by_id, const json_t *specials) {
    int64_t last = -1;
    for (size_t i = 0; i < json_object_size(object); i++) {
        const char *key, *found = NULL;
        json_t *value, *found_value = NULL;
        int64_t next = INT64_MAX;
        json_object_foreach((json_t *)(uintptr_t)object, key, value) {
            int64_t id = by_id ? strtoll(key, NULL, 10) : json_integer_value(value);
            if (id <= last || id >= next) continue;
            next = id;
            found = key;
            found_value = value;
        }
        if (!found) break;
        last = next;
        json_t *name = by_id ? NULL : json_string(found);
        enum status status =
            add_token(additions, by_id ? found_value : name, !by_id && json_object_get(specials, found) != NULL);
        json_decref(name);
        TRY(status);
    }
    return STATUS_OK;
}

static enum status add_list(json_t *additions, const json_t *value) {
    const char *key;
    json_t *token;
    size_t i;
    json_array_foreach(value, i, token) { TRY(add_token(additions, token, true)); }
    json_object_foreach((json_t *)(uintptr_t)value, key, token) { TRY(add_token(additions, token, true)); }
    return STATUS_OK;
}

/* Keys such as "image_token", which name a token of that model alone. */
static enum status add_own_names(json_t *additions, const json_t *config) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)config, key, value) {
        size_t length = strlen(key);
        bool names_token = length > 6 && strcmp(key + length - 6, "_token") == 0 && json_is_string(value);
        if (names_token) TRY(add_token(additions, value, true));
    }
    return STATUS_OK;
}

static bool is_filled(const json_t *value) { return json_array_size(value) + json_object_size(value) > 0; }

/* `legacy`: there is no added_tokens_decoder, so the older files count too. */
static enum status add_all(json_t *additions, const char *folder, const json_t *config, bool legacy) {
    json_auto_t *added = NULL;
    if (legacy) TRY(read_file(folder, "added_tokens.json", &added));
    const json_t *extra = json_object_get(config, "extra_special_tokens");
    if (!is_filled(extra)) extra = json_object_get(config, "additional_special_tokens");
    json_auto_t *specials = json_object(); /* of added_tokens.json, those that are named */
    for (int i = 0; i < NAMES; i++)
        if (content_of(json_object_get(config, names[i])))
            (void)json_object_set_new(specials, content_of(json_object_get(config, names[i])), json_true());
    for (size_t i = 0; i < json_array_size(extra); i++)
        if (content_of(json_array_get(extra, i)))
            (void)json_object_set_new(specials, content_of(json_array_get(extra, i)), json_true());
    TRY(add_by_id(additions, json_object_get(config, "added_tokens_decoder"), true, NULL));
    TRY(add_by_id(additions, added, false, specials));
    for (int i = 0; i < NAMES; i++)
        TRY(add_token(additions, json_object_get(config, names[i]), true));
    TRY(add_own_names(additions, config));
    return add_list(additions, extra);
}

/* Gives ids as the library does: the model's for a token of its vocabulary, else the next. Tokens that the model has no
 * row for are left out. */
static enum status append_tokens(const char *path, json_t *additions, int64_t limit, json_t *file) {
    const char *content;
    json_t *vocabulary = json_object_get(json_object_get(file, "model"), "vocab");
    json_t *list = json_object_get(file, "added_tokens");
    int64_t next = (int64_t)json_object_size(vocabulary);
    size_t i;
    json_t *token;
    if (!json_is_array(list)) {
        list = json_array();
        if (!list || json_object_set_new(file, "added_tokens", list) != 0) return status_no_memory(0, "added tokens");
    }
    json_array_foreach(list, i, token) {
        content = content_of(token);
        if (content && !json_object_get(vocabulary, content)) next++;
    }
    json_object_foreach(additions, content, token) {
        if (json_is_null(token)) continue;
        const json_t *own = json_object_get(vocabulary, content);
        int64_t id = own ? json_integer_value(own) : next;
        if (id >= limit) {
            log_warning(
                "%s: %.60s is named next to it and would get id %lld, which the model has no row for: it is read "
                "as plain text",
                path, content, (long long)id);
            continue;
        }
        next += !own;
        if (json_object_set_new(token, "id", json_integer(id)) != 0 || json_array_append(list, token) != 0)
            return status_no_memory(0, "added tokens");
    }
    return STATUS_OK;
}

static enum status remember_end(struct tokenizer *tokenizer, const json_t *config) {
    const char *content = content_of(json_object_get(config, "eos_token"));
    if (!content) return STATUS_OK;
    tokenizer->end_token = scratch_format(&tokenizer->memory, "%s", content);
    return tokenizer->end_token ? STATUS_OK : STATUS_FAILED;
}

/* A hash of the changes that these files make; 0: none. */
static void hash_changes(struct tokenizer *tokenizer, json_t *additions) {
    uint64_t hash = 0;
    const char *content;
    json_t *token;
    json_object_foreach(additions, content, token) {
        if (!json_object_get(token, "id")) continue; /* left out, or known */
        char *text = json_text(token, JSON_COMPACT | JSON_SORT_KEYS);
        if (text) hash = XXH3_64bits_withSeed(text, strlen(text), hash);
        mem_free(text);
    }
    tokenizer->changes = hash;
}

/* tokenizer_config.json and, without an added_tokens_decoder there, special_tokens_map.json over it. */
static enum status read_config(const char *folder, json_t **out, bool *legacy) {
    json_t *map = NULL;
    TRY(read_file(folder, "tokenizer_config.json", out));
    *legacy = !json_is_object(json_object_get(*out, "added_tokens_decoder"));
    if (!*legacy) return STATUS_OK;
    TRY(read_file(folder, "special_tokens_map.json", &map));
    int failed = json_object_update(*out, map);
    json_decref(map);
    return failed ? status_no_memory(0, "special tokens") : STATUS_OK;
}

enum status tokenizer_open_with_beside(const char *folder, const char *path, int64_t limit, struct tokenizer **out) {
    json_auto_t *config = NULL, *file = NULL, *additions = json_object();
    bool legacy;
    AUTO(tokenizer_release) struct tokenizer *made = NULL;
    TRY(additions ? STATUS_OK : status_no_memory(0, "added tokens"));
    TRY(read_config(folder, &config, &legacy));
    TRY(json_read_object(path, TOKENIZER_LARGEST_FILE_BYTES, &file));
    TRY(add_known(additions, json_object_get(file, "added_tokens")));
    TRY(add_all(additions, folder, config, legacy));
    TRY(append_tokens(path, additions, limit, file));
    TRY(tokenizer_read(path, json_incref(file), &made));
    TRY(remember_end(made, config));
    hash_changes(made, additions);
    *out = TAKE(made);
    return STATUS_OK;
}

const char *tokenizer_end_token(const struct tokenizer *tokenizer) { return tokenizer->end_token; }

uint64_t tokenizer_changes(const struct tokenizer *tokenizer) { return tokenizer->changes; }
