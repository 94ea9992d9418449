/* The same bits on any number of ranks: one MPI job for each number of ranks trains cases, and compares them with
 * one rank without MPI. BALLAST_TEST_MPI names the MPI. */
/* ctest: PROCESSORS 2 TIMEOUT 1800 LABELS long */
/* ctest-again: mpich slow BALLAST_TEST_MPI=mpich */
/* link: -Wl,--wrap=lane_tree_cut -Wl,--wrap=lane_shares_create */
#include <stdio.h>

#include "base/mem.h"
#include "plan/lane_shares.h"
#include "support/deferred_backend.h"
#include "support/mpi_job.h"
#include "support/policy_subject.h"
#include "support/rank_cover.h"
#include "support/rank_references.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { SEED = 16, SAMPLE = 6 };

/* ---- Planted faults ---- */

static const char *fault = ""; /* of this rank: "order" or "rows" */

enum status __real_lane_tree_cut(const struct lane_tree *tree, int ranks, int *subtree);
enum status __wrap_lane_tree_cut(const struct lane_tree *tree, int ranks, int *subtree);
enum status __real_lane_shares_create(const struct recipe *recipe, const struct rank_place *place,
                                      struct lane_shares *out);
enum status __wrap_lane_shares_create(const struct recipe *recipe, const struct rank_place *place,
                                      struct lane_shares *out);

/* "order": the middle ones of four ranks hold each other's lanes, so that the same sums are added in another order. */
enum status __wrap_lane_tree_cut(const struct lane_tree *tree, int ranks, int *subtree) {
    TRY(__real_lane_tree_cut(tree, ranks, subtree));
    if (strcmp(fault, "order") != 0 || ranks != 4) return STATUS_OK;
    int held = subtree[1];
    subtree[1] = subtree[2];
    subtree[2] = held;
    return STATUS_OK;
}

/* "rows": rank 1 takes the rows one micro-batch before its own. */
enum status __wrap_lane_shares_create(const struct recipe *recipe, const struct rank_place *place,
                                      struct lane_shares *out) {
    TRY(__real_lane_shares_create(recipe, place, out));
    if (strcmp(fault, "rows") == 0 && place->rank == 1) out->first_micro_batch--;
    return STATUS_OK;
}

/* ---- A rank ---- */

static enum status rank_body(struct comm *comm, const char *const arguments[RANK_JOB_ARGUMENTS]) {
    bool device = strcmp(arguments[1], "device") == 0;
    fault = arguments[1];
    const struct backend *backend = device ? deferred_begin((uint64_t)comm->rank) : NULL;
    enum status status = rank_references_train(arguments[0], comm, backend, false);
    if (device) deferred_end();
    return status;
}

/* ---- The tests ---- */

static const struct rank_job jobs[] = {
    {1, 1, false, {""}}, {2, 1, false, {""}}, {2, 2, true, {""}},  {3, 1, false, {""}}, {4, 1, true, {""}},
    {4, 2, false, {""}}, {4, 4, false, {""}}, {8, 1, false, {""}}, {8, 2, true, {""}},  {8, 4, false, {""}}};

static void run_job(struct rank_job job, const char *path) {
    job.arguments[0] = path;
    if (rank_job_run(&job) != STATUS_OK) fail_msg("%s", status_message());
}

/* The number-th of the subjects whose base is in fewer bits, from the first on again after the last. */
static int quantized_subject(uint64_t number) {
    int quantized[64], count = 0;
    for (size_t s = 0; s < policy_subject_count; s++)
        if (policy_subjects[s].quantize_base != WEIGHT_PLAIN && count < 64) quantized[count++] = (int)s;
    assert_true(count > 0);
    return quantized[number % (uint64_t)count];
}

/* A sample, on every job that holds it; two of those with stages have bases in fewer bits. */
static void ranks_have_one_ranks_bits(void **state) {
    struct rank_case sample[SAMPLE];
    print_message("seed %d\n", SEED);
    for (uint64_t i = 0; i < SAMPLE; i++) {
        sample[i] = rank_case_random(SEED, i);
        sample[i].value[RANK_AXIS_lanes] = (int)i % 3;
        sample[i].value[RANK_AXIS_batch] = (int)(i / 2) % 3;
        sample[i].value[RANK_AXIS_tiers] = (int)i % rank_axis_values(RANK_AXIS_tiers);
        sample[i].value[RANK_AXIS_stages] = (int)(i + i / 3) % 3;
        bool staged = sample[i].value[RANK_AXIS_stages] > 0;
        if (staged && i >= SAMPLE / 2) sample[i].value[RANK_AXIS_subject] = quantized_subject(SEED + i);
    }
    const char *path = rank_references_write(*state, sample, SAMPLE, NULL);
    bool all = unit_sweep(0, 1);
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        if (all || i % 2 == 1 || jobs[i].ranks == 1) run_job(jobs[i], path);
}

/* Families, dtypes, adapters, lanes, tiers, schedules, partitions, stages, jobs and both MPIs: each pair of values
 * once, of which this program trains those for its MPI. */
static void all_pairs_have_one_ranks_bits(void **state) {
    size_t count, trained = 0;
    if (!unit_sweep(0, 1)) unit_skip("a cover of all pairs takes minutes; needs BALLAST_LONG (make check)");
    struct rank_case *cases = rank_cover_pairs(SEED, &count);
    size_t own = rank_cover_take(cases, count, RANK_AXIS_mpi, rank_case_mpi_value(mpi_job_name()));
    for (int job = 0; job < rank_axis_values(RANK_AXIS_job); job++) {
        size_t of_job = rank_cover_take(cases, own, RANK_AXIS_job, job);
        if (of_job > 0) run_job(rank_case_job(&cases[0]), rank_references_write(*state, cases, of_job, NULL));
        trained += of_job;
    }
    print_message("seed %d: %zu of %zu cases are for %s\n", SEED, trained, count, mpi_job_name());
    assert_true(trained == own && own > 0);
    mem_free(cases);
}

/* What ranks communicate goes through the host's memory then, and the device works as late as its events allow. */
static void ranks_with_devices_have_the_same_bits(void **state) {
    struct rank_case cases[3];
    for (uint64_t i = 0; i < 3; i++) {
        cases[i] = rank_case_random(SEED + 1, i);
        cases[i].value[RANK_AXIS_lanes] = (int)i % 2;
        cases[i].value[RANK_AXIS_stages] = (int)i / 2; /* the last case has two */
    }
    const char *path = rank_references_write(*state, cases, 3, NULL);
    struct rank_job two = {2, 1, false, {path, "device"}}, four = {4, 2, false, {path, "device"}};
    if (rank_job_run(&two) != STATUS_OK) fail_msg("%s", status_message());
    if (rank_job_run(&four) != STATUS_OK) fail_msg("%s", status_message());
}

/* A plain step on 8 lanes, and the same with a fault in it. */
static void planted_faults_are_found(void **state) {
    static const char *const faults[] = {"", "order", "rows"}, *const messages[] = {"", ") died", "one rank"};
    const struct rank_case spec = {.value = {[RANK_AXIS_clip] = 1}, .seed = 1};
    const char *path = rank_references_write(*state, &spec, 1, NULL);
    for (int i = 0; i < 3; i++) {
        struct rank_job job = {4, 1, false, {path, faults[i]}};
        enum status status = rank_job_run(&job);
        if (status != (i == 0 ? STATUS_OK : STATUS_FAILED)) fail_msg("'%s': status %d", faults[i], (int)status);
        /* Another order is found by rank 0's proof, at which the harness ends the rank; other rows by the bits. */
        if (i > 0 && !strstr(status_message(), messages[i])) fail_msg("'%s': %s", faults[i], status_message());
    }
}

int main(int count, char **argument) {
    rank_job_enter(count, argument, rank_body);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_have_one_ranks_bits), cmocka_unit_test(all_pairs_have_one_ranks_bits),
        cmocka_unit_test(ranks_with_devices_have_the_same_bits), cmocka_unit_test(planted_faults_are_found)};
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
