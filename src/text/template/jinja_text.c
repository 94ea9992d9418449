#include "text/template/jinja_text.h"

#include <string.h>

#include "base/utf8.h"

bool jinja_is_space(uint32_t code) {
    if (code <= 0x20) return code == ' ' || (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x1F);
    if (code < 0x1680) return code == 0x85 || code == 0xA0;
    return code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
           code == 0x205F || code == 0x3000;
}

size_t jinja_leading_space(const char *text, size_t bytes) {
    size_t at = 0, length;
    while (at < bytes && jinja_is_space(utf8_decode_valid(text + at, &length)))
        at += length;
    return at;
}

size_t jinja_trailing_space(const char *text, size_t bytes) {
    size_t end = bytes, length;
    while (end > 0 && jinja_is_space(utf8_decode_last(text, end, &length)))
        end -= length;
    return bytes - end;
}

size_t jinja_count_characters(const char *text, size_t bytes) {
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

size_t jinja_find_character(const char *text, size_t bytes, size_t index) {
    size_t at = 0;
    for (; at < bytes; at++)
        if (((unsigned char)text[at] & 0xC0) != 0x80 && index-- == 0) break;
    return at;
}

size_t jinja_find_text(const char *text, size_t bytes, size_t from, const char *part, size_t part_bytes) {
    if (part_bytes == 0) return from;
    const char *found = from <= bytes ? memmem(text + from, bytes - from, part, part_bytes) : NULL;
    return found ? (size_t)(found - text) : bytes + 1;
}
