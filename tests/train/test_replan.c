/* When a run changes its plan, and whether measured steps correct wrong costs. */
/* ctest: PROCESSORS 1 */
#include "train/plan_watch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "search/sim/simulate.h"
#include "support/shared_model.h"
#include "support/synthetic_costs.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static void a_change_must_pay(void **state) {
    (void)state;
    struct replan_gain gain = {.now_s = 1, .other_s = 0.9, .change_s = 4.9, .steps = 50};
    assert_true(replan_pays(&gain));
    gain.change_s = 5.1;
    assert_false(replan_pays(&gain));
    gain = (struct replan_gain){.now_s = 1, .other_s = 0.951, .change_s = 0, .steps = 1000000};
    assert_false(replan_pays(&gain));
    gain.other_s = 0.949;
    assert_true(replan_pays(&gain));
    gain.steps = 0;
    assert_false(replan_pays(&gain));
    assert_true(replan_change_s(INT64_C(1) << 33) > 80);
}

/* Memory that came and went a moment ago is not counted on for long. */
static void gains_count_as_long_as_memory_stayed(void **state) {
    (void)state;
    assert_int_equal(replan_horizon(10, 1000, -1), 990);
    assert_int_equal(replan_horizon(10, 1000, 8), 2);
    assert_int_equal(replan_horizon(10, 1000, 10), 0);
    assert_int_equal(replan_horizon(900, 1000, 8), 100);
}

/* Memory that comes and goes for weeks makes a run decide often. */
static void decisions_come_further_and_further_apart(void **state) {
    (void)state;
    int64_t pause = 5;
    for (int i = 0; i < 200; i++) {
        int64_t next = replan_pause(pause);
        assert_true(next >= pause && next <= INT64_C(1) << 24);
        if (i < 20) assert_int_equal(next, 2 * pause);
        pause = next;
    }
}

/* A session that needs the disk, and costs that are right. The device has `part` of what lies between the least and
 * what the plain policy takes. */
struct scene {
    struct session session;
    struct session_plan plain;
    struct costs right;
};

static void open_scene(const char *root, int machine, uint64_t seed, double part, struct scene *out) {
    struct tiny_run run;
    struct plan_request request;
    struct model *model;
    tiny_run_make(root, "llama", &run);
    struct model_config config = shared_model_config("llama", &shared_sizes_usual);
    config.layers = 6;
    memory_options_set_disk(&run.plan.memory, root);
    expect_status(model_create(&config, &model), STATUS_OK, NULL);
    expect_status(session_open_model(model, &run.plan, NULL, &out->session), STATUS_OK, NULL);
    expect_status(plan_request_make(&out->session, 1 << PROGRAM_STEP, &run.plan, &run.options, NULL, &request),
                  STATUS_OK, NULL);
    expect_status(session_plan_make(&out->session, &request, &out->plain), STATUS_OK, NULL);
    const struct graph *graph = programs_main(&out->plain.programs)->graph;
    out->right = synthetic_costs(graph, machine, seed);
    out->right.rates.issue_s = 0; /* which recorded instructions do not have within */
    int64_t *device = &out->session.machine.capacity_bytes[TIER_DEVICE], max = *device = 1;
    struct session_plan min;
    expect_status(session_plan_renew(&out->plain, NULL, &out->right, &min), STATUS_OK, NULL);
    max = out->plain.programs.tier_bytes[TIER_DEVICE];
    *device = min.min_bytes + (int64_t)(part * (double)(max - min.min_bytes));
    session_plan_free(&min);
}

static void close_scene(struct scene *scene) {
    costs_free(&scene->right);
    session_plan_free(&scene->plain);
    session_close(&scene->session);
}

static struct timeline simulate_by(const struct session_plan *plan, const struct costs *costs) {
    struct timeline timeline;
    expect_status(simulate(programs_main(&plan->programs)->program, costs, &timeline), STATUS_OK, NULL);
    return timeline;
}

static double seconds_by(const struct session_plan *plan, const struct costs *costs) {
    struct timeline timeline = simulate_by(plan, costs);
    double seconds = timeline.step_s;
    timeline_free(&timeline);
    return seconds;
}

/* As if a profile had found these so many times slower than they are. */
struct mistake {
    const char *name;
    double disk, products;
};
static const struct mistake mistakes[] = {
    {"disk 3 times too slow", 3, 1},
    {"disk 3 times too fast", 1. / 3, 1},
    {"products 3 times too slow", 1, 3},
    {"products 3 times too fast", 1, 1. / 3},
};

static struct costs mistaken_costs(const struct costs *right, const struct mistake *mistake) {
    struct costs costs;
    expect_status(costs_copy(right, &costs), STATUS_OK, NULL);
    for (int32_t n = 0; n < costs.count; n++)
        if (costs.kernels[n].activity == ACTIVITY_PRODUCT) costs.kernels[n].seconds *= mistake->products;
    for (enum tier from = 0; from < TIER_COUNT; from++)
        for (enum tier to = 0; to < TIER_COUNT; to++)
            if (from == TIER_DISK || to == TIER_DISK) {
                costs.rates.copy[from][to].latency_s *= mistake->disk;
                costs.rates.copy[from][to].bytes_per_s /= mistake->disk;
            }
    return costs;
}

/* Three steps, each slowed down elsewhere: of copies, each is as it should be in one of them alone, and takes five
 * times as long in the others. The watch's record is the caller's to close. */
static void record_disturbed(const struct session_plan *plan, const struct costs *right, struct plan_watch *watch) {
    enum { STEPS = 3 };
    struct timeline step = simulate_by(plan, right);
    const struct instruction *instructions = step.program->instructions.items;
    *watch = (struct plan_watch){.on = true};
    expect_status(timeline_create(step.program, &watch->shortest), STATUS_OK, NULL);
    for (int s = 0; s < STEPS; s++) {
        struct timeline slow = simulate_by(plan, right);
        for (size_t i = 0; i < slow.events.count; i++) {
            struct timeline_event *event = &slow.events.items[i];
            if (instructions[event->instruction].opcode == OPCODE_COPY && i % STEPS != (size_t)s)
                event->end_s += 4 * (event->end_s - event->start_s);
        }
        plan_watch_take(watch, &slow);
        timeline_free(&slow);
    }
    timeline_free(&step);
}

/* As a run does at its 5th and 15th step. Returns how far the plan is behind the best one before and after. */
struct behind {
    double before, after;
};
static struct behind fix(const struct scene *scene, const struct mistake *mistake) {
    enum { DECISIONS = 2 };
    struct session_plan best, now;
    struct costs costs = mistaken_costs(&scene->right, mistake);
    expect_status(session_plan_renew(&scene->plain, NULL, &scene->right, &best), STATUS_OK, NULL);
    expect_status(session_plan_renew(&scene->plain, NULL, &costs, &now), STATUS_OK, NULL);
    double best_s = seconds_by(&best, &scene->right);
    struct behind behind = {.before = seconds_by(&now, &scene->right) / best_s - 1};
    for (int i = 0; i < DECISIONS; i++) {
        struct replan_choice choice;
        struct plan_watch watch;
        record_disturbed(&now, &scene->right, &watch);
        const struct replan_input input = {&now, &watch.shortest, 0.1, INT64_C(1) << 40};
        expect_status(replan_choose(&input, &costs, &choice), STATUS_OK, NULL);
        plan_watch_close(&watch);
        if (!choice.pays) continue;
        session_plan_free(&now);
        now = choice.plan;
    }
    behind.after = seconds_by(&now, &scene->right) / best_s - 1;
    session_plan_free(&best);
    session_plan_free(&now);
    costs_free(&costs);
    return behind;
}

/* Returns how many of the mistakes cost so much that they had to be repaired. */
static int expect_fixed(const struct scene *scene) {
    int fixed = 0;
    for (size_t m = 0; m < sizeof mistakes / sizeof *mistakes; m++) {
        struct behind behind = fix(scene, &mistakes[m]);
        print_message("    %s: %.1f%% behind the best plan, then %.1f%%\n", mistakes[m].name, 100 * behind.before,
                      100 * behind.after);
        /* What is less than 5% behind is no reason for a change. */
        assert_true(behind.after < (behind.before > 0.06 ? 0.03 : 0.06));
        fixed += behind.before > 0.06;
    }
    return fixed;
}

/* How far behind a mistake is depends on the memory that this processor's kernels need. */
enum { FIXED_MIN = 4 };

static void wrong_costs_are_fixed(void **state) {
    static const double parts[] = {1. / 3, 0.05, 0.15, 0.5, 0.7};
    bool all = getenv("BALLAST_LONG") != NULL;
    int fixed = 0, machines = all ? SYNTHETIC_MACHINES : 1;
    for (int machine = 0; machine < machines; machine++)
        for (uint64_t seed = 1; seed <= 6 && (all || fixed < FIXED_MIN); seed++)
            for (size_t p = 0; p < (all ? sizeof parts / sizeof *parts : 1); p++) {
                struct scene scene;
                open_scene(*state, machine, seed, parts[p], &scene);
                print_message("%s machine, seed %llu, %.2f of the memory:\n", synthetic_machine_name(machine),
                              (unsigned long long)seed, parts[p]);
                fixed += expect_fixed(&scene);
                close_scene(&scene);
            }
    assert_true(fixed >= FIXED_MIN);
}

/* A copy that was held up, which costs a step nothing where nobody waits for it, must not make the disk look slow. */
static void what_holds_up_a_step_is_not_learned(void **state) {
    struct scene scene;
    struct session_plan now;
    struct costs costs;
    struct plan_watch watch;
    open_scene(*state, 0, 3, 1. / 3, &scene);
    expect_status(session_plan_renew(&scene.plain, NULL, &scene.right, &now), STATUS_OK, NULL);
    expect_status(costs_copy(&scene.right, &costs), STATUS_OK, NULL);
    record_disturbed(&now, &scene.right, &watch);
    expect_status(costs_fit(programs_main(&now.programs)->program, &watch.shortest, NULL, &costs), STATUS_OK, NULL);
    for (enum tier tier = TIER_DEVICE; tier < TIER_DISK; tier++) {
        const struct transfer_rate *out = &costs.rates.copy[tier][TIER_DISK], *in = &costs.rates.copy[TIER_DISK][tier];
        assert_true(fabs(out->bytes_per_s / scene.right.rates.copy[tier][TIER_DISK].bytes_per_s - 1) < 0.01);
        assert_true(fabs(in->bytes_per_s / scene.right.rates.copy[TIER_DISK][tier].bytes_per_s - 1) < 0.01);
    }
    plan_watch_close(&watch);
    costs_free(&costs);
    session_plan_free(&now);
    close_scene(&scene);
}

/* By costs that are right nothing is to be gained. */
static void right_costs_change_nothing(void **state) {
    struct scene scene;
    struct session_plan now;
    struct costs costs;
    struct replan_choice choice;
    open_scene(*state, 0, 3, 1. / 3, &scene);
    expect_status(session_plan_renew(&scene.plain, NULL, &scene.right, &now), STATUS_OK, NULL);
    expect_status(costs_copy(&scene.right, &costs), STATUS_OK, NULL);
    struct timeline recorded = simulate_by(&now, &costs);
    const struct replan_input input = {&now, &recorded, 0, INT64_C(1) << 40};
    expect_status(replan_choose(&input, &costs, &choice), STATUS_OK, NULL);
    assert_false(choice.pays);
    for (int32_t n = 0; n < costs.count; n++)
        if (scene.right.kernels[n].seconds > 0)
            assert_true(costs.kernels[n].seconds / scene.right.kernels[n].seconds < 1.01 &&
                        costs.kernels[n].seconds / scene.right.kernels[n].seconds > 0.99);
    timeline_free(&recorded);
    costs_free(&costs);
    session_plan_free(&now);
    close_scene(&scene);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_must_pay),
        cmocka_unit_test(gains_count_as_long_as_memory_stayed),
        cmocka_unit_test(decisions_come_further_and_further_apart),
        cmocka_unit_test_setup_teardown(what_holds_up_a_step_is_not_learned, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(right_costs_change_nothing, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(wrong_costs_are_fixed, temp_folder_make, temp_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
