/* All that a tokenizer.json may name, by kind. What is not here is refused by name. */
#include "base/json.h"
#include "data/tokenizer_parts.h"

static enum status read_normalizer_sequence(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return component_read_sequence(tokenizer, tokenizer_normalizers, where, object, "normalizers");
}

const struct tokenizer_component tokenizer_normalizers[] = {
    {"NFC", tokenizer_read_nfc},
    {"NFD", tokenizer_read_nfd},
    {"NFKC", tokenizer_read_nfkc},
    {"NFKD", tokenizer_read_nfkd},
    {"Lowercase", tokenizer_read_lowercase},
    {"Prepend", tokenizer_read_prepend},
    {"Replace", tokenizer_read_replace_normalizer},
    {"Strip", tokenizer_read_strip_normalizer},
    {"StripAccents", tokenizer_read_strip_accents},
    {"Sequence", read_normalizer_sequence},
    {NULL, NULL},
};

static enum status read_pre_tokenizer_sequence(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return component_read_sequence(tokenizer, tokenizer_pre_tokenizers, where, object, "pretokenizers");
}

const struct tokenizer_component tokenizer_pre_tokenizers[] = {
    {"ByteLevel", tokenizer_read_byte_level},    {"CharDelimiterSplit", tokenizer_read_delimiter_split},
    {"Digits", tokenizer_read_digits},           {"Metaspace", tokenizer_read_metaspace},
    {"Punctuation", tokenizer_read_punctuation}, {"Split", tokenizer_read_split},
    {"Whitespace", tokenizer_read_whitespace},   {"WhitespaceSplit", tokenizer_read_whitespace_split},
    {"Sequence", read_pre_tokenizer_sequence},   {NULL, NULL},
};

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

static enum status read_decoder_sequence(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return component_read_sequence(tokenizer, tokenizer_decoders, where, object, "decoders");
}

const struct tokenizer_component tokenizer_decoders[] = {
    {"ByteFallback", tokenizer_read_byte_fallback},
    {"ByteLevel", tokenizer_read_byte_level_decoder},
    {"Fuse", tokenizer_read_fuse},
    {"Metaspace", tokenizer_read_metaspace_decoder},
    {"Replace", tokenizer_read_replace_decoder},
    {"Strip", tokenizer_read_strip_decoder},
    {"Sequence", read_decoder_sequence},
    {NULL, NULL},
};
