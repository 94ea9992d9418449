/* A run that changes its policy between steps equals one that does not, bit for bit. An error during the change has
 * no effect on the run. */
/* ctest: PROCESSORS 2 */
#include "train/loop.h"
#include "train/plan_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/random.h"
#include "support/random_policy.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static const uint64_t SEED = 20261123;

static void expect_same_runs(const char *a, const char *b, int64_t steps) {
    char *x = tiny_run_metrics(a), *y = tiny_run_metrics(b), path[64];
    assert_string_equal(x, y);
    mem_free(x);
    mem_free(y);
    assert_true(files_equal(temp_path(a, "model/model.safetensors"), temp_path(b, "model/model.safetensors")));
    snprintf(path, sizeof path, "checkpoints/step-%08d/optimizer.safetensors", (int)steps);
    assert_true(files_equal(temp_path(a, path), temp_path(b, path)));
}

static void settle(struct train_run *run) {
    expect_status(train_loop_finish_save(run), STATUS_OK, NULL);
    expect_status(engine_settle(&run->engine), STATUS_OK, NULL);
}

/* To the policy of a seed. */
static void change(struct train_run *run, uint64_t seed) {
    const struct graph *graph = programs_main(&run->plan.programs)->graph;
    struct policy policy = random_policy(graph, recipe_share_micro_batches(&run->plan.chosen.recipe), NULL, seed);
    struct session_plan next;
    bool changed;
    uint64_t before, after;
    settle(run);
    expect_status(engine_hash(&run->engine, &before), STATUS_OK, NULL);
    expect_status(session_plan_renew(&run->plan, &policy, NULL, &next), STATUS_OK, NULL);
    expect_status(plan_change_make(run, &next, &changed), STATUS_OK, NULL);
    assert_true(changed);
    expect_status(engine_hash(&run->engine, &after), STATUS_OK, NULL);
    if (before != after) print_policy(&policy, seed);
    assert_true(before == after);
}

/* Changes before each step and, with checkpoints every two steps, while one is being written. */
static void change_at_random(const char *root, const char *model, enum dtype dtype, int64_t steps) {
    struct tiny_run run;
    char plain[512], changed[512];
    bool complete = false;
    print_message("%s %s, seed %llu: %lld changes\n", model, dtype_name(dtype), (unsigned long long)SEED,
                  (long long)steps);
    snprintf(plain, sizeof plain, "%s/plain-%s", root, model);
    snprintf(changed, sizeof changed, "%s/changed-%s", root, model);
    tiny_run_make(root, model, &run);
    SETTINGS_GIVE(&run.plan, dtype, dtype);
    run.options.steps = steps;
    run.options.replan = false; /* by itself */
    memory_options_set_disk(&run.plan.memory, root);
    expect_status(tiny_run_begin(&run, plain, NULL), STATUS_OK, NULL);
    struct train_run *other;
    expect_status(train_open(run.model, changed, &run.plan, &run.options, NULL, &other), STATUS_OK, NULL);
    for (int64_t step = 0; !complete; step++) {
        if (step < steps) change(other, random_u64(SEED, RANDOM_TEST, (uint64_t)dtype, (uint64_t)step));
        expect_status(train_turn(other, &complete), STATUS_OK, NULL);
    }
    expect_status(train_close(other), STATUS_OK, NULL);
    expect_same_runs(plain, changed, steps);
}

static void random_changes_leave_the_bits(void **state) {
    bool all = getenv("BALLAST_LONG") != NULL;
    change_at_random(*state, "llama", DTYPE_F32, all ? 100 : 10);
    change_at_random(*state, "gpt2", DTYPE_BF16, all ? 100 : 10);
}

/* ---- by itself ---- */

struct seen {
    int count;
    struct train_replan last;
    struct policy policy;
};

static void note_replan(void *payload, const struct train_replan *replan, const struct session_plan *plan) {
    struct seen *seen = payload;
    seen->count++;
    seen->last = *replan;
    seen->policy = plan->chosen.policy;
}

/* A limit that changes, looked at before the next step. */
static void limit(struct train_run *run, int64_t device_bytes) {
    run->session.machine.limits.device_bytes = device_bytes;
    run->watch.looked_ns = 0;
}

static void turn(struct train_run *run, int turns) {
    bool complete;
    for (int i = 0; i < turns; i++)
        expect_status(train_turn(run, &complete), STATUS_OK, NULL);
}

static struct train_run *open_watched(const char *root, const char *folder, struct tiny_run *run, struct seen *seen) {
    struct train_run *out;
    const struct train_events events = {.replanned = note_replan, .payload = seen};
    *seen = (struct seen){0};
    tiny_run_make(root, "llama", run);
    memory_options_set_disk(&run->plan.memory, root);
    expect_status(train_open(run->model, folder, &run->plan, &run->options, &events, &out), STATUS_OK, NULL);
    return out;
}

/* The plan that the run's directory would go on with. */
static struct plan plan_of_folder(const char *folder, const char *file) {
    struct plan plan;
    expect_status(plan_read(temp_path(folder, file), &plan), STATUS_OK, NULL);
    return plan;
}

static bool same_policy(const struct policy *a, const struct policy *b) {
    json_t *x = policy_to_json(a), *y = policy_to_json(b);
    json_object_del(x, "partition"), json_object_del(y, "partition"); /* "" and all on each rank are one */
    bool same = json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return same;
}

static void less_memory_is_followed(void **state) {
    struct tiny_run run;
    struct seen seen;
    char plain[512], followed[512], *text;
    size_t bytes;
    snprintf(plain, sizeof plain, "%s/plain", (const char *)*state);
    snprintf(followed, sizeof followed, "%s/followed", (const char *)*state);
    struct train_run *other = open_watched(*state, followed, &run, &seen);
    turn(other, 2);
    int64_t before = other->plan.programs.tier_bytes[TIER_DEVICE], less = before * 2 / 3;
    limit(other, less);
    turn(other, 1);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.last.reason, REPLAN_LESS_MEMORY);
    assert_int_equal(seen.last.step, 2);
    assert_int_equal(seen.last.device_bytes_before, before);
    assert_true(seen.last.device_bytes <= less && other->engine.arenas[TIER_DEVICE].bytes <= less);
    struct plan in_run = plan_of_folder(followed, "run.json"), in_plan = plan_of_folder(followed, "plan.json");
    assert_true(same_policy(&in_run.policy, &seen.policy) && same_policy(&in_plan.policy, &seen.policy));
    turn(other, 4);
    expect_status(train_close(other), STATUS_OK, NULL);
    expect_status(file_read(temp_path(followed, "metrics.jsonl"), 1 << 20, &text, &bytes), STATUS_OK, NULL);
    assert_non_null(strstr(text, "{\"step\": 2, \"replan\": \"less memory\""));
    mem_free(text);
    expect_status(tiny_run_begin(&run, plain, NULL), STATUS_OK, NULL);
    expect_same_runs(plain, followed, 6);
    expect_status(tiny_run_resume(followed, 8, NULL), STATUS_OK, NULL);
    expect_status(tiny_run_resume(plain, 8, NULL), STATUS_OK, NULL);
    expect_same_runs(plain, followed, 8);
}

/* As where a program that steps by itself waits before it begins. */
static void memory_may_become_less_before_the_first_step(void **state) {
    struct tiny_run run;
    struct seen seen;
    char plain[512], followed[512];
    snprintf(plain, sizeof plain, "%s/plain", (const char *)*state);
    snprintf(followed, sizeof followed, "%s/followed", (const char *)*state);
    struct train_run *other = open_watched(*state, followed, &run, &seen);
    limit(other, other->plan.programs.tier_bytes[TIER_DEVICE] * 2 / 3);
    turn(other, 7);
    assert_true(seen.count == 1 && seen.last.step == 0 && seen.last.reason == REPLAN_LESS_MEMORY);
    expect_status(train_close(other), STATUS_OK, NULL);
    expect_status(tiny_run_begin(&run, plain, NULL), STATUS_OK, NULL);
    expect_same_runs(plain, followed, 6);
    expect_status(tiny_run_resume(followed, 8, NULL), STATUS_OK, NULL);
    expect_status(tiny_run_resume(plain, 8, NULL), STATUS_OK, NULL);
    expect_same_runs(plain, followed, 8);
    assert_false(file_exists(temp_path(followed, "metrics.jsonl.damaged")));
}

/* A profile of the graph as it is must not keep a run from one that takes less memory. */
static void known_costs_leave_the_graph_open(void **state) {
    struct tiny_run run;
    struct seen seen;
    int64_t bytes[2];
    for (int known = 0; known < 2; known++) {
        char folder[512];
        snprintf(folder, sizeof folder, "%s/known-%d", (const char *)*state, known);
        struct train_run *other = open_watched(*state, folder, &run, &seen);
        if (known) {
            expect_status(session_plan_measure(&other->plan), STATUS_OK, NULL);
            costs_free(&other->watch.costs);
            expect_status(costs_copy(&other->plan.costs, &other->watch.costs), STATUS_OK, NULL);
        }
        turn(other, 2);
        assert_false(other->plan.chosen.policy.selective_recompute);
        limit(other, other->plan.programs.tier_bytes[TIER_DEVICE] * 2 / 3);
        turn(other, 1);
        assert_int_equal(seen.count, 1);
        assert_true(seen.policy.selective_recompute);
        int32_t nodes = (int32_t)programs_main(&other->plan.programs)->graph->nodes.count;
        assert_true(!other->watch.costs.kernels || other->watch.costs.count == nodes);
        bytes[known] = seen.last.device_bytes;
        turn(other, 4);
        expect_status(train_close(other), STATUS_OK, NULL);
    }
    print_message("less memory: %lld bytes, with known costs %lld\n", (long long)bytes[0], (long long)bytes[1]);
    expect_same_runs(temp_path(*state, "known-0"), temp_path(*state, "known-1"), 6);
}

/* Begun with too little for the plain plan, and given enough after two steps. What is light may go on to be recomputed:
 * the costs that are known are of that graph. */
static void more_memory_is_used(void **state) {
    enum { STEPS = 4 };
    struct tiny_run run;
    struct seen seen;
    char folders[2][512];
    uint64_t hashes[2];
    int64_t plain_bytes = 0;
    for (int less = 0; less < 2; less++) {
        struct train_run *other;
        const struct train_events events = {.replanned = note_replan, .payload = &seen};
        seen = (struct seen){0};
        snprintf(folders[less], sizeof folders[less], "%s/run-%d", (const char *)*state, less);
        tiny_run_make(*state, "llama", &run);
        memory_options_set_disk(&run.plan.memory, *state);
        run.options.steps = 1000000; /* over which any gain pays */
        if (less) SETTINGS_GIVE(&run.plan.memory, device_bytes, plain_bytes * 2 / 3);
        expect_status(train_open(run.model, folders[less], &run.plan, &run.options, &events, &other), STATUS_OK, NULL);
        if (!less) plain_bytes = other->plan.programs.tier_bytes[TIER_DEVICE];
        turn(other, 2);
        if (less) limit(other, 256 << 20);
        turn(other, STEPS - 2);
        assert_int_equal(seen.count, less);
        int64_t bytes = other->plan.programs.tier_bytes[TIER_DEVICE];
        assert_true(other->plan.chosen.policy.selective_recompute ? less && bytes < plain_bytes : bytes == plain_bytes);
        expect_status(train_hash(other, &hashes[less]), STATUS_OK, NULL);
        expect_status(train_close(other), STATUS_OK, NULL);
    }
    assert_int_equal(seen.last.reason, REPLAN_MORE_MEMORY);
    assert_true(seen.last.after_s < 0.95 * seen.last.before_s && policy_is_plain(&seen.policy));
    assert_true(hashes[0] == hashes[1]);
    char *x = tiny_run_metrics(folders[0]), *y = tiny_run_metrics(folders[1]);
    assert_string_equal(x, y);
    mem_free(x);
    mem_free(y);
}

/* A run for which there is too little goes on as it is, and does not try again at every step. */
static void a_run_that_fits_nowhere_goes_on(void **state) {
    struct tiny_run run;
    struct seen seen;
    char plain[512], squeezed[512];
    snprintf(plain, sizeof plain, "%s/plain", (const char *)*state);
    snprintf(squeezed, sizeof squeezed, "%s/squeezed", (const char *)*state);
    struct train_run *other = open_watched(*state, squeezed, &run, &seen);
    turn(other, 1);
    int64_t before = other->plan.programs.tier_bytes[TIER_DEVICE];
    limit(other, 4096);
    turn(other, 1);
    assert_int_equal(other->watch.no_fit_bytes, 4096);
    assert_int_equal(other->plan.programs.tier_bytes[TIER_DEVICE], before);
    assert_int_equal(other->watch.forced_step, 1);
    limit(other, 4000);
    turn(other, 4);
    assert_int_equal(other->watch.forced_step, 1);
    turn(other, 1);
    assert_int_equal(seen.count, 0);
    expect_status(train_close(other), STATUS_OK, NULL);
    expect_status(tiny_run_begin(&run, plain, NULL), STATUS_OK, NULL);
    expect_same_runs(plain, squeezed, 6);
}

static void a_run_can_keep_its_plan(void **state) {
    struct tiny_run run;
    struct seen seen;
    char folder[512];
    snprintf(folder, sizeof folder, "%s/kept", (const char *)*state);
    struct train_run *other;
    tiny_run_make(*state, "llama", &run);
    SETTINGS_GIVE(&run.options, replan, false);
    const struct train_events events = {.replanned = note_replan, .payload = &seen};
    seen.count = 0;
    expect_status(train_open(run.model, folder, &run.plan, &run.options, &events, &other), STATUS_OK, NULL);
    turn(other, 1);
    limit(other, other->plan.programs.tier_bytes[TIER_DEVICE] * 2 / 3);
    turn(other, 6);
    assert_int_equal(seen.count, 0);
    expect_status(train_close(other), STATUS_OK, NULL);
}

static void a_resumed_run_can_keep_its_plan(void **state) {
    for (int keeps = 0; keeps < 2; keeps++) {
        struct tiny_run run;
        struct seen seen;
        struct plan_options plan;
        struct train_run *other;
        struct train_options resume = {0};
        const struct train_events events = {.replanned = note_replan, .payload = &seen};
        char folder[512], *text;
        size_t bytes;
        snprintf(folder, sizeof folder, "%s/resumed-%d", (const char *)*state, keeps);
        other = open_watched(*state, folder, &run, &seen);
        turn(other, 2);
        expect_status(train_close(other), STATUS_OK, NULL); /* a stop, with a checkpoint */
        plan_options_init(&plan);
        SETTINGS_GIVE(&plan.memory, device_bytes, 256 << 20);
        memory_options_set_disk(&plan.memory, *state);
        if (keeps) SETTINGS_GIVE(&resume, replan, false);
        expect_status(train_open_resumed(folder, &plan, &resume, &events, &other), STATUS_OK, NULL);
        turn(other, 1);
        limit(other, other->plan.programs.tier_bytes[TIER_DEVICE] * 2 / 3);
        turn(other, 2);
        assert_int_equal(seen.count, !keeps);
        expect_status(train_close(other), STATUS_OK, NULL);
        expect_status(file_read(temp_path(folder, "run.json"), 1 << 20, &text, &bytes), STATUS_OK, NULL);
        assert_non_null(strstr(text, keeps ? "\"replan\": false" : "\"replan\": true"));
        mem_free(text);
    }
}

/* ---- errors ---- */

/* Operations of a kind fail one by one, the later ones not all; states that wait in memory or, where there is too
 * little, on the disk. */
static int sweep(struct train_run *run, enum fault_kind kind, bool in_memory) {
    struct policy policy = {.micro_batches_per_wave = 1, .optimizer = TIER_DISK, .gradients = TIER_DISK, .buffers = 2};
    uint64_t before, after;
    bool met = true;
    int faults = 0;
    settle(run);
    expect_status(engine_hash(&run->engine, &before), STATUS_OK, NULL);
    for (int64_t nth = 1; met; nth += 1 + nth / 4, faults += met) {
        struct session_plan next;
        bool changed;
        policy.lookahead = !run->plan.chosen.policy.lookahead;
        expect_status(session_plan_renew(&run->plan, &policy, NULL, &next), STATUS_OK, NULL);
        run->session.machine.limits.device_bytes = in_memory ? 256 << 20 : 4096;
        int64_t begun = fault_count(kind);
        fault_arm(kind, nth, false);
        enum status status = plan_change_make(run, &next, &changed);
        fault_arm(kind, 0, false);
        met = fault_count(kind) - begun >= nth;
        expect_status(status, STATUS_OK, NULL);
        assert_true(changed || met);
        if (!changed) session_plan_free(&next);
        expect_status(engine_hash(&run->engine, &after), STATUS_OK, NULL);
        assert_true(before == after);
    }
    run->session.machine.limits.device_bytes = 256 << 20;
    return faults;
}

static void an_error_costs_nothing(void **state) {
    static const enum fault_kind kinds[] = {FAULT_ALLOCATE, FAULT_OPEN, FAULT_READ, FAULT_WRITE, FAULT_SUBMIT};
    struct tiny_run run;
    struct seen seen;
    char plain[512], faulty[512];
    snprintf(plain, sizeof plain, "%s/plain", (const char *)*state);
    snprintf(faulty, sizeof faulty, "%s/faulty", (const char *)*state);
    struct train_run *other = open_watched(*state, faulty, &run, &seen);
    int met = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int in_memory = 0; in_memory < 2; in_memory++) {
            int faults = sweep(other, kinds[k], in_memory != 0);
            print_message("kind %d, states %s: %d faults\n", (int)kinds[k], in_memory ? "in memory" : "on the disk",
                          faults);
            met += faults;
        }
    assert_true(met > 20);
    turn(other, 7);
    expect_status(train_close(other), STATUS_OK, NULL);
    expect_status(tiny_run_begin(&run, plain, NULL), STATUS_OK, NULL);
    expect_same_runs(plain, faulty, 6);
}

/* Where the old engine cannot be had again either, the run ends with a message, and can be resumed. */
static void a_lost_engine_ends_the_run(void **state) {
    struct tiny_run run;
    struct seen seen;
    char folder[512];
    bool changed;
    snprintf(folder, sizeof folder, "%s/lost", (const char *)*state);
    struct train_run *other = open_watched(*state, folder, &run, &seen);
    turn(other, 2);
    expect_status(train_save(other), STATUS_OK, NULL);
    settle(other);
    struct policy plain = {.micro_batches_per_wave = 1};
    struct session_plan next;
    expect_status(session_plan_renew(&other->plan, &plain, NULL, &next), STATUS_OK, NULL);
    fault_arm(FAULT_ALLOCATE, 8, true);
    enum status status = plan_change_make(other, &next, &changed);
    fault_arm(FAULT_ALLOCATE, 0, false);
    expect_status(status, STATUS_FAILED, NULL);
    assert_true(other->engine.partially_updated);
    session_plan_free(&next);
    expect_status(train_loop_end(other, status), STATUS_FAILED, NULL);
    other->begun = false;
    expect_status(train_close(other), STATUS_OK, NULL);
    expect_status(tiny_run_resume(folder, 6, NULL), STATUS_OK, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(less_memory_is_followed, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(memory_may_become_less_before_the_first_step, temp_folder_make,
                                        temp_folder_drop),
        cmocka_unit_test_setup_teardown(known_costs_leave_the_graph_open, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(more_memory_is_used, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(a_run_that_fits_nowhere_goes_on, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(a_run_can_keep_its_plan, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(a_resumed_run_can_keep_its_plan, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(an_error_costs_nothing, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(a_lost_engine_ends_the_run, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(random_changes_leave_the_bits, temp_folder_make, temp_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
