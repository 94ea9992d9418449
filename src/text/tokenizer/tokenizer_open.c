/* Reads a tokenizer.json and puts its steps together. */
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer/tokenizer_parts.h"

static enum status unused_check(const char *name, const json_t *file) {
    static const char *const fields[] = {"version",       "truncation",     "padding", "added_tokens", "normalizer",
                                         "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    const char *version = "1.0";
    TRY(json_only(name, file, fields));
    TRY(json_read_string(name, file, "version", &version));
    if (strcmp(version, "1.0") != 0)
        return status_set(STATUS_BAD_INPUT, "%s: version: %.60s is not supported (supported: 1.0)", name, version);
    return STATUS_OK; /* texts are taken whole: transformers clears truncation and padding too */
}

static enum status part_read(struct tokenizer *tokenizer, const struct tokenizer_component *table, const char *name,
                             const json_t *file, const char *field) {
    const char *where = scratch_format(&tokenizer->memory, "%s: %s", name, field);
    return where ? component_read(tokenizer, table, where, json_object_get(file, field)) : STATUS_FAILED;
}

static enum status steps_join(struct tokenizer *tokenizer) {
    TRY(vec_push(&tokenizer->steps, (struct text_step_spec){&text_fix_step, NULL}));
    if (tokenizer->raw_added.trie.count > 0)
        TRY(vec_push(&tokenizer->steps, (struct text_step_spec){&text_added_step, &tokenizer->raw_added}));
    for (size_t i = 0; i < tokenizer->normalizers.count; i++)
        TRY(vec_push(&tokenizer->steps, tokenizer->normalizers.items[i]));
    if (tokenizer->normalized_added.trie.count > 0)
        TRY(vec_push(&tokenizer->steps, (struct text_step_spec){&text_added_step, &tokenizer->normalized_added}));
    for (size_t i = 0; i < tokenizer->pre_tokenizers.count; i++)
        TRY(vec_push(&tokenizer->steps, tokenizer->pre_tokenizers.items[i]));
    return vec_push(&tokenizer->steps, (struct text_step_spec){&text_bpe_step, &tokenizer->model});
}

/* Without a decoder the library puts a space between tokens. */
static enum status decoder_read(struct tokenizer *tokenizer, const char *name, const json_t *file) {
    static const struct text_prefix space = {
        .text = " ", .bytes = 1, .place = PREFIX_LATER, .unless_there = false, .empty_too = true};
    const json_t *decoder = json_object_get(file, "decoder");
    if (decoder && !json_is_null(decoder)) return part_read(tokenizer, tokenizer_decoders, name, file, "decoder");
    return vec_push(&tokenizer->decoders, (struct text_step_spec){&text_prefix_step, &space});
}

/* For the library a segment is the first when it comes from the text's first character as it was before normalizers,
 * which may have made several of it, or taken it away. */
static enum status first_check(const struct tokenizer *tokenizer, const char *name) {
    bool known = tokenizer->normalizers.count == 0 || !(tokenizer->beginning_moves || tokenizer->first_of_split ||
                                                        tokenizer->normalized_added.trie.count > 0);
    if (known || !tokenizer->first_matters) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "%s: pre_tokenizer: prepend_scheme: first is not supported with this normalizer",
                     name);
    return status_hint(STATUS_BAD_INPUT,
                       "Replace, Strip and StripAccents stand against it; and any normalizer together "
                       "with normalized added tokens, or a pre-tokenizer before Metaspace");
}

static enum status parts_read(struct tokenizer *tokenizer, const char *name, const json_t *file) {
    const json_t *model;
    TRY(unused_check(name, file));
    TRY(json_require_object(name, file, "model", &model));
    const char *model_where = scratch_format(&tokenizer->memory, "%s: model", name);
    const char *added_where = scratch_format(&tokenizer->memory, "%s: added_tokens", name);
    if (!model_where || !added_where) return STATUS_FAILED;
    TRY(part_read(tokenizer, tokenizer_normalizers, name, file, "normalizer"));
    TRY(part_read(tokenizer, tokenizer_pre_tokenizers, name, file, "pre_tokenizer"));
    TRY(decoder_read(tokenizer, name, file));
    TRY(tokenizer_read_model(tokenizer, model_where, model));
    TRY(tokenizer_read_added(tokenizer, added_where, json_object_get(file, "added_tokens")));
    TRY(first_check(tokenizer, name));
    TRY(part_read(tokenizer, tokenizer_post_processors, name, file, "post_processor"));
    return steps_join(tokenizer);
}

enum status tokenizer_read(const char *name, json_t *file, struct tokenizer **out) {
    struct tokenizer *made = mem_array(1, sizeof *made);
    enum status status = made ? parts_read(made, name, file) : STATUS_FAILED;
    json_decref(file);
    if (status != STATUS_OK) return tokenizer_free(made), status;
    *out = made;
    return STATUS_OK;
}

enum status tokenizer_open(const char *path, struct tokenizer **out) {
    json_t *file;
    TRY(json_read_object(path, TOKENIZER_LARGEST_FILE_BYTES, &file));
    return tokenizer_read(path, file, out);
}

void tokenizer_free(struct tokenizer *tokenizer) {
    if (!tokenizer) return;
    bpe_model_free(&tokenizer->model);
    vec_free(&tokenizer->tokens);
    vec_free(&tokenizer->added);
    string_table_free(&tokenizer->added_ids);
    token_trie_free(&tokenizer->raw_added.trie);
    token_trie_free(&tokenizer->normalized_added.trie);
    for (size_t i = 0; i < tokenizer->patterns.count; i++)
        split_pattern_free(tokenizer->patterns.items[i]);
    vec_free(&tokenizer->patterns);
    vec_free(&tokenizer->normalizers);
    vec_free(&tokenizer->pre_tokenizers);
    vec_free(&tokenizer->steps);
    vec_free(&tokenizer->decoders);
    vec_free(&tokenizer->before);
    vec_free(&tokenizer->after);
    scratch_free(&tokenizer->memory);
    mem_free(tokenizer);
}

int64_t tokenizer_vocab_size(const struct tokenizer *tokenizer) { return (int64_t)tokenizer->tokens.count; }

bool tokenizer_find(const struct tokenizer *tokenizer, const char *content, uint32_t *id) {
    size_t bytes = strlen(content);
    return string_table_find(&tokenizer->added_ids, content, bytes, id) ||
           string_table_find(&tokenizer->model.vocabulary, content, bytes, id);
}

const struct token_ids *tokenizer_before(const struct tokenizer *tokenizer) { return &tokenizer->before; }

const struct token_ids *tokenizer_after(const struct tokenizer *tokenizer) { return &tokenizer->after; }

bool tokenizer_is_special(const struct tokenizer *tokenizer, uint32_t id) {
    return id < tokenizer->tokens.count && tokenizer->tokens.items[id].special;
}
