#include "tokenizer/tokenizer_parts.h"

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
        "and `padding` must be null. `added_tokens` are read with all their settings.\n\n"
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
