/* Pipeline stages against all ways to cut, and refusals. */
#include "plan/layout/pipeline.h"

#include <math.h>
#include <string.h>

#include "base/random.h"
#include "support/fault_sweep.h"
#include "support/unit.h"

enum { LAYERS = 6, SUBMESHES = 4 };

struct made {
    struct stage_problem problem;
    struct stage_cost costs[LAYERS * LAYERS * SUBMESHES];
    int submesh_devices[SUBMESHES];
};

static uint64_t draw(uint64_t seed, uint64_t *at, uint64_t limit) {
    return random_u64(seed, RANDOM_TEST, 3, (*at)++) % limit;
}

static void draw_problem(struct made *made, uint64_t seed) {
    uint64_t at = 0;
    int layers = 1 + (int)draw(seed, &at, LAYERS), submeshes = 1 + (int)draw(seed, &at, SUBMESHES);
    for (int m = 0; m < submeshes; m++)
        made->submesh_devices[m] = 1 << m;
    for (int i = 0; i < layers * layers * submeshes; i++) {
        bool cannot = draw(seed, &at, 8) == 0;
        made->costs[i] = (struct stage_cost){cannot ? INFINITY : (double)(1 + draw(seed, &at, 40)),
                                             (int64_t)draw(seed, &at, 30), (int64_t)draw(seed, &at, 30)};
    }
    made->problem = (struct stage_problem){.layers = layers,
                                           .devices = 1 + (int)draw(seed, &at, 9),
                                           .submesh_count = submeshes,
                                           .submesh_devices = made->submesh_devices,
                                           .waves = 1 + (int64_t)draw(seed, &at, 10),
                                           .costs = made->costs,
                                           .device_bytes = draw(seed, &at, 2) ? INT64_MAX : 70};
}

/* Least time of all cuts of layers from `first` on `devices`, with what the stages before took. Which stage holds how
 * many waves is known when the last is placed. */
struct cuts {
    const struct stage_problem *problem;
    struct stage stages[LAYERS];
    double min;
};
static void try_cut(struct cuts *cuts, int count) {
    const struct stage_problem *problem = cuts->problem;
    double sum = 0, longest = 0;
    for (int i = 0; i < count; i++) {
        const struct stage *stage = &cuts->stages[i];
        const struct stage_cost *cost =
            &problem->costs[(stage->first * problem->layers + stage->last) * problem->submesh_count + stage->submesh];
        if (cost->held_bytes + (count - i) * cost->wave_bytes > problem->device_bytes &&
            problem->device_bytes != INT64_MAX)
            return;
        sum += cost->seconds, longest = fmax(longest, cost->seconds);
    }
    cuts->min = fmin(cuts->min, sum + (double)(problem->waves - 1) * longest);
}
static void try_from(struct cuts *cuts, int count, int first, int devices) {
    if (first == cuts->problem->layers && devices == 0) try_cut(cuts, count);
    for (int last = first; last < cuts->problem->layers; last++)
        for (int m = 0; m < cuts->problem->submesh_count; m++) {
            if (cuts->problem->submesh_devices[m] > devices) continue;
            cuts->stages[count] = (struct stage){first, last, m};
            try_from(cuts, count + 1, last + 1, devices - cuts->problem->submesh_devices[m]);
        }
}

static void check_cut(const struct stage_problem *problem, const struct stage_cut *cut) {
    struct cuts own = {.problem = problem, .min = INFINITY};
    int next = 0, devices = 0;
    for (int i = 0; i < cut->count; i++) {
        assert_int_equal(cut->stages[i].first, next);
        next = cut->stages[i].last + 1;
        devices += problem->submesh_devices[cut->stages[i].submesh];
        own.stages[i] = cut->stages[i];
    }
    assert_int_equal(next, problem->layers);
    assert_int_equal(devices, problem->devices);
    try_cut(&own, cut->count);
    assert_true(own.min == cut->seconds);
}

static void no_cut_is_faster(void **state) {
    (void)state;
    int solved = 0;
    for (uint64_t seed = 1; seed <= unit_sweep(400, 5000); seed++) {
        static struct made made;
        struct stage_cut cut;
        draw_problem(&made, seed);
        struct cuts cuts = {.problem = &made.problem, .min = INFINITY};
        try_from(&cuts, 0, 0, made.problem.devices);
        enum status status = stage_cut_find(&made.problem, &cut);
        if (isinf(cuts.min)) {
            assert_int_equal(status, STATUS_NO_FIT);
            continue;
        }
        assert_int_equal(status, STATUS_OK);
        if (cut.seconds != cuts.min) fail_msg("seed %llu: %g, not %g", (unsigned long long)seed, cut.seconds, cuts.min);
        check_cut(&made.problem, &cut);
        stage_cut_free(&cut);
        solved++;
    }
    print_message("seeds 1 on; %d with a cut\n", solved);
    assert_true(solved > 100);
}

static void too_many_layers_are_refused(void **state) {
    (void)state;
    static struct made made;
    struct stage_cut cut;
    draw_problem(&made, 5);
    made.problem.layers = STAGE_LAYERS_MAX + 1;
    assert_int_equal(stage_cut_find(&made.problem, &cut), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "513 layers"));
}

static enum status find_and_free(void *payload) {
    const struct made *made = payload;
    struct stage_cut cut;
    enum status status = stage_cut_find(&made->problem, &cut);
    if (status == STATUS_OK) stage_cut_free(&cut);
    return status;
}

static void faults_are_reported(void **state) {
    (void)state;
    static struct made made;
    for (int i = 0; i < LAYERS * LAYERS; i++)
        made.costs[i] = (struct stage_cost){.seconds = 1 + i % 5};
    made.submesh_devices[0] = 1;
    made.problem = (struct stage_problem){LAYERS, 3, 1, made.submesh_devices, 4, made.costs, INT64_MAX};
    assert_true(fault_sweep(FAULT_ALLOCATE, false, find_and_free, &made) >= 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_cut_is_faster),
        cmocka_unit_test(too_many_layers_are_refused),
        cmocka_unit_test(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
