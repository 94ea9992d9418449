/* Expert counts in metrics.jsonl: every token's slots in every layer, in the first step and every tenth. They are
 * the same for any wave, number of ranks, and after a stop and resume. */
/* ctest: PROCESSORS 2 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/terminal.h"
#include "support/temp_folder.h"
#include "support/thread_ranks.h"
#include "support/tiny_run.h"
#include "support/unit.h"

/* Of mixtral's fixture. The batch of three sequences is filled up to two micro-batches of two; padding has no slots. */
enum { LAYERS = 2, EXPERTS = 5, CHOSEN = 2, SEQUENCES = 3, SLOTS = SEQUENCES * TINY_TOKENS * CHOSEN, STEPS = 12 };

static int set_up(void **state) {
    return temp_folder_make(state) != 0 || setenv("XDG_CACHE_HOME", *state, 1) != 0 ? -1 : 0;
}

static void make_run(const char *folder, struct tiny_run *out) {
    tiny_run_make(folder, "mixtral", out);
    SETTINGS_GIVE(&out->plan, lanes, (struct lane_shape){1, 2});
    SETTINGS_GIVE(&out->plan, threads, 1);
    out->options.steps = STEPS;
    out->options.save_every = 3;
}

/* A line's least and most parts of an equal share, and sums that are those of all slots. */
static void expect_all_slots(const json_t *line) {
    const json_t *layers = json_object_get(line, "expert_slots");
    double min = 1e9, max = 0;
    assert_int_equal(json_array_size(layers), LAYERS);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        const json_t *slots = json_array_get(layers, layer);
        json_int_t sum = 0;
        assert_int_equal(json_array_size(slots), EXPERTS);
        for (size_t e = 0; e < EXPERTS; e++) {
            json_int_t count = json_integer_value(json_array_get(slots, e));
            double part = (double)count * EXPERTS / SLOTS;
            assert_true(count >= 0 && count <= SLOTS / CHOSEN);
            min = part < min ? part : min;
            max = part > max ? part : max;
            sum += count;
        }
        assert_int_equal(sum, SLOTS);
    }
    assert_float_equal(json_number_value(json_object_get(line, "expert_min")), min, 1e-5);
    assert_float_equal(json_number_value(json_object_get(line, "expert_max")), max, 1e-5);
}

static void expect_lines(const char *metrics) {
    static const json_int_t steps[] = {1, 10};
    size_t found = 0;
    for (const char *at = metrics; *at; at = strchr(at, '\n') + 1) {
        json_t *line = json_loads(at, JSON_DISABLE_EOF_CHECK, NULL);
        assert_non_null(line);
        if (json_object_get(line, "expert_slots")) {
            assert_true(found < sizeof steps / sizeof *steps);
            assert_int_equal(json_integer_value(json_object_get(line, "step")), steps[found++]);
            expect_all_slots(line);
        }
        json_decref(line);
    }
    assert_int_equal(found, sizeof steps / sizeof *steps);
}

struct job {
    const struct tiny_run *run;
    const char *folder;
};

static enum status train_rank(struct comm *comm, void *payload) {
    const struct job *job = payload;
    struct plan_options plan = job->run->plan;
    plan.comm = comm;
    progress_mute_thread();
    return train_begin(job->run->model, job->folder, &plan, &job->run->options, NULL);
}

static char *metrics_of_ranks(const struct tiny_run *run, int ranks, const char *folder) {
    struct job job = {run, folder};
    const struct thread_ranks threads = {.ranks = ranks,
                                         .seed = 7,
                                         .settings = {.rank_timeout_s = 60, .message_bytes = 4096},
                                         .body = train_rank,
                                         .payload = &job,
                                         .may_fail = true};
    expect_status(thread_ranks_run(&threads), STATUS_OK, NULL);
    return tiny_run_metrics(folder);
}

static void all_slots_are_counted_on_any_number_of_ranks(void **state) {
    struct tiny_run run;
    char one[512], two[512];
    make_run(*state, &run);
    snprintf(one, sizeof one, "%s/one", (const char *)*state);
    snprintf(two, sizeof two, "%s/two", (const char *)*state);
    char *alone = metrics_of_ranks(&run, 1, one), *together = metrics_of_ranks(&run, 2, two);
    expect_lines(alone);
    assert_string_equal(alone, together);
    mem_free(alone);
    mem_free(together);
}

static enum status request_stop(void *payload, int64_t step, int64_t saved) {
    (void)saved;
    return step > *(const int64_t *)payload ? STATUS_INTERRUPTED : STATUS_OK;
}

static void stopped_runs_count_the_same(void **state) {
    struct tiny_run run;
    char whole[512], part[512];
    int64_t last = 10;
    const struct train_events events = {.stop = request_stop, .payload = &last};
    make_run(*state, &run);
    snprintf(whole, sizeof whole, "%s/whole", (const char *)*state);
    snprintf(part, sizeof part, "%s/part", (const char *)*state);
    expect_status(tiny_run_begin(&run, whole, NULL), STATUS_OK, NULL);
    expect_status(tiny_run_begin(&run, part, &events), STATUS_INTERRUPTED, "stopped after step 10");
    expect_status(tiny_run_resume(part, 0, NULL), STATUS_OK, NULL);
    char *expected = tiny_run_metrics(whole), *found = tiny_run_metrics(part);
    expect_lines(expected);
    assert_string_equal(found, expected);
    mem_free(expected);
    mem_free(found);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_slots_are_counted_on_any_number_of_ranks),
        cmocka_unit_test(stopped_runs_count_the_same),
    };
    return cmocka_run_group_tests(tests, set_up, temp_folder_drop);
}
