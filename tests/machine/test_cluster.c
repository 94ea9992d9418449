/* The machine's measurement and its JSON form. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/folder.h"
#include "base/json.h"
#include "base/mem.h"
#include "machine/cluster.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/unit.h"

static void measured_machine_is_sane(void **state) {
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

static void cores_follow_the_affinity(void **state) {
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

/* Of a package with several caches (EPYC 7003 has eight of 32 MiB), the one above a core counts, not their sum. */
static void a_cache_is_that_of_a_core(void **state) {
    (void)state;
    assert_true(cluster_cache_bytes() >= 0);
    assert_int_equal(setenv("HWLOC_SYNTHETIC", "package:1 l3:8(size=33554432) l2:8(size=524288) core:1 pu:1", 1), 0);
    assert_int_equal(cluster_cache_bytes(), 32 << 20);
    assert_int_equal(setenv("HWLOC_SYNTHETIC", "package:1 l2:8(size=524288) core:1 pu:1", 1), 0);
    assert_int_equal(cluster_cache_bytes(), 512 << 10);
    assert_int_equal(setenv("HWLOC_SYNTHETIC", "package:1 core:8 pu:1", 1), 0);
    assert_int_equal(cluster_cache_bytes(), 0);
    unsetenv("HWLOC_SYNTHETIC");
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

static struct cluster example_with_rates(void) {
    struct cluster cluster = example();
    cluster.rates = (struct cluster_rates){
        .measured = true,
        .issue_s = 1.25e-6,
        .wake_s = 2.5e-5,
        .noise = 0.03125,
        .zero = {1e-7, 1.5e10},
        .copy = {[TIER_DEVICE][TIER_DISK] = {2e-4, 1.1e9}, [TIER_DISK][TIER_DEVICE] = {1e-4, 2.2e9}},
    };
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            cluster.rates.slowdown[a][b] = 1 + 0.1 * a + 0.3 * b;
    return cluster;
}

static void expect_equal_rates(const struct cluster_rates *a, const struct cluster_rates *b) {
    assert_int_equal(a->measured, b->measured);
    assert_true(a->issue_s == b->issue_s && a->wake_s == b->wake_s && a->noise == b->noise);
    assert_memory_equal(&a->zero, &b->zero, sizeof a->zero);
    assert_memory_equal(a->copy, b->copy, sizeof a->copy);
    assert_memory_equal(a->slowdown, b->slowdown, sizeof a->slowdown);
}

static void rates_come_back_the_same(void **state) {
    (void)state;
    struct cluster all[] = {example(), example_with_rates()}, after;
    for (int i = 0; i < 2; i++) {
        json_t *object = cluster_to_json(&all[i]);
        char *text = json_dumps(object, JSON_REAL_PRECISION(17));
        json_t *parsed = json_loads(text, 0, NULL);
        assert_int_equal(cluster_from_json("c.json", parsed, &after), STATUS_OK);
        expect_equal_rates(&all[i].rates, &after.rates);
        json_decref(object);
        json_decref(parsed);
        free(text);
    }
}

static void files_without_rates_are_read(void **state) {
    (void)state;
    struct cluster before = example(), after;
    json_t *object = cluster_to_json(&before);
    json_object_del(object, "rates");
    json_object_set_new(object, "version", json_integer(1));
    assert_int_equal(cluster_from_json("c.json", object, &after), STATUS_OK);
    assert_false(after.rates.measured);
    json_decref(object);
}

/* Puts a value (NULL: nothing) where the path of a rates' field leads. */
static void refuse_rate(const char *owner_name, const char *inner, const char *field, json_t *value) {
    struct cluster cluster = example_with_rates(), out;
    json_t *object = cluster_to_json(&cluster), *owner = json_object_get(object, "rates");
    if (owner_name) owner = json_object_get(owner, owner_name);
    if (json_is_array(owner)) owner = json_array_get(owner, 0);
    if (inner) owner = json_object_get(owner, inner);
    if (value)
        json_object_set_new(owner, field, value);
    else
        json_object_del(owner, field);
    assert_int_equal(cluster_from_json("c.json", object, &out), STATUS_BAD_INPUT);
    if (!strstr(status_message(), "c.json: rates") || !strstr(status_message(), field))
        fail_msg("rates.%s is not named: %s", field, status_message());
    json_decref(object);
}

/* Transfers are the faster ones of both, slowdowns those of the quieter measurement. */
static void the_lower_of_two_measurements_is_kept(void **state) {
    (void)state;
    struct cluster_rates quiet = example_with_rates().rates, loud = quiet;
    loud.noise = 2;
    loud.slowdown[ACTIVITY_COPY][ACTIVITY_PRODUCT] = 1;
    loud.copy[TIER_DEVICE][TIER_DISK] = (struct transfer_rate){3e-4, 1.9e9};
    loud.copy[TIER_DISK][TIER_DEVICE] = (struct transfer_rate){9e-3, 2.2e9};
    loud.wake_s = 1e-6;
    struct cluster_rates expected = quiet;
    expected.copy[TIER_DEVICE][TIER_DISK] = loud.copy[TIER_DEVICE][TIER_DISK];
    struct cluster_rates lower = rates_lower(&quiet, &loud), reverse = rates_lower(&loud, &quiet);
    assert_true(lower.wake_s == 1e-6);
    expected.wake_s = 1e-6;
    expect_equal_rates(&lower, &expected);
    expect_equal_rates(&reverse, &expected);
}

static void bad_rates_are_named(void **state) {
    (void)state;
    static const char *const required[] = {"issue_s", "wake_s", "noise", "zero", "copies", "slowdown"};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        refuse_rate(NULL, NULL, required[i], NULL);
    refuse_rate(NULL, NULL, "issue_s", json_real(-1));
    refuse_rate(NULL, NULL, "zero", json_integer(5));
    refuse_rate(NULL, NULL, "copies", json_object());
    refuse_rate(NULL, NULL, "slowdown", json_array());
    refuse_rate("zero", NULL, "bytes_per_s", json_real(0));
    refuse_rate("zero", NULL, "latency_s", json_string("none"));
    refuse_rate("copies", NULL, "from", json_string("tape"));
    refuse_rate("copies", NULL, "to", json_integer(1));
    refuse_rate("copies", NULL, "bytes_per_s", NULL);
    refuse_rate("slowdown", NULL, "disk reads", NULL);
    refuse_rate("slowdown", "disk reads", "matrix products", json_real(0.5));
    refuse_rate("slowdown", "disk reads", "disk writes", NULL);
}

static void a_copy_is_there_once(void **state) {
    (void)state;
    struct cluster cluster = example_with_rates(), out;
    json_t *object = cluster_to_json(&cluster);
    json_t *copies = json_object_get(json_object_get(object, "rates"), "copies");
    json_array_append(copies, json_array_get(copies, 0));
    assert_int_equal(cluster_from_json("c.json", object, &out), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "rates.copies[2]: device to disk is there twice"));
    json_decref(object);
}

static void json_gives_back_the_same(void **state) {
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

static void limits_come_back_the_same(void **state) {
    (void)state;
    static const struct cluster_limits limits = {9e14, 6e13, 3e12, 3e11, 132, 0.75, 700};
    static const char *const fields[] = {"bf16_flops_per_s", "fp32_flops_per_s", "memory_bytes_per_s",
                                         "host_bytes_per_s", "multiprocessors"};
    struct cluster before = example(), after;
    before.device.limits = limits;
    json_t *object = cluster_to_json(&before);
    assert_int_equal(cluster_from_json("c.json", object, &after), STATUS_OK);
    assert_memory_equal(&after.device.limits, &limits, sizeof limits);
    json_t *owner = json_object_get(json_array_get(json_object_get(object, "devices"), 0), "limits");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        json_t *value = json_incref(json_object_get(owner, fields[i]));
        json_object_set_new(owner, fields[i], json_integer(0));
        assert_int_equal(cluster_from_json("c.json", object, &after), STATUS_BAD_INPUT);
        if (!strstr(status_message(), "c.json: limits") || !strstr(status_message(), fields[i]))
            fail_msg("%s is not named: %s", fields[i], status_message());
        json_object_del(owner, fields[i]);
        assert_int_equal(cluster_from_json("c.json", object, &after), STATUS_BAD_INPUT);
        json_object_set_new(owner, fields[i], value);
    }
    json_decref(object);
}

/* A file written by hand may lack it: `limits` then name a rate of bf16 products. */
static void bf16_follows_the_limits_where_it_is_absent(void **state) {
    (void)state;
    static const struct cluster_limits limits[] = {{0}, {9e14, 6e13, 3e12, 3e11, 132, 0.75, 700}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct cluster before = example(), after;
        before.device.limits = limits[i];
        before.device.bf16_matrix = false;
        json_t *object = cluster_to_json(&before), *device = json_array_get(json_object_get(object, "devices"), 0);
        assert_int_equal(cluster_from_json("c.json", object, &after), STATUS_OK);
        assert_false(after.device.bf16_matrix);
        json_object_del(device, "bf16_matrix");
        assert_int_equal(cluster_from_json("c.json", object, &after), STATUS_OK);
        assert_int_equal(after.device.bf16_matrix, i == 1);
        json_decref(object);
    }
}

static void bad_fields_are_named(void **state) {
    (void)state;
    static const char *const required[] = {"version", "devices", "kind", "name", "isa", "cores", "page_bytes", "tiers"};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        refuse(required[i], NULL);
    refuse("version", json_integer(CLUSTER_VERSION + 1));
    refuse("cores", json_integer(0));
    refuse("cores", json_real(2.5));
    refuse("hardware_threads", json_integer(-1));
    refuse("fp32_flops_per_s", json_string("fast"));
    refuse("devices", json_array());
    refuse("devices", json_pack("[s]", "cpu"));
    refuse("tiers", json_pack("[i]", 1));
    refuse("limits", json_array());
}

static enum status write_and_read(void *path) {
    struct cluster before = example_with_rates(), after;
    json_t *object = cluster_to_json(&before);
    enum status status = object ? json_write(path, object) : STATUS_FAILED;
    json_decref(object);
    if (status == STATUS_OK) status = cluster_read(path, &after);
    if (status == STATUS_OK) expect_equal_rates(&before.rates, &after.rates);
    return status;
}

/* The file is then whole, or there is none. */
static void every_operation_fails_in_turn(void **state) {
    (void)state;
    void *folder;
    assert_int_equal(temp_folder_make(&folder), 0);
    char *path = path_join(folder, "cluster.json");
    json_faults(true);
    for (enum fault_kind kind = 0; kind <= FAULT_RENAME; kind++) {
        struct cluster left;
        assert_true(fault_sweep(kind, false, write_and_read, path) > 0);
        assert_int_equal(cluster_read(path, &left), STATUS_OK);
    }
    json_faults(false);
    mem_free(path);
    assert_int_equal(temp_folder_drop(&folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measured_machine_is_sane),      cmocka_unit_test(cores_follow_the_affinity),
        cmocka_unit_test(a_cache_is_that_of_a_core),     cmocka_unit_test(json_gives_back_the_same),
        cmocka_unit_test(bad_fields_are_named),          cmocka_unit_test(rates_come_back_the_same),
        cmocka_unit_test(files_without_rates_are_read),  cmocka_unit_test(the_lower_of_two_measurements_is_kept),
        cmocka_unit_test(bad_rates_are_named),           cmocka_unit_test(a_copy_is_there_once),
        cmocka_unit_test(every_operation_fails_in_turn), cmocka_unit_test(limits_come_back_the_same),
        cmocka_unit_test(every_operation_fails_in_turn), cmocka_unit_test(bf16_follows_the_limits_where_it_is_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
