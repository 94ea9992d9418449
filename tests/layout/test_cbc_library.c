/* CBC is opened when the first integer program is solved. A message reports a missing library. */
#include <stdlib.h>
#include <string.h>

#include "plan/layout/ilp_cbc.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static void expect_refused(const char *path, const char *message) {
    const struct cbc_library *cbc = NULL;
    assert_int_equal(setenv("BALLAST_CBC", path, 1), 0);
    expect_status(cbc_library_open(&cbc), STATUS_FAILED, message);
    assert_non_null(strstr(status_hint_text(), "apt-get install coinor-libcbc3"));
    assert_null(cbc);
}

/* First of all: the library stays open. */
static void a_missing_library_is_named(void **state) {
    (void)state;
    expect_refused("/nowhere/libCbcSolver.so",
                   "the integer program needs CBC, which cannot be opened: /nowhere/libCbc");
    expect_refused("libm.so.6", "libm.so.6: has no Cbc_newModel");
}

static void it_is_opened_once(void **state) {
    (void)state;
    const struct cbc_library *cbc, *again;
    assert_int_equal(unsetenv("BALLAST_CBC"), 0);
    expect_status(cbc_library_open(&cbc), STATUS_OK, NULL);
    expect_status(cbc_library_open(&again), STATUS_OK, NULL);
    assert_ptr_equal(cbc, again);
    Cbc_Model *model = cbc->newModel();
    assert_non_null(model);
    cbc->deleteModel(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_library_is_named),
        cmocka_unit_test(it_is_opened_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
