/* The value of one option from text, by its setting's type and range. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "cli/options.h"

static enum status set_int(const struct setting *setting, const char *where, const char *text,
                           struct option_value *value) {
    char *end;
    if (setting->automatic && strcmp(text, setting->automatic) == 0) {
        value->int_value = 0;
        return STATUS_OK;
    }
    errno = 0;
    bool begins = (text[0] >= '0' && text[0] <= '9') || ((text[0] == '-' || text[0] == '+') && text[1] != '\0');
    long long number = strtoll(text, &end, 10);
    if (!begins || *end != '\0')
        return status_set(STATUS_BAD_INPUT, "%s: '%s' is not %s%sa whole number", where, text,
                          setting->automatic ? setting->automatic : "", setting->automatic ? " or " : "");
    if (errno == ERANGE)
        return status_set(STATUS_BAD_INPUT, "%s: %s is not legal: must be %" PRId64 " to %" PRId64, where, text,
                          setting->min, setting->max);
    TRY(setting_check_int(setting, where, number));
    value->int_value = number;
    return STATUS_OK;
}

static enum status set_float(const struct setting *setting, const char *where, const char *text,
                             struct option_value *value) {
    char *end;
    /* strtod also takes blanks, hexadecimals, "inf" and "nan". */
    bool plain = text[0] != '\0' && text[strspn(text, "+-.0123456789eE")] == '\0';
    double number = plain ? strtod(text, &end) : 0;
    if (!plain || *end != '\0' || end == text)
        return status_set(STATUS_BAD_INPUT, "%s: '%s' is not a number", where, text);
    if (!isfinite(number))
        return status_set(STATUS_BAD_INPUT, "%s: %s is not legal: must be at most %g", where, text, setting->float_max);
    TRY(setting_check_float(setting, where, number));
    value->float_value = number;
    return STATUS_OK;
}

static enum status set_size(const char *where, const char *text, struct option_value *value) {
    int64_t bytes;
    enum status status = size_parse(text, &bytes);
    if (status != STATUS_OK) return status_prefix(status, "%s", where);
    status = size_refuse_bare(text);
    if (status != STATUS_OK) return status_prefix(status, "%s", where);
    if (bytes < 1) return status_set(STATUS_BAD_INPUT, "%s: %s is not legal: must be at least one byte", where, text);
    value->int_value = bytes;
    return STATUS_OK;
}

static enum status set_flag(const char *where, const char *text, struct option_value *value) {
    bool yes = strcmp(text, "true") == 0;
    if (!yes && strcmp(text, "false") != 0)
        return status_set(STATUS_BAD_INPUT, "%s: '%s' is neither true nor false", where, text);
    value->flag = yes;
    return STATUS_OK;
}

enum status option_value_set(const struct option *option, const char *where, const char *text,
                             struct option_value *value) {
    const struct setting *setting = option->setting;
    switch (setting->type) {
    case SETTING_FLAG: return set_flag(where, text, value);
    case SETTING_INT: return set_int(setting, where, text, value);
    case SETTING_FLOAT: return set_float(setting, where, text, value);
    case SETTING_SIZE: return set_size(where, text, value);
    case SETTING_CHOICE: TRY(setting_check_choice(setting, where, text)); break;
    case SETTING_TEXT:
    case SETTING_TEXTS: break;
    }
    if (text[0] == '\0' && !setting->may_be_empty) return status_set(STATUS_BAD_INPUT, "%s: must not be empty", where);
    if (setting->type == SETTING_TEXTS) return vec_push(&value->texts, text);
    value->text = text;
    return STATUS_OK;
}
