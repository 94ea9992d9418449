#include "plan/settings.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const struct setting setting_table[SETTING_COUNT] = {
#define SETTING_ROW(id, ...) [SETTING_##id] = {__VA_ARGS__},
    SETTING_LIST(SETTING_ROW)
#undef SETTING_ROW
};

enum status setting_check_int(const struct setting *setting, const char *where, int64_t value) {
    if (value >= setting->min && value <= setting->max) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %" PRId64 " is not legal: must be %" PRId64 " to %" PRId64, where, value,
                      setting->min, setting->max);
}

enum status setting_check_float(const struct setting *setting, const char *where, double value) {
    bool low = setting->above ? value <= setting->float_min : value < setting->float_min;
    if (isfinite(value) && !low && value <= setting->float_max) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %.9g is not legal: must be %s %g and at most %g", where, value,
                      setting->above ? "above" : "at least", setting->float_min, setting->float_max);
}

void settings_given_join(struct settings_given *given, const struct settings_given *there) {
    for (int i = 0; i < SETTING_COUNT; i++)
        given->of[i] |= there->of[i];
}

static bool list_holds(const char *list, const char *value) {
    size_t length = strlen(value);
    for (const char *at = list; length > 0; at++) {
        if (strncmp(at, value, length) == 0 && (at[length] == '|' || at[length] == '\0')) return true;
        at = strchr(at, '|');
        if (!at) break;
    }
    return false;
}

bool setting_has_choice(const struct setting *setting, const char *text) {
    return list_holds(setting->choices, text) && !strchr(text, '|');
}

enum status setting_check_choice(const struct setting *setting, const char *where, const char *text) {
    if (setting_has_choice(setting, text)) return STATUS_OK;
    enum status status = status_set(STATUS_BAD_INPUT, "%s: '%s' is none of %s", where, text, setting->choices);
    return setting->hint ? status_hint(status, "%s", setting->hint) : status;
}
