/* The progress of long work, for display.
 *
 *     progress_begin(PROGRESS_BYTES, bytes, "reading the weights");
 *     ... progress_add(piece);                       // from any thread
 *     progress_end();
 *
 * The code that does the work only counts; a listener displays it. Nothing is allocated. */
#ifndef BALLAST_BASE_PROGRESS_H
#define BALLAST_BASE_PROGRESS_H

#include <stdint.h>

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

#endif
