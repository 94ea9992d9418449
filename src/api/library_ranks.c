/* ballast_ranks_…: the process as a rank of a job. */
#include "api/library.h"
#include "comm/comm.h"
#include "session/machine.h"

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
