/* A launch removes its directories, and those of dead launches, and nothing else. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/folder.h"
#include "comm/launch.h"
#include "support/temp_folder.h"
#include "support/unit.h"

static const uint64_t MARK = 0x0123456789abcdef;

static int begin(void **state) {
    unsetenv("TMPDIR");
    return temp_folder_make(state) || setenv("TMPDIR", *state, 1);
}

/* Its paths, also after the process is gone. */
static void paths_of(const char *folder, pid_t process, char path[LAUNCH_PLACES][600]) {
    char name[LAUNCH_NAME_BYTES];
    launch_print_name(process, MARK, name);
    snprintf(path[LAUNCH_SESSION], 600, "%s/%s", folder, name);
    snprintf(path[LAUNCH_SHARED], 600, "/dev/shm/%s", name);
}

static bool any_there(const char *folder, pid_t process) {
    char path[LAUNCH_PLACES][600];
    paths_of(folder, process, path);
    return file_exists(path[LAUNCH_SESSION]) || file_exists(path[LAUNCH_SHARED]);
}

/* A launch that creates its directories, waits for a byte, and dies without removing them. */
struct launcher {
    pid_t process;
    int go;
};

static struct launcher launch(void) {
    struct launcher launcher;
    int ready[2], go[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    launcher.process = fork();
    assert_true(launcher.process >= 0);
    if (launcher.process == 0) {
        char name[LAUNCH_NAME_BYTES];
        struct launch_places places;
        close(go[1]);
        launch_print_name(getpid(), MARK, name);
        bool made = launch_places_create(name, &places) == STATUS_OK && places.path[LAUNCH_SESSION];
        if (made) temp_write_text(temp_path(places.path[LAUNCH_SESSION], "segment"), "x");
        bool notified = made && write(ready[1], &byte, 1) == 1;
        _exit(notified && read(go[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(ready[1]);
    close(go[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    launcher.go = go[1];
    return launcher;
}

static void end(const struct launcher *launcher) {
    int status;
    close(launcher->go);
    assert_int_equal(waitpid(launcher->process, &status, 0), launcher->process);
    assert_int_equal(status, 0);
}

static void directories_of_dead_launches_go(void **state) {
    struct launcher launcher = launch();
    launch_places_clear();
    assert_true(any_there(*state, launcher.process)); /* it lives */
    end(&launcher);
    assert_true(any_there(*state, launcher.process));
    launch_places_clear();
    assert_false(any_there(*state, launcher.process));
}

/* As where its mpirun still has the lock, or a launch of another namespace, whose process has no number here. */
static void locked_directories_stay(void **state) {
    char path[LAUNCH_PLACES][600];
    struct launcher launcher = launch();
    int lock;
    end(&launcher);
    paths_of(*state, launcher.process, path);
    assert_int_equal(folder_lock(path[LAUNCH_SESSION], &lock, NULL), STATUS_OK);
    launch_places_clear();
    assert_true(file_exists(path[LAUNCH_SESSION]));
    close(lock);
    launch_places_clear();
    assert_false(file_exists(path[LAUNCH_SESSION]));
}

static void directories_of_others_stay(void **state) {
    static const char *const names[] = {
        "ballast-test-abc", "ballast-1-0123", "ballast-0-0123456789abcdef",  "ballast-x-0123456789abcde",
        "ompi.vm.0",        "ballast-12",     "ballast--1-0123456789abcdef", "xballast-4194000-0123456789abcdef"};
    struct launcher launcher = launch();
    char path[LAUNCH_PLACES][600], link[600];
    end(&launcher);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(mkdir(temp_path(*state, names[i]), 0700), 0);
    /* A link by a dead launch's name leads to a directory that is not removed. */
    paths_of(*state, launcher.process, path);
    assert_int_equal(folder_remove(path[LAUNCH_SESSION]), STATUS_OK);
    snprintf(link, sizeof link, "%s", path[LAUNCH_SESSION]);
    assert_int_equal(symlink(temp_path(*state, names[0]), link), 0);
    temp_write_text(temp_path(temp_path(*state, names[0]), "file"), "x");
    launch_places_clear();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_true(file_is_folder(temp_path(*state, names[i])));
    assert_true(file_exists(temp_path(temp_path(*state, names[0]), "file")));
    assert_true(file_exists(link));
    assert_false(file_exists(path[LAUNCH_SHARED]));
}

static void a_launch_removes_its_own(void **state) {
    char name[LAUNCH_NAME_BYTES];
    struct launch_places places;
    launch_print_name(getpid(), MARK, name);
    assert_int_equal(launch_places_create(name, &places), STATUS_OK);
    assert_true(any_there(*state, getpid()));
    temp_write_text(temp_path(places.path[LAUNCH_SESSION], "segment"), "x");
    launch_places_remove(&places);
    assert_false(any_there(*state, getpid()));
}

static void a_directory_that_takes_none_is_named(void **state) {
    struct launch_places places;
    assert_int_equal(setenv("TMPDIR", temp_path(*state, "missing"), 1), 0);
    assert_int_equal(launch_places_create("ballast-1-0123456789abcdef", &places), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "/missing/ballast-1-0123456789abcdef: cannot create"));
    assert_non_null(strstr(status_hint_text(), "TMPDIR"));
    assert_null(places.path[LAUNCH_SHARED]);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, temp_folder_drop)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(directories_of_dead_launches_go),      CASE(locked_directories_stay),
        CASE(directories_of_others_stay),           CASE(a_launch_removes_its_own),
        CASE(a_directory_that_takes_none_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
