#include "base/progress.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    progress_listener *listener;
    void *payload;
    struct progress work;
    int depth; /* of work within work, of which only the outermost is told */
} state;
static _Thread_local bool muted;

/* Under the lock. */
static void notify(enum progress_moment moment) {
    if (state.listener && state.depth == 1) state.listener(state.payload, moment, &state.work);
}

void progress_listen(progress_listener *listener, void *payload) {
    pthread_mutex_lock(&lock);
    state.listener = listener;
    state.payload = payload;
    pthread_mutex_unlock(&lock);
}

void progress_mute_thread(void) { muted = true; }

void progress_begin(enum progress_unit unit, int64_t total, const char *what, ...) {
    va_list arguments;
    if (muted) return;
    pthread_mutex_lock(&lock);
    if (state.depth++ == 0) {
        state.work = (struct progress){.unit = unit, .total = total};
        va_start(arguments, what);
        vsnprintf(state.work.what, sizeof state.work.what, what, arguments);
        va_end(arguments);
        notify(PROGRESS_BEGINS);
    }
    pthread_mutex_unlock(&lock);
}

void progress_add(int64_t done) {
    if (muted) return;
    pthread_mutex_lock(&lock);
    if (state.depth == 1) state.work.done += done;
    notify(PROGRESS_MOVES);
    pthread_mutex_unlock(&lock);
}

void progress_end(void) {
    if (muted) return;
    pthread_mutex_lock(&lock);
    notify(PROGRESS_ENDS);
    if (state.depth > 0) state.depth--;
    pthread_mutex_unlock(&lock);
}
