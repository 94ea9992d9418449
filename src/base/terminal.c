#include "base/terminal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static pthread_mutex_t line_lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *line_stream; /* where a live line stands without its end; NULL: nowhere */

bool terminal_is_live(FILE *out) {
    const char *term = getenv("TERM");
    return isatty(fileno(out)) && term && *term && strcmp(term, "dumb") != 0; /* "dumb" has no escapes */
}

bool terminal_has_colour(FILE *out) {
    const char *no_color = getenv("NO_COLOR");
    return terminal_is_live(out) && (!no_color || !no_color[0]);
}

int terminal_columns(FILE *out) {
    enum { USUAL = 80 };
    struct winsize size;
    return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : USUAL;
}

void live_line_draw(FILE *out, const char *text) {
    pthread_mutex_lock(&line_lock);
    fprintf(out, "\r%s\x1b[K", text);
    fflush(out);
    line_stream = out;
    pthread_mutex_unlock(&line_lock);
}

static void end_line(const char *ending) {
    pthread_mutex_lock(&line_lock);
    if (line_stream) {
        fputs(ending, line_stream);
        fflush(line_stream);
    }
    line_stream = NULL;
    pthread_mutex_unlock(&line_lock);
}

void live_line_wipe(void) { end_line("\r\x1b[K"); }
void live_line_keep(void) { end_line("\n"); }
