#include "train/turn_end.h"

#include <inttypes.h>

#include "base/log.h"
#include "generate/chat.h"
#include "session/model_tokenizer.h"

/* The last of the ends is the turn's. */
static enum status set_ends(struct model *model, const struct tokenizer *tokenizer, struct token_ids *ends) {
    const char *name = tokenizer_end_token(tokenizer);
    uint32_t turn = ends->items[ends->count - 1], named;
    int64_t vocab_size = model->config.vocab_size;
    if (turn >= vocab_size) return STATUS_OK; /* the model cannot generate it */
    for (size_t i = ends->count - 1; i > 0; i--)
        ends->items[i] = ends->items[i - 1];
    ends->items[0] = turn;
    log_note("a turn ends with token %" PRIu32 ": generation_config.json will name it", turn);
    bool is_named = name && tokenizer_find(tokenizer, name, &named) && named < vocab_size; /* as model_end_token */
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

/* A generation_config.json that generation would refuse is copied as it is. */
static enum status find_ends(struct model *model, const struct tokenizer *tokenizer, int64_t time_s) {
    struct generation_config config;
    enum status status = generation_config_read_ends(model, tokenizer, &config);
    if (status == STATUS_BAD_INPUT) {
        status_clear();
        return STATUS_OK;
    }
    TRY(status);
    status = add_turn_end(model, tokenizer, time_s, &config);
    generation_config_free(&config);
    return status;
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
