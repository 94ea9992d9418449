/* cmocka with the headers that it must follow: include this in place of <cmocka.h>. */
#ifndef BALLAST_TESTS_UNIT_H
#define BALLAST_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
