/* Runs in which one allocation, file operation or thread fails, for each of them. The run reports the failure. It
 * leaves either nothing, or a directory that resumes as if nothing had failed. In one tier and over three, new and
 * resumed. */
/* ctest: PROCESSORS 2 TIMEOUT 3500 LABELS long */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "session/checkpoint/run_folder.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

enum { FIRST_STEPS = 3, ALL_STEPS = 5 };

/* Everything elsewhere, of each kind some. */
static const struct policy tiered = {.micro_batches_per_wave = 2,
                                     .chunk_bytes = 8192,
                                     .buffers = 9,
                                     .lookahead = 1,
                                     .parameters = TIER_DISK,
                                     .gradients = TIER_HOST,
                                     .optimizer = TIER_DISK,
                                     .update = TIER_HOST,
                                     .schedule = "f0-3 h1 d2 b3 f2 b2-0"};

struct subject {
    struct tiny_run run;
    char plan[512], scratch[512];
    char folder[512];              /* of the run that is made to fail */
    char begun[512], resumed[512]; /* of runs that were not */
};

static enum status begin(const struct subject *subject, const char *folder) {
    return tiny_run_begin(&subject->run, folder, NULL);
}

static enum status resume(const struct subject *subject, const char *folder, int64_t steps) {
    struct plan_options plan;
    plan_options_init(&plan);
    plan.memory = subject->run.plan.memory;
    return train_resume(folder, &plan, TINY_RESUME(steps), NULL);
}

/* The recipe of a run that was, and the policy. */
static void write_plan(const char *run_folder, const struct policy *policy, const char *path) {
    struct plan plan;
    expect_status(plan_read(temp_path(run_folder, "plan.json"), &plan), STATUS_OK, NULL);
    plan.policy = *policy;
    json_t *object = plan_to_json(&plan);
    assert_non_null(object);
    expect_status(json_write(path, object), STATUS_OK, NULL);
    json_decref(object);
}

static void make_runs(struct subject *subject) {
    expect_status(begin(subject, subject->begun), STATUS_OK, NULL);
    expect_status(begin(subject, subject->resumed), STATUS_OK, NULL);
    expect_status(resume(subject, subject->resumed, ALL_STEPS), STATUS_OK, NULL);
}

static void name_folders(const char *place, const char *name, struct subject *out) {
    snprintf(out->folder, sizeof out->folder, "%s/%s-swept", place, name);
    snprintf(out->begun, sizeof out->begun, "%s/%s-begun", place, name);
    snprintf(out->resumed, sizeof out->resumed, "%s/%s-resumed", place, name);
}

static void make_subject(const char *place, bool tiers, struct subject *out) {
    struct tiny_run *run = &out->run;
    tiny_run_make(place, "llama", run);
    SETTINGS_GIVE(&run->plan, threads, 1);
    run->options.steps = FIRST_STEPS;
    run->options.valid_every = 2;
    run->options.keep = 1;
    name_folders(place, "plain", out);
    if (!tiers) {
        make_runs(out);
        return;
    }
    expect_status(begin(out, temp_path(place, "model-of-plan")), STATUS_OK, NULL);
    name_folders(place, "tiers", out);
    snprintf(out->plan, sizeof out->plan, "%s/plan.json", place);
    snprintf(out->scratch, sizeof out->scratch, "%s/scratch", place);
    expect_status(folder_create(out->scratch), STATUS_OK, NULL);
    write_plan(temp_path(place, "model-of-plan"), &tiered, out->plan);
    SETTINGS_GIVE(&run->plan, plan_path, out->plan);
    SETTINGS_GIVE(&run->plan.memory, host_bytes, 64 << 20);
    memory_options_set_disk(&run->plan.memory, out->scratch);
    make_runs(out);
}

static void require_same(const char *whole, const char *folder) {
    char *x = tiny_run_metrics(whole), *y = tiny_run_metrics(folder);
    assert_string_equal(x, y);
    mem_free(x);
    mem_free(y);
    assert_true(files_equal(temp_path(whole, "model/model.safetensors"), temp_path(folder, "model/model.safetensors")));
}

static void require_nothing_left(const struct subject *subject) {
    if (subject->scratch[0]) assert_int_equal(temp_count(subject->scratch), 0);
}

/* ---- a run that begins ---- */

static enum status begin_once(void *payload) {
    const struct subject *subject = payload;
    return begin(subject, subject->folder);
}

/* A run is a directory with run.json: that can be gone on with, and in any other a new one can be begun. */
static void after_begin(void *payload, enum status status) {
    const struct subject *subject = payload;
    bool is_run = file_exists(temp_path(subject->folder, "run.json"));
    if (status == STATUS_BAD_INPUT) assert_false(is_run);
    if (status != STATUS_OK && is_run) expect_status(resume(subject, subject->folder, 0), STATUS_OK, NULL);
    if (is_run)
        require_same(subject->begun, subject->folder);
    else
        expect_status(run_folder_check_new(subject->folder), STATUS_OK, NULL);
    require_nothing_left(subject);
    assert_int_equal(folder_remove(subject->folder), STATUS_OK);
}

/* ---- a run that goes on ---- */

static enum status resume_once(void *payload) {
    const struct subject *subject = payload;
    return resume(subject, subject->folder, ALL_STEPS);
}

static void after_resume(void *payload, enum status status) {
    const struct subject *subject = payload;
    if (status != STATUS_OK) expect_status(resume(subject, subject->folder, ALL_STEPS), STATUS_OK, NULL);
    require_same(subject->resumed, subject->folder);
    require_nothing_left(subject);
    assert_int_equal(folder_remove(subject->folder), STATUS_OK);
    expect_status(begin(subject, subject->folder), STATUS_OK, NULL);
}

/* ---- the sweeps ---- */

static void sweep(const struct fault_subject *swept) {
    static const enum fault_kind kinds[] = {FAULT_ALLOCATE, FAULT_OPEN,   FAULT_READ,  FAULT_WRITE,
                                            FAULT_SYNC,     FAULT_RENAME, FAULT_SUBMIT};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        uint64_t usual = kinds[k] == FAULT_ALLOCATE ? 6 : 2;
        assert_true(fault_sweep_bearable(kinds[k], false, unit_sweep(usual, FAULT_EVERY), swept).reported > 0);
    }
    /* jansson's are ten times as many as ours, most of them of one kind: the numbers of timeline.json. */
    json_faults(true);
    assert_true(fault_sweep_bearable(FAULT_ALLOCATE, false, unit_sweep(3, 400), swept).reported > 0);
    json_faults(false);
}

/* Memory that stays used up, a disk that stays full. */
static void sweep_to_the_end(const struct fault_subject *swept) {
    static const enum fault_kind kinds[] = {FAULT_ALLOCATE, FAULT_OPEN, FAULT_WRITE};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        assert_true(fault_sweep_bearable(kinds[k], true, unit_sweep(2, 50), swept).reported > 0);
}

static void sweep_runs(const char *place, bool tiers) {
    struct subject subject = {0};
    make_subject(place, tiers, &subject);
    const struct fault_subject begins = {begin_once, after_begin, &subject};
    sweep(&begins);
    sweep_to_the_end(&begins);
    expect_status(begin(&subject, subject.folder), STATUS_OK, NULL);
    sweep(&(struct fault_subject){resume_once, after_resume, &subject});
}

static void runs_in_one_tier_survive_faults(void **state) { sweep_runs(*state, false); }
static void runs_over_three_tiers_survive_faults(void **state) { sweep_runs(*state, true); }

static int set_up(void **state) { return temp_folder_make(state) == 0 ? setenv("XDG_CACHE_HOME", *state, 1) : -1; }

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, temp_folder_drop)

int main(void) {
    const struct CMUnitTest tests[] = {CASE(runs_in_one_tier_survive_faults),
                                       CASE(runs_over_three_tiers_survive_faults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
