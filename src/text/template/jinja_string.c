#include "text/template/jinja_string.h"

#include <string.h>

#include "base/unicode_case.h"
#include "text/template/jinja_text.h"

enum { CASE_WORK = 3 }; /* of a byte, where characters beyond ASCII are looked up in a table */

/* A sigma ends a word where letters are before it and none behind, whatever marks stand between. */
static enum status append_sigma(struct jinja_rendering *rendering, const struct jinja_value *text, size_t at,
                                size_t bytes, struct text_buffer *out) {
    const char *start = text->string.text;
    size_t before = at, after = at + bytes, length = 0;
    uint32_t code = 0;
    while (before > 0 && unicode_is_case_ignorable(code = utf8_decode_last(start, before, &length)))
        before -= length;
    bool ends = before > 0 && unicode_is_cased(code);
    while (after < text->string.bytes && unicode_is_case_ignorable(code = utf8_decode_valid(start + after, &length)))
        after += length;
    ends = ends && (after == text->string.bytes || !unicode_is_cased(code));
    TRY(jinja_charge(rendering, CASE_WORK * (after - before)));
    return text_append_code(out, ends ? 0x3C2 : 0x3C3);
}

static enum status change_characters(struct jinja_rendering *rendering, const struct jinja_value *text,
                                     enum jinja_case change, struct text_buffer *out) {
    bool in_word = false;
    size_t length;
    TRY(jinja_charge(rendering, CASE_WORK * text->string.bytes));
    for (size_t at = 0; at < text->string.bytes; at += length) {
        uint32_t code = utf8_decode_valid(text->string.text + at, &length);
        bool starts = change == JINJA_CASE_TITLE ? !in_word : at == 0;
        enum unicode_case to = change == JINJA_CASE_UPPER             ? UNICODE_UPPER
                               : change != JINJA_CASE_LOWER && starts ? UNICODE_TITLE
                                                                      : UNICODE_LOWER;
        if (to == UNICODE_LOWER && code == 0x3A3)
            TRY(append_sigma(rendering, text, at, length, out));
        else
            TRY(unicode_append_case(code, to, out));
        in_word = change == JINJA_CASE_TITLE && unicode_is_cased(code);
    }
    return STATUS_OK;
}

enum status jinja_change_case(struct jinja_rendering *rendering, const struct jinja_value *text, enum jinja_case change,
                              struct jinja_value *out) {
    struct text_buffer changed = {0};
    enum status status;
    TRY_GOTO(status, change_characters(rendering, text, change, &changed), done);
    TRY_GOTO(status, jinja_copy_string(rendering, changed.items, changed.count, out), done);
done:
    vec_free(&changed);
    return status;
}

/* Whether the character of a text at a place is one of a set's. */
static bool in_set(const struct jinja_value *set, const char *character, size_t length) {
    return jinja_find_text(set->string.text, set->string.bytes, 0, character, length) < set->string.bytes;
}

enum status jinja_strip(struct jinja_rendering *rendering, const struct jinja_value *text,
                        const struct jinja_value *set, bool left, bool right, struct jinja_value *out) {
    bool space = set->kind == JINJA_NONE || set->kind == JINJA_UNDEFINED;
    const char *from = text->string.text;
    size_t bytes = text->string.bytes, length;
    if (!space && set->kind != JINJA_STRING)
        return jinja_fail(rendering, "strip arg must be None or str, not %s", jinja_type_name(set));
    if (space) {
        size_t leading = left ? jinja_leading_space(from, bytes) : 0;
        size_t trailing = right ? jinja_trailing_space(from + leading, bytes - leading) : 0;
        TRY(jinja_charge(rendering, 1 + leading + trailing));
        *out = jinja_string(from + leading, bytes - leading - trailing);
        return STATUS_OK;
    }
    while (left && bytes > 0) {
        (void)utf8_decode_valid(from, &length);
        TRY(jinja_charge_searched(rendering, set->string.bytes, 1));
        if (!in_set(set, from, length)) break;
        from += length;
        bytes -= length;
    }
    while (right && bytes > 0) {
        (void)utf8_decode_last(from, bytes, &length);
        TRY(jinja_charge_searched(rendering, set->string.bytes, 1));
        if (!in_set(set, from + bytes - length, length)) break;
        bytes -= length;
    }
    *out = jinja_string(from, bytes);
    return STATUS_OK;
}

static enum status append_bounded(struct jinja_rendering *rendering, struct text_buffer *out, const char *text,
                                  size_t bytes) {
    TRY(jinja_charge_moved(rendering, bytes));
    if (bytes > JINJA_OUTPUT_MAX - out->count)
        return jinja_fail(rendering, "a string of more than %d bytes", JINJA_OUTPUT_MAX);
    return text_append(out, text, bytes);
}

/* An empty `from` is found before each character and at the end. */
static enum status replace_into(struct jinja_rendering *rendering, const struct jinja_value *text,
                                const struct jinja_value *from, const struct jinja_value *to, int64_t max,
                                struct text_buffer *out) {
    const char *start = text->string.text;
    size_t bytes = text->string.bytes, at = 0;
    for (int64_t done = 0; max < 0 || done < max; done++) {
        size_t found = jinja_find_text(start, bytes, at, from->string.text, from->string.bytes);
        TRY(jinja_charge_searched(rendering, (found > bytes ? bytes : found) - at, from->string.bytes));
        if (found > bytes) break;
        TRY(append_bounded(rendering, out, start + at, found - at));
        TRY(append_bounded(rendering, out, to->string.text, to->string.bytes));
        at = found + from->string.bytes;
        if (from->string.bytes > 0) continue;
        if (at == bytes) return STATUS_OK;
        size_t length = jinja_find_character(start + at, bytes - at, 1);
        TRY(append_bounded(rendering, out, start + at, length));
        at += length;
    }
    return append_bounded(rendering, out, start + at, bytes - at);
}

enum status jinja_replace(struct jinja_rendering *rendering, const struct jinja_value *text,
                          const struct jinja_value *from, const struct jinja_value *to, int64_t max,
                          struct jinja_value *out) {
    struct text_buffer replaced = {0};
    if (from->kind != JINJA_STRING || to->kind != JINJA_STRING)
        return jinja_fail(rendering, "replace: the arguments must be strings");
    enum status status;
    TRY_GOTO(status, replace_into(rendering, text, from, to, max, &replaced), done);
    TRY_GOTO(status, jinja_copy_string(rendering, replaced.items, replaced.count, out), done);
done:
    vec_free(&replaced);
    return status;
}

static enum status join_into(struct jinja_rendering *rendering, const struct jinja_value *separator,
                             const struct jinja_list *items, bool any, struct text_buffer *out) {
    for (size_t i = 0; i < items->count; i++) {
        struct jinja_value text = items->items[i];
        if (!any && text.kind != JINJA_STRING)
            return jinja_fail(rendering, "sequence item %zu: expected str instance, %s found", i,
                              jinja_type_name(&text));
        TRY(jinja_to_string(rendering, &items->items[i], &text));
        if (i > 0) TRY(append_bounded(rendering, out, separator->string.text, separator->string.bytes));
        TRY(append_bounded(rendering, out, text.string.text, text.string.bytes));
    }
    return STATUS_OK;
}

enum status jinja_join(struct jinja_rendering *rendering, const struct jinja_value *separator,
                       const struct jinja_list *items, bool any, struct jinja_value *out) {
    struct text_buffer joined = {0};
    enum status status;
    TRY_GOTO(status, join_into(rendering, separator, items, any, &joined), done);
    TRY_GOTO(status, jinja_copy_string(rendering, joined.items, joined.count, out), done);
done:
    vec_free(&joined);
    return status;
}
