/* How a vocabulary writes single bytes. The alphabet of byte-level tokenizers has one printable character for each
 * byte, so that any bytes can be written as text. Printable Latin-1 stands for itself; the other 68 bytes, in order,
 * are U+0100 to U+0143 (a space is U+0120). */
#ifndef BALLAST_TEXT_TOKENIZER_BYTE_ALPHABET_H
#define BALLAST_TEXT_TOKENIZER_BYTE_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

/* The character of a byte. */
uint32_t byte_alphabet_code(unsigned char byte);
/* The byte of a character, or -1. */
int byte_alphabet_byte(uint32_t code);
/* Appends bytes as text of the alphabet. */
enum status byte_alphabet_write(struct text_buffer *out, const char *bytes, size_t count);
/* Appends the bytes of a text of the alphabet; a (valid) text with any other character is appended as it is. */
enum status byte_alphabet_read(struct text_buffer *out, const char *text, size_t bytes);

/* --- tokens of single bytes, where a vocabulary falls back to them: "<0x00>" to "<0xFF>" --- */

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
