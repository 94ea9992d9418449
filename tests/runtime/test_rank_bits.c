/* The same bits on any number of ranks: one MPI job a number of ranks trains cases, of which the parent has what one
 * rank without MPI comes to. BALLAST_TEST_MPI says which MPI. */
/* ctest: PROCESSORS 2 TIMEOUT 1800 LABELS long */
/* ctest-again: mpich slow BALLAST_TEST_MPI=mpich */
#include <stdio.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/rank_job.h"
#include "support/rank_case.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { SEED = 16, SAMPLE = 6, CASES_MOST = 4096 };

/* What one rank came to: a file of these, which ranks read. */
struct reference {
    struct rank_case spec;
    struct rank_result result;
};

/* ---- A rank ---- */

static enum status compare(const struct reference *reference, const struct rank_result *mine) {
    char name[RANK_CASE_NAME_BYTES];
    rank_case_print(&reference->spec, name);
    for (int step = 0; step < RANK_CASE_STEPS; step++)
        if (memcmp(&mine->losses[step], &reference->result.losses[step], sizeof(double)) != 0 ||
            memcmp(&mine->norms[step], &reference->result.norms[step], sizeof(double)) != 0)
            return status_set(STATUS_FAILED, "%s: step %d: loss %.17g, norm %.17g; one rank has %.17g, %.17g", name,
                              step + 1, mine->losses[step], mine->norms[step], reference->result.losses[step],
                              reference->result.norms[step]);
    if (mine->weights == reference->result.weights) return STATUS_OK;
    return status_set(STATUS_FAILED, "%s: the weights differ from one rank's", name);
}

static enum status train_all(struct comm *comm, const struct reference *references, size_t count) {
    int ranks = mesh_ranks(&comm->mesh), trained = 0;
    for (size_t i = 0; i < count; i++) {
        struct rank_result mine;
        if (!rank_case_holds(&references[i].spec, ranks)) continue;
        TRY(rank_case_train(&references[i].spec, comm, &mine));
        TRY(comm_agree(comm, compare(&references[i], &mine)));
        trained++;
    }
    if (comm->rank == 0) printf("%d cases on %d ranks of %d nodes\n", trained, ranks, comm->mesh.nodes);
    return trained > 0 ? STATUS_OK : status_set(STATUS_FAILED, "no case is for %d ranks", ranks);
}

static enum status rank_body(struct comm *comm, const char *const words[RANK_JOB_WORDS]) {
    char *text;
    size_t bytes;
    TRY(file_read(words[0], CASES_MOST * sizeof(struct reference), &text, &bytes));
    enum status status =
        train_all(comm, (const struct reference *)(const void *)text, bytes / sizeof(struct reference));
    mem_free(text);
    return status;
}

/* ---- The tests ---- */

static const struct rank_job jobs[] = {
    {1, 1, false, {""}}, {2, 1, false, {""}}, {2, 2, true, {""}},  {3, 1, false, {""}}, {4, 1, true, {""}},
    {4, 2, false, {""}}, {4, 4, false, {""}}, {8, 1, false, {""}}, {8, 2, true, {""}},  {8, 4, false, {""}}};

static void run_job(struct rank_job job, const char *path) {
    job.words[0] = path;
    if (rank_job_run(&job) != STATUS_OK) fail_msg("%s", status_message());
}

static const char *write_references(const char *folder, const struct rank_case *cases, size_t count) {
    const char *path = temp_path(folder, "references");
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (size_t i = 0; i < count; i++) {
        struct reference reference = {.spec = cases[i]};
        assert_int_equal(rank_case_train(&cases[i], NULL, &reference.result), STATUS_OK);
        assert_int_equal(fwrite(&reference, sizeof reference, 1, file), 1);
    }
    assert_int_equal(fclose(file), 0);
    return path;
}

/* A sample, one job a number of ranks; with BALLAST_LONG all pairs, on all jobs. */
static void ranks_have_one_ranks_bits(void **state) {
    size_t count = unit_sweep(SAMPLE, 0);
    bool all = count == 0;
    struct rank_case sample[SAMPLE], *cases = sample;
    print_message("seed %d\n", SEED);
    for (uint64_t i = 0; i < count; i++) {
        sample[i] = rank_case_random(SEED, i);
        sample[i].value[RANK_AXIS_lanes] = (int)i % 3;
        sample[i].value[RANK_AXIS_batch] = (int)(i / 2) % 3;
        sample[i].value[RANK_AXIS_policy] = (int)i % 4;
    }
    if (all) cases = rank_case_pairwise(SEED, &count);
    print_message("%zu cases\n", count);
    const char *path = write_references(*state, cases, count);
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        if (all || i % 2 == 1 || jobs[i].ranks == 1) run_job(jobs[i], path);
    if (all) mem_free(cases);
}

int main(int count, char **argument) {
    rank_job_enter(count, argument, rank_body);
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_have_one_ranks_bits)};
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
