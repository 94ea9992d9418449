/* Models read from the fixtures: graphs, names, shapes, and weights through every format and back. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/half.h"
#include "model/model.h"
#include "support/model_cases.h"
#include "support/policy_subject.h"
#include "support/temp_folder.h"
#include "support/unit.h"
#include "support/weight_files.h"

static const char *const cases[] = {FULL_MODEL_CASES, LIGHT_MODEL_CASES}, *const full_cases[] = {FULL_MODEL_CASES};
enum { CASES = sizeof cases / sizeof *cases, FULL_CASES = sizeof full_cases / sizeof *full_cases };

static struct model *open_folder(const char *folder) {
    struct model *model;
    if (model_open(folder, &model) != STATUS_OK) fail_msg("%s: %s", folder, status_message());
    return model;
}

static struct model *open_case(const char *model_case) { return open_folder(fixture_model(model_case)); }

static struct model_targets load(const struct model *model, enum dtype dtype) {
    struct model_targets targets = model_targets_make(model, dtype);
    if (model_load_weights(model, targets.items, targets.count) != STATUS_OK) fail_msg("%s", status_message());
    return targets;
}

static struct model_targets load_case(const char *model_case, enum dtype dtype, struct model **model) {
    *model = open_case(model_case);
    return load(*model, dtype);
}

static size_t target_bytes(const struct weight_target *target) {
    return (size_t)shape_elements(&target->tensor->shape) * (size_t)dtype_bytes(target->dtype);
}

static struct graph *build(const struct model *model, enum model_purpose purpose, struct tensor **out) {
    struct graph *graph;
    if (model_build_graph(model, purpose, DTYPE_BF16, 4, 19, &graph, out) != STATUS_OK)
        fail_msg("%s", status_message());
    return graph;
}

static void every_fixture_builds(void **state) {
    (void)state;
    static const char *const blocks[] = {"embedding", "layer 0", "layer 1", "head"};
    for (int i = 0; i < CASES; i++) {
        struct model *model = open_case(cases[i]);
        struct tensor *loss, *logits;
        struct graph *graph = build(model, MODEL_LOSS, &loss);
        assert_string_equal(loss->name, "loss");
        assert_int_equal(loss->kind, TENSOR_RESULT);
        assert_int_equal(graph->blocks.count, 4);
        for (int k = 0; k < 4; k++)
            assert_string_equal(graph->blocks.items[k], blocks[k]);
        assert_non_null(graph_find(graph, "tokens"));
        assert_non_null(graph_find(graph, "targets"));
        assert_non_null(graph_find(graph, "positions"));
        int64_t count = model_parameter_count(graph), matrix = model_matrix_parameter_count(graph);
        graph_free(graph);

        graph = build(model, MODEL_LOGITS, &logits);
        char shape[SHAPE_TEXT];
        assert_string_equal(logits->name, "logits");
        assert_string_equal(shape_print(&logits->shape, shape), "fp32 [4, 19, 53]");
        assert_null(graph_find(graph, "targets"));
        assert_int_equal(model_parameter_count(graph), count);
        assert_int_equal(model_matrix_parameter_count(graph), matrix);
        graph_free(graph);
        model_free(model);
    }
}

/* transformers' own list of parameters, with their shapes, is in the references: one gradient for each. */
static void parameters_are_those_of_transformers(void **state) {
    (void)state;
    for (int i = 0; i < FULL_CASES; i++) {
        struct model *model = open_case(full_cases[i]);
        struct model_targets targets = model_targets_make(model, DTYPE_F32);
        struct safetensors *reference;
        assert_int_equal(safetensors_open(temp_path(fixture_model(full_cases[i]), "reference.safetensors"), &reference),
                         STATUS_OK);
        int gradients = 0;
        for (size_t k = 0; k < reference->tensors.count; k++) {
            const struct safetensors_tensor *gradient = &reference->tensors.items[k];
            if (strncmp(gradient->name, "grad64.", 7) != 0) continue;
            const struct tensor *parameter = graph_find(targets.graph, gradient->name + 7);
            if (!parameter) fail_msg("%s: no parameter for %s", full_cases[i], gradient->name);
            if (!safetensors_has_shape(gradient, &parameter->shape))
                fail_msg("%s: shape of %s", full_cases[i], gradient->name);
            gradients++;
        }
        assert_int_equal(gradients, targets.count);
        safetensors_close(reference);
        model_targets_drop(&targets);
        model_free(model);
    }
}

static void parameters_are_counted(void **state) {
    (void)state;
    struct model *model = open_case("gpt2"); /* V 53, T 40, C 30, F 47, 2 layers, tied */
    struct tensor *loss;
    struct graph *graph = build(model, MODEL_LOSS, &loss);
    int64_t matrices = 2 * (30 * 90 + 30 * 30 + 2 * 30 * 47), others = 2 * (90 + 30 + 47 + 30 + 4 * 30) + 2 * 30;
    assert_int_equal(model_matrix_parameter_count(graph), matrices + 53 * 30);
    assert_int_equal(model_parameter_count(graph), matrices + others + 53 * 30 + 40 * 30);
    graph_free(graph);
    model_free(model);
    model = open_case("llama"); /* C 36, 6 and 3 heads of 10, F 39, not tied */
    graph = build(model, MODEL_LOSS, &loss);
    matrices = 2 * (2 * 36 * 60 + 2 * 36 * 30 + 3 * 36 * 39) + 53 * 36;
    assert_int_equal(model_matrix_parameter_count(graph), matrices);
    assert_int_equal(model_parameter_count(graph), matrices + 53 * 36 + 5 * 36);
    graph_free(graph);
    model_free(model);
}

static const struct node *find_node(const struct graph *graph, const char *name) {
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (strcmp(graph->nodes.items[i]->name, name) == 0) return graph->nodes.items[i];
    fail_msg("no node %s", name);
    return NULL;
}

static double attention_scale(const char *model_case, const char *node) {
    struct model *model = open_case(model_case);
    struct tensor *loss;
    struct graph *graph = build(model, MODEL_LOSS, &loss);
    double scale = NODE_ATTRIBUTES(find_node(graph, node), attention_attributes)->scale;
    graph_free(graph);
    model_free(model);
    return scale;
}

static int64_t attention_window(const char *model_case, const char *node) {
    struct model *model = open_case(model_case);
    struct tensor *loss;
    struct graph *graph = build(model, MODEL_LOSS, &loss);
    int64_t window = NODE_ATTRIBUTES(find_node(graph, node), attention_attributes)->window;
    graph_free(graph);
    model_free(model);
    return window;
}

static void windows_reach_their_layers(void **state) {
    (void)state;
    assert_int_equal(attention_window("mistral", "layer.0.attention"), 7);
    assert_int_equal(attention_window("qwen2", "layer.0.attention"), 0);
    assert_int_equal(attention_window("qwen2", "layer.1.attention"), 11);
    assert_int_equal(attention_window("qwen3_bias", "layer.0.attention"), 11);
    assert_int_equal(attention_window("qwen3_bias", "layer.1.attention"), 0);
    assert_int_equal(attention_window("qwen3", "layer.0.attention"), 0);
    assert_int_equal(attention_window("smollm3", "layer.1.attention"), 11);
    assert_int_equal(attention_window("gemma2", "layer.0.attention"), 7);
    assert_int_equal(attention_window("gemma2", "layer.1.attention"), 0);
    assert_int_equal(attention_window("gemma3_text_bias", "layer.1.attention"), 11);
}

static void settings_reach_the_graph(void **state) {
    (void)state;
    assert_true(attention_scale("gpt2_inverse_layer", "layer.0.attention") == 1 / sqrt(10));
    assert_true(attention_scale("gpt2_inverse_layer", "layer.1.attention") == 1 / sqrt(10) / 2);
    assert_true(attention_scale("gpt2", "layer.1.attention") == 1 / sqrt(10));
    assert_true(attention_scale("llama", "layer.1.attention") == 1 / sqrt(10));
    assert_true(attention_scale("gemma2", "layer.0.attention") == 1 / sqrt(6));
    assert_true(attention_scale("granite", "layer.1.attention") == 0.21);

    struct model *model = open_case("llama_rope_llama3");
    struct tensor *loss;
    struct graph *graph = build(model, MODEL_LOSS, &loss);
    const struct node *rope = find_node(graph, "rope"), *q = find_node(graph, "layer.1.rope.q");
    assert_int_equal(NODE_ATTRIBUTES(rope, rope_table_attributes)->scaling, ROPE_SCALING_LLAMA3);
    assert_int_equal(NODE_ATTRIBUTES(rope, rope_table_attributes)->head_dim, 10);
    assert_ptr_equal(q->in[1], rope->out[0]); /* one table for all layers */
    assert_true(NODE_ATTRIBUTES(find_node(graph, "norm"), norm_attributes)->epsilon == 1e-2);
    graph_free(graph);
    model_free(model);

    model = open_case("gpt2");
    model->config.scale_attention = false;
    graph = build(model, MODEL_LOSS, &loss);
    assert_true(NODE_ATTRIBUTES(find_node(graph, "layer.0.attention"), attention_attributes)->scale == 1);
    graph_free(graph);
    model_free(model);
}

static void long_sequences_are_refused(void **state) {
    (void)state;
    static const struct {
        int64_t sequences, length;
        const char *message;
    } bad[] = {
        {1, 41, "sequence length of 41 is more than the model's context of 40"},
        {0, 8, "must be at least 1"},
        {1, 0, "must be at least 1"},
        {-3, 8, "must be at least 1"},
        {INT64_MAX / 8, 8, "overflow 64 bits"},
    };
    struct model *model = open_case("gpt2");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct graph *graph;
        struct tensor *loss;
        assert_int_equal(
            model_build_graph(model, MODEL_LOSS, DTYPE_F32, bad[i].sequences, bad[i].length, &graph, &loss),
            STATUS_BAD_INPUT);
        if (!strstr(status_message(), bad[i].message)) fail_msg("%s", status_message());
    }
    model_free(model);
}

/* Where `b` has a tensor of the same name, after a's prefix is taken off, it must hold the same bytes. */
static void assert_same_weights(const struct model_targets *a, const struct model_targets *b) {
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        const struct weight_target *other = model_target(b, a->items[i].tensor->name);
        assert_true(shape_equal(&a->items[i].tensor->shape, &other->tensor->shape));
        assert_memory_equal(a->items[i].data, other->data, target_bytes(other));
    }
}

static void the_same_weights_come_from_other_files(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"llama_sharded", "llama_tied"},
        {"gpt2_bare", "gpt2_relu"},
        {"llama_rope_scaling_linear", "llama_rope_linear"},
        {"llama_rope_scaling_llama3", "llama_rope_llama3"},
        {"gemma2_older", "gemma2"},
        {"gemma3_text_older", "gemma3_text"},
        {"gpt_oss_older", "gpt_oss"},
        {"granite_older", "granite"},
        {"mistral_older", "mistral"},
        {"mixtral_older", "mixtral"},
        {"olmo2_older", "olmo2"},
        {"opt_bare", "opt"},
        {"phi3_older", "phi3"},
        {"phi3_longrope_older", "phi3_longrope_long"},
        {"qwen2_older", "qwen2"},
        {"qwen3_older", "qwen3"},
        {"qwen3_moe_older", "qwen3_moe"},
        {"smollm3_interval", "smollm3"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct model *a, *b;
        struct model_targets left = load_case(pairs[i][0], DTYPE_F32, &a),
                             right = load_case(pairs[i][1], DTYPE_F32, &b);
        assert_same_weights(&left, &right);
        model_targets_drop(&left);
        model_targets_drop(&right);
        model_free(a);
        model_free(b);
    }
    struct model *model = open_case("gpt2_bare");
    assert_string_equal(model->prefix, "");
    model_free(model);
    model = open_case("gpt2");
    assert_string_equal(model->prefix, "transformer.");
    model_free(model);
}

static void dtypes_are_converted(void **state) {
    (void)state;
    struct model *models[4];
    struct model_targets exact = load_case("llama_bias", DTYPE_F32, &models[0]);
    struct model_targets rounded = load_case("llama_bias", DTYPE_BF16, &models[1]);
    struct model_targets stored = load_case("llama_bf16", DTYPE_BF16, &models[2]);
    struct model_targets widened = load_case("llama_bf16", DTYPE_F32, &models[3]);
    for (int i = 0; i < exact.count; i++) {
        const float *from = exact.items[i].data, *wide = widened.items[i].data;
        const uint16_t *to = rounded.items[i].data;
        for (int64_t k = 0; k < shape_elements(&exact.items[i].tensor->shape); k++) {
            assert_int_equal(to[k], bf16_from_float(from[k]));
            assert_true(wide[k] == bf16_to_float(to[k]));
        }
    }
    assert_same_weights(&rounded, &stored); /* PyTorch rounds as Ballast does */
    struct model_targets *all[] = {&exact, &rounded, &stored, &widened};
    for (int i = 0; i < 4; i++) {
        model_targets_drop(all[i]);
        model_free(models[i]);
    }

    exact = load_case("gpt2_gelu", DTYPE_F32, &models[0]);
    widened = load_case("gpt2_f16", DTYPE_F32, &models[1]);
    for (int i = 0; i < exact.count; i++) {
        const float *from = exact.items[i].data, *to = widened.items[i].data;
        for (int64_t k = 0; k < shape_elements(&exact.items[i].tensor->shape); k++)
            assert_true(fabsf(from[k] - to[k]) <= 0x1p-11f * fabsf(from[k]) + 0x1p-25f);
    }
    model_targets_drop(&exact);
    model_targets_drop(&widened);
    model_free(models[0]);
    model_free(models[1]);
}

static const char *dtype_key(const json_t *config) {
    return json_object_get(config, "dtype") ? "dtype" : "torch_dtype";
}

static void assert_config_kept(const struct model *model, const char *folder, const char *dtype) {
    json_t *written = json_load_file(temp_path(folder, "config.json"), 0, NULL);
    json_t *wanted = json_copy(model->config_json);
    json_object_set_new(wanted, dtype_key(wanted), json_string(dtype));
    if (!json_equal(written, wanted)) fail_msg("%s: config.json is not what was read", folder);
    json_decref(written);
    json_decref(wanted);
}

static void what_is_written_is_read_back(void **state) {
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16};
    static const char *const names[] = {"float32", "bfloat16"};
    for (int i = 0; i < CASES; i++) {
        for (int k = 0; k < 2; k++) {
            struct model *model;
            struct model_targets targets = load_case(cases[i], dtypes[k], &model);
            const char *folder = temp_path(*state, "written");
            assert_int_equal(folder_create(folder), STATUS_OK);
            if (model_write(model, folder, targets.items, targets.count, NULL) != STATUS_OK)
                fail_msg("%s: %s", cases[i], status_message());
            assert_config_kept(model, folder, names[k]);

            struct model *again = open_folder(folder);
            struct model_targets back = load(again, dtypes[k]);
            assert_same_weights(&targets, &back);
            assert_string_equal(again->prefix, model->prefix);
            /* No buffers, no tied head; all of what is carried. */
            size_t wanted = model->config.family->carried ? model->weights->tensors.count : (size_t)targets.count;
            assert_int_equal(again->weights->tensors.count, wanted);
            model_targets_drop(&targets);
            model_targets_drop(&back);
            model_free(model);
            model_free(again);
            assert_int_equal(folder_remove(temp_path(*state, "written")), STATUS_OK);
        }
    }
}

/* Same dtype, same file: nothing in a model's files gets lost on the way through Ballast. */
static void expect_same_file(const char *parent, const char *model_case) {
    struct model *model;
    struct model_targets targets = load_case(model_case, DTYPE_F32, &model);
    const char *folder = temp_path(parent, model_case);
    assert_int_equal(folder_create(folder), STATUS_OK);
    assert_int_equal(model_write(model, folder, targets.items, targets.count, NULL), STATUS_OK);
    struct weight_file ours = weight_file_load(temp_path(folder, "model.safetensors"));
    struct weight_file theirs = weight_file_load(temp_path(fixture_model(model_case), "model.safetensors"));
    assert_true(json_equal(ours.header, theirs.header));
    assert_int_equal(ours.data_bytes, theirs.data_bytes);
    assert_memory_equal(ours.data, theirs.data, ours.data_bytes);
    weight_file_drop(&ours);
    weight_file_drop(&theirs);
    model_targets_drop(&targets);
    model_free(model);
}

static void an_unchanged_model_has_the_same_tensors(void **state) { expect_same_file(*state, "gpt2"); }

/* A vision tower next to the text model, in fp32 and in bf16, whose kernels have four dimensions. */
static void the_rest_of_a_wrapper_is_carried(void **state) {
    expect_same_file(*state, "gemma3_wrapped");
    expect_same_file(*state, "gemma3_wrapped_modules");
    struct model *model = open_case("gemma3_wrapped");
    assert_string_equal(model->prefix, "language_model.model.");
    model_free(model);
    model = open_case("gemma3_wrapped_modules");
    assert_string_equal(model->prefix, "model.language_model.");
    model_free(model);
}

/* By the names that the modules have, as peft has them, whatever the files say. */
static void adapters_of_a_wrapper_go_by_its_modules(void **state) {
    (void)state;
    struct model *model = open_case("gemma3_wrapped");
    assert_int_equal(model_set_adapter(model, "2,4,q_proj", 1), STATUS_OK);
    struct tensor *loss;
    struct graph *graph = build(model, MODEL_LOSS, &loss);
    assert_non_null(graph_find(graph, "base_model.model.model.language_model.layers.1.self_attn.q_proj.lora_A.weight"));
    graph_free(graph);
    model_free(model);
}

static void tokenizer_files_are_copied(void **state) {
    const char *from = temp_path(*state, "from"), *to = temp_path(*state, "to");
    assert_int_equal(folder_create(from), STATUS_OK);
    assert_int_equal(folder_create(to), STATUS_OK);
    copy_model("llama_tied", from);
    static const char *const copied[] = {
        "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "vocab.json",
        "merges.txt",     "tokenizer.model",       "chat_template.jinja",     "added_tokens.json"};
    enum { COPIED = sizeof copied / sizeof *copied };
    for (int i = 0; i < COPIED; i++)
        temp_write_text(temp_path(from, copied[i]), copied[i]);
    temp_write_text(temp_path(from, "notes.md"), "not a part of the model");
    struct model *model = open_folder(from);
    struct model_targets targets = load(model, DTYPE_F32);
    if (model_write(model, to, targets.items, targets.count, NULL) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(temp_count(to), COPIED + 2);
    for (int i = 0; i < COPIED; i++) {
        char text[64] = "";
        FILE *file = fopen(temp_path(to, copied[i]), "r");
        assert_non_null(file);
        assert_non_null(fgets(text, sizeof text, file));
        fclose(file);
        assert_string_equal(text, copied[i]);
    }
    /* A directory that holds something is left as it is. */
    assert_int_equal(model_write(model, from, targets.items, targets.count, NULL), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "is not empty"));
    assert_true(file_exists(temp_path(from, "notes.md")) && file_exists(temp_path(from, "config.json")));
    model_targets_drop(&targets);
    model_free(model);
}

static void summaries_describe_the_model(void **state) {
    (void)state;
    struct model *model = open_case("llama_rope_linear");
    json_t *summary;
    assert_int_equal(model_summarise(model, &summary), STATUS_OK);
    assert_string_equal(json_string_value(json_object_get(summary, "family")), "llama");
    json_t *config = json_object_get(summary, "config"), *weights = json_object_get(summary, "weights");
    assert_int_equal(json_integer_value(json_object_get(config, "kv_heads")), 1);
    assert_int_equal(json_integer_value(json_object_get(weights, "tensors")), 21);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(weights, "dtypes"), "F32")), 21);
    assert_string_equal(json_string_value(json_object_get(json_object_get(summary, "rope"), "scaling")), "linear");
    assert_int_equal(json_integer_value(json_object_get(config, "window")), 0);
    json_decref(summary);
    model_free(model);
    model = open_case("qwen2");
    assert_int_equal(model_summarise(model, &summary), STATUS_OK);
    config = json_object_get(summary, "config");
    assert_int_equal(json_integer_value(json_object_get(config, "window")), 11);
    assert_int_equal(json_integer_value(json_object_get(config, "windowed_layers")), 1);
    json_decref(summary);
    model_free(model);
}

/* The lists through which tests go that do not go by family. */
static void every_family_is_tested(void **state) {
    (void)state;
    for (int f = 0; f < model_family_count; f++) {
        const char *name = model_families[f]->name;
        bool compared = false, under_policies = false;
        for (int i = 0; i < FULL_CASES; i++)
            compared |= strcmp(full_cases[i], name) == 0;
        for (size_t i = 0; i < policy_subject_count; i++)
            under_policies |= strcmp(policy_subjects[i].family, name) == 0;
        if (!compared) fail_msg("%s is not in FULL_MODEL_CASES (tests/support/model_cases.h)", name);
        if (!under_policies) fail_msg("%s is not in policy_subjects (tests/support/policy_subject.c)", name);
    }
}

static struct model_targets load_fused(const char *family, const char *form, struct model **model) {
    char folder[512];
    snprintf(folder, sizeof folder, BALLAST_FIXTURES "/fused/%s%s", family, form);
    *model = open_folder(folder);
    return load(*model, DTYPE_F32);
}

/* transformers 5 saved each model twice (tests/reference/make_fused_fixtures.py). */
static void fused_and_separate_experts_load_alike(void **state) {
    (void)state;
    static const char *const families[] = {"mixtral", "qwen3_moe"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct model *a, *b;
        struct model_targets apart = load_fused(families[i], "", &a), fused = load_fused(families[i], "_fused", &b);
        assert_same_weights(&apart, &fused);
        model_targets_drop(&apart);
        model_targets_drop(&fused);
        model_free(a);
        model_free(b);
    }
}

static void fused_experts_of_another_number_are_refused(void **state) {
    struct model *model;
    char *text;
    size_t bytes;
    assert_int_equal(file_read(BALLAST_FIXTURES "/fused/qwen3_moe_fused/config.json", 1 << 16, &text, &bytes),
                     STATUS_OK);
    char *experts = strstr(text, "\"num_local_experts\": 3");
    assert_non_null(experts);
    experts[strlen("\"num_local_experts\": ")] = '4';
    temp_write(temp_path(*state, "config.json"), text, bytes);
    mem_free(text);
    assert_int_equal(file_read(BALLAST_FIXTURES "/fused/qwen3_moe_fused/model.safetensors", 1 << 16, &text, &bytes),
                     STATUS_OK);
    temp_write(temp_path(*state, "model.safetensors"), text, bytes);
    mem_free(text);
    assert_int_equal(model_open(*state, &model), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "gate_up_proj: shape is [3, 8, 6], but config.json asks for 8 parts"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_is_tested),
        cmocka_unit_test(every_fixture_builds),
        cmocka_unit_test(parameters_are_those_of_transformers),
        cmocka_unit_test(parameters_are_counted),
        cmocka_unit_test(settings_reach_the_graph),
        cmocka_unit_test(windows_reach_their_layers),
        cmocka_unit_test(long_sequences_are_refused),
        cmocka_unit_test(the_same_weights_come_from_other_files),
        cmocka_unit_test(fused_and_separate_experts_load_alike),
        cmocka_unit_test_setup_teardown(fused_experts_of_another_number_are_refused, temp_folder_make,
                                        temp_folder_drop),
        cmocka_unit_test(dtypes_are_converted),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(an_unchanged_model_has_the_same_tensors),
        cmocka_unit_test(the_rest_of_a_wrapper_is_carried),
        cmocka_unit_test(adapters_of_a_wrapper_go_by_its_modules),
        cmocka_unit_test(tokenizer_files_are_copied),
        cmocka_unit_test(summaries_describe_the_model),
    };
    return cmocka_run_group_tests_name("model", tests, temp_folder_make, temp_folder_drop);
}
