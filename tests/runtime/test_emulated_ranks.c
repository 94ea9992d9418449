/* Ranks with CUDA kernels compiled for the CPU (tests/cuda_emulator), on streams that execute later, have the bits
 * of one such device. Two ranks share a GPU and communicate through host memory and MPI, or have one GPU each and
 * communicate through the tests' NCCL (tests/nccl_double). */
/* ctest: PROCESSORS 2 TIMEOUT 1800 LABELS long */
/* link: -rdynamic */
#include <libgen.h>
#include <stdio.h>

#include "base/mem.h"
#include "support/deferred_backend.h"
#include "support/mpi_job.h"
#include "support/policy_subject.h"
#include "support/rank_references.h"
#include "support/temp_folder.h"
#include "support/unit.h"

#ifdef BALLAST_CUDA_EMULATED

#include "backend/cuda/kernel.h"
#include "support/cuda_kernels.h"

enum { SEED = 72, CASES_MAX = 24 };

/* `GPU`: which of several it says it is. */
static const struct backend *begin(uint64_t seed, int gpu) {
    static const struct deferred_sums sums = {{.pack_bf16 = cuda_pack_bf16, .unpack_bf16 = cuda_unpack_bf16},
                                              cuda_add_sums};
    const struct backend *backend = deferred_begin_with(seed, cuda_kernel_create);
    deferred_use_sums(&sums);
    deferred_choose(gpu);
    return backend;
}

static enum status rank_body(struct comm *comm, const char *const arguments[RANK_JOB_ARGUMENTS]) {
    bool apart = strcmp(arguments[1], "gpus") == 0;
    const struct backend *backend = begin((uint64_t)comm->rank, apart ? comm->rank : 0);
    enum status status = rank_references_train(arguments[0], comm, backend, apart);
    deferred_end();
    return status;
}

/* Experts take the emulator long, and brief cases lack a layer that others freeze: of these a subject before. */
static int subject_with_kernels(int subject) {
    while (policy_subject_has_experts(&policy_subjects[subject]) || policy_subjects[subject].freeze)
        subject--;
    return subject;
}

/* Small ones: an emulated thread costs hundreds of the processor's instructions. Micro-batches for both ranks, but for
 * every third; all tiers, schedules, partitions and roundings come in a sweep. */
static const char *write_references(const char *folder, uint64_t first, uint64_t count) {
    struct rank_case cases[CASES_MAX];
    print_message("seed %d, cases %d to %d\n", SEED, (int)first, (int)(first + count) - 1);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t number = first + i;
        cases[i] = rank_case_random(SEED, number);
        cases[i].brief = true;
        cases[i].value[RANK_AXIS_subject] = subject_with_kernels(cases[i].value[RANK_AXIS_subject]);
        cases[i].value[RANK_AXIS_stages] = (int)(number / 3) % 2;
        cases[i].value[RANK_AXIS_lanes] = number % 3 == 0 ? 2 : (int)number % 2;
        cases[i].value[RANK_AXIS_batch] = (int)(number % 3);
        cases[i].value[RANK_AXIS_reduce] = (int)(number / 2) % 2;
        cases[i].value[RANK_AXIS_partition] = (int)number % rank_axis_values(RANK_AXIS_partition);
    }
    const struct backend *backend = begin(0, 0);
    const char *path = rank_references_write(folder, cases, count, backend);
    deferred_end();
    return path;
}

static void run_job(const char *path, const char *gpus) {
    struct rank_job job = {2, 1, false, {path, gpus}};
    if (rank_job_run(&job) != STATUS_OK) fail_msg("%s: %s", gpus, status_message());
}

static void ranks_on_one_gpu_have_one_ranks_bits(void **state) {
    run_job(write_references(*state, 0, unit_sweep(1, CASES_MAX)), "one GPU");
}

static void ranks_on_a_gpu_each_have_one_ranks_bits(void **state) {
    run_job(write_references(*state, unit_sweep(1, 0), unit_sweep(1, CASES_MAX)), "gpus");
}

#else

static enum status rank_body(struct comm *comm, const char *const arguments[RANK_JOB_ARGUMENTS]) {
    (void)comm, (void)arguments;
    return STATUS_OK;
}

static void skip_without_cuda(void) {
    unit_skip("this build has no CUDA backend; needs the CUDA toolkit, 12 or later, and a C++ compiler");
}

static void ranks_on_one_gpu_have_one_ranks_bits(void **state) {
    (void)state;
    skip_without_cuda();
}

static void ranks_on_a_gpu_each_have_one_ranks_bits(void **state) {
    (void)state;
    skip_without_cuda();
}

#endif

int main(int count, char **argument) {
    char program[] = BALLAST_PROGRAM;
    char *path = mem_format("%s/tests/libnccl-double.so", dirname(program));
    if (!path) return 1;
    setenv("BALLAST_NCCL", path, 0);
    mem_free(path);
    rank_job_enter(count, argument, rank_body);
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_on_one_gpu_have_one_ranks_bits),
                                       cmocka_unit_test(ranks_on_a_gpu_each_have_one_ranks_bits)};
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
