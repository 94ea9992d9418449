#include "cli/line_edit.h"

/* Replaces line_edit.c in a build without libedit (src/cli/CMakeLists.txt). */
struct line_edit *line_edit_open(struct typed_lines *reader) {
    (void)reader;
    return NULL;
}

void line_edit_close(struct line_edit *edit) { (void)edit; }

enum line_event line_edit_next(struct line_edit *edit, const char *prompt, const char **line, size_t *bytes) {
    (void)edit, (void)prompt, (void)line, (void)bytes;
    return LINE_END;
}
