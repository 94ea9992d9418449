/* Line editing at a terminal, with arrow keys and a history, by libedit if the build finds it
 * (src/cli/CMakeLists.txt). */
#ifndef BALLAST_CLI_LINE_EDIT_H
#define BALLAST_CLI_LINE_EDIT_H

#include "cli/typed_lines.h"

struct line_edit;
/* For a reader, whose input it takes. NULL where the build has no libedit, or it cannot use the terminal. */
struct line_edit *line_edit_open(struct typed_lines *reader);
/* NULL is allowed. */
void line_edit_close(struct line_edit *edit);
/* As typed_lines_next; the line ends with its newline, if there was one. */
enum line_event line_edit_next(struct line_edit *edit, const char *prompt, const char **line, size_t *bytes);

#endif
