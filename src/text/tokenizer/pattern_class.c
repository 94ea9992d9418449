#include "text/tokenizer/pattern_class.h"

#include <stdio.h>
#include <string.h>

#include "text/tokenizer/unicode_class.h"

enum { LAST_CODE = 0x10FFFF };

enum status pattern_write_code(struct text_buffer *out, uint32_t code) {
    char text[16];
    int length = snprintf(text, sizeof text, "\\x{%x}", (unsigned)code);
    return text_append(out, text, (size_t)length);
}

enum status pattern_write_range(struct text_buffer *out, uint32_t first, uint32_t last) {
    TRY(pattern_write_code(out, first));
    if (first == last) return STATUS_OK;
    TRY(text_append(out, "-", 1));
    return pattern_write_code(out, last);
}

/* Listed here, since PCRE2's \s also matches U+180E. */
enum status pattern_write_space(struct text_buffer *out, bool negated) {
    uint32_t from = 0; /* first of the characters of the same kind up to here */
    for (uint32_t code = 1; code <= 0x3001; code++) {
        if (unicode_is_space(code) == unicode_is_space(from)) continue;
        if (unicode_is_space(from) != negated) TRY(pattern_write_range(out, from, code - 1));
        from = code;
    }
    return negated ? pattern_write_range(out, from, LAST_CODE) : STATUS_OK;
}

/* Listed here, since PCRE2's class has characters that Unicode 16 removed from it. */
static enum status write_nonspacing(struct text_buffer *out) {
    uint32_t from = 0; /* first of the characters of the same kind up to here */
    for (uint32_t code = 1; code <= LAST_CODE + 1; code++) {
        bool ends = code > LAST_CODE || unicode_is_nonspacing(code) != unicode_is_nonspacing(from);
        if (!ends) continue;
        if (unicode_is_nonspacing(from)) TRY(pattern_write_range(out, from, code - 1));
        from = code;
    }
    return STATUS_OK;
}

bool pattern_category_known(const char *name, size_t bytes) {
    static const char *const known[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",
                                        "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
                                        "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "Cc"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i]) == bytes && memcmp(known[i], name, bytes) == 0) return true;
    return false;
}

enum status pattern_write_category(struct text_buffer *out, const char *name, size_t bytes) {
    if (bytes == 2 && memcmp(name, "Mn", 2) == 0) return write_nonspacing(out);
    TRY(text_append(out, "\\p{", 3));
    TRY(text_append(out, name, bytes));
    TRY(text_append(out, "}", 1));
    for (size_t i = 0; i < unicode_addition_count; i++) {
        const struct unicode_range *added = &unicode_additions[i];
        if (memcmp(added->category, name, bytes) == 0) TRY(pattern_write_range(out, added->first, added->last));
    }
    return STATUS_OK;
}
