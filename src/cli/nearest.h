/* The name that was probably meant. */
#ifndef BALLAST_CLI_NEAREST_H
#define BALLAST_CLI_NEAREST_H

#include <stddef.h>

/* Keeps the best of the candidates shown to it one by one. Start with {.wanted = text}. */
struct nearest {
    const char *wanted;
    const char *best; /* NULL while none is near enough: a third of the letters may differ, and at least two */
    size_t distance;
};
void nearest_consider(struct nearest *nearest, const char *candidate);

#endif
