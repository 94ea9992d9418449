/* Strings: case, strip, replace, join; and str, repr and JSON of values, as Python prints them. */
#include <math.h>
#include <utf8proc.h>

#include "base/text.h"
#include "text/template/render.h"

static void append(struct jinja_rendering *rendering, const char *text) { jinja_append(rendering, text, strlen(text)); }

static void append_code(struct jinja_rendering *rendering, uint32_t code) {
    char text[4];
    jinja_append(rendering, text, utf8_encode(code, text));
}

enum { CASE_WORK = 3 }; /* of a byte, where characters beyond ASCII are looked up in a table */

/* A sigma ends a word where letters are before it and none behind, whatever marks stand between. */
static void append_sigma(struct jinja_rendering *rendering, const struct jinja_value *text, size_t at, size_t bytes) {
    const char *start = text->string.text;
    size_t before = at, after = at + bytes, length = 0;
    uint32_t code = 0;
    while (before > 0 && unicode_is_case_ignorable(code = utf8_decode_last(start, before, &length)))
        before -= length;
    bool ends = before > 0 && unicode_is_cased(code);
    while (after < text->string.bytes && unicode_is_case_ignorable(code = utf8_decode_valid(start + after, &length)))
        after += length;
    ends = ends && (after == text->string.bytes || !unicode_is_cased(code));
    jinja_charge(rendering, CASE_WORK * (after - before));
    append_code(rendering, ends ? 0x3C2 : 0x3C3);
}

struct jinja_value jinja_change_case(struct jinja_rendering *rendering, const struct jinja_value *text,
                                     enum jinja_case change) {
    bool in_word = false;
    size_t length, from = rendering->text->count;
    jinja_charge(rendering, CASE_WORK * text->string.bytes);
    for (size_t at = 0; at < text->string.bytes; at += length) {
        uint32_t code = utf8_decode_valid(text->string.text + at, &length);
        bool starts = change == JINJA_CASE_TITLE ? !in_word : at == 0;
        enum unicode_case to = change == JINJA_CASE_UPPER             ? UNICODE_UPPER
                               : change != JINJA_CASE_LOWER && starts ? UNICODE_TITLE
                                                                      : UNICODE_LOWER;
        if (to == UNICODE_LOWER && code == 0x3A3)
            append_sigma(rendering, text, at, length);
        else
            jinja_require(rendering, unicode_append_case(code, to, rendering->text));
        jinja_check_space(rendering, 0);
        in_word = change == JINJA_CASE_TITLE && unicode_is_cased(code);
    }
    return jinja_take_text(rendering, from);
}

/* Whether a character is one of a set's. */
static bool in_set(struct jinja_rendering *rendering, const struct jinja_value *set, const char *character,
                   size_t length) {
    const struct jinja_value part = jinja_string(character, length);
    return jinja_find_text(rendering, set, 0, &part) < set->string.bytes;
}

struct jinja_value jinja_strip(struct jinja_rendering *rendering, const struct jinja_value *text,
                               const struct jinja_value *set, enum jinja_sides sides) {
    const char *from = text->string.text;
    size_t bytes = text->string.bytes, length;
    if (jinja_is(set, JINJA_ABSENT)) {
        size_t leading = sides & JINJA_LEFT ? jinja_leading_space(from, bytes) : 0;
        size_t trailing = sides & JINJA_RIGHT ? jinja_trailing_space(from + leading, bytes - leading) : 0;
        jinja_charge(rendering, 1 + leading + trailing);
        return jinja_string(from + leading, bytes - leading - trailing);
    }
    if (set->kind != JINJA_STRING) jinja_fail(rendering, "strip arg must be None or str, not %s", jinja_type_name(set));
    while ((sides & JINJA_LEFT) && bytes > 0) {
        (void)utf8_decode_valid(from, &length);
        if (!in_set(rendering, set, from, length)) break;
        from += length;
        bytes -= length;
    }
    while ((sides & JINJA_RIGHT) && bytes > 0) {
        (void)utf8_decode_last(from, bytes, &length);
        if (!in_set(rendering, set, from + bytes - length, length)) break;
        bytes -= length;
    }
    return jinja_string(from, bytes);
}

/* An empty `from` is found before each character and at the end. */
static void replace_into(struct jinja_rendering *rendering, const struct jinja_value *text,
                         const struct jinja_value *from, const struct jinja_value *to, int64_t max) {
    const char *start = text->string.text;
    size_t bytes = text->string.bytes, at = 0;
    for (int64_t done = 0; max < 0 || done < max; done++) {
        size_t found = jinja_find_text(rendering, text, at, from);
        if (found > bytes) break;
        jinja_append_charged(rendering, start + at, found - at);
        jinja_append_charged(rendering, to->string.text, to->string.bytes);
        at = found + from->string.bytes;
        if (from->string.bytes > 0) continue;
        if (at == bytes) return;
        size_t length = jinja_find_character(start + at, bytes - at, 1);
        jinja_append_charged(rendering, start + at, length);
        at += length;
    }
    jinja_append_charged(rendering, start + at, bytes - at);
}

struct jinja_value jinja_replace(struct jinja_rendering *rendering, const struct jinja_value *text,
                                 const struct jinja_value *from, const struct jinja_value *to, int64_t max) {
    size_t begin = rendering->text->count;
    if (from->kind != JINJA_STRING || to->kind != JINJA_STRING)
        jinja_fail(rendering, "replace: the arguments must be strings");
    replace_into(rendering, text, from, to, max);
    return jinja_take_text(rendering, begin);
}

struct jinja_value jinja_join(struct jinja_rendering *rendering, const struct jinja_value *separator,
                              const struct jinja_list *items, bool any) {
    size_t from = rendering->text->count;
    for (size_t i = 0; i < items->count; i++) {
        const struct jinja_value *item = &items->items[i];
        if (!any && item->kind != JINJA_STRING)
            jinja_fail(rendering, "sequence item %zu: expected str instance, %s found", i, jinja_type_name(item));
        struct jinja_value text = jinja_to_string(rendering, item);
        if (i > 0) jinja_append_charged(rendering, separator->string.text, separator->string.bytes);
        jinja_append_charged(rendering, text.string.text, text.string.bytes);
    }
    return jinja_take_text(rendering, from);
}

/* --- str, repr and JSON of values --- */

/* Work for a number's shortest digits, which are found by trying, and for a character that may be escaped. */
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

static void append_float(struct jinja_rendering *rendering, double number, bool json) {
    char digits[32], text[64];
    jinja_charge(rendering, FLOAT_WORK);
    if (isnan(number)) {
        append(rendering, json ? "NaN" : "nan");
        return;
    }
    if (signbit(number)) append(rendering, "-");
    if (isinf(number)) {
        append(rendering, json ? "Infinity" : "inf");
        return;
    }
    print_digits(digits, shortest_digits(fabs(number), digits), text);
    append(rendering, text);
}

static void append_integer(struct jinja_rendering *rendering, int64_t integer) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, integer);
    append(rendering, text);
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

/* A backslash and the letter that stands for the character, where one does: letters[i] for names[i]. */
static bool append_named(struct jinja_rendering *rendering, uint32_t code, const char *names, const char *letters) {
    const char *named = code > 0 && code < 128 ? strchr(names, (int)code) : NULL;
    if (named) jinja_append(rendering, (const char[]){'\\', letters[named - names]}, 2);
    return named;
}

static void append_escaped(struct jinja_rendering *rendering, uint32_t code, char quote) {
    char text[16];
    const char own[] = {'\n', '\r', '\t', '\\', quote, '\0'}, letters[] = {'n', 'r', 't', '\\', quote, '\0'};
    if (append_named(rendering, code, own, letters)) return;
    if (is_printable(code)) {
        append_code(rendering, code);
        return;
    }
    snprintf(text, sizeof text, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
    append(rendering, text);
}

static void append_string_repr(struct jinja_rendering *rendering, const struct jinja_value *value) {
    const char *text = value->string.text;
    size_t bytes = value->string.bytes, length;
    jinja_charge(rendering, CHARACTER_WORK * bytes);
    bool single = bytes > 0 && memchr(text, '\'', bytes), both = single && memchr(text, '"', bytes);
    char quote = single && !both ? '"' : '\'';
    jinja_append(rendering, &quote, 1);
    for (size_t at = 0; at < bytes; at += length)
        append_escaped(rendering, utf8_decode_valid(text + at, &length), quote);
    jinja_append(rendering, &quote, 1);
}

/* Prints values as str() does, or as JSON where there are options. */
struct printer {
    struct jinja_rendering *rendering;
    const struct jinja_json_options *json; /* NULL: str() */
    int level;
};

static void print_value(struct printer *printer, const struct jinja_value *value);

static void put(const struct printer *printer, const char *text) { append(printer->rendering, text); }

static void json_character(const struct printer *printer, uint32_t code) {
    char text[16] = "";
    bool ascii = printer->json->ascii;
    if (append_named(printer->rendering, code, "\"\\\n\r\t\f\b", "\"\\nrtfb")) return;
    if (code < 0x20 || (ascii && code >= 0x7F && code < 0x10000))
        snprintf(text, sizeof text, "\\u%04x", code);
    else if (ascii && code >= 0x10000)
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF));
    else
        append_code(printer->rendering, code);
    put(printer, text);
}

static void print_json_string(const struct printer *printer, const struct jinja_value *value) {
    const char *text = value->string.text;
    size_t length;
    put(printer, "\"");
    jinja_charge(printer->rendering, CHARACTER_WORK * value->string.bytes);
    for (size_t at = 0; at < value->string.bytes; at += length)
        json_character(printer, utf8_decode_valid(text + at, &length));
    put(printer, "\"");
}

/* The end of a line and the indentation of the present level, where there is one. */
static void print_line(const struct printer *printer) {
    if (!printer->json || !jinja_is_given(&printer->json->indent)) return;
    const struct jinja_value *indent = &printer->json->indent;
    jinja_charge(printer->rendering, 1 + 2 * (size_t)printer->level);
    put(printer, "\n");
    for (int i = 0; i < printer->level; i++)
        jinja_append(printer->rendering, indent->string.text, indent->string.bytes);
}

/* `given` unless there is none. */
static void put_separator(const struct printer *printer, const struct jinja_value *given, const char *otherwise) {
    struct jinja_value text = given && jinja_is_given(given) ? *given : jinja_literal(otherwise);
    jinja_append(printer->rendering, text.string.text, text.string.bytes);
}

static void begin_item(const struct printer *printer, size_t index) {
    const struct jinja_json_options *json = printer->json;
    const char *separator = json && jinja_is_given(&json->indent) ? "," : ", ";
    if (index > 0) put_separator(printer, json ? &json->item_separator : NULL, separator);
    print_line(printer);
}

static void print_list(struct printer *printer, const struct jinja_value *value) {
    const struct jinja_list *list = value->list;
    bool tuple = value->kind == JINJA_TUPLE && !printer->json;
    put(printer, tuple ? "(" : "[");
    printer->level++;
    for (size_t i = 0; i < list->count; i++) {
        begin_item(printer, i);
        print_value(printer, &list->items[i]);
    }
    printer->level--;
    if (list->count > 0) print_line(printer);
    put(printer, !tuple ? "]" : list->count == 1 ? ",)" : ")");
}

static void print_range(const struct printer *printer, const struct jinja_list *list) {
    char text[96], step[32] = "";
    if (list->step != 1) snprintf(step, sizeof step, ", %" PRId64, list->step);
    snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 "%s)", list->first, list->past, step);
    put(printer, text);
}

/* JSON has quotes around each. */
static void print_key(struct printer *printer, const struct jinja_value *key) {
    const char *quote = printer->json && key->kind != JINJA_STRING ? "\"" : "";
    if (printer->json && !jinja_is(key, JINJA_NUMBER | JINJA_BIT(NONE) | JINJA_BIT(STRING)))
        jinja_fail(printer->rendering, "a key of type '%s' is none of JSON's", jinja_type_name(key));
    put(printer, quote);
    print_value(printer, key);
    put(printer, quote);
}

static void sort_keys(struct jinja_rendering *rendering, const struct jinja_pair **pairs, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (pairs[i]->key.kind != JINJA_STRING)
            jinja_fail(rendering, "sort_keys with keys that are not strings is not supported");
    jinja_sort_pairs(rendering, pairs, count, false);
}

static void print_dict(struct printer *printer, const struct jinja_dict *dict) {
    const struct jinja_json_options *json = printer->json;
    const struct jinja_pair **pairs = jinja_alloc(printer->rendering, dict->count, sizeof *pairs);
    for (size_t i = 0; i < dict->count; i++)
        pairs[i] = &dict->pairs[i];
    if (json && json->sort_keys) sort_keys(printer->rendering, pairs, dict->count);
    put(printer, "{");
    printer->level++;
    for (size_t i = 0; i < dict->count; i++) {
        begin_item(printer, i);
        print_key(printer, &pairs[i]->key);
        put_separator(printer, json ? &json->key_separator : NULL, ": ");
        print_value(printer, &pairs[i]->value);
    }
    printer->level--;
    if (dict->count > 0) print_line(printer);
    put(printer, "}");
}

enum {
    JSON_KINDS =
        JINJA_NUMBER | JINJA_BIT(NONE) | JINJA_BIT(STRING) | JINJA_BIT(LIST) | JINJA_BIT(TUPLE) | JINJA_BIT(DICT)
};

/* Every level and item is charged, so that printing a value always ends; a number is charged more. */
static void print_value(struct printer *printer, const struct jinja_value *value) {
    struct jinja_rendering *rendering = printer->rendering;
    bool json = printer->json != NULL;
    jinja_charge(rendering, 8);
    jinja_enter(rendering);
    if (json && !jinja_is(value, JSON_KINDS))
        jinja_fail(rendering, "Object of type %s is not JSON serializable", jinja_type_name(value));
    switch (value->kind) {
    case JINJA_UNDEFINED: put(printer, "Undefined"); break;
    case JINJA_NONE: put(printer, json ? "null" : "None"); break;
    case JINJA_BOOL: put(printer, value->truth ? (json ? "true" : "True") : (json ? "false" : "False")); break;
    case JINJA_INTEGER: append_integer(rendering, value->integer); break;
    case JINJA_FLOAT: append_float(rendering, value->number, json); break;
    case JINJA_STRING: json ? print_json_string(printer, value) : append_string_repr(rendering, value); break;
    case JINJA_LIST:
    case JINJA_TUPLE: print_list(printer, value); break;
    case JINJA_RANGE: print_range(printer, value->list); break;
    case JINJA_SELF: put(printer, "<TemplateReference None>"); break;
    case JINJA_DICT: print_dict(printer, value->dict); break;
    default: jinja_fail(rendering, "printing a %s is not supported", jinja_type_name(value));
    }
    rendering->depth--;
}

struct jinja_value jinja_print(struct jinja_rendering *rendering, const struct jinja_value *value,
                               const struct jinja_json_options *json) {
    struct printer printer = {.rendering = rendering, .json = json};
    size_t from = rendering->text->count;
    print_value(&printer, value);
    return jinja_take_text(rendering, from);
}

struct jinja_value jinja_to_string(struct jinja_rendering *rendering, const struct jinja_value *value) {
    if (value->kind == JINJA_STRING) return *value;
    return value->kind == JINJA_UNDEFINED ? jinja_literal("") : jinja_print(rendering, value, NULL);
}
