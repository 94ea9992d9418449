/* Reads cases with known answers from JSON. Errors name the place in the file and the field. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/status.h"

enum { CASE_PLACE_BYTES = 96 };

/* A field that must be there, and an array, or an object. Borrowed. */
enum status case_array(const char *place, const json_t *object, const char *field, const json_t **out);
enum status case_object(const char *place, const json_t *object, const char *field, const json_t **out);
/* An array of `count` items. */
enum status case_array_of(const char *place, const json_t *object, const char *field, size_t count, const json_t **out);

/* Items of an array that is called `field`; BAD_INPUT where one is of another type or out of range. */
enum status case_item_object(const char *place, const char *field, const json_t *array, size_t index,
                             const json_t **out);
enum status case_item_array(const char *place, const char *field, const json_t *array, size_t index,
                            const json_t **out);
enum status case_item_int(const char *place, const char *field, const json_t *array, size_t index, int64_t min,
                          int64_t max, int64_t *out);
enum status case_item_double(const char *place, const char *field, const json_t *array, size_t index, double min,
                             double max, double *out);

/* A field that must be there, and whole, or a number. */
enum status case_int(const char *place, const json_t *object, const char *field, int64_t min, int64_t max,
                     int64_t *out);
enum status case_double(const char *place, const json_t *object, const char *field, double min, double max,
                        double *out);
