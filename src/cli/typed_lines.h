/* Lines from standard input: at a terminal with a prompt and editing, else as they come. A signal's handler can end the
 * wait for one, at whatever moment and on whatever thread it comes. */
#ifndef BALLAST_CLI_TYPED_LINES_H
#define BALLAST_CLI_TYPED_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { LINE_INPUT_BYTES = 4096 };

struct typed_lines {
    bool terminal;          /* standard input and output are one */
    struct line_edit *edit; /* NULL: lines come as the terminal gives them */
    int wake[2];            /* a pipe: what is in it ends a wait */
    char input[LINE_INPUT_BYTES];
    size_t at, end; /* of what was read into `input` and not taken yet */
    char *line;
    size_t capacity;
};
/* The reader must not be moved until it is closed. */
enum status typed_lines_open(struct typed_lines *out);
void typed_lines_close(struct typed_lines *reader);

enum line_event {
    LINE_TEXT,
    LINE_INTERRUPTED,
    LINE_END,    /* of input, Ctrl-D at a terminal */
    LINE_FAILED, /* the message is set */
};
/* The next line without its newline, valid until the next call. `prompt` is shown at a terminal. Interrupts that came
 * before the call do not count. */
enum line_event typed_lines_next(struct typed_lines *reader, const char *prompt, const char **line);

/* For a signal's handler: ends the wait for a line. */
void typed_lines_interrupt(const struct typed_lines *reader);

/* The next byte of input, for line_edit.c: 1; 0 at the end; -1 with errno, EINTR where interrupted. */
int typed_lines_take_byte(struct typed_lines *reader, char *byte);

#endif
