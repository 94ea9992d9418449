#include "profile/issue_rate.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "profile/measurement.h"

enum { INSTRUCTIONS = 300 };
static const int64_t WORK_NS = 60 * 1000; /* longer than it takes to fall asleep */

struct issuing {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t ended, told_ns;
    struct sample issues[INSTRUCTIONS], wakes[INSTRUCTIONS];
    int waked;
};

/* Waits for each, as a stream does that has nothing else to do. */
static void *wait_for_each(void *argument) {
    struct issuing *issuing = argument;
    pthread_mutex_lock(&issuing->lock);
    for (int64_t seen = 0; seen < INSTRUCTIONS; seen = issuing->ended) {
        while (issuing->ended == seen)
            pthread_cond_wait(&issuing->changed, &issuing->lock);
        issuing->wakes[issuing->waked++].seconds = (double)(clock_now_ns() - issuing->told_ns) * 1e-9;
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
    issuing->told_ns = clock_now_ns();
    pthread_cond_broadcast(&issuing->changed);
    pthread_mutex_unlock(&issuing->lock);
    issuing->issues[index].seconds = (double)(clock_now_ns() - begin) * 1e-9;
}

enum status issue_measure(double *issue_s, double *wake_s) {
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
