#include "generate/prompts.h"

#include <string.h>

#include "base/file.h"
#include "base/utf8.h"
#include "data/jsonl.h"
#include "data/jsonl_conversation.h"

enum { FILE_LIMIT_BYTES = 1 << 30 };

void prompt_encoder_close(struct prompt_encoder *encoder) { chat_prompt_close(&encoder->prompt); }

static enum status open_template(struct prompt_encoder *encoder) {
    struct writer_model *model = encoder->model;
    if (encoder->prompt.chat) return STATUS_OK;
    return chat_prompt_open(model->session.model, model->tokenizer, encoder->time_s, &model->config, &encoder->prompt);
}

static enum status encode_text(struct prompt_encoder *encoder, const char *text, struct token_ids *ids) {
    struct writer_model *model = encoder->model;
    if (!encoder->chat) return writer_encode_prompt(model->session.model, model->tokenizer, text, ids);
    TRY(open_template(encoder));
    return chat_prompt_encode_text(&encoder->prompt, encoder->system, text, ids);
}

/* Takes over the source (NULL: out of memory). */
static enum status add_prompt(json_t *source, struct prompts *prompts, struct prompt **out) {
    if (!source) return status_no_memory(0, "a prompt");
    if (vec_push(prompts, (struct prompt){.source = source}) != STATUS_OK) {
        json_decref(source);
        return STATUS_FAILED;
    }
    *out = &prompts->items[prompts->count - 1];
    return STATUS_OK;
}

enum status prompts_add_text(struct prompt_encoder *encoder, const char *text, struct prompts *prompts) {
    struct text_buffer repaired = {0};
    struct prompt *prompt = NULL;
    enum status status;
    TRY_GOTO(status, text_append_repaired(&repaired, text, strlen(text)), done);
    TRY_GOTO(status,
             add_prompt(json_pack("{s:s%}", "prompt", repaired.items ? repaired.items : "", repaired.count), prompts,
                        &prompt),
             done);
    status = encode_text(encoder, text, &prompt->ids);
done:
    vec_free(&repaired);
    return status;
}

static enum status add_conversation(struct prompt_encoder *encoder, const json_t *conversation,
                                    struct prompts *prompts) {
    struct prompt *prompt;
    json_t *messages = json_object_get(conversation, "messages");
    TRY(open_template(encoder));
    TRY(add_prompt(json_pack("{s:O}", "messages", messages), prompts, &prompt));
    return chat_prompt_encode(&encoder->prompt, messages, conversation, &prompt->ids);
}

static enum status add_object(struct prompt_encoder *encoder, const char *path, int64_t line, const json_t *object,
                              struct prompts *prompts) {
    json_t *text = json_object_get(object, "prompt"), *messages = json_object_get(object, "messages"), *conversation;
    enum status status;
    if (json_is_string(text) && !messages) {
        TRY(jsonl_refuse_beside(path, line, object));
        status = prompts_add_text(encoder, json_string_value(text), prompts);
    } else if (messages && !text) {
        TRY(jsonl_make_conversation(path, line, object, json_incref(messages), &conversation, NULL));
        status = add_conversation(encoder, conversation, prompts);
        json_decref(conversation);
    } else {
        status = status_set(STATUS_BAD_INPUT, "must have either \"prompt\", a text, or \"messages\", a list");
    }
    return status == STATUS_BAD_INPUT ? status_prefix(status, "%s: line %lld", path, (long long)line) : status;
}

static enum status add_json_line(struct prompt_encoder *encoder, const char *path, int64_t number, const char *line,
                                 struct prompts *prompts) {
    json_t *object;
    TRY(jsonl_parse_object(path, number, line, strlen(line), &object));
    enum status status = object ? add_object(encoder, path, number, object, prompts) : STATUS_OK;
    json_decref(object);
    return status;
}

static enum status add_text_line(struct prompt_encoder *encoder, const char *path, int64_t number, const char *line,
                                 struct prompts *prompts) {
    enum status status = prompts_add_text(encoder, line, prompts);
    return status == STATUS_BAD_INPUT ? status_prefix(status, "%s: line %lld", path, (long long)number) : status;
}

/* Cuts the text at the ends of its lines. */
static enum status add_lines(struct prompt_encoder *encoder, const char *path, char *text, size_t bytes,
                             struct prompts *prompts) {
    size_t name = strlen(path);
    bool json = name >= 6 && strcmp(path + name - 6, ".jsonl") == 0;
    int64_t number = 1;
    for (char *line = text, *end; line < text + bytes; line = end + 1, number++) {
        end = memchr(line, '\n', (size_t)(text + bytes - line));
        if (!end) end = text + bytes;
        char *last = end > line && end[-1] == '\r' ? end - 1 : end;
        *last = *end = '\0';
        if (strlen(line) < (size_t)(last - line))
            return status_set(STATUS_BAD_INPUT, "%s: line %lld: holds a zero byte", path, (long long)number);
        TRY(json ? add_json_line(encoder, path, number, line, prompts)
                 : add_text_line(encoder, path, number, line, prompts));
    }
    return STATUS_OK;
}

enum status prompts_read(struct prompt_encoder *encoder, const char *path, struct prompts *prompts) {
    char *text;
    size_t bytes, before = prompts->count;
    TRY(file_read(path, FILE_LIMIT_BYTES, &text, &bytes));
    enum status status = add_lines(encoder, path, text, bytes, prompts);
    mem_free(text);
    TRY(status);
    return prompts->count > before ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: holds no prompt", path);
}

void prompts_free(struct prompts *prompts) {
    for (size_t i = 0; i < prompts->count; i++) {
        json_decref(prompts->items[i].source);
        vec_free(&prompts->items[i].ids);
    }
    vec_free(prompts);
}
