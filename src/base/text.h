/* UTF-8: reading it, replacing ill-formed parts, and growing text buffers. */
#pragma once

#include "base/base.h"

/* Bytes from .. to-1 of a text. */
struct text_range {
    size_t from, to;
};

/* Appends by printf's rules to the text in an array of `bytes`, and truncates text that does not fit. */
void text_add(char *text, size_t bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A growing array of bytes: a VEC, freed with vec_free. */
struct text_buffer {
    char *items;
    size_t count, capacity;
};
enum status text_append(struct text_buffer *buffer, const char *text, size_t bytes);
/* The same by printf's rules; a NUL stands behind the text. */
enum status text_print(struct text_buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends the text with each maximal ill-formed part (Unicode, section 3.9) as one U+FFFD. */
enum status text_append_repaired(struct text_buffer *buffer, const char *text, size_t bytes);
/* Appends one code point. */
enum status text_append_code(struct text_buffer *buffer, uint32_t code);

enum {
    UTF8_BAD = 0x110000, /* a maximal ill-formed part */
    UTF8_CUT = 0x110001, /* the text ends within a possible character */
    UTF8_REPLACEMENT = 0xFFFD
};
/* Reads the unit at `text` (bytes > 0): its length is returned and its code point, UTF8_BAD or UTF8_CUT stored. */
size_t utf8_decode(const char *text, size_t bytes, uint32_t *code);
/* The same for text that is known to be valid. */
uint32_t utf8_decode_valid(const char *text, size_t *length);
/* The last character of valid, non-empty text. */
uint32_t utf8_decode_last(const char *text, size_t bytes, size_t *length);
/* Writes a code point as 1 to 4 bytes and returns their number. */
size_t utf8_encode(uint32_t code, char out[4]);
/* Length of the longest valid prefix. */
size_t utf8_valid_bytes(const char *text, size_t bytes);
/* Ill-formed UTF-8 in a text that is fixed: the bytes in ill-formed parts, the number of parts, and the beginning of
 * the first. Zero-initialise. */
struct utf8_damage {
    int64_t bytes, parts, first;
};
/* Adds that of a text which begins at byte `from` of the whole. */
void utf8_add_damage(struct utf8_damage *damage, const char *text, size_t bytes, int64_t from);
/* Length of the longest prefix of bytes below 128. */
size_t utf8_ascii_bytes(const char *text, size_t bytes);
/* The largest place <= `place` where a character of valid text begins. */
size_t utf8_floor(const char *text, size_t place);

/* Case of characters as Python's str has it: full mappings, by Unicode's SpecialCasing where it has no conditions. */

enum unicode_case { UNICODE_LOWER, UNICODE_UPPER, UNICODE_TITLE };
/* Appends the character's case mapping: one or several characters. The caller handles a sigma at the end of a word. */
enum status unicode_append_case(uint32_t code, enum unicode_case to, struct text_buffer *out);

/* Lower, upper or title case: str.title() finds words of these. */
bool unicode_is_cased(uint32_t code);
/* Whether the character may stand between the cased characters of a word. */
bool unicode_is_case_ignorable(uint32_t code);
/* str.isdigit() of a character: decimal digits, superscripts, circled ones, … */
bool unicode_is_digit(uint32_t code);

/* Sizes as people write them: `512M`, `8G`, `1.5T` (powers of 1024) or plain bytes. */

/* BAD_INPUT when the text is not a size, is negative, or does not fit 63 bits. */
enum status size_parse(const char *text, int64_t *bytes);
/* BAD_INPUT where `text`, a size as size_parse takes it, is a number without a unit and below 256 KiB: hardly meant
 * in bytes. The hint gives the size that was probably meant. */
enum status size_refuse_bare(const char *text);
enum { SIZE_TEXT = 24 };
/* "1.25 GiB", "310 B"; returns `text`. */
char *size_print(int64_t bytes, char text[SIZE_TEXT]);
/* The same rounded up, for sizes that are needed: the printed size is enough. */
char *size_print_up(int64_t bytes, char text[SIZE_TEXT]);
/* The size as a user types it, "1.25GiB", "310": size_parse reads it. */
char *size_print_option(int64_t bytes, char text[SIZE_TEXT]);

enum { COUNT_TEXT = 32 };
/* A count with its thousands apart, "124,439,808"; returns `text`. */
char *count_print(int64_t count, char text[COUNT_TEXT]);
/* An amount with three digits and the unit K, M, B or T: "8.03 B", "139 K", "512"; returns `text`. */
char *amount_print(double amount, char text[COUNT_TEXT]);

/* Finds the name that the user probably meant. */

/* Keeps the best of the candidates shown to it one by one. Start with {.wanted = text}. */
struct nearest {
    const char *wanted;
    const char *best; /* NULL while none is near enough: a third of the letters may differ, and at least two */
    size_t distance;
};
void nearest_consider(struct nearest *nearest, const char *candidate);

/* Adds "the nearest legal THING is WORD" as a hint to the current message, or all of the words where none is near
 * `wanted`, and returns `code`. */
enum status nearest_hint(enum status code, const char *thing, const char *wanted, const char *const *names,
                         size_t count);
