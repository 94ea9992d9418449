/* Cases with known answers, and invalid cases, whose field is named. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "plan/recompute.h"
#include "support/fault_sweep.h"
#include "support/rotor_cases.h"
#include "support/unit.h"

static const char fixture[] = BALLAST_FIXTURES "/plan/rotor_cases.json";

static json_t *read_fixture(void) {
    json_t *object;
    assert_int_equal(json_read_object(fixture, 1 << 20, &object), STATUS_OK);
    return object;
}

static enum status read_section(const json_t *object, const char *name, struct rotor_cases *out) {
    return rotor_cases_from_json(name, json_object_get(object, name), out);
}

static void check_answers(const json_t *object, const char *name, int of_kind[ROTOR_CASE_KINDS]) {
    struct rotor_cases cases;
    assert_int_equal(read_section(object, name, &cases), STATUS_OK);
    for (size_t i = 0; i < cases.count; i++) {
        const struct rotor_case *one = &cases.items[i];
        struct recompute_schedule schedule = {0};
        struct recompute_cost cost;
        assert_true(one->answered);
        of_kind[one->kind]++;
        enum status status = rotor_solve(&one->chain, one->slots, &schedule, &cost);
        assert_int_equal(status, isinf(one->time) ? STATUS_NO_FIT : STATUS_OK);
        if (status != STATUS_OK) continue;
        assert_true(fabs(cost.time - one->time) <= 1e-12 * one->time);
        assert_true(cost.peak <= one->slots);
        vec_free(&schedule);
    }
    rotor_cases_free(&cases);
}

static void answers_are_read(void **state) {
    (void)state;
    json_t *object = read_fixture();
    int of_kind[ROTOR_CASE_KINDS] = {0};
    check_answers(object, "10_rotor_synthetic", of_kind);
    check_answers(object, "11_rotor_real_models", of_kind);
    json_decref(object);
    assert_int_equal(of_kind[ROTOR_CASE_SYNTHETIC], 36);
    assert_int_equal(of_kind[ROTOR_CASE_MODEL], 3);
    assert_int_equal(of_kind[ROTOR_CASE_MODEL_FLOPS], 3);
}
static json_t *first_case(json_t *object, const char *section) {
    return json_array_get(json_object_get(json_object_get(object, section), "cases"), 0);
}

/* Refused with `expected` in the message once the field of the first case of a section (or of the object in it) is
 * `value`, or is gone where that is NULL. */
static void refuse(const char *section, const char *within, const char *field, json_t *value, const char *expected) {
    json_t *object = read_fixture(), *changed = first_case(object, section);
    struct rotor_cases cases;
    if (within) changed = json_object_get(changed, within);
    if (json_is_array(changed)) changed = json_array_get(changed, 0);
    if (value)
        json_object_set_new(changed, field, value);
    else
        json_object_del(changed, field);
    assert_int_equal(read_section(object, section, &cases), STATUS_BAD_INPUT);
    if (!strstr(status_message(), expected) || !strstr(status_message(), "cases[0]"))
        fail_msg("expected '%s' in '%s'", expected, status_message());
    json_decref(object);
}

static void bad_cases_are_refused(void **state) {
    (void)state;
    const char *bare = "10_rotor_synthetic", *model = "11_rotor_real_models";
    refuse(bare, NULL, "ftime", NULL, "ftime: missing");
    refuse(bare, NULL, "ftime", json_pack("[]"), "ftime: must hold");
    refuse(bare, NULL, "ftime", json_string("1"), "ftime: must be an array");
    refuse(bare, NULL, "btime", json_pack("[f,f]", 1.0, 2.0), "btime: must hold 5");
    refuse(bare, NULL, "x", json_pack("[i,i,i,i,i]", 1, 1, -1, 1, 1), "x[2]");
    refuse(bare, NULL, "xbar", json_pack("[i,i,i,f,i]", 1, 1, 1, 1.5, 1), "xbar[3]");
    refuse(bare, NULL, "btmp", json_pack("[i,i,i,i,I]", 1, 1, 1, 1, (json_int_t)INT64_MAX), "btmp[4]");
    refuse(bare, NULL, "ftmp", json_pack("[i,n,i,i]", 1, 1, 1), "ftmp[1]");
    refuse(bare, NULL, "ftime", json_pack("[f,f,f,f]", 1.0, 1.0, 1.0, 1e300), "ftime[3]");
    refuse(bare, NULL, "btime", json_pack("[f,f,f,f,s]", 1.0, 1.0, 1.0, 1.0, "a"), "btime[4]");
    refuse(bare, NULL, "results", json_object(), "results: must be an array");
    refuse(bare, NULL, "results", json_pack("[i]", 1), "results[0]: must be an object");
    refuse(bare, "results", "memory_slots", NULL, "results[0]: memory_slots: missing");
    refuse(bare, "results", "memory_slots", json_integer(-1), "memory_slots");
    refuse(bare, "results", "opt_cost_original_rotor_limit", json_string("9"), "opt_cost_original_rotor_limit");
    refuse(model, NULL, "chain_discretised", json_array(), "chain_discretised: must be an object");
    refuse(model, "chain_discretised", "x", NULL, "chain_discretised: x: missing");
    refuse(model, NULL, "memory_slots", NULL, "memory_slots: missing");
    refuse(model, NULL, "memory_slots", json_real(500.5), "memory_slots: must be a whole number");
    refuse(model, "flop_times", "btime", NULL, "flop_times: btime: missing");
}

static void sections_are_read(void **state) {
    (void)state;
    struct rotor_cases cases;
    json_t *wrong = json_pack("{s:[i]}", "cases", 1), *empty = json_pack("{s:[]}", "cases"), *none = json_object();
    assert_int_equal(rotor_cases_from_json("10_rotor_synthetic", wrong, &cases), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "cases[0]: must be an object"));
    assert_int_equal(rotor_cases_from_json("10_rotor_synthetic", none, &cases), STATUS_BAD_INPUT);
    assert_int_equal(rotor_cases_from_json("11_rotor_real_models", empty, &cases), STATUS_OK);
    assert_int_equal(cases.count, 0);
    json_decref(wrong), json_decref(empty), json_decref(none);
}

static void cases_without_answers_are_read(void **state) {
    (void)state;
    json_t *object = read_fixture();
    json_object_del(first_case(object, "11_rotor_real_models"), "opt_cost");
    json_object_del(first_case(object, "11_rotor_real_models"), "flop_times");
    struct rotor_cases cases;
    assert_int_equal(read_section(object, "11_rotor_real_models", &cases), STATUS_OK);
    assert_int_equal(cases.count, 5);
    assert_int_equal(cases.items[0].kind, ROTOR_CASE_MODEL);
    assert_false(cases.items[0].answered);
    assert_int_equal(cases.items[0].slots, 500);
    rotor_cases_free(&cases);
    json_decref(object);
}

static enum status read_and_free(void *object) {
    struct rotor_cases cases;
    TRY(read_section(object, "10_rotor_synthetic", &cases));
    rotor_cases_free(&cases);
    TRY(read_section(object, "11_rotor_real_models", &cases));
    rotor_cases_free(&cases);
    return STATUS_OK;
}

static void faults_are_reported(void **state) {
    (void)state;
    json_t *object = read_fixture();
    assert_true(fault_sweep(FAULT_ALLOCATE, false, read_and_free, object) > 40);
    json_decref(object);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_read),    cmocka_unit_test(bad_cases_are_refused),
        cmocka_unit_test(sections_are_read),   cmocka_unit_test(cases_without_answers_are_read),
        cmocka_unit_test(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
