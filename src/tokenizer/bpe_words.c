#include <string.h>

#include "tokenizer/bpe_train.h"
#include "tokenizer/byte_alphabet.h"

static enum status text_keep(struct scratch *memory, const char *text, size_t bytes, const char **out) {
    char *kept = scratch_alloc(memory, bytes + 1, 1);
    if (!kept) return STATUS_FAILED;
    if (bytes > 0) memcpy(kept, text, bytes);
    *out = kept;
    return STATUS_OK;
}

enum status bpe_words_add(struct bpe_words *words, const char *text, size_t bytes) {
    uint32_t index;
    if (string_table_find(&words->places, text, bytes, &index)) return words->items.items[index].count++, STATUS_OK;
    if (bytes >= UINT32_MAX || words->items.count >= UINT32_MAX)
        return status_set(STATUS_BAD_INPUT, "the text has words of over 4 GiB, or over 4 thousand million of them");
    struct bpe_word word = {.bytes = (uint32_t)bytes, .count = 1};
    TRY(text_keep(&words->memory, text, bytes, &word.text));
    TRY(vec_push(&words->items, word));
    return string_table_add(&words->places, word.text, word.bytes, (uint32_t)words->items.count - 1);
}

void bpe_words_free(struct bpe_words *words) {
    vec_free(&words->items);
    string_table_free(&words->places);
    scratch_free(&words->memory);
}

enum status bpe_vocabulary_add(struct bpe_vocabulary *vocabulary, const char *text, size_t bytes, uint32_t *id) {
    if (string_table_find(&vocabulary->ids, text, bytes, id)) return STATUS_OK;
    const char *kept;
    *id = (uint32_t)vocabulary->tokens.count;
    TRY(text_keep(&vocabulary->memory, text, bytes, &kept));
    TRY(vec_push(&vocabulary->tokens, kept));
    return string_table_add(&vocabulary->ids, kept, (uint32_t)bytes, *id);
}

enum status bpe_vocabulary_add_bytes(struct bpe_vocabulary *vocabulary, uint32_t ids[256]) {
    for (uint32_t code = 0; code < 0x200; code++) {
        int byte = byte_alphabet_byte(code);
        if (byte < 0) continue;
        char text[4];
        TRY(bpe_vocabulary_add(vocabulary, text, utf8_encode(code, text), &ids[byte]));
    }
    return STATUS_OK;
}

void bpe_vocabulary_free(struct bpe_vocabulary *vocabulary) {
    vec_free(&vocabulary->tokens);
    string_table_free(&vocabulary->ids);
    vec_free(&vocabulary->merges);
    scratch_free(&vocabulary->memory);
}
