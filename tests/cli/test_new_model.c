/* A new model appears complete or not at all, whichever operation fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/commands/command.h"
#include "support/fault_sweep.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/unit.h"

struct attempt {
    const char *folder; /* holds nothing but the text and the model */
    const char *text;   /* NULL: without a tokenizer */
};

/* After a failure: no model, or (when only the last sync failed) a whole one; never anything else. */
static void check_left_over(const struct attempt *attempt) {
    struct names names;
    assert_int_equal(folder_list(attempt->folder, &names), STATUS_OK);
    for (size_t i = 0; i < names.count; i++) {
        if (strcmp(names.items[i], "text.txt") == 0) continue;
        assert_string_equal(names.items[i], "model");
        struct model *model;
        assert_int_equal(model_open(temp_path(attempt->folder, "model"), &model), STATUS_OK);
        model_free(model);
    }
    names_free(&names);
}

static enum status make(void *payload) {
    const struct attempt *attempt = payload;
    struct new_model wanted = {.seed = 3, .dtype = DTYPE_F32, .tokenizer_text = attempt->text};
    int64_t parameters;
    enum status status = model_config_init("llama", &wanted.config);
    wanted.config.hidden = 8, wanted.config.layers = 1, wanted.config.heads = 2, wanted.config.ffn = 12;
    wanted.config.vocab_size = 270, wanted.config.context = 16;
    if (status == STATUS_OK) status = new_model_write(&wanted, temp_path(attempt->folder, "model"), &parameters);
    return status;
}

/* Without the library, whose operations would be counted. */
static void remove_model(const struct attempt *attempt) {
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s/model'", attempt->folder);
    assert_int_equal(system(command), 0);
}

static enum status make_and_check(void *payload) {
    enum status status = make(payload);
    if (status != STATUS_OK) {
        char message[512];
        snprintf(message, sizeof message, "%s", status_message());
        for (int kind = 0; kind <= FAULT_RENAME; kind++)
            fault_arm((enum fault_kind)kind, 0, false);
        check_left_over(payload);
        status_set(status, "%s", message);
    }
    remove_model(payload);
    return status;
}

static void each_file_operation_may_fail(void **state) {
    struct attempt attempt = {.folder = *state, .text = temp_path(*state, "text.txt")};
    make_text(attempt.text, 2000);
    static const enum fault_kind kinds[] = {FAULT_OPEN, FAULT_READ, FAULT_WRITE, FAULT_SYNC, FAULT_RENAME};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        assert_true(fault_sweep(kinds[i], false, make_and_check, &attempt) > 0);
}

static void each_allocation_may_fail(void **state) {
    struct attempt attempt = {.folder = *state};
    assert_true(fault_sweep(FAULT_ALLOCATE, false, make_and_check, &attempt) > 20);
}

/* The next start makes the model and removes what the killed one left. */
static void make_after_kill(void *payload) {
    const struct attempt *attempt = payload;
    if (!file_exists(temp_path(attempt->folder, "model"))) run_apart(make, payload);
    check_left_over(attempt);
    assert_int_equal(temp_count(attempt->folder), 2);
    remove_model(attempt);
}

static enum status make_and_remove(void *payload) {
    TRY(make(payload));
    remove_model(payload);
    return STATUS_OK;
}

static void a_kill_at_any_operation_leaves_all_or_nothing(void **state) {
    struct attempt attempt = {.folder = *state, .text = temp_path(*state, "text.txt")};
    make_text(attempt.text, 2000);
    static const enum fault_kind kinds[] = {FAULT_OPEN, FAULT_READ, FAULT_WRITE, FAULT_SYNC, FAULT_RENAME};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        assert_true(fault_sweep_killed(kinds[i], make_and_remove, make_after_kill, &attempt) > 0);
}

/* Somebody else's model that is still being made. */
static void what_is_held_stays(void **state) {
    struct attempt attempt = {.folder = *state};
    int lock;
    const char *made = temp_path(*state, ".ballast-new-0123456789abcdef"),
               *others = temp_path(*state, ".ballast-new-x");
    assert_int_equal(folder_create(made), STATUS_OK);
    assert_int_equal(folder_create(others), STATUS_OK);
    assert_int_equal(folder_lock(made, &lock, NULL), STATUS_OK);
    run_apart(make, &attempt);
    assert_true(file_is_folder(made));
    close(lock);
    remove_model(&attempt);
    run_apart(make, &attempt);
    assert_false(file_exists(made));
    assert_true(file_is_folder(others)); /* none of ours: another name */
}

static void the_same_seed_gives_the_same_bytes(void **state) {
    struct attempt attempt = {.folder = *state};
    char *first, *second;
    size_t first_bytes, second_bytes;
    const char *path = temp_path(*state, "model/model.safetensors");
    assert_int_equal(make(&attempt), STATUS_OK);
    assert_int_equal(file_read(path, 1 << 24, &first, &first_bytes), STATUS_OK);
    assert_int_equal(folder_remove(temp_path(*state, "model")), STATUS_OK);
    assert_int_equal(make(&attempt), STATUS_OK);
    assert_int_equal(file_read(path, 1 << 24, &second, &second_bytes), STATUS_OK);
    assert_int_equal(first_bytes, second_bytes);
    assert_memory_equal(first, second, first_bytes);
    mem_free(first);
    mem_free(second);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_drop)
    const struct CMUnitTest tests[] = {
        CASE(a_kill_at_any_operation_leaves_all_or_nothing), /* first: before this process has OpenMP's threads */
        CASE(what_is_held_stays),
        CASE(each_file_operation_may_fail),
        CASE(each_allocation_may_fail),
        CASE(the_same_seed_gives_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
