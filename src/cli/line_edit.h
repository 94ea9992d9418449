/* Line editing at a terminal, with arrow keys and a history, by libedit if the build finds it
 * (src/cli/CMakeLists.txt). */
#pragma once

#include "base/base.h"

/* Lines from standard input: at a terminal with a prompt and editing, else as they come. A signal's handler can end the
 * wait for one, at whatever moment and on whatever thread it comes. */

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

enum line_event {
    LINE_TEXT,
    LINE_INTERRUPTED,
    LINE_END,    /* of input, Ctrl-D at a terminal */
    LINE_FAILED, /* the message is set */
};

/* The next byte of input, for line_edit.c: 1; 0 at the end; -1 with errno, EINTR where interrupted. */
int typed_lines_take_byte(struct typed_lines *reader, char *byte);

struct line_edit;
/* For a reader, whose input it takes. NULL where the build has no libedit, or it cannot use the terminal. */
struct line_edit *line_edit_open(struct typed_lines *reader);
/* NULL is allowed. */
void line_edit_close(struct line_edit *edit);
/* As typed_lines_next; the line ends with its newline, if there was one. */
enum line_event line_edit_next(struct line_edit *edit, const char *prompt, const char **line, size_t *bytes);
