/* A line of a terminal: a bar, then fields by importance, as many as there is room for. */
#ifndef BALLAST_CONSOLE_FIELD_LINE_H
#define BALLAST_CONSOLE_FIELD_LINE_H

#include <stdbool.h>

enum { FIELD_LINE_BYTES = 1024, FIELD_BYTES = 112, FIELDS_MAX = 12 };

struct field_line {
    char fields[FIELDS_MAX][FIELD_BYTES]; /* the most important first; ASCII */
    int count;
    int strong;  /* the field that stands out where there is colour; -1: none */
    double part; /* of the bar that is full, 0 to 1 */
};

/* The next field, FIELD_BYTES large. */
char *field_line_add(struct field_line *line);
/* At most `columns` visible characters. The bar has a sixth of them, 8 to 30, for which lesser fields make room; it is
 * left out where the first two fields do not fit beside it. `colour`: with ANSI colours. */
void field_line_print(const struct field_line *line, int columns, bool colour, char text[FIELD_LINE_BYTES]);

#endif
