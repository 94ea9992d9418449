#include "data/jsonl_unread.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/utf8.h"

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

static bool is_field(const char *key, unsigned fields, const struct jsonl_columns *columns) {
    for (int field = 0; field < JSONL_FIELDS; field++) {
        const char *own = fields >> field & 1 ? jsonl_key(columns, (enum jsonl_field)field) : NULL;
        if (own && strcmp(own, key) == 0) return true;
    }
    return false;
}

/* Those next to the fields are applied or refused (jsonl_conversation.h). */
static bool is_read(const char *key, unsigned fields, enum source_kind kind, const struct jsonl_columns *columns) {
    static const char *const beside[] = {"tools", "system", "chat_template_kwargs", "history"};
    if (is_field(key, fields, columns)) return true;
    for (size_t i = 0; i < sizeof beside / sizeof *beside && kind != SOURCE_JSONL; i++)
        if (strcmp(beside[i], key) == 0) return true;
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

static bool is_one_of(const char *name, const char *const *list) {
    while (*list && strcmp(*list, name) != 0)
        list++;
    return *list;
}

static bool names_one_of(const struct chat_template *chat, const char *const *list) {
    while (*list && !chat_template_names(chat, *list))
        list++;
    return *list;
}

static bool is_unset(const json_t *value) {
    return json_is_null(value) || (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

/* Keys of an object, apart from `known`, that the template does not name. */
static enum status add_unnamed(const json_t *object, const char *const *known, const struct chat_template *chat,
                               json_t **names) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        bool read = is_unset(value) || is_one_of(key, known) || chat_template_names(chat, key);
        if (!read) TRY(add_name(key, names));
    }
    return STATUS_OK;
}

/* Thoughts go to the template under each of their names (chat_template.h). */
static enum status add_message(const json_t *message, const struct chat_template *chat, json_t **names) {
    static const char *const thoughts[] = {"reasoning_content", "thinking", "reasoning", NULL};
    static const char *const known[] = {
        "role", "content",           "from",     "value",     "weight", "train", "training",
        "loss", "reasoning_content", "thinking", "reasoning", NULL};
    const char *from = json_string_value(json_object_get(message, "from"));
    bool calls = from && strcmp(from, "function_call") == 0;
    if (calls && !chat_template_names(chat, "tool_calls")) TRY(add_name(from, names));
    for (size_t i = 0; thoughts[i]; i++)
        if (json_string_length(json_object_get(message, thoughts[i])) > 0 && !names_one_of(chat, thoughts))
            TRY(add_name(thoughts[i], names));
    return add_unnamed(message, known, chat, names);
}

static enum status add_messages(const json_t *list, const struct chat_template *chat, json_t **names) {
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(add_message(json_array_get(list, i), chat, names));
    return STATUS_OK;
}

static enum status add_of_template(const json_t *row, const struct chat_template *chat, json_t **names) {
    static const char *const none[] = {NULL};
    const json_t *tools = json_object_get(row, "tools");
    const char *text = json_string_value(tools);
    bool given = tools && !is_unset(tools) && !(text && strcmp(text, "[]") == 0);
    if (given && !chat_template_names(chat, "tools")) TRY(add_name("tools", names));
    return add_unnamed(json_object_get(row, "chat_template_kwargs"), none, chat, names);
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
            TRY(add_messages(value, chat, names));
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
