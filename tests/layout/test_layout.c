/* Layouts: their number, parts and steps, and the layout that a reshape keeps, each against plain counting. */
#include "plan/layout/sharding.h"

#include <stdio.h>
#include <string.h>

#include "support/case_layout.h"
#include "support/unit.h"

static struct device_mesh mesh_of(int axes, int64_t a, int64_t b, int64_t c) {
    return (struct device_mesh){.axes = axes, .sizes = {a, b, c}};
}

static void numbers_name_each_layout_once(void **state) {
    (void)state;
    for (int axes = 1; axes <= DEVICE_MESH_AXES_MAX; axes++) {
        struct device_mesh mesh = mesh_of(axes, 2, 2, 2);
        for (int rank = 0; rank <= 4; rank++) {
            int count = layout_count(&mesh, rank), powers = 1;
            for (int axis = 0; axis < axes; axis++)
                powers *= rank + 1;
            assert_int_equal(count, powers);
            for (int number = 0; number < count; number++) {
                struct layout layout = layout_of_number(number, &mesh, rank);
                assert_int_equal(layout_number(&layout, &mesh, rank), number);
            }
        }
        struct layout replicated = layout_replicated();
        assert_int_equal(layout_number(&replicated, &mesh, 3), 0);
    }
}

static struct layout parse(const struct device_mesh *mesh, const char *const *dimensions, int rank) {
    struct layout layout = layout_replicated();
    for (int d = 0; d < rank; d++)
        assert_int_equal(layout_parse_dimension(dimensions[d], mesh, d, &layout), STATUS_OK);
    return layout;
}

static void texts_are_read_and_printed(void **state) {
    (void)state;
    char text[LAYOUT_TEXT];
    struct device_mesh mesh = mesh_of(3, 2, 2, 2);
    struct layout layout = parse(&mesh, (const char *[]){"S02", "R", "S1"}, 3);
    assert_string_equal(layout_print(&layout, 3, text), "S02RS1");
    for (int number = 0; number < layout_count(&mesh, 4); number++) {
        struct layout one = layout_of_number(number, &mesh, 4), again = layout_replicated();
        char dimension[LAYOUT_TEXT];
        const char *at = layout_print(&one, 4, text);
        for (int d = 0; d < 4; d++) {
            size_t length = 1 + strspn(at + 1, "0123456789");
            snprintf(dimension, sizeof dimension, "%.*s", (int)length, at);
            assert_int_equal(layout_parse_dimension(dimension, &mesh, d, &again), STATUS_OK);
            at += length;
        }
        assert_true(layout_equal(&one, &again));
    }
}

static void wrong_texts_are_refused(void **state) {
    (void)state;
    struct device_mesh mesh = mesh_of(2, 2, 2, 1);
    const char *const wrong[] = {"", "S", "r", "S2", "S10", "S00", "S0 ", "RR", "0"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct layout layout = layout_replicated();
        assert_int_equal(layout_parse_dimension(wrong[i], &mesh, 0, &layout), STATUS_BAD_INPUT);
    }
    struct layout layout = parse(&mesh, (const char *[]){"S0"}, 1);
    assert_int_equal(layout_parse_dimension("S0", &mesh, 1, &layout), STATUS_BAD_INPUT);
}

/* The steps of a layout are all changes of one axis that keep the axes of each dimension ascending as they are added
 * and dropped at the end. */
static void steps_change_the_last_axis(void **state) {
    (void)state;
    struct device_mesh mesh = mesh_of(2, 2, 2, 1);
    struct layout layout = parse(&mesh, (const char *[]){"S0", "S1", "R"}, 3);
    struct layout_step steps[LAYOUT_STEPS_MAX];
    const char *const expected[] = {"RS1R", "S0RR", "RS1S0", "S01RR", "S0RS1"};
    char text[LAYOUT_TEXT];
    assert_int_equal(layout_steps(&layout, &mesh, 3, steps), 5);
    for (int i = 0; i < 5; i++) {
        struct layout after = layout_after(&layout, &steps[i]);
        assert_string_equal(layout_print(&after, 3, text), expected[i]);
    }
    layout = parse(&mesh, (const char *[]){"S01", "R"}, 2);
    assert_int_equal(layout_steps(&layout, &mesh, 2, steps), 2); /* axis 0 stays until axis 1 is gone */
}

/* Elements of the tensor that a device holds, as flags by row-major position. */
static void mark_part(const struct layout *layout, const struct device_mesh *mesh, const struct layout_shape *shape,
                      int64_t device, int64_t elements, bool *held) {
    int64_t begin[LAYOUT_RANK_MAX], size[LAYOUT_RANK_MAX];
    layout_part(layout, mesh, shape, device, begin, size);
    for (int64_t i = 0; i < elements; i++) {
        int64_t rest = i;
        held[i] = true;
        for (int d = shape->rank - 1; d >= 0; d--) {
            int64_t at = rest % shape->dims[d];
            rest /= shape->dims[d];
            if (at < begin[d] || at >= begin[d] + size[d]) held[i] = false;
        }
    }
}

enum { ELEMENTS = 192 };

static void parts_cover_the_tensor_evenly(void **state) {
    (void)state;
    struct device_mesh mesh = mesh_of(3, 2, 3, 2);
    struct layout_shape shape = {3, {12, 4, 4}};
    for (int number = 0; number < layout_count(&mesh, 3); number++) {
        struct layout layout = layout_of_number(number, &mesh, 3);
        int64_t held_by[ELEMENTS] = {0}, local;
        if (!layout_fits(&layout, &mesh, &shape)) continue;
        local = layout_local_elements(&layout, &mesh, &shape);
        for (int64_t device = 0; device < 12; device++) {
            bool held[ELEMENTS];
            int64_t count = 0;
            mark_part(&layout, &mesh, &shape, device, ELEMENTS, held);
            for (int i = 0; i < ELEMENTS; i++)
                count += held[i], held_by[i] += held[i];
            assert_int_equal(count, local);
        }
        for (int i = 0; i < ELEMENTS; i++)
            assert_int_equal(held_by[i], 12 * local / ELEMENTS);
    }
}

static bool same_parts(const struct device_mesh *mesh, const struct layout *a, const struct layout_shape *from,
                       const struct layout *b, const struct layout_shape *to, int64_t elements) {
    bool held[ELEMENTS], kept[ELEMENTS];
    for (int64_t device = 0; device < device_mesh_devices(mesh, device_mesh_all_axes(mesh)); device++) {
        mark_part(a, mesh, from, device, elements, held);
        mark_part(b, mesh, to, device, elements, kept);
        if (memcmp(held, kept, (size_t)elements * sizeof *held) != 0) return false;
    }
    return true;
}

/* For every layout of one shape, a layout of the other is found exactly when there is one. */
static void check_reshape(const struct device_mesh *mesh, const struct layout_shape *from,
                          const struct layout_shape *to, int64_t elements) {
    for (int number = 0; number < layout_count(mesh, from->rank); number++) {
        struct layout layout = layout_of_number(number, mesh, from->rank), found;
        bool exists = false;
        if (!layout_fits(&layout, mesh, from)) continue;
        for (int other = 0; other < layout_count(mesh, to->rank) && !exists; other++) {
            struct layout kept = layout_of_number(other, mesh, to->rank);
            exists = layout_fits(&kept, mesh, to) && same_parts(mesh, &layout, from, &kept, to, elements);
        }
        assert_int_equal(layout_reshape(&layout, mesh, from, to, &found), exists);
        if (!exists) continue;
        assert_true(layout_fits(&found, mesh, to));
        assert_true(same_parts(mesh, &layout, from, &found, to, elements));
    }
}

static void reshapes_keep_what_can_be_kept(void **state) {
    (void)state;
    static const struct layout_shape shapes[] = {
        {3, {4, 4, 4}}, {4, {2, 8, 2, 2}}, {1, {64}}, {2, {8, 8}}, {4, {1, 4, 1, 16}}, {2, {16, 4}}, {3, {1, 32, 2}},
    };
    static const struct device_mesh meshes[] = {
        {.axes = 1, .sizes = {2}},       {.axes = 2, .sizes = {2, 2}}, {.axes = 2, .sizes = {4, 2}},
        {.axes = 3, .sizes = {2, 2, 2}}, {.axes = 2, .sizes = {2, 8}},
    };
    enum { SHAPES = sizeof shapes / sizeof *shapes, MESHES = sizeof meshes / sizeof *meshes };
    for (int m = 0; m < MESHES; m++)
        for (int a = 0; a < SHAPES; a++)
            for (int b = 0; b < SHAPES; b++)
                check_reshape(&meshes[m], &shapes[a], &shapes[b], 64);
    const struct layout_shape odd[] = {{2, {6, 4}}, {2, {3, 8}}, {3, {2, 3, 4}}, {1, {24}}};
    const struct device_mesh thirds = {.axes = 2, .sizes = {3, 2}};
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++)
            check_reshape(&thirds, &odd[a], &odd[b], 24);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_name_each_layout_once), cmocka_unit_test(texts_are_read_and_printed),
        cmocka_unit_test(wrong_texts_are_refused),       cmocka_unit_test(steps_change_the_last_axis),
        cmocka_unit_test(parts_cover_the_tensor_evenly), cmocka_unit_test(reshapes_keep_what_can_be_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
