/* Complete programs with collectives on device memory, through the tests' NCCL (tests/nccl_double), with the CPU's
 * kernels behind the devices, have the bits of one rank. */
/* ctest: PROCESSORS 2 TIMEOUT 1800 LABELS long */
/* link: -rdynamic */
#include <libgen.h>
#include <stdio.h>

#include "base/mem.h"
#include "support/deferred_backend.h"
#include "support/mpi_job.h"
#include "support/rank_references.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { SEED = 71, CASES = 4 };

static enum status rank_body(struct comm *comm, const char *const arguments[RANK_JOB_ARGUMENTS]) {
    const struct backend *backend = deferred_begin((uint64_t)comm->rank);
    deferred_choose(comm->rank);
    enum status status = rank_references_train(arguments[0], comm, backend, true);
    deferred_end();
    return status;
}

/* Every third has three lanes, which three ranks hold; all partitions and roundings come. */
static void draw_cases(struct rank_case *cases, uint64_t count) {
    print_message("seed %d\n", SEED);
    for (uint64_t i = 0; i < count; i++) {
        cases[i] = rank_case_random(SEED, i);
        cases[i].value[RANK_AXIS_lanes] = (int)i % 3;
        cases[i].value[RANK_AXIS_reduce] = (int)(i / 2) % 2;
        cases[i].value[RANK_AXIS_stages] = 0;
        cases[i].value[RANK_AXIS_partition] = (int)i % rank_axis_values(RANK_AXIS_partition);
    }
}

static void ranks_whose_devices_communicate_have_one_ranks_bits(void **state) {
    static const struct rank_job jobs[] = {{2, 1, false, {""}}, {3, 1, false, {""}}, {4, 2, false, {""}}};
    uint64_t count = unit_sweep(CASES, 60);
    struct rank_case *cases = mem_array(count, sizeof *cases);
    assert_non_null(cases);
    draw_cases(cases, count);
    const char *path = rank_references_write(*state, cases, count, NULL);
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        struct rank_job job = jobs[i];
        job.arguments[0] = path;
        if (rank_job_run(&job) != STATUS_OK) fail_msg("%s", status_message());
    }
    mem_free(cases);
}

int main(int count, char **argument) {
    char program[] = BALLAST_PROGRAM;
    char *path = mem_format("%s/tests/libnccl-double.so", dirname(program));
    if (!path) return 1;
    setenv("BALLAST_NCCL", path, 0);
    mem_free(path);
    rank_job_enter(count, argument, rank_body);
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_whose_devices_communicate_have_one_ranks_bits)};
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
