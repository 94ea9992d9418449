#include "data/jsonl_preference.h"

#include <string.h>

#include "data/jsonl_conversation.h"

/* A line of texts. */
static enum status form_texts(const struct jsonl_columns *columns, const char *name, int64_t line, const json_t *object,
                              const char *field, json_t **out) {
    const char *prompt, *answer, *key = jsonl_key(columns, JSONL_PROMPT);
    size_t prompt_bytes, answer_bytes;
    if (!key) return jsonl_refuse_missing(name, line, "prompt", object);
    TRY(jsonl_refuse_beside(name, line, object));
    TRY(jsonl_read_string(name, line, object, key, &prompt, &prompt_bytes));
    TRY(jsonl_read_string(name, line, object, field, &answer, &answer_bytes));
    *out = json_pack("{s:s%, s:s%}", "prompt", prompt, prompt_bytes, "completion", answer, answer_bytes);
    return *out ? STATUS_OK : status_no_memory(0, "an example");
}

/* Messages that both lists begin with; of each at least one is left. */
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

/* The prompt's messages and those of the answer, in one list. */
static json_t *join_messages(json_t *prompt, json_t *answer) {
    json_t *messages = json_array();
    if (messages && json_array_extend(messages, prompt) == 0 && json_array_extend(messages, answer) == 0)
        return messages;
    json_decref(messages);
    return NULL;
}

static enum status form_messages(const struct jsonl_columns *columns, const char *name, int64_t line,
                                 const json_t *object, const char *field, const char *other, json_t **out,
                                 size_t *first) {
    const char *key = jsonl_key(columns, JSONL_PROMPT);
    json_t *prompt = key ? json_object_get(object, key) : NULL, *answer = json_object_get(object, field);
    bool begun = json_is_array(prompt);
    if (prompt && !begun && !json_is_string(prompt) && !json_is_null(prompt))
        return jsonl_refuse(name, line, key, ": must be a list of messages");
    if (!answers(answer)) return jsonl_refuse(name, line, field, ": has no assistant's turn");
    *first = begun ? json_array_size(prompt) : count_common(answer, json_object_get(object, other));
    if (*first == 0 && json_string_length(prompt) > 0)
        return jsonl_refuse(name, line, key, ": is a text, and the answers' messages do not begin with it");
    json_t *messages = begun ? join_messages(prompt, answer) : json_incref(answer);
    return jsonl_make_conversation(name, line, object, messages, out, first);
}

enum status jsonl_form_preference(const struct jsonl_columns *columns, const char *name, int64_t line,
                                  const json_t *object, enum jsonl_field field, json_t **out, size_t *first) {
    const char *keys[] = {jsonl_key(columns, JSONL_CHOSEN), jsonl_key(columns, JSONL_REJECTED)};
    const char *own = keys[field == JSONL_REJECTED], *other = keys[field == JSONL_CHOSEN];
    const json_t *chosen = json_object_get(object, keys[0]), *rejected = json_object_get(object, keys[1]);
    *first = 0;
    for (int i = 0; i < 2; i++)
        if (!json_object_get(object, keys[i])) return jsonl_refuse_missing(name, line, keys[i], object);
    for (int i = 0; i < 2; i++) {
        const json_t *value = i == 0 ? chosen : rejected;
        if (!json_is_string(value) && !json_is_array(value))
            return jsonl_refuse(name, line, keys[i], ": must be a string or a list of messages");
    }
    if (json_is_string(chosen) != json_is_string(rejected))
        return jsonl_refuse(name, line, keys[1], ": must be of the type of the chosen answer");
    if (json_is_string(chosen)) return form_texts(columns, name, line, object, own, out);
    return form_messages(columns, name, line, object, own, other, out, first);
}
