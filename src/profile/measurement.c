#include "profile/measurement.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"

enum { LINE_BYTES = 128 };
static const double WAKE_S = 50e-6;
static const double SAME = 0.02, SHORT_S = 0.01, BRIEF_S = 0.001;

/* The second number of a thread's schedstat: nanoseconds on a run queue. */
static int64_t waited_by(int tasks, const char *thread) {
    char path[LINE_BYTES], line[LINE_BYTES];
    long long ran, waited;
    snprintf(path, sizeof path, "%.32s/schedstat", thread);
    int file = openat(tasks, path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t bytes = read(file, line, sizeof line - 1);
    close(file);
    if (bytes <= 0) return 0;
    line[bytes] = '\0';
    return sscanf(line, "%lld %lld", &ran, &waited) == 2 ? waited : 0;
}

static int64_t waited_ns(void) {
    DIR *tasks = opendir("/proc/self/task");
    int64_t waited = 0;
    if (!tasks) return 0;
    for (const struct dirent *thread; (thread = readdir(tasks));)
        if (thread->d_name[0] != '.') waited += waited_by(dirfd(tasks), thread->d_name);
    closedir(tasks);
    return waited;
}

struct stopwatch stopwatch_begin(void) {
    struct stopwatch stopwatch = {.waited_ns = waited_ns()};
    stopwatch.begin_ns = clock_now_ns();
    return stopwatch;
}

/* The waiting of a thread that ended meanwhile is lost. */
struct sample stopwatch_end(const struct stopwatch *stopwatch) {
    int64_t taken = clock_now_ns() - stopwatch->begin_ns, waited = waited_ns() - stopwatch->waited_ns;
    return (struct sample){(double)(taken > 0 ? taken : 1) * 1e-9, waited > 0 ? (double)waited * 1e-9 : 0};
}

ORDER_BY(ascending, struct sample, item->seconds)

struct measurement measurement_of(struct sample *samples, int count) {
    qsort(samples, (size_t)count, sizeof *samples, ascending);
    int third = count / 3, like = 1;
    while (like < count && samples[like].seconds <= (1 + MEASUREMENT_NOISY_SPREAD) * samples[0].seconds)
        like++;
    if (like < third) like = third;
    const struct sample *median = &samples[(like - 1) / 2];
    double apart = samples[third].seconds / samples[0].seconds - 1, waited = median->waited_s / median->seconds;
    return (struct measurement){median->seconds, apart > waited ? apart : waited};
}

bool measurement_settled(const struct sample *samples, int count) {
    double lowest = INFINITY, second = INFINITY;
    for (int i = 0; i < count; i++) {
        second = fmin(second, fmax(lowest, samples[i].seconds));
        lowest = fmin(lowest, samples[i].seconds);
    }
    return lowest >= BRIEF_S && count >= (lowest < SHORT_S ? 3 : 2) && second <= (1 + SAME) * lowest;
}

bool measurement_noisy(const struct measurement *measurement) {
    return measurement->spread > MEASUREMENT_NOISY_SPREAD && measurement->spread * measurement->seconds > WAKE_S;
}

struct measurement measurement_lower(const struct measurement *a, const struct measurement *b) {
    return (struct measurement){fmin(a->seconds, b->seconds), fmin(a->spread, b->spread)};
}

double allowance_next(struct allowance *allowance) {
    int left = allowance->left > 1 ? allowance->left-- : 1;
    double seconds = (double)(allowance->end_ns - clock_now_ns()) * 1e-9 / left;
    return seconds > 0 ? seconds : 0;
}

enum { MESSAGE_BYTES = 512 };

/* A measurement in progress. If some members could not be started, the others wait at the start. */
struct meeting {
    const struct contention *contention;
    contention_work *work;
    void *payload;
    atomic_int arrived;
    atomic_bool begun, ended;
};

struct member {
    struct meeting *meeting;
    int index;
    pthread_t thread;
    struct status_copy end;
};

/* Whether all of the cores are allowed. If only some are, the system silently grants those alone. */
static bool may_have(const cpu_set_t *cores) {
    cpu_set_t had;
    return sched_setaffinity(0, sizeof *cores, cores) == 0 && sched_getaffinity(0, sizeof had, &had) == 0 &&
           CPU_EQUAL(cores, &had);
}

bool contention_is_allowed(const struct contention *contention) {
    cpu_set_t own;
    if (!contention->bound) return true;
    if (sched_getaffinity(0, sizeof own, &own) != 0) return false;
    bool allowed = true;
    for (int member = 0; member < contention->members && allowed; member++)
        allowed = may_have(&contention->cores[member]);
    return sched_setaffinity(0, sizeof own, &own) == 0 && allowed;
}

static enum status take_cores(const struct contention *contention, int member) {
    if (!contention->bound || sched_setaffinity(0, sizeof(cpu_set_t), &contention->cores[member]) == 0)
        return STATUS_OK;
    return status_set(STATUS_FAILED, "cannot measure on the cores of rank %d of this node: %s", member,
                      strerror(errno));
}

static void *contend(void *argument) {
    struct member *member = argument;
    struct meeting *meeting = member->meeting;
    enum status status = take_cores(meeting->contention, member->index);
    atomic_fetch_add(&meeting->arrived, 1);
    while (!atomic_load(&meeting->begun))
        sched_yield();
    if (status == STATUS_OK && !atomic_load(&meeting->ended))
        status = meeting->work(meeting->payload, member->index, &meeting->ended);
    status_save(status, &member->end);
    return NULL;
}

static enum status start(struct meeting *meeting, struct member *members, int *started) {
    int others = contention_members(meeting->contention) - 1;
    for (*started = 0; *started < others; ++*started) {
        struct member *member = &members[*started];
        *member = (struct member){.meeting = meeting, .index = *started + 1};
        int error = fault_point(FAULT_SUBMIT) ? errno : pthread_create(&member->thread, NULL, contend, member);
        if (error) return status_set(STATUS_FAILED, "cannot start a thread to measure with: %s", strerror(error));
    }
    while (atomic_load(&meeting->arrived) < others)
        sched_yield();
    return STATUS_OK;
}

static enum status end(struct meeting *meeting, struct member *members, int started, enum status status) {
    atomic_store(&meeting->ended, true);
    atomic_store(&meeting->begun, true);
    for (int i = 0; i < started; i++) {
        pthread_join(members[i].thread, NULL);
        if (status == STATUS_OK) status = status_restore(&members[i].end);
    }
    return status;
}

enum status contention_measure(const struct contention *contention, contention_work *work, void *payload) {
    struct meeting meeting = {.contention = contention, .work = work, .payload = payload};
    struct member members[CONTENTION_MAX];
    int started = 0;
    enum status status = start(&meeting, members, &started);
    atomic_store(&meeting.begun, true);
    if (status == STATUS_OK) status = work(payload, 0, NULL);
    return end(&meeting, members, started, status);
}
