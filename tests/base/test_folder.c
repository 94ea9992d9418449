/* Directories: creating, listing, publishing and removing them, with each operation failing in turn. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/mem.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/unit.h"

static void parents_are_made(void **state) {
    const char *deep = temp_path(*state, "a/b//c/");
    assert_int_equal(folder_create(deep), STATUS_OK);
    assert_true(file_is_folder(temp_path(*state, "a/b/c")));
    assert_int_equal(folder_create(deep), STATUS_OK);
    temp_write_text(temp_path(*state, "file"), "");
    assert_int_equal(folder_create(temp_path(*state, "file")), STATUS_FAILED);
    assert_int_equal(folder_create(temp_path(*state, "file/below")), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "file/below"));
    assert_int_equal(folder_create(""), STATUS_FAILED);
    char longest[6000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(folder_create(longest), STATUS_FAILED);
    assert_int_equal(folder_create("/"), STATUS_OK);
}

static void new_names_are_synced(void **state) {
    int64_t before = fault_count(FAULT_SYNC);
    assert_int_equal(folder_create(temp_path(*state, "a/b/c")), STATUS_OK);
    assert_int_equal(fault_count(FAULT_SYNC) - before, 3);
    assert_int_equal(folder_create(temp_path(*state, "a/b/c")), STATUS_OK);
    assert_int_equal(fault_count(FAULT_SYNC) - before, 3); /* nothing was new */
    fault_arm(FAULT_SYNC, 1, false);
    assert_int_equal(folder_create(temp_path(*state, "d")), STATUS_FAILED);
    fault_arm(FAULT_SYNC, 0, false);
}

static void names_are_sorted_and_complete(void **state) {
    static const char *const expected[] = {"..a", ".hidden", "B", "a", "b 1", "b 10", "b 2", "\xc3\xa9"};
    enum { COUNT = sizeof expected / sizeof *expected };
    for (size_t i = 0; i < COUNT; i++)
        temp_write_text(temp_path(*state, expected[(i * 5 + 3) % COUNT]), "");
    struct names names;
    assert_int_equal(folder_list(*state, &names), STATUS_OK);
    assert_int_equal(names.count, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        assert_string_equal(names.items[i], expected[i]);
    names_free(&names);
    assert_int_equal(names.count, 0);
    names = (struct names){.count = 5};
    assert_int_equal(folder_list(temp_path(*state, "absent"), &names), STATUS_BAD_INPUT);
    assert_int_equal(folder_list(temp_path(*state, "a"), &names), STATUS_BAD_INPUT);
    assert_int_equal(names.count, 5);
}

static void make_tree(const char *top) {
    assert_int_equal(folder_create(temp_path(top, "one/two")), STATUS_OK);
    temp_write_text(temp_path(top, "a"), "1");
    temp_write_text(temp_path(top, "one/b"), "2");
    temp_write_text(temp_path(top, "one/two/c"), "3");
}

static void removal_does_not_follow_links(void **state) {
    const char *outside = temp_path(*state, "outside"), *tree = temp_path(*state, "tree");
    make_tree(outside);
    make_tree(tree);
    assert_int_equal(symlink(outside, temp_path(tree, "link")), 0);
    assert_int_equal(symlink("/nowhere/at/all", temp_path(tree, "dangling")), 0);
    assert_true(file_exists(temp_path(tree, "dangling")));
    assert_int_equal(folder_remove(tree), STATUS_OK);
    assert_false(file_exists(tree));
    assert_true(file_exists(temp_path(outside, "one/two/c")));
    assert_int_equal(folder_remove(tree), STATUS_OK);
    assert_int_equal(symlink(outside, tree), 0);
    assert_int_equal(folder_remove(tree), STATUS_OK);
    assert_true(file_exists(temp_path(outside, "one/two/c")));
}

static void published_folders_replace_nothing(void **state) {
    const char *from = temp_path(*state, "from.new"), *to = temp_path(*state, "to");
    make_tree(from);
    assert_int_equal(symlink("/nowhere/at/all", temp_path(from, "dangling")), 0);
    make_tree(to);
    temp_write_text(temp_path(to, "old"), "");
    assert_int_equal(folder_publish(from, to), STATUS_FAILED);
    assert_true(file_exists(temp_path(from, "one/two/c")) && file_exists(temp_path(to, "old")));
    assert_int_equal(folder_remove(to), STATUS_OK);
    assert_int_equal(folder_publish(from, temp_path(*state, "to/")), STATUS_OK);
    assert_true(file_exists(temp_path(to, "one/two/c")) && !file_exists(from));
    assert_int_equal(folder_publish(from, temp_path(*state, "other")), STATUS_FAILED);
}

static void every_folder_is_synced(void **state) {
    const char *from = temp_path(*state, "from");
    make_tree(from);
    int64_t before = fault_count(FAULT_SYNC);
    assert_int_equal(folder_publish(from, temp_path(*state, "to")), STATUS_OK);
    assert_int_equal(fault_count(FAULT_SYNC) - before, 3 + 1); /* directories, the parent */
}

static void paths_are_joined(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"}, {"a/b", "c/d", "a/b/c/d"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = path_join(cases[i][0], cases[i][1]);
        assert_string_equal(path, cases[i][2]);
        mem_free(path);
    }
}

static enum status make_and_publish(void *folder) {
    TRY(folder_remove(temp_path(folder, "work")));
    TRY(folder_create(temp_path(folder, "work/inner")));
    temp_write_text(temp_path(folder, "work/inner/file"), "x");
    TRY(folder_remove(temp_path(folder, "done")));
    return folder_publish(temp_path(folder, "work"), temp_path(folder, "done"));
}

static void each_operation_may_fail(void **state) {
    static const enum fault_kind kinds[] = {FAULT_ALLOCATE, FAULT_OPEN, FAULT_READ, FAULT_SYNC, FAULT_RENAME};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        assert_int_equal(make_and_publish(*state), STATUS_OK); /* so that there is something to remove */
        assert_true(fault_sweep(kinds[i], false, make_and_publish, *state) > 0);
        assert_true(fault_sweep(kinds[i], true, make_and_publish, *state) > 0);
    }
    assert_true(file_exists(temp_path(*state, "done/inner/file")));
}

/* What fails while output is made is no fault of the input. */
static void output_failures_are_not_bad_input(void **state) {
    const char *tree = temp_path(*state, "tree");
    make_tree(tree);
    fault_arm(FAULT_OPEN, 1, false);
    assert_int_equal(folder_remove(tree), STATUS_FAILED);
    fault_arm(FAULT_OPEN, 2, false);
    assert_int_equal(folder_publish(tree, temp_path(*state, "to")), STATUS_FAILED);
    fault_arm(FAULT_OPEN, 0, false);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_drop)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(parents_are_made),
        IN_FOLDER(new_names_are_synced),
        IN_FOLDER(names_are_sorted_and_complete),
        IN_FOLDER(removal_does_not_follow_links),
        IN_FOLDER(published_folders_replace_nothing),
        IN_FOLDER(every_folder_is_synced),
        cmocka_unit_test(paths_are_joined),
        IN_FOLDER(each_operation_may_fail),
        IN_FOLDER(output_failures_are_not_bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
