/* Around every public call: one call at a time, the process's state, the last error, log and progress. */
#include <fenv.h>
#include <float.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "api/library.h"
#include "base/terminal.h"
#include "comm/comm.h"
#include "session/session.h"

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), "a public number is the internal one")
SAME(BALLAST_OK, STATUS_OK);
SAME(BALLAST_FAILED, STATUS_FAILED);
SAME(BALLAST_BAD_INPUT, STATUS_BAD_INPUT);
SAME(BALLAST_NO_FIT, STATUS_NO_FIT);
SAME(BALLAST_STOPPED, STATUS_INTERRUPTED);

volatile sig_atomic_t library_stopped;

static atomic_bool busy;
static atomic_int first_process; /* that made a call; 0: none has */

const char *ballast_version(void) { return BALLAST_VERSION; }

const char *ballast_status_name(enum ballast_status status) {
    switch (status) {
    case BALLAST_OK: return "OK";
    case BALLAST_FAILED: return "FAILED";
    case BALLAST_BAD_INPUT: return "BAD_INPUT";
    case BALLAST_NO_FIT: return "NO_FIT";
    case BALLAST_STOPPED: return "STOPPED";
    }
    return "unknown";
}

const char *ballast_error_message(void) { return status_message(); }
const char *ballast_error_hint(void) { return status_hint_text(); }
void ballast_stop(void) { library_stopped = 1; }

static struct {
    pthread_mutex_t lock;
    ballast_log_callback *callback;
    void *payload;
} log_target = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void pass_line(bool warning, const char *text) {
    pthread_mutex_lock(&log_target.lock);
    if (log_target.callback)
        log_target.callback(warning ? BALLAST_LOG_WARNING : BALLAST_LOG_NOTE, text, log_target.payload);
    pthread_mutex_unlock(&log_target.lock);
}

void ballast_set_log(ballast_log_callback *callback, void *payload) {
    pthread_mutex_lock(&log_target.lock);
    log_target.callback = callback;
    log_target.payload = payload;
    pthread_mutex_unlock(&log_target.lock);
}

/* Written by ballast_set_progress before the listener is set, which locks. */
static struct {
    ballast_progress_callback *callback;
    void *payload;
} progress_target;

static void pass_progress(void *payload, enum progress_moment moment, const struct progress *progress) {
    (void)payload;
    int64_t done = moment == PROGRESS_ENDS ? progress->total : progress->done;
    progress_target.callback(progress->what, done, progress->total, progress_target.payload);
}

void ballast_set_progress(ballast_progress_callback *callback, void *payload) {
    progress_listen(NULL, NULL);
    progress_target.callback = callback;
    progress_target.payload = payload;
    if (callback) progress_listen(pass_progress, NULL);
}

/* A number below the smallest normal one is 0 where the processor flushes. */
static bool flushes_to_zero(void) {
    volatile float min = FLT_MIN;
    volatile float below = min / 4;
    return !(below > 0);
}

static enum status check_process(const char *name) {
    int process = (int)getpid(), first = 0;
    if (!atomic_compare_exchange_strong(&first_process, &first, process) && first != process)
        return status_set(STATUS_BAD_INPUT,
                          "%s: this process was forked from one that has used Ballast, whose threads it lacks", name);
    if (omp_in_parallel()) return status_set(STATUS_BAD_INPUT, "%s: is called in an OpenMP parallel region", name);
    if (fegetround() != FE_TONEAREST || flushes_to_zero())
        return status_set(STATUS_BAD_INPUT,
                          "%s: the calling thread's floating-point mode is not C's: results would depend on it", name);
    return STATUS_OK;
}

/* The C locale for this thread alone. */
static enum status enter_locale(locale_t *before) {
    static _Atomic(locale_t) plain;
    if (!atomic_load(&plain)) {
        locale_t made = newlocale(LC_ALL_MASK, "C", (locale_t)0), none = (locale_t)0;
        if (!made) return status_set(STATUS_FAILED, "the C locale cannot be made");
        if (!atomic_compare_exchange_strong(&plain, &none, made)) freelocale(made);
    }
    *before = uselocale(atomic_load(&plain));
    return STATUS_OK;
}

static enum status enter(const char *name, struct library_call *out) {
    status_clear();
    log_listen(pass_line);
    TRY(check_process(name));
    TRY(enter_locale(&out->locale));
    out->threads = omp_get_max_threads();
    return STATUS_OK;
}

enum status library_begin(const char *name, struct library_call *out) {
    *out = (struct library_call){.begun = false};
    if (atomic_exchange(&busy, true))
        return status_set(STATUS_BAD_INPUT, "%s: another call is under way; calls come one after the other", name);
    enum status status = enter(name, out);
    out->begun = status == STATUS_OK;
    if (!out->begun) atomic_store(&busy, false);
    return status;
}

enum ballast_status library_end(const struct library_call *call, enum status status) {
    if (call->begun) {
        omp_set_num_threads(call->threads);
        uselocale(call->locale);
        atomic_store(&busy, false);
    }
    if (status == STATUS_OK) status_clear();
    return status_is_stop(status) ? BALLAST_STOPPED : (enum ballast_status)status;
}

enum status library_require(const void *pointer, const char *name) {
    return pointer ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: is NULL", name);
}

enum status library_require_version(int version, int known, const char *name) {
    if (version == known) return STATUS_OK;
    enum status status =
        status_set(STATUS_BAD_INPUT, "%s.version: is %d, and this library's is %d", name, version, known);
    return status_hint(status, "set it by the struct's initialiser, from the ballast.h of ballast %s", BALLAST_VERSION);
}

/* ballast_ranks_…: the process as a rank of a job. */

/* MPI begins once in a process. */
static struct comm *opened;
static int core_sharers;

void library_give_ranks(struct plan_options *out) {
    out->comm = opened;
    out->core_sharers = core_sharers;
}

static enum status read_ranks(const struct ballast_ranks_options *given, struct comm_settings *out) {
    *out = (struct comm_settings){.nodes = 0};
    if (!given) return STATUS_OK;
    TRY(library_require_version(given->version, BALLAST_RANKS_OPTIONS_VERSION, "options"));
    if (given->nodes == 0 || given->nodes > INT32_MAX)
        return status_set(STATUS_BAD_INPUT, "options.nodes: must be from 1 on");
    if (given->nodes > 0) out->nodes = (int)given->nodes;
    if (given->timeout_s >= 0 && !(given->timeout_s >= 1 && given->timeout_s <= 86400))
        return status_set(STATUS_BAD_INPUT, "options.timeout_s: must be from 1 to 86400");
    if (given->timeout_s >= 0) out->rank_timeout_s = given->timeout_s;
    return STATUS_OK;
}

static enum status open_ranks(const struct ballast_ranks_options *options, int *rank, int *ranks) {
    struct comm_settings settings;
    TRY(library_require(rank, "rank"));
    TRY(library_require(ranks, "ranks"));
    TRY(read_ranks(options, &settings));
    if (opened) return status_set(STATUS_BAD_INPUT, "ballast_ranks_open: the ranks are open already");
    TRY(comm_open(&settings, &opened));
    TRY(rank_cores_count_sharers(opened, &core_sharers));
    *rank = opened->rank;
    *ranks = mesh_ranks(&opened->mesh);
    return STATUS_OK;
}

enum ballast_status ballast_ranks_open(const struct ballast_ranks_options *options, int *rank, int *ranks) {
    struct library_call call;
    enum status status;
    TRY_GOTO(status, library_begin("ballast_ranks_open", &call), done);
    TRY_GOTO(status, open_ranks(options, rank, ranks), done);
done:
    return library_end(&call, status);
}

int ballast_ranks_should_report(void) { return comm_speaks(opened); }

/* A failure of a rank that is alone ends nobody. */
static enum status close_ranks(enum status status) {
    bool failed = status != STATUS_OK && !status_is_stop(status);
    if (failed && opened && mesh_ranks(&opened->mesh) > 1) comm_abort(opened, (int)status);
    TRY(comm_close(opened));
    opened = NULL;
    core_sharers = 0;
    return STATUS_OK;
}

enum ballast_status ballast_ranks_close(enum ballast_status status) {
    struct library_call call;
    enum status closed;
    TRY_GOTO(closed, library_begin("ballast_ranks_close", &call), done);
    TRY_GOTO(closed, close_ranks((enum status)status), done);
done:
    (void)library_end(&call, closed);
    return closed == STATUS_OK ? status : (enum ballast_status)closed;
}
