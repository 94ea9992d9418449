#include "text/chat/template.h"

#include <strings.h>
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
    AUTO_FREE char *path = path_join(folder, name);
    char *text;
    size_t bytes;
    if (!path) return STATUS_FAILED;
    bool found = file_exists(path);
    enum status status = found ? file_read(path, FILE_LIMIT_BYTES, &text, &bytes) : STATUS_OK;
    if (found && status == STATUS_OK) {
        status = add_template(chat, use, path, text, bytes);
        mem_free(text);
    }
    return status;
}

static enum status add_named(struct chat_template *chat, enum template_use use, const char *file, const json_t *text) {
    AUTO_FREE char *where = mem_format("%s: chat_template %s", file, use_names[use]);
    if (!where) return STATUS_FAILED;
    return add_template(chat, use, where, json_string_value(text), json_string_length(text));
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
    AUTO_FREE char *path = path_join(folder, name);
    if (!path) return STATUS_FAILED;
    json_auto_t *object = NULL;
    if (!file_exists(path)) return STATUS_OK;
    TRY(json_read_object(path, FILE_LIMIT_BYTES, &object));
    if (templates) TRY(read_config(chat, path, object));
    read_tokens(chat, object);
    return STATUS_OK;
}

static enum status read_folder(struct chat_template *chat, const char *folder) {
    TRY(read_file(chat, folder, USE_DEFAULT, "chat_template.jinja"));
    TRY(read_file(chat, folder, USE_TOOLS, "additional_chat_templates/tool_use.jinja"));
    bool files = chat->templates[USE_DEFAULT] || chat->templates[USE_TOOLS];
    TRY(read_json(chat, folder, "tokenizer_config.json", !files));
    return read_json(chat, folder, "special_tokens_map.json", false);
}

static enum status refuse_missing(const char *folder) {
    return status_set(
        STATUS_BAD_INPUT,
        "%s: conversations need a chat template, and there is neither chat_template.jinja nor a (default) "
        "\"chat_template\" in tokenizer_config.json" HINT
        "a base model has none: take its -instruct or -chat sibling's, or one like it",
        folder);
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

/* A message's thoughts; NULL if it has none. */
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
    return json_unless(failed, copy);
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

/* The list; NULL, with a message, where part of it could not be made. */
static json_t *made_messages(int failed, json_t *list) {
    list = json_unless(failed, list);
    if (!list) (void)status_no_memory(0, "messages");
    return list;
}

json_t *chat_normalize_messages(const json_t *messages) {
    json_t *all = json_array();
    int failed = 0;
    for (size_t i = 0; i < json_array_size(messages); i++)
        failed |= json_array_append_new(all, normalize_message(json_array_get(messages, i)));
    return made_messages(failed, all);
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

/* --- marks --- */

/* A mark is two characters. All are noncharacters, which Unicode keeps out of texts; they are no white space, have no
 * case, and JSON does not escape them. */
#define MARK_OWN "\uFDD0\uFDD1"
#define MARK_OTHER "\uFDD0\uFDD2"
/* As Python's repr writes them: templates that do not know contents in parts print the list itself. */
#define MARK_OWN_ESCAPED "\\ufdd0\\ufdd1"
#define MARK_OTHER_ESCAPED "\\ufdd0\\ufdd2"
enum { MARK_BYTES = sizeof MARK_OWN - 1 };

/* A string that is being marked: [first, end) are its words. */
struct marking {
    struct text_buffer text;
    const char *from;
    size_t bytes, first, end, done; /* done: bytes that were copied */
    bool own;
};

static enum status put_mark(struct marking *m, size_t at) {
    TRY(text_append(&m->text, m->from + m->done, at - m->done));
    m->done = at;
    return text_append(&m->text, m->own ? MARK_OWN : MARK_OTHER, MARK_BYTES);
}

static bool begins_tag(char c) { return c == '<' || c == '['; }

/* The place behind the next tag of thoughts (<think>, </think>, [THINK], <|END_THINKING|>) and the white space after
 * it; the words' end when there is none. */
static size_t pass_tag(const struct marking *m, size_t at) {
    enum { NAME_REST = 16 };
    for (; at + 5 < m->end; at++) {
        if (strncasecmp(m->from + at, "think", 5) != 0) continue;
        size_t close = at + 5, last = m->end - close < NAME_REST ? m->end : close + NAME_REST;
        while (close < last && m->from[close] != '>' && m->from[close] != ']')
            close++;
        if (close == last) continue;
        return close + 1 + jinja_leading_space(m->from + close + 1, m->end - close - 1);
    }
    return m->end;
}

static enum status mark_words(struct marking *m, bool sparse) {
    if (m->own) {
        if (!sparse || !begins_tag(m->from[m->first])) TRY(put_mark(m, m->first));
        for (size_t at = pass_tag(m, m->first); at < m->end; at = pass_tag(m, at))
            TRY(put_mark(m, at));
    }
    TRY(put_mark(m, m->end));
    return text_append(&m->text, m->from + m->done, m->bytes - m->done);
}

/* A string with marks. With sparse marks, a string without words stays unchanged, since templates test for words. */
static json_t *mark_string(json_t *value, bool own, bool sparse) {
    struct marking m = {.from = json_string_value(value), .bytes = json_string_length(value), .own = own};
    m.first = jinja_leading_space(m.from, m.bytes);
    if (m.first == m.bytes && sparse) return json_incref(value);
    m.end = m.first == m.bytes ? m.bytes : m.bytes - jinja_trailing_space(m.from, m.bytes);
    json_t *made = mark_words(&m, sparse) == STATUS_OK ? json_stringn(m.text.items, m.text.count) : NULL;
    vec_free(&m.text);
    return made;
}

/* The texts of a content in parts: all of the turn's own, else the last. */
static json_t *mark_parts(json_t *list, bool own, bool sparse) {
    json_t *copy = json_copy(list);
    int failed = 0;
    bool done = false;
    for (size_t i = json_array_size(list); i-- > 0 && (own || !done);) {
        json_t *part = json_array_get(list, i), *text = json_object_get(part, "text");
        if (!json_is_string(text)) continue;
        part = json_copy(part);
        failed |= json_object_set_new(part, "text", mark_string(text, own, sparse));
        failed |= json_array_set_new(copy, i, part);
        done = true;
    }
    return json_unless(failed, copy);
}

static json_t *mark_value(json_t *value, bool own, bool sparse) {
    if (json_is_string(value)) return mark_string(value, own, sparse);
    return json_is_array(value) ? mark_parts(value, own, sparse) : json_incref(value);
}

static json_t *mark_message(json_t *message, bool own, bool sparse) {
    static const char *const fields[] = {"content", "thinking", "reasoning_content", "reasoning"};
    json_t *copy = json_copy(message);
    int failed = 0;
    for (size_t i = 0; i < (own ? sizeof fields / sizeof *fields : 1); i++) {
        json_t *value = json_object_get(message, fields[i]);
        if (value) failed |= json_object_set_new(copy, fields[i], mark_value(value, own, sparse));
    }
    return json_unless(failed, copy);
}

json_t *chat_marks_put(const json_t *messages, size_t own, bool sparse) {
    json_t *all = json_array();
    int failed = 0;
    size_t count = json_array_size(messages), last = own < count ? own : count; /* behind the last of the others */
    for (size_t i = 0; i < count; i++) {
        json_t *message = json_array_get(messages, i);
        bool marked = i == own || !sparse || i + 1 == last;
        failed |= json_array_append_new(all, marked ? mark_message(message, i == own, sparse) : json_incref(message));
    }
    return made_messages(failed, all);
}

/* The bytes of a mark at a place; 0: there is none. */
static size_t find_mark(const char *text, size_t bytes, bool *own) {
    static const struct {
        const char *text;
        bool own;
    } marks[] = {{MARK_OWN, true}, {MARK_OTHER, false}, {MARK_OWN_ESCAPED, true}, {MARK_OTHER_ESCAPED, false}};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        size_t length = strlen(marks[i].text);
        if (bytes < length || memcmp(text, marks[i].text, length) != 0) continue;
        *own = marks[i].own;
        return length;
    }
    return 0;
}

enum status chat_marks_take(struct chat_marks *marks, struct text_buffer *text) {
    size_t to = 0;
    marks->places.count = 0;
    for (size_t at = 0; at < text->count;) {
        bool own, may = text->items[at] == MARK_OWN[0] || text->items[at] == '\\';
        size_t bytes = may ? find_mark(text->items + at, text->count - at, &own) : 0;
        if (bytes > 0) {
            TRY(vec_push(&marks->places, (struct chat_place){to, own}));
            at += bytes;
        } else {
            text->items[to++] = text->items[at++];
        }
    }
    text->count = to;
    return STATUS_OK;
}

/* --- docs/chat.md --- */

extern const unsigned char chat_prose[]; /* document.md */

void chat_print_document(FILE *out) {
    static const char *const titles[] = {[JINJA_FILTERS] = "filters",
                                         [JINJA_TESTS] = "tests",
                                         [JINJA_FUNCTIONS] = "functions",
                                         [JINJA_STRING_METHODS] = "methods of strings",
                                         [JINJA_DICT_METHODS] = "methods of dicts"};
    const char *name;
    fputs((const char *)chat_prose, out);
    for (size_t names = 0; names < sizeof titles / sizeof *titles; names++) {
        fprintf(out, "- %s: ", titles[names]);
        for (size_t i = 0; (name = jinja_name((enum jinja_names)names, i)); i++)
            fprintf(out, "%s`%s`", i == 0 ? "" : ", ", name);
        fputs("\n", out);
    }
}
