#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer/split_pattern.h"

#include <pcre2.h>

#include "text/tokenizer/pattern_translate.h"

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
    uint64_t work, done; /* bytes of grown prefixes, and of what was found, since the text's beginning */
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
    if (literal)
        TRY_GOTO(status, pattern_translate_literal(pattern, bytes, &text), done);
    else
        TRY_GOTO(status, pattern_translate(where, pattern, bytes, &text), done);
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
    if (found < 0)
        return *result == SPLIT_MORE || found == PCRE2_ERROR_NOMATCH ? STATUS_OK : match_failed(pattern, found);
    const PCRE2_SIZE *places = pcre2_get_ovector_pointer(matcher->data);
    *start = places[0];
    *stop = places[1];
    matcher->done += *stop - from;
    return STATUS_OK;
}
