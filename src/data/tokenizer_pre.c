/* Pre-tokenizers: all of them are splits by a pattern, and ByteLevel may put a space first. */
#include <string.h>

#include "base/json.h"
#include "data/tokenizer_parts.h"

/* The split of GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019), which ByteLevel
 * has built in. */
const char tokenizer_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* Digits goes by Rust's char::is_numeric, which knows Unicode 17. */
static const char digits_pattern[] = "[\\p{N}\\x{11DE0}-\\x{11DE9}\\x{16FF4}-\\x{16FF6}]";

static enum status split_add(struct tokenizer *tokenizer, const char *where, const char *pattern, bool literal,
                             struct text_split settings) {
    struct text_split *split = scratch_alloc(&tokenizer->memory, 1, sizeof *split);
    if (!split) return STATUS_FAILED;
    *split = settings;
    TRY(vec_reserve(&tokenizer->patterns, tokenizer->patterns.count + 1));
    struct split_pattern *compiled;
    TRY(split_pattern_compile(where, pattern, strlen(pattern), literal, &compiled));
    tokenizer->patterns.items[tokenizer->patterns.count++] = compiled;
    split->pattern = compiled;
    return vec_push(&tokenizer->pre_tokenizers, (struct text_stage_spec){&text_split_stage, split});
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
    const json_t *pattern;
    const char *text = NULL;
    TRY(check_order(tokenizer, where));
    TRY(json_only(where, object, (const char *const[]){"type", "pattern", "behavior", "invert", NULL}));
    TRY(behavior_read(where, object, &split.behavior));
    TRY(json_require_bool(where, object, "invert", &split.invert));
    TRY(json_require_object(where, object, "pattern", &pattern));
    const char *place = scratch_format(&tokenizer->memory, "%s.pattern", where);
    if (!place) return STATUS_FAILED;
    bool literal = json_object_get(pattern, "String") != NULL;
    const char *kind = literal ? "String" : "Regex";
    TRY(json_only(place, pattern, (const char *const[]){kind, NULL}));
    TRY(json_require_string(place, pattern, kind, &text));
    return split_add(tokenizer, place, text, literal, split);
}

enum status tokenizer_read_digits(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    bool individual = false;
    TRY(check_order(tokenizer, where));
    TRY(json_only(where, object, (const char *const[]){"type", "individual_digits", NULL}));
    TRY(json_read_bool(where, object, "individual_digits", &individual));
    struct text_split split = {.behavior = individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS};
    return split_add(tokenizer, where, digits_pattern, false, split);
}

enum status tokenizer_read_byte_level(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    bool prefix_space = false, trim_offsets = false, use_regex = true;
    TRY(check_order(tokenizer, where));
    TRY(json_only(where, object, (const char *const[]){"type", "add_prefix_space", "trim_offsets", "use_regex", NULL}));
    TRY(json_require_bool(where, object, "add_prefix_space", &prefix_space));
    TRY(json_read_bool(where, object, "trim_offsets", &trim_offsets)); /* offsets are not kept */
    TRY(json_read_bool(where, object, "use_regex", &use_regex));
    if (prefix_space)
        TRY(vec_push(&tokenizer->pre_tokenizers, (struct text_stage_spec){&text_prefix_space_stage, NULL}));
    tokenizer->byte_level = true;
    if (!use_regex) return STATUS_OK;
    return split_add(tokenizer, where, tokenizer_gpt2_pattern, false, (struct text_split){.behavior = SPLIT_ISOLATED});
}
