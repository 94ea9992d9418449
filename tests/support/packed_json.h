/* Large JSON fixtures, compressed with gzip (tests/reference/packed_json.py). */
#pragma once

#include <jansson.h>

/* Reads BALLAST_FIXTURES/NAME, which ends in .json.gz; json_decref. Fails the test where it cannot. */
json_t *packed_json_read(const char *name);
