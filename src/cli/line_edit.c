#include "cli/line_edit.h"

#include <histedit.h>
#include <locale.h>
#include <wchar.h>

enum { HISTORY_LINES = 1000 };

struct line_edit {
    struct typed_lines *reader;
    EditLine *editor;
    History *history;
    const char *prompt;
};

enum { CTRL_D = 4 };

static char *show_prompt(EditLine *editor) {
    struct line_edit *edit;
    el_get(editor, EL_CLIENTDATA, &edit);
    return (char *)edit->prompt;
}

/* Reads the next character. Returns, as libedit requires, 1, 0 at the end of input, or -1 with errno. */
static int take_character(EditLine *editor, wchar_t *character) {
    struct line_edit *edit;
    mbstate_t state = {0};
    char byte;
    el_get(editor, EL_CLIENTDATA, &edit);
    for (;;) {
        int taken = typed_lines_take_byte(edit->reader, &byte);
        if (taken != 1) return taken;
        /* libedit shows its prompt before it switches the terminal's mode. A Ctrl-D typed in between arrives as 0. */
        if (byte == '\0') byte = CTRL_D;
        size_t used = mbrtowc(character, &byte, 1, &state);
        if (used == (size_t)-1)
            state = (mbstate_t){0}; /* skip an invalid sequence */
        else if (used != (size_t)-2)
            return 1;
    }
}

/* In an ASCII locale, libedit would drop all other characters. */
static void set_characters(void) {
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1) (void)setlocale(LC_CTYPE, "C.UTF-8");
}

struct line_edit *line_edit_open(struct typed_lines *reader) {
    struct line_edit *edit = mem_array(1, sizeof *edit);
    HistEvent event;
    if (!edit) return NULL;
    edit->reader = reader;
    set_characters();
    edit->editor = el_init("ballast", stdin, stdout, stderr);
    edit->history = history_init();
    if (!edit->editor || !edit->history) {
        line_edit_close(edit);
        return NULL;
    }
    history(edit->history, &event, H_SETSIZE, HISTORY_LINES);
    el_set(edit->editor, EL_CLIENTDATA, edit);
    el_set(edit->editor, EL_GETCFN, take_character);
    el_set(edit->editor, EL_PROMPT, show_prompt);
    el_set(edit->editor, EL_EDITOR, "emacs");
    el_set(edit->editor, EL_HIST, history, edit->history);
    el_source(edit->editor, NULL); /* ~/.editrc, if it exists */
    return edit;
}

void line_edit_close(struct line_edit *edit) {
    if (!edit) return;
    if (edit->editor) el_end(edit->editor);
    if (edit->history) history_end(edit->history);
    mem_free(edit);
}

enum line_event line_edit_next(struct line_edit *edit, const char *prompt, const char **line, size_t *bytes) {
    int count = 0;
    HistEvent event;
    edit->prompt = prompt;
    errno = 0;
    const char *found = el_gets(edit->editor, &count);
    if (!found && errno == EINTR) {
        el_reset(edit->editor);
        return LINE_INTERRUPTED;
    }
    if (!found || count <= 0) return LINE_END;
    if (found[0] != '\n') history(edit->history, &event, H_ENTER, found);
    *line = found;
    *bytes = (size_t)count;
    return LINE_TEXT;
}
