/* Heap memory, growing arrays and scratch regions, with every allocation failing in turn. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "support/fault_sweep.h"
#include "support/unit.h"

static void arrays_are_zeroed(void **state) {
    (void)state;
    for (size_t count = 0; count < 2000; count = count * 2 + 1) {
        unsigned char *array = mem_array(count, 3);
        assert_non_null(array);
        for (size_t i = 0; i < 3 * count; i++)
            assert_int_equal(array[i], 0);
        memset(array, 0xff, 3 * count);
        mem_free(array);
    }
    mem_free(NULL);
}

static void products_that_overflow_are_refused(void **state) {
    (void)state;
    static const size_t sizes[][2] = {
        {SIZE_MAX, 2}, {SIZE_MAX / 2 + 1, 2}, {(size_t)1 << 32, (size_t)1 << 32}, {SIZE_MAX, SIZE_MAX}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct scratch scratch = {0};
        status_clear();
        assert_null(mem_array(sizes[i][0], sizes[i][1]));
        assert_non_null(strstr(status_message(), "out of memory"));
        assert_null(mem_resize(NULL, sizes[i][0], sizes[i][1]));
        assert_null(scratch_alloc(&scratch, sizes[i][0], sizes[i][1]));
        scratch_free(&scratch);
    }
    struct scratch scratch = {0};
    for (size_t less = 0; less < 64; less++)
        assert_null(scratch_alloc(&scratch, SIZE_MAX - less, 1));
    scratch_free(&scratch);
    size_t out = 7;
    assert_false(mem_multiply(SIZE_MAX, 2, &out));
    assert_false(mem_add(SIZE_MAX, 1, &out));
    assert_true(mem_multiply(SIZE_MAX, 1, &out) && out == SIZE_MAX);
    assert_true(mem_add(SIZE_MAX - 1, 1, &out) && out == SIZE_MAX);
}

static void failed_resize_keeps_the_block(void **state) {
    (void)state;
    char *block = mem_string("kept");
    fault_arm(FAULT_ALLOCATE, 1, false);
    assert_null(mem_resize(block, 1000, 1));
    fault_arm(FAULT_ALLOCATE, 0, false);
    assert_string_equal(block, "kept");
    char *grown = mem_resize(block, 1000, 1);
    assert_non_null(grown);
    assert_string_equal(grown, "kept");
    mem_free(grown);
}

static void text_of_any_length_is_formatted(void **state) {
    (void)state;
    struct scratch scratch = {0};
    for (int width = 0; width < 100000; width = width * 3 + 1) {
        char *text = mem_format("%*s|", width, ""), *again = scratch_format(&scratch, "%*s|", width, "");
        assert_non_null(text);
        assert_int_equal(strlen(text), width + 1);
        assert_string_equal(text, again);
        char *copy = mem_string(text);
        assert_string_equal(copy, text);
        mem_free(copy);
        mem_free(text);
    }
    scratch_free(&scratch);
}

static void vectors_keep_what_is_pushed(void **state) {
    (void)state;
    VEC(int64_t) v = {0};
    for (int64_t i = 0; i < 10000; i++) {
        assert_int_equal(vec_push(&v, i * i), STATUS_OK);
        assert_true(v.count <= v.capacity);
    }
    for (int64_t i = 0; i < 10000; i++)
        assert_int_equal(v.items[i], i * i);
    vec_free(&v);
    assert_null(v.items);
    assert_int_equal(v.count + v.capacity, 0);
    assert_int_equal(vec_reserve(&v, 100), STATUS_OK);
    int64_t *before = v.items;
    for (int64_t i = 0; i < 100; i++)
        assert_int_equal(vec_push(&v, i), STATUS_OK);
    assert_ptr_equal(v.items, before);
    assert_int_equal(vec_reserve(&v, SIZE_MAX / 4), STATUS_FAILED);
    assert_int_equal(v.items[99], 99);
    vec_free(&v);
}

/* Each piece of a region is zero, aligned, and touches no other: every byte of it gets the piece's number. */
static void scratch_pieces_are_apart(void **state) {
    (void)state;
    enum { PIECES = 3000 };
    static unsigned char *piece[PIECES];
    static size_t bytes[PIECES];
    uint64_t seed = 20240607;
    print_message("seed %llu\n", (unsigned long long)seed);
    struct scratch scratch = {0};
    for (uint32_t i = 0; i < PIECES; i++) {
        uint64_t draw = random_u64(seed, RANDOM_TEST, 0, i);
        bytes[i] = draw % 97 == 0 ? draw % 200000 : draw % 100;
        piece[i] = scratch_alloc(&scratch, bytes[i], 1);
        assert_non_null(piece[i]);
        assert_int_equal((uintptr_t)piece[i] % 16, 0);
        for (size_t j = 0; j < bytes[i]; j++)
            assert_true(piece[i][j] == 0);
        memset(piece[i], (int)(i % 255 + 1), bytes[i]);
    }
    for (uint32_t i = 0; i < PIECES; i++)
        for (size_t j = 0; j < bytes[i]; j++)
            assert_true(piece[i][j] == i % 255 + 1);
    scratch_free(&scratch);
    assert_null(scratch.blocks);
    scratch_free(&scratch);
}

static enum status build_things(void *payload) {
    (void)payload;
    enum status status = STATUS_OK;
    struct scratch scratch = {0};
    VEC(char *) names = {0};
    for (int i = 0; i < 30 && status == STATUS_OK; i++) {
        char *name = mem_format("layer %d", i);
        status = name ? vec_push(&names, name) : STATUS_FAILED;
        if (status != STATUS_OK) mem_free(name);
        if (status == STATUS_OK && !scratch_alloc(&scratch, 30000, 1)) status = STATUS_FAILED;
        if (status == STATUS_OK && !scratch_format(&scratch, "%d", i)) status = STATUS_FAILED;
    }
    for (size_t i = 0; i < names.count; i++) {
        char expected[32];
        snprintf(expected, sizeof expected, "layer %zu", i);
        assert_string_equal(names.items[i], expected);
        mem_free(names.items[i]);
    }
    vec_free(&names);
    scratch_free(&scratch);
    return status;
}

static void each_allocation_may_fail(void **state) {
    (void)state;
    assert_true(fault_sweep(FAULT_ALLOCATE, false, build_things, NULL) > 30);
    assert_true(fault_sweep(FAULT_ALLOCATE, true, build_things, NULL) > 30);
}

static void faults_come_when_armed(void **state) {
    (void)state;
    int64_t before = fault_count(FAULT_SYNC);
    for (int i = 0; i < 3; i++)
        assert_false(fault_point(FAULT_SYNC));
    assert_int_equal(fault_count(FAULT_SYNC) - before, 3);
    fault_arm(FAULT_SYNC, 2, false);
    assert_false(fault_point(FAULT_SYNC));
    assert_false(fault_point(FAULT_READ));
    assert_true(fault_point(FAULT_SYNC));
    assert_false(fault_point(FAULT_SYNC));
    fault_arm(FAULT_SYNC, 2, true);
    assert_false(fault_point(FAULT_SYNC));
    assert_true(fault_point(FAULT_SYNC));
    assert_true(fault_point(FAULT_SYNC));
    fault_arm(FAULT_SYNC, 0, false);
    assert_false(fault_point(FAULT_SYNC));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_are_zeroed),
        cmocka_unit_test(products_that_overflow_are_refused),
        cmocka_unit_test(failed_resize_keeps_the_block),
        cmocka_unit_test(text_of_any_length_is_formatted),
        cmocka_unit_test(vectors_keep_what_is_pushed),
        cmocka_unit_test(scratch_pieces_are_apart),
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(faults_come_when_armed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
