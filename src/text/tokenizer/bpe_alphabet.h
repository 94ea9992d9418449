/* The first tokens of a word's characters, and the places where a word may be cut.
 *
 * A merge joins two neighbours, so it spans the border between the last character of one token and the first one of
 * another. Where no merge spans the border between two characters, the text before it and the text after it are never
 * merged: the ids of the whole are those of the two parts. So even a text without a pre-tokenizer is cut into short
 * words. */
#ifndef BALLAST_TEXT_TOKENIZER_BPE_ALPHABET_H
#define BALLAST_TEXT_TOKENIZER_BPE_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "text/tokenizer/string_table.h"

enum { BPE_NO_ID = -1, BPE_START_IDS_MAX = 4 };

/* What the vocabulary says of a character. */
struct bpe_character {
    uint32_t id;
    bool known; /* it is a token */
    bool left;  /* a merge spans the border after it ... */
    bool right; /* ... the one before it */
};

/* Zero-initialise, bpe_alphabet_read, bpe_alphabet_note_merge for each merge, bpe_alphabet_free. */
struct bpe_alphabet {
    bool bytes;         /* characters are bytes, and their tokens written in the byte alphabet; else they are UTF-8's */
    bool byte_fallback; /* characters that are no token become the tokens of their bytes */
    bool fuse_unknown;  /* unknown characters in a row become one unknown token */
    bool uncut;         /* some merge joins tokens that are no characters: words are never cut */
    int64_t unknown_id; /* stands for characters that are not known; BPE_NO_ID: they are dropped */
    int64_t byte_ids[256];             /* of byte_fallback: BPE_NO_ID where there is none */
    bool all_known;                    /* no character is unknown */
    struct bpe_character *pages[4352]; /* [code / 256]: 256 characters, or NULL */
    uint64_t *borders; /* a table of those that merges span, at most half full: see bpe_alphabet_note_merge */
    size_t border_slots, border_count;
};

/* Finds all characters in the vocabulary: set `bytes`, `byte_fallback` and `unknown_id` first. */
enum status bpe_alphabet_read(struct bpe_alphabet *alphabet, const struct string_table *vocabulary);
/* Notes the border that a merge of two tokens spans. */
enum status bpe_alphabet_note_merge(struct bpe_alphabet *alphabet, const char *left, size_t left_bytes,
                                    const char *right, size_t right_bytes);
void bpe_alphabet_free(struct bpe_alphabet *alphabet);

/* What stands at the beginning of a word: its length in bytes, and its code (the byte where `bytes` is set). */
size_t bpe_alphabet_next(const struct bpe_alphabet *alphabet, const char *text, uint32_t *code);
/* The code of the last character of a text that is not empty. */
void bpe_alphabet_last(const struct bpe_alphabet *alphabet, const char *text, size_t bytes, uint32_t *code);
/* NULL when the vocabulary has no token for it. */
const struct bpe_character *bpe_alphabet_find(const struct bpe_alphabet *alphabet, uint32_t code);
/* The ids of a character that is no token by its bytes; returns their number, 0 where one has none. */
size_t bpe_alphabet_fall_back(const struct bpe_alphabet *alphabet, uint32_t code, uint32_t ids[BPE_START_IDS_MAX]);
/* Whether a word may be cut between two characters. */
bool bpe_alphabet_may_cut(const struct bpe_alphabet *alphabet, uint32_t left, uint32_t right);

#endif
