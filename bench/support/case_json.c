#include "support/case_json.h"

#include "base/json.h"

static enum status wrong_type(const char *place, const char *field, const char *what) {
    return status_set(STATUS_BAD_INPUT, "%s: %s: must be %s", place, field, what);
}

enum status case_array(const char *place, const json_t *object, const char *field, const json_t **out) {
    TRY(json_require(place, object, field));
    *out = json_object_get(object, field);
    return json_is_array(*out) ? STATUS_OK : wrong_type(place, field, "an array");
}

enum status case_object(const char *place, const json_t *object, const char *field, const json_t **out) {
    TRY(json_require(place, object, field));
    *out = json_object_get(object, field);
    return json_is_object(*out) ? STATUS_OK : wrong_type(place, field, "an object");
}

enum status case_array_of(const char *place, const json_t *object, const char *field, size_t count,
                          const json_t **out) {
    TRY(case_array(place, object, field, out));
    if (json_array_size(*out) == count) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s: must hold %zu items; holds %zu", place, field, count,
                      json_array_size(*out));
}

static enum status wrong_item(const char *place, const char *field, size_t index, const char *what) {
    return status_set(STATUS_BAD_INPUT, "%s: %s[%zu]: must be %s", place, field, index, what);
}

enum status case_item_object(const char *place, const char *field, const json_t *array, size_t index,
                             const json_t **out) {
    *out = json_array_get(array, index);
    return json_is_object(*out) ? STATUS_OK : wrong_item(place, field, index, "an object");
}

enum status case_item_array(const char *place, const char *field, const json_t *array, size_t index,
                            const json_t **out) {
    *out = json_array_get(array, index);
    return json_is_array(*out) ? STATUS_OK : wrong_item(place, field, index, "an array");
}

enum status case_item_int(const char *place, const char *field, const json_t *array, size_t index, int64_t min,
                          int64_t max, int64_t *out) {
    const json_t *value = json_array_get(array, index);
    int64_t number = json_integer_value(value);
    if (json_is_integer(value) && number >= min && number <= max) {
        *out = number;
        return STATUS_OK;
    }
    return status_set(STATUS_BAD_INPUT, "%s: %s[%zu]: must be a whole number from %lld to %lld", place, field, index,
                      (long long)min, (long long)max);
}

enum status case_item_double(const char *place, const char *field, const json_t *array, size_t index, double min,
                             double max, double *out) {
    const json_t *value = json_array_get(array, index);
    double number = json_number_value(value);
    if (json_is_number(value) && number >= min && number <= max) {
        *out = number;
        return STATUS_OK;
    }
    return status_set(STATUS_BAD_INPUT, "%s: %s[%zu]: must be a number from %g to %g", place, field, index, min, max);
}

enum status case_int(const char *place, const json_t *object, const char *field, int64_t min, int64_t max,
                     int64_t *out) {
    TRY(json_require(place, object, field));
    return json_read_int(place, object, field, min, max, out);
}

enum status case_double(const char *place, const json_t *object, const char *field, double min, double max,
                        double *out) {
    TRY(json_require(place, object, field));
    return json_read_double(place, object, field, min, max, out);
}
