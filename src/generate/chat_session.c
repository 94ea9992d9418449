#include "generate/chat_session.h"

#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"

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
    json_t *messages = json_array();
    enum status status;
    ids->count = 0;
    TRY_GOTO(status, messages ? STATUS_OK : status_no_memory(0, "a conversation"), done);
    if (session->system) TRY_GOTO(status, chat_prompt_add_message(messages, "system", session->system), done);
    if (json_array_extend(messages, (json_t *)turns) != 0)
        TRY_GOTO(status, status_no_memory(0, "a conversation"), done);
    status = chat_prompt_encode(&session->prompt, messages, NULL, ids);
done:
    json_decref(messages);
    return status;
}

/* Turns are a user's text and its answer. */
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

struct kept_answer {
    struct text_buffer text;
    enum status status;
    generate_sink *sink;
    void *payload;
};

static bool keep_answer(void *payload, const char *text, size_t bytes) {
    struct kept_answer *kept = payload;
    kept->status = text_append(&kept->text, text, bytes);
    return kept->status == STATUS_OK && kept->sink(kept->payload, text, bytes);
}

/* `ids` becomes what the caches are of, also after a failure. */
static enum status write_answer(struct chat_session *session, struct token_ids *ids, struct kept_answer *kept,
                                struct chat_answer *answer) {
    struct writer *writer = &session->writer;
    int64_t left = writer->decoding.positions - (int64_t)ids->count;
    size_t common = common_tokens(&session->ids, ids);
    if (common == ids->count) common--; /* the last token's logits are wanted */
    size_t there = decoding_keep(&writer->decoding, 0, common);
    vec_free(&session->ids);
    session->ids = *ids;
    *ids = (struct token_ids){0};
    answer->read_tokens = (int64_t)(session->ids.count - there);
    writer->options.tokens = session->max > 0 && session->max < left ? session->max : left;
    TRY(generate_continue(writer, 0, &session->ids, keep_answer, kept, &answer->result));
    TRY(kept->status);
    return vec_push(&kept->text, '\0');
}

static enum status send(struct chat_session *session, json_t *turns, const char *text, struct kept_answer *kept,
                        struct chat_answer *answer) {
    struct token_ids ids = {0};
    TRY(chat_prompt_add_message(turns, "user", text));
    enum status status = encode_to_fit(session, turns, &ids, &answer->dropped);
    if (status == STATUS_OK) status = write_answer(session, &ids, kept, answer);
    vec_free(&ids);
    TRY(status);
    return chat_prompt_add_message(turns, "assistant", kept->text.items);
}

enum status chat_session_send(struct chat_session *session, const char *text, generate_sink *sink, void *payload,
                              struct chat_answer *answer) {
    struct kept_answer kept = {.sink = sink, .payload = payload};
    json_t *turns = json_copy(session->messages);
    *answer = (struct chat_answer){0};
    enum status status = turns ? send(session, turns, text, &kept, answer) : status_no_memory(0, "a conversation");
    if (status == STATUS_OK) {
        json_decref(session->messages);
        session->messages = turns;
    } else {
        json_decref(turns);
    }
    vec_free(&kept.text);
    return status;
}
