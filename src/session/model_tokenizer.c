#include "session/model_tokenizer.h"

#include <inttypes.h>

#include "base/folder.h"

enum status model_tokenizer_open(const struct model *model, struct tokenizer **out, char **path) {
    char *file = path_join(model->folder, "tokenizer.json");
    struct tokenizer *tokenizer = NULL;
    if (!file) return STATUS_FAILED;
    enum status status = file_exists(file) ? tokenizer_open(file, &tokenizer) : STATUS_OK;
    int64_t size = tokenizer ? tokenizer_vocab_size(tokenizer) : 0;
    if (status == STATUS_OK && size > model->config.vocab_size)
        status = status_set(STATUS_BAD_INPUT, "%s: has ids up to %" PRId64 ", the model's vocab_size is %" PRId64, file,
                            size - 1, model->config.vocab_size);
    if (status != STATUS_OK) {
        tokenizer_free(tokenizer);
        mem_free(file);
        return status;
    }
    *out = tokenizer;
    *path = file;
    return STATUS_OK;
}

enum status model_tokenizer_require(const struct model *model, struct tokenizer **out) {
    struct tokenizer *tokenizer;
    char *path;
    TRY(model_tokenizer_open(model, &tokenizer, &path));
    enum status status = STATUS_OK;
    if (!tokenizer) status = status_set(STATUS_BAD_INPUT, "%s: is missing: there is no text without a tokenizer", path);
    mem_free(path);
    if (status == STATUS_OK) *out = tokenizer;
    return status;
}

/* -1 for what is no token of the model. */
static int64_t token_of(const struct model *model, const json_t *value) {
    int64_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    return id >= 0 && id < model->config.vocab_size ? id : -1;
}

int64_t model_end_token(const struct model *model) {
    const json_t *value = json_object_get(model->config_json, "eos_token_id");
    return token_of(model, json_is_array(value) ? json_array_get(value, 0) : value);
}

enum status model_end_tokens(const struct model *model, struct token_ids *out) {
    const json_t *value = json_object_get(model->config_json, "eos_token_id");
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t i = 0; i < count; i++) {
        int64_t id = token_of(model, json_is_array(value) ? json_array_get(value, i) : value);
        if (id >= 0) TRY(vec_push(out, (uint32_t)id));
    }
    return STATUS_OK;
}
