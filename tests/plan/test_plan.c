/* Plans as JSON: back bit for bit, and refused by field. */
#include <string.h>

#include "plan/plan.h"
#include "support/temp_folder.h"
#include "support/unit.h"

static struct plan example(void) {
    return (struct plan){
        .recipe = {.dtype = DTYPE_BF16,
                   .batch = 12,
                   .sequence_length = 384,
                   .grain_sequences = 3,
                   .threads = 2,
                   .seed = 77,
                   .beta1 = 0.9,
                   .beta2 = 0.95,
                   .epsilon = 1e-8,
                   .weight_decay = 0.1,
                   .clip_norm = 1.0 / 3,
                   .isa = "avx512",
                   .kernels_version = RECIPE_KERNELS_VERSION},
        .policy = {.grains_per_pass = 4},
    };
}

static void test_round_trip(void **state) {
    struct plan plan = example(), back;
    const char *path = temp_path(*state, "plan.json");
    json_t *json = plan_to_json(&plan);
    char *text = json_dumps(json, JSON_REAL_PRECISION(17));
    temp_write_text(path, text);
    assert_int_equal(plan_read(path, &back), STATUS_OK);
    assert_int_equal(recipe_require_equal(&plan.recipe, &back.recipe), STATUS_OK);
    assert_int_equal(back.policy.grains_per_pass, 4);
    back.recipe.clip_norm = 0.5;
    assert_int_equal(recipe_require_equal(&plan.recipe, &back.recipe), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "clip_norm"));
    free(text);
    json_decref(json);
}

static void refuse(const char *path, json_t *json, const char *expected) {
    char *text = json_dumps(json, 0);
    temp_write_text(path, text);
    struct plan plan;
    assert_int_equal(plan_read(path, &plan), STATUS_BAD_INPUT);
    if (!strstr(status_message(), expected) || !strstr(status_message(), "plan.json"))
        fail_msg("expected '%s' in '%s'", expected, status_message());
    free(text);
    json_decref(json);
}

static json_t *changed(const char *part, const char *field, json_t *value) {
    struct plan plan = example();
    json_t *json = plan_to_json(&plan);
    json_t *object = part ? json_object_get(json, part) : json;
    if (value)
        json_object_set_new(object, field, value);
    else
        json_object_del(object, field);
    return json;
}

static void test_bad_plans(void **state) {
    const char *path = temp_path(*state, "plan.json");
    refuse(path, changed(NULL, "version", json_integer(99)), "version");
    refuse(path, changed(NULL, "recipe", json_integer(1)), "recipe");
    refuse(path, changed("recipe", "batch", NULL), "batch");
    refuse(path, changed("recipe", "batch", json_integer(0)), "batch");
    refuse(path, changed("recipe", "batch", json_string("8")), "batch");
    refuse(path, changed("recipe", "dtype", json_string("fp8")), "dtype");
    refuse(path, changed("recipe", "grain_sequences", json_integer(13)), "grain_sequences");
    refuse(path, changed("recipe", "colour", json_integer(1)), "colour");
    refuse(path, changed("policy", "speed", json_integer(1)), "speed");
    refuse(path, changed("policy", "grains_per_pass", json_integer(5)), "grains_per_pass");
    assert_non_null(strstr(status_hint_text(), "4"));
    refuse(path, changed("policy", "grains_per_pass", json_integer(-1)), "grains_per_pass");
}

static const struct policy tiered = {.grains_per_pass = 3,
                                     .chunk_bytes = 1 << 20,
                                     .persistent_chunks = 2,
                                     .buffers = 4,
                                     .lookahead = 1,
                                     .parameters = TIER_HOST,
                                     .gradients = TIER_HOST,
                                     .optimizer = TIER_DISK,
                                     .update = TIER_HOST,
                                     .schedule = "f0-3 h1 d2 b3-0"};

static void test_policy_round_trip(void **state) {
    (void)state;
    struct policy back;
    json_t *json = policy_to_json(&tiered);
    assert_int_equal(policy_from_json("plan.json", json, &back), STATUS_OK);
    json_t *again = policy_to_json(&back);
    assert_true(json_equal(json, again));
    json_decref(json);
    json_decref(again);
    json = json_pack("{s:i}", "grains_per_pass", 2);
    assert_int_equal(policy_from_json("plan.json", json, &back), STATUS_OK);
    assert_memory_equal(&back, (&(struct policy){.grains_per_pass = 2}), sizeof back);
    json_decref(json);
}

/* The plan of `example` under `tiered` with one field changed; "": left out. */
static void refuse_policy(const char *path, const char *field, json_t *value, const char *rule, const char *hint) {
    struct plan plan = example();
    plan.policy = tiered;
    json_t *json = plan_to_json(&plan);
    json_object_set_new(json_object_get(json, "policy"), field, value);
    status_clear();
    refuse(path, json, rule);
    if (!strstr(status_message(), field)) fail_msg("'%s' does not name %s", status_message(), field);
    if (!strstr(status_hint_text(), hint)) fail_msg("%s: hint '%s'", field, status_hint_text());
}

static void test_bad_policies(void **state) {
    const char *path = temp_path(*state, "plan.json");
    refuse_policy(path, "grains_per_pass", json_integer(0), "at least one grain", "is 1");
    refuse_policy(path, "grains_per_pass", json_integer(5), "at most those of the step", "is 4");
    refuse_policy(path, "grains_per_pass", json_string("2"), "grains_per_pass", "");
    refuse_policy(path, "chunk_bytes", json_integer(-1), "a chunk has a size", "is 0");
    refuse_policy(path, "persistent_chunks", json_integer(-4), "a count of chunks", "is 0");
    refuse_policy(path, "buffers", json_integer(0), "pass through buffers", "is 1");
    refuse_policy(path, "buffers", json_integer(1 << 21), "pass through buffers", "is 1048576");
    refuse_policy(path, "lookahead", json_integer(-1), "a count of groups", "is 0");
    refuse_policy(path, "lookahead", json_integer(65), "a count of groups", "is 64");
    refuse_policy(path, "lookahead", json_real(1.5), "lookahead", "");
    refuse_policy(path, "update", json_string("disk"), "nothing is computed on the disk", "host");
    refuse_policy(path, "optimizer", json_string("device"), "update", "is device");
    refuse_policy(path, "parameters", json_string("cloud"), "'cloud' is none of device, host and disk", "");
    refuse_policy(path, "gradients", json_integer(1), "gradients", "");
    refuse_policy(path, "offload", json_true(), "offload", "");
    refuse_policy(path, "schedule", json_integer(3), "schedule", "");
    char *long_text = calloc(POLICY_SCHEDULE_BYTES + 1, 1);
    assert_non_null(long_text);
    memset(long_text, ' ', POLICY_SCHEDULE_BYTES);
    refuse_policy(path, "schedule", json_string(long_text), "is longer than 16383 bytes", "");
    free(long_text);
}

static void test_grains(void **state) {
    (void)state;
    assert_int_equal(recipe_default_grain(8, 1024, 1024), 1);
    assert_int_equal(recipe_default_grain(8, 1023, 1024), 2);
    assert_int_equal(recipe_default_grain(8, 100, 1024), 8);
    assert_int_equal(recipe_default_grain(64, 100, 1024), 11);
    struct plan plan = example();
    assert_int_equal(recipe_grains(&plan.recipe), 4);
    plan.recipe.batch = 13;
    assert_int_equal(recipe_grains(&plan.recipe), 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(test_bad_plans, temp_folder_make, temp_folder_drop),
        cmocka_unit_test(test_policy_round_trip),
        cmocka_unit_test_setup_teardown(test_bad_policies, temp_folder_make, temp_folder_drop),
        cmocka_unit_test(test_grains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
