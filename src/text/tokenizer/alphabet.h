/* How a vocabulary writes single bytes. The alphabet of byte-level tokenizers has one printable character for each
 * byte, so that any bytes can be written as text. Printable Latin-1 stands for itself; the other 68 bytes, in order,
 * are U+0100 to U+0143 (a space is U+0120). */
#pragma once

#include "base/base.h"
#include "base/text.h"
#include "text/tokenizer/tables.h"

/* The byte of a character, or -1. */
int byte_alphabet_byte(uint32_t code);
/* Appends bytes as text of the alphabet. */
enum status byte_alphabet_write(struct text_buffer *out, const char *bytes, size_t count);
/* Appends the bytes of a text of the alphabet; a (valid) text with any other character is appended as it is. */
enum status byte_alphabet_read(struct text_buffer *out, const char *text, size_t bytes);

/* --- tokens of single bytes, where a vocabulary falls back to them: "<0x00>" to "<0xFF>" --- */

enum { BYTE_TOKEN_BYTES = 6 };

static inline int byte_token_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Whether a text is such a token, and of which byte. As in the `tokenizers` library, digits may be small letters, and
 * a plus may stand for the first one. */
static inline bool byte_token_read(const char *text, size_t bytes, unsigned char *byte) {
    if (bytes != BYTE_TOKEN_BYTES || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return false;
    int high = text[3] == '+' ? 0 : byte_token_digit(text[3]), low = byte_token_digit(text[4]);
    if (high < 0 || low < 0) return false;
    *byte = (unsigned char)(high << 4 | low);
    return true;
}

/* The first tokens of a word's characters, and the places where a word may be cut.
 *
 * A merge joins two neighbours, so it spans the border between the last character of one token and the first one of
 * another. Where no merge spans the border between two characters, the text before it and the text after it are never
 * merged: the ids of the whole are those of the two parts. So even a text without a pre-tokenizer is cut into short
 * words. */

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
