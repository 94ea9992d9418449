/* Collectives on device memory, with the tests' NCCL (tests/nccl_double), between ranks whose devices execute
 * everything later (support/deferred_backend.h). Makes the same checks as for host memory, and tests failures. */
/* ctest: PROCESSORS 2 TIMEOUT 600 LABELS long */
/* ctest-again: mpich slow BALLAST_TEST_MPI=mpich */
/* link: -rdynamic */
#include <libgen.h>
#include <signal.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/mem.h"
#include "comm/nccl_comm.h"
#include "support/comm_check.h"
#include "support/deferred_backend.h"
#include "support/mpi_job.h"
#include "support/unit.h"

enum { SEED = 17 };

/* ---- A rank ---- */

static enum status open_devices(struct comm *comm, const struct backend *backend) {
    const struct comm_group groups[] = {mesh_group(&comm->mesh, comm->rank, MESH_NODE),
                                        mesh_group(&comm->mesh, comm->rank, MESH_PEERS)};
    return comm_device_open(comm, &(struct comm_device_settings){backend, groups, 2});
}

static enum status check_operations(struct comm *comm, const struct backend *backend, uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        TRY(comm_check_on_device(comm, backend, SEED * 1000 + i, 3));
    return STATUS_OK;
}

/* `arguments`: what to do; which rank has the planted fault; the fault. */
static enum status rank_body(struct comm *comm, const char *const arguments[RANK_JOB_ARGUMENTS]) {
    bool victim = arguments[1][0] && atoi(arguments[1]) == comm->rank, shared = strcmp(arguments[0], "share") == 0;
    const struct backend *backend = deferred_begin((uint64_t)comm->rank);
    deferred_choose(shared ? 0 : comm->rank);
    if (victim && strcmp(arguments[0], "call") == 0) setenv("NCCL_DOUBLE", arguments[2], 1);
    TRY(backend->streams->enter());
    TRY(open_devices(comm, backend));
    if (victim && strcmp(arguments[0], "later") == 0) setenv("NCCL_DOUBLE", arguments[2], 1);
    if (strcmp(arguments[0], "signal") == 0) TRY(check_operations(comm, backend, 2));
    if (victim && strcmp(arguments[0], "signal") == 0) raise(atoi(arguments[2]));
    TRY(check_operations(comm, backend, unit_sweep(40, 400)));
    comm_device_close(comm);
    deferred_end();
    return STATUS_OK;
}

/* ---- The library ---- */

static char *double_path;

static void expect_refusal(const char *path, const char *planted, enum status wanted, const char *message) {
    const struct nccl_library *library;
    setenv("BALLAST_NCCL", path, 1);
    setenv("NCCL_DOUBLE", planted, 1);
    assert_int_equal(nccl_library_open(&library), wanted);
    if (!strstr(status_message(), message)) fail_msg("'%s' is not in '%s'", message, status_message());
    assert_non_null(strstr(status_hint_text(), "--gpu-collectives host"));
    setenv("BALLAST_NCCL", double_path, 1);
    unsetenv("NCCL_DOUBLE");
}

/* It stays open, once it is: so the last of all is that it opens. */
static void a_library_that_will_not_do_is_refused_with_what_will(void **state) {
    (void)state;
    const struct nccl_library *library, *again;
    expect_refusal("/nowhere/libnccl.so.2", "", STATUS_BAD_INPUT, "/nowhere/libnccl.so.2");
    expect_refusal("libm.so.6", "", STATUS_BAD_INPUT, "libm.so.6: has no ncclGetVersion");
    expect_refusal(double_path, "version:20500", STATUS_BAD_INPUT, "number 20500");
    expect_refusal(double_path, "ncclGetVersion:1", STATUS_FAILED, "ncclGetVersion: unhandled system error");
    fault_arm(FAULT_OPEN, 1, false);
    assert_int_equal(nccl_library_open(&library), STATUS_BAD_INPUT);
    assert_int_equal(nccl_library_open(&library), STATUS_OK);
    assert_int_equal(nccl_library_open(&again), STATUS_OK);
    assert_ptr_equal(library, again);
    assert_true(library->version >= NCCL_VERSION_MIN);
}

/* ---- Ranks ---- */

static void expect_failure(int ranks, const char *mode, const char *victim, const char *fault, enum status wanted,
                           const char *message) {
    struct rank_job job = {ranks, 1, false, {mode, victim, fault}};
    enum status status = rank_job_run(&job);
    if (status != wanted) fail_msg("%s %s: status %d: %s", mode, fault, (int)status, status_message());
    if (!strstr(status_message(), message))
        fail_msg("%s %s: '%s' is not in '%s'", mode, fault, message, status_message());
}

static void operations_on_devices_equal_one_rank(void **state) {
    (void)state;
    static const struct rank_job jobs[] = {
        {2, 1, false, {"check"}}, {3, 1, false, {"check"}}, {4, 2, false, {"check"}}, {4, 4, false, {"check"}}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        if (rank_job_run(&jobs[i]) != STATUS_OK) fail_msg("%s", status_message());
}

static void ranks_on_one_gpu_are_refused(void **state) {
    (void)state;
    expect_failure(2, "share", "", "", STATUS_BAD_INPUT, "ranks 0 and 1");
}

/* Each function, when it is first called and later: one message, which names it, and no rank waits for ever. */
static void a_refused_call_is_one_message(void **state) {
    (void)state;
    static const char *const calls[] = {"ncclCommInitRankConfig:1",
                                        "ncclCommGetAsyncError:1",
                                        "ncclCommGetAsyncError:9",
                                        "ncclGroupStart:2",
                                        "ncclGroupEnd:1",
                                        "ncclGroupEnd:7",
                                        "ncclSend:1",
                                        "ncclRecv:3",
                                        "ncclAllGather:2",
                                        "ncclBroadcast:1"};
    expect_failure(2, "call", "0", "ncclGetUniqueId:1", STATUS_FAILED, "ncclGetUniqueId: unhandled system error");
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char message[80];
        snprintf(message, sizeof message, "%.*s: unhandled system error", (int)strcspn(calls[i], ":"), calls[i]);
        expect_failure(2, "call", "1", calls[i], STATUS_FAILED, message);
    }
}

static void an_error_while_nccl_works_ends_all(void **state) {
    (void)state;
    expect_failure(3, "later", "1", "error:1", STATUS_FAILED, "remote process exited");
}

/* The others are within an operation then, which is aborted. */
static void a_rank_that_dies_or_hangs_is_named(void **state) {
    (void)state;
    char kill[8], stop[8];
    snprintf(kill, sizeof kill, "%d", SIGKILL);
    snprintf(stop, sizeof stop, "%d", SIGSTOP);
    setenv("RANK_JOB_TIMEOUT_S", "3", 1);
    expect_failure(2, "signal", "1", kill, STATUS_FAILED, "rank 1 on ");
    expect_failure(3, "signal", "1", stop, STATUS_FAILED, "rank 1 on ");
    unsetenv("RANK_JOB_TIMEOUT_S");
}

int main(int count, char **argument) {
    char program[] = BALLAST_PROGRAM;
    double_path = mem_format("%s/tests/libnccl-double.so", dirname(program));
    if (!double_path) return 1;
    setenv("BALLAST_NCCL", double_path, 1);
    rank_job_enter(count, argument, rank_body);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_library_that_will_not_do_is_refused_with_what_will),
                                       cmocka_unit_test(operations_on_devices_equal_one_rank),
                                       cmocka_unit_test(ranks_on_one_gpu_are_refused),
                                       cmocka_unit_test(a_refused_call_is_one_message),
                                       cmocka_unit_test(an_error_while_nccl_works_ends_all),
                                       cmocka_unit_test(a_rank_that_dies_or_hangs_is_named)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mem_free(double_path);
    return failed;
}
