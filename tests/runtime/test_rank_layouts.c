/* Every family with tensor and sequence parallelism, by Megatron-LM's layout or a solver's, with pipeline stages,
 * shards of states, adapters, recomputation and swapping. The losses of ten steps are within 1e-5 of one rank's. One
 * MPI job for each number of ranks trains the cases, and the parent compares them with one rank. */
/* ctest: PROCESSORS 2 TIMEOUT 3600 LABELS long */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/layout_case.h"
#include "support/mpi_job.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { SEED = 18, SAMPLE = 6, CASES_MAX = 4096 };
static const double tolerance = 1e-5;

struct reference {
    struct layout_case spec;
    struct layout_result result;
};

/* ---- A rank ---- */

static bool near(double a, double b) { return fabs(a - b) <= tolerance * fabs(b); }

static enum status compare(const struct reference *reference, const struct layout_result *mine) {
    char name[LAYOUT_CASE_NAME_BYTES];
    layout_case_print(&reference->spec, name);
    for (int step = 0; step < LAYOUT_CASE_STEPS; step++)
        if (!near(mine->losses[step], reference->result.losses[step]) ||
            !near(mine->norms[step], reference->result.norms[step]))
            return status_set(STATUS_FAILED, "%s: step %d: loss %.12g, norm %.12g; one rank has %.12g, %.12g", name,
                              step + 1, mine->losses[step], mine->norms[step], reference->result.losses[step],
                              reference->result.norms[step]);
    return STATUS_OK;
}

static enum status rank_body(struct comm *comm, const char *const arguments[RANK_JOB_ARGUMENTS]) {
    char *text;
    size_t bytes;
    TRY(file_read(arguments[0], CASES_MAX * sizeof(struct reference), &text, &bytes));
    const struct reference *references = (const struct reference *)(const void *)text;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < bytes / sizeof *references && status == STATUS_OK; i++) {
        struct layout_result mine;
        layout_case_train(&references[i].spec, comm, &mine);
        status = comm_agree(comm, compare(&references[i], &mine));
    }
    mem_free(text);
    return status;
}

/* ---- The tests ---- */

/* Of cases that one rank trains alike, the first has the result. */
static void find_result(struct reference *references, size_t i) {
    for (size_t before = 0; before < i; before++)
        if (layout_case_is_alike(&references[before].spec, &references[i].spec)) {
            references[i].result = references[before].result;
            return;
        }
    layout_case_train(&references[i].spec, NULL, &references[i].result);
}

static size_t write_those(const char *path, const struct reference *references, size_t count, int ranks,
                          bool messages) {
    FILE *file = fopen(path, "wb");
    size_t written = 0;
    assert_non_null(file);
    for (size_t i = 0; i < count; i++) {
        const struct layout_case *spec = &references[i].spec;
        if (layout_case_ranks(spec) != ranks || layout_case_has_messages(spec) != messages) continue;
        assert_int_equal(fwrite(&references[i], sizeof references[i], 1, file), 1);
        written++;
    }
    assert_int_equal(fclose(file), 0);
    return written;
}

static void train_all(const char *folder, struct reference *references, size_t count) {
    const char *path = temp_path(folder, "references");
    size_t trained = 0;
    for (size_t i = 0; i < count; i++)
        find_result(references, i);
    for (int ranks = 2; ranks <= 8; ranks *= 2)
        for (int messages = 0; messages < 2; messages++) {
            struct rank_job job = {.ranks = ranks, .messages = messages, .arguments = {path}};
            size_t cases = write_those(path, references, count, ranks, messages);
            if (cases > 0 && rank_job_run(&job) != STATUS_OK) fail_msg("%d ranks: %s", ranks, status_message());
            trained += cases;
        }
    print_message("seed %d: %zu cases\n", SEED, trained);
    assert_int_equal(trained, count);
}

static struct reference *make_references(const struct pair_row *rows, size_t count) {
    struct reference *references = mem_array(count, sizeof *references);
    assert_non_null(references);
    for (size_t i = 0; i < count; i++) {
        memcpy(references[i].spec.value, rows[i].value, sizeof rows[i].value);
        references[i].spec.seed = 1 + SEED * 10000 + i;
    }
    return references;
}

static void a_sample_comes_near_one_rank(void **state) {
    struct pair_cover cover = layout_case_cover(SEED);
    struct pair_row rows[SAMPLE] = {0};
    for (uint64_t i = 0; i < SAMPLE; i++)
        pair_cover_draw(&cover, i, rows[i].value);
    struct reference *references = make_references(rows, SAMPLE);
    train_all(*state, references, SAMPLE);
    mem_free(references);
}

/* Each pair of values of two axes. */
static void all_pairs_come_near_one_rank(void **state) {
    size_t count;
    if (!unit_sweep(0, 1)) unit_skip("a cover of all pairs takes minutes; needs BALLAST_LONG (make check)");
    struct pair_cover cover = layout_case_cover(SEED);
    struct pair_row *rows = pair_cover_make(&cover, &count);
    print_message("%zu cases\n", count);
    struct reference *references = make_references(rows, count);
    train_all(*state, references, count);
    mem_free(references);
    mem_free(rows);
}

int main(int count, char **argument) {
    rank_job_enter(count, argument, rank_body);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sample_comes_near_one_rank),
        cmocka_unit_test(all_pairs_come_near_one_rank),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
