/* The terminal behind a stream, and the live line on it, which is drawn again and again. */
#pragma once

#include "base/base.h"

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

/* Draws the live line over its earlier text. From any thread; a log line clears it first. */
void live_line_draw(FILE *out, const char *text);
/* Clears it, for other lines to be printed in its place; nothing where none is drawn. */
void live_line_wipe(void);
/* Ends it: its last text stays, and printing continues below. */
void live_line_keep(void);

/* The progress of long work, for display.
 *
 *     progress_begin(PROGRESS_BYTES, bytes, "reading the weights");
 *     ... progress_add(piece);                       // from any thread
 *     progress_end();
 *
 * The code that does the work only counts; a listener displays it. Nothing is allocated. */

enum progress_unit { PROGRESS_BYTES, PROGRESS_COUNT };
enum { PROGRESS_WHAT_BYTES = 96 };

struct progress {
    char what[PROGRESS_WHAT_BYTES]; /* "reading the weights" */
    enum progress_unit unit;
    int64_t done, total;
};

/* Each begin needs its end, also after a failure. Work that begins within other work is part of it and not reported. */
void progress_begin(enum progress_unit unit, int64_t total, const char *what, ...)
    __attribute__((format(printf, 3, 4)));
void progress_add(int64_t done);
void progress_end(void);

/* This thread's work is not reported from now on: nobody waits for it. */
void progress_mute_thread(void);

enum progress_moment { PROGRESS_BEGINS, PROGRESS_MOVES, PROGRESS_ENDS };
typedef void progress_listener(void *payload, enum progress_moment moment, const struct progress *progress);
/* Sets the listener, which any thread calls, one at a time; NULL: none. */
void progress_listen(progress_listener *listener, void *payload);

/* Warnings and notes for the user, one line each: on stderr, or to a listener in its place. */

/* Quiet keeps warnings and drops notes. */
void log_set_quiet(bool quiet);
void log_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Sets the listener, which gets lines without a newline, from any thread; NULL (the default): stderr. It gets notes
 * even where quiet is set. */
typedef void log_listener(bool warning, const char *text);
void log_listen(log_listener *listener);

/* Start-up work of every program, `ballast` and benchmarks alike. */

/* Opens /dev/null on each of the descriptors 0 to 2 that is closed: otherwise the next file that is opened gets that
 * number, and what is printed goes into it. It is opened against its direction (0 for writing, 1 and 2 for reading), so
 * that reading or printing there fails as on a closed descriptor. Also ignores SIGXFSZ: a write beyond `ulimit -f` then
 * fails with EFBIG, which is reported like any other failed write. FAILED where /dev/null cannot be opened: the
 * program should end. */
enum status process_begin(void);
