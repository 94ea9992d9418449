/* Costs of operators: every node has one, equal nodes share a measurement, and stored measurements are found. Does
 * not check the values. */
#include <math.h>
#include <string.h>

#include "base/fault.h"
#include "base/json.h"
#include "base/terminal.h"
#include "ir/differentiate.h"
#include "model/model.h"
#include "profile/cache.h"
#include "profile/model.h"
#include "profile/operator_bench.h"
#include "profile/points.h"
#include "support/collective_graph.h"
#include "support/kept_profile.h"
#include "support/model_cases.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { TOKENS = 24, VOCAB = MODEL_CASE_VOCAB };

struct variant {
    const char *family;
    enum dtype dtype;
    enum model_purpose purpose;
    const char *lora;
    bool scaled_by_layer;
};

static struct model *create_model(const struct variant *variant) {
    struct model_config config;
    struct model *model;
    assert_int_equal(model_config_init(variant->family, &config), STATUS_OK);
    config.vocab_size = VOCAB;
    config.hidden = 32;
    config.layers = 3;
    config.heads = 4;
    config.context = 64;
    config.scale_by_inverse_layer = variant->scaled_by_layer;
    if (model_create(&config, &model) != STATUS_OK) fail_msg("%s", status_message());
    if (variant->lora) assert_int_equal(model_set_adapter(model, variant->lora, 1), STATUS_OK);
    return model;
}

static struct graph *build_graph(const struct variant *variant) {
    static const struct optimizer_options optimizer = {
        .moments = DTYPE_F32, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip_norm = 1};
    struct model *model = create_model(variant);
    struct graph *graph;
    struct tensor *output;
    enum status status;
    if (variant->purpose == MODEL_DECODE) {
        status = model_build_decode_graph(model, variant->dtype, &(struct decode_shape){2, 4, 3, 2 * TOKENS}, &graph,
                                          &output);
    } else {
        status = model_build_graph(model, variant->purpose, variant->dtype, 2, TOKENS, &graph, &output);
        if (status == STATUS_OK) status = graph_differentiate(graph, output);
        if (status == STATUS_OK) status = ops_add_optimizer(graph, &optimizer);
    }
    if (status != STATUS_OK) fail_msg("%s: %s", variant->family, status_message());
    model_free(model);
    return graph;
}

static struct profile_options options_in(const char *cache) {
    return (struct profile_options){.cache_folder = cache, .threads = 2, .budget_s = 0.01};
}

struct profiled {
    struct costs costs;
    struct profile_report report;
};

static struct profiled profile(const struct graph *graph, const struct profile_options *options) {
    struct profiled profiled;
    struct cluster cluster = kept_profile_machine();
    enum status status = profile_model(&backend_cpu, graph, &cluster, options, &profiled.costs, &profiled.report);
    if (status != STATUS_OK) fail_msg("%s", status_message());
    return profiled;
}

static void drop(struct profiled *profiled) {
    costs_free(&profiled->costs);
    profile_report_free(&profiled->report);
}

static void expect_costs(const struct graph *graph, const struct profiled *profiled) {
    assert_int_equal(profiled->costs.count, graph->nodes.count);
    for (size_t i = 0; i < graph->nodes.count; i++) {
        struct kernel_cost cost = profiled->costs.kernels[i];
        if (!(isfinite(cost.seconds) && cost.seconds > 0 && cost.seconds < 60))
            fail_msg("%s: %g s", graph->nodes.items[i]->name, cost.seconds);
        assert_true(cost.activity == ACTIVITY_PRODUCT || cost.activity == ACTIVITY_STREAMING);
        assert_in_range(profiled->report.of_node[i], 0, profiled->report.operators - 1);
        assert_true(profiled->report.list[profiled->report.of_node[i]].seconds == cost.seconds);
    }
}

static void expect_all_costs(const struct variant *variant, const struct profile_options *options) {
    struct graph *graph = build_graph(variant);
    struct profiled profiled = profile(graph, options);
    expect_costs(graph, &profiled);
    drop(&profiled);
    graph_free(graph);
}

/* Every family, both dtypes, and all that changes a graph. */
static void every_node_has_a_cost(void **state) {
    static const struct variant variants[] = {
        {.family = "gpt2", .dtype = DTYPE_BF16, .purpose = MODEL_LOSS},
        {.family = "llama", .dtype = DTYPE_BF16, .purpose = MODEL_LOSS_SEGMENTED},
        {.family = "llama", .dtype = DTYPE_F32, .purpose = MODEL_LOSS, .lora = "4,8,all-linear"},
        {.family = "gpt2", .dtype = DTYPE_F32, .purpose = MODEL_LOSS_SEGMENTED},
        {.family = "gpt2", .dtype = DTYPE_F32, .purpose = MODEL_DECODE},
        {.family = "qwen3", .dtype = DTYPE_BF16, .purpose = MODEL_DECODE},
    };
    struct profile_options options = options_in(*state);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        expect_all_costs(&variants[i], &options);
    for (int i = 0; i < model_family_count; i++)
        expect_all_costs(
            &(struct variant){.family = model_families[i]->name, .dtype = DTYPE_F32, .purpose = MODEL_LOSS}, &options);
}

static const struct node *find_node(const struct graph *graph, const char *name) {
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (strcmp(graph->nodes.items[i]->name, name) == 0) return graph->nodes.items[i];
    fail_msg("no node is called %s", name);
    return NULL;
}

static const char *key_of(const struct graph *graph, const char *name, struct scratch *memory) {
    struct operands operands;
    operands_find(graph, find_node(graph, name), &operands);
    return operator_key(&operands, memory);
}

/* Layers are alike, whatever attributes that change no time say; other shapes are not. */
static void expect_all_counted(void *payload, enum progress_moment moment, const struct progress *progress) {
    int *reports = payload;
    assert_true(progress->done <= progress->total);
    if (moment != PROGRESS_ENDS) return;
    if (progress->done != progress->total)
        fail_msg("%s: %d of %d at its end", progress->what, (int)progress->done, (int)progress->total);
    ++*reports;
}

/* What walks measure and what is measured by itself; whole operators and parts of them. */
static void measuring_counts_to_its_end(void **state) {
    static const struct variant variants[] = {
        {"llama", DTYPE_F32, MODEL_LOSS, NULL, false},
        {"llama", DTYPE_BF16, MODEL_LOSS, "2,4,all-linear", false},
        {"gpt2", DTYPE_F32, MODEL_DECODE, NULL, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        struct graph *graph = build_graph(&variants[i]);
        const struct profile_options options = options_in(NULL);
        int reports = 0;
        progress_listen(expect_all_counted, &reports);
        struct profiled profiled = profile(graph, &options);
        progress_listen(NULL, NULL);
        assert_true(reports > 0);
        drop(&profiled);
        graph_free(graph);
    }
}

static void equal_nodes_have_one_measurement(void **state) {
    (void)state;
    const struct variant variant = {
        .family = "gpt2", .dtype = DTYPE_F32, .purpose = MODEL_LOSS, .scaled_by_layer = true};
    struct graph *graph = build_graph(&variant);
    struct scratch memory = {0};
    const char *attention = key_of(graph, "layer.1.attention", &memory);
    assert_string_equal(attention, key_of(graph, "layer.2.attention", &memory));
    assert_string_not_equal(key_of(graph, "layer.1.mlp.c_fc", &memory), key_of(graph, "layer.1.mlp.c_proj", &memory));
    assert_non_null(strstr(attention, "/96")); /* columns of q, k and v together */
    struct profile_options options = options_in(NULL);
    struct profiled profiled = profile(graph, &options);
    assert_true(profiled.report.operators < 50 && graph->nodes.count > 100);
    assert_true(profiled.costs.kernels[find_node(graph, "layer.1.attention")->id].seconds ==
                profiled.costs.kernels[find_node(graph, "layer.2.attention")->id].seconds);
    drop(&profiled);
    scratch_free(&memory);
    graph_free(graph);
}

/* The update of a large embedding is read off the line, not measured. */
static void updates_follow_their_size(void **state) {
    (void)state;
    const double seconds[CURVE_POINTS] = {1, 64, 4096};
    assert_true(curve_seconds(seconds, 1) == 1);
    assert_true(curve_seconds(seconds, curve_elements[0]) == 1);
    assert_true(curve_seconds(seconds, curve_elements[1]) == 64);
    assert_true(fabs(curve_seconds(seconds, (curve_elements[1] + curve_elements[2]) / 2) - 2080) < 1e-9);
    assert_true(curve_seconds(seconds, 10 * curve_elements[2]) == 40960);
}

static void expect_equal(const struct costs *a, const struct costs *b) {
    assert_int_equal(a->count, b->count);
    for (int32_t i = 0; i < a->count; i++) {
        assert_true(a->kernels[i].seconds == b->kernels[i].seconds);
        assert_int_equal(a->kernels[i].activity, b->kernels[i].activity);
    }
}

/* Nothing is measured for it: it is found where all of it was. */
static void what_is_kept_alone_is_found(void **state) {
    struct graph *graph = kept_profile_graph();
    struct profile_options options = options_in(*state);
    struct cluster cluster = kept_profile_machine();
    struct costs costs;
    bool found = true;
    assert_int_equal(profile_model_kept(&backend_cpu, graph, &cluster, &options, &costs, &found), STATUS_OK);
    assert_false(found);
    assert_null(costs.kernels);
    struct profiled profiled = profile(graph, &options);
    assert_int_equal(profile_model_kept(&backend_cpu, graph, &cluster, &options, &costs, &found), STATUS_OK);
    assert_true(found);
    expect_equal(&profiled.costs, &costs);
    costs_free(&costs);
    struct cluster unknown = {0}; /* whose rates nothing has measured */
    assert_int_equal(profile_model_kept(&backend_cpu, graph, &unknown, &options, &costs, &found), STATUS_OK);
    assert_false(found);
    drop(&profiled);
    graph_free(graph);
}

static void what_is_kept_is_found_again(void **state) {
    struct graph *graph = kept_profile_graph();
    struct profile_options options = options_in(temp_path(*state, "again"));
    struct profiled first = profile(graph, &options);
    assert_true(first.report.measured >= 2);
    kept_profile_set(temp_only(options.cache_folder), 0.25, 0);
    struct profiled second = profile(graph, &options), third = profile(graph, &options);
    assert_int_equal(second.report.measured, 0);
    assert_true(second.costs.kernels[0].seconds == 0.25);
    expect_equal(&second.costs, &third.costs);
    options.anew = true;
    struct profiled anew = profile(graph, &options);
    assert_true(anew.report.measured >= 2);
    options.anew = false;
    options.threads = 1; /* another machine */
    struct profiled other = profile(graph, &options);
    assert_true(other.report.measured >= 2);
    drop(&first), drop(&second), drop(&third), drop(&anew), drop(&other);
    graph_free(graph);
}

/* What little memory allows to measure is not what is measured with enough, and is not taken for it. */
static void little_memory_is_kept_apart(void **state) {
    struct graph *graph = kept_profile_graph();
    struct profile_options options = options_in(temp_path(*state, "little"));
    options.memory_bytes = PROFILE_MEMORY_BYTES_MIN;
    struct profiled little = profile(graph, &options);
    assert_true(little.report.measured >= 2);
    kept_profile_set(temp_only(options.cache_folder), 0.25, 0);
    struct profiled again = profile(graph, &options);
    assert_true(again.costs.kernels[0].seconds == 0.25);
    options.memory_bytes = PROFILE_MEMORY_BYTES;
    struct profiled enough = profile(graph, &options);
    assert_true(enough.report.measured >= 2 && enough.costs.kernels[0].seconds < 0.25);
    assert_int_equal(temp_count(options.cache_folder), 2);
    drop(&little), drop(&again), drop(&enough);
    graph_free(graph);
}

/* What was measured while other programs ran is measured again, and the lower time kept, whichever came first. */
static void noisy_ones_are_measured_again(void **state) {
    struct graph *graph = kept_profile_graph();
    struct profile_options options = options_in(temp_path(*state, "noisy"));
    struct profiled first = profile(graph, &options);
    const char *path = temp_only(options.cache_folder);
    kept_profile_set(path, 100, 0.5);
    struct profiled higher = profile(graph, &options);
    assert_true(higher.report.measured >= 2);
    assert_true(higher.costs.kernels[0].seconds < 100 && higher.costs.kernels[1].seconds < 100);
    kept_profile_set(path, 1e-9, 1e9);
    struct profiled lower = profile(graph, &options);
    assert_true(lower.report.measured >= 2);
    assert_true(lower.costs.kernels[0].seconds == 1e-9 && lower.costs.kernels[1].seconds == 1e-9);
    drop(&first), drop(&higher), drop(&lower);
    graph_free(graph);
}

/* The cache's file after someone changed it. */
static void damage(const char *path, int kind) {
    static const char *const texts[] = {
        "", "{", "[]", "{\"version\": 2}", "\xff\xfe", "{\"version\": 2, \"machine\": \"another\", \"operators\": {}}"};
    enum { TEXTS = sizeof texts / sizeof *texts };
    if (kind < TEXTS) {
        temp_write_text(path, texts[kind]);
        return;
    }
    json_t *file;
    assert_int_equal(json_read_object(path, 1 << 24, &file), STATUS_OK);
    json_t *operators = json_object_get(file, "operators");
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(operators, next, key, value)
        json_object_set_new(operators, key, kind == TEXTS ? json_pack("[f, f]", -1.0, 0.0) : json_string("fast"));
    if (kind == TEXTS + 2) json_object_set_new(file, "operators", json_integer(3));
    assert_int_equal(json_write(path, file), STATUS_OK);
    json_decref(file);
}
enum { DAMAGES = 9 };

static void damaged_files_are_measured_anew(void **state) {
    struct graph *graph = kept_profile_graph();
    struct profile_options options = options_in(temp_path(*state, "damaged"));
    struct profiled first = profile(graph, &options);
    const char *path = temp_only(options.cache_folder);
    for (int kind = 0; kind < DAMAGES; kind++) {
        damage(path, kind);
        struct profiled anew = profile(graph, &options);
        kept_profile_set(path, 0, 0);
        struct profiled again = profile(graph, &options);
        if (anew.report.measured < 2) fail_msg("damage %d: %d", kind, anew.report.measured);
        assert_int_equal(again.report.measured, 0);
        expect_costs(graph, &anew);
        drop(&anew), drop(&again);
    }
    drop(&first);
    graph_free(graph);
}

/* A file where the directory should be: nothing can be kept, and that is no error. */
static void no_folder_is_no_error(void **state) {
    struct graph *graph = kept_profile_graph();
    struct profile_options options = options_in(temp_path(*state, "file"));
    temp_write_text(options.cache_folder, "here");
    struct profiled first = profile(graph, &options), second = profile(graph, &options);
    assert_true(first.report.measured >= 2 && second.report.measured >= 2);
    drop(&first), drop(&second);
    graph_free(graph);
}

static void threads_that_do_not_start_are_reported(void **state) {
    (void)state;
    struct profile_options options = options_in(NULL);
    struct cluster cluster = {.device = {.fp32_flops_per_s = 1e11, .bf16_flops_per_s = 1e11}};
    fault_arm(FAULT_SUBMIT, 1, false);
    enum status status = profile_machine(&backend_cpu, &options, &cluster, NULL);
    fault_arm(FAULT_SUBMIT, 0, false);
    assert_int_equal(status, STATUS_FAILED);
    assert_non_null(strstr(status_message(), "thread"));
}

/* They have no kernel: what they take is known when links are (search/sim/costs.h). */
static void operators_between_ranks_are_not_measured(void **state) {
    (void)state;
    struct graph *graph = collective_graph_build(DTYPE_F32, (struct group_part){.parts = 2, .position = 0});
    const struct profile_options options = {.threads = 1, .budget_s = 0.01};
    struct cluster cluster = kept_profile_machine();
    struct profile_report report;
    struct costs costs;
    int collectives = 0;
    if (profile_model(&backend_cpu, graph, &cluster, &options, &costs, &report) != STATUS_OK)
        fail_msg("%s", status_message());
    for (size_t n = 0; n < graph->nodes.count; n++) {
        bool is_collective = graph->nodes.items[n]->op->collective;
        assert_int_equal(costs.kernels[n].seconds == 0, is_collective);
        assert_int_equal(report.of_node[n] < 0, is_collective);
        collectives += is_collective;
    }
    assert_true(collectives > 10);
    costs_free(&costs);
    profile_report_free(&report);
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_node_has_a_cost, temp_folder_make, temp_folder_drop),
        cmocka_unit_test(measuring_counts_to_its_end),
        cmocka_unit_test(equal_nodes_have_one_measurement),
        cmocka_unit_test(updates_follow_their_size),
        cmocka_unit_test_setup_teardown(what_is_kept_is_found_again, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(little_memory_is_kept_apart, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(what_is_kept_alone_is_found, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(noisy_ones_are_measured_again, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(damaged_files_are_measured_anew, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(no_folder_is_no_error, temp_folder_make, temp_folder_drop),
        cmocka_unit_test(threads_that_do_not_start_are_reported),
        cmocka_unit_test(operators_between_ranks_are_not_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
