#include "data/jsonl_form.h"

#include <string.h>

#include "base/utf8.h"

static const char *role_of(const char *from) {
    static const struct {
        const char *from, *role;
    } roles[] = {{"human", "user"},          {"user", "user"},     {"gpt", "assistant"},
                 {"assistant", "assistant"}, {"system", "system"}, {"tool", "tool"}};
    for (size_t i = 0; from && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(roles[i].from, from) == 0) return roles[i].role;
    return NULL;
}

static enum status add_message(json_t *messages, const char *role, const json_t *content) {
    json_t *message = json_pack("{s:s, s:O}", "role", role, "content", content);
    return json_array_append_new(messages, message) == 0 ? STATUS_OK : status_no_memory(0, "messages");
}

/* A system prompt beside the messages. */
static enum status add_system(const char *name, int64_t line, const json_t *object, json_t *messages) {
    const json_t *system = json_object_get(object, "system");
    if (!system || json_is_null(system)) return STATUS_OK;
    if (!json_is_string(system)) return jsonl_refuse(name, line, "system", ": must be a string");
    return json_string_length(system) > 0 ? add_message(messages, "system", system) : STATUS_OK;
}

static enum status add_said(const char *name, int64_t line, const json_t *list, json_t *messages) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *said = json_array_get(list, i), *value = json_object_get(said, "value");
        const char *role = role_of(json_string_value(json_object_get(said, "from")));
        if (role && json_is_string(value)) {
            TRY(add_message(messages, role, value));
            continue;
        }
        return status_set(
            STATUS_BAD_INPUT,
            "%s: line %lld: conversations[%zu]: must be {\"from\": human, gpt or system, \"value\": \"...\"}", name,
            (long long)line, i);
    }
    return STATUS_OK;
}

/* Takes the messages. */
static enum status make_conversation(const json_t *object, json_t *messages, json_t **out) {
    json_t *tools = json_object_get(object, "tools");
    *out = json_pack("{s:o}", "messages", messages);
    if (*out && json_is_array(tools)) (void)json_object_set(*out, "tools", tools);
    return *out ? STATUS_OK : status_no_memory(0, "messages");
}

enum status jsonl_form_conversation(const struct jsonl_columns *columns, const char *name, int64_t line, json_t *object,
                                    json_t **out) {
    const char *key = jsonl_key(columns, JSONL_MESSAGES);
    json_t *list = key ? json_object_get(object, key) : NULL, *first;
    if (!list) list = json_object_get(object, "conversations");
    if (!list) return jsonl_refuse_missing(name, line, key ? key : "messages", object);
    first = json_array_get(list, 0);
    bool said = json_object_get(first, "from") != NULL;
    if (!said && list == json_object_get(object, "messages")) {
        *out = json_incref(object);
        return STATUS_OK;
    }
    if (!said) return make_conversation(object, json_incref(list), out);
    json_t *messages = json_array();
    enum status status;
    TRY_GOTO(status, messages ? add_system(name, line, object, messages) : status_no_memory(0, "messages"), failed);
    TRY_GOTO(status, add_said(name, line, list, messages), failed);
    return make_conversation(object, messages, out);
failed:
    json_decref(messages);
    return status;
}

/* The fields of a line; input is "" where there is none. */
struct alpaca {
    const char *instruction, *input, *output;
    size_t instruction_bytes, input_bytes, output_bytes;
};

static enum status read_alpaca(const struct jsonl_columns *columns, const char *name, int64_t line,
                               const json_t *object, struct alpaca *out) {
    const char *input = jsonl_key(columns, JSONL_INPUT);
    const json_t *value = input ? json_object_get(object, input) : NULL, *history = json_object_get(object, "history");
    *out = (struct alpaca){.input = ""};
    TRY(jsonl_read_string(name, line, object, jsonl_key(columns, JSONL_INSTRUCTION), &out->instruction,
                          &out->instruction_bytes));
    TRY(jsonl_read_string(name, line, object, jsonl_key(columns, JSONL_OUTPUT), &out->output, &out->output_bytes));
    if (json_array_size(history) > 0)
        return jsonl_refuse(name, line, "history", ": is not read: give conversations as messages");
    if (!value || json_is_null(value)) return STATUS_OK;
    return jsonl_read_string(name, line, object, input, &out->input, &out->input_bytes);
}

static enum status write_question(const struct alpaca *alpaca, struct text_buffer *out) {
    TRY(text_append(out, alpaca->instruction, alpaca->instruction_bytes));
    if (alpaca->input_bytes == 0) return STATUS_OK;
    TRY(text_append(out, "\n\n", 2));
    return text_append(out, alpaca->input, alpaca->input_bytes);
}

static enum status write_prompt(const struct alpaca *alpaca, struct text_buffer *out) {
    static const char task[] = "Below is an instruction that describes a task",
                      with_input[] = ", paired with an input that provides further context",
                      rest[] = ". Write a response that appropriately completes the request.\n\n### Instruction:\n",
                      input[] = "\n\n### Input:\n", response[] = "\n\n### Response:\n";
    TRY(text_append(out, task, strlen(task)));
    if (alpaca->input_bytes > 0) TRY(text_append(out, with_input, strlen(with_input)));
    TRY(text_append(out, rest, strlen(rest)));
    TRY(text_append(out, alpaca->instruction, alpaca->instruction_bytes));
    if (alpaca->input_bytes > 0) TRY(text_append(out, input, strlen(input)));
    TRY(text_append(out, alpaca->input, alpaca->input_bytes));
    return text_append(out, response, strlen(response));
}

static enum status make_alpaca_chat(const char *name, int64_t line, const json_t *object, const json_t *question,
                                    const json_t *answer, json_t **out) {
    json_t *messages = json_array();
    enum status status;
    TRY_GOTO(status, messages ? add_system(name, line, object, messages) : status_no_memory(0, "messages"), failed);
    TRY_GOTO(status, add_message(messages, "user", question), failed);
    TRY_GOTO(status, add_message(messages, "assistant", answer), failed);
    return make_conversation(object, messages, out);
failed:
    json_decref(messages);
    return status;
}

enum status jsonl_form_alpaca(const struct jsonl_columns *columns, const char *name, int64_t line, const json_t *object,
                              bool chat, json_t **out) {
    struct alpaca alpaca;
    struct text_buffer text = {0};
    TRY(read_alpaca(columns, name, line, object, &alpaca));
    enum status status = chat ? write_question(&alpaca, &text) : write_prompt(&alpaca, &text);
    if (status != STATUS_OK) return vec_free(&text), status;
    json_t *question = json_stringn(text.count > 0 ? text.items : "", text.count);
    json_t *answer = json_stringn(alpaca.output, alpaca.output_bytes);
    vec_free(&text);
    if (!question || !answer)
        status = status_no_memory(0, "an example");
    else if (chat)
        status = make_alpaca_chat(name, line, object, question, answer, out);
    else
        *out = json_pack("{s:O, s:O}", "prompt", question, "completion", answer);
    json_decref(question);
    json_decref(answer);
    return status == STATUS_OK && !*out ? status_no_memory(0, "an example") : status;
}
