/* Pre-tokenizers that are splits by a pattern; ByteLevel may put a space first. */
#include <string.h>

#include "base/json.h"
#include "text/tokenizer/pattern_class.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/tokenizer/unicode_class.h"

/* The split of GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019), which ByteLevel
 * has built in. */
const char tokenizer_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* Digits goes by Rust's char::is_numeric, which knows Unicode 17. */
static const char digits_pattern[] = "[\\p{N}\\x{11DE0}-\\x{11DE9}\\x{16FF4}-\\x{16FF6}]";

static enum status split_add(struct tokenizer *tokenizer, struct text_split settings) {
    struct text_split *split = scratch_alloc(&tokenizer->memory, 1, sizeof *split);
    if (!split) return STATUS_FAILED;
    *split = settings;
    return vec_push(&tokenizer->pre_tokenizers, (struct text_step_spec){&text_split_step, split});
}

/* Bytes are the last thing that text becomes: no pre-tokenizer here works on the characters that stand for them. */
static enum status check_order(const struct tokenizer *tokenizer, const char *where) {
    if (!tokenizer->byte_level) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: a pre-tokenizer after ByteLevel is not supported", where);
}

static enum status behavior_read(const char *where, const json_t *object, enum split_behavior *out) {
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"};
    const char *name = NULL;
    TRY(json_require_string(where, object, "behavior", &name));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return *out = (enum split_behavior)i, STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: behavior: %.60s is not supported", where, name);
}

enum status tokenizer_read_split(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    struct text_split split = {0};
    const char *text;
    bool literal;
    TRY(check_order(tokenizer, where));
    TRY(json_only(where, object, (const char *const[]){"type", "pattern", "behavior", "invert", NULL}));
    TRY(behavior_read(where, object, &split.behavior));
    TRY(json_require_bool(where, object, "invert", &split.invert));
    TRY(tokenizer_read_pattern(tokenizer, where, object, &text, &literal));
    TRY(tokenizer_add_pattern(tokenizer, where, text, literal, &split.pattern));
    return split_add(tokenizer, split);
}

enum status tokenizer_read_digits(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    bool individual = false;
    TRY(check_order(tokenizer, where));
    TRY(json_only(where, object, (const char *const[]){"type", "individual_digits", NULL}));
    TRY(json_read_bool(where, object, "individual_digits", &individual));
    struct text_split split = {.behavior = individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS};
    TRY(tokenizer_add_pattern(tokenizer, where, digits_pattern, false, &split.pattern));
    return split_add(tokenizer, split);
}

enum status tokenizer_read_byte_level(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    static const struct text_prefix space = {.text = " ", .bytes = 1, .place = PREFIX_EACH, .unless_there = true};
    struct text_split split = {.behavior = SPLIT_ISOLATED};
    bool prefix_space = false, trim_offsets = false, use_regex = true;
    TRY(check_order(tokenizer, where));
    TRY(json_only(where, object, (const char *const[]){"type", "add_prefix_space", "trim_offsets", "use_regex", NULL}));
    TRY(json_require_bool(where, object, "add_prefix_space", &prefix_space));
    TRY(json_read_bool(where, object, "trim_offsets", &trim_offsets)); /* offsets are not kept */
    TRY(json_read_bool(where, object, "use_regex", &use_regex));
    if (prefix_space) TRY(vec_push(&tokenizer->pre_tokenizers, (struct text_step_spec){&text_prefix_step, &space}));
    tokenizer->byte_level = true;
    if (!use_regex) return STATUS_OK;
    TRY(tokenizer_add_pattern(tokenizer, where, tokenizer_gpt2_pattern, false, &split.pattern));
    return split_add(tokenizer, split);
}

/* --- splits by classes of characters --- */

/* Appends \x{first}-\x{last} for each range of the class's characters. */
static enum status class_write(struct text_buffer *out, bool (*is)(uint32_t)) {
    enum { CODES = 0x110000, SURROGATES = 0xD800, SURROGATES_END = 0xE000 };
    uint32_t first = CODES;
    for (uint32_t code = 0; code <= CODES; code++) {
        bool within = code < CODES && !(code >= SURROGATES && code < SURROGATES_END) && is(code);
        if (within && first == CODES) first = code;
        if (within || first == CODES) continue;
        TRY(pattern_write_range(out, first, code - 1));
        first = CODES;
    }
    return STATUS_OK;
}

/* A pattern with the class in place of each @. */
static enum status class_pattern(struct text_buffer *out, const char *form, bool (*is)(uint32_t)) {
    for (; *form; form++)
        TRY(*form == '@' ? class_write(out, is) : text_append(out, form, 1));
    return text_append(out, "", 1);
}

static enum status class_split_add(struct tokenizer *tokenizer, const char *where, const char *form,
                                   bool (*is)(uint32_t), struct text_split split) {
    struct text_buffer pattern = {0};
    enum status status = class_pattern(&pattern, form, is);
    if (status == STATUS_OK) status = tokenizer_add_pattern(tokenizer, where, pattern.items, false, &split.pattern);
    vec_free(&pattern);
    return status == STATUS_OK ? split_add(tokenizer, split) : status;
}

enum status tokenizer_read_whitespace(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    TRY(check_order(tokenizer, where));
    TRY(json_only(where, object, (const char *const[]){"type", NULL}));
    struct text_split split = {.behavior = SPLIT_REMOVED, .invert = true};
    return class_split_add(tokenizer, where, "[@]+|[^@\\s]+", unicode_is_word, split);
}

enum status tokenizer_read_whitespace_split(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    TRY(check_order(tokenizer, where));
    TRY(json_only(where, object, (const char *const[]){"type", NULL}));
    struct text_split split = {.behavior = SPLIT_REMOVED};
    TRY(tokenizer_add_pattern(tokenizer, where, "\\s+", false, &split.pattern));
    return split_add(tokenizer, split);
}

enum status tokenizer_read_punctuation(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    struct text_split split = {.behavior = SPLIT_ISOLATED};
    TRY(check_order(tokenizer, where));
    TRY(json_only(where, object, (const char *const[]){"type", "behavior", NULL}));
    if (json_object_get(object, "behavior")) TRY(behavior_read(where, object, &split.behavior));
    return class_split_add(tokenizer, where, "[@]", unicode_is_punctuation, split);
}

enum status tokenizer_read_delimiter_split(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    struct text_split split = {.behavior = SPLIT_REMOVED};
    uint32_t code;
    TRY(check_order(tokenizer, where));
    TRY(json_only(where, object, (const char *const[]){"type", "delimiter", NULL}));
    TRY(json_require_character(where, object, "delimiter", &code));
    const char *delimiter = json_string_value(json_object_get(object, "delimiter"));
    TRY(tokenizer_add_pattern(tokenizer, where, delimiter, true, &split.pattern));
    return split_add(tokenizer, split);
}
