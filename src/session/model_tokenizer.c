#include "session/model_tokenizer.h"

#include "base/folder.h"
#include "base/json.h"

enum status model_tokenizer_open(const struct model *model, struct tokenizer **out, char **path) {
    const char *folder = model_companion_folder(model, "tokenizer.json");
    AUTO_FREE char *file = path_join(folder, "tokenizer.json");
    AUTO(tokenizer_release) struct tokenizer *tokenizer = NULL;
    if (!file) return STATUS_FAILED;
    if (file_exists(file)) TRY(tokenizer_open_with_beside(folder, file, model->config.vocab_size, &tokenizer));
    int64_t size = tokenizer ? tokenizer_vocab_size(tokenizer) : 0;
    if (size > model->config.vocab_size)
        return status_set(STATUS_BAD_INPUT, "%s: has ids up to %" PRId64 ", the model's vocab_size is %" PRId64, file,
                          size - 1, model->config.vocab_size);
    *out = TAKE(tokenizer);
    *path = TAKE(file);
    return STATUS_OK;
}

enum status model_tokenizer_require(const struct model *model, struct tokenizer **out) {
    AUTO_FREE char *path = NULL;
    struct tokenizer *tokenizer;
    TRY(model_tokenizer_open(model, &tokenizer, &path));
    if (!tokenizer) return status_set(STATUS_BAD_INPUT, "%s: is missing: there is no text without a tokenizer", path);
    *out = tokenizer;
    return STATUS_OK;
}

/* The config's own. Wrapper configs have it in their text model's part. */
static const json_t *config_end(const struct model *model) {
    const json_t *value = json_object_get(model->config_json, "eos_token_id");
    if (value && !json_is_null(value)) return value;
    return json_object_get(json_object_get(model->config_json, "text_config"), "eos_token_id");
}

static enum status take_id(const struct model *model, const json_t *value, int64_t *id) {
    *id = json_is_integer(value) ? json_integer_value(value) : -1;
    if (*id >= 0 && *id < model->config.vocab_size) return STATUS_OK;
    char *text = json_text(value, JSON_ENCODE_ANY | JSON_COMPACT);
    enum status status = status_set(STATUS_BAD_INPUT, "%s/config.json: eos_token_id: %.60s is no token of the model",
                                    model->folder ? model->folder : "", text ? text : "it");
    mem_free(text);
    return status_hint(status,
                       "its tokens are 0 to %" PRId64 "; null stands for none, and then the eos_token of "
                       "tokenizer_config.json counts",
                       model->config.vocab_size - 1);
}

/* The id of the eos_token that the tokenizer's files name. -1 if they name none, or a token that does not exist. */
static int64_t named_end(const struct model *model, const struct tokenizer *tokenizer) {
    const char *name = tokenizer ? tokenizer_end_token(tokenizer) : NULL;
    uint32_t id;
    return name && tokenizer_find(tokenizer, name, &id) && id < model->config.vocab_size ? (int64_t)id : -1;
}

enum status model_end_token(const struct model *model, const struct tokenizer *tokenizer, int64_t *out) {
    const json_t *value = config_end(model);
    *out = named_end(model, tokenizer);
    if (*out >= 0) return STATUS_OK;
    if (json_is_array(value)) value = json_array_get(value, 0);
    return value && !json_is_null(value) ? take_id(model, value, out) : STATUS_OK;
}

int64_t model_end_token_of_0_1_0(const struct model *model) {
    const json_t *value = json_object_get(model->config_json, "eos_token_id");
    if (json_is_array(value)) value = json_array_get(value, 0);
    int64_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    return id >= 0 && id < model->config.vocab_size ? id : -1;
}

enum status model_end_tokens(const struct model *model, const struct tokenizer *tokenizer, struct token_ids *out) {
    const json_t *value = config_end(model);
    int64_t named = named_end(model, tokenizer), id;
    size_t count = json_is_array(value) ? json_array_size(value) : value && !json_is_null(value);
    for (size_t i = 0; i < count; i++) {
        enum status status = take_id(model, json_is_array(value) ? json_array_get(value, i) : value, &id);
        if (status == STATUS_BAD_INPUT && named >= 0) continue; /* the tokenizer's replaces it */
        TRY(status);
        TRY(vec_push(out, (uint32_t)id));
    }
    return out->count == 0 && named >= 0 ? vec_push(out, (uint32_t)named) : STATUS_OK;
}
