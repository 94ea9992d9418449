/* The tokens that stand for single bytes where a vocabulary falls back to them: "<0x00>" to "<0xFF>". */
#ifndef BALLAST_TOKENIZER_BYTE_TOKEN_H
#define BALLAST_TOKENIZER_BYTE_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { BYTE_TOKEN_BYTES = 6 };

/* Writes the token of a byte, with a NUL behind it. */
static inline void byte_token_write(unsigned char byte, char out[BYTE_TOKEN_BYTES + 1]) {
    static const char digits[] = "0123456789ABCDEF";
    memcpy(out, "<0x00>", BYTE_TOKEN_BYTES + 1);
    out[3] = digits[byte >> 4];
    out[4] = digits[byte & 15];
}

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

#endif
