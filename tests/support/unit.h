/* cmocka with the headers that it must follow: include this in place of <cmocka.h>. */
#ifndef BALLAST_TESTS_UNIT_H
#define BALLAST_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdlib.h>

#include <cmocka.h>

/* How far a sweep goes: `usual` in make test, `all` in make check. */
static inline uint64_t unit_sweep(uint64_t usual, uint64_t all) { return getenv("BALLAST_LONG") ? all : usual; }

#endif
