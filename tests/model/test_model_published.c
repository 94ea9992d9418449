/* Configs of published models, old and new, are read completely, and give the parameter counts of transformers. */
#include <string.h>

#include "base/json.h"
#include "model/model.h"
#include "support/unit.h"

static json_t *published(void) {
    json_t *file;
    if (json_read_object(BALLAST_FIXTURES "/configs/published.json", 1 << 20, &file) != STATUS_OK)
        fail_msg("%s", status_message());
    return file;
}

static struct model read_model(const json_t *item) {
    const char *name = json_string_value(json_object_get(item, "name"));
    const json_t *object = json_object_get(item, "config");
    const char *type = json_string_value(json_object_get(object, "model_type"));
    struct model model = {.prefix = ""};
    const struct model_family *family;
    if (model_family_find(name, "model_type", type, &family) != STATUS_OK ||
        model_config_read(name, object, family, &model.config) != STATUS_OK)
        fail_msg("%s", status_message());
    return model;
}

static void parameters_are_as_many(void **state) {
    (void)state;
    json_t *file = published();
    const json_t *models = json_object_get(file, "models");
    for (size_t i = 0; i < json_array_size(models); i++) {
        const json_t *item = json_array_get(models, i);
        struct model model = read_model(item);
        struct graph *graph;
        struct tensor *logits;
        assert_int_equal(model_build_graph(&model, MODEL_LOGITS, DTYPE_BF16, 1, 1, &graph, &logits), STATUS_OK);
        json_int_t wanted = json_integer_value(json_object_get(item, "parameters"));
        if (model_parameter_count(graph) != wanted)
            fail_msg("%s: %lld parameters, not %lld", json_string_value(json_object_get(item, "name")),
                     (long long)model_parameter_count(graph), (long long)wanted);
        graph_free(graph);
    }
    assert_true(json_array_size(models) >= 14);
    json_decref(file);
}

static void windows_are_as_published(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t window;
    } wanted[] = {{"Mistral-7B-v0.1", 4096}, {"Mistral-7B-v0.3", 0}, {"Phi-3-mini-4k", 2047}, {"Phi-4", 0},
                  {"Qwen2-0.5B", 0},         {"Qwen3-0.6B", 0}};
    json_t *file = published();
    const json_t *models = json_object_get(file, "models");
    size_t found = 0;
    for (size_t i = 0; i < json_array_size(models); i++)
        for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++) {
            const json_t *item = json_array_get(models, i);
            if (strcmp(json_string_value(json_object_get(item, "name")), wanted[k].name) != 0) continue;
            struct model model = read_model(item);
            assert_int_equal(model.config.window, wanted[k].window);
            for (int64_t layer = 0; layer < model.config.layers; layer++)
                assert_int_equal(model.config.windowed[layer], wanted[k].window > 0);
            found++;
        }
    assert_int_equal(found, sizeof wanted / sizeof *wanted);
    json_decref(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_as_many),
        cmocka_unit_test(windows_are_as_published),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
