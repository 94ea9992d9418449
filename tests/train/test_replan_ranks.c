/* Ranks that change their plan together equal ranks that do not, bit for bit: at random, because one rank has less
 * memory, because of what all recorded, and with an error on one of them. */
/* ctest: PROCESSORS 2 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/random.h"
#include "session/machine_costs.h"
#include "support/random_policy.h"
#include "support/synthetic_costs.h"
#include "support/temp_folder.h"
#include "support/thread_ranks.h"
#include "support/tiny_run.h"
#include "support/unit.h"
#include "train/loop.h"
#include "train/plan_watch.h"

static const uint64_t SEED = 20261124;
enum { RANKS_MAX = 4, STEPS = 6 };

/* What the ranks do before the step after `step`. */
struct ranks_run;
typedef void before_step(struct ranks_run *ranks, struct train_run *run, int rank, int64_t step);

struct ranks_run {
    const struct tiny_run *run;
    const char *folder;
    int count;
    before_step *before;
    int64_t device_bytes[RANKS_MAX], less_bytes; /* what each rank's plan took at the end; a limit, where it has one */
    int changes;                                 /* that rank 0 told of */
    struct train_replan last;
    int met; /* faults */
};

static void note_replan(void *payload, const struct train_replan *replan, const struct session_plan *plan) {
    struct ranks_run *ranks = payload;
    (void)plan;
    ranks->changes++;
    ranks->last = *replan;
}

static enum status train_rank(struct comm *comm, void *payload) {
    struct ranks_run *ranks = payload;
    struct tiny_run run = *ranks->run;
    const struct train_events events = {.replanned = note_replan, .payload = ranks};
    struct train_run *open;
    bool complete = false;
    run.plan.comm = comm;
    TRY(train_open(run.model, ranks->folder, &run.plan, &run.options, comm->rank == 0 ? &events : NULL, &open));
    for (int64_t step = 0; !complete; step++) {
        if (ranks->before && step < STEPS) ranks->before(ranks, open, comm->rank, step);
        ranks->device_bytes[comm->rank] = open->plan.programs.tier_bytes[TIER_DEVICE];
        expect_status(train_turn(open, &complete), STATUS_OK, NULL);
    }
    return train_close(open);
}

static void run_ranks(struct ranks_run *ranks) {
    expect_status(thread_ranks_run(&(struct thread_ranks){.ranks = ranks->count,
                                                          .seed = SEED,
                                                          .settings = {.rank_timeout_s = 60, .message_bytes = 1 << 20},
                                                          .body = train_rank,
                                                          .payload = ranks}),
                  STATUS_OK, NULL);
}

static void make_run(const char *root, const char *model, struct tiny_run *out) {
    tiny_run_make(root, model, out);
    SETTINGS_GIVE(&out->plan, batch, 4);
    SETTINGS_GIVE(&out->plan, micro_batch_sequences, 1);
    SETTINGS_GIVE(&out->plan, lanes, ((struct lane_shape){1, RANKS_MAX}));
    SETTINGS_GIVE(&out->plan, threads, 1);
    memory_options_set_disk(&out->plan.memory, root);
    out->options.steps = STEPS;
}

static void expect_same_runs(const char *a, const char *b) {
    char *x = tiny_run_metrics(a), *y = tiny_run_metrics(b);
    assert_string_equal(x, y);
    mem_free(x);
    mem_free(y);
    assert_true(files_equal(temp_path(a, "model/model.safetensors"), temp_path(b, "model/model.safetensors")));
    assert_true(files_equal(temp_path(a, "checkpoints/step-00000006/optimizer.safetensors"),
                            temp_path(b, "checkpoints/step-00000006/optimizer.safetensors")));
}

/* The same recipe by one rank that keeps its plan. */
static void train_plain(const char *root, const char *model, char folder[512]) {
    struct tiny_run run;
    make_run(root, model, &run);
    run.options.replan = false;
    snprintf(folder, 512, "%s/plain-%s", root, model);
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_OK, NULL);
}

/* ---- at random ---- */

static void settle(struct train_run *run) {
    expect_status(train_loop_finish_save(run), STATUS_OK, NULL);
    expect_status(engine_settle(&run->engine), STATUS_OK, NULL);
}

/* To a policy of the step's seed, with any partition. */
static void change_at_random(struct ranks_run *ranks, struct train_run *run, int rank, int64_t step) {
    const struct graph *graph = programs_main(&run->plan.programs)->graph;
    const uint64_t seed = random_u64(SEED, RANDOM_TEST, (uint32_t)ranks->count, (uint64_t)step);
    const struct mesh mesh = {1, ranks->count};
    struct policy policy = random_policy(graph, recipe_share_micro_batches(&run->plan.chosen.recipe), &mesh, seed);
    struct session_plan next;
    bool changed;
    settle(run);
    char text[PARTITION_BYTES];
    if (rank == 0) print_message("step %lld: %s\n", (long long)step, partition_print(&policy.partition, &mesh, text));
    expect_status(session_plan_renew(&run->plan, &policy, NULL, &next), STATUS_OK, NULL);
    expect_status(plan_change_make(run, &next, &changed), STATUS_OK, NULL);
    assert_true(changed);
}

static void random_changes_leave_the_bits(void **state) {
    static const char *const partitions[] = {"ddp", "zero3", "zero2"};
    bool all = getenv("BALLAST_LONG") != NULL;
    char plain[512], folder[512];
    train_plain(*state, "llama", plain);
    for (int count = 2; count <= RANKS_MAX; count += 2)
        for (int p = 0; p < (all ? 3 : 1); p++) {
            struct tiny_run run;
            int which = all ? p : count / 2 - 1;
            make_run(*state, "llama", &run);
            run.options.replan = false; /* by itself */
            SETTINGS_GIVE(&run.plan, partition, partitions[which]);
            snprintf(folder, sizeof folder, "%s/ranks-%d-%s", (const char *)*state, count, partitions[which]);
            print_message("%d ranks, %s, seed %llu\n", count, partitions[which], (unsigned long long)SEED);
            run_ranks(&(struct ranks_run){.run = &run, .folder = folder, .count = count, .before = change_at_random});
            expect_same_runs(plain, folder);
        }
}

/* ---- by themselves ---- */

/* Rank 1 alone; all look at the turn after the one in which it sees that, and change before the step of that turn. */
static void limit_one(struct ranks_run *ranks, struct train_run *run, int rank, int64_t step) {
    if (rank != 1 || step != 2) return;
    ranks->less_bytes = run->plan.programs.tier_bytes[TIER_DEVICE] * 31 / 32;
    run->session.machine.limits.device_bytes = ranks->less_bytes;
    run->watch.looked_ns = 0;
}

/* Each as others do in one run and not in the next. */
struct layout {
    const char *name, *partition;
    int ranks, tensor, stages; /* 0: 1 */
};

static void run_layout(const char *root, const struct layout *layout, bool follows, char folder[512]) {
    struct tiny_run run;
    make_run(root, "llama", &run);
    run.options.replan = follows;
    if (layout->partition) SETTINGS_GIVE(&run.plan, partition, layout->partition);
    if (layout->tensor) SETTINGS_GIVE(&run.plan, tensor_parallel, layout->tensor);
    if (layout->stages) SETTINGS_GIVE(&run.plan, pipeline_parallel, layout->stages);
    snprintf(folder, 512, "%s/%s-%s", root, layout->name, follows ? "followed" : "kept");
    struct ranks_run ranks = {.run = &run, .folder = folder, .count = layout->ranks, .before = limit_one};
    run_ranks(&ranks);
    assert_int_equal(ranks.changes, follows);
    if (!follows) return;
    assert_int_equal(ranks.last.reason, REPLAN_LESS_MEMORY);
    assert_int_equal(ranks.last.step, 3);
    for (int rank = 0; rank < layout->ranks; rank++)
        assert_true(ranks.device_bytes[rank] <= ranks.less_bytes);
}

static void all_follow_one_that_has_less(void **state) {
    static const struct layout layouts[] = {{"ddp", "ddp", .ranks = 2},
                                            {"zero3", "zero3", .ranks = 4},
                                            {"tensor", NULL, .ranks = 3, .tensor = 3},
                                            {"stages", NULL, .ranks = 2, .stages = 2}};
    char kept[512], followed[512], *text;
    size_t bytes;
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        print_message("%s\n", layouts[l].name);
        run_layout(*state, &layouts[l], false, kept);
        run_layout(*state, &layouts[l], true, followed);
        expect_same_runs(kept, followed);
        expect_status(file_read(temp_path(followed, "metrics.jsonl"), 1 << 20, &text, &bytes), STATUS_OK, NULL);
        assert_non_null(strstr(text, "{\"step\": 3, \"replan\": \"less memory\""));
        mem_free(text);
    }
}

/* ---- what they learn ---- */

/* Kernels took `factor` times what they cost. */
static enum status record(const struct program *program, const struct costs *costs, double factor,
                          struct timeline *out) {
    struct costs own;
    TRY(costs_copy(costs, &own));
    for (int32_t n = 0; n < own.count; n++)
        own.kernels[n].seconds *= factor;
    enum status status = simulate(program, &own, out);
    costs_free(&own);
    return status;
}

static enum status learn(struct comm *comm, const struct session_plan *plan) {
    const struct executable *step = programs_main(&plan->programs);
    struct fit_sum_over_ranks ranks = rank_costs_sum_over_ranks(comm);
    struct costs before = {0}, rank_0 = {0};
    struct timeline recorded;
    if (comm->rank == 0) rank_0 = synthetic_costs(step->graph, 0, SEED);
    rank_0.rates.issue_s = 0; /* which recorded instructions do not have within */
    expect_status(rank_costs_share(comm, &rank_0, step->graph->nodes.count, &before), STATUS_OK, NULL);
    struct costs after;
    expect_status(costs_copy(&before, &after), STATUS_OK, NULL);
    expect_status(record(step->program, &before, comm->rank == 0 ? 2 : 4, &recorded), STATUS_OK, NULL);
    expect_status(costs_fit(step->program, &recorded, &ranks, &after), STATUS_OK, NULL);
    for (int32_t n = 0; n < after.count; n++) {
        double factor = before.kernels[n].seconds > 0 ? after.kernels[n].seconds / before.kernels[n].seconds : 3;
        if (before.kernels[n].activity == ACTIVITY_PRODUCT) assert_true(factor > 2 && factor < 4);
    }
    enum status same = comm_check_same(comm, "their costs", after.kernels, (size_t)after.count * sizeof *after.kernels);
    timeline_free(&recorded);
    costs_free(&rank_0);
    costs_free(&before);
    costs_free(&after);
    return same;
}

static enum status learn_rank(struct comm *comm, void *payload) {
    struct tiny_run run = *((struct ranks_run *)payload)->run;
    struct session session;
    struct session_plan plan;
    run.plan.comm = comm;
    TRY(session_begin(run.model, PROGRAMS_TO_TRAIN, &run.plan, &run.options, &session, &plan));
    enum status status = learn(comm, &plan);
    session_plan_free(&plan);
    session_close(&session);
    return status;
}

static void all_learn_the_same_costs(void **state) {
    struct tiny_run run;
    make_run(*state, "llama", &run);
    SETTINGS_GIVE(&run.plan, partition, "ddp");
    struct ranks_run ranks = {.run = &run, .count = 2};
    expect_status(thread_ranks_run(&(struct thread_ranks){.ranks = 2,
                                                          .seed = SEED,
                                                          .settings = {.rank_timeout_s = 60, .message_bytes = 1 << 20},
                                                          .body = learn_rank,
                                                          .payload = &ranks}),
                  STATUS_OK, NULL);
}

/* ---- errors ---- */

/* The n-th operation on files of the process fails, on whichever rank that is. */
static void change_with_faults(struct ranks_run *ranks, struct train_run *run, int rank, int64_t step) {
    static const enum fault_kind kinds[] = {FAULT_OPEN, FAULT_READ, FAULT_WRITE, FAULT_SYNC};
    struct policy policy = {.micro_batches_per_wave = 1, .optimizer = TIER_DISK, .gradients = TIER_DISK, .buffers = 2};
    struct comm *comm = run->session.comm;
    uint64_t before, after;
    if (step > 3) return;
    settle(run);
    expect_status(engine_hash(&run->engine, &before), STATUS_OK, NULL);
    for (int64_t nth = 1; nth < (getenv("BALLAST_LONG") ? 4000 : 400); nth += 1 + nth / 2) {
        struct session_plan next;
        bool changed;
        policy.lookahead = !run->plan.chosen.policy.lookahead;
        policy.partition = run->plan.chosen.policy.partition;
        expect_status(session_plan_renew(&run->plan, &policy, NULL, &next), STATUS_OK, NULL);
        run->session.machine.limits.device_bytes = nth % 2 ? 256 << 20 : 4096; /* states in memory, or on the disk */
        expect_status(comm_agree(comm, STATUS_OK), STATUS_OK, NULL);
        if (rank == 0) fault_arm(kinds[step], nth, false);
        expect_status(comm_agree(comm, STATUS_OK), STATUS_OK, NULL);
        enum status status = plan_change_make(run, &next, &changed);
        expect_status(comm_agree(comm, STATUS_OK), STATUS_OK, NULL);
        if (rank == 0) fault_arm(kinds[step], 0, false);
        expect_status(status, STATUS_OK, NULL);
        if (rank == 0) ranks->met += !changed;
        if (!changed) session_plan_free(&next);
        expect_status(engine_hash(&run->engine, &after), STATUS_OK, NULL);
        assert_true(before == after);
    }
    run->session.machine.limits.device_bytes = 256 << 20;
}

static void an_error_on_one_costs_nothing(void **state) {
    char plain[512], folder[512];
    struct tiny_run run;
    train_plain(*state, "llama", plain);
    make_run(*state, "llama", &run);
    run.options.replan = false;
    SETTINGS_GIVE(&run.plan, partition, "zero3");
    snprintf(folder, sizeof folder, "%s/faulty", (const char *)*state);
    struct ranks_run ranks = {.run = &run, .folder = folder, .count = 2, .before = change_with_faults};
    run_ranks(&ranks);
    print_message("%d changes failed\n", ranks.met);
    assert_true(ranks.met > 10);
    expect_same_runs(plain, folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(random_changes_leave_the_bits, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(all_follow_one_that_has_less, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(all_learn_the_same_costs, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(an_error_on_one_costs_nothing, temp_folder_make, temp_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
