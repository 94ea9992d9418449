#include "train/train_data.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "base/cache_folder.h"
#include "base/folder.h"

enum status train_tokenizer_open(const struct model *model, struct tokenizer **out, char **path) {
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

enum status train_tokenizer_require(const struct model *model, struct tokenizer **out) {
    struct tokenizer *tokenizer;
    char *path;
    TRY(train_tokenizer_open(model, &tokenizer, &path));
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

int64_t train_end_token(const struct model *model) {
    const json_t *value = json_object_get(model->config_json, "eos_token_id");
    return token_of(model, json_is_array(value) ? json_array_get(value, 0) : value);
}

enum status train_end_tokens(const struct model *model, struct token_ids *out) {
    const json_t *value = json_object_get(model->config_json, "eos_token_id");
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t i = 0; i < count; i++) {
        int64_t id = token_of(model, json_is_array(value) ? json_array_get(value, i) : value);
        if (id >= 0) TRY(vec_push(out, (uint32_t)id));
    }
    return STATUS_OK;
}

int64_t train_today_s(void) {
    enum { DAY_S = 24 * 60 * 60 };
    int64_t now_s = (int64_t)time(NULL);
    return now_s > 0 ? now_s / DAY_S * DAY_S : 0;
}

enum status train_data_open(const struct model *model, const struct recipe *recipe, const struct train_options *options,
                            bool training, struct train_data *out) {
    struct train_data made = {0};
    char *tokenizer_path;
    TRY(train_tokenizer_open(model, &made.tokenizer, &tokenizer_path));
    char *cache = cache_folder();
    struct dataset_options data = {
        .paths = options->data_paths,
        .path_count = options->data_path_count,
        .valid_paths = options->valid_paths,
        .valid_path_count = options->valid_path_count,
        .valid_fraction = options->valid_fraction,
        .tokenizer = made.tokenizer,
        .tokenizer_path = tokenizer_path,
        .eos_token = train_end_token(model),
        .chat_folder = model->folder,
        .chat_time_s = options->chat_time_s ? options->chat_time_s : train_today_s(),
        .columns = options->columns,
        .cache_folder = cache,
        .vocab_size = model->config.vocab_size,
        .sequence_tokens = recipe->sequence_length,
        .loss_on_all = options->loss_on_all,
        .documents_apart = recipe->document_attention == DOCUMENT_ATTENTION_WITHIN,
        .seed = recipe->seed,
    };
    if (!training) {
        data.valid_paths = data.paths;
        data.valid_path_count = data.path_count;
        data.path_count = 0;
    }
    enum status status = cache ? dataset_open(&data, &made.dataset) : STATUS_FAILED;
    mem_free(tokenizer_path);
    mem_free(cache);
    if (status == STATUS_OK && dataset_tokens(made.dataset) >= 0) {
        tokenizer_free(made.tokenizer); /* nothing is left to tokenize */
        made.tokenizer = NULL;
    }
    if (status == STATUS_OK)
        *out = made;
    else
        train_data_close(&made);
    return status;
}

void train_data_close(struct train_data *data) {
    dataset_close(data->dataset);
    tokenizer_free(data->tokenizer);
    *data = (struct train_data){0};
}
