/* How much messages slow down kernels, and kernels messages: each rank repeats an operation in one thread and a kernel
 * in another, all ranks at once. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/fault.h"
#include "profile/link_rates.h"

enum { STARTS_MIN = 2, STARTS_MAX = 64, MESSAGE_BYTES = 512 };
static const double INTERVAL_S = 0.03;

/* The thread that repeats the operation. Every rank repeats it as often, since they wait for each other. */
struct collective_run {
    struct comm_operation *operation;
    int starts;
    enum status status;
    char message[MESSAGE_BYTES];
    double seconds; /* of one */
    atomic_bool ended;
};

static void *repeat(void *argument) {
    struct collective_run *collective_run = argument;
    int64_t begin = clock_now_ns();
    for (int i = 0; i < collective_run->starts && collective_run->status == STATUS_OK; i++) {
        comm_start(collective_run->operation);
        collective_run->status = comm_wait(collective_run->operation);
    }
    collective_run->seconds = (double)(clock_now_ns() - begin) * 1e-9 / collective_run->starts;
    if (collective_run->status != STATUS_OK)
        snprintf(collective_run->message, sizeof collective_run->message, "%s", status_message());
    atomic_store(&collective_run->ended, true);
    return NULL;
}

/* Repeats the kernel for a while, or until the collective has ended; seconds of one. */
static enum status repeat_kernel(struct rate_work *work, const struct collective_run *collective_run, double *out) {
    int64_t begin = clock_now_ns(), pieces = 0;
    for (bool more = true; more; pieces++) {
        TRY(rate_work_run(work));
        more = collective_run ? !atomic_load(&collective_run->ended)
                              : (double)(clock_now_ns() - begin) * 1e-9 < INTERVAL_S;
    }
    *out = (double)(clock_now_ns() - begin) * 1e-9 / (double)pieces;
    return STATUS_OK;
}

static enum status run_beside(struct rate_work *work, struct collective_run *collective_run, double *kernel_s) {
    pthread_t thread;
    int error = fault_point(FAULT_SUBMIT) ? errno : pthread_create(&thread, NULL, repeat, collective_run);
    if (error) return status_set(STATUS_FAILED, "cannot start a thread to measure with: %s", strerror(error));
    enum status status = repeat_kernel(work, collective_run, kernel_s);
    pthread_join(thread, NULL);
    if (status != STATUS_OK) return status;
    return collective_run->status == STATUS_OK ? STATUS_OK
                                               : status_set(collective_run->status, "%s", collective_run->message);
}

/* Slowdowns of this rank: of the kernel by messages, and of messages by the kernel. */
struct slowed {
    double kernel, messages;
};

static enum status measure_beside(struct link_bench *bench, struct rate_work *work, struct comm_operation *operation,
                                  double alone_s, struct slowed *out) {
    struct collective_run collective_run = {.operation = operation};
    double starts = fmin(STARTS_MAX, fmax(STARTS_MIN, INTERVAL_S / alone_s)), kernel_alone_s, kernel_s, together;
    collective_run.starts = (int)starts;
    TRY(rate_work_run(work));
    TRY(link_largest(bench->comm, 0, &together));
    TRY(repeat_kernel(work, NULL, &kernel_alone_s));
    TRY(link_largest(bench->comm, 0, &together));
    TRY(run_beside(work, &collective_run, &kernel_s));
    *out = (struct slowed){fmax(1, kernel_s / kernel_alone_s), fmax(1, collective_run.seconds / alone_s)};
    return STATUS_OK;
}

/* Next to one activity. A rank without memory for its kernel tells the others before they wait for it. */
static enum status measure_activity(struct link_bench *bench, struct comm_operation *operation, double alone_s,
                                    const struct rate_machine *machine, enum activity activity,
                                    struct cluster_rates *rates) {
    struct rate_work work = {.machine = NULL};
    struct slowed slowed = {1, 1};
    enum status status = rate_work_open(machine, activity, 0, &work);
    TRY_GOTO(status, comm_agree(bench->comm, status), done);
    TRY_GOTO(status, measure_beside(bench, &work, operation, alone_s, &slowed), done);
    TRY_GOTO(status, link_mean(bench->comm, slowed.kernel, &rates->slowdown[activity][ACTIVITY_MESSAGE]), done);
    TRY_GOTO(status, link_mean(bench->comm, slowed.messages, &rates->slowdown[ACTIVITY_MESSAGE][activity]), done);
done:
    rate_work_close(&work);
    return status;
}

enum status link_slowdown_measure(struct link_bench *bench, const struct link_trial *trial, double alone_s,
                                  const struct rate_machine *machine, struct cluster_rates *rates) {
    struct comm_operation *operation = NULL;
    enum status status;
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        rates->slowdown[a][ACTIVITY_MESSAGE] = rates->slowdown[ACTIVITY_MESSAGE][a] = 1;
    TRY_GOTO(status, link_bench_begin(bench, trial, &operation), done);
    TRY_GOTO(status, measure_activity(bench, operation, alone_s, machine, ACTIVITY_PRODUCT, rates), done);
    TRY_GOTO(status, measure_activity(bench, operation, alone_s, machine, ACTIVITY_STREAMING, rates), done);
    /* Copies take memory's rate as streaming kernels do. */
    rates->slowdown[ACTIVITY_COPY][ACTIVITY_MESSAGE] = rates->slowdown[ACTIVITY_STREAMING][ACTIVITY_MESSAGE];
    rates->slowdown[ACTIVITY_MESSAGE][ACTIVITY_COPY] = rates->slowdown[ACTIVITY_MESSAGE][ACTIVITY_STREAMING];
done:
    if (operation) comm_free(operation);
    return status;
}
