/* If a file operation fails while a checkpoint is written, or the process ends, the previous checkpoint stays valid. */
/* ctest: PROCESSORS 2 TIMEOUT 600 LABELS long */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/manifest.h"
#include "session/checkpoint/checkpoint.h"
#include "session/engine.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static void the_newest_are_kept(void **state) {
    struct tiny_run run;
    char folder[512];
    for (int keep = 0; keep <= 3; keep++) {
        tiny_run_make(*state, "llama", &run);
        snprintf(folder, sizeof folder, "%s/keep-%d", (const char *)*state, keep);
        run.options.keep = keep;
        run.options.save_every = 1;
        expect_status(tiny_run_begin(&run, folder, NULL), STATUS_OK, NULL);
        struct names names;
        assert_int_equal(folder_list(temp_path(folder, "checkpoints"), &names), STATUS_OK);
        assert_int_equal(names.count, keep == 0 ? 6 : keep);
        assert_string_equal(names.items[names.count - 1], "step-00000006");
        names_free(&names);
        /* Going on drops the very directory that the model was read from. */
        expect_status(tiny_run_resume(folder, 9, NULL), STATUS_OK, NULL);
        assert_int_equal(folder_list(temp_path(folder, "checkpoints"), &names), STATUS_OK);
        assert_int_equal(names.count, keep == 0 ? 9 : keep);
        names_free(&names);
    }
}

static void a_run_without_checkpoints_is_reported(void **state) {
    struct tiny_run run;
    char whole[512], without[512];
    tiny_run_make(*state, "llama", &run);
    snprintf(whole, sizeof whole, "%s/whole-beside", (const char *)*state);
    snprintf(without, sizeof without, "%s/without", (const char *)*state);
    expect_status(tiny_run_begin(&run, whole, NULL), STATUS_OK, NULL);
    /* Some of it moves, so that the last update is one that was put off. */
    run.options.save_every = 0;
    SETTINGS_GIVE(&run.plan.memory, device_bytes, 440 << 10);
    SETTINGS_GIVE(&run.plan.memory, host_bytes, 64 << 20);
    expect_status(tiny_run_begin(&run, without, NULL), STATUS_OK, NULL);
    assert_false(file_exists(temp_path(without, "checkpoints")));
    assert_true(
        files_equal(temp_path(whole, "model/model.safetensors"), temp_path(without, "model/model.safetensors")));
    expect_status(tiny_run_resume(without, 9, NULL), STATUS_BAD_INPUT, "--save-every is 0");
}

struct arming {
    enum fault_kind kind;
    int nth;
    bool sticky;
    int64_t before;
};

/* Faults begin when the checkpoint of step 2 is whole; what is met, of the next one and of the steps next to it, is a
 * matter of timing, and what must hold afterwards is not. */
static void arm_after_checkpoint(void *payload, int64_t step, const char *folder) {
    struct arming *arming = payload;
    (void)folder;
    if (step != 2) return;
    arming->before = fault_count(arming->kind);
    fault_arm(arming->kind, arming->nth, arming->sticky);
}

/* Every checkpoint that can be seen is whole: its state and weights load, and going on from it reaches the end. */
static void expect_recovery(const char *folder, const char *whole) {
    expect_status(tiny_run_resume(folder, 0, NULL), STATUS_OK, NULL);
    char *x = tiny_run_metrics(whole), *y = tiny_run_metrics(folder);
    assert_string_equal(x, y);
    mem_free(x);
    mem_free(y);
    assert_true(files_equal(temp_path(whole, "model/model.safetensors"), temp_path(folder, "model/model.safetensors")));
    struct names names;
    assert_int_equal(folder_list(temp_path(folder, "checkpoints"), &names), STATUS_OK);
    for (size_t i = 0; i < names.count; i++)
        assert_int_equal(strncmp(names.items[i], "step-", 5), 0);
    assert_int_equal(names.count, 2);
    names_free(&names);
}

/* Runs that ended well although an old checkpoint could not be removed. */
static int removals;

static int sweep(const char *place, const char *whole, enum fault_kind kind, bool sticky) {
    for (int nth = 1;; nth++) {
        struct tiny_run run;
        char folder[512];
        tiny_run_make(place, "llama", &run);
        snprintf(folder, sizeof folder, "%s/fault-%d-%d-%d", place, (int)kind, nth, sticky);
        struct arming arming = {.kind = kind, .nth = nth, .sticky = sticky};
        struct train_events events = {.saved = arm_after_checkpoint, .payload = &arming};
        enum status status = tiny_run_begin(&run, folder, &events);
        fault_arm(kind, 0, false);
        bool met = fault_count(kind) - arming.before >= nth;
        if (!met) {
            expect_status(status, STATUS_OK, NULL);
            return nth - 1;
        }
        if (status == STATUS_OK) {
            removals++; /* an old checkpoint that stays is a warning */
        } else {
            expect_status(status, STATUS_FAILED, NULL);
            assert_true(status_message()[0] != '\0');
            assert_non_null(strstr(status_hint_text(), "the last good checkpoint is "));
        }
        char *newest;
        struct checkpoint_state state;
        assert_int_equal(checkpoint_find_newest(folder, &newest), STATUS_OK);
        assert_non_null(newest);
        expect_status(checkpoint_read_state(newest, &state), STATUS_OK, NULL);
        mem_free(newest);
        expect_recovery(folder, whole);
        assert_int_equal(folder_remove(folder), STATUS_OK);
    }
}

static void every_file_operation_fails_in_turn(void **state) {
    static const enum fault_kind kinds[] = {FAULT_OPEN, FAULT_READ, FAULT_WRITE, FAULT_SYNC, FAULT_RENAME};
    struct tiny_run run;
    char whole[512];
    tiny_run_make(*state, "llama", &run);
    snprintf(whole, sizeof whole, "%s/whole", (const char *)*state);
    expect_status(tiny_run_begin(&run, whole, NULL), STATUS_OK, NULL);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int met = sweep(*state, whole, kinds[k], false);
        assert_true(met > 0);
    }
    assert_true(removals > 0);
    sweep(*state, whole, FAULT_WRITE, true); /* a disk that stays full */
}

static void leftovers_of_a_killed_process_are_removed(void **state) {
    struct tiny_run run;
    char whole[512], folder[512];
    tiny_run_make(*state, "llama", &run);
    snprintf(whole, sizeof whole, "%s/whole-left", (const char *)*state);
    snprintf(folder, sizeof folder, "%s/left", (const char *)*state);
    expect_status(tiny_run_begin(&run, whole, NULL), STATUS_OK, NULL);
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_OK, NULL);
    assert_int_equal(folder_create(temp_path(folder, "checkpoints/.tmp-step-00000008")), STATUS_OK);
    temp_write_text(temp_path(folder, "checkpoints/.tmp-step-00000008/model.safetensors"), "half");
    assert_int_equal(folder_create(temp_path(folder, ".tmp-model")), STATUS_OK);
    /* Killed between the two renames of a replacement. */
    assert_int_equal(rename(temp_path(folder, "model"), temp_path(folder, ".old-model")), 0);
    expect_recovery(folder, whole);
    struct names names;
    assert_int_equal(folder_list(folder, &names), STATUS_OK);
    size_t others = 0;
    for (size_t i = 0; i < names.count; i++)
        others += strncmp(names.items[i], "events.", 7) != 0;
    assert_int_equal(others, 7); /* checkpoints, end.json, metrics.jsonl, model, plan.json, run.json, timeline.json */
    names_free(&names);
}

static void damaged_checkpoints_are_refused(void **state) {
    struct tiny_run run;
    char folder[512];
    tiny_run_make(*state, "llama", &run);
    snprintf(folder, sizeof folder, "%s/damaged", (const char *)*state);
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_OK, NULL);
    const char *optimizer = "checkpoints/step-00000006/optimizer.safetensors";
    assert_int_equal(file_copy(temp_path(folder, "model/model.safetensors"), temp_path(folder, optimizer)), STATUS_OK);
    expect_status(tiny_run_resume(folder, 8, NULL), STATUS_BAD_INPUT, "damaged: optimizer.safetensors: has ");
    assert_non_null(strstr(status_hint_text(), "to go on from "));
    assert_non_null(strstr(status_hint_text(), "step-00000004, remove "));
    temp_write_text(temp_path(folder, "checkpoints/step-00000006/state.json"), "{\"version\": 3, \"step\": -3}");
    expect_status(tiny_run_resume(folder, 8, NULL), STATUS_BAD_INPUT, "; and 1 more (ballast inspect --verify");
    assert_non_null(strstr(status_hint_text(), "step-00000004, remove "));
    assert_int_equal(folder_remove(temp_path(folder, "checkpoints/step-00000006")), STATUS_OK);
    expect_status(tiny_run_resume(folder, 8, NULL), STATUS_OK, NULL);
    temp_write_text(temp_path(folder, "run.json"), "{}");
    expect_status(tiny_run_resume(folder, 8, NULL), STATUS_BAD_INPUT, "run.json: version");
}

static void flip_byte(const char *path, long from_end) {
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -from_end, SEEK_END), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, -from_end, SEEK_END), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
}

static void a_flipped_bit_is_noticed(void **state) {
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    struct tiny_run run;
    char folder[512], path[600];
    tiny_run_make(*state, "llama", &run);
    for (size_t i = 0; i < 2; i++) {
        snprintf(folder, sizeof folder, "%s/flipped-%zu", (const char *)*state, i);
        snprintf(path, sizeof path, "%s/checkpoints/step-00000006/%s", folder, files[i]);
        expect_status(tiny_run_begin(&run, folder, NULL), STATUS_OK, NULL);
        flip_byte(path, 4); /* the lowest of a number's bits */
        expect_status(tiny_run_resume(folder, 8, NULL), STATUS_BAD_INPUT, "step-00000006: damaged");
        assert_non_null(strstr(status_hint_text(), "to go on from "));
        flip_byte(path, 4);
        expect_status(tiny_run_resume(folder, 8, NULL), STATUS_OK, NULL);
    }
}

/* Refused by name, whichever file of the checkpoint has one other bit. */
static void every_file_is_covered(void **state) {
    struct tiny_run run;
    char folder[512], expected[300];
    struct names names;
    tiny_run_make(*state, "llama", &run);
    snprintf(folder, sizeof folder, "%s/covered", (const char *)*state);
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_OK, NULL);
    assert_int_equal(folder_list(temp_path(folder, "checkpoints/step-00000006"), &names), STATUS_OK);
    assert_int_equal(names.count, 5); /* config, manifest, model, optimizer, state */
    for (size_t i = 0; i < names.count; i++) {
        char path[800];
        struct stat info;
        snprintf(path, sizeof path, "%s/checkpoints/step-00000006/%s", folder, names.items[i]);
        assert_int_equal(stat(path, &info), 0);
        flip_byte(path, info.st_size / 2);
        snprintf(expected, sizeof expected, "%s: ", names.items[i]);
        expect_status(tiny_run_resume(folder, 8, NULL), STATUS_BAD_INPUT, expected);
        assert_non_null(strstr(status_hint_text(), "step-00000004, remove "));
        flip_byte(path, info.st_size / 2);
    }
    names_free(&names);
    expect_status(tiny_run_resume(folder, 8, NULL), STATUS_OK, NULL);
}

static void set_version(const char *path, char version) {
    char *text;
    size_t bytes;
    assert_int_equal(file_read(path, 1 << 20, &text, &bytes), STATUS_OK);
    char *digit = strstr(text, "\"version\": 5");
    assert_non_null(digit);
    digit[strlen("\"version\": ")] = version;
    temp_write_text(path, text);
    mem_free(text);
}

/* One of version 3 had none, and is gone on from as it was then. */
static void a_lost_manifest_is_reported(void **state) {
    struct tiny_run run;
    char whole[512], folder[512], checkpoint[600];
    tiny_run_make(*state, "llama", &run);
    snprintf(whole, sizeof whole, "%s/whole-listed", (const char *)*state);
    snprintf(folder, sizeof folder, "%s/unlisted", (const char *)*state);
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoints/step-00000006", folder);
    expect_status(tiny_run_begin(&run, whole, NULL), STATUS_OK, NULL);
    expect_status(tiny_run_resume(whole, 8, NULL), STATUS_OK, NULL);
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_OK, NULL);
    assert_int_equal(unlink(temp_path(checkpoint, manifest_name)), 0);
    expect_status(tiny_run_resume(folder, 8, NULL), STATUS_BAD_INPUT, "damaged: ballast_manifest.json is missing");
    set_version(temp_path(checkpoint, "state.json"), '3');
    expect_status(tiny_run_resume(folder, 8, NULL), STATUS_OK, NULL);
    const char *model = "model/model.safetensors";
    assert_true(files_equal(temp_path(whole, model), temp_path(folder, model)));
    assert_true(file_exists(temp_path(folder, "checkpoints/step-00000008/ballast_manifest.json")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_are_kept),
        cmocka_unit_test(a_run_without_checkpoints_is_reported),
        cmocka_unit_test(every_file_operation_fails_in_turn),
        cmocka_unit_test(leftovers_of_a_killed_process_are_removed),
        cmocka_unit_test(damaged_checkpoints_are_refused),
        cmocka_unit_test(a_flipped_bit_is_noticed),
        cmocka_unit_test(every_file_is_covered),
        cmocka_unit_test(a_lost_manifest_is_reported),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
