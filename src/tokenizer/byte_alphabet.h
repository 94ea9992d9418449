/* The alphabet of byte-level tokenizers: one printable character for each byte, so that any bytes can be written as
 * text. Printable Latin-1 stands for itself; the other 68 bytes, in order, are U+0100 to U+0143 (a space is U+0120). */
#ifndef BALLAST_TOKENIZER_BYTE_ALPHABET_H
#define BALLAST_TOKENIZER_BYTE_ALPHABET_H

#include <stddef.h>
#include <stdint.h>

#include "base/utf8.h"

/* The character of a byte. */
uint32_t byte_alphabet_code(unsigned char byte);
/* The byte of a character, or -1. */
int byte_alphabet_byte(uint32_t code);
/* Appends bytes as text of the alphabet. */
enum status byte_alphabet_write(struct text_buffer *out, const char *bytes, size_t count);
/* Appends the bytes of a text of the alphabet; a (valid) text with any other character is appended as it is. */
enum status byte_alphabet_read(struct text_buffer *out, const char *text, size_t bytes);

#endif
