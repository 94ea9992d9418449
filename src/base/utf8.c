#include "base/utf8.h"

#include <string.h>

enum status text_append(struct text_buffer *buffer, const char *text, size_t bytes) {
    if (bytes == 0) return STATUS_OK;
    size_t wanted;
    if (!mem_add(buffer->count, bytes, &wanted)) return status_no_memory(bytes, "text");
    TRY(vec_reserve(buffer, wanted));
    memcpy(buffer->items + buffer->count, text, bytes);
    buffer->count = wanted;
    return STATUS_OK;
}

enum status text_append_code(struct text_buffer *buffer, uint32_t code) {
    char bytes[4];
    return text_append(buffer, bytes, utf8_encode(code, bytes));
}

void utf8_add_damage(struct utf8_damage *damage, const char *text, size_t bytes, int64_t from) {
    for (size_t place = utf8_valid_bytes(text, bytes), length; place < bytes; place += length) {
        uint32_t code;
        length = utf8_decode(text + place, bytes - place, &code);
        if (damage->parts++ == 0) damage->first = from + (int64_t)place;
        damage->bytes += (int64_t)length;
        length += utf8_valid_bytes(text + place + length, bytes - place - length);
    }
}

enum status text_append_repaired(struct text_buffer *buffer, const char *text, size_t bytes) {
    while (bytes > 0) {
        size_t valid = utf8_valid_bytes(text, bytes);
        TRY(text_append(buffer, text, valid));
        text += valid, bytes -= valid;
        if (bytes == 0) break;
        uint32_t code;
        size_t length = utf8_decode(text, bytes, &code);
        TRY(text_append_code(buffer, UTF8_REPLACEMENT));
        text += length, bytes -= length;
    }
    return STATUS_OK;
}

/* The second byte decides what is ill-formed (overlong, surrogate, past U+10FFFF); those after it only need to be
 * continuation bytes. */
static bool second_byte_allowed(unsigned char first, unsigned char second) {
    switch (first) {
    case 0xE0: return second >= 0xA0 && second <= 0xBF;
    case 0xED: return second >= 0x80 && second <= 0x9F;
    case 0xF0: return second >= 0x90 && second <= 0xBF;
    case 0xF4: return second >= 0x80 && second <= 0x8F;
    default: return second >= 0x80 && second <= 0xBF;
    }
}

size_t utf8_decode(const char *text, size_t bytes, uint32_t *code) {
    const unsigned char *unit = (const unsigned char *)text;
    unsigned char first = unit[0];
    *code = first;
    if (first < 0x80) return 1;
    size_t length = first >= 0xC2 && first <= 0xDF   ? 2
                    : (first & 0xF0) == 0xE0         ? 3
                    : first >= 0xF0 && first <= 0xF4 ? 4
                                                     : 0;
    *code = UTF8_BAD;
    if (length == 0) return 1;
    uint32_t value = first & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (i == bytes) {
            *code = UTF8_CUT;
            return i;
        }
        bool allowed = i == 1 ? second_byte_allowed(first, unit[1]) : (unit[i] & 0xC0) == 0x80;
        if (!allowed) return i;
        value = value << 6 | (unit[i] & 0x3Fu);
    }
    *code = value;
    return length;
}

uint32_t utf8_decode_valid(const char *text, size_t *length) {
    const unsigned char *unit = (const unsigned char *)text;
    if (unit[0] < 0x80) return *length = 1, unit[0];
    if (unit[0] < 0xE0) return *length = 2, (unit[0] & 0x1Fu) << 6 | (unit[1] & 0x3Fu);
    if (unit[0] < 0xF0) return *length = 3, (unit[0] & 0x0Fu) << 12 | (unit[1] & 0x3Fu) << 6 | (unit[2] & 0x3Fu);
    *length = 4;
    return (unit[0] & 0x07u) << 18 | (unit[1] & 0x3Fu) << 12 | (unit[2] & 0x3Fu) << 6 | (unit[3] & 0x3Fu);
}

size_t utf8_floor(const char *text, size_t place) {
    while (place > 0 && ((unsigned char)text[place] & 0xC0) == 0x80)
        place--;
    return place;
}

uint32_t utf8_decode_last(const char *text, size_t bytes, size_t *length) {
    return utf8_decode_valid(text + utf8_floor(text, bytes - 1), length);
}

size_t utf8_encode(uint32_t code, char out[4]) {
    if (code < 0x80) return out[0] = (char)code, 1;
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)((0xF00u >> length & 0xFFu) | code);
    return length;
}

size_t utf8_ascii_bytes(const char *text, size_t bytes) {
    size_t place = 0;
    for (uint64_t word; bytes - place >= sizeof word; place += sizeof word) {
        memcpy(&word, text + place, sizeof word);
        if (word & 0x8080808080808080u) break;
    }
    while (place < bytes && (unsigned char)text[place] < 0x80)
        place++;
    return place;
}

size_t utf8_valid_bytes(const char *text, size_t bytes) {
    size_t place = 0;
    for (;;) {
        place += utf8_ascii_bytes(text + place, bytes - place);
        uint32_t code = 0x80;
        while (place < bytes && code >= 0x80) {
            size_t length = utf8_decode(text + place, bytes - place, &code);
            if (code >= UTF8_BAD) return place;
            place += length;
        }
        if (place == bytes) return place;
    }
}
