#include "text/tokenizer/byte_alphabet.h"

static bool stands_for_itself(uint32_t code) {
    return (code >= 0x21 && code <= 0x7E) || (code >= 0xA1 && code <= 0xFF && code != 0xAD);
}

/* The bytes that do not stand for themselves are 0x00-0x20, 0x7F-0xA0 and 0xAD, numbered in this order. */
uint32_t byte_alphabet_code(unsigned char byte) {
    if (stands_for_itself(byte)) return byte;
    return byte <= 0x20 ? 0x100u + byte : byte == 0xAD ? 0x143u : 0x121u + (byte - 0x7Fu);
}

int byte_alphabet_byte(uint32_t code) {
    if (stands_for_itself(code)) return (int)code;
    if (code < 0x100 || code > 0x143) return -1;
    return code <= 0x120 ? (int)(code - 0x100) : code == 0x143 ? 0xAD : (int)(code - 0x121 + 0x7F);
}

enum status byte_alphabet_write(struct text_buffer *out, const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        TRY(text_append_code(out, byte_alphabet_code((unsigned char)bytes[i])));
    return STATUS_OK;
}

enum status byte_alphabet_read(struct text_buffer *out, const char *text, size_t bytes) {
    size_t before = out->count;
    for (size_t place = 0, length; place < bytes; place += length) {
        int byte = byte_alphabet_byte(utf8_decode_valid(text + place, &length));
        if (byte < 0) {
            out->count = before;
            return text_append(out, text, bytes);
        }
        TRY(text_append(out, &(char){(char)byte}, 1));
    }
    return STATUS_OK;
}
