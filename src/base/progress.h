/* How far a long piece of work is, for whoever waits for it.
 *
 *     progress_begin(PROGRESS_BYTES, bytes, "reading the weights");
 *     ... progress_add(piece);                       // from any thread
 *     progress_end();
 *
 * What works only counts; who shows it listens. Nothing is allocated. */
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

/* Each begin has its end, however the work goes. What begins within other work is a part of that, and is not told. */
void progress_begin(enum progress_unit unit, int64_t total, const char *what, ...)
    __attribute__((format(printf, 3, 4)));
void progress_add(int64_t done);
void progress_end(void);

/* What this thread does from now on is not told: nobody waits for it. */
void progress_mute_thread(void);

enum progress_moment { PROGRESS_BEGINS, PROGRESS_MOVES, PROGRESS_ENDS };
typedef void progress_listener(void *payload, enum progress_moment moment, const struct progress *progress);
/* One listener, called by one thread at a time, from any; NULL: nobody listens. */
void progress_listen(progress_listener *listener, void *payload);

#endif
