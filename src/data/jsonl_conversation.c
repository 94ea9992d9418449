#include "data/jsonl_conversation.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "data/jsonl.h"

/* Keys of rows that would change the rendered text, and that no chat template reads. */
static const char *const refused_keys[] = {"images",    "image",         "videos", "video",   "audios",    "audio",
                                           "functions", "function_call", "weight", "history", "documents", "label",
                                           NULL};
/* Keys of chat_template_kwargs that are arguments of transformers' apply_chat_template instead of variables. */
static const char *const reserved[] = {"messages",
                                       "conversation",
                                       "tools",
                                       "chat_template",
                                       "add_generation_prompt",
                                       "continue_final_message",
                                       "tokenize",
                                       "padding",
                                       "truncation",
                                       "max_length",
                                       "return_tensors",
                                       "return_dict",
                                       "return_assistant_tokens_mask",
                                       "tokenizer_kwargs",
                                       NULL};

/* Whether a value changes nothing: null, an empty text, list or object, a weight of 1, and any label but false, which
 * marks an answer that is not to be learned (trl's unpaired preferences). */
static bool is_empty(const char *key, const json_t *value) {
    if (!value || json_is_null(value)) return true;
    if (strcmp(key, "label") == 0) return !json_is_false(value);
    if (strcmp(key, "weight") == 0 && json_is_number(value)) return fabs(json_number_value(value) - 1) < 1e-12;
    if (json_is_string(value)) return json_string_length(value) == 0;
    return (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static enum status refuse_others(const char *name, int64_t line, const json_t *object) {
    for (size_t i = 0; refused_keys[i]; i++)
        if (!is_empty(refused_keys[i], json_object_get(object, refused_keys[i])))
            return jsonl_refuse(name, line, refused_keys[i], ": cannot be applied; leave the key out");
    return STATUS_OK;
}

enum status jsonl_refuse_beside(const char *name, int64_t line, const json_t *object) {
    static const char *const keys[] = {"tools", "system", "chat_template_kwargs"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!is_empty(keys[i], json_object_get(object, keys[i])))
            return jsonl_refuse(name, line, keys[i], ": needs messages, which a chat template renders, and not texts");
    return refuse_others(name, line, object);
}

/* Integers beyond 64 bits are read as reals, which a template would print in another way. */
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

enum status jsonl_read_list(const char *name, int64_t line, const json_t *object, const char *key, json_t **out) {
    json_t *value = json_object_get(object, key);
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
    return null ? STATUS_OK : jsonl_refuse(name, line, key, ": must be a list, or JSON text of one");
}

static enum status add_tools(const char *name, int64_t line, const json_t *object, json_t *conversation) {
    json_t *tools;
    TRY(jsonl_read_list(name, line, object, "tools", &tools));
    if (!tools) return STATUS_OK;
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!json_is_object(json_array_get(tools, i))) {
            json_decref(tools);
            return jsonl_refuse(name, line, "tools", ": must be a list of objects, each the JSON schema of a function");
        }
    return json_object_set_new(conversation, "tools", tools) == 0 ? STATUS_OK : status_no_memory(0, "tools");
}

static enum status add_variables(const char *name, int64_t line, const json_t *object, json_t *conversation) {
    static const char key[] = "chat_template_kwargs";
    json_t *variables = json_object_get(object, key);
    if (!variables || json_is_null(variables)) return STATUS_OK;
    if (!json_is_object(variables)) return jsonl_refuse(name, line, key, ": must be an object");
    for (size_t i = 0; reserved[i]; i++)
        if (json_object_get(variables, reserved[i])) {
            (void)status_set(STATUS_BAD_INPUT, "%s: line %lld: %s.%s: is not a variable of chat templates", name,
                             (long long)line, key, reserved[i]);
            return status_hint(STATUS_BAD_INPUT, "messages and tools belong next to chat_template_kwargs");
        }
    return json_object_set(conversation, key, variables) == 0 ? STATUS_OK : status_no_memory(0, key);
}

static enum status add_system(const char *name, int64_t line, const json_t *object, json_t *messages, size_t *first) {
    const json_t *system = json_object_get(object, "system"), *begin = json_array_get(messages, 0);
    const char *role = json_string_value(json_object_get(begin, "role"));
    if (!system || json_is_null(system)) return STATUS_OK;
    if (!json_is_string(system)) return jsonl_refuse(name, line, "system", ": must be a string");
    if (json_string_length(system) == 0) return STATUS_OK;
    if (role && strcmp(role, "system") == 0) {
        if (json_equal(system, json_object_get(begin, "content"))) return STATUS_OK;
        return jsonl_refuse(name, line, "system",
                            ": differs from the system message that the conversation begins with");
    }
    json_t *message = json_pack("{s:s, s:O}", "role", "system", "content", system);
    if (json_array_insert_new(messages, 0, message) != 0) return status_no_memory(0, "messages");
    if (first) ++*first;
    return STATUS_OK;
}

static enum status fill_conversation(const char *name, int64_t line, const json_t *object, json_t *conversation,
                                     size_t *first) {
    json_t *messages = json_object_get(conversation, "messages");
    TRY(refuse_others(name, line, object));
    if (json_is_array(messages)) TRY(add_system(name, line, object, messages, first));
    TRY(add_tools(name, line, object, conversation));
    TRY(add_variables(name, line, object, conversation));
    if (!has_wide_number(conversation)) return STATUS_OK;
    return jsonl_refuse(name, line, "messages", ": hold a number beyond 64 bits");
}

enum status jsonl_make_conversation(const char *name, int64_t line, const json_t *object, json_t *messages,
                                    json_t **out, size_t *first) {
    /* A copy, so that the row's own list does not change. */
    json_t *own = json_is_array(messages) ? json_copy(messages) : json_incref(messages);
    json_t *conversation = own ? json_pack("{s:o}", "messages", own) : NULL;
    json_decref(messages);
    if (!conversation) return status_no_memory(0, "messages");
    enum status status = fill_conversation(name, line, object, conversation, first);
    if (status == STATUS_OK)
        *out = conversation;
    else
        json_decref(conversation);
    return status;
}
