/* The portable engine: threads that call pread and pwrite, fed by one queue. */
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "runtime/store/disk.h"

/* Threads touch some 8 KiB of it. It also holds the libraries' thread-local data: with CUDA's, 64 KiB are too few. */
enum { STACK_BYTES = 512 << 10 };

struct finished_list {
    struct disk_request *first;
    pthread_cond_t grown;
};

/* `lock` guards the following fields. */
struct pool {
    int descriptor, channels, threads;
    pthread_t *thread;
    pthread_mutex_t lock;
    bool stopping;
    pthread_cond_t queue_changed;
    struct disk_request *first, **last_next; /* waiting for a thread, oldest first */
    struct finished_list *finished;          /* for each channel */
};

static int64_t carry_out(int descriptor, const struct disk_request *request) {
    if (fault_point(FAULT_SLOW)) (void)nanosleep(&(struct timespec){.tv_nsec = 2 * 1000 * 1000}, NULL);
    ssize_t moved = request->write ? pwrite(descriptor, request->data, (size_t)request->request_bytes, request->at)
                                   : pread(descriptor, request->data, (size_t)request->request_bytes, request->at);
    return moved < 0 ? -errno : moved;
}

static struct disk_request *take_first(struct pool *pool) {
    struct disk_request *request = pool->first;
    pool->first = request->next;
    if (!pool->first) pool->last_next = &pool->first;
    return request;
}

static void *work(void *argument) {
    struct pool *pool = argument;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->first && !pool->stopping)
            pthread_cond_wait(&pool->queue_changed, &pool->lock);
        if (pool->stopping) break;
        struct disk_request *request = take_first(pool);
        pthread_mutex_unlock(&pool->lock);
        request->result = carry_out(pool->descriptor, request);
        pthread_mutex_lock(&pool->lock);
        struct finished_list *finished = &pool->finished[request->channel];
        request->next = finished->first;
        finished->first = request;
        pthread_cond_signal(&finished->grown);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void start(void *state, struct disk_request *request) {
    struct pool *pool = state;
    request->next = NULL;
    pthread_mutex_lock(&pool->lock);
    *pool->last_next = request;
    pool->last_next = &request->next;
    pthread_cond_signal(&pool->queue_changed);
    pthread_mutex_unlock(&pool->lock);
}

static struct disk_request *wait_finished(void *state, int channel) {
    struct pool *pool = state;
    struct finished_list *finished = &pool->finished[channel];
    pthread_mutex_lock(&pool->lock);
    while (!finished->first)
        pthread_cond_wait(&finished->grown, &pool->lock);
    struct disk_request *request = finished->first;
    finished->first = request->next;
    pthread_mutex_unlock(&pool->lock);
    return request;
}

static void close_pool(void *state) {
    struct pool *pool = state;
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->queue_changed);
    pthread_mutex_unlock(&pool->lock);
    for (int t = 0; t < pool->threads; t++)
        pthread_join(pool->thread[t], NULL);
    for (int c = 0; c < pool->channels; c++)
        pthread_cond_destroy(&pool->finished[c].grown);
    pthread_cond_destroy(&pool->queue_changed);
    pthread_mutex_destroy(&pool->lock);
    mem_free(pool->thread);
    mem_free(pool->finished);
    mem_free(pool);
}

static enum status start_threads(struct pool *pool, int wanted) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int error = 0;
    while (pool->threads < wanted && error == 0) {
        error =
            fault_point(FAULT_SUBMIT) ? errno : pthread_create(&pool->thread[pool->threads], &attributes, work, pool);
        if (error == 0) pool->threads++;
    }
    pthread_attr_destroy(&attributes);
    return error == 0
               ? STATUS_OK
               : status_set(STATUS_FAILED, "cannot start %d threads for the disk tier: %s", wanted, strerror(error));
}

static enum status open_pool(int descriptor, int channels, void **state) {
    struct pool *pool = mem_array(1, sizeof *pool);
    if (!pool) return STATUS_FAILED;
    int wanted = channels * DISK_REQUESTS;
    *pool = (struct pool){.descriptor = descriptor,
                          .thread = mem_array((size_t)wanted, sizeof *pool->thread),
                          .finished = mem_array((size_t)channels, sizeof *pool->finished),
                          .last_next = &pool->first};
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->queue_changed, NULL);
    for (; pool->finished && pool->channels < channels; pool->channels++)
        pthread_cond_init(&pool->finished[pool->channels].grown, NULL);
    enum status status = pool->thread && pool->finished ? start_threads(pool, wanted) : STATUS_FAILED;
    if (status != STATUS_OK) {
        close_pool(pool);
        return status;
    }
    *state = pool;
    return STATUS_OK;
}

const struct disk_engine disk_threads = {
    .name = "threads", .open = open_pool, .start = start, .wait = wait_finished, .close = close_pool};
