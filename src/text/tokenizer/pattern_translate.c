#include "text/tokenizer/pattern_translate.h"

#include <string.h>

#include "text/tokenizer/pattern_class.h"

enum { DEEPEST_GROUP = 64, REPEATS_MAX = 1000, LONGEST_PATTERN_BYTES = 1 << 16 };
static const size_t NO_ATOM = SIZE_MAX;

struct translator {
    const char *where, *in;
    size_t bytes, place;
    struct text_buffer *out;
    size_t atom;       /* where in `out` the last atom begins, to which a repeat applies */
    uint32_t previous; /* the literal just before, within (?i:...) */
    bool caseless;
};

static enum status translate_alternatives(struct translator *t, int depth);

static enum status refuse(const struct translator *t, const char *what) {
    return status_set(STATUS_BAD_INPUT, "%s: at byte %zu of the pattern: %s", t->where, t->place, what);
}

static bool next_is(const struct translator *t, const char *text) {
    size_t length = strlen(text);
    return t->bytes - t->place >= length && memcmp(t->in + t->place, text, length) == 0;
}

static bool take(struct translator *t, const char *text) {
    if (!next_is(t, text)) return false;
    t->place += strlen(text);
    return true;
}

static enum status put(struct translator *t, const char *text) { return text_append(t->out, text, strlen(text)); }

static bool is_ascii_alphanumeric(uint32_t code) {
    return (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z');
}

/* Oniguruma also folds one character to several ("ss" matches U+00DF), PCRE2 does not. These are all the foldings to
 * ASCII letters (CaseFolding.txt, status F). */
static bool folds_with(uint32_t first, uint32_t second) {
    first |= 0x20, second |= 0x20;
    return (first == 's' && (second == 's' || second == 't')) ||
           (first == 'f' && (second == 'f' || second == 'i' || second == 'l'));
}

static enum status put_literal(struct translator *t, uint32_t code) {
    if (t->caseless) {
        if (code >= 0x80) return refuse(t, "(?i:...) around other than ASCII characters is not supported");
        if (folds_with(t->previous, code)) return refuse(t, "(?i:...) around ss, st, ff, fi or fl is not supported");
    }
    t->previous = code;
    t->atom = t->out->count;
    return pattern_write_code(t->out, code);
}

/* --- escapes: one reader for both inside and outside of [...] --- */

enum escape_kind { ESCAPE_LITERAL, ESCAPE_SPACE, ESCAPE_CATEGORY };
struct escape {
    enum escape_kind kind;
    bool negated;
    uint32_t code;    /* ESCAPE_LITERAL */
    const char *name; /* ESCAPE_CATEGORY */
    size_t name_bytes;
};

static enum status read_hex(struct translator *t, size_t min, size_t max, uint32_t *code) {
    size_t count = 0;
    uint32_t value = 0;
    for (; count < max && t->place < t->bytes; count++, t->place++) {
        char c = t->in[t->place];
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            digit = (uint32_t)((c | 0x20) - 'a' + 10);
        else
            break;
        value = value << 4 | digit;
    }
    if (count < min || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
        return refuse(t, "not the number of a character");
    *code = value;
    return STATUS_OK;
}

static enum status read_category(struct translator *t, struct escape *out) {
    if (!take(t, "{")) return refuse(t, "\\p needs {...}");
    if (take(t, "^")) out->negated = !out->negated;
    const char *end = memchr(t->in + t->place, '}', t->bytes - t->place);
    if (!end) return refuse(t, "\\p{ has no }");
    out->kind = ESCAPE_CATEGORY;
    out->name = t->in + t->place;
    out->name_bytes = (size_t)(end - out->name);
    if (!pattern_category_known(out->name, out->name_bytes))
        return status_set(STATUS_BAD_INPUT, "%s: \\p{%.*s} is not supported", t->where,
                          out->name_bytes < 40 ? (int)out->name_bytes : 40, out->name);
    t->place += out->name_bytes + 1;
    return STATUS_OK;
}

static enum status read_escape(struct translator *t, struct escape *out) {
    static const char letters[] = "aefnrtv", codes[] = "\a\x1b\f\n\r\t\v";
    *out = (struct escape){.kind = ESCAPE_LITERAL};
    if (t->place == t->bytes) return refuse(t, "ends with \\");
    size_t length;
    uint32_t code = utf8_decode_valid(t->in + t->place, &length);
    t->place += length;
    if (!is_ascii_alphanumeric(code)) return out->code = code, STATUS_OK;
    const char *letter = strchr(letters, (int)code);
    if (letter) return out->code = (unsigned char)codes[letter - letters], STATUS_OK;
    out->negated = code == 'S' || code == 'D' || code == 'P';
    switch (code) {
    case 's':
    case 'S': out->kind = ESCAPE_SPACE; return STATUS_OK;
    case 'd':
    case 'D': out->kind = ESCAPE_CATEGORY, out->name = "Nd", out->name_bytes = 2; return STATUS_OK;
    case 'p':
    case 'P': return read_category(t, out);
    case 'u': return read_hex(t, 4, 4, &out->code);
    case 'x':
        if (take(t, "{")) {
            TRY(read_hex(t, 1, 8, &out->code));
            return take(t, "}") ? STATUS_OK : refuse(t, "\\x{ has no }");
        }
        TRY(read_hex(t, 1, 2, &out->code));
        return out->code < 0x80 ? STATUS_OK : refuse(t, "\\x80 and above is half a character: write \\x{80}");
    default: return status_set(STATUS_BAD_INPUT, "%s: \\%c is not supported", t->where, (char)code);
    }
}

static enum status put_class_escape(struct translator *t, const struct escape *escape) {
    if (t->caseless) return refuse(t, "a class within (?i:...) is not supported");
    if (escape->kind == ESCAPE_SPACE) return pattern_write_space(t->out, escape->negated);
    return pattern_write_category(t->out, escape->name, escape->name_bytes);
}

/* --- [...] --- */

/* One character, or an escape that stands for several. */
static enum status read_class_item(struct translator *t, struct escape *item) {
    if (t->place == t->bytes) return refuse(t, "[ has no ]");
    if (next_is(t, "[")) return refuse(t, "a set within a set is not supported (write \\[ for the character)");
    if (next_is(t, "&&")) return refuse(t, "&& in a set is not supported");
    if (take(t, "\\")) return read_escape(t, item);
    size_t length;
    *item = (struct escape){.kind = ESCAPE_LITERAL, .code = utf8_decode_valid(t->in + t->place, &length)};
    t->place += length;
    return STATUS_OK;
}

static enum status translate_class_item(struct translator *t) {
    struct escape item, last;
    TRY(read_class_item(t, &item));
    if (item.kind == ESCAPE_CATEGORY && item.negated) return refuse(t, "\\P or \\D in a set is not supported");
    bool range = next_is(t, "-") && !next_is(t, "-]");
    if (item.kind != ESCAPE_LITERAL)
        return range ? refuse(t, "a class cannot begin a range") : put_class_escape(t, &item);
    last = item;
    if (range) {
        t->place++;
        TRY(read_class_item(t, &last));
        if (last.kind != ESCAPE_LITERAL || last.code < item.code) return refuse(t, "not a range");
    }
    if (t->caseless && last.code >= 0x80) return refuse(t, "(?i:...) around other than ASCII is not supported");
    return pattern_write_range(t->out, item.code, last.code);
}

static enum status translate_class(struct translator *t) {
    t->atom = t->out->count;
    t->previous = 0;
    TRY(put(t, "["));
    if (take(t, "^")) {
        if (t->caseless) return refuse(t, "[^...] within (?i:...) is not supported");
        TRY(put(t, "^"));
    }
    if (next_is(t, "]")) return refuse(t, "an empty set");
    while (!take(t, "]"))
        TRY(translate_class_item(t));
    return put(t, "]");
}

/* --- repeats --- */

static bool read_number(struct translator *t, unsigned *number) {
    size_t start = t->place;
    *number = 0;
    for (; t->place < t->bytes && t->in[t->place] >= '0' && t->in[t->place] <= '9'; t->place++)
        if (*number <= REPEATS_MAX) *number = *number * 10 + (unsigned)(t->in[t->place] - '0');
    return t->place > start;
}

/* {n}, {n,} or {n,m}; `exact` for the first. */
static enum status translate_braces(struct translator *t, bool *exact) {
    size_t start = t->place;
    unsigned min, max;
    t->place++;
    if (!read_number(t, &min)) return refuse(t, "{ does not begin a repeat (write \\{ for the character)");
    max = min;
    *exact = !take(t, ",");
    if (!*exact && !next_is(t, "}") && !read_number(t, &max)) return refuse(t, "not a repeat");
    if (!take(t, "}")) return refuse(t, "not a repeat");
    if (min > REPEATS_MAX || max > REPEATS_MAX || max < min) return refuse(t, "the bounds of a repeat");
    return text_append(t->out, t->in + start, t->place - start);
}

/* Puts "(?:" before the last atom. */
static enum status wrap_atom(struct translator *t) {
    size_t tail = t->out->count - t->atom;
    TRY(put(t, "(?:"));
    char *atom = t->out->items + t->atom;
    memmove(atom + 3, atom, tail);
    memcpy(atom, "(?:", 3);
    return STATUS_OK;
}

static enum status translate_repeat(struct translator *t) {
    if (t->atom == NO_ATOM) return refuse(t, "nothing to repeat");
    bool braces = next_is(t, "{"), exact = false;
    if (braces) {
        TRY(translate_braces(t, &exact));
    } else {
        TRY(text_append(t->out, t->in + t->place, 1));
        t->place++;
    }
    if (take(t, "?")) {
        if (exact) return refuse(t, "{n}? is not supported");
        TRY(put(t, "?"));
    } else if (take(t, "+")) {
        if (braces) TRY(wrap_atom(t));
        TRY(put(t, braces ? ")+" : "+"));
    }
    t->atom = NO_ATOM;
    t->previous = 0;
    return STATUS_OK;
}

/* --- groups and the whole --- */

static enum status translate_group(struct translator *t, int depth) {
    static const struct {
        const char *in, *out;
        bool caseless, atom;
    } groups[] = {{"(?:", "(?:", false, true},  {"(?>", "(?>", false, true},  {"(?=", "(?=", false, false},
                  {"(?!", "(?!", false, false}, {"(?i:", "(?i:", true, true}, {"(?", NULL, false, false},
                  {"(*", NULL, false, false},   {"(", "(?:", false, true}};
    if (depth == DEEPEST_GROUP) return refuse(t, "too many groups within groups");
    size_t i = 0;
    while (!next_is(t, groups[i].in))
        i++;
    if (!groups[i].out) return refuse(t, "this kind of group is not supported");
    t->place += strlen(groups[i].in);
    size_t start = t->out->count;
    bool outer = t->caseless;
    t->caseless |= groups[i].caseless;
    TRY(put(t, groups[i].out));
    TRY(translate_alternatives(t, depth + 1));
    if (!take(t, ")")) return refuse(t, "( has no )");
    t->caseless = outer;
    t->atom = groups[i].atom ? start : NO_ATOM;
    return put(t, ")");
}

static enum status translate_outer_escape(struct translator *t) {
    struct escape escape;
    TRY(read_escape(t, &escape));
    if (escape.kind == ESCAPE_LITERAL) return put_literal(t, escape.code);
    t->atom = t->out->count;
    bool space = escape.kind == ESCAPE_SPACE;
    TRY(put(t, escape.negated && !space ? "[^" : "["));
    TRY(put_class_escape(t, &escape));
    return put(t, "]");
}

/* As in Ruby, the ends of lines. */
static enum status translate_anchor(struct translator *t, const char *anchor) {
    t->place++;
    t->atom = NO_ATOM;
    t->previous = 0;
    return put(t, anchor);
}

static enum status translate_piece(struct translator *t, int depth) {
    size_t length;
    switch (t->in[t->place]) {
    case '(': return translate_group(t, depth);
    case '[': return t->place++, translate_class(t);
    case '\\': return t->place++, translate_outer_escape(t);
    case '*':
    case '+':
    case '?':
    case '{': return translate_repeat(t);
    case '^': return translate_anchor(t, "(?m:^)");
    case '$': return translate_anchor(t, "(?m:$)");
    case '.': return t->place++, t->atom = t->out->count, t->previous = 0, put(t, ".");
    default: {
        uint32_t code = utf8_decode_valid(t->in + t->place, &length);
        t->place += length;
        return put_literal(t, code);
    }
    }
}

static enum status translate_alternatives(struct translator *t, int depth) {
    uint32_t before = t->previous;
    t->atom = NO_ATOM;
    while (t->place < t->bytes && !next_is(t, ")")) {
        if (!take(t, "|")) {
            TRY(translate_piece(t, depth));
            continue;
        }
        TRY(put(t, "|"));
        t->atom = NO_ATOM;
        t->previous = before;
    }
    return STATUS_OK;
}

enum status pattern_translate(const char *where, const char *pattern, size_t bytes, struct text_buffer *out) {
    if (bytes > LONGEST_PATTERN_BYTES) return status_set(STATUS_BAD_INPUT, "%s: the pattern is too long", where);
    struct translator t = {.where = where, .in = pattern, .bytes = bytes, .out = out};
    TRY(translate_alternatives(&t, 0));
    return t.place < bytes ? refuse(&t, ") without (") : STATUS_OK;
}

enum status pattern_translate_literal(const char *text, size_t bytes, struct text_buffer *out) {
    for (size_t place = 0, length; place < bytes; place += length)
        TRY(pattern_write_code(out, utf8_decode_valid(text + place, &length)));
    return STATUS_OK;
}
