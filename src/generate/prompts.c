#include "generate/prompts.h"

#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"

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

static enum status add_conversation(struct prompt_encoder *encoder, json_t *messages, const json_t *tools,
                                    struct prompts *prompts) {
    struct prompt *prompt;
    if (tools && !json_is_array(tools)) return status_set(STATUS_BAD_INPUT, "tools: must be a list");
    TRY(open_template(encoder));
    TRY(add_prompt(json_pack("{s:O}", "messages", messages), prompts, &prompt));
    return chat_prompt_encode(&encoder->prompt, messages, tools, &prompt->ids);
}

static enum status add_object(struct prompt_encoder *encoder, const json_t *object, struct prompts *prompts) {
    json_t *text = json_object_get(object, "prompt"), *messages = json_object_get(object, "messages");
    const json_t *tools = json_object_get(object, "tools");
    if (json_is_null(tools)) tools = NULL;
    if (json_is_string(text) && !messages) return prompts_add_text(encoder, json_string_value(text), prompts);
    if (messages && !text) return add_conversation(encoder, messages, tools, prompts);
    return status_set(STATUS_BAD_INPUT, "must have either \"prompt\", a text, or \"messages\", a list");
}

static enum status add_json_line(struct prompt_encoder *encoder, const char *line, struct prompts *prompts) {
    json_error_t error;
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, &error);
    if (!object) return status_set(STATUS_BAD_INPUT, "not valid JSON: column %d: %s", error.column, error.text);
    enum status status = json_is_object(object) ? add_object(encoder, object, prompts)
                                                : status_set(STATUS_BAD_INPUT, "must be a JSON object");
    json_decref(object);
    return status;
}

/* Cuts the text at the ends of its lines. */
static enum status add_lines(struct prompt_encoder *encoder, const char *path, char *text, size_t bytes,
                             struct prompts *prompts) {
    size_t name = strlen(path);
    bool json = name >= 6 && strcmp(path + name - 6, ".jsonl") == 0;
    long long number = 1;
    for (char *line = text, *end; line < text + bytes; line = end + 1, number++) {
        end = memchr(line, '\n', (size_t)(text + bytes - line));
        if (!end) end = text + bytes;
        char *last = end > line && end[-1] == '\r' ? end - 1 : end;
        *last = *end = '\0';
        if (json && line[strspn(line, " \t")] == '\0') continue;
        enum status status = strlen(line) < (size_t)(last - line) ? status_set(STATUS_BAD_INPUT, "holds a zero byte")
                             : json                               ? add_json_line(encoder, line, prompts)
                                                                  : prompts_add_text(encoder, line, prompts);
        if (status == STATUS_BAD_INPUT) return status_prefix(status, "%s: line %lld", path, number);
        TRY(status);
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
