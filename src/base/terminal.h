/* The terminal behind a stream, and the live line on it, which is drawn again and again. */
#ifndef BALLAST_BASE_TERMINAL_H
#define BALLAST_BASE_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Whether lines can be drawn over: a terminal, and TERM is neither empty nor "dumb". */
bool terminal_is_live(FILE *out);
/* The same, and NO_COLOR is not set. */
bool terminal_has_colour(FILE *out);
/* Its width; 80 where it tells none. */
int terminal_columns(FILE *out);

/* Replaces control characters by '?', all but line feeds and tabs: text that others wrote (names of files, output of
 * models) must not move the cursor or change the terminal's title. Bytes that are no UTF-8 stay. */
void terminal_make_plain(char *text, size_t bytes);
/* Writes and flushes text from others. On a terminal it replaces control characters. Returns false on a write error. */
bool terminal_write(FILE *out, const char *text, size_t bytes);

/* Draws the live line over its earlier text. From any thread; log.h clears it before it prints. */
void live_line_draw(FILE *out, const char *text);
/* Clears it, for other lines to be printed in its place; nothing where none is drawn. */
void live_line_wipe(void);
/* Ends it: its last text stays, and printing continues below. */
void live_line_keep(void);

#endif
