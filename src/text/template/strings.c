/* Strings: case, strip, replace, join; and str, repr and JSON of values, as Python prints them. */
#include <math.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "text/template/render.h"
#include "text/template/value.h"

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
    return jinja_take_string(rendering, change_characters(rendering, text, change, &changed), &changed, out);
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
    return jinja_take_string(rendering, replace_into(rendering, text, from, to, max, &replaced), &replaced, out);
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
    return jinja_take_string(rendering, join_into(rendering, separator, items, any, &joined), &joined, out);
}

/* --- str, repr and JSON of values --- */

static enum status append(struct text_buffer *out, const char *text) { return text_append(out, text, strlen(text)); }

/* Of a number's shortest digits, which are found by trying; and of a character that may be escaped. */
enum { FLOAT_WORK = 1600, CHARACTER_WORK = 6 };

/* The fewest digits that come back as the same number; returns the decimal exponent. */
static int shortest_digits(double number, char digits[32]) {
    char text[40];
    int precision = 0;
    do
        snprintf(text, sizeof text, "%.*e", precision, number);
    while (precision++ < 17 && (strtod(text, NULL) < number || strtod(text, NULL) > number));
    size_t used = 0;
    for (const char *at = text; *at != 'e'; at++)
        if (*at != '.') digits[used++] = *at;
    digits[used] = '\0';
    return atoi(strchr(text, 'e') + 1);
}

/* Python's repr of a float: exponents from 1e16 and below 1e-4. */
static void print_digits(const char *digits, int exponent, char out[64]) {
    int count = (int)strlen(digits);
    if (exponent < -4 || exponent >= 16)
        snprintf(out, 64, "%c%s%se%c%02d", digits[0], count > 1 ? "." : "", digits + 1, exponent < 0 ? '-' : '+',
                 abs(exponent));
    else if (exponent < 0)
        snprintf(out, 64, "0.%.*s%s", -exponent - 1, "0000", digits);
    else if (count <= exponent + 1)
        snprintf(out, 64, "%s%.*s.0", digits, exponent + 1 - count, "0000000000000000");
    else
        snprintf(out, 64, "%.*s.%s", exponent + 1, digits, digits + exponent + 1);
}

static enum status append_float(struct jinja_rendering *rendering, double number, bool json, struct text_buffer *out) {
    char digits[32], text[64];
    TRY(jinja_charge(rendering, FLOAT_WORK));
    if (isnan(number)) return append(out, json ? "NaN" : "nan");
    if (signbit(number)) TRY(append(out, "-"));
    if (isinf(number)) return append(out, json ? "Infinity" : "inf");
    int exponent = shortest_digits(fabs(number), digits);
    print_digits(digits, exponent, text);
    return append(out, text);
}

static enum status append_integer(int64_t integer, struct text_buffer *out) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, integer);
    return append(out, text);
}

/* str.isprintable of a character. */
static bool is_printable(uint32_t code) {
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return code == ' ';
    default: return true;
    }
}

static enum status append_escaped(uint32_t code, char quote, struct text_buffer *out) {
    char text[16];
    static const char names[] = "\n\r\t\\", letters[] = "nrt\\";
    const char *named = code > 0 && code < 128 ? strchr(names, (int)code) : NULL;
    if (named)
        snprintf(text, sizeof text, "\\%c", letters[named - names]);
    else if (code == (uint32_t)quote)
        snprintf(text, sizeof text, "\\%c", quote);
    else if (is_printable(code))
        return text_append_code(out, code);
    else
        snprintf(text, sizeof text, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
    return append(out, text);
}

static enum status append_string_repr(struct jinja_rendering *rendering, const struct jinja_value *value,
                                      struct text_buffer *out) {
    const char *text = value->string.text;
    size_t bytes = value->string.bytes, length;
    TRY(jinja_charge(rendering, CHARACTER_WORK * bytes));
    bool single = bytes > 0 && memchr(text, '\'', bytes), both = single && memchr(text, '"', bytes);
    char quote = single && !both ? '"' : '\'';
    TRY(text_append(out, &quote, 1));
    for (size_t at = 0; at < bytes; at += length)
        TRY(append_escaped(utf8_decode_valid(text + at, &length), quote, out));
    return text_append(out, &quote, 1);
}

static enum status jinja_append_repr(struct jinja_rendering *rendering, const struct jinja_value *value,
                                     struct text_buffer *out);

static enum status append_list_repr(struct jinja_rendering *rendering, const struct jinja_value *value,
                                    struct text_buffer *out) {
    bool tuple = value->kind == JINJA_TUPLE;
    TRY(append(out, tuple ? "(" : "["));
    for (size_t i = 0; i < value->list->count; i++) {
        if (i > 0) TRY(append(out, ", "));
        TRY(jinja_append_repr(rendering, &value->list->items[i], out));
    }
    return append(out, !tuple ? "]" : value->list->count == 1 ? ",)" : ")");
}

static enum status append_range_repr(const struct jinja_list *list, struct text_buffer *out) {
    char text[96], step[32] = "";
    if (list->step != 1) snprintf(step, sizeof step, ", %" PRId64, list->step);
    snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 "%s)", list->first, list->past, step);
    return append(out, text);
}

static enum status append_dict_repr(struct jinja_rendering *rendering, const struct jinja_value *value,
                                    struct text_buffer *out) {
    TRY(append(out, "{"));
    for (size_t i = 0; i < value->dict->count; i++) {
        if (i > 0) TRY(append(out, ", "));
        TRY(jinja_append_repr(rendering, &value->dict->pairs[i].key, out));
        TRY(append(out, ": "));
        TRY(jinja_append_repr(rendering, &value->dict->pairs[i].value, out));
    }
    return append(out, "}");
}

static enum status append_repr(struct jinja_rendering *rendering, const struct jinja_value *value,
                               struct text_buffer *out) {
    switch (value->kind) {
    case JINJA_UNDEFINED: return append(out, "Undefined");
    case JINJA_NONE: return append(out, "None");
    case JINJA_BOOL: return append(out, value->truth ? "True" : "False");
    case JINJA_INTEGER: return append_integer(value->integer, out);
    case JINJA_FLOAT: return append_float(rendering, value->number, false, out);
    case JINJA_STRING: return append_string_repr(rendering, value, out);
    case JINJA_LIST:
    case JINJA_TUPLE: return append_list_repr(rendering, value, out);
    case JINJA_RANGE: return append_range_repr(value->list, out);
    case JINJA_SELF: return append(out, "<TemplateReference None>");
    case JINJA_DICT: return append_dict_repr(rendering, value, out);
    default: return jinja_fail(rendering, "printing a %s is not supported", jinja_type_name(value));
    }
}

/* Every level and item is charged, so that printing a value always ends; a number is charged more. */
static enum status enter(struct jinja_rendering *rendering, const struct text_buffer *out) {
    TRY(jinja_charge(rendering, 8));
    if (out->count > JINJA_OUTPUT_MAX) return jinja_fail(rendering, "a text of more than %d bytes", JINJA_OUTPUT_MAX);
    if (++rendering->depth > JINJA_DEPTH_MAX) return jinja_fail(rendering, "values nested too deeply");
    return STATUS_OK;
}

static enum status jinja_append_repr(struct jinja_rendering *rendering, const struct jinja_value *value,
                                     struct text_buffer *out) {
    TRY(enter(rendering, out));
    TRY(append_repr(rendering, value, out));
    rendering->depth--;
    return STATUS_OK;
}

enum status jinja_to_string(struct jinja_rendering *rendering, const struct jinja_value *value,
                            struct jinja_value *out) {
    if (value->kind == JINJA_STRING) {
        *out = *value;
        return STATUS_OK;
    }
    if (value->kind == JINJA_UNDEFINED) {
        *out = jinja_literal("");
        return STATUS_OK;
    }
    struct text_buffer text = {0};
    return jinja_take_string(rendering, jinja_append_repr(rendering, value, &text), &text, out);
}

struct json_printer {
    struct jinja_rendering *rendering;
    const struct jinja_json_options *options;
    struct text_buffer *out;
    int level;
};

static enum status json_value(struct json_printer *printer, const struct jinja_value *value);

static enum status json_character(const struct json_printer *printer, uint32_t code) {
    static const char names[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    char text[16];
    const char *named = code > 0 && code < 128 ? strchr(names, (int)code) : NULL;
    if (named)
        snprintf(text, sizeof text, "\\%c", letters[named - names]);
    else if (code < 0x20 || (printer->options->ascii && code >= 0x7F && code < 0x10000))
        snprintf(text, sizeof text, "\\u%04x", code);
    else if (printer->options->ascii && code >= 0x10000)
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF));
    else
        return text_append_code(printer->out, code);
    return append(printer->out, text);
}

static enum status json_string_text(const struct json_printer *printer, const char *text, size_t bytes) {
    size_t length;
    TRY(append(printer->out, "\""));
    TRY(jinja_charge(printer->rendering, CHARACTER_WORK * bytes));
    for (size_t at = 0; at < bytes; at += length)
        TRY(json_character(printer, utf8_decode_valid(text + at, &length)));
    return append(printer->out, "\"");
}

/* The end of a line and the indentation of the present level, where there is one. */
static enum status json_line(const struct json_printer *printer) {
    if (!printer->options->indent) return STATUS_OK;
    TRY(jinja_charge(printer->rendering, 1 + 2 * (size_t)printer->level));
    TRY(append(printer->out, "\n"));
    for (int i = 0; i < printer->level; i++)
        TRY(append(printer->out, printer->options->indent));
    return STATUS_OK;
}

static enum status json_separator(const struct json_printer *printer, size_t index) {
    const char *separator = printer->options->item_separator;
    if (!separator) separator = printer->options->indent ? "," : ", ";
    if (index > 0) TRY(append(printer->out, separator));
    return json_line(printer);
}

static enum status json_list(struct json_printer *printer, const struct jinja_list *list) {
    if (list->count == 0) return append(printer->out, "[]");
    TRY(append(printer->out, "["));
    printer->level++;
    for (size_t i = 0; i < list->count; i++) {
        TRY(json_separator(printer, i));
        TRY(json_value(printer, &list->items[i]));
    }
    printer->level--;
    TRY(json_line(printer));
    return append(printer->out, "]");
}

static enum status json_key(struct json_printer *printer, const struct jinja_value *key) {
    if (key->kind == JINJA_STRING) return json_value(printer, key);
    if (key->kind != JINJA_NONE && !jinja_is_number(key))
        return jinja_fail(printer->rendering, "a key of type '%s' is none of JSON's", jinja_type_name(key));
    TRY(append(printer->out, "\""));
    TRY(json_value(printer, key));
    return append(printer->out, "\"");
}

static int by_key(const void *a, const void *b) {
    const struct jinja_value *x = &(*(const struct jinja_pair *const *)a)->key;
    const struct jinja_value *y = &(*(const struct jinja_pair *const *)b)->key;
    size_t common = x->string.bytes < y->string.bytes ? x->string.bytes : y->string.bytes;
    int order = memcmp(x->string.text, y->string.text, common);
    return order != 0 ? order : (x->string.bytes > y->string.bytes) - (x->string.bytes < y->string.bytes);
}

static enum status json_pairs(struct json_printer *printer, const struct jinja_dict *dict,
                              const struct jinja_pair *const *pairs) {
    const char *separator = printer->options->key_separator ? printer->options->key_separator : ": ";
    TRY(append(printer->out, "{"));
    printer->level++;
    for (size_t i = 0; i < dict->count; i++) {
        TRY(json_separator(printer, i));
        TRY(json_key(printer, &pairs[i]->key));
        TRY(append(printer->out, separator));
        TRY(json_value(printer, &pairs[i]->value));
    }
    printer->level--;
    TRY(json_line(printer));
    return append(printer->out, "}");
}

/* Some 32 comparisons of each key, by all of it. */
static enum status charge_sorting(struct jinja_rendering *rendering, const struct jinja_dict *dict) {
    for (size_t i = 0; i < dict->count; i++)
        TRY(jinja_charge(rendering, 32 + 2 * dict->pairs[i].key.string.bytes));
    return STATUS_OK;
}

static enum status json_dict(struct json_printer *printer, const struct jinja_dict *dict) {
    const struct jinja_pair **pairs;
    bool sort = printer->options->sort_keys;
    if (dict->count == 0) return append(printer->out, "{}");
    TRY(jinja_alloc(printer->rendering, dict->count, sizeof *pairs, &pairs));
    for (size_t i = 0; i < dict->count; i++) {
        pairs[i] = &dict->pairs[i];
        if (sort && pairs[i]->key.kind != JINJA_STRING)
            return jinja_fail(printer->rendering, "sort_keys with keys that are not strings is not supported");
    }
    if (sort) TRY(charge_sorting(printer->rendering, dict));
    if (sort) qsort(pairs, dict->count, sizeof *pairs, by_key);
    return json_pairs(printer, dict, pairs);
}

static enum status json_any(struct json_printer *printer, const struct jinja_value *value) {
    switch (value->kind) {
    case JINJA_NONE: return append(printer->out, "null");
    case JINJA_BOOL: return append(printer->out, value->truth ? "true" : "false");
    case JINJA_INTEGER: return append_integer(value->integer, printer->out);
    case JINJA_FLOAT: return append_float(printer->rendering, value->number, true, printer->out);
    case JINJA_STRING: return json_string_text(printer, value->string.text, value->string.bytes);
    case JINJA_LIST:
    case JINJA_TUPLE: return json_list(printer, value->list);
    case JINJA_DICT: return json_dict(printer, value->dict);
    default:
        return jinja_fail(printer->rendering, "Object of type %s is not JSON serializable", jinja_type_name(value));
    }
}

static enum status json_value(struct json_printer *printer, const struct jinja_value *value) {
    TRY(enter(printer->rendering, printer->out));
    TRY(json_any(printer, value));
    printer->rendering->depth--;
    return STATUS_OK;
}

enum status jinja_to_json(struct jinja_rendering *rendering, const struct jinja_value *value,
                          const struct jinja_json_options *options, struct jinja_value *out) {
    struct text_buffer text = {0};
    struct json_printer printer = {.rendering = rendering, .options = options, .out = &text};
    return jinja_take_string(rendering, json_value(&printer, value), &text, out);
}
