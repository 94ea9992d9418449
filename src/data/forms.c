#include "data/source.h"

#include <math.h>

#include "base/json.h"
#include "base/terminal.h"
#include "base/text.h"
#include "text/chat/template.h"

/* Lists of keys, separated by spaces. */

/* Keys of rows that would change the rendered text, and that no chat template reads. */
static const char refused_keys[] =
    "images image videos video audios audio functions function_call weight history documents label";
/* Keys of text rows that only a chat template reads. */
static const char template_keys[] = "tools system chat_template_kwargs";
/* Keys of chat_template_kwargs that are arguments of transformers' apply_chat_template, not variables. */
static const char reserved[] = "messages conversation tools chat_template add_generation_prompt continue_final_message "
                               "tokenize padding truncation "
                               "max_length return_tensors return_dict return_assistant_tokens_mask tokenizer_kwargs";

static bool has_word(const char *list, const char *word) {
    for (size_t bytes; *list; list += bytes + (list[bytes] == ' ')) {
        bytes = strcspn(list, " ");
        if (strlen(word) == bytes && memcmp(list, word, bytes) == 0) return true;
    }
    return false;
}

/* Whether a value has no effect: null, an empty text, list or object, a weight of 1, and any label except false. A
 * false label marks an answer that is not to be learned (trl's unpaired preferences). */
static bool is_empty(const char *key, const json_t *value) {
    if (!value || json_is_null(value)) return true;
    if (strcmp(key, "label") == 0) return !json_is_false(value);
    if (strcmp(key, "weight") == 0 && json_is_number(value)) return fabs(json_number_value(value) - 1) < 1e-12;
    if (json_is_string(value)) return json_string_length(value) == 0;
    return (json_is_array(value) || json_is_object(value)) && json_array_size(value) + json_object_size(value) == 0;
}

/* `applied`, unless NULL, is a key that the row's form applies. */
static enum status refuse_keys(const struct jsonl_row *row, const char *keys, const char *applied, const char *wrong) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)row->object, key, value) {
        bool refused = has_word(keys, key) && !is_empty(key, value) && !(applied && strcmp(key, applied) == 0);
        if (refused) return jsonl_refuse(row, key, wrong);
    }
    return STATUS_OK;
}

static const char cannot_apply[] = ": cannot be applied; leave the key out";

enum status jsonl_refuse_beside(const struct jsonl_row *row, const char *applied) {
    TRY(refuse_keys(row, template_keys, applied, ": needs messages, which a chat template renders, and not texts"));
    return refuse_keys(row, refused_keys, applied, cannot_apply);
}

/* Integers beyond 64 bits are read as reals, which a template would print differently. */
static bool has_wide_number(const json_t *value) {
    const char *key;
    json_t *part;
    size_t i;
    if (json_is_real(value)) return fabs(json_real_value(value)) >= 0x1p63;
    json_array_foreach(value, i, part) {
        if (has_wide_number(part)) return true;
    }
    json_object_foreach((json_t *)(uintptr_t)value, key, part) {
        if (has_wide_number(part)) return true;
    }
    return false;
}

/* Reads a list, or JSON text of one. *out is NULL for null, an empty text or no value; the caller drops it. */
static enum status jsonl_read_list(const struct jsonl_row *row, const char *key, json_t **out) {
    json_t *value = json_object_get(row->object, key);
    json_error_t error;
    *out = NULL;
    if (!value || json_is_null(value) || (json_is_string(value) && is_empty(key, value))) return STATUS_OK;
    if (json_is_string(value))
        value = json_load(json_string_value(value), json_string_length(value), JSON_REJECT_DUPLICATES | JSON_DECODE_ANY,
                          NULL, &error);
    else
        json_incref(value);
    if (json_is_array(value)) {
        *out = value;
        return STATUS_OK;
    }
    bool null = json_is_null(value);
    json_decref(value);
    return null ? STATUS_OK : jsonl_refuse(row, key, ": must be a list, or JSON text of one");
}

static enum status add_tools(const struct jsonl_row *row, json_t *conversation) {
    json_t *tools;
    TRY(jsonl_read_list(row, "tools", &tools));
    if (!tools) return STATUS_OK;
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!json_is_object(json_array_get(tools, i))) {
            json_decref(tools);
            return jsonl_refuse(row, "tools", ": must be a list of objects, each the JSON schema of a function");
        }
    return json_object_set_new(conversation, "tools", tools) == 0 ? STATUS_OK : status_no_memory(0, "tools");
}

static enum status add_variables(const struct jsonl_row *row, json_t *conversation) {
    static const char key[] = "chat_template_kwargs";
    json_t *variables = json_object_get(row->object, key), *value;
    const char *name;
    if (!variables || json_is_null(variables)) return STATUS_OK;
    if (!json_is_object(variables)) return jsonl_refuse(row, key, ": must be an object");
    json_object_foreach(variables, name, value) {
        if (!has_word(reserved, name)) continue;
        (void)status_set(STATUS_BAD_INPUT, "%s: line %lld: %s.%s: is not a variable of chat templates", row->name,
                         (long long)row->line, key, name);
        return status_hint(STATUS_BAD_INPUT, "messages and tools belong next to chat_template_kwargs");
    }
    return json_object_set(conversation, key, variables) == 0 ? STATUS_OK : status_no_memory(0, key);
}

static enum status add_system(const struct jsonl_row *row, json_t *messages, size_t *first) {
    const json_t *system = json_object_get(row->object, "system"), *begin = json_array_get(messages, 0);
    const char *role = json_string_value(json_object_get(begin, "role"));
    if (!system || json_is_null(system)) return STATUS_OK;
    if (!json_is_string(system)) return jsonl_refuse(row, "system", ": must be a string");
    if (json_string_length(system) == 0) return STATUS_OK;
    if (role && strcmp(role, "system") == 0) {
        if (json_equal(system, json_object_get(begin, "content"))) return STATUS_OK;
        return jsonl_refuse(row, "system", ": differs from the system message that the conversation begins with");
    }
    json_t *message = json_pack("{s:s, s:O}", "role", "system", "content", system);
    if (json_array_insert_new(messages, 0, message) != 0) return status_no_memory(0, "messages");
    if (first) ++*first;
    return STATUS_OK;
}

static enum status fill_conversation(const struct jsonl_row *row, const char *applied, json_t *conversation,
                                     size_t *first) {
    json_t *messages = json_object_get(conversation, "messages");
    TRY(refuse_keys(row, refused_keys, applied, cannot_apply));
    if (json_is_array(messages)) TRY(add_system(row, messages, first));
    TRY(add_tools(row, conversation));
    TRY(add_variables(row, conversation));
    if (!has_wide_number(conversation)) return STATUS_OK;
    return jsonl_refuse(row, "messages", ": hold a number beyond 64 bits");
}

enum status jsonl_make_conversation(const struct jsonl_row *row, const char *applied, json_t *messages, json_t **out,
                                    size_t *first) {
    /* A copy, so that the row's own list does not change. */
    json_t *own = json_is_array(messages) ? json_copy(messages) : json_incref(messages);
    json_t *conversation = json_pack("{s:o}", "messages", own);
    json_decref(messages);
    if (!conversation) return status_no_memory(0, "messages");
    enum status status = fill_conversation(row, applied, conversation, first);
    *out = json_unless(status != STATUS_OK, conversation);
    return status;
}

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

/* The value of a function_call turn: JSON text of a call, or of a list of calls. NULL if it is neither. */
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
    return json_unless(!good, calls);
}

/* A turn as a message: its role, its text and all other keys. NULL if it is not in ShareGPT's form. */
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
    return json_unless(failed, message);
}

static enum status add_turns(const struct jsonl_row *row, const json_t *list, json_t *messages) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *message = form_turn(json_array_get(list, i));
        if (message && json_array_append_new(messages, message) == 0) continue;
        (void)status_set(STATUS_BAD_INPUT,
                         "%s: line %lld: conversations[%zu]: must be {\"from\": human, gpt, system, tool, observation "
                         "or function_call, \"value\": \"...\"}",
                         row->name, (long long)row->line, i);
        return status_hint(STATUS_BAD_INPUT, "the value of function_call is JSON text: {\"name\", \"arguments\"}");
    }
    return STATUS_OK;
}

/* Concatenates two lists of messages; NULL without memory. */
static json_t *join_messages(json_t *first, json_t *second) {
    json_t *messages = json_array();
    int failed = json_array_extend(messages, first) != 0 || json_array_extend(messages, second) != 0;
    return json_unless(failed, messages);
}

/* Prompt and completion as messages; those from *first on are the completion. */
static enum status join_completion(const struct jsonl_row *row, json_t **messages, size_t *first) {
    const char *keys[] = {jsonl_key(row->columns, JSONL_PROMPT), jsonl_key(row->columns, JSONL_COMPLETION)};
    json_t *parts[2];
    for (int i = 0; i < 2; i++) {
        parts[i] = keys[i] ? json_object_get(row->object, keys[i]) : NULL;
        if (!json_is_array(parts[i]))
            return jsonl_refuse(row, keys[i] ? keys[i] : "completion", ": must be a list of messages");
    }
    *first = json_array_size(parts[0]);
    *messages = join_messages(parts[0], parts[1]);
    return STATUS_OK;
}

static enum status find_messages(const struct jsonl_row *row, json_t **messages, size_t *first) {
    const char *key = jsonl_key(row->columns, JSONL_MESSAGES), *prompt = jsonl_key(row->columns, JSONL_PROMPT);
    json_t *list = key ? json_object_get(row->object, key) : NULL;
    if (!list && prompt && json_object_get(row->object, prompt)) return join_completion(row, messages, first);
    if (!list) list = json_object_get(row->object, "conversations");
    if (!list) return jsonl_refuse_missing(row, key ? key : "messages");
    if (!json_object_get(json_array_get(list, 0), "from")) {
        *messages = json_incref(list);
        return STATUS_OK;
    }
    json_t *made = json_array();
    enum status status = made ? add_turns(row, list, made) : status_no_memory(0, "messages");
    *messages = json_unless(status != STATUS_OK, made);
    return status;
}

enum status jsonl_form_conversation(const struct jsonl_row *row, json_t **out, size_t *first) {
    json_t *messages = NULL;
    *first = 0;
    TRY(find_messages(row, &messages, first));
    return jsonl_make_conversation(row, NULL, messages, out, first);
}

/* The fields of a line; missing ones are NULL. */
struct alpaca {
    const json_t *instruction, *input, *output, *system;
};

/* Reads an optional text. */
static enum status read_optional(const struct jsonl_row *row, const char *key, const json_t **out) {
    const json_t *value = key ? json_object_get(row->object, key) : NULL;
    *out = NULL;
    return !value || json_is_null(value) ? STATUS_OK : jsonl_read_string(row, key, out);
}

static enum status read_alpaca(const struct jsonl_row *row, struct alpaca *out) {
    TRY(jsonl_read_string(row, jsonl_key(row->columns, JSONL_INSTRUCTION), &out->instruction));
    TRY(jsonl_read_string(row, jsonl_key(row->columns, JSONL_OUTPUT), &out->output));
    TRY(read_optional(row, "system", &out->system));
    return read_optional(row, jsonl_key(row->columns, JSONL_INPUT), &out->input);
}

static enum status append_text(struct text_buffer *out, const char *text) {
    return text_append(out, text, strlen(text));
}

static enum status append_string(struct text_buffer *out, const json_t *string) {
    return text_append(out, json_string_value(string), json_string_length(string));
}

static enum status write_question(const struct alpaca *alpaca, struct text_buffer *out) {
    TRY(append_string(out, alpaca->instruction));
    if (json_string_length(alpaca->input) == 0) return STATUS_OK;
    TRY(append_text(out, "\n\n"));
    return append_string(out, alpaca->input);
}

static enum status write_prompt(const struct alpaca *alpaca, struct text_buffer *out) {
    bool has_input = json_string_length(alpaca->input) > 0;
    if (json_string_length(alpaca->system) > 0) { /* replaces Alpaca's first paragraph, as in LLaMA-Factory and
                                                   * axolotl */
        TRY(append_string(out, alpaca->system));
    } else {
        TRY(append_text(out, "Below is an instruction that describes a task"));
        if (has_input) TRY(append_text(out, ", paired with an input that provides further context"));
        TRY(append_text(out, ". Write a response that appropriately completes the request."));
    }
    TRY(append_text(out, "\n\n### Instruction:\n"));
    TRY(append_string(out, alpaca->instruction));
    if (has_input) TRY(append_text(out, "\n\n### Input:\n"));
    TRY(append_string(out, alpaca->input));
    return append_text(out, "\n\n### Response:\n");
}

/* Earlier questions and answers: a list of pairs, or JSON text of one. */
static enum status add_history(const struct jsonl_row *row, json_t *messages) {
    json_auto_t *history = NULL;
    TRY(jsonl_read_list(row, "history", &history));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < json_array_size(history) && status == STATUS_OK; i++) {
        const json_t *pair = json_array_get(history, i), *turn[2] = {json_array_get(pair, 0), json_array_get(pair, 1)};
        if (json_array_size(pair) != 2 || !json_is_string(turn[0]) || !json_is_string(turn[1]))
            status = jsonl_refuse(row, "history", ": must be a list of pairs, [\"question\", \"answer\"]");
        else if ((status = add_message(messages, "user", turn[0])) == STATUS_OK)
            status = add_message(messages, "assistant", turn[1]);
    }
    return status;
}

static enum status make_alpaca_chat(const struct jsonl_row *row, const json_t *question, const json_t *answer,
                                    json_t **out) {
    json_t *messages = json_array();
    enum status status;
    TRY_GOTO(status, messages ? STATUS_OK : status_no_memory(0, "messages"), failed);
    TRY_GOTO(status, add_history(row, messages), failed);
    TRY_GOTO(status, add_message(messages, "user", question), failed);
    TRY_GOTO(status, add_message(messages, "assistant", answer), failed);
    return jsonl_make_conversation(row, "history", messages, out, NULL);
failed:
    json_decref(messages);
    return status;
}

/* A row of texts; a NULL text is one that could not be made. */
static enum status make_texts(const json_t *prompt, const json_t *completion, json_t **out) {
    *out = json_pack("{s:O, s:O}", "prompt", prompt, "completion", completion);
    return *out ? STATUS_OK : status_no_memory(0, "an example");
}

enum status jsonl_form_alpaca(const struct jsonl_row *row, bool chat, json_t **out) {
    struct alpaca alpaca = {0};
    struct text_buffer text = {0};
    TRY(read_alpaca(row, &alpaca));
    if (!chat) TRY(jsonl_refuse_beside(row, "system"));
    enum status status = chat ? write_question(&alpaca, &text) : write_prompt(&alpaca, &text);
    json_auto_t *question = json_stringn(text.count > 0 ? text.items : "", text.count);
    vec_free(&text);
    if (status == STATUS_OK)
        status = chat ? make_alpaca_chat(row, question, alpaca.output, out) : make_texts(question, alpaca.output, out);
    return status;
}

/* A line of texts. */
static enum status form_texts(const struct jsonl_row *row, const char *field, json_t **out) {
    const json_t *prompt, *answer;
    const char *key = jsonl_key(row->columns, JSONL_PROMPT);
    if (!key) return jsonl_refuse_missing(row, "prompt");
    TRY(jsonl_refuse_beside(row, NULL));
    TRY(jsonl_read_string(row, key, &prompt));
    TRY(jsonl_read_string(row, field, &answer));
    return make_texts(prompt, answer, out);
}

/* Number of messages that both lists begin with. Leaves at least one of each. */
static size_t count_common(const json_t *a, const json_t *b) {
    size_t common = 0;
    while (common + 1 < json_array_size(a) && common + 1 < json_array_size(b) &&
           json_equal(json_array_get(a, common), json_array_get(b, common)))
        common++;
    return common;
}

static bool answers(const json_t *messages) {
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
        if (role && strcmp(role, "assistant") == 0) return true;
    }
    return false;
}

static enum status form_messages(const struct jsonl_row *row, const char *field, const char *other, json_t **out,
                                 size_t *first) {
    const char *key = jsonl_key(row->columns, JSONL_PROMPT);
    json_t *prompt = key ? json_object_get(row->object, key) : NULL, *answer = json_object_get(row->object, field);
    bool begun = json_is_array(prompt);
    if (prompt && !begun && !json_is_string(prompt) && !json_is_null(prompt))
        return jsonl_refuse(row, key, ": must be a list of messages");
    if (!answers(answer)) return jsonl_refuse(row, field, ": has no assistant's turn");
    *first = begun ? json_array_size(prompt) : count_common(answer, json_object_get(row->object, other));
    if (*first == 0 && json_string_length(prompt) > 0)
        return jsonl_refuse(row, key, ": is a text, and the answers' messages do not begin with it");
    json_t *messages = begun ? join_messages(prompt, answer) : json_incref(answer);
    return jsonl_make_conversation(row, NULL, messages, out, first);
}

enum status jsonl_form_preference(const struct jsonl_row *row, enum jsonl_field field, json_t **out, size_t *first) {
    const char *keys[] = {jsonl_key(row->columns, JSONL_CHOSEN), jsonl_key(row->columns, JSONL_REJECTED)};
    const char *own = keys[field == JSONL_REJECTED], *other = keys[field == JSONL_CHOSEN];
    const json_t *values[2];
    *first = 0;
    for (int i = 0; i < 2; i++) {
        values[i] = json_object_get(row->object, keys[i]);
        if (!values[i]) return jsonl_refuse_missing(row, keys[i]);
        if (!json_is_string(values[i]) && !json_is_array(values[i]))
            return jsonl_refuse(row, keys[i], ": must be a string or a list of messages");
    }
    if (json_typeof(values[0]) != json_typeof(values[1]))
        return jsonl_refuse(row, keys[1], ": must be of the type of the chosen answer");
    if (json_is_string(values[0])) return form_texts(row, own, out);
    return form_messages(row, own, other, out, first);
}

/* --- unread keys --- */

enum { NAMES_MAX = 24, NAME_BYTES = 40 };

#define BIT(field) (1u << JSONL_##field)

static bool holds(const json_t *row, const struct jsonl_columns *columns, enum jsonl_field field) {
    const char *key = jsonl_key(columns, field);
    return key && json_object_get(row, key);
}

static unsigned fields_of(const json_t *row, enum source_kind kind, const struct jsonl_columns *columns) {
    switch (kind) {
    case SOURCE_JSONL: return BIT(TEXT);
    case SOURCE_PROMPTS: return BIT(PROMPT) | BIT(COMPLETION);
    case SOURCE_ALPACA: return BIT(INSTRUCTION) | BIT(INPUT) | BIT(OUTPUT);
    case SOURCE_PREFERENCES:
    case SOURCE_PREFERENCE_CHATS: return BIT(PROMPT) | BIT(CHOSEN) | BIT(REJECTED);
    case SOURCE_CHAT:
        if (holds(row, columns, JSONL_MESSAGES)) return BIT(MESSAGES);
        return holds(row, columns, JSONL_PROMPT) ? BIT(PROMPT) | BIT(COMPLETION) : 0;
    case SOURCE_TEXT:
    case SOURCE_TOKENS: break;
    }
    return 0;
}

/* Keys next to the fields are applied or rejected (source.h). */
static bool is_read(const char *key, unsigned fields, enum source_kind kind, const struct jsonl_columns *columns) {
    for (int field = 0; field < JSONL_FIELDS; field++) {
        const char *own = fields >> field & 1 ? jsonl_key(columns, (enum jsonl_field)field) : NULL;
        if (own && strcmp(own, key) == 0) return true;
    }
    if (kind != SOURCE_JSONL && (has_word(template_keys, key) || strcmp(key, "history") == 0)) return true;
    return kind == SOURCE_CHAT && fields == 0 && strcmp(key, "conversations") == 0;
}

static bool is_in(const json_t *names, const char *name) {
    size_t i;
    json_t *known;
    json_array_foreach(names, i, known) {
        if (strcmp(json_string_value(known), name) == 0) return true;
    }
    return false;
}

static enum status add_name(const char *name, json_t **names) {
    if (!*names) *names = json_array();
    if (json_array_size(*names) > NAMES_MAX || is_in(*names, name)) return STATUS_OK;
    if (json_array_size(*names) == NAMES_MAX) name = "...";
    return json_array_append_new(*names, json_string(name)) == 0 ? STATUS_OK : status_no_memory(0, "names of keys");
}

static bool names_one_of(const struct chat_template *chat, const char *const *list) {
    while (*list && !chat_template_names(chat, *list))
        list++;
    return *list;
}

/* Adds keys of an object, except `known`, that the template does not name. */
static enum status add_unnamed(const json_t *object, const char *known, const struct chat_template *chat,
                               json_t **names) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        bool read = is_empty("", value) || has_word(known, key) || chat_template_names(chat, key);
        if (!read) TRY(add_name(key, names));
    }
    return STATUS_OK;
}

/* Thoughts are passed to the template under each of their names (text/chat/template.h). */
static enum status add_message_keys(const json_t *message, const struct chat_template *chat, json_t **names) {
    static const char *const thoughts[] = {"reasoning_content", "thinking", "reasoning", NULL};
    static const char known[] =
        "role content from value weight train training loss reasoning_content thinking reasoning";
    const char *from = json_string_value(json_object_get(message, "from"));
    bool calls = from && strcmp(from, "function_call") == 0;
    if (calls && !chat_template_names(chat, "tool_calls")) TRY(add_name(from, names));
    for (size_t i = 0; thoughts[i]; i++)
        if (json_string_length(json_object_get(message, thoughts[i])) > 0 && !names_one_of(chat, thoughts))
            TRY(add_name(thoughts[i], names));
    return add_unnamed(message, known, chat, names);
}

static enum status add_of_template(const json_t *row, const struct chat_template *chat, json_t **names) {
    const json_t *tools = json_object_get(row, "tools");
    const char *text = json_string_value(tools);
    bool given = !is_empty("", tools) && !(text && strcmp(text, "[]") == 0);
    if (given && !chat_template_names(chat, "tools")) TRY(add_name("tools", names));
    return add_unnamed(json_object_get(row, "chat_template_kwargs"), "", chat, names);
}

enum status jsonl_unread_add(const json_t *row, enum source_kind kind, const struct jsonl_columns *columns,
                             const struct chat_template *chat, json_t **names) {
    unsigned fields = fields_of(row, kind, columns);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)row, key, value) {
        bool read = is_read(key, fields, kind, columns);
        if (!json_is_null(value) && !read) TRY(add_name(key, names));
        if (chat && read && strcmp(key, "tools") != 0 && strcmp(key, "history") != 0)
            for (size_t i = 0; i < json_array_size(value); i++)
                TRY(add_message_keys(json_array_get(value, i), chat, names));
    }
    return chat ? add_of_template(row, chat, names) : STATUS_OK;
}

enum status jsonl_unread_join(const json_t *more, json_t **names) {
    size_t i;
    json_t *name;
    json_array_foreach(more, i, name) TRY(add_name(json_string_value(name), names));
    return STATUS_OK;
}

void jsonl_unread_report(const char *file, const json_t *names) {
    char text[NAMES_MAX * (NAME_BYTES + 2) + 8] = "";
    size_t i, used = 0;
    json_t *name;
    json_array_foreach(names, i, name) {
        const char *key = json_string_value(name);
        size_t bytes = json_string_length(name);
        if (bytes > NAME_BYTES) bytes = utf8_floor(key, NAME_BYTES);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.*s", used > 0 ? ", " : "", (int)bytes, key);
    }
    if (text[0]) log_note("%s: row keys that are not read: %s", file, text);
}
