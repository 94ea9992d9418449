#include <stdint.h>

#include "base/fault.h"
#include "store/arena.h"
#include "support/unit.h"

static void test_open_and_close(void **state) {
    (void)state;
    struct arena arena;
    assert_int_equal(arena_open(TIER_DEVICE, 3 << 20, &arena), STATUS_OK);
    assert_int_equal((uintptr_t)arena.base % BUFFER_ALIGNMENT, 0);
    assert_int_equal(((char *)arena.base)[(3 << 20) - 1], 0);
    arena_close(&arena);
    assert_null(arena.base);
    assert_int_equal(arena_open(TIER_DEVICE, 0, &arena), STATUS_OK);
    arena_close(&arena);
}

static void test_refused_memory(void **state) {
    (void)state;
    struct arena arena;
    fault_arm(FAULT_ALLOCATE, 1, false);
    assert_int_equal(arena_open(TIER_DEVICE, 1 << 20, &arena), STATUS_FAILED);
    fault_arm(FAULT_ALLOCATE, 0, false);
    assert_int_equal(arena_open(TIER_DEVICE, INT64_MAX / 2, &arena), STATUS_FAILED);
    assert_true(status_hint_text()[0] != '\0');
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_open_and_close), cmocka_unit_test(test_refused_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
