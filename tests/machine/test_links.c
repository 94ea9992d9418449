/* Links between ranks: cluster files store them, and collectives have the measured costs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "machine/links.h"
#include "support/unit.h"

static struct cluster_links example(void) {
    return (struct cluster_links){
        .mesh = {2, 4},
        .shared = true,
        .message = {[MESH_IN_NODE] = {1e-6, 8e9}, [MESH_ACROSS] = {2e-5, 1e9}},
        .read = {3e-6, 4e9},
        .points = {{COMM_ALL_REDUCE, MESH_ALL, true, false, 1 << 12, 1e-4},
                   {COMM_ALL_REDUCE, MESH_ALL, true, false, 1 << 22, 2e-2},
                   {COMM_ALL_REDUCE, MESH_ALL, true, false, 1 << 18, 1e-3},
                   {COMM_BROADCAST, MESH_NODE, false, false, 1 << 12, 5e-5},
                   {COMM_ALL_REDUCE, MESH_ALL, true, true, 1 << 18, 7e-3},
                   {COMM_ALL_GATHER, MESH_PEERS, true, true, 1 << 18, 8e-3},
                   {COMM_ALL_GATHER, MESH_NODE, true, false, 1 << 18, 9e-3}},
        .point_count = 7,
        .pairs = {{0, 1, {1e-6, 9e9}}, {0, 4, {2e-5, 2e9}}},
        .pair_count = 2,
    };
}

static void links_come_back_the_same(void **state) {
    (void)state;
    const struct cluster_links before = example();
    struct cluster_links after;
    json_t *object = links_to_json(&before);
    char *text = json_dumps(object, JSON_REAL_PRECISION(17));
    json_t *parsed = json_loads(text, 0, NULL), *again;
    assert_int_equal(links_from_json("c.json", parsed, &after), STATUS_OK);
    again = links_to_json(&after);
    assert_true(json_equal(object, again));
    assert_int_equal(after.point_count, 7);
    assert_true(after.points[4].flat && !after.points[6].flat);
    assert_true(after.points[1].in_place && after.points[1].seconds == 2e-2);
    assert_true(after.pairs[1].rate.bytes_per_s == 2e9);
    json_decref(object), json_decref(parsed), json_decref(again);
    free(text);
}

static enum status read_rows(const char *rows, struct cluster_links *after) {
    const struct cluster_links before = example();
    json_t *object = links_to_json(&before);
    json_object_set_new(object, "rows", json_loads(rows, JSON_DECODE_ANY, NULL));
    enum status status = links_from_json("c.json", object, after);
    json_decref(object);
    return status;
}

/* Files from before there were rows have none. */
static void rows_are_written_and_read_again(void **state) {
    (void)state;
    struct cluster_links before = example(), after = {.point_count = 0};
    json_t *object = links_to_json(&before);
    assert_null(json_object_get(object, "rows"));
    json_decref(object);
    before.rows = (struct link_rows){4, 2, {0, 4, 1, 5, 2, 6, 3, 7}};
    object = links_to_json(&before);
    assert_int_equal(links_from_json("c.json", object, &after), STATUS_OK);
    assert_memory_equal(&after.rows, &before.rows, sizeof before.rows);
    json_decref(object);
}

static void bad_rows_are_named(void **state) {
    (void)state;
    static const char *const bad[] = {"3",
                                      "[]",
                                      "[[]]",
                                      "[[0,1,2,3],[4,5,6]]",
                                      "[[0,1,2,3],[4,5,6,6]]",
                                      "[[0,1]]",
                                      "[[0,1,2,3],[4,5,6,8]]",
                                      "[[0,1,2,3],[4,5,6,-1]]",
                                      "[[0,1,2,3],[4,5,6,\"7\"]]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct cluster_links after = {.mesh = {7, 7}};
        assert_int_equal(read_rows(bad[i], &after), STATUS_BAD_INPUT);
        assert_non_null(strstr(status_message(), "c.json: links: rows"));
        assert_int_equal(after.mesh.nodes, 7);
    }
}

static void machines_without_links_have_none_in_their_file(void **state) {
    (void)state;
    const struct cluster_links none = {.point_count = 0};
    json_t *object = links_to_json(&none);
    assert_true(json_is_null(object));
    json_decref(object);
}

static void refuse(const char *list, const char *field, json_t *value) {
    const struct cluster_links before = example();
    struct cluster_links after = {.mesh = {7, 7}};
    json_t *object = links_to_json(&before), *owner = object;
    if (list) owner = json_object_get(object, list);
    if (json_is_array(owner)) owner = json_array_get(owner, 0);
    if (value)
        json_object_set_new(owner, field, value);
    else
        json_object_del(owner, field);
    assert_int_equal(links_from_json("c.json", object, &after), STATUS_BAD_INPUT);
    if (!strstr(status_message(), "c.json: links") || !strstr(status_message(), field))
        fail_msg("links %s is not named: %s", field, status_message());
    assert_int_equal(after.mesh.nodes, 7);
    json_decref(object);
}

static void bad_links_are_named(void **state) {
    (void)state;
    static const char *const meshes[] = {"", "2", "0x4", "2x", "2x4x", "99999x99999", "axb"};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        refuse(NULL, "mesh", json_string(meshes[i]));
    refuse(NULL, "mesh", NULL);
    refuse(NULL, "operations", json_integer(1));
    refuse(NULL, "pairs", NULL);
    refuse("messages", "in node", json_integer(3));
    refuse("operations", "kind", json_string("all-for-one"));
    refuse("operations", "group", NULL);
    refuse("operations", "bytes", json_integer(0));
    refuse("operations", "seconds", json_real(-1));
    refuse("pairs", "second", json_integer(8));
    refuse("pairs", "bytes_per_s", json_real(0));
}

static double seconds_of(const struct cluster_links *links, struct mesh mesh, int64_t bytes, bool *extrapolated) {
    const struct comm_traffic traffic = {.sent = {0, bytes}, .received = {0, bytes}, .read = 3 * bytes};
    return links_seconds(links,
                         &(struct link_request){.kind = COMM_ALL_REDUCE,
                                                .group = mesh_group(&mesh, 0, MESH_ALL),
                                                .in_place = true,
                                                .bytes = bytes,
                                                .mesh = mesh,
                                                .traffic = &traffic},
                         extrapolated);
}

static void operations_cost_what_was_measured(void **state) {
    (void)state;
    const struct cluster_links links = example();
    const struct mesh mesh = {2, 4};
    bool extrapolated = true;
    assert_true(seconds_of(&links, mesh, 1 << 18, &extrapolated) == 1e-3);
    assert_false(extrapolated);
    assert_true(seconds_of(&links, mesh, 64, &extrapolated) == 1e-4);
    double between = seconds_of(&links, mesh, 1 << 20, &extrapolated);
    assert_true(between > 1e-3 && between < 2e-2);
    double beyond = seconds_of(&links, mesh, 1 << 23, &extrapolated);
    double slope = (2e-2 - 1e-3) / ((1 << 22) - (1 << 18));
    assert_true(fabs(beyond - (2e-2 + slope * (1 << 22))) < 1e-9);
    assert_false(extrapolated);
}

static void other_meshes_are_extrapolated_by_axis(void **state) {
    (void)state;
    const struct cluster_links links = example();
    bool extrapolated = false;
    int64_t bytes = 1 << 20;
    double four = seconds_of(&links, (struct mesh){4, 4}, bytes, &extrapolated);
    assert_true(extrapolated);
    double expected = 2 * 2 * 1e-6 + 2 * 2 * 2e-5 + (double)bytes / 1e9 + 3e-6 + 3 * (double)bytes / 4e9;
    assert_true(fabs(four / expected - 1) < 1e-12);
    /* Twice as many ranks in a node have half of its link each. */
    double eight = seconds_of(&links, (struct mesh){4, 8}, bytes, &extrapolated);
    assert_true(fabs((eight - four) - (double)bytes / 1e9 - 2 * 1e-6) < 1e-12);
}

static double cost_of(const struct cluster_links *links, struct comm_group group, enum comm_kind kind, bool flat,
                      bool *extrapolated) {
    const struct comm_traffic traffic = {.sent = {1 << 18, 1 << 18}, .received = {1 << 18, 1 << 18}};
    const struct link_request request = {kind, group, true, flat, 1 << 18, {2, 4}, &traffic, false};
    return links_seconds(links, &request, extrapolated);
}

/* By the group's own axis, and by the algorithm, where there are two. */
static void groups_and_algorithms_have_their_own_costs(void **state) {
    (void)state;
    const struct cluster_links links = example();
    const struct mesh mesh = {2, 4};
    struct comm_group all = mesh_group(&mesh, 5, MESH_ALL), node = mesh_group(&mesh, 5, MESH_NODE);
    struct comm_group peers = mesh_group(&mesh, 5, MESH_PEERS), pair = {4, 1, 2};
    bool extrapolated;
    assert_true(cost_of(&links, all, COMM_ALL_REDUCE, false, &extrapolated) == 1e-3);
    assert_true(cost_of(&links, all, COMM_ALL_REDUCE, true, &extrapolated) == 7e-3);
    assert_true(cost_of(&links, node, COMM_ALL_GATHER, false, &extrapolated) == 9e-3 && !extrapolated);
    /* Ranks of a node read each other's data either way. */
    assert_true(cost_of(&links, node, COMM_ALL_GATHER, true, &extrapolated) == 9e-3 && !extrapolated);
    /* Two ranks: what was measured as flat is no other operation, and is not looked up. */
    (void)cost_of(&links, peers, COMM_ALL_GATHER, true, &extrapolated);
    assert_true(extrapolated);
    /* No kind of the mesh's: by axes. A pair in a node has one phase there, and none across. */
    double bytes = 1 << 18, seconds = cost_of(&links, pair, COMM_ALL_GATHER, false, &extrapolated);
    assert_true(extrapolated && fabs(seconds - (1e-6 + bytes / 8e9)) < 1e-12);
    struct comm_group four = {1, 2, 4};
    double hierarchical = cost_of(&links, four, COMM_ALL_GATHER, false, &extrapolated);
    double flat = cost_of(&links, four, COMM_ALL_GATHER, true, &extrapolated);
    assert_true(fabs(flat - hierarchical - 2e-5) < 1e-12); /* two messages across nodes instead of one */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_come_back_the_same),
        cmocka_unit_test(machines_without_links_have_none_in_their_file),
        cmocka_unit_test(rows_are_written_and_read_again),
        cmocka_unit_test(bad_rows_are_named),
        cmocka_unit_test(bad_links_are_named),
        cmocka_unit_test(operations_cost_what_was_measured),
        cmocka_unit_test(other_meshes_are_extrapolated_by_axis),
        cmocka_unit_test(groups_and_algorithms_have_their_own_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
