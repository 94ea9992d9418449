/* Includes cmocka after the headers that it requires. Include this instead of <cmocka.h>. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* How far a sweep goes: `usual` in make test, `all` in make check. */
static inline uint64_t unit_sweep(uint64_t usual, uint64_t all) { return getenv("BALLAST_LONG") ? all : usual; }

/* For loops over parts that fail each for itself (operators): whether this one is run. BALLAST_TEST_PART in the
 * environment names the only one, or is "list": then their names are printed, and none is. */
static inline bool unit_part(const char *name) {
    const char *wanted = getenv("BALLAST_TEST_PART");
    if (wanted && strcmp(wanted, "list") == 0) print_message("part: %s\n", name);
    return !wanted || strcmp(wanted, name) == 0;
}

/* Skips the rest of a test case. `reason` says what is missing and what would be needed: "this build has no CUDA
 * backend; needs the CUDA toolkit". scripts/run-tests.sh lists the lines. */
#define unit_skip(...)                                                                                                 \
    do {                                                                                                               \
        print_message("skipped: " __VA_ARGS__);                                                                        \
        print_message("\n");                                                                                           \
        skip();                                                                                                        \
    } while (0)
/* The whole program, from main or before any test case: ends it with the status that ctest counts as skipped. */
#define unit_skip_all(...)                                                                                             \
    do {                                                                                                               \
        print_message("skipped: " __VA_ARGS__);                                                                        \
        print_message("\n");                                                                                           \
        exit(77);                                                                                                      \
    } while (0)
