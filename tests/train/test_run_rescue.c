/* Runs whose directory is renamed or removed during training, on one rank or several, or whose data are truncated. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "support/temp_folder.h"
#include "support/thread_ranks.h"
#include "support/tiny_run.h"
#include "support/unit.h"

struct displacement {
    const char *folder, *moved; /* moved NULL: removed */
    int64_t at;
    bool again;   /* another directory gets the name */
    int64_t last; /* step that was seen */
};

static void displace(void *payload, const struct train_step *step) {
    struct displacement *what = payload;
    what->last = step->step;
    if (step->step != what->at) return;
    if (what->moved)
        assert_int_equal(rename(what->folder, what->moved), 0);
    else
        while (folder_remove(what->folder) != STATUS_OK) /* a checkpoint is being written into it */
            continue;
    if (what->again) assert_int_equal(folder_create(what->folder), STATUS_OK);
}

static void make_run(const char *folder, struct tiny_run *run) {
    tiny_run_make(folder, "llama", run);
    SETTINGS_GIVE(&run->plan, threads, 1);
}

static void expect_goes_on(const char *rescued, const char *whole) {
    expect_status(tiny_run_resume(rescued, 0, NULL), STATUS_OK, NULL);
    char *left = tiny_run_metrics(rescued), *right = tiny_run_metrics(whole);
    assert_string_equal(left, right);
    mem_free(left);
    mem_free(right);
    assert_true(
        files_equal(temp_path(rescued, "model/model.safetensors"), temp_path(whole, "model/model.safetensors")));
}

static void a_moved_folder_is_followed(void **state) {
    struct tiny_run run;
    char whole[512], folder[512], moved[512], rescued[600];
    make_run(*state, &run);
    snprintf(whole, sizeof whole, "%s/whole", (const char *)*state);
    expect_status(tiny_run_begin(&run, whole, NULL), STATUS_OK, NULL);
    for (int again = 0; again < 2; again++) {
        snprintf(folder, sizeof folder, "%s/renamed-%d", (const char *)*state, again);
        snprintf(moved, sizeof moved, "%s/moved-%d", (const char *)*state, again);
        struct displacement renamed = {.folder = folder, .moved = moved, .at = 3, .again = again};
        struct train_events events = {.step = displace, .payload = &renamed};
        expect_status(tiny_run_begin(&run, folder, &events), STATUS_FAILED, "was renamed");
        assert_non_null(strstr(status_message(), moved));
        assert_true(renamed.last <= 4); /* where a checkpoint was due, or before it where one was being written */
        assert_true(again ? temp_count(folder) == 0 : !file_exists(folder));
        expect_goes_on(moved, whole);

        snprintf(folder, sizeof folder, "%s/removed-%d", (const char *)*state, again);
        snprintf(rescued, sizeof rescued, "%s.rescued", folder);
        struct displacement removed = {.folder = folder, .at = 3, .again = again};
        events.payload = &removed;
        expect_status(tiny_run_begin(&run, folder, &events), STATUS_FAILED, "was removed");
        assert_non_null(strstr(status_message(), rescued));
        assert_true(removed.last <= 4);
        assert_true(again ? temp_count(folder) == 0 : !file_exists(folder));
        expect_goes_on(rescued, whole);
    }
}

struct ranks_run {
    const struct tiny_run *run;
    const char *folder;
    struct train_events events; /* rank 0's */
    enum status status[2];
};

static enum status train_rank(struct comm *comm, void *payload) {
    struct ranks_run *ranks = payload;
    struct tiny_run run = *ranks->run;
    run.plan.comm = comm;
    ranks->status[comm->rank] =
        train_begin(run.model, ranks->folder, &run.plan, &run.options, comm->rank == 0 ? &ranks->events : NULL);
    return ranks->status[comm->rank];
}

/* Rank 0 finds the place, and all save there what each has a part of. */
static void ranks_rescue_a_run_together(void **state) {
    struct tiny_run run;
    char whole[512], folder[512], moved[512], rescued[600];
    make_run(*state, &run);
    run.options.valid_every = 0;
    SETTINGS_GIVE(&run.plan, micro_batch_sequences, 1);
    SETTINGS_GIVE(&run.plan, lanes, ((struct lane_shape){1, 2}));
    snprintf(whole, sizeof whole, "%s/ranks-whole", (const char *)*state);
    expect_status(tiny_run_begin(&run, whole, NULL), STATUS_OK, NULL);
    for (int removed = 0; removed < 2; removed++) {
        snprintf(folder, sizeof folder, "%s/ranks-%d", (const char *)*state, removed);
        snprintf(moved, sizeof moved, "%s/ranks-moved", (const char *)*state);
        snprintf(rescued, sizeof rescued, "%s.rescued", folder);
        struct displacement what = {.folder = folder, .moved = removed ? NULL : moved, .at = 3};
        struct ranks_run ranks = {.run = &run, .folder = folder, .events = {.step = displace, .payload = &what}};
        SETTINGS_GIVE(&run.plan, partition, removed ? "zero3" : "ddp");
        enum status status =
            thread_ranks_run(&(struct thread_ranks){.ranks = 2,
                                                    .seed = 1,
                                                    .settings = {.rank_timeout_s = 60, .message_bytes = 1 << 20},
                                                    .body = train_rank,
                                                    .payload = &ranks,
                                                    .may_fail = true});
        expect_status(status, STATUS_FAILED, removed ? "was removed while" : "was renamed while");
        assert_non_null(strstr(status_message(), removed ? rescued : moved));
        assert_int_equal(ranks.status[1], STATUS_FAILED);
        assert_true(what.last <= 4);
        expect_goes_on(removed ? rescued : moved, whole);
    }
}

static void a_lost_folder_is_noticed_without_a_checkpoint(void **state) {
    struct tiny_run run;
    make_run(*state, &run);
    run.options.steps = 1000;
    run.options.save_every = 900;
    run.options.valid_every = 0;
    char folder[512], moved[512];
    snprintf(folder, sizeof folder, "%s/long", (const char *)*state);
    snprintf(moved, sizeof moved, "%s/long-moved", (const char *)*state);
    struct displacement what = {.folder = folder, .moved = moved, .at = 10};
    struct train_events events = {.step = displace, .payload = &what};
    expect_status(tiny_run_begin(&run, folder, &events), STATUS_FAILED, "was renamed");
    assert_int_equal(what.last, 100);
    assert_true(file_is_folder(temp_path(moved, "checkpoints/step-00000100")));
}

/* Parents are recreated. */
static void a_folder_removed_with_its_parent_is_reported(void **state) {
    struct tiny_run run;
    make_run(*state, &run);
    char folder[600], parent[512];
    snprintf(parent, sizeof parent, "%s/parent", (const char *)*state);
    snprintf(folder, sizeof folder, "%s/run/", parent);
    struct displacement what = {.folder = parent, .at = 3};
    struct train_events events = {.step = displace, .payload = &what};
    expect_status(tiny_run_begin(&run, folder, &events), STATUS_FAILED, "was removed");
    expect_status(tiny_run_resume(temp_path(*state, "parent/run.rescued"), 0, NULL), STATUS_OK, NULL);
}

static void cut_data(void *payload, const struct train_step *step) {
    if (step->step == 3) assert_int_equal(truncate(payload, 1024 + 20), 0);
}

/* What was read was right: the last step is saved, and goes on once the file is whole again. */
static void data_cut_short_end_the_run(void **state) {
    struct tiny_run run;
    make_run(*state, &run);
    char folder[512], whole[512], kept[512];
    snprintf(whole, sizeof whole, "%s/whole-data", (const char *)*state);
    snprintf(folder, sizeof folder, "%s/cut-data", (const char *)*state);
    snprintf(kept, sizeof kept, "%s/kept.bin", (const char *)*state);
    expect_status(tiny_run_begin(&run, whole, NULL), STATUS_OK, NULL);
    assert_int_equal(file_copy(run.data, kept), STATUS_OK);
    struct train_events events = {.step = cut_data, .payload = run.data};
    expect_status(tiny_run_begin(&run, folder, &events), STATUS_FAILED, "data.bin: was cut short");
    assert_non_null(strstr(status_hint_text(), "checkpoints/step-00000003"));
    assert_int_equal(rename(kept, run.data), 0);
    expect_goes_on(folder, whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_moved_folder_is_followed),
        cmocka_unit_test(ranks_rescue_a_run_together),
        cmocka_unit_test(a_lost_folder_is_noticed_without_a_checkpoint),
        cmocka_unit_test(data_cut_short_end_the_run),
        cmocka_unit_test(a_folder_removed_with_its_parent_is_reported),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
