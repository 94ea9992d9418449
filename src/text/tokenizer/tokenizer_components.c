/* All that a tokenizer.json may name, by kind, and docs/tokenizers.md, which lists it. What is not here is refused by
 * name. */
#include "base/json.h"
#include "text/tokenizer/tokenizer_parts.h"

static enum status read_normalizer_sequence(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return component_read_sequence(tokenizer, tokenizer_normalizers, where, object, "normalizers");
}

const struct tokenizer_component tokenizer_normalizers[] = {
    {"NFC", "Unicode 9's data, as the library has it", tokenizer_read_nfc},
    {"NFD", "as NFC", tokenizer_read_nfd},
    {"NFKC", "as NFC", tokenizer_read_nfkc},
    {"NFKD", "as NFC", tokenizer_read_nfkd},
    {"Lowercase", "", tokenizer_read_lowercase},
    {"Prepend", "`prepend`; nothing before an empty piece", tokenizer_read_prepend},
    {"Replace", "`pattern` (`String` or `Regex`), `content`", tokenizer_read_replace_normalizer},
    {"Strip", "`strip_left`, `strip_right`", tokenizer_read_strip_normalizer},
    {"StripAccents", "", tokenizer_read_strip_accents},
    {"Sequence", "of those here", read_normalizer_sequence},
    {NULL, NULL, NULL},
};

static enum status read_pre_tokenizer_sequence(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return component_read_sequence(tokenizer, tokenizer_pre_tokenizers, where, object, "pretokenizers");
}

const struct tokenizer_component tokenizer_pre_tokenizers[] = {
    {"ByteLevel", "`add_prefix_space`, `use_regex`; last of the pre-tokenizers", tokenizer_read_byte_level},
    {"CharDelimiterSplit", "`delimiter`", tokenizer_read_delimiter_split},
    {"Digits", "`individual_digits`", tokenizer_read_digits},
    {"Metaspace",
     "`replacement`, `prepend_scheme` or the older `add_prefix_space`, `split`; `first` not together with every "
     "normalizer",
     tokenizer_read_metaspace},
    {"Punctuation", "`behavior`", tokenizer_read_punctuation},
    {"Split", "`pattern` (`String` or `Regex`), `behavior`, `invert`", tokenizer_read_split},
    {"Whitespace", "", tokenizer_read_whitespace},
    {"WhitespaceSplit", "", tokenizer_read_whitespace_split},
    {"Sequence", "of those here", read_pre_tokenizer_sequence},
    {NULL, NULL, NULL},
};

/* It changes only offsets, which Ballast does not use. */
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
    {"ByteLevel", "changes only offsets, which are not kept", read_byte_level_post},
    {"TemplateProcessing", "`single`, `special_tokens`; there are no pairs of texts", tokenizer_read_template},
    {"Sequence", "of those here", read_post_sequence},
    {NULL, NULL, NULL},
};

static enum status read_decoder_sequence(struct tokenizer *tokenizer, const char *where, const json_t *object) {
    return component_read_sequence(tokenizer, tokenizer_decoders, where, object, "decoders");
}

const struct tokenizer_component tokenizer_decoders[] = {
    {"ByteFallback", "", tokenizer_read_byte_fallback},
    {"ByteLevel", "", tokenizer_read_byte_level_decoder},
    {"Fuse", "", tokenizer_read_fuse},
    {"Metaspace", "`replacement`, `prepend_scheme` or `add_prefix_space`", tokenizer_read_metaspace_decoder},
    {"Replace", "`pattern` (`String` or `Regex`), `content`", tokenizer_read_replace_decoder},
    {"Strip", "`content`, `start`, `stop`", tokenizer_read_strip_decoder},
    {"Sequence", "of those here", read_decoder_sequence},
    {NULL, NULL, NULL},
};

static void table_print(const char *title, const struct tokenizer_component *table, FILE *out) {
    fprintf(out, "\n## %s\n\n| `type` | settings |\n|---|---|\n", title);
    for (size_t i = 0; table[i].type; i++)
        fprintf(out, "| `%s` | %s |\n", table[i].type, table[i].note[0] ? table[i].note : "none");
}

void tokenizer_print_document(FILE *out) {
    fputs(
        "# Tokenizers\n\nMade by `ballast help tokenizers > docs/tokenizers.md`; a test compares.\n\n"
        "A model's `tokenizer.json` may hold what is listed here; all else is refused by name. Ids and decoded text "
        "are\n"
        "those of the `tokenizers` library 0.23, which made the fixtures in `tests/fixtures/tokenizers`. `truncation`\n"
        "and `padding` are ignored, as transformers clears them. `added_tokens` are read with all their settings.\n\n"
        "As in transformers 5, special tokens that only files next to `tokenizer.json` name become added tokens:\n"
        "`tokenizer_config.json` (`added_tokens_decoder`, `eos_token` and its like, `extra_special_tokens` or\n"
        "`additional_special_tokens`), `special_tokens_map.json` and `added_tokens.json`. A token that would get an "
        "id\n"
        "beyond the model's vocabulary is left out, with a warning. `add_bos_token` and `add_eos_token` change "
        "nothing:\n"
        "the post-processor of `tokenizer.json` stays.\n\n"
        "## model\n\n"
        "`BPE`, over bytes (GPT-2, Llama 3, Qwen) or over characters (Llama 2, Mistral, Gemma): `unk_token`,\n"
        "`fuse_unk`, `byte_fallback`, `ignore_merges`, `vocab`, `merges`. Refused where they are set: `dropout`,\n"
        "`continuing_subword_prefix`, `end_of_word_suffix`. Other models (`Unigram`, `WordPiece`, `WordLevel`) are\n"
        "refused.\n",
        out);
    table_print("normalizer", tokenizer_normalizers, out);
    table_print("pre_tokenizer", tokenizer_pre_tokenizers, out);
    table_print("post_processor", tokenizer_post_processors, out);
    table_print("decoder", tokenizer_decoders, out);
    fputs("\n## Regular expressions\n\n"
          "Of Oniguruma's syntax: literals, `.`, sets with ranges, `\\s` `\\S` `\\d` `\\D` `\\p{..}` `\\P{..}` with a "
          "general\n"
          "category, groups `(..)` `(?:..)` `(?>..)` `(?=..)` `(?!..)`, `(?i:..)` around ASCII, repeats `*` `+` `?` "
          "`{n,m}`\n"
          "greedy, lazy and possessive, `^` and `$` at lines. A pattern that may match nothing is refused.\n",
          out);
}
