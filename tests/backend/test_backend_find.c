/* Names of devices, and the list of backends behind them. */
#include <string.h>

#include "backend/backend.h"
#include "support/unit.h"

static void the_processor_is_always_there(void **state) {
    const struct backend *backend = NULL;
    (void)state;
    assert_int_equal(backend_find("cpu", &backend), STATUS_OK);
    assert_ptr_equal(backend, &backend_cpu);
    assert_ptr_equal(backends[backend_count - 1], &backend_cpu);
    assert_int_equal(backend_find(NULL, &backend), STATUS_OK);
    assert_non_null(backend);
}

static void other_names_are_refused(void **state) {
    static const char *const wrong[] = {"", "cp", "cpus", "cpu:0", "cuda:", "cuda:x", "cuda:-1", "cuda:1024", "cuda0"};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct backend *backend = NULL;
        assert_int_equal(backend_find(wrong[i], &backend), STATUS_BAD_INPUT);
        if (!strstr(status_message(), "is not cuda, cuda:N or cpu")) fail_msg("'%s': %s", wrong[i], status_message());
        assert_null(backend);
    }
}

/* Each backend knows its own instruction sets, and what no other knows is the processor's. */
static void instruction_sets_name_their_backend(void **state) {
    (void)state;
    assert_string_equal(backend_of_isa("sm_90")->name, "cuda");
    assert_string_equal(backend_of_isa("avx512+amx")->name, "cpu");
    assert_string_equal(backend_of_isa("generic")->name, "cpu");
    for (int i = 0; i < backend_count; i++) {
        const char *isa = backends[i]->isa();
        if (strcmp(isa, "none") != 0) assert_ptr_equal(backend_of_isa(isa), backends[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_processor_is_always_there),
                                       cmocka_unit_test(other_names_are_refused),
                                       cmocka_unit_test(instruction_sets_name_their_backend)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
