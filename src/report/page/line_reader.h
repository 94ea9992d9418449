/* A text file read line by line as it grows: each call takes the whole lines that were added since the last one, so
 * that what a run writes can be followed without asking the run. */
#ifndef BALLAST_REPORT_PAGE_LINE_READER_H
#define BALLAST_REPORT_PAGE_LINE_READER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct line_reader {
    char *path;
    size_t max_line_bytes;
    int64_t offset, lines; /* bytes and lines that were read */
};

/* What becomes of the lines. */
struct line_taker {
    void *payload;
    void (*forget)(void *payload); /* the file became shorter: all that was taken is void */
    /* `text` ends with '\n' after `bytes`. */
    enum status (*take)(void *payload, const struct line_reader *reader, const char *text, size_t bytes);
};

/* The file need not exist. The caller closes. */
enum status line_reader_open(const char *path, size_t max_line_bytes, struct line_reader *out);
void line_reader_close(struct line_reader *reader);
/* Takes on to the last whole line. BAD_INPUT for what is no regular file and "FILE: line N: longer than …"; else what
 * `take` returned. */
enum status line_reader_advance(struct line_reader *reader, const struct line_taker *taker);
/* "FILE: line N" of the line that is being taken; returns `text`. */
enum { LINE_NAME_BYTES = 4096 + 32 };
char *line_reader_name(const struct line_reader *reader, char text[LINE_NAME_BYTES]);

#endif
