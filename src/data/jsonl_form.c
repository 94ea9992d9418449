#include "data/jsonl_form.h"

#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "data/jsonl_conversation.h"

/* Roles of ShareGPT's turns, with the names that other tools give them. */
static const struct role {
    const char *from, *role;
} roles[] = {
    {"human", "user"},          {"user", "user"},           {"gpt", "assistant"}, {"chatgpt", "assistant"},
    {"assistant", "assistant"}, {"model", "assistant"},     {"bot", "assistant"}, {"function_call", "assistant"},
    {"system", "system"},       {"developer", "developer"}, {"tool", "tool"},     {"observation", "tool"},
};

static const struct role *find_role(const char *from) {
    for (size_t i = 0; from && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(roles[i].from, from) == 0) return &roles[i];
    return NULL;
}

static enum status add_message(json_t *messages, const char *role, const json_t *content) {
    json_t *message = json_pack("{s:s, s:O}", "role", role, "content", content);
    return json_array_append_new(messages, message) == 0 ? STATUS_OK : status_no_memory(0, "messages");
}

/* The value of a function_call turn: JSON text of a call, or of a list of calls. NULL when it is not. */
static json_t *read_calls(const json_t *value) {
    json_error_t error;
    json_t *read = json_is_string(value) ? json_load(json_string_value(value), json_string_length(value),
                                                     JSON_REJECT_DUPLICATES, NULL, &error)
                                         : NULL;
    json_t *list = json_is_object(read) ? json_pack("[O]", read) : json_incref(read), *calls = json_array();
    bool good = json_array_size(list) > 0 && calls;
    for (size_t i = 0; i < json_array_size(list) && good; i++) {
        json_t *call = json_array_get(list, i), *arguments = json_object_get(call, "arguments");
        const char *called = json_string_value(json_object_get(call, "name"));
        good = called && arguments &&
               json_array_append_new(calls, json_pack("{s:s, s:{s:s, s:O}}", "type", "function", "function", "name",
                                                      called, "arguments", arguments)) == 0;
    }
    json_decref(read);
    json_decref(list);
    if (good) return calls;
    json_decref(calls);
    return NULL;
}

/* A turn as a message: with its role, its words, and all other keys. NULL when it is not as ShareGPT has it. */
static json_t *form_turn(const json_t *turn) {
    const struct role *role = find_role(json_string_value(json_object_get(turn, "from")));
    json_t *value = json_object_get(turn, "value"), *message = role ? json_copy((json_t *)(uintptr_t)turn) : NULL;
    bool calls = role && strcmp(role->from, "function_call") == 0, words = json_is_string(value);
    bool silent = (!value || json_is_null(value)) && json_array_size(json_object_get(turn, "tool_calls")) > 0;
    if (!message || (!words && !silent)) return json_decref(message), NULL;
    (void)json_object_del(message, "from");
    (void)json_object_del(message, "value");
    int failed = json_object_set_new(message, "role", json_string(role->role));
    if (calls) failed |= json_object_set_new(message, "tool_calls", read_calls(value));
    if (words) failed |= json_object_set_new(message, "content", calls ? json_string("") : json_incref(value));
    if (!failed) return message;
    json_decref(message);
    return NULL;
}

static enum status add_turns(const char *name, int64_t line, const json_t *list, json_t *messages) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *message = form_turn(json_array_get(list, i));
        if (message && json_array_append_new(messages, message) == 0) continue;
        (void)status_set(STATUS_BAD_INPUT,
                         "%s: line %lld: conversations[%zu]: must be {\"from\": human, gpt, system, tool, observation "
                         "or function_call, \"value\": \"...\"}",
                         name, (long long)line, i);
        return status_hint(STATUS_BAD_INPUT, "the value of function_call is JSON text: {\"name\", \"arguments\"}");
    }
    return STATUS_OK;
}

/* Prompt and completion as messages, of which those from *first on are the completion. */
static enum status join_completion(const struct jsonl_columns *columns, const char *name, int64_t line,
                                   const json_t *object, json_t **messages, size_t *first) {
    const char *keys[] = {jsonl_key(columns, JSONL_PROMPT), jsonl_key(columns, JSONL_COMPLETION)};
    json_t *parts[2], *all = json_array();
    for (int i = 0; i < 2; i++) {
        parts[i] = keys[i] ? json_object_get(object, keys[i]) : NULL;
        if (json_is_array(parts[i]) && json_array_extend(all, parts[i]) == 0) continue;
        json_decref(all);
        return jsonl_refuse(name, line, keys[i] ? keys[i] : "completion", ": must be a list of messages");
    }
    *first = json_array_size(parts[0]);
    *messages = all;
    return STATUS_OK;
}

static enum status find_messages(const struct jsonl_columns *columns, const char *name, int64_t line,
                                 const json_t *object, json_t **messages, size_t *first) {
    const char *key = jsonl_key(columns, JSONL_MESSAGES), *prompt = jsonl_key(columns, JSONL_PROMPT);
    json_t *list = key ? json_object_get(object, key) : NULL;
    if (!list && prompt && json_object_get(object, prompt))
        return join_completion(columns, name, line, object, messages, first);
    if (!list) list = json_object_get(object, "conversations");
    if (!list) return jsonl_refuse_missing(name, line, key ? key : "messages", object);
    if (!json_object_get(json_array_get(list, 0), "from")) {
        *messages = json_incref(list);
        return STATUS_OK;
    }
    json_t *made = json_array();
    enum status status = made ? add_turns(name, line, list, made) : status_no_memory(0, "messages");
    if (status == STATUS_OK)
        *messages = made;
    else
        json_decref(made);
    return status;
}

enum status jsonl_form_conversation(const struct jsonl_columns *columns, const char *name, int64_t line, json_t *object,
                                    json_t **out, size_t *first) {
    json_t *messages = NULL;
    *first = 0;
    TRY(find_messages(columns, name, line, object, &messages, first));
    return jsonl_make_conversation(name, line, object, messages, out, first);
}

/* The fields of a line; input and system are "" where there is none. */
struct alpaca {
    const char *instruction, *input, *output, *system;
    size_t instruction_bytes, input_bytes, output_bytes, system_bytes;
};

/* A text that need not be there. */
static enum status read_optional(const char *name, int64_t line, const json_t *object, const char *key,
                                 const char **text, size_t *bytes) {
    const json_t *value = key ? json_object_get(object, key) : NULL;
    *text = "";
    *bytes = 0;
    if (!value || json_is_null(value)) return STATUS_OK;
    return jsonl_read_string(name, line, object, key, text, bytes);
}

static enum status read_alpaca(const struct jsonl_columns *columns, const char *name, int64_t line,
                               const json_t *object, struct alpaca *out) {
    *out = (struct alpaca){0};
    TRY(jsonl_read_string(name, line, object, jsonl_key(columns, JSONL_INSTRUCTION), &out->instruction,
                          &out->instruction_bytes));
    TRY(jsonl_read_string(name, line, object, jsonl_key(columns, JSONL_OUTPUT), &out->output, &out->output_bytes));
    TRY(read_optional(name, line, object, "system", &out->system, &out->system_bytes));
    return read_optional(name, line, object, jsonl_key(columns, JSONL_INPUT), &out->input, &out->input_bytes);
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
                      rest[] = ". Write a response that appropriately completes the request.",
                      instruction[] = "\n\n### Instruction:\n", input[] = "\n\n### Input:\n",
                      response[] = "\n\n### Response:\n";
    bool own = alpaca->system_bytes > 0; /* in place of Alpaca's words, as LLaMA-Factory and axolotl do */
    TRY(text_append(out, own ? alpaca->system : task, own ? alpaca->system_bytes : strlen(task)));
    if (alpaca->input_bytes > 0 && !own) TRY(text_append(out, with_input, strlen(with_input)));
    if (!own) TRY(text_append(out, rest, strlen(rest)));
    TRY(text_append(out, instruction, strlen(instruction)));
    TRY(text_append(out, alpaca->instruction, alpaca->instruction_bytes));
    if (alpaca->input_bytes > 0) TRY(text_append(out, input, strlen(input)));
    TRY(text_append(out, alpaca->input, alpaca->input_bytes));
    return text_append(out, response, strlen(response));
}

/* Earlier questions and answers: a list of pairs, or JSON text of one. */
static enum status add_history(const char *name, int64_t line, const json_t *object, json_t *messages) {
    json_t *history;
    TRY(jsonl_read_list(name, line, object, "history", &history));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < json_array_size(history) && status == STATUS_OK; i++) {
        const json_t *pair = json_array_get(history, i), *turn[2] = {json_array_get(pair, 0), json_array_get(pair, 1)};
        if (json_array_size(pair) != 2 || !json_is_string(turn[0]) || !json_is_string(turn[1]))
            status = jsonl_refuse(name, line, "history", ": must be a list of pairs, [\"question\", \"answer\"]");
        else if ((status = add_message(messages, "user", turn[0])) == STATUS_OK)
            status = add_message(messages, "assistant", turn[1]);
    }
    json_decref(history);
    return status;
}

static enum status make_alpaca_chat(const char *name, int64_t line, const json_t *object, const json_t *question,
                                    const json_t *answer, json_t **out) {
    json_t *messages = json_array(), *rest = json_copy((json_t *)(uintptr_t)object);
    enum status status;
    TRY_GOTO(status, messages && rest ? STATUS_OK : status_no_memory(0, "messages"), done);
    TRY_GOTO(status, add_history(name, line, object, messages), done);
    TRY_GOTO(status, add_message(messages, "user", question), done);
    TRY_GOTO(status, add_message(messages, "assistant", answer), done);
    (void)json_object_del(rest, "history"); /* it is read */
    status = jsonl_make_conversation(name, line, rest, json_incref(messages), out, NULL);
done:
    json_decref(rest);
    json_decref(messages);
    return status;
}

/* Refuses what only a chat template could apply. */
static enum status refuse_beside_alpaca(const char *name, int64_t line, const json_t *object) {
    json_t *rest = json_copy((json_t *)(uintptr_t)object);
    if (!rest) return status_no_memory(0, "an example");
    (void)json_object_del(rest, "system"); /* it is read */
    enum status status = jsonl_refuse_beside(name, line, rest);
    json_decref(rest);
    return status;
}

enum status jsonl_form_alpaca(const struct jsonl_columns *columns, const char *name, int64_t line, const json_t *object,
                              bool chat, json_t **out) {
    struct alpaca alpaca;
    struct text_buffer text = {0};
    TRY(read_alpaca(columns, name, line, object, &alpaca));
    if (!chat) TRY(refuse_beside_alpaca(name, line, object));
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
