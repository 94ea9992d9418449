/* Byte-pair encoding (Sennrich et al., "Neural machine translation of rare words with subword units", ACL 2016) over
 * the bytes or characters of words: a vocabulary, and pairs of tokens in the order in which they are merged.
 *
 * A vocabulary writes single bytes in an alphabet of its own, which has one printable character for each byte, so that
 * any bytes can be written as text. Printable Latin-1 stands for itself; the other 68 bytes, in order, are U+0100 to
 * U+0143 (a space is U+0120). */
#pragma once

#include <ctype.h>

#include "base/base.h"
#include "base/text.h"
#include "text/tokenizer/steps.h"
#include "text/tokenizer/tables.h"
#include "text/tokenizer/tokenizer.h"

/* The byte of a character, or -1. */
int byte_alphabet_byte(uint32_t code);
/* Appends the bytes of a text of the alphabet. A (valid) text with any other character is appended unchanged. */
enum status byte_alphabet_read(struct text_buffer *out, const char *text, size_t bytes);

/* --- tokens of single bytes, where a vocabulary falls back to them: "<0x00>" to "<0xFF>" --- */

enum { BYTE_TOKEN_BYTES = 6 };

/* Whether a text is a byte token, and its byte. As in the `tokenizers` library, digits may be small letters, and a plus
 * may stand for the first one. */
static inline bool byte_token_read(const char *text, size_t bytes, unsigned char *byte) {
    if (bytes != BYTE_TOKEN_BYTES || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return false;
    const char digits[3] = {text[3] == '+' ? '0' : text[3], text[4]};
    *byte = (unsigned char)strtoul(digits, NULL, 16);
    return isxdigit((unsigned char)digits[0]) && isxdigit((unsigned char)digits[1]);
}

/* The first tokens of a word's characters, and the places where a word may be cut.
 *
 * A merge joins two neighbours, so it spans the border between the last character of one token and the first one of
 * another. Where no merge spans the border between two characters, the text before it and the text after it are never
 * merged: the ids of the whole are those of the two parts. So even a text without a pre-tokenizer is cut into short
 * words. */

enum { BPE_NO_ID = -1, BPE_START_IDS_MAX = 4 };

/* The vocabulary's data about a character. */
struct bpe_character {
    uint32_t id;
    bool known; /* it is a token */
    bool left;  /* a merge spans the border after it ... */
    bool right; /* ... the one before it */
};

/* Zero-initialise, bpe_alphabet_read, bpe_alphabet_note_merge for each merge; bpe_model_free frees it. */
struct bpe_alphabet {
    bool bytes;         /* characters are bytes, and their tokens written in the byte alphabet; else they are UTF-8's */
    bool byte_fallback; /* characters that are no token become the tokens of their bytes */
    bool fuse_unknown;  /* unknown characters in a row become one unknown token */
    bool uncut;         /* some merge joins tokens that are no characters: words are never cut */
    int64_t unknown_id; /* stands for characters that are not known; BPE_NO_ID: they are dropped */
    int64_t byte_ids[256];             /* of byte_fallback: BPE_NO_ID where there is none */
    bool all_known;                    /* no character is unknown */
    struct bpe_character *pages[4352]; /* [code / 256]: 256 characters, or NULL */
    struct pair_table borders;         /* borders that merges span; the values are unused */
};

/* Finds all characters in the vocabulary: set `bytes`, `byte_fallback` and `unknown_id` first. */
enum status bpe_alphabet_read(struct bpe_alphabet *alphabet, const struct string_table *vocabulary);
/* Notes the border that a merge of two tokens spans. */
enum status bpe_alphabet_note_merge(struct bpe_alphabet *alphabet, const char *left, size_t left_bytes,
                                    const char *right, size_t right_bytes);

/* Zero-initialise, set the alphabet's `bytes` and `byte_fallback`, bpe_model_add_token for each, bpe_alphabet_read,
 * bpe_model_add_merge for each (and bpe_alphabet_note_merge), bpe_model_free. */
struct bpe_model {
    struct string_table vocabulary; /* as in the file; texts are borrowed */
    size_t longest_token_bytes;
    struct pair_table ranks; /* of pairs: the lower, the earlier it is merged */
    VEC(uint32_t) results;   /* [rank]: the id that the pair becomes */
    struct bpe_alphabet alphabet;
    bool ignore_merges; /* a word that is a token is not taken apart */
};

enum status bpe_model_add_token(struct bpe_model *model, const char *text, uint32_t bytes, uint32_t id);
/* Gives the pair the next rank; a pair that is there already loses its old one. */
enum status bpe_model_add_merge(struct bpe_model *model, uint32_t left, uint32_t right, uint32_t result);
void bpe_model_free(struct bpe_model *model);

/* A word is a list of symbols, at first its characters or bytes. A merge turns the left one into the pair and removes
 * the right one. Places are indices; BPE_NO_PLACE at the ends. */
struct bpe_symbol {
    uint32_t id;
    uint32_t previous, next; /* in the word */
    uint32_t rank;           /* of the pair that it forms with the next one; PAIR_NONE: it forms none */
};

/* Working memory of one thread: zero-initialise, bpe_workspace_free. */
struct bpe_workspace {
    VEC(struct bpe_symbol) symbols;
    VEC(uint64_t) heap; /* of pairs, rank << 32 | place; one whose symbol has another rank by now is out of date */
    struct text_buffer text;
};
void bpe_workspace_free(struct bpe_workspace *workspace);
/* Appends the ids of one word (any bytes where the alphabet is bytes, else UTF-8), in n log n time: pairs are merged
 * lowest rank first, of equal ones the leftmost. */
enum status bpe_model_encode(const struct bpe_model *model, struct bpe_workspace *workspace, const char *word,
                             size_t bytes, struct token_ids *out);

/* Segments are words; their ids go to output->ids, by way of a cache of bounded size. Settings: a struct bpe_model. */
extern const struct text_step_type text_bpe_step;
