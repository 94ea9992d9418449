#include "generate/chat.h"

#include "base/clock.h"
#include "base/text.h"
#include "generate/generate.h"
#include "generate/writer.h"
#include "session/model_tokenizer.h"

/* Appends {"role", "content"}. The text must be UTF-8. */
static enum status chat_prompt_add_message(json_t *messages, const char *role, const char *content) {
    json_t *message = json_pack("{s:s, s:s}", "role", role, "content", content);
    if (!message) return status_set(STATUS_BAD_INPUT, "the %s's text is not valid UTF-8", role);
    return json_array_append_new(messages, message) == 0 ? STATUS_OK : status_no_memory(0, "a conversation");
}

static enum status render(struct chat_prompt *prompt, const json_t *messages, const json_t *beside, bool answer_next) {
    TRY(chat_check_messages(messages));
    json_auto_t *normalized = chat_normalize_messages(messages);
    if (!normalized) return STATUS_FAILED;
    struct chat_input input = {.messages = normalized,
                               .tools = json_object_get(beside, "tools"),
                               .variables = json_object_get(beside, "chat_template_kwargs"),
                               .add_generation_prompt = answer_next,
                               .now_s = prompt->now_s};
    return chat_template_render(prompt->chat, &input, &prompt->output);
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
    json_auto_t *messages = json_array();
    if (!messages) return status_no_memory(0, "a conversation");
    if (system) TRY(chat_prompt_add_message(messages, "system", system));
    TRY(chat_prompt_add_message(messages, "user", user));
    return chat_prompt_encode(prompt, messages, NULL, ids);
}

/* A dummy answer that occurs in no template. */
static const char answer_text[] = "ballastanswer";

/* Finds the token that follows answer_text in the rendered template. -1: it is not an added token, or the template
 * refuses such a turn. */
static enum status find_turn_end(struct chat_prompt *prompt, int64_t *token) {
    json_auto_t *messages = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "hello", "role",
                                      "assistant", "content", answer_text);
    if (!messages) return status_no_memory(0, "a conversation");
    enum status status = render(prompt, messages, NULL, false);
    *token = -1;
    if (status == STATUS_BAD_INPUT) return STATUS_OK; /* the real conversation will show the error, if it has one */
    TRY(status);
    const struct text_buffer *text = &prompt->output.text;
    const char *found = memmem(text->items, text->count, answer_text, sizeof answer_text - 1);
    if (!found) return STATUS_OK;
    const char *rest = found + sizeof answer_text - 1;
    AUTO_VEC struct token_ids ids = {0};
    TRY(tokenizer_encode(prompt->tokenizer, rest, (size_t)(text->items + text->count - rest), false, &ids));
    if (ids.count > 0 && tokenizer_is_special(prompt->tokenizer, ids.items[0])) *token = (int64_t)ids.items[0];
    return STATUS_OK;
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
    AUTO(chat_prompt_close)
    struct chat_prompt prompt = {.tokenizer = tokenizer, .now_s = time_s ? time_s : clock_today_s()};
    TRY(open_prompt(&prompt, model, config));
    *out = TAKE(prompt);
    return STATUS_OK;
}

void chat_prompt_close(struct chat_prompt *prompt) {
    chat_template_free(prompt->chat);
    jinja_output_free(&prompt->output);
    prompt->chat = NULL;
}

enum status chat_session_open(const char *model_folder, const struct plan_options *plan,
                              const struct generate_options *options, int64_t time_s, struct chat_session *out) {
    struct writer_model *model = &out->model;
    struct plan_options one = *plan;
    SETTINGS_GIVE(&one, batch, 1);
    out->max = options->tokens;
    TRY(writer_model_open(model_folder, &one, model));
    TRY(chat_prompt_open(model->session.model, model->tokenizer, time_s, &model->config, &out->prompt));
    TRY(writer_model_load(model));
    TRY(writer_create(&model->engine, model->tokenizer, &model->config, options, &out->writer));
    return chat_session_reset(out);
}

void chat_session_close(struct chat_session *session) {
    json_decref(session->messages);
    mem_free(session->system);
    vec_free(&session->ids);
    writer_free(&session->writer);
    chat_prompt_close(&session->prompt);
    writer_model_close(&session->model);
}

enum status chat_session_reset(struct chat_session *session) {
    json_t *none = json_array();
    if (!none) return status_no_memory(0, "a conversation");
    json_decref(session->messages);
    session->messages = none;
    return STATUS_OK;
}

enum status chat_session_set_system(struct chat_session *session, const char *system) {
    char *copy = system ? mem_string(system) : NULL;
    if (system && !copy) return STATUS_FAILED;
    mem_free(session->system);
    session->system = copy;
    return STATUS_OK;
}

static enum status encode(struct chat_session *session, const json_t *turns, struct token_ids *ids) {
    json_auto_t *messages = json_array();
    ids->count = 0;
    if (!messages) return status_no_memory(0, "a conversation");
    if (session->system) TRY(chat_prompt_add_message(messages, "system", session->system));
    if (json_array_extend(messages, (json_t *)turns) != 0) return status_no_memory(0, "a conversation");
    return chat_prompt_encode(&session->prompt, messages, NULL, ids);
}

/* A turn is a user message and its answer. */
static enum status encode_to_fit(struct chat_session *session, json_t *turns, struct token_ids *ids, int64_t *dropped) {
    int64_t positions = session->writer.decoding.positions;
    TRY(encode(session, turns, ids));
    while ((int64_t)ids->count > positions - positions / 4 && json_array_size(turns) > 1) {
        for (int i = 0; i < 2; i++)
            (void)json_array_remove(turns, 0);
        *dropped += 2;
        TRY(encode(session, turns, ids));
    }
    if ((int64_t)ids->count < positions) return STATUS_OK;
    status_set(STATUS_BAD_INPUT, "this takes %zu tokens, and the caches hold %" PRId64, ids->count, positions);
    return status_hint(STATUS_BAD_INPUT, "say less, or give --seq more, if the model's context allows it");
}

static size_t common_tokens(const struct token_ids *a, const struct token_ids *b) {
    size_t common = 0;
    while (common < a->count && common < b->count && a->items[common] == b->items[common])
        common++;
    return common;
}

/* Sets `ids` to the tokens in the caches, also after a failure. */
static enum status write_answer(struct chat_session *session, struct token_ids *ids, struct kept_text *kept,
                                struct chat_answer *answer) {
    struct writer *writer = &session->writer;
    int64_t left = writer->decoding.positions - (int64_t)ids->count;
    size_t common = common_tokens(&session->ids, ids);
    if (common == ids->count) common--; /* the last token is computed again for its logits */
    size_t there = decoding_keep(&writer->decoding, 0, common);
    vec_free(&session->ids);
    session->ids = TAKE(*ids);
    answer->read_tokens = (int64_t)(session->ids.count - there);
    writer->options.tokens = session->max > 0 && session->max < left ? session->max : left;
    TRY(generate_continue(writer, 0, &session->ids, kept_text_take, kept, &answer->result));
    TRY(kept->status);
    return vec_push(&kept->text, '\0');
}

static enum status send(struct chat_session *session, json_t *turns, const char *text, struct kept_text *kept,
                        struct chat_answer *answer) {
    AUTO_VEC struct token_ids ids = {0};
    TRY(chat_prompt_add_message(turns, "user", text));
    TRY(encode_to_fit(session, turns, &ids, &answer->dropped));
    TRY(write_answer(session, &ids, kept, answer));
    return chat_prompt_add_message(turns, "assistant", kept->text.items);
}

enum status chat_session_send(struct chat_session *session, const char *text, generate_sink *sink, void *payload,
                              struct chat_answer *answer) {
    AUTO(kept_text_free) struct kept_text kept = {.sink = sink, .payload = payload};
    json_auto_t *turns = json_copy(session->messages);
    *answer = (struct chat_answer){0};
    TRY(turns ? send(session, turns, text, &kept, answer) : status_no_memory(0, "a conversation"));
    json_decref(session->messages);
    session->messages = TAKE(turns);
    return STATUS_OK;
}
