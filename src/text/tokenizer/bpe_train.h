/* Learning byte-pair merges from counted words. */
#ifndef BALLAST_TEXT_TOKENIZER_BPE_TRAIN_H
#define BALLAST_TEXT_TOKENIZER_BPE_TRAIN_H

#include "base/mem.h"
#include "text/tokenizer/string_table.h"

/* Distinct words with their counts: zero-initialise, bpe_words_add, bpe_words_free. */
struct bpe_word {
    const char *text;
    uint32_t bytes;
    int64_t count;
};
struct bpe_words {
    VEC(struct bpe_word) items;
    struct string_table places; /* word -> index of items */
    struct scratch memory;
};
/* Counts one occurrence; any bytes. */
enum status bpe_words_add(struct bpe_words *words, const char *text, size_t bytes);
void bpe_words_free(struct bpe_words *words);

/* Tokens by id, in the byte alphabet, and the merges that make them: zero-initialise, bpe_vocabulary_add for the tokens
 * to begin with, bpe_train, bpe_vocabulary_free. */
struct bpe_merge {
    uint32_t left, right; /* ids */
};
struct bpe_vocabulary {
    VEC(const char *) tokens;
    struct string_table ids;
    VEC(struct bpe_merge) merges;
    struct scratch memory;
};
/* The id of the token with this text, which is added if it was missing. */
enum status bpe_vocabulary_add(struct bpe_vocabulary *vocabulary, const char *text, size_t bytes, uint32_t *id);
/* Adds the 256 bytes in the order of their characters. */
enum status bpe_vocabulary_add_bytes(struct bpe_vocabulary *vocabulary, uint32_t ids[256]);
void bpe_vocabulary_free(struct bpe_vocabulary *vocabulary);

/* Merges the most frequent pair, again and again, until there are `size` tokens or no pair occurs `min_count` times.
 * Of equally frequent pairs the one with the smaller ids comes first. The vocabulary must hold the bytes as byte_ids.
 */
enum status bpe_train(const struct bpe_words *words, const uint32_t byte_ids[256], size_t size, int64_t min_count,
                      struct bpe_vocabulary *vocabulary);

#endif
