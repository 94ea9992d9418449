#include "report/page/metrics_line.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *skip_spaces(const char *c) {
    while (*c == ' ' || *c == '\t' || *c == '\r')
        c++;
    return c;
}

/* A key between its quotes; returns what comes after the colon, NULL when it is none. */
static const char *scan_key(const char *c, const char **key, size_t *length) {
    if (*c++ != '"') return NULL;
    *key = c;
    while (*c != '"' && *c != '\n' && *c != '\\')
        c++;
    if (*c != '"') return NULL;
    *length = (size_t)(c - *key);
    c = skip_spaces(c + 1);
    return *c == ':' ? skip_spaces(c + 1) : NULL;
}

/* A number by JSON's grammar, which is narrower than strtod's. */
static const char *scan_number(const char *c, double *value, bool *whole) {
    const char *start = c, *digits;
    if (*c == '-') c++;
    digits = c;
    c += strspn(c, "0123456789");
    if (c == digits || (*digits == '0' && c > digits + 1)) return NULL;
    *whole = true;
    if (*c == '.') {
        size_t count = strspn(c + 1, "0123456789");
        if (count == 0) return NULL;
        c += 1 + count;
        *whole = false;
    }
    if (*c == 'e' || *c == 'E') {
        c += c[1] == '+' || c[1] == '-' ? 2 : 1;
        size_t count = strspn(c, "0123456789");
        if (count == 0) return NULL;
        c += count;
        *whole = false;
    }
    *value = strtod(start, NULL);
    return isfinite(*value) ? c : NULL;
}

static bool is_name(const char *key, size_t length, const char *name) {
    return strlen(name) == length && memcmp(key, name, length) == 0;
}

/* Sets the field that the key names; false where the line is not to be read so. */
static bool take(struct metrics_line *line, const char *key, size_t length, double value, bool whole) {
    if (is_name(key, length, "step")) {
        bool good = line->step == 0 && whole && value >= 1 && value <= 9007199254740992.0;
        if (good) line->step = (int64_t)value;
        return good;
    }
    for (int i = 0; i < METRIC_COUNT; i++) {
        if (!is_name(key, length, metric_name((enum metric)i))) continue;
        if (!isnan(line->values[i])) return false; /* twice */
        line->values[i] = value;
        return true;
    }
    return true;
}

bool metrics_line_scan(const char *text, struct metrics_line *out) {
    struct metrics_line line = {0};
    for (int i = 0; i < METRIC_COUNT; i++)
        line.values[i] = NAN;
    const char *c = skip_spaces(text);
    if (*c++ != '{') return false;
    for (;;) {
        const char *key;
        size_t length;
        double value = NAN;
        bool whole = false;
        if (!(c = scan_key(skip_spaces(c), &key, &length))) return false;
        c = strncmp(c, "null", 4) == 0 ? c + 4 : scan_number(c, &value, &whole);
        if (!c || !take(&line, key, length, value, whole)) return false;
        c = skip_spaces(c);
        if (*c == '}') break;
        if (*c++ != ',') return false;
    }
    if (*skip_spaces(c + 1) != '\n' || line.step == 0) return false;
    *out = line;
    return true;
}
