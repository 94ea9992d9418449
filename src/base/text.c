#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <utf8proc.h>

enum status text_append(struct text_buffer *buffer, const char *text, size_t bytes) {
    if (bytes == 0) return STATUS_OK;
    size_t wanted;
    if (!mem_add(buffer->count, bytes, &wanted)) return status_no_memory(bytes, "text");
    TRY(vec_reserve(buffer, wanted));
    memcpy(buffer->items + buffer->count, text, bytes);
    buffer->count = wanted;
    return STATUS_OK;
}

enum status text_print(struct text_buffer *buffer, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    size_t length = (size_t)vsnprintf(NULL, 0, format, arguments);
    enum status status = vec_reserve(buffer, buffer->count + length + 1);
    if (status == STATUS_OK) {
        vsnprintf(buffer->items + buffer->count, length + 1, format, again);
        buffer->count += length;
    }
    va_end(again);
    va_end(arguments);
    return status;
}

void text_add(char *text, size_t bytes, const char *format, ...) {
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, bytes - used, format, arguments);
    va_end(arguments);
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

/* Characters of Numeric_Type Digit outside category Nd, in order. Printed by tests/reference/unicode_digits.py. */
static const struct {
    uint32_t first, last;
} digit_ranges[] = {
    {0xB2, 0xB3},     {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},   {0x2070, 0x2070},
    {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247C},   {0x2488, 0x2490},
    {0x24EA, 0x24EA}, {0x24F5, 0x24FD},   {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},
    {0x278A, 0x2792}, {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A},
};

enum { PARTS_MAX = 8, IOTA_BELOW = 0x345, SHARP_S = 0xDF };

/* SpecialCasing's characters whose upper or title case is several are letters without such a case of their own, or with
 * an iota below, which becomes a letter behind the rest. They become their parts in that case. Stores the parts and
 * returns their number, 0 for other characters. */
static utf8proc_ssize_t find_parts(utf8proc_int32_t code, enum unicode_case to, utf8proc_int32_t parts[PARTS_MAX]) {
    bool title = utf8proc_category(code) == UTF8PROC_CATEGORY_LT;
    if (!title && utf8proc_category(code) != UTF8PROC_CATEGORY_LL) return 0;
    if (code == SHARP_S) return parts[0] = parts[1] = 's', 2;
    utf8proc_ssize_t count =
        utf8proc_decompose_char(code, parts, PARTS_MAX, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, NULL);
    if (count < 2) return 0;
    bool own = to == UNICODE_TITLE ? title || utf8proc_totitle(code) != code
                                   : parts[count - 1] != IOTA_BELOW && utf8proc_toupper(code) != code;
    return own ? 0 : count;
}

static enum status append_parts(utf8proc_int32_t *parts, utf8proc_ssize_t count, enum unicode_case to,
                                struct text_buffer *out) {
    bool ends = false; /* a title's capital was found */
    for (utf8proc_ssize_t i = 0; i < count && !ends; i++) {
        utf8proc_int32_t upper = utf8proc_toupper(parts[i]);
        ends = to == UNICODE_TITLE && upper != parts[i];
        parts[i] = upper;
    }
    utf8proc_ssize_t before = count - 1; /* parts before the last, in fewer characters where that is an iota */
    if (parts[before] == IOTA_BELOW || parts[before] == utf8proc_toupper(IOTA_BELOW))
        before = utf8proc_normalize_utf32(parts, before, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (utf8proc_ssize_t i = 0; i < before; i++)
        TRY(text_append_code(out, (uint32_t)parts[i]));
    return text_append_code(out, (uint32_t)parts[count - 1]);
}

enum status unicode_append_case(uint32_t code, enum unicode_case to, struct text_buffer *out) {
    utf8proc_int32_t one = (utf8proc_int32_t)code, parts[PARTS_MAX];
    if (to == UNICODE_LOWER) {
        if (code == 0x130) return text_append(out, "i\xCC\x87", 3); /* the only one that becomes two */
        return text_append_code(out, (uint32_t)utf8proc_tolower(one));
    }
    utf8proc_ssize_t count = find_parts(one, to, parts);
    if (count > 0) return append_parts(parts, count, to, out);
    return text_append_code(out, (uint32_t)(to == UNICODE_UPPER ? utf8proc_toupper(one) : utf8proc_totitle(one)));
}

bool unicode_is_cased(uint32_t code) {
    utf8proc_int32_t one = (utf8proc_int32_t)code;
    return utf8proc_islower(one) || utf8proc_isupper(one) || utf8proc_category(one) == UTF8PROC_CATEGORY_LT;
}

bool unicode_is_case_ignorable(uint32_t code) {
    static const uint32_t marks[] = {'\'',   '.',    ':',    0xB7,   0x387,  0x55F,  0x5F4,  0x2018, 0x2019,
                                     0x2024, 0x2027, 0xFE13, 0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: break;
    }
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (marks[i] == code) return true;
    return false;
}

bool unicode_is_digit(uint32_t code) {
    if (utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_ND) return true;
    for (size_t i = 0; i < sizeof digit_ranges / sizeof *digit_ranges && digit_ranges[i].first <= code; i++)
        if (code <= digit_ranges[i].last) return true;
    return false;
}

static const char units[] = "KMGTP";

static enum status not_a_size(const char *text) {
    return status_set(STATUS_BAD_INPUT, "'%s' is not a size" HINT "write 512M, 8G, 1.5T or plain bytes", text);
}

/* "" or K to P in either case, then optionally "i" and "B". */
static bool read_unit(const char *text, int64_t *scale) {
    *scale = 1;
    if (*text == '\0') return true;
    const char *unit = strchr(units, toupper((unsigned char)*text));
    if (!unit) return false;
    *scale = (int64_t)1 << 10 * (unit - units + 1);
    text++;
    if (*text == 'i') text++;
    if (*text == 'B') text++;
    return *text == '\0';
}

enum status size_parse(const char *text, int64_t *bytes) {
    size_t int_digits = strspn(text, "0123456789"), fraction = text[int_digits] == '.' ? 1 : 0;
    if (fraction) fraction += strspn(text + int_digits + 1, "0123456789");
    int64_t scale, result = 0;
    if (int_digits == 0 || fraction == 1 || !read_unit(text + int_digits + fraction, &scale)) return not_a_size(text);
    if (fraction > 0 && scale == 1) return not_a_size(text);
    bool overflow = false;
    for (size_t i = 0; i < int_digits && !overflow; i++) /* whole numbers exactly: a double holds only 53 bits */
        overflow =
            __builtin_mul_overflow(result, 10, &result) || __builtin_add_overflow(result, text[i] - '0', &result);
    overflow = overflow || __builtin_mul_overflow(result, scale, &result);
    if (fraction > 0) {
        double rest = strtod(text + int_digits, NULL) * (double)scale;
        overflow = overflow || __builtin_add_overflow(result, (int64_t)rest, &result);
    }
    if (overflow)
        return status_set(STATUS_BAD_INPUT,
                          "'%s' is more bytes than any machine has" HINT "M, G and T stand for powers of 1024", text);
    *bytes = result;
    return STATUS_OK;
}

enum status size_refuse_bare(const char *text) {
    static const long max = 1 << 18; /* the memory of a large GPU in megabytes is below it */
    bool bare = text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
    long number = bare && strlen(text) <= 7 ? strtol(text, NULL, 10) : max;
    if (number < 1 || number >= max) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT,
                      "%s without a unit is %s byte%s, which holds nothing" HINT "did you mean %ld%s?", text, text,
                      number == 1 ? "" : "s", number, number < 1024 ? "G" : "M");
}

static char *print(int64_t bytes, double (*to_int)(double), char text[SIZE_TEXT]) {
    double value = (double)bytes;
    int unit = -1;
    while (value >= (unit < 0 ? 1024 : 1023.5) && unit < 4) { /* a number that would be printed as 1024 is 1 of the next
                                                               * unit */
        value /= 1024;
        unit++;
    }
    int decimals = unit < 0 || value >= 99.95 ? 0 : value < 9.995 ? 2 : 1;
    double scale = decimals == 2 ? 100 : decimals == 1 ? 10 : 1;
    snprintf(text, SIZE_TEXT, "%.*f %.1s%sB", decimals, to_int(value * scale) / scale, unit < 0 ? "" : &units[unit],
             unit < 0 ? "" : "i");
    return text;
}

char *size_print(int64_t bytes, char text[SIZE_TEXT]) { return print(bytes, rint, text); }

char *size_print_up(int64_t bytes, char text[SIZE_TEXT]) { return print(bytes, ceil, text); }

char *size_print_option(int64_t bytes, char text[SIZE_TEXT]) {
    char *space = strchr(size_print_up(bytes, text), ' ');
    const char *unit = space[1] == 'B' ? "" : space + 1; /* plain bytes have none */
    memmove(space, unit, strlen(unit) + 1);
    return text;
}

char *count_print(int64_t count, char text[COUNT_TEXT]) {
    char digits[COUNT_TEXT];
    int length = snprintf(digits, sizeof digits, "%" PRId64, count), put = 0;
    for (int i = 0; i < length; i++) {
        text[put++] = digits[i];
        int left = length - 1 - i;
        if (left > 0 && left % 3 == 0 && digits[i] != '-') text[put++] = ',';
    }
    text[put] = '\0';
    return text;
}

char *amount_print(double amount, char text[COUNT_TEXT]) {
    static const char amount_units[] = "KMBT";
    int unit = -1;
    for (; amount >= 999.5 && unit < 3; unit++)
        amount /= 1000;
    int digits = unit < 0 || amount >= 99.95 ? 0 : amount >= 9.995 ? 1 : 2;
    snprintf(text, COUNT_TEXT, unit < 0 ? "%.*f" : "%.*f %c", digits, amount, unit < 0 ? '\0' : amount_units[unit]);
    return text;
}

enum { LENGTH_MAX = 64 };

static size_t min(size_t a, size_t b) { return a < b ? a : b; }

/* Letters to insert, delete, replace or swap with their neighbour (optimal string alignment). */
static size_t edit_distance(const char *a, const char *b) {
    size_t rows[3][LENGTH_MAX + 1], a_length = strlen(a), b_length = strlen(b);
    if (a_length > LENGTH_MAX || b_length > LENGTH_MAX) return LENGTH_MAX;
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_length; j++)
        above[j] = before[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t replace = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = min(replace, min(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = min(row[j], before[j - 2] + 1);
        }
        size_t *oldest = before;
        before = above, above = row, row = oldest;
    }
    return above[b_length];
}

void nearest_consider(struct nearest *nearest, const char *candidate) {
    size_t distance = edit_distance(nearest->wanted, candidate), length = strlen(nearest->wanted);
    /* A name that was begun and not finished is near too. */
    if (length >= 3 && strncmp(nearest->wanted, candidate, length) == 0) distance = 1;
    size_t limit = length / 3 > 2 ? length / 3 : 2;
    if (distance > limit || distance >= length || (nearest->best && distance >= nearest->distance)) return;
    nearest->best = candidate;
    nearest->distance = distance;
}

enum status nearest_hint(enum status code, const char *thing, const char *wanted, const char *const *names,
                         size_t count) {
    struct nearest nearest = {.wanted = wanted};
    for (size_t i = 0; i < count; i++)
        nearest_consider(&nearest, names[i]);
    if (nearest.best) return status_hint(code, "the nearest legal %s is %s", thing, nearest.best);
    char all[512] = "";
    for (size_t i = 0, used = 0; i < count && used < sizeof all; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s",
                                 i == 0          ? ""
                                 : i + 1 < count ? ", "
                                                 : " and ",
                                 names[i]);
    return status_hint(code, "the legal %ss are %s", thing, all);
}
