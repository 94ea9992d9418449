/* Checkpoints that ranks write concurrently equal one rank's, byte for byte. A failure of one rank is a failure of
 * all, and the previous checkpoint stays valid. */
/* ctest: PROCESSORS 2 TIMEOUT 1200 LABELS long */
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "base/terminal.h"
#include "session/checkpoint/run_folder.h"
#include "support/temp_folder.h"
#include "support/thread_ranks.h"
#include "support/tiny_run.h"
#include "support/unit.h"
#include "train/checkpoint_writer.h"
#include "train/data.h"

enum { SAVES = 2 };

struct job {
    const struct tiny_run *run;
    const char *partition;       /* of model states among the ranks */
    int tensor;                  /* ranks that share each tensor; 0: 1 */
    char folder[400], plan[500]; /* the plan file of the partition, which the first job writes: one search is enough */
    uint64_t block_bytes, seed;
    enum fault_kind kind; /* that fails in the second save, where nth > 0 */
    int nth;
    int64_t operations[FAULT_KINDS]; /* of the second save, of all ranks together */
    enum status results[THREAD_RANKS_MAX];
};

/* A rank with all that a save needs. */
struct rank {
    struct session session;
    struct session_plan plan;
    struct engine engine;
    struct train_data data;
    struct metrics metrics;
    struct train_options options;
    struct checkpoint_writer writer;
    struct checkpoint_state state;
};

static enum status write_plan(const char *path, const struct plan *plan) {
    json_t *file = plan_to_json(plan);
    enum status status = file ? json_write(path, file) : STATUS_FAILED;
    json_decref(file);
    return status;
}

static enum status open_rank(struct comm *comm, struct job *job, struct rank *out) {
    struct plan_options plan = job->run->plan;
    char path[500];
    bool validated;
    plan.comm = comm;
    bool planned = file_exists(job->plan);
    if (planned)
        SETTINGS_GIVE(&plan, plan_path, job->plan);
    else
        SETTINGS_GIVE(&plan, partition, job->partition);
    if (job->tensor > 1) SETTINGS_GIVE(&plan, tensor_parallel, job->tensor);
    out->options = job->run->options;
    out->options.keep = 1;
    out->metrics.descriptor = -1;
    snprintf(path, sizeof path, "%s/metrics.jsonl", job->folder);
    TRY(session_begin(job->run->model, PROGRAMS_TO_TRAIN, &plan, &out->options, &out->session, &out->plan));
    if (comm->rank == 0 && job->plan[0] && !planned) TRY(write_plan(job->plan, &out->plan.chosen));
    TRY(train_data_open(comm, out->session.model, &out->plan.chosen.recipe, &out->options, true, &out->data));
    TRY(engine_open(&out->plan, &out->engine));
    TRY(engine_load_weights(&out->engine));
    if (comm->rank == 0) TRY(folder_create(job->folder));
    if (comm->rank == 0) TRY(metrics_open(path, &(struct metrics_cut){0}, &out->metrics, &validated));
    checkpoint_writer_open(job->folder, &out->engine, out->data.dataset, &out->options, &out->metrics, &out->writer);
    out->writer.source.block_bytes = job->block_bytes;
    out->state = (struct checkpoint_state){.plan = out->plan.chosen};
    out->state.plan.place = (struct rank_place){.rank = 0}; /* that the files be comparable */
    out->state.plan.policy = (struct policy){.micro_batches_per_wave = 1};
    out->state.plan.recipe.tensor_parallel = 1;
    return STATUS_OK;
}

static void close_rank(struct rank *rank) {
    checkpoint_writer_close(&rank->writer);
    engine_close(&rank->engine);
    train_data_close(&rank->data);
    session_plan_free(&rank->plan);
    session_close(&rank->session);
    metrics_close(&rank->metrics);
}

/* As a loop over steps asks, or at once, as at a run's end. */
static enum status save(struct job *job, struct rank *rank) {
    char *folder = NULL;
    bool waits = random_u64(job->seed, RANDOM_TEST, 1, (uint64_t)rank->state.step) % 2;
    rank->state.step++;
    TRY(checkpoint_writer_begin(&rank->writer, &rank->state));
    while (waits && !checkpoint_writer_ended(&rank->writer))
        ;
    enum status status = checkpoint_writer_finish(&rank->writer, &folder);
    if (status == STATUS_OK && !folder) status = status_set(STATUS_FAILED, "no directory");
    mem_free(folder);
    return status;
}

/* For rank 0: the operations of each kind from now on; called again, those since then. */
static void count_operations(struct job *job) {
    for (int kind = 0; kind < FAULT_KINDS; kind++)
        job->operations[kind] = fault_count((enum fault_kind)kind) - job->operations[kind];
}

static enum status save_twice(struct comm *comm, struct job *job, struct rank *rank) {
    TRY(save(job, rank));
    TRY(comm_agree(comm, STATUS_OK));
    if (comm->rank == 0) count_operations(job);
    if (comm->rank == 0 && job->nth > 0) fault_arm(job->kind, job->nth, false);
    TRY(comm_agree(comm, STATUS_OK));
    enum status status = save(job, rank);
    job->results[comm->rank] = status;
    TRY(comm_agree(comm, STATUS_OK));
    if (comm->rank == 0) count_operations(job);
    if (comm->rank == 0 && job->nth > 0) fault_arm(job->kind, 0, false);
    if (status == STATUS_OK || job->nth == 0) return status;
    return save(job, rank); /* whatever failed: the next one is written */
}

static enum status run_rank(struct comm *comm, void *payload) {
    struct job *job = payload;
    struct rank *rank = mem_array(1, sizeof *rank);
    if (!rank) return STATUS_FAILED;
    progress_mute_thread();
    enum status status = open_rank(comm, job, rank);
    if (status == STATUS_OK) status = save_twice(comm, job, rank);
    close_rank(rank);
    mem_free(rank);
    return status;
}

static enum status run_job(struct job *job, int ranks) {
    struct thread_ranks threads = {.ranks = ranks,
                                   .seed = job->seed,
                                   .settings = {.rank_timeout_s = 60, .message_bytes = 4096},
                                   .body = run_rank,
                                   .payload = job};
    return thread_ranks_run(&threads);
}

static void make_job(const char *place, const char *name, const char *partition, const struct tiny_run *run,
                     struct job *out) {
    *out = (struct job){.run = run, .partition = partition, .block_bytes = FILE_BLOCK_BYTES_MIN, .seed = 11};
    snprintf(out->folder, sizeof out->folder, "%s/%s", place, name);
}

/* A recipe whose lanes these numbers of ranks hold. */
static void make_run(const char *place, const char *model, struct tiny_run *out) {
    tiny_run_make(place, model, out);
    SETTINGS_GIVE(&out->plan, dtype, DTYPE_BF16);
    SETTINGS_GIVE(&out->plan, threads, 1);
    out->plan.lanes = (struct lane_shape){1, 4};
    SETTINGS_MARK(&out->plan, lanes);
}

static void expect_same_checkpoints(const char *a, const char *b, const char *name) {
    struct names names;
    char x[600], y[600];
    snprintf(x, sizeof x, "%s/checkpoints/%s", a, name);
    assert_int_equal(folder_list(x, &names), STATUS_OK);
    assert_true(names.count >= 4);
    for (size_t i = 0; i < names.count; i++) {
        snprintf(x, sizeof x, "%s/checkpoints/%s/%s", a, name, names.items[i]);
        snprintf(y, sizeof y, "%s/checkpoints/%s/%s", b, name, names.items[i]);
        if (!files_equal(x, y)) fail_msg("%s and %s differ", x, y);
    }
    names_free(&names);
}

static const struct way {
    int ranks;
    const char *partition;
} ways[] = {{2, "ddp"},   {4, "ddp"},   {2, "zero3"}, {4, "zero3"}, {4, "zero1"},
            {4, "2|2|2"}, {4, "2|2|4"}, {4, "2|4|4"}, {4, "1|2|2"}};
enum { WAYS = sizeof ways / sizeof *ways };

static void expect_the_files_of_one_rank(const char *place, const char *model, int every) {
    struct tiny_run run;
    struct job one, many;
    char name[40];
    make_run(place, model, &run);
    snprintf(name, sizeof name, "one-%s", model);
    make_job(place, name, "ddp", &run, &one);
    expect_status(run_job(&one, 1), STATUS_OK, NULL);
    for (int way = 0; way < WAYS; way += every) {
        snprintf(name, sizeof name, "many-%s-%d", model, way);
        make_job(place, name, ways[way].partition, &run, &many);
        expect_status(run_job(&many, ways[way].ranks), STATUS_OK, NULL);
        expect_same_checkpoints(one.folder, many.folder, "step-00000002");
        expect_status(checkpoint_verify(NULL, temp_path(many.folder, "checkpoints/step-00000002")), STATUS_OK, NULL);
        assert_int_equal(temp_count(temp_path(many.folder, "checkpoints")), 1); /* what is kept */
    }
}

static void the_files_do_not_depend_on_the_number_of_ranks(void **state) {
    expect_the_files_of_one_rank(*state, "llama_tied", (int)unit_sweep(2, 1));
    expect_the_files_of_one_rank(*state, "gpt2", (int)unit_sweep(4, 1));
}

/* Matrices by rows and by columns, fused ones by their parts: 3 ranks have parts of these models' heads and features.
 */
static void nor_which_parts_ranks_had(void **state) {
    static const char *const models[] = {"qwen3", "phi3"};
    static const struct way shared[] = {{3, "ddp"}, {6, "ddp"}, {6, "2|2|2"}, {6, "1|2|2"}};
    for (size_t m = 0; m < 2; m++) {
        struct tiny_run run;
        struct job one, many;
        char name[40];
        make_run(*state, models[m], &run);
        snprintf(name, sizeof name, "whole-%zu", m);
        make_job(*state, name, "ddp", &run, &one);
        expect_status(run_job(&one, 1), STATUS_OK, NULL);
        for (size_t w = 0; w < sizeof shared / sizeof *shared; w++) {
            snprintf(name, sizeof name, "parts-%zu-%zu", m, w);
            make_job(*state, name, shared[w].partition, &run, &many);
            many.tensor = 3;
            expect_status(run_job(&many, shared[w].ranks), STATUS_OK, NULL);
            expect_same_checkpoints(one.folder, many.folder, "step-00000002");
        }
    }
}

/* Either the failed one is there, where only an older one could not be removed, or the one before it; and the next. */
static void expect_whole_ones(const struct job *job, bool failed) {
    struct names names;
    char path[600];
    snprintf(path, sizeof path, "%s/checkpoints", job->folder);
    assert_int_equal(run_folder_clear(path), STATUS_OK);
    assert_int_equal(checkpoint_list(job->folder, &names), STATUS_OK);
    assert_true(names.count > 0);
    assert_string_equal(names.items[names.count - 1], failed ? "step-00000003" : "step-00000002");
    for (size_t i = 0; i < names.count; i++) {
        snprintf(path, sizeof path, "%s/checkpoints/%s", job->folder, names.items[i]);
        expect_status(checkpoint_verify(NULL, path), STATUS_OK, NULL);
    }
    names_free(&names);
}

/* A save of which so many operations of the kind fail, one in each job, evenly spread. */
static void fail_each(const char *place, const struct job *whole, enum fault_kind kind, int64_t wanted) {
    int64_t share = (whole->operations[kind] + wanted - 1) / wanted;
    int failed = 0, met = 0;
    for (int64_t nth = (share + 1) / 2; nth <= whole->operations[kind]; nth += share, met++) {
        struct job job;
        char name[60];
        snprintf(name, sizeof name, "%s-%d-%d", whole->partition, (int)kind, (int)nth);
        make_job(place, name, whole->partition, whole->run, &job);
        strcpy(job.plan, whole->plan);
        job.kind = kind, job.nth = (int)nth;
        expect_status(run_job(&job, 2), STATUS_OK, NULL); /* the save after the failed one works */
        assert_int_equal(job.results[0], job.results[1]);
        expect_whole_ones(&job, job.results[0] != STATUS_OK);
        failed += job.results[0] != STATUS_OK;
        assert_int_equal(folder_remove(job.folder), STATUS_OK);
    }
    print_message("%s, kind %d: %d operations, %d made to fail, %d of them told\n", whole->partition, (int)kind,
                  (int)whole->operations[kind], met, failed);
    assert_true(failed > 0 || kind == FAULT_READ);
}

static void fail_everywhere(const char *place, const char *partition) {
    static const enum fault_kind kinds[] = {FAULT_OPEN, FAULT_READ,   FAULT_WRITE,
                                            FAULT_SYNC, FAULT_RENAME, FAULT_SUBMIT};
    struct tiny_run run;
    struct job whole;
    make_run(place, "llama_tied", &run);
    make_job(place, partition, partition, &run, &whole);
    snprintf(whole.plan, sizeof whole.plan, "%s/%s.json", place, partition);
    expect_status(run_job(&whole, 2), STATUS_OK, NULL);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        fail_each(place, &whole, kinds[k], (int64_t)unit_sweep(1, 1000));
}

static void a_failure_on_one_rank_is_all_ranks(void **state) { fail_everywhere(*state, "ddp"); }

/* Where no rank has a tensor as a whole, and checksums are made of what all have written. */
static void a_failure_on_a_rank_with_shards_is_all_ranks(void **state) { fail_everywhere(*state, "zero3"); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_files_do_not_depend_on_the_number_of_ranks),
        cmocka_unit_test(nor_which_parts_ranks_had),
        cmocka_unit_test(a_failure_on_one_rank_is_all_ranks),
        cmocka_unit_test(a_failure_on_a_rank_with_shards_is_all_ranks),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
