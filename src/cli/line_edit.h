/* Line editing with arrow keys and a history, if the build finds libedit (src/cli/CMakeLists.txt). */
#pragma once

#include "base/base.h"

/* Reads lines from standard input: at a terminal with a prompt and editing, else unchanged. A signal handler can end
 * the wait for a line at any moment, on any thread. */

enum { LINE_INPUT_BYTES = 4096 };

struct typed_lines {
    bool terminal;          /* standard input and output are a terminal */
    struct line_edit *edit; /* NULL: no editing */
    int wake[2];            /* pipe; a byte in it ends a wait */
    char input[LINE_INPUT_BYTES];
    size_t at, end; /* the bytes of `input` that are not consumed yet */
    char *line;
    size_t capacity;
};

enum line_event {
    LINE_TEXT,
    LINE_INTERRUPTED,
    LINE_END,    /* end of input, Ctrl-D at a terminal */
    LINE_FAILED, /* the message is set */
};

/* Reads the next byte of input, for line_edit.c. Returns 1, 0 at the end, or -1 with errno (EINTR if interrupted). */
int typed_lines_take_byte(struct typed_lines *reader, char *byte);

struct line_edit;
/* Opens line editing on a reader's input. Returns NULL if the build has no libedit, or if libedit cannot use the
 * terminal. */
struct line_edit *line_edit_open(struct typed_lines *reader);
/* Accepts NULL. */
void line_edit_close(struct line_edit *edit);
/* Works like typed_lines_next, but keeps the line's newline, if it has one. */
enum line_event line_edit_next(struct line_edit *edit, const char *prompt, const char **line, size_t *bytes);
