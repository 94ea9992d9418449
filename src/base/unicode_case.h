/* Case of characters as Python's str has it: full mappings, by Unicode's SpecialCasing where it has no conditions. */
#ifndef BALLAST_BASE_UNICODE_CASE_H
#define BALLAST_BASE_UNICODE_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/utf8.h"

enum unicode_case { UNICODE_LOWER, UNICODE_UPPER, UNICODE_TITLE };
/* Appends what a character becomes: one or several. A sigma at the end of a word is the caller's. */
enum status unicode_append_case(uint32_t code, enum unicode_case to, struct text_buffer *out);

/* Lower, upper or title case: what words consist of for str.title(). */
bool unicode_is_cased(uint32_t code);
/* What may stand between cased characters of a word. */
bool unicode_is_case_ignorable(uint32_t code);
/* str.isdigit() of a character: decimal digits, superscripts, circled ones, … */
bool unicode_is_digit(uint32_t code);

#endif
