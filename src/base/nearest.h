/* Finds the name that the user probably meant. */
#pragma once

#include "base/base.h"

/* Keeps the best of the candidates shown to it one by one. Start with {.wanted = text}. */
struct nearest {
    const char *wanted;
    const char *best; /* NULL while none is near enough: a third of the letters may differ, and at least two */
    size_t distance;
};
void nearest_consider(struct nearest *nearest, const char *candidate);

/* Adds "the nearest legal THING is WORD" as a hint to the current message, or all of the words where none is near
 * `wanted`, and returns `code`. */
enum status nearest_hint(enum status code, const char *thing, const char *wanted, const char *const *names,
                         size_t count);
