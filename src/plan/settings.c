#include "plan/settings.h"

#include <math.h>
#include <time.h>

#include "base/json.h"
#include "base/text.h"
#include "plan/plan.h"

const struct setting setting_table[SETTING_COUNT] = {
#define SETTING_ROW(id, file_key, option, ...)                                                                         \
    [SETTING_##id] = {.field = #id, .key = (file_key), .name = (option), __VA_ARGS__},
    SETTING_LIST(SETTING_ROW)};

enum setting_id setting_id_of(const struct setting *setting) {
    int id = 0;
    while (id < SETTING_COUNT && &setting_table[id] != setting)
        id++;
    return (enum setting_id)id;
}

void settings_given_join(struct settings_given *given, const struct settings_given *there) {
    for (int i = 0; i < SETTING_COUNT; i++)
        given->of[i] |= there->of[i];
}

/* ---- Choices ---- */

/* The place of a name among names "a|b|c"; -1: it is none of them. */
static int64_t place_of(const char *list, const char *name) {
    size_t length = strlen(name);
    for (int64_t place = 0; length > 0 && !strchr(name, '|'); place++) {
        if (strncmp(list, name, length) == 0 && (list[length] == '|' || list[length] == '\0')) return place;
        list = strchr(list, '|');
        if (!list) break;
        list++;
    }
    return -1;
}

static const char *names_of(const struct setting *setting) {
    return setting->names ? setting->names : setting->choices;
}

bool setting_has_choice(const struct setting *setting, const char *text) {
    return place_of(setting->choices, text) >= 0;
}

int64_t setting_choice_value(const struct setting *setting, const char *name) {
    return place_of(names_of(setting), name);
}

const char *setting_choice_name(const struct setting *setting, int64_t value, char text[SETTING_PRINT_BYTES]) {
    const char *name = names_of(setting);
    for (; value > 0 && name; value--) {
        name = strchr(name, '|');
        if (name) name++;
    }
    snprintf(text, SETTING_PRINT_BYTES, "%.*s", value == 0 && name ? (int)strcspn(name, "|") : 0, name ? name : "");
    return text;
}

/* ---- Checks, and values from the command line's text ---- */

enum status setting_check_int(const struct setting *setting, const char *where, int64_t value) {
    if (value >= setting->min && value <= setting->max) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %" PRId64 " is not legal" HINT "must be %" PRId64 " to %" PRId64, where,
                      value, setting->min, setting->max);
}

enum status setting_check_float(const struct setting *setting, const char *where, double value) {
    bool low = setting->above ? value <= setting->float_min : value < setting->float_min;
    if (isfinite(value) && !low && value <= setting->float_max) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %.9g is not legal" HINT "must be %s %g and at most %g", where, value,
                      setting->above ? "above" : "at least", setting->float_min, setting->float_max);
}

/* The hint names the nearest of "a|b|c", or all of them. */
static enum status hint_names(enum status status, const char *all, const char *wanted) {
    enum { NAMES_MAX = 32 };
    char text[512];
    const char *names[NAMES_MAX];
    size_t count = 0;
    snprintf(text, sizeof text, "%s", all);
    for (char *rest = text, *one; count < NAMES_MAX && (one = strsep(&rest, "|"));)
        names[count++] = one;
    return nearest_hint(status, "value", wanted, names, count);
}

enum status setting_check_choice(const struct setting *setting, const char *where, const char *text) {
    if (setting_has_choice(setting, text)) return STATUS_OK;
    enum status status = status_set(STATUS_BAD_INPUT, "%s: '%s' is none of %s", where, text, setting->choices);
    return setting->hint ? status_hint(status, "%s", setting->hint) : hint_names(status, setting->choices, text);
}

static enum status parse_int(const struct setting *setting, const char *where, const char *text, int64_t *out) {
    char *end;
    *out = 0;
    if (setting->automatic && strcmp(text, setting->automatic) == 0) return STATUS_OK;
    errno = 0;
    bool begins = (text[0] >= '0' && text[0] <= '9') || ((text[0] == '-' || text[0] == '+') && text[1] != '\0');
    long long number = strtoll(text, &end, 10);
    if (!begins || *end != '\0')
        return status_set(STATUS_BAD_INPUT, "%s: '%s' is not %s%sa whole number" HINT "must be %" PRId64 " to %" PRId64,
                          where, text, setting->automatic ? setting->automatic : "", setting->automatic ? " or " : "",
                          setting->min, setting->max);
    if (errno == ERANGE)
        return status_set(STATUS_BAD_INPUT, "%s: %s is not legal" HINT "must be %" PRId64 " to %" PRId64, where, text,
                          setting->min, setting->max);
    *out = number;
    return setting_check_int(setting, where, number);
}

static enum status parse_float(const struct setting *setting, const char *where, const char *text, double *out) {
    char *end;
    /* strtod also takes blanks, hexadecimals, "inf" and "nan". */
    bool plain = text[0] != '\0' && text[strspn(text, "+-.0123456789eE")] == '\0';
    *out = plain ? strtod(text, &end) : 0;
    if (!plain || *end != '\0' || end == text)
        return status_set(STATUS_BAD_INPUT, "%s: '%s' is not a number" HINT "write it as 0.0003 or 3e-4", where, text);
    if (!isfinite(*out))
        return status_set(STATUS_BAD_INPUT, "%s: %s is not legal" HINT "must be at most %g", where, text,
                          setting->float_max);
    return setting_check_float(setting, where, *out);
}

static enum status parse_size(const char *where, const char *text, int64_t *out) {
    TRY(status_prefix(size_parse(text, out), "%s", where));
    TRY(status_prefix(size_refuse_bare(text), "%s", where));
    if (*out < 1)
        return status_set(STATUS_BAD_INPUT, "%s: %s is not legal" HINT "must be at least one byte, as in 512M or 8G",
                          where, text);
    return STATUS_OK;
}

static enum status parse_flag(const char *where, const char *text, int64_t *out) {
    *out = strcmp(text, "true") == 0;
    if (*out || strcmp(text, "false") == 0) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: '%s' is neither true nor false" HINT "the name alone means true", where,
                      text);
}

static enum status parse_date(const char *where, const char *text, int64_t *out) {
    struct tm date = {0};
    const char *end = strptime(text, "%Y-%m-%d", &date);
    *out = end && *end == '\0' ? (int64_t)timegm(&date) : 0;
    if (*out > 0) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: '%s' is not a date" HINT "write it as 2024-07-26, from 1970-01-02 on",
                      where, text);
}

enum status setting_parse(const struct setting *setting, const char *where, const char *text,
                          struct setting_value *out) {
    switch (setting->type) {
    case SETTING_FLAG: return parse_flag(where, text, &out->int_value);
    case SETTING_INT: return parse_int(setting, where, text, &out->int_value);
    case SETTING_FLOAT: return parse_float(setting, where, text, &out->float_value);
    case SETTING_SIZE: return parse_size(where, text, &out->int_value);
    case SETTING_CHOICE:
        TRY(setting_check_choice(setting, where, text));
        out->int_value = setting_choice_value(setting, text);
        break;
    case SETTING_DATE:
    case SETTING_TEXT:
    case SETTING_TEXTS:
    case SETTING_LANES: break;
    }
    out->text = text;
    if (!text[0] && !setting->may_be_empty)
        return status_set(STATUS_BAD_INPUT, "%s: must not be empty" HINT "is a shell variable unset?", where);
    return setting->type == SETTING_DATE ? parse_date(where, text, &out->int_value) : STATUS_OK;
}

void setting_default(const struct setting *setting, struct setting_value *out) {
    *out = (struct setting_value){.int_value = setting->int_value, .float_value = setting->float_value};
    if (setting->type == SETTING_CHOICE && setting->fallback)
        out->int_value = setting_choice_value(setting, setting->fallback);
    if (setting->type == SETTING_LANES) out->lanes = (struct lane_shape){1, 1};
    if (setting->type == SETTING_TEXT) out->text = setting->fallback ? setting->fallback : "";
}

bool setting_values_equal(const struct setting *setting, const struct setting_value *a, const struct setting_value *b) {
    switch (setting->type) {
    case SETTING_FLOAT: return !(a->float_value < b->float_value || a->float_value > b->float_value);
    case SETTING_TEXT:
    case SETTING_TEXTS: return strcmp(a->text ? a->text : "", b->text ? b->text : "") == 0;
    case SETTING_LANES: return lane_shape_equal(&a->lanes, &b->lanes);
    default: return a->int_value == b->int_value;
    }
}

const char *setting_print(const struct setting *setting, const struct setting_value *value,
                          char text[SETTING_PRINT_BYTES]) {
    _Static_assert((int)SETTING_PRINT_BYTES >= (int)LANE_SHAPE_BYTES, "lanes fit");
    switch (setting->type) {
    case SETTING_FLOAT: snprintf(text, SETTING_PRINT_BYTES, "%g", value->float_value); return text;
    case SETTING_TEXT:
    case SETTING_TEXTS: return value->text ? value->text : "";
    case SETTING_LANES: return lane_shape_print(&value->lanes, text);
    case SETTING_CHOICE: return setting_choice_name(setting, value->int_value, text);
    default: snprintf(text, SETTING_PRINT_BYTES, "%" PRId64, value->int_value); return text;
    }
}

/* ---- JSON ---- */

json_t *setting_to_json(const struct setting *setting, const struct setting_value *value) {
    char text[SETTING_PRINT_BYTES];
    if (setting->flag_in_files) return json_boolean(value->int_value);
    switch (setting->type) {
    case SETTING_FLAG: return json_boolean(value->int_value);
    case SETTING_INT:
    case SETTING_DATE:
    case SETTING_SIZE: return json_integer((json_int_t)value->int_value);
    case SETTING_FLOAT: return json_real(value->float_value);
    default: return json_string(setting_print(setting, value, text));
    }
}

static enum status refuse_name(const char *file, const struct setting *setting, const char *name) {
    char names[256];
    snprintf(names, sizeof names, "%s%s%s", setting->names_in_files ? names_of(setting) : setting->choices,
             setting->automatic ? "|" : "", setting->automatic ? setting->automatic : "");
    return hint_names(status_set(STATUS_BAD_INPUT, "%s: %s: '%s' is not known", file, setting->key, name), names, name);
}

static enum status choice_from_json(const char *file, const json_t *object, const struct setting *setting,
                                    struct setting_value *out) {
    const char *name = "";
    TRY(json_read_string(file, object, setting->key, &name));
    out->int_value = setting_choice_value(setting, name);
    bool legal = setting->names_in_files ? out->int_value >= 0 : setting_has_choice(setting, name);
    return legal ? STATUS_OK : refuse_name(file, setting, name);
}

static enum status float_from_json(const char *file, const json_t *object, const struct setting *setting, bool in_range,
                                   double *out) {
    double min = in_range ? setting->float_min : -HUGE_VAL, max = in_range ? setting->float_max : HUGE_VAL;
    TRY(json_read_double(file, object, setting->key, min, max, out));
    if (!in_range || !setting->above || *out > setting->float_min) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s: must be above %g", file, setting->key, setting->float_min);
}

static enum status text_from_json(const char *file, const json_t *object, const struct setting *setting,
                                  struct scratch *memory, struct setting_value *out) {
    TRY(json_read_string(file, object, setting->key, &out->text));
    if (setting->type == SETTING_LANES)
        return status_prefix(lane_shape_parse(out->text, &out->lanes), "%s: %s", file, setting->key);
    if (memory) out->text = scratch_format(memory, "%s", out->text);
    return out->text ? STATUS_OK : STATUS_FAILED;
}

enum status setting_from_json(const char *file, const json_t *object, const struct setting *setting, bool in_range,
                              struct scratch *memory, struct setting_value *out) {
    *out = (struct setting_value){.text = ""};
    if (setting->flag_in_files || setting->type == SETTING_FLAG) {
        bool flag = false;
        TRY(json_read_bool(file, object, setting->key, &flag));
        out->int_value = flag;
        return STATUS_OK;
    }
    switch (setting->type) {
    case SETTING_CHOICE: return choice_from_json(file, object, setting, out);
    case SETTING_FLOAT: return float_from_json(file, object, setting, in_range, &out->float_value);
    case SETTING_INT:
    case SETTING_DATE:
    case SETTING_SIZE:
        return json_read_int(file, object, setting->key, in_range ? setting->min : INT64_MIN,
                             in_range ? setting->max : INT64_MAX, &out->int_value);
    default: return text_from_json(file, object, setting, memory, out);
    }
}

/* ---- Fields of structs ---- */

void settings_load(const struct settings_holder *holder, const void *from, enum setting_id id,
                   struct setting_value *out) {
    const struct setting_place *place = &holder->places[id];
    const void *field = (const char *)from + place->offset;
    *out = (struct setting_value){0};
    switch (place->storage) {
    case STORED_NOT: break;
    case STORED_INT64: out->int_value = *(const int64_t *)field; break;
    case STORED_UINT64: out->int_value = (int64_t) * (const uint64_t *)field; break;
    case STORED_INT: out->int_value = *(const int *)field; break;
    case STORED_ENUM: out->int_value = *(const unsigned *)field; break;
    case STORED_BOOL: out->int_value = *(const bool *)field; break;
    case STORED_DOUBLE: out->float_value = *(const double *)field; break;
    case STORED_TEXT: out->text = *(const char *const *)field; break;
    case STORED_CHARS: out->text = field; break;
    case STORED_LANES: out->lanes = *(const struct lane_shape *)field; break;
    }
}

static enum status store_lanes(const char *where, const struct setting_value *value, struct lane_shape *out) {
    struct lane_shape lanes = value->lanes;
    if (value->text) TRY(status_prefix(lane_shape_parse(value->text, &lanes), "%s", where));
    *out = lanes;
    return STATUS_OK;
}

enum status settings_store(const struct settings_holder *holder, void *to, enum setting_id id, const char *where,
                           const struct setting_value *value) {
    const struct setting_place *place = &holder->places[id];
    void *field = (char *)to + place->offset;
    switch (place->storage) {
    case STORED_NOT: return STATUS_OK;
    case STORED_INT64: *(int64_t *)field = value->int_value; break;
    case STORED_UINT64: *(uint64_t *)field = (uint64_t)value->int_value; break;
    case STORED_INT: *(int *)field = (int)value->int_value; break;
    case STORED_ENUM: *(unsigned *)field = (unsigned)value->int_value; break;
    case STORED_BOOL: *(bool *)field = value->int_value != 0; break;
    case STORED_DOUBLE: *(double *)field = value->float_value; break;
    case STORED_TEXT: *(const char **)field = value->text; break;
    case STORED_CHARS: snprintf(field, place->bytes, "%s", value->text ? value->text : ""); break;
    case STORED_LANES: TRY(store_lanes(where, value, field)); break;
    }
    if (holder->has_given) ((struct settings_given *)(void *)((char *)to + holder->given))->of[id] = true;
    return STATUS_OK;
}

void settings_init(const struct settings_holder *holder, void *to) {
    for (int id = 0; id < SETTING_COUNT; id++) {
        struct setting_value value;
        if (!settings_have(holder, (enum setting_id)id) || !setting_table[id].fallback) continue;
        setting_default(&setting_table[id], &value);
        (void)settings_store(holder, to, (enum setting_id)id, "", &value);
        if (holder->has_given) ((struct settings_given *)(void *)((char *)to + holder->given))->of[id] = false;
    }
}

bool settings_apply(const struct settings_holder *holder, const void *from, enum setting_id id) {
    const struct setting *setting = &setting_table[id];
    struct setting_value other;
    if (setting->only_with == 0) return true;
    settings_load(holder, from, (enum setting_id)(setting->only_with - 1), &other);
    return other.int_value == setting->only_value;
}
