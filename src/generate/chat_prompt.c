#include "generate/chat_prompt.h"

#include <string.h>

#include "base/clock.h"
#include "session/model_tokenizer.h"

enum status chat_prompt_add_message(json_t *messages, const char *role, const char *content) {
    json_t *message = json_pack("{s:s, s:s}", "role", role, "content", content);
    if (!message) return status_set(STATUS_BAD_INPUT, "the %s's text is not valid UTF-8", role);
    return json_array_append_new(messages, message) == 0 ? STATUS_OK : status_no_memory(0, "a conversation");
}

static enum status render(struct chat_prompt *prompt, const json_t *messages, const json_t *beside, bool answer_next) {
    TRY(chat_check_messages(messages));
    json_t *normalized = chat_normalize_messages(messages);
    if (!normalized) return STATUS_FAILED;
    struct chat_input input = {.messages = normalized,
                               .tools = json_object_get(beside, "tools"),
                               .variables = json_object_get(beside, "chat_template_kwargs"),
                               .add_generation_prompt = answer_next,
                               .now_s = prompt->now_s};
    enum status status = chat_template_render(prompt->chat, &input, &prompt->output);
    json_decref(normalized);
    return status;
}

enum status chat_prompt_encode(struct chat_prompt *prompt, const json_t *messages, const json_t *beside,
                               struct token_ids *ids) {
    size_t before = ids->count;
    TRY(render(prompt, messages, beside, true));
    TRY(tokenizer_encode(prompt->tokenizer, prompt->output.text.items, prompt->output.text.count, false, ids));
    return ids->count > before ? STATUS_OK : status_set(STATUS_BAD_INPUT, "the chat template makes no text of it");
}

enum status chat_prompt_encode_text(struct chat_prompt *prompt, const char *system, const char *user,
                                    struct token_ids *ids) {
    json_t *messages = json_array();
    enum status status;
    TRY_GOTO(status, messages ? STATUS_OK : status_no_memory(0, "a conversation"), done);
    if (system) TRY_GOTO(status, chat_prompt_add_message(messages, "system", system), done);
    TRY_GOTO(status, chat_prompt_add_message(messages, "user", user), done);
    status = chat_prompt_encode(prompt, messages, NULL, ids);
done:
    json_decref(messages);
    return status;
}

/* An answer that no template has a word of. */
static const char answer[] = "ballastanswer";

/* The token that stands behind an answer; -1: it is none of the added ones, or the template takes no such turn. */
static enum status find_turn_end(struct chat_prompt *prompt, int64_t *token) {
    json_t *messages = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "hello", "role", "assistant",
                                 "content", answer);
    if (!messages) return status_no_memory(0, "a conversation");
    enum status status = render(prompt, messages, NULL, false);
    json_decref(messages);
    *token = -1;
    if (status == STATUS_BAD_INPUT) return STATUS_OK; /* what is wrong shows with what is really said */
    TRY(status);
    const struct text_buffer *text = &prompt->output.text;
    const char *found = memmem(text->items, text->count, answer, sizeof answer - 1);
    if (!found) return STATUS_OK;
    const char *rest = found + sizeof answer - 1;
    struct token_ids ids = {0};
    status = tokenizer_encode(prompt->tokenizer, rest, (size_t)(text->items + text->count - rest), false, &ids);
    if (status == STATUS_OK && ids.count > 0 && tokenizer_is_special(prompt->tokenizer, ids.items[0]))
        *token = (int64_t)ids.items[0];
    vec_free(&ids);
    return status;
}

static enum status open_prompt(struct chat_prompt *prompt, const struct model *model,
                               struct generation_config *config) {
    int64_t end;
    TRY(chat_template_open(model_companion_folder(model, "chat_template.jinja"), &prompt->chat));
    TRY(find_turn_end(prompt, &end));
    if (end < 0 || generation_config_is_end(config, (uint32_t)end)) return STATUS_OK;
    return vec_push(&config->ends, (uint32_t)end);
}

enum status chat_prompt_open(const struct model *model, const struct tokenizer *tokenizer, int64_t time_s,
                             struct generation_config *config, struct chat_prompt *out) {
    struct chat_prompt prompt = {.tokenizer = tokenizer, .now_s = time_s ? time_s : clock_today_s()};
    enum status status = open_prompt(&prompt, model, config);
    if (status == STATUS_OK)
        *out = prompt;
    else
        chat_prompt_close(&prompt);
    return status;
}

void chat_prompt_close(struct chat_prompt *prompt) {
    chat_template_free(prompt->chat);
    jinja_output_free(&prompt->output);
    prompt->chat = NULL;
}
