/* Runs one case of a test program in its own process. After a failure on a GPU, every later call of the process fails,
 * so its other cases would show nothing (bench/gpu/parts.sh). Replaces cmocka's function of that name in every test
 * program (tests/CMakeLists.txt).
 *
 * BALLAST_TEST_CASES=list in the environment prints the names, one per line. Any other value is the case to run. */
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/unit.h"

int __real__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction set_up, CMFixtureFunction tear_down);
int __wrap__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction set_up, CMFixtureFunction tear_down);

static bool has_case(const struct CMUnitTest *tests, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(tests[i].name, name) == 0) return true;
    return false;
}

int __wrap__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction set_up, CMFixtureFunction tear_down) {
    const char *wanted = getenv("BALLAST_TEST_CASES");
    if (wanted && strcmp(wanted, "list") == 0) {
        for (size_t i = 0; i < count; i++)
            printf("%s\n", tests[i].name);
        return 0;
    }
    if (wanted && !has_case(tests, count, wanted)) {
        fprintf(stderr, "there is no case '%s'\n", wanted);
        return 2;
    }
    if (wanted) cmocka_set_test_filter(wanted);
    return __real__cmocka_run_group_tests(group, tests, count, set_up, tear_down);
}

/* With BALLAST_PORTABLE_TESTS fixtures are named from the directory above the program's, which may be anywhere. */
__attribute__((constructor)) static void enter_place(void) {
    char program[PATH_MAX];
    if (BALLAST_FIXTURES[0] == '/') return;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length > 0) program[length] = '\0';
    if (length <= 0 || chdir(dirname(dirname(program))) != 0) {
        fprintf(stderr, "the test's own directory is not known\n");
        _exit(1);
    }
}
