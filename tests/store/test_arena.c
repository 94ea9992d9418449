#include <stdint.h>
#include <string.h>

#include "base/fault.h"
#include "store/arena.h"
#include "support/unit.h"

static const enum tier memory_tiers[] = {TIER_DEVICE, TIER_HOST};

static void arenas_open_and_close(void **state) {
    (void)state;
    for (int t = 0; t < 2; t++) {
        struct arena arena;
        assert_int_equal(arena_open(memory_tiers[t], 3 << 20, NULL, &arena), STATUS_OK);
        assert_int_equal((uintptr_t)arena.base % BUFFER_ALIGNMENT, 0);
        assert_int_equal(((char *)arena.base)[(3 << 20) - 1], 0);
        arena_close(&arena);
        assert_null(arena.base);
        assert_int_equal(arena_open(memory_tiers[t], 0, NULL, &arena), STATUS_OK);
        assert_null(arena.base);
        arena_close(&arena);
    }
}

static void refused_memory_is_told(void **state) {
    (void)state;
    struct arena arena;
    fault_arm(FAULT_ALLOCATE, 1, false);
    assert_int_equal(arena_open(TIER_DEVICE, 1 << 20, NULL, &arena), STATUS_FAILED);
    fault_arm(FAULT_ALLOCATE, 0, false);
    assert_int_equal(arena_open(TIER_HOST, INT64_MAX / 2, NULL, &arena), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "host"));
    assert_true(status_hint_text()[0] != '\0');
}

/* Memory has no channels and asks for no alignment. */
static void what_is_written_is_read(void **state) {
    (void)state;
    struct arena arena;
    char text[8] = "";
    assert_int_equal(arena_open(TIER_HOST, 100, NULL, &arena), STATUS_OK);
    assert_int_equal(arena_write(&arena, 93, "weights", 7, 5), STATUS_OK);
    assert_memory_equal((char *)arena.base + 93, "weights", 7);
    assert_int_equal(arena_read(&arena, 94, text, 6, 0), STATUS_OK);
    assert_string_equal(text, "eights");
    assert_int_equal(arena_read(&arena, 100, text, 0, 0), STATUS_OK);
    arena_close(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arenas_open_and_close),
        cmocka_unit_test(refused_memory_is_told),
        cmocka_unit_test(what_is_written_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
