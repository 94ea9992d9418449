/* Character classes for PCRE2 patterns, as they stand between [ and ]. */
#ifndef BALLAST_TEXT_TOKENIZER_PATTERN_CLASS_H
#define BALLAST_TEXT_TOKENIZER_PATTERN_CLASS_H

#include <stdbool.h>

#include "base/utf8.h"

/* \x{H} */
enum status pattern_write_code(struct text_buffer *out, uint32_t code);
enum status pattern_write_range(struct text_buffer *out, uint32_t first, uint32_t last);
/* White space, or everything else. */
enum status pattern_write_space(struct text_buffer *out, bool negated);
/* True for the name of a general category that pattern_write_category can write: "L", "Lu", "Nd" ... */
bool pattern_category_known(const char *name, size_t bytes);
/* A general category, with the characters that PCRE2 does not know yet. */
enum status pattern_write_category(struct text_buffer *out, const char *name, size_t bytes);

#endif
