/* Classes of characters as the `tokenizers` library's regular expressions see them. */
#pragma once

#include "base/base.h"

struct unicode_range {
    uint32_t first, last;
};
/* Whether one of the ranges holds a character; they are in ascending order. */
bool unicode_is_within(const struct unicode_range *ranges, size_t count, uint32_t code);

struct unicode_addition {
    uint32_t first, last;
    char category[3]; /* general category: "Lu" */
};
/* Characters that Unicode 15 and 16 assigned or gave another category, in order. Debian 12's PCRE2 knows Unicode 14;
 * the library's engine knows 16. Added to a class of a newer PCRE2 they change nothing. */
extern const struct unicode_addition unicode_additions[];
extern const size_t unicode_addition_count;

/* Category Mn, from which such a character may be gone. */
bool unicode_is_nonspacing(uint32_t code);
/* White_Space: `\s`. */
bool unicode_is_space(uint32_t code);
/* Alphabetic, marks, decimal digits, connectors and joiners: `\w` of Rust's regex crate. */
bool unicode_is_word(uint32_t code);

/* --- as the library's own tables have them --- */

/* Categories Mn, Mc and Me. */
bool unicode_is_mark(uint32_t code);
/* ASCII punctuation and symbols, and category P. */
bool unicode_is_punctuation(uint32_t code);
/* Lowercase_Mapping, where it is one character. */
uint32_t unicode_to_lower(uint32_t code);
