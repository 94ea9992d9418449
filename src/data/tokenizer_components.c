/* All that a tokenizer.json may name, by kind. What is not here is refused by name. */
#include "base/json.h"
#include "data/tokenizer_parts.h"

static const char *const no_settings[] = {"type", NULL};

/* --- normalizers --- */

static enum status add_normal_form(struct tokenizer *tokenizer, const char *where, const json_t *object,
                                   const struct text_normal_form *form) {
    TRY(json_only(where, object, no_settings));
    return vec_push(&tokenizer->normalizers, (struct text_stage_spec){&text_normalize_stage, form});
}

static enum status read_nfc(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return add_normal_form(tokenizer, where, object, &text_nfc);
}

static enum status read_nfd(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return add_normal_form(tokenizer, where, object, &text_nfd);
}

static enum status read_nfkc(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return add_normal_form(tokenizer, where, object, &text_nfkc);
}

static enum status read_nfkd(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return add_normal_form(tokenizer, where, object, &text_nfkd);
}

static enum status read_normalizer_sequence(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return component_read_sequence(tokenizer, tokenizer_normalizers, where, object, "normalizers");
}

const struct tokenizer_component tokenizer_normalizers[] = {
    {"NFC", read_nfc},
    {"NFD", read_nfd},
    {"NFKC", read_nfkc},
    {"NFKD", read_nfkd},
    {"Sequence", read_normalizer_sequence},
    {NULL, NULL},
};

/* --- pre-tokenizers --- */

static enum status read_pre_tokenizer_sequence(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return component_read_sequence(tokenizer, tokenizer_pre_tokenizers, where, object, "pretokenizers");
}

const struct tokenizer_component tokenizer_pre_tokenizers[] = {
    {"ByteLevel", tokenizer_read_byte_level},
    {"Digits", tokenizer_read_digits},
    {"Split", tokenizer_read_split},
    {"Sequence", read_pre_tokenizer_sequence},
    {NULL, NULL},
};

/* --- post-processors --- */

/* It changes only offsets, which Ballast has no use for. */
static enum status read_byte_level_post(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    (void)tokenizer;
    bool unused = false;
    static const char *const settings[] = {"type", "add_prefix_space", "trim_offsets", "use_regex", NULL};
    TRY(json_only(where, object, settings));
    for (size_t i = 1; settings[i]; i++)
        TRY(json_read_bool(where, object, settings[i], &unused));
    return STATUS_OK;
}

static enum status read_post_sequence(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return component_read_sequence(tokenizer, tokenizer_post_processors, where, object, "processors");
}

const struct tokenizer_component tokenizer_post_processors[] = {
    {"ByteLevel", read_byte_level_post},
    {"TemplateProcessing", tokenizer_read_template},
    {"Sequence", read_post_sequence},
    {NULL, NULL},
};

/* --- decoders --- */

static enum status read_byte_level_decoder(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    TRY(read_byte_level_post(tokenizer, where, object));
    return vec_push(&tokenizer->decoders, &byte_level_decoder);
}

static enum status read_decoder_sequence(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return component_read_sequence(tokenizer, tokenizer_decoders, where, object, "decoders");
}

const struct tokenizer_component tokenizer_decoders[] = {
    {"ByteLevel", read_byte_level_decoder},
    {"Sequence", read_decoder_sequence},
    {NULL, NULL},
};
