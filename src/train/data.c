#include "train/data.h"

#include "base/clock.h"
#include "base/folder.h"
#include "base/terminal.h"
#include "generate/chat.h"
#include "session/model_tokenizer.h"

/* Prints the token that ends a document. */
static enum status find_end(const struct model *model, const struct tokenizer *tokenizer, int64_t *out) {
    TRY(model_end_token(model, tokenizer, out));
    if (!tokenizer) return STATUS_OK;
    const char *name = tokenizer_end_token(tokenizer);
    uint32_t named;
    if (*out < 0)
        log_note("no token ends a document: neither the tokenizer's files nor config.json name one");
    else if (name && tokenizer_find(tokenizer, name, &named) && named == *out)
        log_note("a document ends with %s, token %" PRId64, name, *out);
    else
        log_note("a document ends with token %" PRId64 ", config.json's eos_token_id", *out);
    return STATUS_OK;
}

/* Treats its training paths as validation data. */
static void take_for_validation(struct dataset_options *data) {
    data->valid_paths = data->paths;
    data->valid_path_count = data->path_count;
    data->path_count = 0;
}

static enum status open_data(const struct model *model, const struct recipe *recipe,
                             const struct train_options *options, bool training, struct train_data *out) {
    AUTO(train_data_close) struct train_data made = {0};
    AUTO_FREE char *tokenizer_path = NULL, *cache = cache_folder();
    if (!cache) return STATUS_FAILED;
    TRY(model_tokenizer_open(model, &made.tokenizer, &tokenizer_path));
    struct dataset_options data = {
        .paths = options->data_paths,
        .path_count = options->data_path_count,
        .valid_paths = options->valid_paths,
        .valid_path_count = options->valid_path_count,
        .valid_fraction = options->valid_fraction,
        .tokenizer = made.tokenizer,
        .tokenizer_path = tokenizer_path,
        .eos_token_of_0_1_0 = model_end_token_of_0_1_0(model),
        .chat_folder = model_companion_folder(model, "chat_template.jinja"),
        .chat_time_s = SETTINGS_HAVE(options, chat_time_s) ? options->chat_time_s : clock_today_s(),
        .columns = options->columns,
        .cache_folder = cache,
        .vocab_size = model->config.vocab_size,
        .sequence_tokens = recipe->sequence_length,
        .context_tokens = model->config.context,
        .loss_on_all = options->loss_on_all,
        .pairs = recipe->loss == TRAINING_DPO,
        .pack_examples = recipe->packing != EXAMPLE_PACKING_OFF,
        .hold_rows = recipe->packing == EXAMPLE_PACKING_ROWS_HELD,
        .documents_apart = recipe->document_attention == DOCUMENT_ATTENTION_WITHIN,
        .seed = recipe->seed,
    };
    if (!training) take_for_validation(&data);
    TRY(find_end(model, made.tokenizer, &data.eos_token));
    TRY(dataset_open(&data, &made.dataset));
    if (dataset_tokens(made.dataset) >= 0) {
        tokenizer_free(made.tokenizer); /* nothing remains to be tokenized */
        made.tokenizer = NULL;
    }
    *out = TAKE(made);
    return STATUS_OK;
}

enum status train_data_open(struct comm *comm, const struct model *model, const struct recipe *recipe,
                            const struct train_options *options, bool training, struct train_data *out) {
    AUTO(train_data_close) struct train_data made = {0};
    TRY(comm_agree(comm, open_data(model, recipe, options, training, &made)));
    TRY(dataset_check_same(made.dataset, comm));
    *out = TAKE(made);
    return STATUS_OK;
}

static enum status is_packing_open(const struct plan_options *options, bool *out) {
    struct plan plan;
    bool pairs = SETTINGS_HAVE(options, loss) && options->loss == TRAINING_DPO;
    *out = !SETTINGS_HAVE(options, packing) && !pairs;
    if (!*out || !SETTINGS_HAVE(options, plan_path)) return STATUS_OK;
    TRY(plan_read(options->plan_path, &plan));
    *out = plan.recipe.packing_auto;
    return STATUS_OK;
}

enum status train_data_choose_packing(const struct train_options *options, bool training, struct plan_options *plan) {
    bool open;
    TRY(is_packing_open(plan, &open));
    if (!open) return STATUS_OK;
    struct dataset_options data = {.paths = options->data_paths,
                                   .path_count = options->data_path_count,
                                   .valid_paths = options->valid_paths,
                                   .valid_path_count = options->valid_path_count,
                                   .columns = options->columns};
    if (!training) take_for_validation(&data);
    bool found;
    TRY(dataset_find_examples(&data, &found));
    SETTINGS_GIVE(plan, packing, found ? EXAMPLE_PACKING_ON : EXAMPLE_PACKING_OFF);
    return STATUS_OK;
}

enum status train_data_check_0_1_0(const struct model *model, const struct train_data *data) {
    AUTO(train_data_close) struct train_data own = {0}; /* the tokenizer of the data may be freed */
    AUTO_FREE char *path = NULL;
    TRY(model_tokenizer_open(model, &own.tokenizer, &path));
    return dataset_check_0_1_0(data->dataset, own.tokenizer);
}

void train_data_close(struct train_data *data) {
    dataset_close(data->dataset);
    tokenizer_free(data->tokenizer);
    *data = (struct train_data){0};
}

/* The last end token is the turn's. */
static enum status set_ends(struct model *model, const struct tokenizer *tokenizer, struct token_ids *ends) {
    const char *name = tokenizer_end_token(tokenizer);
    uint32_t turn = ends->items[ends->count - 1], named;
    int64_t vocab_size = model->config.vocab_size;
    if (turn >= vocab_size) return STATUS_OK; /* the model cannot generate it */
    for (size_t i = ends->count - 1; i > 0; i--)
        ends->items[i] = ends->items[i - 1];
    ends->items[0] = turn;
    log_note("a turn ends with token %" PRIu32 ": generation_config.json will name it", turn);
    bool is_named = name && tokenizer_find(tokenizer, name, &named) && named < vocab_size; /* like model_end_token */
    return model_set_ends(model, ends->items, ends->count, is_named);
}

static enum status add_turn_end(struct model *model, const struct tokenizer *tokenizer, int64_t time_s,
                                struct generation_config *config) {
    struct chat_prompt prompt;
    size_t before = config->ends.count;
    TRY(chat_prompt_open(model, tokenizer, time_s, config, &prompt));
    chat_prompt_close(&prompt);
    return config->ends.count > before ? set_ends(model, tokenizer, &config->ends) : STATUS_OK;
}

/* Copies a generation_config.json that generation would reject without changes. */
static enum status find_ends(struct model *model, const struct tokenizer *tokenizer, int64_t time_s) {
    AUTO(generation_config_free) struct generation_config config = {0};
    enum status status = generation_config_read(model, tokenizer, false, &config);
    if (status == STATUS_BAD_INPUT) {
        status_clear();
        return STATUS_OK;
    }
    TRY(status);
    return add_turn_end(model, tokenizer, time_s, &config);
}

enum status turn_end_set(struct model *model, int64_t time_s) {
    struct chat_template *chat;
    struct tokenizer *tokenizer;
    TRY(chat_template_find(model_companion_folder(model, "chat_template.jinja"), &chat));
    chat_template_free(chat);
    if (!chat) return STATUS_OK;
    TRY(model_tokenizer_require(model, &tokenizer));
    enum status status = find_ends(model, tokenizer, time_s);
    tokenizer_free(tokenizer);
    return status;
}
