#include "text/tokenizer/alphabet.h"

#include "base/hash.h"

/* Writes the token of a byte, with a NUL behind it. */
static inline void byte_token_write(unsigned char byte, char out[BYTE_TOKEN_BYTES + 1]) {
    static const char digits[] = "0123456789ABCDEF";
    memcpy(out, "<0x00>", BYTE_TOKEN_BYTES + 1);
    out[3] = digits[byte >> 4];
    out[4] = digits[byte & 15];
}

static bool stands_for_itself(uint32_t code) {
    return (code >= 0x21 && code <= 0x7E) || (code >= 0xA1 && code <= 0xFF && code != 0xAD);
}

/* The character of a byte. The bytes that do not stand for themselves are 0x00-0x20, 0x7F-0xA0 and 0xAD, numbered in
 * this order. */
static uint32_t byte_alphabet_code(unsigned char byte) {
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

enum { PAGE_CODES = 256 };

static size_t token_write(const struct bpe_alphabet *alphabet, uint32_t code, char out[4]) {
    return utf8_encode(alphabet->bytes ? byte_alphabet_code((unsigned char)code) : code, out);
}

static enum status character_add(struct bpe_alphabet *alphabet, uint32_t code, uint32_t id) {
    struct bpe_character **page = &alphabet->pages[code / PAGE_CODES];
    if (!*page) *page = mem_array(PAGE_CODES, sizeof **page);
    if (!*page) return STATUS_FAILED;
    (*page)[code % PAGE_CODES] = (struct bpe_character){.id = id, .known = true};
    return STATUS_OK;
}

/* The code of a token that is one character. */
static bool token_read(const struct bpe_alphabet *alphabet, const char *text, size_t bytes, uint32_t *code) {
    size_t length = 0;
    if (bytes == 0 || bytes > 4) return false;
    *code = utf8_decode_valid(text, &length);
    if (length != bytes || !alphabet->bytes) return length == bytes;
    int byte = byte_alphabet_byte(*code);
    *code = (uint32_t)byte;
    return byte >= 0;
}

static void byte_tokens_find(struct bpe_alphabet *alphabet, const struct string_table *vocabulary) {
    bool all = alphabet->byte_fallback;
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[BYTE_TOKEN_BYTES + 1];
        uint32_t id;
        byte_token_write((unsigned char)byte, text);
        bool found = alphabet->byte_fallback && string_table_find(vocabulary, text, BYTE_TOKEN_BYTES, &id);
        alphabet->byte_ids[byte] = found ? (int64_t)id : BPE_NO_ID;
        all &= found;
    }
    alphabet->all_known = all;
}

enum status bpe_alphabet_read(struct bpe_alphabet *alphabet, const struct string_table *vocabulary) {
    size_t count = 0;
    for (size_t i = 0; i < vocabulary->slot_count; i++) {
        const struct string_slot *slot = &vocabulary->slots[i];
        uint32_t code;
        if (!slot->text || !token_read(alphabet, slot->text, slot->bytes, &code)) continue;
        TRY(character_add(alphabet, code, slot->id));
        count++;
    }
    byte_tokens_find(alphabet, vocabulary);
    alphabet->all_known |= alphabet->bytes && count == 256;
    return STATUS_OK;
}

const struct bpe_character *bpe_alphabet_find(const struct bpe_alphabet *alphabet, uint32_t code) {
    const struct bpe_character *page = alphabet->pages[code / PAGE_CODES];
    return page && page[code % PAGE_CODES].known ? &page[code % PAGE_CODES] : NULL;
}

size_t bpe_alphabet_next(const struct bpe_alphabet *alphabet, const char *text, uint32_t *code) {
    size_t length = 1;
    *code = alphabet->bytes ? (unsigned char)text[0] : utf8_decode_valid(text, &length);
    return length;
}

void bpe_alphabet_last(const struct bpe_alphabet *alphabet, const char *text, size_t bytes, uint32_t *code) {
    size_t length;
    *code = alphabet->bytes ? (unsigned char)text[bytes - 1] : utf8_decode_last(text, bytes, &length);
}

size_t bpe_alphabet_fall_back(const struct bpe_alphabet *alphabet, uint32_t code, uint32_t ids[BPE_START_IDS_MAX]) {
    if (!alphabet->byte_fallback) return 0;
    char text[4];
    size_t length = token_write(alphabet, code, text);
    for (size_t i = 0; i < length; i++) {
        int64_t id = alphabet->byte_ids[(unsigned char)text[i]];
        if (id == BPE_NO_ID) return 0;
        ids[i] = (uint32_t)id;
    }
    return length;
}

/* --- borders: a table of (left, right) + 1, 0 in free slots --- */

static uint64_t *border_find(const struct bpe_alphabet *alphabet, uint64_t border) {
    size_t mask = alphabet->border_slots - 1, place = hash_mix(border) & mask;
    while (alphabet->borders[place] != 0 && alphabet->borders[place] != border)
        place = (place + 1) & mask;
    return &alphabet->borders[place];
}

static uint64_t border_of(uint32_t left, uint32_t right) { return ((uint64_t)left << 32 | right) + 1; }

static enum status borders_grow(struct bpe_alphabet *alphabet) {
    uint64_t *old = alphabet->borders;
    size_t old_slots = alphabet->border_slots, slots = old_slots ? 2 * old_slots : 64;
    uint64_t *grown = mem_array(slots, sizeof *grown);
    if (!grown) return STATUS_FAILED;
    alphabet->borders = grown;
    alphabet->border_slots = slots;
    for (size_t i = 0; i < old_slots; i++)
        if (old[i] != 0) *border_find(alphabet, old[i]) = old[i];
    mem_free(old);
    return STATUS_OK;
}

static bool is_start_token(const struct bpe_alphabet *alphabet, const char *text, size_t bytes) {
    unsigned char byte;
    return alphabet->byte_fallback && byte_token_read(text, bytes, &byte);
}

/* The character at one end of a token, or NULL when it is not in the vocabulary: then no word begins with its token. */
static struct bpe_character *end_find(struct bpe_alphabet *alphabet, const char *text, size_t bytes, bool last,
                                      uint32_t *code) {
    size_t length;
    *code = last ? utf8_decode_last(text, bytes, &length) : utf8_decode_valid(text, &length);
    if (alphabet->bytes) {
        int byte = byte_alphabet_byte(*code);
        if (byte < 0) return NULL;
        *code = (uint32_t)byte;
    }
    return (struct bpe_character *)bpe_alphabet_find(alphabet, *code);
}

enum status bpe_alphabet_note_merge(struct bpe_alphabet *alphabet, const char *left, size_t left_bytes,
                                    const char *right, size_t right_bytes) {
    uint32_t codes[2];
    /* Tokens whose meaning is not the characters that they are written with. */
    if (left_bytes == 0 || right_bytes == 0 || is_start_token(alphabet, left, left_bytes) ||
        is_start_token(alphabet, right, right_bytes))
        return alphabet->uncut = true, STATUS_OK;
    struct bpe_character *before = end_find(alphabet, left, left_bytes, true, &codes[0]);
    struct bpe_character *after = end_find(alphabet, right, right_bytes, false, &codes[1]);
    if (!before || !after) return STATUS_OK;
    before->left = after->right = true;
    if (2 * (alphabet->border_count + 1) > alphabet->border_slots) TRY(borders_grow(alphabet));
    uint64_t border = border_of(codes[0], codes[1]), *slot = border_find(alphabet, border);
    alphabet->border_count += *slot == 0;
    *slot = border;
    return STATUS_OK;
}

bool bpe_alphabet_may_cut(const struct bpe_alphabet *alphabet, uint32_t left, uint32_t right) {
    if (alphabet->uncut) return false;
    const struct bpe_character *before = bpe_alphabet_find(alphabet, left);
    const struct bpe_character *after = bpe_alphabet_find(alphabet, right);
    /* Unknown characters may become one token, or come out late: see bpe.c. */
    if (!before || !after) return alphabet->all_known;
    if (!before->left || !after->right || alphabet->border_count == 0) return true;
    return *border_find(alphabet, border_of(left, right)) == 0;
}

void bpe_alphabet_free(struct bpe_alphabet *alphabet) {
    for (size_t i = 0; i < sizeof alphabet->pages / sizeof *alphabet->pages; i++)
        mem_free(alphabet->pages[i]);
    mem_free(alphabet->borders);
    *alphabet = (struct bpe_alphabet){0};
}
