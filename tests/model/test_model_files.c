/* Model directories whose weights do not match their config are refused. The message names the file and the tensor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "model/model.h"
#include "support/fault_sweep.h"
#include "support/model_cases.h"
#include "support/temp_folder.h"
#include "support/unit.h"
#include "support/weight_files.h"

static void assert_refused(const char *folder, const char *file, const char *message) {
    struct model *model;
    status_clear();
    enum status status = model_open(folder, &model);
    if (status != STATUS_BAD_INPUT) fail_msg("%s: status %d", message, (int)status);
    if (!strstr(status_message(), file) || !strstr(status_message(), message))
        fail_msg("\"%s: %s\" is not in: %s", file, message, status_message());
}

static void assert_opens(const char *folder) {
    struct model *model;
    if (model_open(folder, &model) != STATUS_OK) fail_msg("%s", status_message());
    model_free(model);
}

/* A fresh directory of its own for each change. */
static const char *copy_of(const char *model_case, void **state) {
    const char *folder = temp_path(*state, "model");
    assert_int_equal(folder_remove(folder), STATUS_OK);
    assert_int_equal(folder_create(folder), STATUS_OK);
    copy_model(model_case, folder);
    return folder;
}

/* One field of one tensor's entry is replaced; with value "", the tensor is called by the name in `field` instead. */
static void change_tensor(const char *folder, const char *tensor, const char *field, const char *value) {
    const char *path = temp_path(folder, "model.safetensors");
    struct weight_file file = weight_file_load(path);
    json_t *entry = json_incref(json_object_get(file.header, tensor));
    if (!entry) fail_msg("no %s", tensor);
    if (value[0] == '\0') {
        json_object_del(file.header, tensor);
        json_object_set(file.header, field, entry);
    } else {
        json_object_set_new(entry, field, json_loads(value, JSON_DECODE_ANY, NULL));
    }
    json_decref(entry);
    weight_file_save(&file, path);
    weight_file_drop(&file);
}

#define LLAMA_Q "model.layers.1.self_attn.q_proj.weight"
#define LLAMA_NORM "model.norm.weight"

static const struct {
    const char *model_case, *tensor, *field, *value, *message;
} bad[] = {
    {"llama", LLAMA_Q, "model.layers.1.self_attn.Q.weight", "", LLAMA_Q ": missing"},
    {"llama", LLAMA_Q, "shape", "[2160]", LLAMA_Q ": shape is [2160], but config.json asks for [60, 36]"},
    {"llama", LLAMA_Q, "shape", "[30, 72]", LLAMA_Q ": shape is [30, 72], but config.json asks for [60, 36]"},
    {"llama", LLAMA_Q, "dtype", "\"I32\"", LLAMA_Q ": dtype I32 is not supported"},
    {"llama", LLAMA_Q, "dtype", "\"Q4_K\"", LLAMA_Q ": dtype Q4_K is not supported"},
    {"llama", LLAMA_NORM, "shape", "[36, 1]", LLAMA_NORM ": shape is [36, 1], but config.json asks for [36]"},
    {"llama_bias", "model.layers.0.mlp.up_proj.bias", "model.layers.0.mlp.up_proj.Bias", "",
     "model.layers.0.mlp.up_proj.bias: missing"},
    {"llama", "lm_head.weight", "model.lm_head.weight", "", "lm_head.weight: missing"},
    {"gpt2", "transformer.wpe.weight", "shape", "[30, 40]",
     "transformer.wpe.weight: shape is [30, 40], but config.json asks for [40, 30]"},
    {"gpt2", "transformer.wte.weight", "wte.weight", "", "wpe.weight: missing"},
    {"gpt2_bare", "wte.weight", "transformer.wte.weight", "", "transformer.wpe.weight: missing"},
    /* what is a buffer in one place is a surprise in another */
    {"gpt2_bare", "h.1.attn.bias", "h.x.attn.bias", "", "h.x.attn.bias: unexpected tensor"},
    {"gpt2_bare", "h.1.attn.bias", "h.1.attn.bias2", "", "h.1.attn.bias2: unexpected tensor"},
};

static void tensors_that_do_not_fit_are_refused(void **state) {
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *folder = copy_of(bad[i].model_case, state);
        change_tensor(folder, bad[i].tensor, bad[i].field, bad[i].value);
        assert_refused(folder, "model.safetensors", bad[i].message);
    }
}

static void change_config(const char *folder, const char *key, const char *value) {
    const char *path = temp_path(folder, "config.json");
    json_t *config = json_load_file(path, 0, NULL);
    json_object_set_new(config, key, json_loads(value, JSON_DECODE_ANY, NULL));
    write_json(path, config);
    json_decref(config);
}

static void configs_that_contradict_the_weights_are_refused(void **state) {
    static const struct {
        const char *model_case, *key, *value, *message;
    } changes[] = {
        {"llama", "vocab_size", "54", "shape is [53, 36], but config.json asks for [54, 36]"},
        {"llama", "num_hidden_layers", "3", "model.layers.2.input_layernorm.weight: missing"},
        {"llama", "num_hidden_layers", "1", "model.layers.1.input_layernorm.weight: unexpected tensor"},
        {"llama", "intermediate_size", "64", "but config.json asks for [64, 36]"},
        {"llama", "num_key_value_heads", "6", "k_proj.weight: shape is [30, 36], but config.json asks for [60, 36]"},
        {"llama", "attention_bias", "true", "model.layers.0.self_attn.q_proj.bias: missing"},
        {"llama_bias", "mlp_bias", "false", "bias: unexpected tensor"},
        {"llama", "tie_word_embeddings", "true", "lm_head.weight: differs from the embedding"},
        {"llama_tied", "tie_word_embeddings", "false", "lm_head.weight: missing"},
        {"gpt2", "n_positions", "41", "wpe.weight: shape is [40, 30], but config.json asks for [41, 30]"},
        {"gpt2", "n_inner", "48", "mlp.c_fc.weight: shape is [30, 47], but config.json asks for [30, 48]"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const char *folder = copy_of(changes[i].model_case, state);
        change_config(folder, changes[i].key, changes[i].value);
        assert_refused(folder, "model.safetensors", changes[i].message);
    }
}

static void damaged_weight_files_are_refused(void **state) {
    const char *folder = copy_of("llama", state), *path = temp_path(folder, "model.safetensors");
    temp_write(path, "", 0);
    assert_refused(folder, "model.safetensors", "too few");
    copy_model("llama", folder);
    if (truncate(path, 50000) != 0) fail_msg("truncate");
    assert_refused(folder, "model.safetensors", "data_offsets: ends at byte");
    assert_non_null(strstr(status_hint_text(), "truncated"));
    unlink(path);
    assert_refused(folder, "model", "holds neither model.safetensors nor model.safetensors.index.json");
    assert_int_equal(folder_create(path), STATUS_OK);
    assert_refused(folder, "model.safetensors", "not a regular file");
}

static void extra_tensors_are_judged(void **state) {
    const char *folder = copy_of("llama_tied", state), *path = temp_path(folder, "model.safetensors");
    struct weight_file file = weight_file_load(path);
    json_t *embedding = json_object_get(file.header, "model.embed_tokens.weight");
    size_t begin = (size_t)json_integer_value(json_array_get(json_object_get(embedding, "data_offsets"), 0));
    size_t bytes = MODEL_CASE_VOCAB * 15 * 4, before = file.data_bytes;
    weight_file_append(&file, "lm_head.weight", "F32", json_pack("[i, i]", MODEL_CASE_VOCAB, 15), file.data + begin,
                       bytes);
    weight_file_append(&file, "model.layers.1.self_attn.rotary_emb.inv_freq", "F32", json_pack("[i]", 5), file.data,
                       20);
    weight_file_save(&file, path);
    assert_opens(folder); /* a tied head that is equal, and a buffer of older releases */
    file.data[before + 1000] ^= 1;
    weight_file_save(&file, path);
    assert_refused(folder, "model.safetensors", "lm_head.weight: differs from the embedding");
    file.data[before + 1000] ^= 1;
    weight_file_append(&file, "score.weight", "F32", json_pack("[i]", 5), file.data, 20);
    weight_file_save(&file, path);
    assert_refused(folder, "model.safetensors", "score.weight: unexpected tensor");
    weight_file_drop(&file);
}

/* The index of a sharded model, with one entry of its weight map replaced, added or (value "") removed. */
static const char *change_index(void **state, const char *tensor, const char *value) {
    const char *folder = copy_of("llama_sharded", state), *path = temp_path(folder, "model.safetensors.index.json");
    json_t *index = json_load_file(path, 0, NULL), *map = json_object_get(index, "weight_map");
    if (value[0])
        json_object_set_new(map, tensor, json_loads(value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(map, tensor);
    write_json(path, index);
    json_decref(index);
    return folder;
}

static void bad_indexes_are_refused(void **state) {
    static const struct {
        const char *tensor, *value, *message;
    } changes[] = {
        {LLAMA_NORM, "\"model-00003-of-00002.safetensors\"", "model-00003-of-00002.safetensors: no such file"},
        {LLAMA_NORM, "\"../model.safetensors\"", LLAMA_NORM ": must name a file in the same directory"},
        {LLAMA_NORM, "\"/etc/passwd\"", LLAMA_NORM ": must name a file in the same directory"},
        {LLAMA_NORM, "\"..\"", LLAMA_NORM ": must name a file in the same directory"},
        {LLAMA_NORM, "\"\"", LLAMA_NORM ": must name a file in the same directory"},
        {LLAMA_NORM, "7", LLAMA_NORM ": must name a file in the same directory"},
        {LLAMA_NORM, "\"model-00001-of-00002.safetensors\"", LLAMA_NORM ": is in model-00002-of-00002"},
        {LLAMA_NORM, "", LLAMA_NORM ": is not in the weight_map"},
        {"model.extra.weight", "\"model-00001-of-00002.safetensors\"", "model.extra.weight: is not in model-00001"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        assert_refused(change_index(state, changes[i].tensor, changes[i].value), "model", changes[i].message);

    static const struct {
        const char *text, *message;
    } texts[] = {
        {"", "not valid JSON"},
        {"[]", "must hold a JSON object"},
        {"{}", "weight_map: missing"},
        {"{\"weight_map\":[]}", "weight_map: missing, empty or not an object"},
        {"{\"weight_map\":{}}", "weight_map: missing, empty or not an object"},
    };
    const char *folder = copy_of("llama_sharded", state);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        temp_write_text(temp_path(folder, "model.safetensors.index.json"), texts[i].text);
        assert_refused(folder, "model.safetensors.index.json", texts[i].message);
    }
}

static void tensors_in_two_shards_are_refused(void **state) {
    const char *folder = change_index(state, LLAMA_NORM, "\"model-copy.safetensors\"");
    copy_file(temp_path(folder, "model-00002-of-00002.safetensors"), temp_path(folder, "model-copy.safetensors"));
    assert_refused(folder, ".safetensors", ": is also in ");
}

static void dropout_is_reported_once(void **state) {
    const char *path = temp_path(*state, "stderr");
    fflush(stderr);
    int kept = dup(STDERR_FILENO);
    FILE *file = freopen(path, "w", stderr);
    struct model *model = NULL;
    enum status status = file ? model_open(fixture_model("gpt2"), &model) : STATUS_FAILED;
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    assert_int_equal(status, STATUS_OK);
    model_free(model);
    char text[1024];
    file = fopen(path, "r");
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    text[bytes] = '\0';
    fclose(file);
    char *first = strstr(text, "dropout (up to 0.1), which is not applied");
    assert_non_null(first);
    assert_null(strstr(first + 1, "dropout"));
}

static enum status open_load_write(void *folder) {
    struct model *model;
    TRY(model_open(fixture_model("llama_sharded"), &model));
    struct graph *graph;
    struct tensor *loss;
    json_t *summary = NULL;
    enum status status = model_build_graph(model, MODEL_LOSS, DTYPE_BF16, 1, 8, &graph, &loss);
    float *buffer = malloc(MODEL_CASE_VOCAB * 15 * sizeof *buffer);
    struct weight_target targets[64];
    int count = 0;
    if (status == STATUS_OK) {
        for (size_t i = 0; i < graph->tensors.count; i++)
            if (graph->tensors.items[i]->kind == TENSOR_PARAMETER)
                targets[count++] = weight_whole(graph->tensors.items[i], DTYPE_F32, buffer);
        status = model_load_weights(model, targets, count);
        if (status == STATUS_OK) status = model_summarise(model, &summary);
        if (status == STATUS_OK) status = model_write(model, folder, targets, count, NULL);
        graph_free(graph);
    }
    json_decref(summary);
    model_free(model);
    free(buffer);

    /* A failed write leaves nothing; a good one is taken away for the next round. */
    if (status == STATUS_OK) {
        unlink(temp_path(folder, "model.safetensors"));
        unlink(temp_path(folder, "config.json"));
    }
    if (rmdir(folder) != 0 || mkdir(folder, 0777) != 0) fail_msg("files are left in the directory");
    return status;
}

static void every_fault_is_reported(void **state) {
    const char *path = temp_path(*state, "faults");
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    assert_int_equal(folder_create(folder), STATUS_OK);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, open_load_write, folder) > 50);
    /* Sticky, since jansson's lexer drops a byte where its buffer cannot grow and goes on. */
    json_faults(1);
    assert_true(fault_sweep(FAULT_ALLOCATE, true, open_load_write, folder) > 500);
    json_faults(0);
    static const enum fault_kind kinds[] = {FAULT_OPEN, FAULT_READ, FAULT_WRITE, FAULT_SYNC, FAULT_RENAME};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        assert_true(fault_sweep(kinds[i], false, open_load_write, folder) >= 1);
        assert_true(fault_sweep(kinds[i], true, open_load_write, folder) >= 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_that_do_not_fit_are_refused),
        cmocka_unit_test(configs_that_contradict_the_weights_are_refused),
        cmocka_unit_test(damaged_weight_files_are_refused),
        cmocka_unit_test(extra_tensors_are_judged),
        cmocka_unit_test(bad_indexes_are_refused),
        cmocka_unit_test(tensors_in_two_shards_are_refused),
        cmocka_unit_test(dropout_is_reported_once),
        cmocka_unit_test(every_fault_is_reported),
    };
    return cmocka_run_group_tests_name("model files", tests, temp_folder_make, temp_folder_drop);
}
