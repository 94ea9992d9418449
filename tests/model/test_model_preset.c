/* Presets: the strict reader accepts them, they have the published numbers of parameters, and common spellings of
 * their names find them. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "model/model.h"
#include "support/temp_folder.h"
#include "support/unit.h"

/* What the models' pages on the hub say of their weights; tied heads are counted once. */
static const struct {
    const char *name;
    int64_t parameters;
} published[] = {
    {"gpt2", 124439808},
    {"gpt2-medium", 354823168},
    {"gpt2-large", 774030080},
    {"gpt2-xl", 1557611200},
    {"llama-2-7b", 6738415616},
    {"llama-2-13b", 13015864320},
    {"llama-2-70b", 68976648192},
    {"llama-3-8b", 8030261248},
    {"llama-3-70b", 70553706496},
    {"llama-3.1-8b", 8030261248},
    {"llama-3.1-70b", 70553706496},
    {"llama-3.1-405b", 405853388800},
    {"llama-3.2-1b", 1235814400},
    {"llama-3.2-3b", 3212749824},
    {"llama-3.3-70b", 70553706496},
    {"tinyllama-1.1b", 1100048384},
    {"smollm-135m", 134515008},
    {"smollm-360m", 361821120},
    {"smollm-1.7b", 1711376384},
    {"smollm2-135m", 134515008},
    {"smollm2-360m", 361821120},
    {"smollm2-1.7b", 1711376384},
    {"gemma-2-2b", 2614341888},
    {"gemma-2-9b", 9241705984},
    {"gemma-2-27b", 27227128320},
    {"gemma-3-270m", 268098176},
    {"gemma-3-1b", 999885952},
    {"gemma-3-4b", 3880263168},
    {"gemma-3-12b", 11766034176},
    {"gemma-3-27b", 27009346304},
    {"granite-3.1-2b", 2533531648},
    {"granite-3.1-8b", 8170848256},
    {"olmo-2-1b", 1484916736},
    {"olmo-2-7b", 7298617344},
    {"olmo-2-13b", 13716198400},
    {"olmo-2-32b", 32234279936},
    {"smollm3-3b", 3075098624},
    {"mistral-7b-v0.1", 7241732096},
    {"mistral-7b-v0.3", 7248023552},
    {"mistral-nemo-12b", 12247782400},
    {"qwen2-0.5b", 494032768},
    {"qwen2-1.5b", 1543714304},
    {"qwen2-7b", 7615616512},
    {"qwen2-72b", 72706203648},
    {"qwen2.5-0.5b", 494032768},
    {"qwen2.5-1.5b", 1543714304},
    {"qwen2.5-3b", 3085938688},
    {"qwen2.5-7b", 7615616512},
    {"qwen2.5-14b", 14770033664},
    {"qwen2.5-32b", 32763876352},
    {"qwen2.5-72b", 72706203648},
    {"qwen3-0.6b", 596049920},
    {"qwen3-1.7b", 1720574976},
    {"qwen3-4b", 4022468096},
    {"qwen3-8b", 8190735360},
    {"qwen3-14b", 14768307200},
    {"qwen3-32b", 32762123264},
    {"qwen3-30b-a3b", 30532122624},
    {"qwen3-235b-a22b", 235093634560},
    {"gpt-oss-20b", 20914757184},
    {"gpt-oss-120b", 116829156672},
    {"opt-125m", 125239296},
    {"opt-350m", 331196416},
    {"opt-1.3b", 1315758080},
    {"opt-2.7b", 2651596800},
    {"opt-6.7b", 6658473984},
    {"opt-13b", 12853473280},
    {"opt-30b", 29974540288},
    {"opt-66b", 65719701504},
    {"phi-3-mini", 3821079552},
    {"phi-3-medium", 13960238080},
    {"phi-3.5-mini", 3821079552},
    {"phi-4-mini", 3836021760},
    {"phi-4", 14659507200},
};

static int64_t count_parameters(const char *name) {
    struct model *model;
    struct graph *graph;
    struct tensor *logits;
    if (model_open_outline(name, &model) != STATUS_OK) fail_msg("%s: %s", name, status_message());
    assert_int_equal(model_build_graph(model, MODEL_LOGITS, DTYPE_BF16, 1, 1, &graph, &logits), STATUS_OK);
    int64_t parameters = model_parameter_count(graph);
    graph_free(graph);
    model_free(model);
    return parameters;
}

static void parameters_are_as_published(void **state) {
    (void)state;
    assert_int_equal(model_preset_count, sizeof published / sizeof *published);
    for (int i = 0; i < model_preset_count; i++) {
        assert_string_equal(model_presets[i].name, published[i].name);
        int64_t parameters = count_parameters(published[i].name);
        if (parameters != published[i].parameters)
            fail_msg("%s: %lld parameters, not %lld", published[i].name, (long long)parameters,
                     (long long)published[i].parameters);
    }
}

static void names_are_those_people_type(void **state) {
    (void)state;
    static const char *const names[] = {"llama-3.1-8b", "Llama-3.1-8B", "meta-llama/Llama-3.1-8B"};
    for (int i = 0; i < 3; i++)
        assert_string_equal(model_preset_find(names[i])->name, "llama-3.1-8b");
    for (int i = 0; i < model_preset_count; i++)
        assert_ptr_equal(model_preset_find(model_presets[i].name), &model_presets[i]);
    assert_null(model_preset_find("llama"));
    struct model *model;
    assert_int_equal(model_open_outline("lama-3.1-8b", &model), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "lama-3.1-8b: no directory and no preset"));
    assert_non_null(strstr(status_hint_text(), "did you mean the preset llama-3.1-8b?"));
    assert_int_equal(model_open_outline("something else", &model), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_hint_text(), "ballast help presets"));
}

/* Whoever needs weights says so, with where they are. */
static void a_preset_is_no_model_to_train(void **state) {
    (void)state;
    struct model *model;
    assert_int_equal(model_open("qwen2.5-7b", &model), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "qwen2.5-7b: no such directory; the preset of that name has no weights"));
    assert_non_null(strstr(status_hint_text(), "hf download Qwen/Qwen2.5-7B "));
}

static void put(const char *path, const char *text) {
    assert_int_equal(file_replace(path, text, strlen(text)), STATUS_OK);
}

/* An index whose files are still on their way is as good as none; a file of weights that is there is checked. */
static void a_config_alone_is_an_outline(void **state) {
    static const char index[] = "{\"weight_map\": {\"wte.weight\": \"model-00001-of-00002.safetensors\"}}";
    const char *folder = *state;
    struct model *model;
    put(temp_path(folder, "config.json"), model_preset_find("gpt2")->config);
    assert_int_equal(count_parameters(folder), 124439808);
    assert_int_equal(model_open(folder, &model), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "holds neither model.safetensors nor"));
    put(temp_path(folder, "model.safetensors.index.json"), index);
    assert_int_equal(count_parameters(folder), 124439808);
    assert_int_equal(model_open(folder, &model), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "model-00001-of-00002.safetensors: no such file"));
    put(temp_path(folder, "model.safetensors"), "no header");
    assert_int_equal(model_open_outline(folder, &model), STATUS_BAD_INPUT);
}

/* A directory of a preset's name is what the name means. */
static void a_folder_wins(void **state) {
    const char *folder = temp_path(*state, "llama-3.1-8b");
    assert_int_equal(folder_create(folder), STATUS_OK);
    put(temp_path(folder, "config.json"), model_preset_find("gpt2")->config);
    char *before = getcwd(NULL, 0);
    assert_int_equal(chdir(*state), 0);
    int64_t parameters = count_parameters("llama-3.1-8b");
    assert_int_equal(chdir(before), 0);
    free(before);
    assert_int_equal(parameters, 124439808);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_as_published),
        cmocka_unit_test(names_are_those_people_type),
        cmocka_unit_test(a_preset_is_no_model_to_train),
        cmocka_unit_test_setup_teardown(a_config_alone_is_an_outline, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(a_folder_wins, temp_folder_make, temp_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
