#include "text/chat/chat_marks.h"

#include <string.h>
#include <strings.h>

#include "text/template/jinja_text.h"

/* A mark is two characters. All are noncharacters, which Unicode keeps out of texts; they are no white space, have no
 * case, and JSON does not escape them. */
#define MARK_OWN "\uFDD0\uFDD1"
#define MARK_OTHER "\uFDD0\uFDD2"
/* As Python's repr writes them: templates that do not know contents in parts print the list itself. */
#define MARK_OWN_ESCAPED "\\ufdd0\\ufdd1"
#define MARK_OTHER_ESCAPED "\\ufdd0\\ufdd2"
enum { MARK_BYTES = sizeof MARK_OWN - 1 };

void chat_marks_free(struct chat_marks *marks) { vec_free(&marks->places); }

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

static json_t *mark_value(json_t *value, bool own, bool sparse);

/* The texts of a content in parts: all of the turn's own, else the last. */
static json_t *mark_parts(json_t *list, bool own, bool sparse) {
    json_t *copy = json_copy(list);
    bool done = false;
    for (size_t i = json_array_size(list); i-- > 0 && copy && (own || !done);) {
        json_t *part = json_array_get(list, i), *text = json_object_get(part, "text"), *made;
        if (!json_is_string(text)) continue;
        made = json_copy(part);
        if (!made || json_object_set_new(made, "text", mark_string(text, own, sparse)) != 0 ||
            json_array_set(copy, i, made) != 0) {
            json_decref(copy);
            copy = NULL;
        }
        json_decref(made);
        done = true;
    }
    return copy;
}

static json_t *mark_value(json_t *value, bool own, bool sparse) {
    if (json_is_string(value)) return mark_string(value, own, sparse);
    return json_is_array(value) ? mark_parts(value, own, sparse) : json_incref(value);
}

static json_t *mark_message(json_t *message, bool own, bool sparse) {
    static const char *const fields[] = {"content", "thinking", "reasoning_content", "reasoning"};
    json_t *copy = json_copy(message);
    for (size_t i = 0; i < (own ? sizeof fields / sizeof *fields : 1) && copy; i++) {
        json_t *value = json_object_get(message, fields[i]);
        if (!value || json_object_set_new(copy, fields[i], mark_value(value, own, sparse)) == 0) continue;
        json_decref(copy);
        copy = NULL;
    }
    return copy;
}

json_t *chat_marks_put(const json_t *messages, size_t own, bool sparse) {
    json_t *all = json_array();
    int failed = !all;
    size_t count = json_array_size(messages), last = own < count ? own : count; /* behind the last of the others */
    for (size_t i = 0; i < count && !failed; i++) {
        json_t *message = json_array_get(messages, i);
        bool marked = i == own || !sparse || i + 1 == last;
        failed |= json_array_append_new(all, marked ? mark_message(message, i == own, sparse) : json_incref(message));
    }
    if (!failed) return all;
    json_decref(all);
    (void)status_no_memory(0, "messages");
    return NULL;
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
