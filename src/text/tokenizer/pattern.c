#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer/pattern.h"

#include <ctype.h>
#include <pcre2.h>

enum { LAST_CODE = PATTERN_CODES - 1 };

/* --- classes of characters, as they stand between [ and ] --- */

/* \x{H} */
static enum status pattern_write_code(struct text_buffer *out, uint32_t code) {
    char text[16];
    int length = snprintf(text, sizeof text, "\\x{%x}", (unsigned)code);
    return text_append(out, text, (size_t)length);
}

static enum status pattern_write_range(struct text_buffer *out, uint32_t first, uint32_t last) {
    TRY(pattern_write_code(out, first));
    if (first == last) return STATUS_OK;
    TRY(text_append(out, "-", 1));
    return pattern_write_code(out, last);
}

enum status pattern_write_class(struct text_buffer *out, bool (*is)(uint32_t), uint32_t codes, bool negated) {
    uint32_t first = 0;
    bool within = false;
    for (uint32_t code = 0; code < codes; code++) {
        bool now = is(code) != negated;
        if (now && !within) first = code;
        if (!now && within) TRY(pattern_write_range(out, first, code - 1));
        within = now;
    }
    if (negated) return pattern_write_range(out, within ? first : codes, LAST_CODE);
    return within ? pattern_write_range(out, first, codes - 1) : STATUS_OK;
}

/* Whether it may be the name of a general category: "L", "Lu", "Nd" .... Categories with unassigned characters are
 * excluded, since they depend on the version of Unicode. PCRE2 knows which names exist. */
static bool pattern_category_known(const char *name, size_t bytes) {
    if (bytes == 2 && memcmp(name, "Cc", 2) == 0) return true;
    bool group = bytes > 0 && memchr("LMNPSZ", name[0], 6);
    return group && (bytes == 1 || (bytes == 2 && name[1] >= 'a' && name[1] <= 'z'));
}

/* A general category, with the characters that PCRE2 does not know yet. */
static enum status pattern_write_category(struct text_buffer *out, const char *name, size_t bytes) {
    /* Listed, since PCRE2's class has characters that Unicode 16 removed from it. */
    if (bytes == 2 && memcmp(name, "Mn", 2) == 0)
        return pattern_write_class(out, unicode_is_nonspacing, PATTERN_CODES, false);
    TRY(text_append(out, "\\p{", 3));
    TRY(text_append(out, name, bytes));
    TRY(text_append(out, "}", 1));
    for (size_t i = 0; i < unicode_addition_count; i++) {
        const struct unicode_addition *added = &unicode_additions[i];
        if (memcmp(added->category, name, bytes) == 0) TRY(pattern_write_range(out, added->first, added->last));
    }
    return STATUS_OK;
}

/* --- translation --- */

enum { DEEPEST_GROUP = 64, LONGEST_PATTERN_BYTES = 1 << 16 };
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
    char digits[9] = "";
    size_t count = 0;
    for (; count < max && t->place < t->bytes && isxdigit((unsigned char)t->in[t->place]); count++, t->place++)
        digits[count] = t->in[t->place];
    unsigned long value = strtoul(digits, NULL, 16);
    if (count < min || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
        return refuse(t, "not the number of a character");
    *code = (uint32_t)value;
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
    /* Listed, since PCRE2's \s also matches U+180E. U+3000 is the last space. */
    if (escape->kind == ESCAPE_SPACE) return pattern_write_class(t->out, unicode_is_space, 0x3001, escape->negated);
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

static bool take_digits(struct translator *t) {
    size_t start = t->place;
    while (t->place < t->bytes && t->in[t->place] >= '0' && t->in[t->place] <= '9')
        t->place++;
    return t->place > start;
}

/* {n}, {n,} or {n,m}; `exact` for the first. PCRE2 checks the numbers. */
static enum status translate_braces(struct translator *t, bool *exact) {
    size_t start = t->place++;
    if (!take_digits(t)) return refuse(t, "{ does not begin a repeat (write \\{ for the character)");
    *exact = !take(t, ",");
    if (!*exact) (void)take_digits(t);
    return take(t, "}") ? text_append(t->out, t->in + start, t->place - start) : refuse(t, "not a repeat");
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

static enum status pattern_translate(const char *where, const char *pattern, size_t bytes, struct text_buffer *out) {
    if (bytes > LONGEST_PATTERN_BYTES) return status_set(STATUS_BAD_INPUT, "%s: the pattern is too long", where);
    struct translator t = {.where = where, .in = pattern, .bytes = bytes, .out = out};
    TRY(translate_alternatives(&t, 0));
    return t.place < bytes ? refuse(&t, ") without (") : STATUS_OK;
}

/* --- matching --- */

enum {
    JIT_STACK_BYTES_MIN = 32 << 10,
    JIT_STACK_BYTES_MAX = 32 << 20,
    /* Steps that one match may take: far more than any pattern in use needs, few enough to end a runaway one. */
    MATCH_STEPS = 1 << 20,
    MATCH_STEPS_PER_BYTE = 32,
    /* A match is searched in so many bytes first, then in four times as many. This shows a pattern that looks ahead to
     * the end of a line, which the JIT does not count. */
    PREFIX_BYTES = 256,
    PREFIX_GROWTH = 4,
    /* Limit on the bytes of grown prefixes that a text may need: a constant and a multiple of its bytes. */
    PREFIX_WORK = 64 << 20,
    PREFIX_WORK_PER_BYTE = 16
};

struct split_pattern {
    char *where;
    pcre2_code *code;
};

struct split_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    bool within_line;    /* the next text does not begin a line */
    uint64_t work, done; /* bytes of grown prefixes, and of matches, since the text's beginning */
};

/* PCRE2 does not say whether its JIT ran out of memory or may not make code; only the first is a failure. */
static _Thread_local bool out_of_memory;

static void *allocate(PCRE2_SIZE bytes, void *unused) {
    (void)unused;
    void *block = mem_array(bytes, 1);
    if (!block) out_of_memory = true;
    return block;
}

static void release(void *block, void *unused) { (void)unused, mem_free(block); }
static pcre2_general_context *memory_create(void) { return pcre2_general_context_create(allocate, release, NULL); }

static enum status pattern_check(const char *where, const pcre2_code *code) {
    uint32_t matches_empty = 0, look_behind = 0;
    pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
    pcre2_pattern_info(code, PCRE2_INFO_MAXLOOKBEHIND, &look_behind);
    if (matches_empty) return status_set(STATUS_BAD_INPUT, "%s: a pattern that matches nothing splits nothing", where);
    BUG_IF(look_behind > 1, "%s: a translated pattern looks behind", where); /* 1: for ^ */
    return STATUS_OK;
}

static enum status pattern_compile(const char *where, const struct text_buffer *text, pcre2_code **out) {
    out_of_memory = false;
    pcre2_general_context *memory = memory_create();
    pcre2_compile_context *context = memory ? pcre2_compile_context_create(memory) : NULL;
    enum status status = STATUS_FAILED;
    if (!context) goto done;
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int error;
    PCRE2_SIZE place;
    *out = pcre2_compile((PCRE2_SPTR)text->items, text->count, PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &error,
                         &place, context);
    if (!*out) {
        char message[128] = "";
        pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof message);
        if (!out_of_memory) status = status_set(STATUS_BAD_INPUT, "%s: not a pattern: %s", where, message);
        goto done;
    }
    /* Without a JIT the interpreter is used. */
    (void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    if (!out_of_memory) status = pattern_check(where, *out);
done:
    pcre2_compile_context_free(context);
    pcre2_general_context_free(memory);
    return status;
}

enum status split_pattern_compile(const char *where, const char *pattern, size_t bytes, bool literal,
                                  struct split_pattern **out) {
    struct text_buffer text = {0};
    struct split_pattern *made = mem_array(1, sizeof *made);
    enum status status;
    TRY_GOTO(status, made && (made->where = mem_string(where)) ? STATUS_OK : STATUS_FAILED, done);
    for (size_t place = 0, length; literal && place < bytes; place += length)
        TRY_GOTO(status, pattern_write_code(&text, utf8_decode_valid(pattern + place, &length)), done);
    if (!literal) TRY_GOTO(status, pattern_translate(where, pattern, bytes, &text), done);
    if (text.count == 0) TRY_GOTO(status, status_set(STATUS_BAD_INPUT, "%s: the pattern is empty", where), done);
    TRY_GOTO(status, pattern_compile(where, &text, &made->code), done);
    *out = made;
    made = NULL; /* the caller's now */
done:
    vec_free(&text);
    split_pattern_free(made);
    return status;
}

void split_pattern_free(struct split_pattern *pattern) {
    if (!pattern) return;
    pcre2_code_free(pattern->code);
    mem_free(pattern->where);
    mem_free(pattern);
}

enum status split_matcher_create(const struct split_pattern *pattern, struct split_matcher **out) {
    struct split_matcher *made = mem_array(1, sizeof *made);
    pcre2_general_context *memory = made ? memory_create() : NULL;
    if (memory) {
        made->data = pcre2_match_data_create_from_pattern(pattern->code, memory);
        made->context = pcre2_match_context_create(memory);
        made->stack = pcre2_jit_stack_create(JIT_STACK_BYTES_MIN, JIT_STACK_BYTES_MAX, memory);
        pcre2_general_context_free(memory);
    }
    if (!made || !made->data || !made->context || !made->stack) {
        split_matcher_free(made);
        return status_no_memory(JIT_STACK_BYTES_MIN, "a pattern's working memory");
    }
    pcre2_jit_stack_assign(made->context, NULL, made->stack);
    *out = made;
    return STATUS_OK;
}

void split_matcher_free(struct split_matcher *matcher) {
    if (!matcher) return;
    pcre2_match_data_free(matcher->data);
    pcre2_match_context_free(matcher->context);
    pcre2_jit_stack_free(matcher->stack);
    mem_free(matcher);
}

void split_matcher_reset(struct split_matcher *matcher) {
    if (!matcher) return;
    matcher->within_line = false;
    matcher->work = matcher->done = 0;
}

void split_matcher_pass(struct split_matcher *matcher, const char *text, size_t bytes) {
    if (bytes > 0) matcher->within_line = text[bytes - 1] != '\n';
}

static enum status match_failed(const struct split_pattern *pattern, int error) {
    char message[128] = "";
    pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof message);
    if (error == PCRE2_ERROR_NOMEMORY) return status_no_memory(0, "matching a pattern");
    return status_set(STATUS_BAD_INPUT, "%s: the pattern is too costly on this text (%s)", pattern->where, message);
}

static int match(const struct split_pattern *pattern, struct split_matcher *matcher, const char *text, size_t bytes,
                 size_t from, bool end) {
    uint64_t steps = MATCH_STEPS + MATCH_STEPS_PER_BYTE * (uint64_t)(bytes - from);
    pcre2_set_match_limit(matcher->context, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
    uint32_t options = PCRE2_NO_UTF_CHECK | (end ? 0 : PCRE2_PARTIAL_HARD);
    if (matcher->within_line) options |= PCRE2_NOTBOL;
    int found = pcre2_match(pattern->code, (PCRE2_SPTR)text, bytes, from, options, matcher->data, matcher->context);
    if (found != PCRE2_ERROR_JIT_STACKLIMIT) return found;
    return pcre2_match(pattern->code, (PCRE2_SPTR)text, bytes, from, options | PCRE2_NO_JIT, matcher->data,
                       matcher->context);
}

/* The end of a prefix of valid UTF-8: where a character ends. */
static size_t prefix_end(const char *text, size_t bytes, size_t from, size_t prefix) {
    if (bytes - from <= prefix) return bytes;
    size_t end = from + prefix;
    while (end > from + 1 && ((unsigned char)text[end] & 0xC0) == 0x80)
        end--;
    return end;
}

/* A match that does not depend on the text after the prefix is also the match in the whole text. */
static int match_in_prefixes(const struct split_pattern *pattern, struct split_matcher *matcher, const char *text,
                             size_t bytes, size_t from, bool end) {
    for (size_t prefix = PREFIX_BYTES;; prefix *= PREFIX_GROWTH) {
        size_t stop = prefix_end(text, bytes, from, prefix);
        int found = match(pattern, matcher, text, stop, from, end && stop == bytes);
        if (prefix > PREFIX_BYTES) matcher->work += stop - from;
        bool undecided = found == PCRE2_ERROR_PARTIAL || found == PCRE2_ERROR_NOMATCH;
        if (stop == bytes || !undecided) return found;
    }
}

enum status split_pattern_find(const struct split_pattern *pattern, struct split_matcher *matcher, const char *text,
                               size_t bytes, size_t from, bool end, enum split_result *result, size_t *start,
                               size_t *stop) {
    if (matcher->work > PREFIX_WORK + PREFIX_WORK_PER_BYTE * (matcher->done + bytes - from))
        return match_failed(pattern, PCRE2_ERROR_MATCHLIMIT);
    int found = match_in_prefixes(pattern, matcher, text, bytes, from, end);
    *result = found >= 0 ? SPLIT_FOUND : found == PCRE2_ERROR_PARTIAL ? SPLIT_MORE : SPLIT_NONE;
    if (found < 0 && *result == SPLIT_NONE)
        return found == PCRE2_ERROR_NOMATCH ? STATUS_OK : match_failed(pattern, found);
    const PCRE2_SIZE *places = pcre2_get_ovector_pointer(matcher->data);
    *start = places[0];
    if (*result == SPLIT_MORE) return STATUS_OK;
    *stop = places[1];
    matcher->done += *stop - from;
    return STATUS_OK;
}
