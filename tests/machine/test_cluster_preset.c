/* Cluster presets: all can be read, name the sources of their figures, and agree where they must. */
#include "base/folder.h"
#include "base/mem.h"
#include "machine/cluster.h"
#include "support/fault_sweep.h"
#include "support/unit.h"

static bool is_named(const json_t *sources, const char *figure) {
    const char *names;
    json_t *text;
    json_object_foreach((json_t *)sources, names, text) {
        if (strstr(names, figure) && json_string_length(text) > 10) return true;
    }
    return false;
}

static void every_figure_of_a_preset_has_its_source(void **state) {
    (void)state;
    static const char *const figures[] = {"bf16_flops_per_s",
                                          "fp32_flops_per_s",
                                          "memory_bytes_per_s",
                                          "host_bytes_per_s",
                                          "multiprocessors",
                                          "product_part",
                                          "watts",
                                          "link_bytes_per_s",
                                          "node_bytes_per_s",
                                          "hop_s",
                                          "device tier",
                                          "host tier",
                                          "rates"};
    int described = 0;
    for (int i = 0; i < cluster_preset_count; i++) {
        json_t *object;
        assert_int_equal(cluster_preset_document(&cluster_presets[i], &object), STATUS_OK);
        if (json_object_get(object, "network")) {
            described++;
            for (size_t f = 0; f < sizeof figures / sizeof *figures; f++)
                if (!is_named(json_object_get(object, "sources"), figures[f]))
                    fail_msg("%s: no source for %s", cluster_presets[i].name, figures[f]);
        }
        json_decref(object);
    }
    assert_true(described >= 10);
}

static struct cluster open_one(const char *name) {
    struct cluster cluster;
    if (cluster_open(name, &cluster) != STATUS_OK) fail_msg("%s: %s", name, status_message());
    return cluster;
}

static void presets_are_nodes_of_the_gpus_in_their_names(void **state) {
    (void)state;
    static const struct {
        const char *name, *gpu;
        int64_t devices;
    } nodes[] = {{"v100x8", "V100", 8},    {"v100x16", "V100", 16}, {"a100-40x8", "A100-SXM4-40GB", 8},
                 {"a100-80x8", "80GB", 8}, {"a800x8", "A800", 8},   {"h100x8", "H100", 8},
                 {"h200x8", "H200", 8},    {"b200x8", "B200", 8},   {"rtx3090x8", "3090", 8},
                 {"rtx4090x8", "4090", 8}};
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        struct cluster cluster = open_one(nodes[i].name);
        assert_non_null(strstr(cluster.device.name, nodes[i].gpu));
        assert_int_equal(cluster.network.devices, nodes[i].devices);
        assert_true(cluster.network.link_bytes_per_s >=
                    2 * cluster.network.node_bytes_per_s / (double)nodes[i].devices);
    }
    assert_true(open_one("h200x8").device.limits.memory_bytes_per_s >
                open_one("h100x8").device.limits.memory_bytes_per_s);
    assert_true(open_one("a800x8").network.link_bytes_per_s < open_one("a100-80x8").network.link_bytes_per_s);
}

static void a_name_that_is_nearly_right_is_corrected(void **state) {
    (void)state;
    struct cluster cluster;
    assert_int_equal(cluster_open("h100-x8", &cluster), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "h100-x8"));
    assert_non_null(strstr(status_hint_text(), "h100x8"));
}

static void a_network_comes_back_the_same(void **state) {
    (void)state;
    static const char *const fields[] = {"devices", "link", "link_bytes_per_s", "node_bytes_per_s", "hop_s"};
    struct cluster before = open_one("a800x8"), after;
    json_t *object = cluster_to_json(&before), *network = json_object_get(object, "network");
    assert_int_equal(cluster_from_json("c.json", object, &after), STATUS_OK);
    assert_memory_equal(&before.network, &after.network, sizeof before.network);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        json_t *value = json_incref(json_object_get(network, fields[i]));
        json_object_set_new(network, fields[i], json_integer(-1));
        assert_int_equal(cluster_from_json("c.json", object, &after), STATUS_BAD_INPUT);
        assert_non_null(strstr(status_message(), "c.json: network"));
        assert_non_null(strstr(status_message(), fields[i]));
        json_object_set_new(network, fields[i], value);
    }
    json_object_set_new(network, "speed", json_integer(1));
    assert_int_equal(cluster_from_json("c.json", object, &after), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "speed"));
    json_decref(object);
}

static enum status open_h100(void *unused) {
    (void)unused;
    struct cluster cluster;
    return cluster_open("h100x8", &cluster);
}

static void an_allocation_that_fails_is_reported_or_not_needed(void **state) {
    (void)state;
    json_faults(true);
    const struct fault_subject subject = {.body = open_h100};
    struct fault_tally tally = fault_sweep_bearable(FAULT_ALLOCATE, false, FAULT_EVERY, &subject);
    assert_true(tally.reported > 0);
    json_faults(false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_figure_of_a_preset_has_its_source),
        cmocka_unit_test(presets_are_nodes_of_the_gpus_in_their_names),
        cmocka_unit_test(a_name_that_is_nearly_right_is_corrected),
        cmocka_unit_test(a_network_comes_back_the_same),
        cmocka_unit_test(an_allocation_that_fails_is_reported_or_not_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
