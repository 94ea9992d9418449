/* Evaluation on several ranks gives the loss of one rank, to the bit. Data that differ between ranks are named. */
/* ctest: PROCESSORS 2 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/terminal.h"
#include "support/temp_folder.h"
#include "support/thread_ranks.h"
#include "support/tiny_run.h"
#include "support/unit.h"
#include "train/evaluate.h"

enum { RANKS_MAX = 5 };

struct job {
    const struct tiny_run *run;
    const char *paths[RANKS_MAX][2]; /* by rank */
    int64_t max_batches;
    struct eval_result results[RANKS_MAX];
};

static enum status evaluate_rank(struct comm *comm, void *payload) {
    struct job *job = payload;
    struct plan_options plan = job->run->plan;
    struct eval_options options = {
        .data_paths = job->paths[comm->rank], .data_path_count = 2, .max_batches = job->max_batches};
    plan.comm = comm;
    progress_mute_thread();
    return evaluate_files(job->run->model, &plan, &options, &job->results[comm->rank]);
}

static enum status evaluate_on(struct job *job, int ranks) {
    struct thread_ranks threads = {.ranks = ranks,
                                   .seed = 7,
                                   .settings = {.rank_timeout_s = 60, .message_bytes = 4096},
                                   .body = evaluate_rank,
                                   .payload = job,
                                   .may_fail = true};
    return thread_ranks_run(&threads);
}

static void make_job(const struct tiny_run *run, int64_t max_batches, struct job *out) {
    *out = (struct job){.run = run, .max_batches = max_batches};
    for (int rank = 0; rank < RANKS_MAX; rank++) {
        out->paths[rank][0] = run->valid;
        out->paths[rank][1] = run->data;
    }
}

static void expect_equal(const struct eval_result *a, const struct eval_result *b) {
    assert_int_equal(a->file_count, b->file_count);
    for (size_t i = 0; i < a->file_count; i++) {
        assert_memory_equal(&a->files[i].loss, &b->files[i].loss, sizeof(double));
        assert_int_equal(a->files[i].tokens, b->files[i].tokens);
        assert_int_equal(a->files[i].sequences, b->files[i].sequences);
    }
    assert_memory_equal(&a->total.loss, &b->total.loss, sizeof(double));
}

static void free_results(struct job *job, int ranks) {
    for (int rank = 0; rank < ranks; rank++)
        eval_result_free(&job->results[rank]);
}

static void any_number_of_ranks_gives_the_same_number(void **state) {
    struct tiny_run run;
    static struct job alone, shared;
    tiny_run_make(*state, "llama", &run);
    for (int64_t max = 0; max <= 3; max += 3) {
        make_job(&run, max, &alone);
        expect_status(evaluate_on(&alone, 1), STATUS_OK, NULL);
        for (int ranks = 2; ranks <= RANKS_MAX; ranks++) { /* the last one has more ranks than the first file batches */
            make_job(&run, max, &shared);
            expect_status(evaluate_on(&shared, ranks), STATUS_OK, NULL);
            for (int rank = 0; rank < ranks; rank++)
                expect_equal(&alone.results[0], &shared.results[rank]);
            free_results(&shared, ranks);
        }
        free_results(&alone, 1);
    }
}

static void a_file_that_differs_on_a_rank_is_named(void **state) {
    struct tiny_run run;
    static struct job job;
    char other[600];
    tiny_run_make(*state, "llama", &run);
    snprintf(other, sizeof other, "%s/other.bin", (const char *)*state);
    assert_int_equal(file_copy(run.data, other), STATUS_OK);
    char *bytes;
    size_t count;
    assert_int_equal(file_read(other, 1 << 20, &bytes, &count), STATUS_OK);
    bytes[count - 2] ^= 1; /* of the last id */
    temp_write(other, bytes, count);
    mem_free(bytes);
    make_job(&run, 0, &job);
    job.paths[2][1] = other;
    expect_status(evaluate_on(&job, 4), STATUS_BAD_INPUT, "ranks differ in the data file ");
    assert_non_null(strstr(status_message(), "data.bin"));
    assert_non_null(strstr(status_message(), "rank 2 on "));
    job.paths[2][1] = "/nowhere.bin";
    expect_status(evaluate_on(&job, 4), STATUS_BAD_INPUT, "/nowhere.bin");
    assert_non_null(strstr(status_message(), "rank 2 on "));
}

/* ---- Sums ---- */

/* Sums of such depend on the order. */
static double number(int batch) { return (batch % 2 ? 1e15 : 1) / (3 + batch); }

static enum status add_numbers(struct comm *comm, void *payload) {
    struct loss_sum *sums = payload, sum = {0};
    for (int turn = 0; turn < 3; turn++) {
        double value = number(turn * RANKS_MAX + comm->rank);
        struct loss_sum mine = {.figures = {value}, .targets = 1, .stopped = turn == 2 && comm->rank == 1};
        TRY(loss_sum_add(comm, STATUS_OK, &mine, &sum));
        if (sum.stopped != (turn == 2)) return status_set(STATUS_FAILED, "a stop that nobody was asked for");
    }
    sums[comm->rank] = sum;
    bool fails = comm->rank == 3;
    enum status mine = fails ? status_set(STATUS_FAILED, "no batch") : STATUS_OK;
    return loss_sum_add(comm, mine, &(struct loss_sum){0}, &sum);
}

static void sums_are_in_the_order_of_batches(void **state) {
    (void)state;
    struct loss_sum sums[RANKS_MAX];
    double expected = 0;
    for (int b = 0; b < 3 * RANKS_MAX; b++)
        expected += number(b);
    struct thread_ranks threads = {.ranks = RANKS_MAX,
                                   .seed = 3,
                                   .settings = {.rank_timeout_s = 60, .message_bytes = 4096},
                                   .body = add_numbers,
                                   .payload = sums,
                                   .may_fail = true};
    expect_status(thread_ranks_run(&threads), STATUS_FAILED, "no batch");
    for (int rank = 0; rank < RANKS_MAX; rank++) {
        assert_memory_equal(&sums[rank].figures[0], &expected, sizeof expected);
        assert_int_equal(sums[rank].targets, 3 * RANKS_MAX);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_in_the_order_of_batches),
        cmocka_unit_test(any_number_of_ranks_gives_the_same_number),
        cmocka_unit_test(a_file_that_differs_on_a_rank_is_named),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
