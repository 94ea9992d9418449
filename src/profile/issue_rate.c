#include "profile/issue_rate.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"

enum { INSTRUCTIONS = 2000, ROUNDS = 3 };

struct issuing {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t ended;
};

/* Waits for the last instruction of all, as a stream does that has nothing else to do. */
static void *wait_for_all(void *argument) {
    struct issuing *issuing = argument;
    pthread_mutex_lock(&issuing->lock);
    while (issuing->ended < (int64_t)ROUNDS * INSTRUCTIONS)
        pthread_cond_wait(&issuing->changed, &issuing->lock);
    pthread_mutex_unlock(&issuing->lock);
    return NULL;
}

static double time_round(struct issuing *issuing) {
    int64_t begin = clock_now_ns();
    for (int i = 0; i < INSTRUCTIONS; i++) {
        pthread_mutex_lock(&issuing->lock);
        pthread_mutex_unlock(&issuing->lock);
        pthread_mutex_lock(&issuing->lock);
        issuing->ended++;
        pthread_cond_broadcast(&issuing->changed);
        pthread_mutex_unlock(&issuing->lock);
    }
    return (double)(clock_now_ns() - begin) * 1e-9 / INSTRUCTIONS;
}

enum status issue_measure(double *seconds) {
    struct issuing issuing = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    pthread_t waiter;
    int error = fault_point(FAULT_SUBMIT) ? errno : pthread_create(&waiter, NULL, wait_for_all, &issuing);
    if (error) return status_set(STATUS_FAILED, "cannot start a thread to measure with: %s", strerror(error));
    double least = 1e30;
    for (int round = 0; round < ROUNDS; round++) {
        double taken = time_round(&issuing);
        if (taken < least) least = taken;
    }
    pthread_join(waiter, NULL);
    *seconds = least;
    return STATUS_OK;
}
