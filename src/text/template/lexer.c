#include <stdarg.h>

#include "base/text.h"
#include "text/template/jinja.h"
#include "text/template/parse.h"

enum { TOKENS_MAX = 1 << 20, NESTING_MAX = 256 };

struct lexer {
    struct jinja_parser *parser;
    const char *text;
    size_t bytes, at;
    bool line_starting; /* the last tag took the newline after it */
    struct jinja_tokens *out;
    char closing[NESTING_MAX]; /* of the brackets that are open */
    int nesting;
};

void jinja_refuse(struct jinja_parser *parser, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    parser->status = status_set(STATUS_BAD_INPUT, "%s: line %d: %s", parser->name, parser->line, text);
    longjmp(parser->failed, 1);
}

void jinja_check(struct jinja_parser *parser, enum status status) {
    if (status == STATUS_OK) return;
    parser->status = status;
    longjmp(parser->failed, 1);
}

void *jinja_keep(struct jinja_parser *parser, size_t count, size_t size) {
    void *block = scratch_alloc(&parser->template->memory, count, size);
    jinja_check(parser, block ? STATUS_OK : STATUS_FAILED);
    return block;
}

static void add_token(struct lexer *lexer, struct jinja_token token) {
    token.line = lexer->parser->line;
    if (lexer->out->count == TOKENS_MAX) jinja_refuse(lexer->parser, "more than %d tokens", TOKENS_MAX);
    jinja_check(lexer->parser, vec_push(lexer->out, token));
}

static void add_text(struct lexer *lexer, enum jinja_token_kind kind, const char *text, size_t bytes) {
    add_token(lexer, (struct jinja_token){.kind = kind, .value = jinja_string(text, bytes)});
}

static void advance(struct lexer *lexer, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        lexer->parser->line += lexer->text[lexer->at + i] == '\n';
    lexer->at += bytes;
}

static bool starts(const struct lexer *lexer, size_t at, const char *word) {
    size_t length = strlen(word);
    return lexer->bytes - at >= length && memcmp(lexer->text + at, word, length) == 0;
}

static size_t skip_space(const struct lexer *lexer, size_t at) {
    return at + jinja_leading_space(lexer->text + at, lexer->bytes - at);
}

/* The beginning of the next tag; `bytes` if there is none. */
static size_t find_tag(const struct lexer *lexer) {
    for (size_t at = lexer->at; at + 1 < lexer->bytes; at++)
        if (lexer->text[at] == '{' && strchr("%{#", lexer->text[at + 1])) return at;
    return lexer->bytes;
}

/* The length of the text before a tag: without its last white space where the tag begins with "-", and for tags that
 * print nothing without the blanks that the tag's line begins with. */
static size_t trim_before(const struct lexer *lexer, const char *text, size_t bytes, char sign, bool output) {
    if (sign == '-') return bytes - jinja_trailing_space(text, bytes);
    if (sign == '+' || output) return bytes;
    size_t line = bytes;
    while (line > 0 && text[line - 1] != '\n')
        line--;
    bool blank = jinja_leading_space(text + line, bytes - line) == bytes - line;
    return (line > 0 || lexer->line_starting) && blank ? line : bytes;
}

/* Length of a tag's end ("%}" with its signs and the white space that it takes); 0 when there is none here. */
static size_t tag_end(const struct lexer *lexer, size_t at, const char *end, bool trims) {
    bool strip = starts(lexer, at, "-"), keep = trims && starts(lexer, at, "+");
    size_t after = at + (strip || keep);
    if (!starts(lexer, after, end)) return 0;
    after += 2;
    if (strip)
        after = skip_space(lexer, after);
    else if (!keep && trims && starts(lexer, after, "\n"))
        after++;
    return after - at;
}

static void take_end(struct lexer *lexer, size_t bytes) {
    advance(lexer, bytes);
    lexer->line_starting = bytes > 0 && lexer->text[lexer->at - 1] == '\n';
}

static void skip_comment(struct lexer *lexer) {
    if (lexer->at == lexer->bytes) return; /* as in Jinja */
    for (size_t at = lexer->at; at < lexer->bytes; at++) {
        size_t end = tag_end(lexer, at, "#}", true);
        if (end == 0) continue;
        take_end(lexer, at + end - lexer->at);
        return;
    }
    jinja_refuse(lexer->parser, "a comment without its end");
}

/* Length of "{%- word -%}" here; 0 when it is another tag. `at` is behind "{%" and its sign. */
static size_t word_tag(const struct lexer *lexer, size_t at, const char *word, bool trims) {
    size_t from = at;
    at = skip_space(lexer, at);
    if (!starts(lexer, at, word)) return 0;
    at = skip_space(lexer, at + strlen(word));
    size_t end = tag_end(lexer, at, "%}", trims);
    return end ? at + end - from : 0;
}

/* Takes the text up to {% endraw %} unchanged. */
static void take_raw(struct lexer *lexer) {
    if (lexer->at == lexer->bytes) return; /* as in Jinja */
    for (size_t at = lexer->at; at + 1 < lexer->bytes; at++) {
        if (!starts(lexer, at, "{%")) continue;
        char sign = at + 2 < lexer->bytes ? lexer->text[at + 2] : '\0';
        size_t word = at + 2 + (sign == '-' || sign == '+'), end = word_tag(lexer, word, "endraw", true);
        if (end == 0) continue;
        const char *text = lexer->text + lexer->at;
        add_text(lexer, JINJA_TOKEN_DATA, text, trim_before(lexer, text, at - lexer->at, sign, false));
        take_end(lexer, word + end - lexer->at);
        return;
    }
    jinja_refuse(lexer->parser, "raw without endraw");
}

static bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           ((unsigned char)c & 0x80);
}

static void lex_number(struct lexer *lexer) {
    char digits[64] = "";
    size_t used = 0, at = lexer->at;
    bool is_float = false, index = at > 0 && lexer->text[at - 1] == '.'; /* of a list: a.0.1 */
    for (; at < lexer->bytes && used < sizeof digits - 1; at++) {
        char c = lexer->text[at], next = at + 1 < lexer->bytes ? lexer->text[at + 1] : '\0';
        bool exponent = (c == 'e' || c == 'E') && ((next >= '0' && next <= '9') || next == '-' || next == '+');
        bool point = c == '.' && !is_float && !index && next >= '0' && next <= '9';
        bool sign = (c == '-' || c == '+') && (digits[used - (used > 0)] == 'e' || digits[used - (used > 0)] == 'E');
        if (c == '_' && next >= '0' && next <= '9') continue;
        if (!(c >= '0' && c <= '9') && !exponent && !point && !sign) break;
        is_float |= exponent || point;
        digits[used++] = c;
    }
    digits[used] = '\0';
    if (at < lexer->bytes && is_name_byte(lexer->text[at]))
        jinja_refuse(lexer->parser, "'%s%c' is not a number that is supported", digits, lexer->text[at]);
    errno = 0;
    struct jinja_value value = is_float ? jinja_float(strtod(digits, NULL)) : jinja_integer(strtoll(digits, NULL, 10));
    if (errno == ERANGE) jinja_refuse(lexer->parser, "%s is out of range", digits);
    add_token(lexer, (struct jinja_token){.kind = is_float ? JINJA_TOKEN_FLOAT : JINJA_TOKEN_INTEGER, .value = value});
    advance(lexer, at - lexer->at);
}

/* The value of `count` hexadecimal digits, at most 8; UINT32_MAX when they are none. */
static uint32_t read_hex(const char *text, size_t left, size_t count) {
    char digits[9] = "";
    if (left < count) return UINT32_MAX;
    memcpy(digits, text, count);
    return strspn(digits, "0123456789abcdefABCDEF") == count ? (uint32_t)strtoul(digits, NULL, 16) : UINT32_MAX;
}

/* An escape of Python's string literals behind its backslash; returns the bytes that it takes, 0 when it is none. */
static size_t read_escape(const char *text, size_t left, uint32_t *code) {
    static const char letters[] = "abfnrtv0\\'\"", values[] = "\a\b\f\n\r\t\v\0\\'\"";
    const char *letter = text[0] ? strchr(letters, text[0]) : NULL;
    bool octal = left > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '7';
    if (letter && !octal) {
        *code = (unsigned char)values[letter - letters];
        return 1;
    }
    size_t count = text[0] == 'x' ? 2 : text[0] == 'u' ? 4 : text[0] == 'U' ? 8 : 0;
    if (count == 0) return 0;
    *code = read_hex(text + 1, left - 1, count);
    return *code < 0x110000 && (*code < 0xD800 || *code > 0xDFFF) ? count + 1 : 0;
}

/* Returns the bytes that it wrote. Fails for what Python would read and this does not: octal escapes and named
 * characters. */
static size_t unescape(struct lexer *lexer, const char *text, size_t bytes, char *out) {
    size_t used = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] != '\\' || i + 1 == bytes) {
            out[used++] = text[i];
            continue;
        }
        uint32_t code = 0;
        char next = text[i + 1];
        size_t taken = read_escape(text + i + 1, bytes - i - 1, &code);
        if (taken > 0) {
            used += utf8_encode(code, out + used);
            i += taken;
        } else if (next == '\n') {
            i++;
        } else if (strchr("01234567xuUN", next)) {
            jinja_refuse(lexer->parser, "the escape \\%c is malformed or not supported", next);
        } else {
            out[used++] = '\\';
        }
    }
    return used;
}

static void lex_string(struct lexer *lexer) {
    char quote = lexer->text[lexer->at];
    size_t end = lexer->at + 1;
    while (end < lexer->bytes && lexer->text[end] != quote)
        end += lexer->text[end] == '\\' ? 2 : 1;
    if (end >= lexer->bytes) jinja_refuse(lexer->parser, "a string without its end");
    const char *text = lexer->text + lexer->at + 1;
    size_t bytes = end - lexer->at - 1;
    char *value = jinja_keep(lexer->parser, bytes + 1, 1);
    add_text(lexer, JINJA_TOKEN_STRING, value, unescape(lexer, text, bytes, value));
    advance(lexer, bytes + 2);
}

static void balance(struct lexer *lexer, char c) {
    const char *open = strchr("([{", c), *close = strchr(")]}", c);
    if (open) {
        if (lexer->nesting == NESTING_MAX)
            jinja_refuse(lexer->parser, "brackets nested more than %d deep", NESTING_MAX);
        lexer->closing[lexer->nesting++] = ")]}"[open - "([{"];
    } else if (close) {
        if (lexer->nesting == 0 || lexer->closing[--lexer->nesting] != c)
            jinja_refuse(lexer->parser, "unexpected '%c'", c);
    }
}

static void lex_operator(struct lexer *lexer) {
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                            "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!starts(lexer, lexer->at, operators[i])) continue;
        size_t length = strlen(operators[i]);
        if (length == 1) balance(lexer, operators[i][0]);
        add_text(lexer, JINJA_TOKEN_OPERATOR, operators[i], length);
        advance(lexer, length);
        return;
    }
    jinja_refuse(lexer->parser, "unexpected character '%c'", lexer->text[lexer->at]);
}

static void lex_name(struct lexer *lexer) {
    size_t end = lexer->at;
    while (end < lexer->bytes && is_name_byte(lexer->text[end]))
        end++;
    add_text(lexer, JINJA_TOKEN_NAME, lexer->text + lexer->at, end - lexer->at);
    lexer->at = end;
}

/* The inside of a tag, up to and with its end. */
static void lex_tag(struct lexer *lexer, bool output) {
    int line = lexer->parser->line;
    lexer->nesting = 0;
    for (;;) {
        advance(lexer, skip_space(lexer, lexer->at) - lexer->at);
        if (lexer->at == lexer->bytes) {
            lexer->parser->line = line;
            jinja_refuse(lexer->parser, "a tag without its end");
        }
        size_t end = lexer->nesting > 0 ? 0 : tag_end(lexer, lexer->at, output ? "}}" : "%}", !output);
        if (end > 0) {
            add_text(lexer, output ? JINJA_TOKEN_OUTPUT_END : JINJA_TOKEN_STATEMENT_END, NULL, 0);
            take_end(lexer, end);
            return;
        }
        char c = lexer->text[lexer->at];
        if (c >= '0' && c <= '9')
            lex_number(lexer);
        else if (is_name_byte(c))
            lex_name(lexer);
        else if (c == '"' || c == '\'')
            lex_string(lexer);
        else
            lex_operator(lexer);
    }
}

static void lex_next(struct lexer *lexer) {
    size_t tag = find_tag(lexer);
    const char *text = lexer->text + lexer->at;
    size_t bytes = tag - lexer->at;
    if (tag == lexer->bytes) {
        if (bytes > 0) add_text(lexer, JINJA_TOKEN_DATA, text, bytes);
        advance(lexer, bytes);
        return;
    }
    char type = lexer->text[tag + 1], sign = tag + 2 < lexer->bytes ? lexer->text[tag + 2] : '\0';
    size_t kept = trim_before(lexer, text, bytes, sign, type == '{');
    if (kept > 0) add_text(lexer, JINJA_TOKEN_DATA, text, kept);
    advance(lexer, bytes + 2 + (sign == '-' || sign == '+'));
    lexer->line_starting = false;
    size_t raw = type == '%' ? word_tag(lexer, lexer->at, "raw", false) : 0;
    if (type == '#') {
        skip_comment(lexer);
    } else if (raw > 0) {
        take_end(lexer, raw);
        take_raw(lexer);
    } else {
        add_text(lexer, type == '{' ? JINJA_TOKEN_OUTPUT_BEGIN : JINJA_TOKEN_STATEMENT_BEGIN, NULL, 0);
        lex_tag(lexer, type == '{');
    }
}

/* "\n" for all ends of lines, and without the last of them. */
static void normalize_lines(struct lexer *lexer, const char *text, size_t bytes) {
    char *copy = jinja_keep(lexer->parser, bytes + 1, 1);
    size_t used = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\n' && i > 0 && text[i - 1] == '\r') continue;
        copy[used++] = text[i] == '\r' ? '\n' : text[i];
    }
    lexer->text = copy;
    lexer->bytes = used > 0 && copy[used - 1] == '\n' ? used - 1 : used;
}

void jinja_tokenize(struct jinja_parser *parser, const char *text, size_t bytes, struct jinja_tokens *out) {
    struct lexer lexer = {.parser = parser, .line_starting = true, .out = out};
    parser->line = 1;
    normalize_lines(&lexer, text, bytes);
    while (lexer.at < lexer.bytes)
        lex_next(&lexer);
    add_token(&lexer, (struct jinja_token){.kind = JINJA_TOKEN_END});
}
