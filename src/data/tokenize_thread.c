#include "data/tokenize_thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#include "base/fault.h"
#include "base/mem.h"

/* Chunks of one corpus before the next corpus has its turn: each change starts with an empty cache of words. */
enum { TURN_CHUNKS = 16 };

struct tokenize_thread {
    pthread_t thread;
    atomic_bool stop;
    size_t count;
    struct corpus *corpora[];
};

/* Whether the corpus is not at its end. */
static bool take_turn(struct tokenize_thread *thread, struct corpus *corpus) {
    for (int i = 0; i < TURN_CHUNKS; i++)
        if (atomic_load(&thread->stop) || !corpus_advance(corpus)) return false;
    if (thread->count > 1) corpus_rest(corpus);
    return true;
}

static void *tokenize_all(void *payload) {
    struct tokenize_thread *thread = payload;
    (void)setpriority(PRIO_PROCESS, 0, 19); /* on Linux a thread's */
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < thread->count; i++)
            more |= take_turn(thread, thread->corpora[i]);
    }
    return NULL;
}

enum status tokenize_thread_start(struct corpus *const *corpora, size_t count, struct tokenize_thread **out) {
    struct tokenize_thread *thread = mem_array(1, sizeof *thread + count * sizeof(struct corpus *));
    if (!thread) return STATUS_FAILED;
    thread->count = count;
    memcpy(thread->corpora, corpora, count * sizeof *corpora);
    int error = fault_point(FAULT_SUBMIT) ? EAGAIN : pthread_create(&thread->thread, NULL, tokenize_all, thread);
    if (error != 0) {
        mem_free(thread);
        return status_set(STATUS_FAILED, "cannot start a thread that tokenizes: %s", strerror(error));
    }
    *out = thread;
    return STATUS_OK;
}

void tokenize_thread_stop(struct tokenize_thread *thread) {
    if (!thread) return;
    atomic_store(&thread->stop, true);
    pthread_join(thread->thread, NULL);
    mem_free(thread);
}
