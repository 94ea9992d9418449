/* Plans as JSON: reading gives back every bit, and errors name the field. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "plan/plan.h"
#include "plan/recipe.h"
#include "support/temp_folder.h"
#include "support/unit.h"

static struct plan example(void) {
    return (struct plan){
        .recipe = {.dtype = DTYPE_BF16,
                   .batch = 12,
                   .sequence_length = 384,
                   .micro_batch_sequences = 3,
                   .seed = 77,
                   .beta1 = 0.9,
                   .beta2 = 0.95,
                   .epsilon = 1e-8,
                   .weight_decay = 0.1,
                   .clip_norm = 1.0 / 3,
                   .isa = "avx512",
                   .kernels_version = 2},
        .policy = {.micro_batches_per_wave = 4},
        .threads = 2,
    };
}

static void products_come_back_the_same(void **state) {
    static const char lines[] = "bf16>bf16:4x4x4 0a00\nfp32>fp32:8x8x8:bias ff01\n";
    struct plan plan = example(), back;
    const char *path = temp_path(*state, "plan.json");
    assert_int_equal(recipe_lines_keep(lines, &plan.recipe.products), STATUS_OK);
    json_t *json = plan_to_json(&plan);
    assert_int_equal(json_write(path, json), STATUS_OK);
    assert_int_equal(plan_read(path, &back), STATUS_OK);
    assert_string_equal(back.recipe.products, lines);
    assert_ptr_equal(back.recipe.products, plan.recipe.products);
    const char *const bad[] = {"", "0A", "1 2", "xy"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *products = json_object_get(json_object_get(json, "recipe"), "products");
        json_object_set_new(products, "p", json_string(bad[i]));
        assert_int_equal(json_write(path, json), STATUS_OK);
        assert_int_equal(plan_read(path, &back), STATUS_BAD_INPUT);
        assert_non_null(strstr(status_message(), "products: 'p' has no algorithm"));
    }
    json_object_set_new(json_object_get(json, "recipe"), "products", json_integer(1));
    assert_int_equal(json_write(path, json), STATUS_OK);
    assert_int_equal(plan_read(path, &back), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "products: must be an object"));
    json_decref(json);
}

static void strategies_come_back_the_same(void **state) {
    static const char lines[] = "embedding v\nlayers.0.attention h+\nlayers.0.q .\n";
    struct plan plan = example(), back;
    const char *path = temp_path(*state, "plan.json");
    assert_int_equal(recipe_lines_keep(lines, &plan.recipe.strategies), STATUS_OK);
    json_t *json = plan_to_json(&plan);
    assert_int_equal(json_write(path, json), STATUS_OK);
    assert_int_equal(plan_read(path, &back), STATUS_OK);
    assert_ptr_equal(back.recipe.strategies, plan.recipe.strategies);
    assert_int_equal(recipe_require_equal(&plan.recipe, &back.recipe), STATUS_OK);
    back.recipe.strategies = NULL;
    assert_int_equal(recipe_require_equal(&plan.recipe, &back.recipe), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "strategies is another"));
    json_object_set_new(json_object_get(json_object_get(json, "recipe"), "strategies"), "q", json_string("Q"));
    assert_int_equal(json_write(path, json), STATUS_OK);
    assert_int_equal(plan_read(path, &back), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "strategies: 'q' has no strategy"));
    json_decref(json);
}

static void plans_come_back_the_same(void **state) {
    struct plan plan = example(), back;
    const char *path = temp_path(*state, "plan.json");
    json_t *json = plan_to_json(&plan);
    char *text = json_dumps(json, JSON_REAL_PRECISION(17));
    temp_write_text(path, text);
    assert_int_equal(plan_read(path, &back), STATUS_OK);
    assert_int_equal(recipe_require_equal(&plan.recipe, &back.recipe), STATUS_OK);
    assert_int_equal(back.policy.micro_batches_per_wave, 4);
    back.recipe.clip_norm = 0.5;
    assert_int_equal(recipe_require_equal(&plan.recipe, &back.recipe), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "clip_norm"));
    free(text);
    assert_null(json_object_get(json_object_get(json, "recipe"), "products"));
    json_decref(json);
}

/* Ballast 0.1.0 wrote version 1. */
static const char version_1[] =
    "{\"version\": 1, \"recipe\": {\"dtype\": \"bf16\", \"batch\": 12, \"sequence_length\": 384, \"grain_sequences\": "
    "3, "
    "\"round_grains\": 2, \"tensor\": 2, \"sequence\": \"on\", \"master\": \"split\", \"base_dtype\": \"nf4\", "
    "\"seed\": 77, "
    "\"kernels_version\": 2, \"beta1\": 0.9, \"beta2\": 0.95, \"epsilon\": 1e-8, \"weight_decay\": 0.1, \"clip_norm\": "
    "1, "
    "\"document_attention\": \"across\", \"isa\": \"avx512\"}, \"policy\": {\"grains_per_pass\": 2, \"remake\": true, "
    "\"ranks\": \"4\", \"stages\": 2}, \"threads\": 2, \"front\": [{\"policy\": {\"grains_per_pass\": 2}}]}";

static void version_1_is_read(void **state) {
    struct plan plan;
    temp_write_text(temp_path(*state, "plan.json"), version_1);
    assert_int_equal(plan_read(temp_path(*state, "plan.json"), &plan), STATUS_OK);
    assert_int_equal(plan.recipe.micro_batch_sequences, 3);
    assert_int_equal(plan.recipe.round_micro_batches, 2);
    assert_int_equal(plan.recipe.tensor_parallel, 2);
    assert_true(plan.recipe.sequence_parallel);
    assert_int_equal(plan.recipe.master_weights, MASTER_WEIGHTS_SPLIT);
    assert_int_equal(plan.recipe.quantize_base, WEIGHT_NF4);
    assert_int_equal(plan.policy.micro_batches_per_wave, 2);
    assert_true(plan.policy.selective_recompute);
    assert_int_equal(rank_place_pipeline_parallel(&plan.place), 2);
}

static void keys_of_version_1_become_those_of_today(void **state) {
    (void)state;
    json_t *old = json_loads(version_1, 0, NULL), *now = NULL;
    assert_int_equal(plan_update_keys("plan.json", old, &now), STATUS_OK);
    assert_int_equal(json_integer_value(json_object_get(now, "version")), PLAN_VERSION);
    assert_null(json_object_get(json_object_get(now, "recipe"), "grain_sequences"));
    const json_t *front = json_array_get(json_object_get(now, "pareto_front"), 0);
    const json_t *policy = json_object_get(front, "policy");
    assert_int_equal(json_integer_value(json_object_get(policy, "micro_batches_per_wave")), 2);
    assert_non_null(json_object_get(json_object_get(old, "recipe"), "grain_sequences"));
    json_decref(now);
    json_object_set_new(json_object_get(old, "policy"), "micro_batches_per_wave", json_integer(1));
    assert_int_equal(plan_update_keys("plan.json", old, &now), STATUS_BAD_INPUT);
    assert_string_equal(status_message(), "plan.json: policy.micro_batches_per_wave: unknown field");
    assert_string_equal(status_hint_text(), "this version of the format calls it \"grains_per_pass\"");
    json_decref(old);
}

/* The message names the file and says `rule`; the hint says `hint`. */
static void refuse(const char *path, json_t *json, const char *rule, const char *hint) {
    char *text = json_dumps(json, 0);
    temp_write_text(path, text);
    struct plan plan;
    status_clear();
    assert_true(hint[0]);
    assert_int_equal(plan_read(path, &plan), STATUS_BAD_INPUT);
    if (!strstr(status_message(), rule) || !strstr(status_message(), "plan.json"))
        fail_msg("expected '%s' in '%s'", rule, status_message());
    if (!strstr(status_hint_text(), hint)) fail_msg("%s: hint '%s', not '%s'", rule, status_hint_text(), hint);
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

static const char whole[] = "`ballast plan MODEL_DIR -o FILE` writes a plan with all fields";

static void bad_plans_are_refused(void **state) {
    const char *path = temp_path(*state, "plan.json");
    refuse(path, changed(NULL, "version", NULL), "version: missing", whole);
    refuse(path, changed(NULL, "version", json_integer(99)), "version: 99 needs a newer Ballast", "update Ballast");
    refuse(path, changed(NULL, "recipe", json_integer(1)), "recipe: must be an object", whole);
    refuse(path, changed(NULL, "policy", json_array()), "policy: must be an object", whole);
    refuse(path, changed("recipe", "batch", NULL), "batch: missing", whole);
    refuse(path, changed("recipe", "batch", json_string("8")), "batch: must be a whole number", whole);
    refuse(path, changed("recipe", "batch", json_real(7.6)), "batch: must be a whole number", "value is 8");
    refuse(path, changed("recipe", "colour", json_integer(1)), "colour: unknown field", "the legal fields are ");
    refuse(path, changed("recipe", "bacth", json_integer(1)), "bacth: unknown field",
           "the nearest legal field is batch");
    refuse(path, changed("policy", "speed", json_integer(1)), "speed: unknown field", "the legal fields are ");
    refuse(path, changed("policy", "buffer", json_integer(1)), "buffer: unknown field", "legal field is buffers");
    refuse(path, changed("policy", "micro_batches_per_wave", json_integer(5)), "micro_batches_per_wave", "value is 4");
    refuse(path, changed("policy", "micro_batches_per_wave", json_integer(-1)), "micro_batches_per_wave", "value is 1");
}

static void refuse_recipe(const char *path, const char *field, json_t *value, const char *rule, const char *nearest) {
    char hint[64];
    snprintf(hint, sizeof hint, "the nearest legal value is %s", nearest);
    refuse(path, changed("recipe", field, value), rule, hint);
    if (!strstr(status_message(), field)) fail_msg("'%s' does not name %s", status_message(), field);
    /* Nothing but the value follows. */
    assert_string_equal(status_hint_text(), hint);
}

/* A plan of an earlier version has its threads in the recipe. */
static json_t *earlier(json_t *threads) {
    struct plan plan = example();
    json_t *json = plan_to_json(&plan);
    assert_int_equal(json_object_del(json, "threads"), 0);
    if (threads) json_object_set_new(json_object_get(json, "recipe"), "threads", threads);
    return json;
}

static void threads_are_read_from_either_place(void **state) {
    const char *path = temp_path(*state, "plan.json"), *rule = "at least one compute thread";
    struct plan plan = example(), back;
    json_t *json = earlier(json_integer(7));
    assert_int_equal(json_write(path, json), STATUS_OK);
    json_decref(json);
    assert_int_equal(plan_read(path, &back), STATUS_OK);
    assert_int_equal(back.threads, 7);
    assert_int_equal(recipe_require_equal(&plan.recipe, &back.recipe), STATUS_OK);
    refuse(path, earlier(NULL), "threads: missing", whole);
    refuse(path, earlier(json_integer(0)), rule, "the nearest legal value is 1");
    json = plan_to_json(&plan);
    json_object_set_new(json, "threads", json_integer(((json_int_t)1 << 32) + 2));
    refuse(path, json, rule, "the nearest legal value is 4096");
}

static void bad_integers_are_refused(void **state) {
    const char *path = temp_path(*state, "plan.json");
    refuse_recipe(path, "batch", json_integer(0), "a step needs at least one sequence", "1");
    refuse_recipe(path, "batch", json_integer(INT64_MIN), "a step needs at least one sequence", "1");
    refuse_recipe(path, "batch", json_integer(1 << 25), "a step needs at least one sequence", "16777216");
    refuse_recipe(path, "sequence_length", json_integer(-3), "a sequence needs at least one token", "1");
    refuse_recipe(path, "sequence_length", json_integer(1 << 25), "a sequence needs", "16777216");
    refuse_recipe(path, "micro_batch", json_integer(13), "at most the batch", "12");
    refuse_recipe(path, "micro_batch", json_integer((json_int_t)1 << 40), "at most the batch", "12");
    refuse_recipe(path, "micro_batch", json_integer(0), "at most the batch", "1");
    refuse_recipe(path, "seed", json_integer(-1), "a seed is not negative", "0");
    refuse_recipe(path, "seed", json_real(1e19), "must be a whole number", "9223372036854775807");
    refuse_recipe(path, "kernels_version", json_integer(-2), "a version is not negative", "0");
    refuse_recipe(path, "kernels_version", json_integer((json_int_t)1 << 32), "a version is", "2147483647");
}

/* Four micro-batches. */
static void lanes_and_ranks_come_back_the_same(void **state) {
    const char *path = temp_path(*state, "plan.json");
    struct plan plan = example(), back, other;
    plan.policy.micro_batches_per_wave = 1;
    plan.recipe.lanes = (struct lane_shape){2, 2};
    plan.recipe.round_micro_batches = 3;
    plan.recipe.reduce_dtype = DTYPE_BF16;
    plan.place.mesh = (struct mesh){2, 1};
    json_t *json = plan_to_json(&plan);
    assert_string_equal(json_string_value(json_object_get(json_object_get(json, "recipe"), "lanes")), "2x2");
    assert_string_equal(json_string_value(json_object_get(json_object_get(json, "policy"), "ranks")), "2x1");
    assert_int_equal(json_dump_file(json, path, JSON_REAL_PRECISION(17)), 0);
    json_decref(json);
    if (plan_read(path, &back) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(recipe_require_equal(&plan.recipe, &back.recipe), STATUS_OK);
    assert_int_equal(back.place.mesh.nodes, 2);
    assert_int_equal(back.place.mesh.per_node, 1);
    other = plan;
    other.recipe.lanes = (struct lane_shape){1, 4};
    assert_int_equal(recipe_require_equal(&plan.recipe, &other.recipe), STATUS_BAD_INPUT);
    assert_string_equal(status_message(), "recipe: lanes is another here");
    other = plan;
    other.recipe.round_micro_batches = 0;
    assert_int_equal(recipe_require_equal(&plan.recipe, &other.recipe), STATUS_BAD_INPUT);
    assert_string_equal(status_message(), "recipe: round_micro_batches is another here");
    other = plan;
    other.recipe.reduce_dtype = DTYPE_F32;
    assert_int_equal(recipe_require_equal(&plan.recipe, &other.recipe), STATUS_BAD_INPUT);
    assert_string_equal(status_message(), "recipe: reduce_dtype is another here");
}

/* As files of versions without lanes are. */
static void plans_without_lanes_have_one(void **state) {
    const char *path = temp_path(*state, "plan.json");
    struct plan plan = example(), back;
    json_t *json = plan_to_json(&plan);
    assert_int_equal(json_object_del(json_object_get(json, "recipe"), "lanes"), 0);
    assert_int_equal(json_object_del(json_object_get(json, "recipe"), "round_micro_batches"), 0);
    assert_int_equal(json_object_del(json_object_get(json, "recipe"), "reduce_dtype"), 0);
    assert_int_equal(json_object_del(json_object_get(json, "policy"), "ranks"), 0);
    assert_int_equal(json_dump_file(json, path, JSON_REAL_PRECISION(17)), 0);
    json_decref(json);
    if (plan_read(path, &back) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(recipe_require_equal(&plan.recipe, &back.recipe), STATUS_OK);
    assert_int_equal(lane_shape_lanes(&back.recipe.lanes), 1);
    assert_int_equal(rank_place_ranks(&back.place), 1);
}

/* null means absent, in every field of a recipe that may be absent. */
static void null_settings_have_their_defaults(void **state) {
    static const char *const fields[] = {"lanes", "reduce_dtype", "tensor_parallel", "sequence_parallel",
                                         "loss",  "optimizer",    "packing"};
    const char *path = temp_path(*state, "plan.json");
    struct plan plan = example(), absent, null;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        json_t *json = plan_to_json(&plan), *recipe = json_object_get(json, "recipe");
        json_object_del(recipe, fields[i]);
        assert_int_equal(json_dump_file(json, path, JSON_REAL_PRECISION(17)), 0);
        if (plan_read(path, &absent) != STATUS_OK) fail_msg("%s: %s", fields[i], status_message());
        json_object_set_new(recipe, fields[i], json_null());
        assert_int_equal(json_dump_file(json, path, JSON_REAL_PRECISION(17)), 0);
        if (plan_read(path, &null) != STATUS_OK) fail_msg("%s: %s", fields[i], status_message());
        assert_int_equal(recipe_require_equal(&absent.recipe, &null.recipe), STATUS_OK);
        json_decref(json);
    }
}

static void bad_lanes_and_ranks_are_refused(void **state) {
    const char *path = temp_path(*state, "plan.json");
    refuse(path, changed("recipe", "lanes", json_string("2x")), "lanes: '2x' is no number", "2x4 for 4 on each");
    refuse(path, changed("recipe", "lanes", json_string("70000")), "lanes: '70000'", "at most 65536 in all");
    refuse(path, changed("recipe", "lanes", json_integer(8)), "lanes: must be a string", whole);
    refuse(path, changed("recipe", "reduce_dtype", json_string("fp16")), "reduce_dtype: 'fp16' is not known",
           "nearest legal value is fp32");
    refuse(path, changed("recipe", "round_micro_batches", json_integer(-1)), "0 for all micro-batches of a lane",
           "value is 0");
    refuse(path, changed("policy", "ranks", json_string("zwei")), "ranks: 'zwei' is no number", "2x4 for 4 on each");
    refuse(path, changed("policy", "ranks", json_string("3")), "policy.ranks: 3 ranks cannot hold lanes 1", "ranks: 1");
    /* Of four micro-batches, two lanes have two each. */
    refuse(path, changed("recipe", "lanes", json_string("2")), "policy.micro_batches_per_wave: 4 is not legal",
           "value is 2");
    refuse(path, changed("recipe", "round_micro_batches", json_integer(3)), "micro_batches_per_wave: 4 is not",
           "value is 3");
}

static void bad_floats_are_refused(void **state) {
    const char *path = temp_path(*state, "plan.json");
    refuse_recipe(path, "beta1", json_integer(1), "1 is not legal: a decaying average's share is below 1", "0.999999");
    refuse_recipe(path, "beta1", json_real(-0.5), "a decaying average's share", "0");
    refuse_recipe(path, "beta2", json_real(1.5), "a decaying average's share is below 1", "0.999999");
    refuse_recipe(path, "beta2", json_real(-1e-9), "a decaying average's share", "0");
    refuse_recipe(path, "epsilon", json_integer(0), "0 is not legal: what keeps divisors from 0", "1e-30");
    refuse_recipe(path, "epsilon", json_real(1e-200), "in fp32 too", "1e-30");
    refuse_recipe(path, "epsilon", json_integer(2), "at most 1", "1");
    refuse_recipe(path, "weight_decay", json_real(-0.1), "0 for none", "0");
    refuse_recipe(path, "weight_decay", json_real(2000.5), "at most 1000", "1000");
    refuse_recipe(path, "clip_norm", json_integer(-1), "0 for none", "0");
    refuse_recipe(path, "clip_norm", json_real(2e9), "at most 1e9", "1000000000");
    refuse(path, changed("recipe", "beta1", json_string("0.9")), "beta1: must be a number", whole);
}

static char *spaces(size_t count) {
    char *text = calloc(count + 1, 1);
    assert_non_null(text);
    memset(text, ' ', count);
    return text;
}

static void bad_texts_are_refused(void **state) {
    const char *path = temp_path(*state, "plan.json");
    refuse_recipe(path, "dtype", json_string("fp8"), "'fp8' is not known", "fp32");
    refuse_recipe(path, "dtype", json_string("fp16"), "'fp16' is not known", "bf16");
    refuse(path, changed("recipe", "dtype", json_string("half")), "'half'", "the legal values are bf16 and fp32");
    refuse(path, changed("recipe", "dtype", json_integer(32)), "dtype: must be a string", whole);
    refuse_recipe(path, "document_attention", json_string("witin"), "document_attention: 'witin'", "within");
    refuse(path, changed("recipe", "document_attention", json_string("")), "document_attention: ''",
           "the legal values are across and within");
    refuse_recipe(path, "packing", json_string("of"), "packing: 'of'", "off");
    refuse_recipe(path, "packing", json_string("aut"), "packing: 'aut'", "auto");
    refuse_recipe(path, "loss", json_string("dpx"), "loss: 'dpx'", "dpo");
    refuse(path, changed("recipe", "optimizer", json_string("muon")), "muon_momentum: missing", whole);
    refuse(path, changed("recipe", "loss", json_string("dpo")), "dpo_beta: missing", whole);
    refuse_recipe(path, "optimizer", json_string("linn"), "optimizer: 'linn'", "lion");
    refuse_recipe(path, "optimizer_dtype", json_string("bf61"), "optimizer_dtype: 'bf61'", "bf16");
    refuse_recipe(path, "optimizer_dtype", json_string("int4"), "optimizer_dtype: 'int4'", "int8");
    refuse(path, changed("recipe", "optimizer_dtype", json_string("posit")), "optimizer_dtype: 'posit'",
           "the legal values are fp32, bf16 and int8");
    refuse_recipe(path, "quantize_base", json_string("nf"), "quantize_base: 'nf'", "nf4");
    refuse(path, changed("recipe", "quantize_base", json_integer(4)), "quantize_base: must be a string", whole);
    refuse_recipe(path, "master_weights", json_string("nonne"), "master_weights: 'nonne'", "none");
    refuse(path, changed("recipe", "master_weights", json_integer(1)), "master_weights: must be a string", whole);
    char *name = spaces(RECIPE_NAME_BYTES), *text = spaces(RECIPE_TEXT_BYTES);
    refuse(path, changed("recipe", "isa", json_string(name)), "isa: is longer than 63 bytes", "length is 63 bytes");
    refuse(path, changed("recipe", "lora", json_string(text)), "lora: is longer than 1023", "length is 1023 bytes");
    refuse(path, changed("recipe", "freeze", json_string(text)), "freeze: is longer than", "length is 1023 bytes");
    free(name);
    free(text);
}

/* A pair's sequences are neighbours in one micro-batch. */
static void pairs_need_even_numbers(void **state) {
    const char *path = temp_path(*state, "plan.json");
    struct plan plan = example(), back;
    plan.recipe.loss = TRAINING_DPO;
    plan.recipe.dpo_beta = 0.25;
    plan.recipe.dpo_loss = PAIR_LOSS_ROBUST;
    plan.recipe.dpo_label_smoothing = 0.1;
    plan.recipe.document_attention = DOCUMENT_ATTENTION_ACROSS;
    plan.recipe.batch = 12;
    plan.recipe.micro_batch_sequences = 4;
    plan.policy.micro_batches_per_wave = 1;
    json_t *json = plan_to_json(&plan);
    assert_int_equal(json_dump_file(json, path, JSON_REAL_PRECISION(17)), 0);
    json_decref(json);
    if (plan_read(path, &back) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(recipe_require_equal(&plan.recipe, &back.recipe), STATUS_OK);
    back.recipe.dpo_beta = 0.5;
    assert_int_equal(recipe_require_equal(&plan.recipe, &back.recipe), STATUS_BAD_INPUT);
    back.recipe.dpo_beta = 0.25;
    back.recipe.dpo_loss = PAIR_LOSS_IPO;
    assert_int_equal(recipe_require_equal(&plan.recipe, &back.recipe), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "dpo_loss"));
    back.recipe.dpo_loss = plan.recipe.dpo_loss;
    back.recipe.dpo_label_smoothing = 0.2;
    assert_int_equal(recipe_require_equal(&plan.recipe, &back.recipe), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "dpo_label_smoothing"));
    plan.recipe.micro_batch_sequences = 3;
    assert_int_equal(plan_check(&plan), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "recipe.micro_batch: 3"));
    assert_string_equal(status_hint_text(), "the nearest legal value is 2");
    plan.recipe.micro_batch_sequences = 4;
    plan.recipe.batch = 3; /* smaller than the micro-batch, which was rounded up */
    assert_int_equal(plan_check(&plan), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "recipe.batch: 3 is not legal: sequences are pairs"));
    plan.recipe.batch = 12;
    plan.recipe.document_attention = DOCUMENT_ATTENTION_WITHIN;
    assert_int_equal(plan_check(&plan), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "recipe.document_attention"));
    plan.recipe.document_attention = DOCUMENT_ATTENTION_ACROSS;
    plan.recipe.packing = EXAMPLE_PACKING_ON;
    assert_int_equal(plan_check(&plan), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "recipe.packing: preference pairs cannot be packed"));
    plan.recipe.packing = EXAMPLE_PACKING_OFF;
    plan.recipe.dpo_loss = PAIR_LOSS_HINGE;
    assert_int_equal(plan_check(&plan), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "recipe.dpo_label_smoothing: 0.1: the loss hinge is not smoothed"));
    plan.recipe.dpo_loss = PAIR_LOSS_SIGMOID;
    plan.recipe.dpo_label_smoothing = 0.5;
    assert_int_equal(plan_check(&plan), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "recipe.dpo_label_smoothing"));
    plan.recipe.dpo_label_smoothing = 0;
    assert_int_equal(plan_check(&plan), STATUS_OK);
    plan.recipe.dpo_beta = 0;
    assert_int_equal(plan_check(&plan), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "recipe.dpo_beta"));
    plan.recipe.dpo_beta = 0.25;
    plan.policy.optimizer = plan.policy.update = TIER_HOST;
    assert_int_equal(plan_check(&plan), STATUS_OK);
    plan.recipe.optimizer = UPDATE_MUON;
    assert_int_equal(plan_check(&plan), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "plan: policy.update: host, but muon's GEMMs"));
    assert_string_equal(status_hint_text(), "the nearest legal value is device");
    plan.policy.update = TIER_DEVICE;
    assert_int_equal(plan_check(&plan), STATUS_OK);
}

/* The nearest legal values are legal. */
static void limits_are_legal(void **state) {
    const char *path = temp_path(*state, "plan.json");
    struct plan plan = example(), back;
    plan.recipe.beta1 = plan.recipe.beta2 = 0.999999;
    plan.recipe.epsilon = 1e-30;
    plan.recipe.weight_decay = 1000;
    plan.recipe.clip_norm = 1e9;
    plan.recipe.seed = INT64_MAX;
    memset(plan.recipe.isa, 'x', RECIPE_NAME_BYTES - 1);
    json_t *json = plan_to_json(&plan);
    assert_int_equal(json_dump_file(json, path, JSON_REAL_PRECISION(17)), 0);
    if (plan_read(path, &back) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(recipe_require_equal(&plan.recipe, &back.recipe), STATUS_OK);
    json_decref(json);
}

static const struct policy tiered = {.micro_batches_per_wave = 3,
                                     .chunk_bytes = 1 << 20,
                                     .persistent_chunks = 2,
                                     .buffers = 4,
                                     .lookahead = 1,
                                     .parameters = TIER_HOST,
                                     .gradients = TIER_HOST,
                                     .optimizer = TIER_DISK,
                                     .update = TIER_HOST,
                                     .partition = {1, 1, 1},
                                     .flat = true,
                                     .schedule = "f0-3 h1 d2 b3-0"};

static void policies_come_back_the_same(void **state) {
    (void)state;
    struct policy back;
    json_t *json = policy_to_json(&tiered);
    assert_int_equal(policy_from_json("plan.json", json, &back), STATUS_OK);
    json_t *again = policy_to_json(&back);
    assert_true(json_equal(json, again));
    json_decref(json);
    json_decref(again);
    json = json_pack("{s:i}", "micro_batches_per_wave", 2);
    assert_int_equal(policy_from_json("plan.json", json, &back), STATUS_OK);
    assert_memory_equal(&back, (&(struct policy){.micro_batches_per_wave = 2}), sizeof back);
    json_decref(json);
}

/* The plan of `example` under `tiered` with one field changed; "": left out. */
static void refuse_policy(const char *path, const char *field, json_t *value, const char *rule, const char *hint) {
    struct plan plan = example();
    plan.policy = tiered;
    json_t *json = plan_to_json(&plan);
    json_object_set_new(json_object_get(json, "policy"), field, value);
    refuse(path, json, rule, hint);
    if (!strstr(status_message(), field)) fail_msg("'%s' does not name %s", status_message(), field);
}

static void bad_policies_are_refused(void **state) {
    const char *path = temp_path(*state, "plan.json");
    refuse_policy(path, "micro_batches_per_wave", json_integer(0), "at least one micro-batch", "is 1");
    refuse_policy(path, "micro_batches_per_wave", json_integer(5), "at most those that a lane adds up", "is 4");
    refuse_policy(path, "micro_batches_per_wave", json_string("2"), "must be a whole number", whole);
    refuse_policy(path, "chunk_bytes", json_integer(-1), "a chunk has a size", "is 0");
    refuse_policy(path, "persistent_chunks", json_integer(-4), "a count of chunks", "is 0");
    refuse_policy(path, "buffers", json_integer(0), "pass through buffers", "is 1");
    refuse_policy(path, "buffers", json_integer(1 << 21), "pass through buffers", "is 1048576");
    refuse_policy(path, "lookahead", json_integer(-1), "a count of groups", "is 0");
    refuse_policy(path, "lookahead", json_integer(65), "a count of groups", "is 64");
    refuse_policy(path, "lookahead", json_real(1.5), "must be a whole number", "is 2");
    refuse_policy(path, "update", json_string("disk"), "nothing is computed on the disk", "is host");
    refuse_policy(path, "optimizer", json_string("device"), "update", "is device");
    json_t *json = changed("policy", "update", json_string("disk")); /* with the optimizer on the device */
    refuse(path, json, "nothing is computed on the disk", "is device");
    refuse_policy(path, "partition", json_integer(4), "must be an object", whole);
    refuse_policy(path, "partition", json_pack("{s:i}", "parameters", 1), "gradients", whole);
    refuse_policy(path, "partition", json_pack("{s:i, s:i, s:i}", "parameters", 0, "gradients", 1, "optimizer", 1),
                  "parameters", "is 1");
    refuse_policy(path, "partition", json_pack("{s:i, s:i, s:i}", "parameters", 1, "gradients", 2, "optimizer", 2),
                  "is not legal for 1 x 1 ranks", "always legal");
    refuse_policy(path, "flat", json_integer(1), "must be true or false", whole);
    refuse_policy(path, "parameters", json_string("cloud"), "'cloud' is no tier",
                  "the legal values are device, host and disk");
    refuse_policy(path, "parameters", json_string("devise"), "'devise' is no tier", "is device");
    refuse_policy(path, "gradients", json_string("hots"), "'hots' is no tier", "is host");
    refuse_policy(path, "optimizer", json_string("discs"), "'discs' is no tier", "is disk");
    refuse_policy(path, "update", json_string("hosst"), "'hosst' is no tier", "is host");
    refuse_policy(path, "gradients", json_integer(1), "must be a string", whole);
    refuse_policy(path, "offload", json_true(), "unknown field", "the legal fields are ");
    refuse_policy(path, "schedule", json_integer(3), "must be a string", whole);
    char *long_text = spaces(POLICY_SCHEDULE_BYTES);
    refuse_policy(path, "schedule", json_string(long_text), "is longer than 16383 bytes", "length is 16383 bytes");
    free(long_text);
}

static void micro_batches_are_counted(void **state) {
    (void)state;
    assert_int_equal(recipe_default_micro_batch(8, 1024, 1024), 1);
    assert_int_equal(recipe_default_micro_batch(8, 1023, 1024), 2);
    assert_int_equal(recipe_default_micro_batch(8, 100, 1024), 8);
    assert_int_equal(recipe_default_micro_batch(64, 100, 1024), 11);
    struct plan plan = example();
    assert_int_equal(recipe_micro_batches(&plan.recipe), 4);
    plan.recipe.batch = 13;
    assert_int_equal(recipe_micro_batches(&plan.recipe), 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(plans_come_back_the_same, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(version_1_is_read, temp_folder_make, temp_folder_drop),
        cmocka_unit_test(keys_of_version_1_become_those_of_today),
        cmocka_unit_test_setup_teardown(products_come_back_the_same, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(strategies_come_back_the_same, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(lanes_and_ranks_come_back_the_same, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(plans_without_lanes_have_one, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(null_settings_have_their_defaults, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(bad_lanes_and_ranks_are_refused, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(bad_plans_are_refused, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(threads_are_read_from_either_place, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(bad_integers_are_refused, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(bad_floats_are_refused, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(bad_texts_are_refused, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(pairs_need_even_numbers, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(limits_are_legal, temp_folder_make, temp_folder_drop),
        cmocka_unit_test(policies_come_back_the_same),
        cmocka_unit_test_setup_teardown(bad_policies_are_refused, temp_folder_make, temp_folder_drop),
        cmocka_unit_test(micro_batches_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
