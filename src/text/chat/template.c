#include "text/chat/template.h"

#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"

enum { FILE_LIMIT_BYTES = 1 << 24, VARIABLES_MAX = 64 };

static const char *const token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};
enum { TOKEN_NAMES = sizeof token_names / sizeof *token_names };

enum template_use { USE_DEFAULT, USE_TOOLS, USES };
static const char *const use_names[USES] = {"default", "tool_use"};

struct chat_template {
    struct jinja_template *templates[USES]; /* NULL: not there */
    json_t *tokens[TOKEN_NAMES];            /* strings; NULL: not there */
    XXH128_hash_t hash;
};

static void mix_hash(struct chat_template *chat, const void *data, size_t bytes) {
    chat->hash = XXH3_128bits_withSeed(data, bytes, chat->hash.low64 ^ chat->hash.high64 * 3);
}

static enum status add_template(struct chat_template *chat, enum template_use use, const char *name, const char *text,
                                size_t bytes) {
    if (chat->templates[use]) return status_set(STATUS_BAD_INPUT, "%s: a second template of that name", name);
    TRY(jinja_parse(name, text, bytes, &chat->templates[use]));
    mix_hash(chat, &use, sizeof use);
    mix_hash(chat, text, bytes);
    return STATUS_OK;
}

static enum status read_file(struct chat_template *chat, const char *folder, enum template_use use, const char *name) {
    char *path = path_join(folder, name), *text;
    size_t bytes;
    if (!path) return STATUS_FAILED;
    bool found = file_exists(path);
    enum status status = found ? file_read(path, FILE_LIMIT_BYTES, &text, &bytes) : STATUS_OK;
    if (found && status == STATUS_OK) {
        status = add_template(chat, use, path, text, bytes);
        mem_free(text);
    }
    mem_free(path);
    return status;
}

static enum status add_named(struct chat_template *chat, enum template_use use, const char *file, const json_t *text) {
    char *where = mem_format("%s: chat_template %s", file, use_names[use]);
    if (!where) return STATUS_FAILED;
    enum status status = add_template(chat, use, where, json_string_value(text), json_string_length(text));
    mem_free(where);
    return status;
}

static enum status read_named(struct chat_template *chat, const char *file, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i), *text = json_object_get(item, "template");
        const char *name = json_string_value(json_object_get(item, "name"));
        if (!name || !json_is_string(text))
            return status_set(STATUS_BAD_INPUT, "%s: chat_template: must be a list of {\"name\", \"template\"}", file);
        for (int use = 0; use < USES; use++)
            if (strcmp(name, use_names[use]) == 0) TRY(add_named(chat, (enum template_use)use, file, text));
    }
    return STATUS_OK;
}

static enum status read_config(struct chat_template *chat, const char *file, const json_t *object) {
    const json_t *value = json_object_get(object, "chat_template");
    if (json_is_array(value)) return read_named(chat, file, value);
    if (!value || json_is_null(value)) return STATUS_OK;
    if (!json_is_string(value))
        return status_set(STATUS_BAD_INPUT, "%s: chat_template: must be a string or a list", file);
    return add_named(chat, USE_DEFAULT, file, value);
}

/* Tokens that are not known yet: a string, or an object with its content. */
static void read_tokens(struct chat_template *chat, const json_t *object) {
    for (int i = 0; i < TOKEN_NAMES; i++) {
        json_t *value = json_object_get(object, token_names[i]);
        if (json_is_object(value)) value = json_object_get(value, "content");
        if (!json_is_string(value) || chat->tokens[i]) continue;
        chat->tokens[i] = json_incref(value);
        mix_hash(chat, token_names[i], strlen(token_names[i]) + 1);
        mix_hash(chat, json_string_value(value), json_string_length(value));
    }
}

/* One of the directory's two JSON files, which need not be there. */
static enum status read_json(struct chat_template *chat, const char *folder, const char *name, bool templates) {
    char *path = path_join(folder, name);
    if (!path) return STATUS_FAILED;
    json_t *object = NULL;
    enum status status = STATUS_OK;
    if (!file_exists(path)) goto done;
    TRY_GOTO(status, json_read_object(path, FILE_LIMIT_BYTES, &object), done);
    if (templates) TRY_GOTO(status, read_config(chat, path, object), done);
    read_tokens(chat, object);
done:
    json_decref(object);
    mem_free(path);
    return status;
}

static enum status read_folder(struct chat_template *chat, const char *folder) {
    TRY(read_file(chat, folder, USE_DEFAULT, "chat_template.jinja"));
    TRY(read_file(chat, folder, USE_TOOLS, "additional_chat_templates/tool_use.jinja"));
    bool files = chat->templates[USE_DEFAULT] || chat->templates[USE_TOOLS];
    TRY(read_json(chat, folder, "tokenizer_config.json", !files));
    return read_json(chat, folder, "special_tokens_map.json", false);
}

static enum status refuse_missing(const char *folder) {
    (void)status_set(STATUS_BAD_INPUT,
                     "%s: conversations need a chat template, and there is neither chat_template.jinja nor a (default) "
                     "\"chat_template\" in tokenizer_config.json",
                     folder);
    return status_hint(STATUS_BAD_INPUT,
                       "a base model has none: take its -instruct or -chat sibling's, or one like it");
}

enum status chat_template_find(const char *folder, struct chat_template **out) {
    struct chat_template *chat = mem_array(1, sizeof *chat);
    if (!chat) return STATUS_FAILED;
    enum status status = read_folder(chat, folder);
    bool found = status == STATUS_OK && chat->templates[USE_DEFAULT];
    if (!found) chat_template_free(chat);
    if (status == STATUS_OK) *out = found ? chat : NULL;
    return status;
}

enum status chat_template_open(const char *folder, struct chat_template **out) {
    struct chat_template *chat;
    TRY(chat_template_find(folder, &chat));
    if (!chat) return refuse_missing(folder);
    *out = chat;
    return STATUS_OK;
}

void chat_template_free(struct chat_template *chat) {
    if (!chat) return;
    for (int use = 0; use < USES; use++)
        jinja_free(chat->templates[use]);
    for (int i = 0; i < TOKEN_NAMES; i++)
        json_decref(chat->tokens[i]);
    mem_free(chat);
}

static bool uses_time(const struct chat_template *chat) {
    for (int use = 0; use < USES; use++)
        if (chat->templates[use] && jinja_uses_time(chat->templates[use])) return true;
    return false;
}

void chat_template_hash(const struct chat_template *chat, int64_t now_s, uint64_t out[2]) {
    struct chat_template copy = {.hash = chat->hash};
    if (uses_time(chat)) mix_hash(&copy, &now_s, sizeof now_s);
    out[0] = copy.hash.low64;
    out[1] = copy.hash.high64;
}

static const struct jinja_template *choose(const struct chat_template *chat, const json_t *tools) {
    bool has_tools = tools && !json_is_null(tools) && chat->templates[USE_TOOLS];
    return chat->templates[has_tools ? USE_TOOLS : USE_DEFAULT];
}

bool chat_template_has_generation(const struct chat_template *chat, const json_t *tools) {
    return jinja_has_generation(choose(chat, tools));
}

bool chat_template_names(const struct chat_template *chat, const char *name) {
    for (int use = 0; use < USES; use++)
        if (chat->templates[use] && jinja_names(chat->templates[use], name)) return true;
    return false;
}

/* Where a message's thoughts stand; NULL when it has none. */
static json_t *find_thoughts(const json_t *message) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *value = json_object_get(message, names[i]);
        if (value && !json_is_null(value)) return value;
    }
    return NULL;
}

static json_t *normalize_message(const json_t *message) {
    const char *key;
    json_t *value, *thoughts = find_thoughts(message), *copy = json_object();
    int failed = !copy;
    if (thoughts) failed |= json_object_set(copy, "thinking", thoughts);
    json_object_foreach((json_t *)(uintptr_t)message, key, value) {
        if (!json_is_null(value)) failed |= json_object_set(copy, key, value);
    }
    if (thoughts) failed |= json_object_set(copy, "reasoning_content", thoughts);
    if (!failed) return copy;
    json_decref(copy);
    return NULL;
}

enum status chat_check_messages(const json_t *messages) {
    if (!messages) return status_set(STATUS_BAD_INPUT, "messages: missing");
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return status_set(STATUS_BAD_INPUT, "messages: must be a list of at least one message");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        if (!json_is_object(message) || !json_is_string(json_object_get(message, "role")))
            return status_set(STATUS_BAD_INPUT, "messages[%zu]: must be an object with a \"role\"", i);
    }
    return STATUS_OK;
}

json_t *chat_normalize_messages(const json_t *messages) {
    json_t *all = json_array();
    int failed = !all;
    for (size_t i = 0; i < json_array_size(messages) && !failed; i++)
        failed |= json_array_append_new(all, normalize_message(json_array_get(messages, i)));
    if (!failed) return all;
    json_decref(all);
    (void)status_no_memory(0, "messages");
    return NULL;
}

enum status chat_template_render(const struct chat_template *chat, const struct chat_input *input,
                                 struct jinja_output *out) {
    json_t *prompt = input->add_generation_prompt ? json_true() : json_false(); /* both are never freed */
    struct jinja_variable variables[VARIABLES_MAX] = {
        {"messages", input->messages}, {"tools", input->tools}, {"add_generation_prompt", prompt}};
    size_t count = 3;
    if (!json_object_get(input->variables, "documents"))
        variables[count++] = (struct jinja_variable){"documents", NULL};
    for (int i = 0; i < TOKEN_NAMES; i++)
        if (chat->tokens[i] && !json_object_get(input->variables, token_names[i]))
            variables[count++] = (struct jinja_variable){token_names[i], chat->tokens[i]};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)input->variables, name, value) {
        if (count == VARIABLES_MAX) return status_set(STATUS_BAD_INPUT, "more variables than %d", VARIABLES_MAX);
        variables[count++] = (struct jinja_variable){name, value};
    }
    return jinja_render(choose(chat, input->tools), variables, count, input->now_s, out);
}
