/* Meshes: coordinates, costs of collectives, and rows found from measured pairs. */
#include "plan/layout/sharding.h"

#include <math.h>
#include <string.h>

#include "support/case_layout.h"
#include "support/fault_sweep.h"
#include "support/unit.h"

static void devices_are_numbered_along_the_last_axis(void **state) {
    (void)state;
    struct device_mesh mesh = {.axes = 2, .sizes = {4, 4}};
    int64_t place[DEVICE_MESH_AXES_MAX];
    device_mesh_place(&mesh, 5, place);
    assert_true(place[0] == 1 && place[1] == 1);
    device_mesh_place(&mesh, 11, place);
    assert_true(place[0] == 2 && place[1] == 3);
    for (int64_t i = 0; i < 4; i++) {
        assert_int_equal(device_mesh_neighbour(&mesh, 2, 1, i), i);
        assert_int_equal(device_mesh_neighbour(&mesh, 2, 0, i), 4 * i + 2);
    }
}

static void collectives_cost_what_a_ring_takes(void **state) {
    (void)state;
    struct device_mesh mesh = {.axes = 2, .sizes = {2, 4}, .latency_s = {3, 5}, .s_per_byte = {7, 2}};
    assert_true(device_mesh_all_gather_s(&mesh, 1, 512) == 3 + 7 * 256);
    assert_true(device_mesh_reduce_scatter_s(&mesh, 2, 512) == 5 + 2 * 384);
    assert_true(device_mesh_all_reduce_s(&mesh, 2, 512) == 5 + 2 * 768);
    assert_true(device_mesh_all_to_all_s(&mesh, 2, 512) == 5 + 2 * 384);
    assert_true(device_mesh_all_reduce_s(&mesh, 3, 512) == 5 + 7 * 896); /* the worst of each, 8 devices */
    mesh.sizes[0] = 1;
    assert_true(device_mesh_all_gather_s(&mesh, 1, 512) == 0);
    assert_true(device_mesh_all_gather_s(&mesh, 3, 512) == 5 + 2 * 384); /* axes of one device count nothing */
    assert_true(device_mesh_all_gather_s(&mesh, 0, 512) == 0);
}

static void wrong_meshes_are_refused(void **state) {
    (void)state;
    struct device_mesh good = {.axes = 2, .sizes = {2, 4}}, mesh = good;
    assert_int_equal(device_mesh_check(&good), STATUS_OK);
    mesh.axes = 4;
    assert_int_equal(device_mesh_check(&mesh), STATUS_BAD_INPUT);
    mesh = good, mesh.sizes[1] = 0;
    assert_int_equal(device_mesh_check(&mesh), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "axis 1"));
    mesh = good, mesh.sizes[1] = INT64_MAX;
    assert_int_equal(device_mesh_check(&mesh), STATUS_BAD_INPUT);
    mesh = good, mesh.latency_s[0] = NAN;
    assert_int_equal(device_mesh_check(&mesh), STATUS_BAD_INPUT);
    mesh = good, mesh.s_per_byte[0] = -1;
    assert_int_equal(device_mesh_check(&mesh), STATUS_BAD_INPUT);
}

enum { MAX = 12 };
/* All pairs of `count` devices, those with the same lead[] fast. */
static int make_pairs(int count, const int *lead, double fast, double slow, struct device_pair *out) {
    int pairs = 0;
    for (int i = 0; i < count; i++)
        for (int k = i + 1; k < count; k++) /* a little noise within the class */
            out[pairs++] = (struct device_pair){i, k, 1e-5, (lead[i] == lead[k] ? fast : slow) * (1 + 0.01 * (k % 5))};
    return pairs;
}

static void expect_rows(int count, const int *lead, double fast, double slow, int rows, const int *expected) {
    struct device_pair pairs[MAX * MAX];
    struct mesh_rows found;
    int pair_count = make_pairs(count, lead, fast, slow, pairs);
    assert_int_equal(mesh_rows_search(count, pairs, pair_count, &found), STATUS_OK);
    assert_int_equal(found.rows, rows);
    assert_int_equal(found.columns, count / rows);
    assert_memory_equal(found.devices, expected, (size_t)count * sizeof *expected);
    mesh_rows_free(&found);
}

static void fast_pairs_become_rows(void **state) {
    (void)state;
    expect_rows(6, (const int[]){0, 1, 0, 1, 0, 1}, 1, 9, 2, (const int[]){0, 2, 4, 1, 3, 5});
    expect_rows(4, (const int[]){0, 0, 1, 1}, 1, 9, 2, (const int[]){0, 1, 2, 3});
    /* Parts of unequal size, and one class alone: as square as can be. */
    expect_rows(6, (const int[]){0, 0, 1, 1, 1, 1}, 1, 9, 2, (const int[]){0, 1, 2, 3, 4, 5});
    expect_rows(8, (const int[]){0, 0, 0, 0, 0, 0, 0, 0}, 1, 9, 2, (const int[]){0, 1, 2, 3, 4, 5, 6, 7});
    expect_rows(7, (const int[]){0, 0, 0, 0, 0, 0, 0}, 1, 9, 1, (const int[]){0, 1, 2, 3, 4, 5, 6});
    expect_rows(1, (const int[]){0}, 1, 9, 1, (const int[]){0});
}

static void wrong_pairs_are_refused(void **state) {
    (void)state;
    const struct device_pair twice[] = {{0, 1, 1, 1}, {0, 1, 1, 1}, {1, 2, 1, 1}};
    assert_int_equal(case_check_pairs(3, twice, 3), STATUS_BAD_INPUT);
    assert_int_equal(case_check_pairs(3, twice + 1, 2), STATUS_BAD_INPUT);
    assert_int_equal(case_check_pairs(2, twice + 2, 1), STATUS_BAD_INPUT);
    const struct device_pair unknown[] = {{0, 1, 1, NAN}};
    assert_int_equal(case_check_pairs(2, unknown, 1), STATUS_BAD_INPUT);
}

static enum status search_and_free(void *payload) {
    struct mesh_rows rows;
    enum status status = mesh_rows_search(4, payload, 6, &rows);
    if (status == STATUS_OK) mesh_rows_free(&rows);
    return status;
}

static void faults_are_reported(void **state) {
    (void)state;
    struct device_pair pairs[MAX * MAX];
    make_pairs(4, (const int[]){0, 0, 1, 1}, 1, 9, pairs);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, search_and_free, pairs) >= 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_numbered_along_the_last_axis),
        cmocka_unit_test(collectives_cost_what_a_ring_takes),
        cmocka_unit_test(wrong_meshes_are_refused),
        cmocka_unit_test(fast_pairs_become_rows),
        cmocka_unit_test(wrong_pairs_are_refused),
        cmocka_unit_test(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
