/* Trains a byte-level BPE tokenizer and writes its tokenizer.json. */
#include <jansson.h>
#include <string.h>

#include "base/json.h"
#include "base/progress.h"
#include "text/tokenizer/bpe_train.h"
#include "text/tokenizer/split_pattern.h"
#include "text/tokenizer/text_steps.h"
#include "text/tokenizer/tokenizer_parts.h"

enum { PART_BYTES = 1 << 17, PAIR_COUNT_MIN = 2, BYTES = 256 };

static enum status word_take(void *payload, const char *text, size_t bytes, bool end) {
    BUG_IF(!end && bytes > 0, "a split handed on a part of a word");
    return bytes > 0 ? bpe_words_add(payload, text, bytes) : STATUS_OK;
}

static enum status ids_refuse(void *payload, const uint32_t *ids, size_t count) {
    (void)payload, (void)ids, (void)count;
    BUG("training has no ids yet");
}

static enum status words_count_by(const struct file_input *text, char *buffer, struct bpe_words *words) {
    struct split_pattern *pattern = NULL;
    struct text_chain *chain = NULL;
    TRY(split_pattern_compile("ByteLevel", tokenizer_gpt2_pattern, strlen(tokenizer_gpt2_pattern), false, &pattern));
    const struct text_split split = {.pattern = pattern, .behavior = SPLIT_ISOLATED};
    const struct text_step_spec steps[] = {{&text_fix_step, NULL}, {&text_split_step, &split}};
    enum status status = text_chain_create(steps, 2, (struct text_sink){word_take, words},
                                           (struct token_sink){ids_refuse, NULL}, &chain);
    progress_begin(PROGRESS_BYTES, (int64_t)text->bytes, "tokenizer: counting words");
    for (size_t at = 0, part; status == STATUS_OK && at < text->bytes; at += part) {
        part = text->bytes - at < PART_BYTES ? text->bytes - at : PART_BYTES;
        status = file_input_read(text, at, part, buffer);
        if (status == STATUS_OK) status = text_chain_write(chain, buffer, part, at + part == text->bytes);
        progress_add((int64_t)part);
    }
    progress_end();
    text_chain_free(chain);
    split_pattern_free(pattern);
    return status;
}

static enum status words_count(const struct file_input *text, struct bpe_words *words) {
    char *buffer = mem_array(PART_BYTES, 1);
    enum status status = buffer ? words_count_by(text, buffer, words) : STATUS_FAILED;
    mem_free(buffer);
    return status;
}

static enum status specials_add(struct bpe_vocabulary *vocabulary, const char *const *specials, size_t count) {
    for (size_t i = 0; i < count; i++) {
        size_t bytes = strlen(specials[i]);
        uint32_t id;
        if (bytes == 0 || utf8_valid_bytes(specials[i], bytes) != bytes)
            return status_set(STATUS_BAD_INPUT, "special token %zu: is empty or not UTF-8", i);
        TRY(bpe_vocabulary_add(vocabulary, specials[i], bytes, &id));
        if (id != i) return status_set(STATUS_BAD_INPUT, "special token %s: is there twice", specials[i]);
    }
    return STATUS_OK;
}

static json_t *added_json(const struct bpe_vocabulary *vocabulary, size_t special_count) {
    json_t *list = json_array();
    for (size_t i = 0; i < special_count; i++)
        json_array_append_new(list, json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)i, "content",
                                              vocabulary->tokens.items[i], "single_word", 0, "lstrip", 0, "rstrip", 0,
                                              "normalized", 0, "special", 1));
    return list;
}

static json_t *vocabulary_json(const struct bpe_vocabulary *vocabulary) {
    json_t *object = json_object();
    for (size_t i = 0; i < vocabulary->tokens.count; i++)
        json_object_set_new(object, vocabulary->tokens.items[i], json_integer((json_int_t)i));
    return object;
}

static json_t *merges_json(const struct bpe_vocabulary *vocabulary) {
    json_t *list = json_array();
    for (size_t i = 0; i < vocabulary->merges.count; i++) {
        struct bpe_merge merge = vocabulary->merges.items[i];
        json_array_append_new(
            list, json_pack("[s, s]", vocabulary->tokens.items[merge.left], vocabulary->tokens.items[merge.right]));
    }
    return list;
}

static json_t *byte_level_json(void) {
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex",
                     1);
}

static enum status file_write(const struct bpe_vocabulary *vocabulary, size_t special_count, const char *path) {
    json_t *added = added_json(vocabulary, special_count), *tokens = vocabulary_json(vocabulary);
    json_t *merges = merges_json(vocabulary);
    bool whole = json_array_size(added) == special_count && json_object_size(tokens) == vocabulary->tokens.count &&
                 json_array_size(merges) == vocabulary->merges.count;
    json_t *file =
        json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:o, s:o, s:{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}}",
                  "version", "1.0", "truncation", "padding", "added_tokens", added, "normalizer", "pre_tokenizer",
                  byte_level_json(), "post_processor", byte_level_json(), "decoder", byte_level_json(), "model", "type",
                  "BPE", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                  "byte_fallback", 0, "ignore_merges", 0, "vocab", tokens, "merges", merges);
    enum status status = file && whole ? json_write(path, file) : status_no_memory(0, "a tokenizer's JSON");
    json_decref(file);
    return status;
}

static enum status train(const struct file_input *text, size_t vocab_size, const char *const *specials, size_t count,
                         struct bpe_words *words, struct bpe_vocabulary *vocabulary) {
    uint32_t byte_ids[BYTES];
    TRY(specials_add(vocabulary, specials, count));
    TRY(bpe_vocabulary_add_bytes(vocabulary, byte_ids));
    if (vocab_size < vocabulary->tokens.count)
        return status_set(STATUS_BAD_INPUT,
                          "a vocabulary of %zu tokens is too small: bytes and special tokens take %zu", vocab_size,
                          vocabulary->tokens.count);
    TRY(words_count(text, words));
    TRY(bpe_train(words, byte_ids, vocab_size, PAIR_COUNT_MIN, vocabulary));
    if (vocabulary->tokens.count == vocab_size) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "the text is too small for a vocabulary of %zu tokens: it gives %zu", vocab_size,
                     vocabulary->tokens.count);
    return status_hint(STATUS_BAD_INPUT, "use a longer text, or a vocabulary of at most %zu", vocabulary->tokens.count);
}

enum status tokenizer_train_file(const struct file_input *text, int64_t vocab_size, const char *const *special_tokens,
                                 size_t special_token_count, const char *out_tokenizer_json) {
    if (vocab_size < 0 || vocab_size > TOKENIZER_IDS_MAX)
        return status_set(STATUS_BAD_INPUT, "a vocabulary of %lld tokens: must be 0 to %d", (long long)vocab_size,
                          TOKENIZER_IDS_MAX);
    struct bpe_words words = {0};
    struct bpe_vocabulary vocabulary = {0};
    enum status status;
    TRY_GOTO(status, train(text, (size_t)vocab_size, special_tokens, special_token_count, &words, &vocabulary), done);
    TRY_GOTO(status, file_write(&vocabulary, special_token_count, out_tokenizer_json), done);
done:
    bpe_words_free(&words);
    bpe_vocabulary_free(&vocabulary);
    return status;
}
