/* Python's tests and lengths of characters and strings; private to the jinja_* and chat_* files. */
#ifndef BALLAST_TEXT_TEMPLATE_JINJA_TEXT_H
#define BALLAST_TEXT_TEMPLATE_JINJA_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* str.isspace of one character. */
bool jinja_is_space(uint32_t code);
/* Bytes of white space that valid UTF-8 begins or ends with. */
size_t jinja_leading_space(const char *text, size_t bytes);
size_t jinja_trailing_space(const char *text, size_t bytes);
/* Characters of valid UTF-8. */
size_t jinja_count_characters(const char *text, size_t bytes);
/* Where character `index` begins; `bytes` when there are fewer. */
size_t jinja_find_character(const char *text, size_t bytes, size_t index);
/* The first place >= `from` of a part; `bytes` + 1 when there is none. */
size_t jinja_find_text(const char *text, size_t bytes, size_t from, const char *part, size_t part_bytes);

#endif
