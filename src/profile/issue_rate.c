#include "profile/issue_rate.h"

#include <math.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/fault.h"
#include "profile/measurement.h"

enum { INSTRUCTIONS = 300, HOPS = 100, ROUNDS = 9 };
static const double MIN_S = 1e-9;
static const int64_t WORK_NS = 60 * 1000; /* long enough for the waiter to fall asleep */

struct issuing {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t ended, signalled_ns;
    struct sample issues[INSTRUCTIONS], wakes[INSTRUCTIONS];
    int waked;
};

/* Waits for each instruction, as an idle stream does. */
static void *wait_for_each(void *argument) {
    struct issuing *issuing = argument;
    pthread_mutex_lock(&issuing->lock);
    for (int64_t seen = 0; seen < INSTRUCTIONS; seen = issuing->ended) {
        while (issuing->ended == seen)
            pthread_cond_wait(&issuing->changed, &issuing->lock);
        issuing->wakes[issuing->waked++].seconds = (double)(clock_now_ns() - issuing->signalled_ns) * 1e-9;
    }
    pthread_mutex_unlock(&issuing->lock);
    return NULL;
}

static void compute(void) {
    int64_t begin = clock_now_ns();
    while (clock_now_ns() - begin < WORK_NS)
        continue;
}

static void issue(struct issuing *issuing, int index) {
    int64_t begin = clock_now_ns();
    pthread_mutex_lock(&issuing->lock);
    pthread_mutex_unlock(&issuing->lock);
    pthread_mutex_lock(&issuing->lock);
    issuing->ended++;
    issuing->signalled_ns = clock_now_ns();
    pthread_cond_broadcast(&issuing->changed);
    pthread_mutex_unlock(&issuing->lock);
    issuing->issues[index].seconds = (double)(clock_now_ns() - begin) * 1e-9;
}

static enum status measure_workers(double *issue_s, double *wake_s) {
    struct issuing issuing = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    pthread_t waiter;
    int error = fault_point(FAULT_SUBMIT) ? errno : pthread_create(&waiter, NULL, wait_for_each, &issuing);
    if (error) return status_set(STATUS_FAILED, "cannot start a thread to measure with: %s", strerror(error));
    for (int i = 0; i < INSTRUCTIONS; i++) {
        compute();
        issue(&issuing, i);
    }
    pthread_join(waiter, NULL);
    *issue_s = measurement_of(issuing.issues, INSTRUCTIONS).seconds;
    *wake_s = measurement_of(issuing.wakes, issuing.waked).seconds;
    return STATUS_OK;
}

/* Two streams of a device, each with an event that it records. */
struct hopping {
    const struct backend_streams *streams;
    void *stream[2], *event[2], *begin, *end;
};

static enum status open_hopping(struct hopping *hopping) {
    const struct backend_streams *streams = hopping->streams;
    TRY(streams->enter());
    for (int i = 0; i < 2; i++) {
        TRY(streams->create(&hopping->stream[i]));
        TRY(streams->create_event(&hopping->event[i]));
    }
    TRY(streams->create_timed_event(&hopping->begin));
    return streams->create_timed_event(&hopping->end);
}

static void close_hopping(struct hopping *hopping) {
    const struct backend_streams *streams = hopping->streams;
    void *const events[] = {hopping->event[0], hopping->event[1], hopping->begin, hopping->end};
    for (int i = 0; i < 2; i++)
        if (hopping->stream[i]) streams->free(hopping->stream[i]);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i]) streams->free_event(events[i]);
}

/* Queues instructions that wait for the other stream's event and then record their own. With `used` 1 all are on the
 * first stream, and no wait delays them; with 2 they alternate, and each waits for the one before it. */
static enum status enqueue_hops(const struct hopping *hopping, int used) {
    const struct backend_streams *streams = hopping->streams;
    TRY(streams->record(hopping->begin, hopping->stream[0]));
    for (int i = 0; i < HOPS; i++) {
        int self = i % used;
        TRY(streams->wait(hopping->stream[self], hopping->event[!self]));
        TRY(streams->record(hopping->event[self], hopping->stream[self]));
    }
    return streams->record(hopping->end, hopping->stream[(HOPS - 1) % used]);
}

static enum status finish_hops(const struct hopping *hopping) {
    enum status first = hopping->streams->finish(hopping->stream[0]);
    enum status second = hopping->streams->finish(hopping->stream[1]);
    return first == STATUS_OK ? second : first;
}

/* Seconds from one stream's instruction to the other's. */
static enum status time_hops(const struct hopping *hopping, int used, double *seconds) {
    struct sample rounds[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        rounds[i] = (struct sample){0};
        enum status enqueued = enqueue_hops(hopping, used), finished = finish_hops(hopping);
        TRY(enqueued);
        TRY(finished);
        TRY(hopping->streams->elapsed(hopping->begin, hopping->end, &rounds[i].seconds));
        rounds[i].seconds = fmax(rounds[i].seconds / HOPS, MIN_S);
    }
    *seconds = measurement_of(rounds, ROUNDS).seconds;
    return STATUS_OK;
}

static enum status measure_streams(const struct backend_streams *streams, double *issue_s, double *wake_s) {
    struct hopping hopping = {.streams = streams};
    double hop_s = 0;
    enum status status;
    TRY_GOTO(status, open_hopping(&hopping), done);
    TRY_GOTO(status, time_hops(&hopping, 1, issue_s), done);
    TRY_GOTO(status, time_hops(&hopping, 2, &hop_s), done);
    *wake_s = fmax(hop_s - *issue_s, 0);
done:
    close_hopping(&hopping);
    return status;
}

enum status issue_measure(const struct backend *backend, double *issue_s, double *wake_s) {
    return backend->streams ? measure_streams(backend->streams, issue_s, wake_s) : measure_workers(issue_s, wake_s);
}
