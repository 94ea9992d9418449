/* Whole programs whose operations between ranks work on the memory of devices, by the test's NCCL (tests/nccl_double):
 * the same bits as one rank. Once with the CPU's kernels behind the devices, once with CUDA's on the emulator. */
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

#ifdef BALLAST_CUDA_EMULATED
#include "backend/cuda/cuda_kernel.h"

static const struct backend *begin_emulated(uint64_t seed) {
    static const struct deferred_sums sums = {{.pack_bf16 = cuda_pack_bf16, .unpack_bf16 = cuda_unpack_bf16},
                                              cuda_add_sums};
    const struct backend *backend = deferred_begin_with(seed, cuda_kernel_create);
    deferred_use_sums(&sums);
    return backend;
}
#else
static const struct backend *begin_emulated(uint64_t seed) {
    (void)seed;
    return NULL;
}
#endif

static const struct backend *begin(bool emulated, int rank) {
    const struct backend *backend = emulated ? begin_emulated((uint64_t)rank) : deferred_begin((uint64_t)rank);
    deferred_choose(rank);
    return backend;
}

static enum status rank_body(struct comm *comm, const char *const words[RANK_JOB_WORDS]) {
    const struct backend *backend = begin(strcmp(words[1], "emulated") == 0, comm->rank);
    enum status status = rank_references_train(words[0], comm, backend);
    deferred_end();
    return status;
}

static void run_jobs(const char *path, const char *kernels, int most) {
    static const struct rank_job jobs[] = {{2, 1, false, {""}}, {3, 1, false, {""}}, {4, 2, false, {""}}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs && jobs[i].ranks <= most; i++) {
        struct rank_job job = jobs[i];
        job.words[0] = path;
        job.words[1] = kernels;
        if (rank_job_run(&job) != STATUS_OK) fail_msg("%s", status_message());
    }
}

/* Every third has three lanes, which three ranks hold; all partitions and roundings come. */
static void draw_cases(struct rank_case *cases, uint64_t count, uint64_t seed) {
    print_message("seed %d\n", (int)seed);
    for (uint64_t i = 0; i < count; i++) {
        cases[i] = rank_case_random(seed, i);
        cases[i].value[RANK_AXIS_lanes] = (int)i % 3;
        cases[i].value[RANK_AXIS_reduce] = (int)(i / 2) % 2;
        cases[i].value[RANK_AXIS_stages] = 0;
        cases[i].value[RANK_AXIS_partition] = (int)i % rank_axis_values(RANK_AXIS_partition);
    }
}

static void ranks_whose_devices_exchange_have_one_ranks_bits(void **state) {
    uint64_t count = unit_sweep(CASES, 60);
    struct rank_case *cases = mem_array(count, sizeof *cases);
    assert_non_null(cases);
    draw_cases(cases, count, SEED);
    run_jobs(rank_references_write(*state, cases, count, NULL), "cpu", 4);
    mem_free(cases);
}

static void cudas_kernels_and_sums_have_one_ranks_bits(void **state) {
    uint64_t count = unit_sweep(0, 2);
    struct rank_case cases[2];
    if (count == 0) unit_skip("takes many minutes: set BALLAST_LONG=1");
    const struct backend *backend = begin(true, 0);
    if (!backend) unit_skip("this build has no CUDA backend; needs the CUDA toolkit, 12 or later, and a C++ compiler");
    draw_cases(cases, count, SEED + 1);
    const char *path = rank_references_write(*state, cases, count, backend);
    deferred_end();
    run_jobs(path, "emulated", 2);
}

int main(int count, char **argument) {
    char program[] = BALLAST_PROGRAM;
    char *path = mem_format("%s/tests/libnccl-double.so", dirname(program));
    if (!path) return 1;
    setenv("BALLAST_NCCL", path, 0);
    mem_free(path);
    rank_job_enter(count, argument, rank_body);
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_whose_devices_exchange_have_one_ranks_bits),
                                       cmocka_unit_test(cudas_kernels_and_sums_have_one_ranks_bits)};
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
