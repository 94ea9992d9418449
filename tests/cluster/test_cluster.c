/* The machine's measurement and its JSON form. */
#include <sched.h>
#include <string.h>

#include "base/json.h"
#include "cluster/cluster.h"
#include "support/unit.h"

static void test_measured_machine_is_sane(void **state) {
    (void)state;
    struct cluster cluster;
    assert_int_equal(cluster_measure(&cluster), STATUS_OK);
    const struct cluster_device *device = &cluster.device;
    assert_string_equal(device->kind, "cpu");
    assert_true(device->cores >= 1 && device->hardware_threads >= device->cores);
    assert_true(device->page_bytes >= 4096);
    assert_int_equal(device->tier_count, 1);
    assert_string_equal(device->tiers[0].name, "device");
    assert_true(device->tiers[0].capacity_bytes > 0);
}

static void test_cores_follow_the_affinity(void **state) {
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    int threads = 0, cores = cluster_count_cores(&threads);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(cores, 1);
    assert_int_equal(threads, 1);
}

static struct cluster example(void) {
    return (struct cluster){.device = {.kind = "cpu",
                                       .name = "A processor",
                                       .isa = "avx2",
                                       .cores = 3,
                                       .hardware_threads = 6,
                                       .page_bytes = 4096,
                                       .bf16_matrix = true,
                                       .fp32_flops_per_s = 1.25e11,
                                       .bf16_flops_per_s = 2.5e11,
                                       .tiers = {{"device", 123456789}},
                                       .tier_count = 1}};
}

static void test_json_gives_back_the_same(void **state) {
    (void)state;
    struct cluster before = example(), after;
    json_t *object = cluster_to_json(&before);
    assert_non_null(object);
    assert_int_equal(cluster_from_json("c.json", object, &after), STATUS_OK);
    json_t *again = cluster_to_json(&after);
    assert_true(json_equal(object, again));
    assert_int_equal(after.device.tiers[0].capacity_bytes, 123456789);
    json_decref(object);
    json_decref(again);
}

/* Takes one field out, or puts a wrong value in, and expects the message to name it. */
static void refuse(const char *field, json_t *value) {
    struct cluster cluster = example(), out;
    json_t *object = cluster_to_json(&cluster);
    json_t *device = json_array_get(json_object_get(object, "devices"), 0);
    json_t *owner = json_object_get(object, field) ? object : device;
    if (value)
        json_object_set_new(owner, field, value);
    else
        json_object_del(owner, field);
    assert_int_equal(cluster_from_json("c.json", object, &out), STATUS_BAD_INPUT);
    if (!strstr(status_message(), "c.json") || !strstr(status_message(), field))
        fail_msg("%s is not named: %s", field, status_message());
    json_decref(object);
}

static void test_bad_fields_are_named(void **state) {
    (void)state;
    static const char *const required[] = {"version", "devices", "kind", "name", "isa", "cores", "page_bytes", "tiers"};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        refuse(required[i], NULL);
    refuse("version", json_integer(2));
    refuse("cores", json_integer(0));
    refuse("cores", json_real(2.5));
    refuse("hardware_threads", json_integer(-1));
    refuse("fp32_flops_per_s", json_string("fast"));
    refuse("devices", json_array());
    refuse("devices", json_pack("[s]", "cpu"));
    refuse("tiers", json_pack("[i]", 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measured_machine_is_sane),
        cmocka_unit_test(test_cores_follow_the_affinity),
        cmocka_unit_test(test_json_gives_back_the_same),
        cmocka_unit_test(test_bad_fields_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
