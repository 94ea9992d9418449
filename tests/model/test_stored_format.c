/* Quantized weights in the formats of bitsandbytes and compressed-tensors: read as stored, written by `init`, and
 * refused if they differ from config.json. */
#include <math.h>
#include <stdio.h>

#include "base/file.h"
#include "base/half.h"
#include "base/json.h"
#include "cli/commands/command.h"
#include "model/stored_format.h"
#include "support/fault_sweep.h"
#include "support/quantized_numbers.h"
#include "support/temp_folder.h"
#include "support/unit.h"
#include "support/weight_files.h"

#define STORED BALLAST_FIXTURES "/quantised/qwen3_nf4"
#define BLOCKS_OF_128 BALLAST_FIXTURES "/nf4_blocks_of_128"
#define INTEGERS BALLAST_FIXTURES "/quantised/compressed_integers"
#define GPT_OSS BALLAST_FIXTURES "/models/gpt_oss_mxfp4"
#define COMPRESSED BALLAST_FIXTURES "/quantised/compressed_mxfp4"

static struct graph *graph_of(const struct model *model) {
    struct graph *graph;
    struct tensor *logits;
    assert_int_equal(model_build_graph(model, MODEL_LOGITS, DTYPE_F32, 1, 1, &graph, &logits), STATUS_OK);
    return graph;
}

static unsigned char *load(const struct model *model, const struct tensor *tensor) {
    unsigned char *bytes = mem_array((size_t)shape_bytes(&tensor->shape), 1);
    assert_non_null(bytes);
    struct weight_target target = weight_whole(tensor, DTYPE_U8, bytes);
    if (model_load_weights(model, &target, 1) != STATUS_OK) fail_msg("%s", status_message());
    return bytes;
}

static void check_part(const struct model *model, const struct tensor *tensor, const char *suffix,
                       const unsigned char *found) {
    char name[256];
    snprintf(name, sizeof name, "%s%s", tensor->name, suffix);
    const struct safetensors_tensor *part = safetensors_find(model->weights, name);
    if (!part) fail_msg("no %s", name);
    unsigned char *expected = mem_array(part->bytes, 1);
    assert_non_null(expected);
    assert_int_equal(safetensors_read(model->weights, part, 0, part->bytes, expected), STATUS_OK);
    assert_memory_equal(expected, found, part->bytes);
    mem_free(expected);
}

static void files_of_bitsandbytes_are_read_to_the_bit(void **state) {
    (void)state;
    struct model *model;
    int seen = 0;
    if (model_open(STORED, &model) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(model->config.base_format, WEIGHT_NF4);
    struct graph *graph = graph_of(model);
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->code.format == WEIGHT_PLAIN) continue;
        struct weight_layout layout = weight_code_layout(&tensor->code);
        unsigned char *bytes = load(model, tensor);
        check_part(model, tensor, "", bytes);
        check_part(model, tensor, ".absmax", bytes + layout.scales_at);
        check_part(model, tensor, ".nested_absmax", bytes + layout.groups_at);
        float offset;
        memcpy(&offset, bytes + layout.offset_at, sizeof offset);
        assert_true(offset > 0);
        mem_free(bytes);
        seen++;
    }
    assert_int_equal(seen, 14);
    graph_free(graph);
    model_free(model);
}

/* bitsandbytes' own numbers of a weight (tests/reference/make_nf4_block_fixture.py). */
static void blocks_of_128_are_read_as_bitsandbytes_does(void **state) {
    (void)state;
    static const char name[] = "model.layers.0.mlp.down_proj.weight";
    struct safetensors *numbers;
    struct model *model;
    if (model_open(BLOCKS_OF_128, &model) != STATUS_OK ||
        safetensors_open(BLOCKS_OF_128 "/bitsandbytes/numbers.safetensors", &numbers) != STATUS_OK)
        fail_msg("%s", status_message());
    struct graph *graph = graph_of(model);
    const struct tensor *tensor = graph_find(graph, name);
    const struct safetensors_tensor *expected = safetensors_find(numbers, name);
    assert_true(tensor && expected);
    struct weight_layout layout = weight_code_layout(&tensor->code);
    assert_int_equal(layout.block, 128);
    assert_int_equal(shape_elements(&tensor->code.values), expected->elements);
    unsigned char *bytes = load(model, tensor);
    for (size_t i = 0; i < expected->elements; i++) {
        float number;
        assert_int_equal(safetensors_convert(numbers, expected, i, 1, DTYPE_F32, &number), STATUS_OK);
        assert_true(quantized_number(&layout, bytes, (int64_t)i) == number);
    }
    mem_free(bytes);
    graph_free(graph);
    model_free(model);
    safetensors_close(numbers);
}

/* All at once, and that pieces of any size are the same. */
static void read_in_pieces(const struct safetensors *set, const struct tensor *weight, unsigned char *bytes) {
    static const int64_t sizes[] = {1, 7, 64, 1000};
    int64_t all = shape_bytes(&weight->shape);
    unsigned char *other = mem_array((size_t)all, 1);
    assert_non_null(other);
    assert_int_equal(stored_weight_read(set, weight, &(struct weight_piece){0, all, bytes}), STATUS_OK);
    for (int i = 0; i < 4; i++) {
        memset(other, 0xA5, (size_t)all);
        for (int64_t at = 0; at < all; at += sizes[i]) {
            int64_t count = all - at < sizes[i] ? all - at : sizes[i];
            assert_int_equal(stored_weight_read(set, weight, &(struct weight_piece){at, count, other + at}), STATUS_OK);
        }
        assert_memory_equal(bytes, other, (size_t)all);
    }
    mem_free(other);
}

/* The numbers of what compressed-tensors packed are those that it reads itself. */
static void weights_of_compressed_tensors_are_read_to_the_bit(void **state) {
    (void)state;
    struct safetensors *set;
    bool used[3] = {false, false, false};
    struct graph *graph = graph_create(DTYPE_F32, 1, 1);
    assert_non_null(graph);
    const struct weight_code code = {WEIGHT_MXFP4, shape_make(DTYPE_F32, 2, 24, 96, 1), 0};
    const struct tensor *weight = graph_quantized_parameter(graph, "linear.weight", &code);
    if (safetensors_open_folder(COMPRESSED, &set) != STATUS_OK) fail_msg("%s", status_message());
    if (stored_weight_check(set, weight, used) != STATUS_OK) fail_msg("%s", status_message());
    const struct safetensors_tensor *numbers = safetensors_find(set, "linear.numbers");
    const struct weight_layout layout = weight_code_layout(&code);
    unsigned char *bytes = mem_array((size_t)layout.bytes, 1);
    float *expected = mem_array(24 * 96, sizeof *expected);
    assert_non_null(bytes);
    assert_non_null(expected);
    read_in_pieces(set, weight, bytes);
    assert_int_equal(safetensors_read(set, numbers, 0, numbers->bytes, expected), STATUS_OK);
    for (int64_t i = 0; i < 24L * 96; i++) {
        float found = quantized_number(&layout, bytes, i);
        if (memcmp(&found, &expected[i], sizeof found) != 0)
            fail_msg("number %lld: %.9g, not %.9g", (long long)i, (double)found, (double)expected[i]);
    }
    assert_int_equal(used[0] + used[1] + used[2], 2);
    mem_free(bytes);
    mem_free(expected);
    graph_free(graph);
    safetensors_close(set);
}

static float rounded(float number, enum safetensors_dtype dtype) {
    if (dtype == SAFETENSORS_BF16) return bf16_to_float(bf16_from_float(number));
    if (dtype != SAFETENSORS_F16 || number == 0) return number;
    int exponent;
    (void)frexpf(number, &exponent);
    return ldexpf(rintf(ldexpf(number, 11 - exponent)), exponent - 11); /* of 11 bits, as numbers above 2^-14 have */
}

static json_t *integer_configs(void) {
    json_t *configs;
    assert_int_equal(json_read_object(INTEGERS "/configs.json", 1 << 20, &configs), STATUS_OK);
    return configs;
}

static struct weight_code integer_code(const char *name, const json_t *config, const struct safetensors *set) {
    char key[64];
    struct stored_format stored;
    if (stored_format_read_config("config.json", config, &stored) != STATUS_OK)
        fail_msg("%s: %s", name, status_message());
    snprintf(key, sizeof key, "%s.numbers", name);
    const struct safetensors_tensor *numbers = safetensors_find(set, key);
    return (struct weight_code){stored.format, shape_make(DTYPE_F32, 2, numbers->dims[0], numbers->dims[1], 1),
                                stored.block};
}

static void check_integers(const struct safetensors *set, const char *name, const json_t *config) {
    const struct weight_code code = integer_code(name, config, set);
    const struct weight_layout layout = weight_code_layout(&code);
    char key[64];
    struct graph *graph = graph_create(DTYPE_F32, 1, 1);
    assert_non_null(graph);
    snprintf(key, sizeof key, "%s.weight", name);
    const struct tensor *weight = graph_quantized_parameter(graph, key, &code);
    snprintf(key, sizeof key, "%s.numbers", name);
    const struct safetensors_tensor *numbers = safetensors_find(set, key);
    bool *used = mem_array(set->tensors.count, sizeof *used);
    unsigned char *bytes = mem_array((size_t)layout.bytes, 1);
    float *expected = mem_array(numbers->elements, sizeof *expected);
    assert_true(weight && used && bytes && expected);
    memset(used, 0, set->tensors.count * sizeof *used);
    if (stored_weight_check(set, weight, used) != STATUS_OK) fail_msg("%s", status_message());
    for (size_t i = 0; i < set->tensors.count; i++) {
        const char *found = set->tensors.items[i].name;
        bool own = strncmp(found, name, strlen(name)) == 0 && found[strlen(name)] == '.';
        assert_int_equal(used[i], own && strcmp(found, key) != 0);
    }
    read_in_pieces(set, weight, bytes);
    assert_int_equal(safetensors_convert(set, numbers, 0, numbers->elements, DTYPE_F32, expected), STATUS_OK);
    for (size_t i = 0; i < numbers->elements; i++) {
        float found = rounded(quantized_number(&layout, bytes, (int64_t)i), numbers->dtype);
        if (memcmp(&found, &expected[i], sizeof found) != 0)
            fail_msg("%s, number %zu: %.9g, not %.9g", name, i, (double)found, (double)expected[i]);
    }
    mem_free(used);
    mem_free(bytes);
    mem_free(expected);
    graph_free(graph);
}

/* The numbers are those of compressed-tensors' own reading, and every tensor that it wrote is used. */
static void integers_of_compressed_tensors_are_read_to_the_bit(void **state) {
    (void)state;
    struct safetensors *set;
    const char *name;
    json_t *configs = integer_configs(), *config;
    int seen = 0;
    if (safetensors_open_folder(INTEGERS, &set) != STATUS_OK) fail_msg("%s", status_message());
    json_object_foreach(configs, name, config) {
        check_integers(set, name, config);
        seen++;
    }
    assert_int_equal(seen, 11);
    safetensors_close(set);
    json_decref(configs);
}

/* As compressed-tensors and transformers choose them. */
static void layers_that_stay_plain_are_those_of_the_libraries(void **state) {
    (void)state;
    json_error_t error;
    json_t *cases = json_load_file(BALLAST_FIXTURES "/quantised/plain_layers.json", 0, &error);
    size_t plain_ones = 0, quantized_ones = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i), *names = json_object_get(one, "names");
        const json_t *plain = json_object_get(one, "plain");
        struct plain_layers *layers;
        if (plain_layers_read("config.json", json_object_get(one, "config"), &layers) != STATUS_OK)
            fail_msg("%s", status_message());
        for (size_t k = 0, at = 0; k < json_array_size(names); k++) {
            const char *name = json_string_value(json_array_get(names, k));
            bool wanted = json_equal(json_array_get(names, k), json_array_get(plain, at));
            char weight[128];
            snprintf(weight, sizeof weight, "%s.weight", name);
            if (plain_layers_have(layers, weight) != wanted)
                fail_msg("case %zu: %s is %splain", i, name, wanted ? "" : "not ");
            at += wanted;
            plain_ones += wanted, quantized_ones += !wanted;
        }
        plain_layers_free(layers);
    }
    assert_true(plain_ones > 50 && quantized_ones > 100);
    assert_false(plain_layers_have(NULL, "lm_head.weight"));
    json_decref(cases);
}

#define MIXED BALLAST_FIXTURES "/quantised/qwen3_mixed"

static void layers_left_plain_are_read_so(void **state) {
    (void)state;
    struct model *model;
    int quantized = 0;
    if (model_open(MIXED, &model) != STATUS_OK) fail_msg("%s", status_message());
    struct graph *graph = graph_of(model);
    static const char *const plain[] = {"0.mlp.gate_proj", "0.mlp.up_proj", "1.self_attn.k_proj"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        char name[64];
        snprintf(name, sizeof name, "model.layers.%s.weight", plain[i]);
        assert_int_equal(graph_find(graph, name)->code.format, WEIGHT_PLAIN);
    }
    for (size_t i = 0; i < graph->tensors.count; i++)
        quantized += graph->tensors.items[i]->code.format == WEIGHT_W4A16_ASYM;
    assert_int_equal(quantized, 11);
    graph_free(graph);
    model_free(model);
}

static json_t *mixed_quantisation(json_t **config) {
    assert_int_equal(json_read_object(MIXED "/config.json", 1 << 20, config), STATUS_OK);
    return json_object_get(*config, "quantization_config");
}

/* Lists that are wrong, or that name other layers than those that are plain in the files. */
static void layers_named_wrongly_are_refused(void **state) {
    static const struct {
        const char *key, *list, *message;
    } wrong[] = {
        {"ignore", "\"lm_head\"", "ignore: must be a list"},
        {"ignore", "[3]", "ignore: must be a list of texts"},
        {"ignore", "[\"re:(\"]", "ignore: re:(: not a regular expression"},
        {"ignore", "[\"lm_head\"]", "layers.0.mlp.gate_proj.weight_packed: missing"},
        {"ignore", "[\"re:.*proj\"]", "q_proj.weight: missing"},
    };
    copy_file(MIXED "/model.safetensors", temp_path(*state, "model.safetensors"));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        json_t *config, *quantised = mixed_quantisation(&config);
        struct model *model;
        json_object_set_new(quantised, wrong[i].key, json_loads(wrong[i].list, JSON_DECODE_ANY, NULL));
        assert_int_equal(json_dump_file(config, temp_path(*state, "config.json"), 0), 0);
        json_decref(config);
        if (model_open(*state, &model) != STATUS_BAD_INPUT || !strstr(status_message(), wrong[i].message))
            fail_msg("'%s' says nothing of '%s'", status_message(), wrong[i].message);
    }
}

static enum status open_mixed(void *payload) {
    struct model *model;
    (void)payload;
    TRY(model_open(MIXED, &model));
    model_free(model);
    return STATUS_OK;
}

/* The experts of a layer lie in one tensor each of codes and scales. */
static void experts_of_gpt_oss_are_read_to_the_bit(void **state) {
    (void)state;
    struct model *model;
    struct safetensors *set;
    int seen = 0;
    if (model_open(GPT_OSS, &model) != STATUS_OK) fail_msg("%s", status_message());
    if (safetensors_open_folder(GPT_OSS, &set) != STATUS_OK) fail_msg("%s", status_message());
    struct graph *graph = graph_of(model);
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->code.format == WEIGHT_PLAIN) continue;
        struct weight_layout layout = weight_code_layout(&tensor->code);
        unsigned char *bytes = load(model, tensor);
        for (int part = 0; part < 2; part++) {
            char name[256];
            size_t size = (size_t)(part ? layout.scales : layout.codes_bytes);
            snprintf(name, sizeof name, "%s%s", tensor->stack.name, part ? "_scales" : "_blocks");
            const struct safetensors_tensor *whole = safetensors_find(set, name);
            if (!whole) fail_msg("no %s", name);
            unsigned char *expected = mem_array(size, 1);
            assert_non_null(expected);
            assert_int_equal(whole->bytes, size * (size_t)tensor->stack.count);
            assert_int_equal(safetensors_read(set, whole, size * (size_t)tensor->stack.index, size, expected),
                             STATUS_OK);
            assert_memory_equal(bytes + (part ? layout.scales_at : 0), expected, size);
            mem_free(expected);
        }
        mem_free(bytes);
        seen++;
    }
    assert_int_equal(seen, 2 * 4 * 2); /* layers, experts, weights */
    graph_free(graph);
    safetensors_close(set);
    model_free(model);
}

static const char *make_model(const char *folder, const char *family, enum weight_format format) {
    struct new_model wanted = {.seed = 3, .dtype = DTYPE_F32, .base_format = format};
    int64_t parameters;
    static char path[600];
    assert_int_equal(model_config_init(family, &wanted.config), STATUS_OK);
    wanted.config.layers = 1, wanted.config.hidden = 64, wanted.config.heads = 4, wanted.config.head_dim = 16;
    wanted.config.kv_heads = 2, wanted.config.ffn = 96, wanted.config.vocab_size = 50, wanted.config.context = 16;
    wanted.config.experts = 3;
    snprintf(path, sizeof path, "%s/%s.%s", folder, family, weight_format_name(format));
    if (new_model_write(&wanted, path, &parameters) != STATUS_OK) fail_msg("%s", status_message());
    return path;
}

/* `weights` of the model are in the format. */
static void check_drawn(const char *folder, const char *family, enum weight_format format, int weights) {
    struct model *model;
    int seen = 0;
    if (model_open(make_model(folder, family, format), &model) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(model->config.base_format, format);
    struct graph *graph = graph_of(model);
    const struct initial_weights initial = {model, 3};
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->code.format == WEIGHT_PLAIN) continue;
        unsigned char *bytes = load(model, tensor), *drawn = mem_array((size_t)shape_bytes(&tensor->shape), 1);
        assert_non_null(drawn);
        assert_int_equal(model_draw_quantized(&initial, tensor, drawn), STATUS_OK);
        assert_memory_equal(bytes, drawn, (size_t)shape_bytes(&tensor->shape));
        mem_free(bytes);
        mem_free(drawn);
        seen++;
    }
    assert_int_equal(seen, weights);
    graph_free(graph);
    model_free(model);
}

static void a_new_model_is_read_again_as_it_was_drawn(void **state) {
    for (enum weight_format format = WEIGHT_NF4; !weight_format_has_groups(format); format++)
        check_drawn(*state, "mixtral", format, 4 + 3 * 3);
    check_drawn(*state, "gpt_oss", WEIGHT_MXFP4, 3 * 2);
}

/* A tensor of the file is renamed, gets another dtype, or other first bytes. */
struct change {
    const char *tensor, *renamed, *dtype, *bytes;
    const char *message;
};
#define WEIGHT "model.layers.0.mlp.up_proj.weight"
static const struct change changes[] = {
    {WEIGHT ".absmax", WEIGHT ".absmin", NULL, NULL, "up_proj.weight.absmax: missing"},
    {WEIGHT ".nested_absmax", NULL, "I32", NULL, "nested_absmax: is I32"},
    {WEIGHT ".quant_map", NULL, NULL, "\0\0\0\0", "quant_map: is not what"},
    {WEIGHT ".nested_quant_map", NULL, NULL, "\0\0\0\0", "nested_quant_map: is not what"},
    {WEIGHT ".quant_state.bitsandbytes__nf4", NULL, NULL, "[]  ", "bitsandbytes__nf4"},
    {"model.norm.weight", NULL, "I32", NULL, "model.norm.weight: dtype I32 is not supported"},
};

static void apply(const struct change *change, const char *folder) {
    struct weight_file file = weight_file_load(temp_path(folder, "model.safetensors"));
    json_t *entry = json_incref(json_object_get(file.header, change->tensor));
    assert_non_null(entry);
    if (change->dtype) json_object_set_new(entry, "dtype", json_string(change->dtype));
    if (change->renamed) json_object_del(file.header, change->tensor);
    if (change->renamed) json_object_set(file.header, change->renamed, entry);
    json_int_t begin = json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0));
    if (change->bytes) memcpy(file.data + begin, change->bytes, 4);
    json_decref(entry);
    weight_file_save(&file, temp_path(folder, "model.safetensors"));
    weight_file_drop(&file);
}

static void expect_refused(const char *folder, const char *message) {
    struct model *model;
    assert_int_equal(model_open(folder, &model), STATUS_BAD_INPUT);
    if (!strstr(status_message(), message)) fail_msg("'%s' says nothing of '%s'", status_message(), message);
}

static void copy_stored(const char *folder) {
    copy_file(STORED "/config.json", temp_path(folder, "config.json"));
    copy_file(STORED "/model.safetensors", temp_path(folder, "model.safetensors"));
}

static void what_files_lack_is_named(void **state) {
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        copy_stored(*state);
        apply(&changes[i], *state);
        expect_refused(*state, changes[i].message);
    }
}

static void formats_that_are_not_read_are_named(void **state) {
    static const struct {
        const char *config, *message;
    } configs[] = {
        {"{\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"fp4\"}",
         "nf4 and int8"},
        {"{\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, \"load_in_8bit\": true}",
         "load_in_4bit and load_in_8bit: only one may be true"},
        {"{\"quant_method\": \"bitsandbytes\", \"load_in_8bit\": true, \"llm_int8_skip_modules\": [\"(\"]}",
         "llm_int8_skip_modules: (: not a regular expression"},
        {"{\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\"}", "mxfp4-pack-quantized"},
        {"{\"quant_method\": \"compressed-tensors\", \"format\": \"mxfp4-pack-quantized\", \"config_groups\": "
         "{\"group_0\": {\"input_activations\": {\"num_bits\": 4}}}}",
         "group_0.input_activations: activations are rounded too"},
        {"{\"quant_method\": \"awq\"}", "quantised (awq)"},
        {"null", "the weights are quantised"},
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        copy_stored(*state);
        json_t *config;
        assert_int_equal(json_read_object(STORED "/config.json", 1 << 20, &config), STATUS_OK);
        json_object_set_new(config, "quantization_config", json_loads(configs[i].config, JSON_DECODE_ANY, NULL));
        write_json(temp_path(*state, "config.json"), config);
        json_decref(config);
        expect_refused(*state, configs[i].message);
    }
}

/* Keys of a config, by path, set to what is not read. */
static void integers_that_are_not_read_are_named(void **state) {
    (void)state;
    static const struct {
        const char *path[3]; /* NULL: the group's, or the weights' */
        const char *value, *message;
    } changes_of[] = {
        {{"kv_cache_scheme"}, "{\"num_bits\": 8}", "kv_cache_scheme: keys and values are rounded too"},
        {{"sparsity_config"}, "{\"format\": \"sparse-bitmask\"}", "sparsity_config: sparse"},
        {{"transform_config"}, "{\"config_groups\": {\"u\": {}}}", "transform_config: is not known"},
        {{"config_groups"}, "{}", "config_groups: must be an object"},
        {{"config_groups", "group_0"}, "[]", "group_0: must be an object"},
        {{"config_groups", "group_0", "output_activations"}, "{}", NULL},
        {{"config_groups", "group_0", "output_activations"}, "{\"num_bits\": 8}", "group_0.output_activations: act"},
        {{"config_groups", "group_0", "format"}, "\"int-quantized\"", "group_0.format: differs"},
        {{"config_groups", "group_0", "format"}, "\"pack-quantized\"", NULL},
        {{"config_groups", "group_1"},
         "{\"weights\": {\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"channel\"}}",
         "group_1.weights: differ"},
        {{"num_bits"}, "3", "weights.num_bits: is neither 4 nor 8"},
        {{"type"}, "\"float\"", "weights.type: is not int"},
        {{"strategy"}, "\"block\"", "weights.strategy: is none of"},
        {{"group_size"}, "0", "weights.group_size: must be"},
        {{"dynamic"}, "true", "weights.dynamic: the scales"},
        {{"actorder"}, "\"group\"", "weights.actorder: columns in another order"},
        {{"actorder"}, "true", "weights.actorder: columns in another order"},
        {{"actorder"}, "\"static\"", NULL},
    };
    for (size_t i = 0; i < sizeof changes_of / sizeof *changes_of; i++) {
        json_t *configs = integer_configs(), *config = json_object_get(configs, "w4a16"), *at = config;
        struct stored_format found;
        static const char *const top[] = {"kv_cache_scheme", "sparsity_config", "transform_config", "config_groups"};
        const char *const *path = changes_of[i].path;
        bool deep = true;
        for (size_t k = 0; k < sizeof top / sizeof *top; k++)
            deep = deep && strcmp(path[0], top[k]) != 0;
        if (deep) at = json_object_get(json_object_get(json_object_get(config, "config_groups"), "group_0"), "weights");
        int last = path[2] ? 2 : path[1] ? 1 : 0;
        for (int k = 0; k < last; k++)
            at = json_object_get(at, path[k]);
        json_object_set_new(at, path[last], json_loads(changes_of[i].value, JSON_DECODE_ANY, NULL));
        enum status status = stored_format_read_config("config.json", config, &found);
        if (!changes_of[i].message)
            assert_int_equal(status, STATUS_OK);
        else if (status != STATUS_BAD_INPUT || !strstr(status_message(), changes_of[i].message))
            fail_msg("%zu: '%s', not of '%s'", i, status_message(), changes_of[i].message);
        json_decref(configs);
    }
}

/* Tensors of other sizes or dtypes than config.json asks for, and such as are missing. */
static void tensors_of_integers_are_checked(void **state) {
    static const struct change wrong[] = {
        {"w4a16.weight_scale", NULL, "I16", NULL, "weight_scale: is I16, not F32, BF16 or F16"},
        {"w4a16.weight_packed", NULL, "U32", NULL, "weight_packed: is U32, not I32"},
        {"w4a16.weight_packed", "w4a16.weight", NULL, NULL, "w4a16.weight_packed: missing"},
        {"w4a16.weight_shape", NULL, NULL, "\7\0\0\0", "weight_shape: says [7, 256]"},
        {"w4a16_asym.weight_zero_point", "w4a16_asym.zeros", NULL, NULL, "w4a16_asym.weight_zero_point: missing"},
        {"w4a16_asym.weight_zero_point", NULL, "F32", NULL, "weight_zero_point: is F32, not I32"},
        {"int8_asym.weight", NULL, "U8", NULL, "int8_asym.weight: is U8, not I8"},
        {"w8a16.weight_shape", "w8a16.shape", NULL, NULL, "w8a16.weight_shape: missing"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct safetensors *set;
        bool used[64];
        char name[64];
        size_t length = strcspn(wrong[i].tensor, ".");
        copy_file(INTEGERS "/model.safetensors", temp_path(*state, "model.safetensors"));
        apply(&wrong[i], *state);
        snprintf(name, sizeof name, "%.*s", (int)length, wrong[i].tensor);
        json_t *configs = integer_configs();
        assert_int_equal(safetensors_open_folder(*state, &set), STATUS_OK);
        assert_true(set->tensors.count <= sizeof used);
        const struct weight_code code = integer_code(name, json_object_get(configs, name), set);
        struct graph *graph = graph_create(DTYPE_F32, 1, 1);
        strcat(name, ".weight");
        enum status status = stored_weight_check(set, graph_quantized_parameter(graph, name, &code), used);
        if (status != STATUS_BAD_INPUT || !strstr(status_message(), wrong[i].message))
            fail_msg("'%s' says nothing of '%s'", status_message(), wrong[i].message);
        graph_free(graph);
        safetensors_close(set);
        json_decref(configs);
    }
}

static void another_state_of_a_weight_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{}",
        "{\"quant_type\": \"fp4\", \"blocksize\": 64, \"shape\": [2, 3], \"nested_blocksize\": 256}",
        "{\"quant_type\": \"nf4\", \"blocksize\": 128, \"shape\": [2, 3], \"nested_blocksize\": 256}",
        "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"shape\": [3, 2], \"nested_blocksize\": 256}",
        "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"shape\": [2, 3]}",
        "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"shape\": [2, 3], \"nested_blocksize\": 256, "
        "\"nested_offset\": 1e300}",
        "[]",
    };
    const struct weight_code code = {WEIGHT_NF4, shape_make(DTYPE_F32, 2, 2, 3, 1), 0};
    const char good[] = "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"shape\": [2, 3], \"nested_blocksize\": 256, "
                        "\"nested_offset\": 0.25}";
    float offset = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(stored_state_parse("state", texts[i], strlen(texts[i]), &code, &offset), STATUS_BAD_INPUT);
    assert_int_equal(stored_state_parse("state", good, strlen(good), &code, &offset), STATUS_OK);
    assert_true(offset == 0.25f);
}

static enum status open_and_load(void *payload) {
    struct model *model;
    (void)payload;
    TRY(model_open(STORED, &model));
    struct graph *graph;
    struct tensor *logits;
    enum status status = model_build_graph(model, MODEL_LOGITS, DTYPE_F32, 1, 1, &graph, &logits);
    const struct tensor *tensor = status == STATUS_OK ? graph_find(graph, WEIGHT) : NULL;
    unsigned char *bytes = tensor ? mem_array((size_t)shape_bytes(&tensor->shape), 1) : NULL;
    if (status == STATUS_OK && !bytes) status = STATUS_FAILED;
    struct weight_target target = {.data = NULL};
    if (status == STATUS_OK) target = weight_whole(tensor, DTYPE_U8, bytes);
    if (status == STATUS_OK) status = model_load_weights(model, &target, 1);
    mem_free(bytes);
    if (tensor) graph_free(graph);
    model_free(model);
    return status;
}

static void failures_of_memory_and_files_are_reported(void **state) {
    (void)state;
    assert_true(fault_sweep(FAULT_ALLOCATE, false, open_and_load, NULL) > 50);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, open_mixed, NULL) > 40);
    assert_true(fault_sweep(FAULT_READ, false, open_and_load, NULL) > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_bitsandbytes_are_read_to_the_bit),
        cmocka_unit_test(blocks_of_128_are_read_as_bitsandbytes_does),
        cmocka_unit_test(weights_of_compressed_tensors_are_read_to_the_bit),
        cmocka_unit_test(integers_of_compressed_tensors_are_read_to_the_bit),
        cmocka_unit_test(integers_that_are_not_read_are_named),
        cmocka_unit_test_setup_teardown(tensors_of_integers_are_checked, temp_folder_make, temp_folder_drop),
        cmocka_unit_test(layers_that_stay_plain_are_those_of_the_libraries),
        cmocka_unit_test(layers_left_plain_are_read_so),
        cmocka_unit_test_setup_teardown(layers_named_wrongly_are_refused, temp_folder_make, temp_folder_drop),
        cmocka_unit_test(experts_of_gpt_oss_are_read_to_the_bit),
        cmocka_unit_test_setup_teardown(a_new_model_is_read_again_as_it_was_drawn, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(what_files_lack_is_named, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(formats_that_are_not_read_are_named, temp_folder_make, temp_folder_drop),
        cmocka_unit_test(another_state_of_a_weight_is_refused),
        cmocka_unit_test(failures_of_memory_and_files_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
