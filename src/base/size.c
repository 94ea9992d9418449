#include "base/size.h"

#include <ctype.h>
#include <math.h>

static const char units[] = "KMGTP";

static enum status not_a_size(const char *text) {
    return status_set(STATUS_BAD_INPUT, "'%s' is not a size (write 512M, 8G, 1.5T or plain bytes)", text);
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
    if (overflow) return status_set(STATUS_BAD_INPUT, "'%s' is more bytes than any machine has", text);
    *bytes = result;
    return STATUS_OK;
}

enum status size_refuse_bare(const char *text) {
    static const long max = 1 << 18; /* the memory of a large GPU in megabytes is below it */
    bool bare = text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
    long number = bare && strlen(text) <= 7 ? strtol(text, NULL, 10) : max;
    if (number < 1 || number >= max) return STATUS_OK;
    status_set(STATUS_BAD_INPUT, "%s without a unit is %s byte%s, which holds nothing", text, text,
               number == 1 ? "" : "s");
    return status_hint(STATUS_BAD_INPUT, "did you mean %ld%s?", number, number < 1024 ? "G" : "M");
}

static char *print(int64_t bytes, double (*to_int)(double), char text[SIZE_TEXT]) {
    double value = (double)bytes;
    int unit = -1;
    while (value >= (unit < 0 ? 1024 : 1023.5) && unit < 4) { /* what would be printed as 1024 is 1 of the next */
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
