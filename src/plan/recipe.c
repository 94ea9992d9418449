/* Recipes: numbers, names, limits and JSON. The user's settings follow from the table of settings. */
#include "plan/recipe.h"

#include <pthread.h>

#include "base/json.h"
#include "plan/settings.h"

struct recipe_lines {
    const char *field;      /* of a recipe in JSON */
    const char *characters; /* that values are made of */
    const char *trouble;    /* with a name whose value is made of others */
};

/* Names of GEMMs are the backend's, and values the library's own description of the algorithm in hexadecimal. Names
 * of strategies are those of nodes, and values as plan/layout/tensor_layout.h has them. */
static const struct recipe_lines recipe_products = {"products", "0123456789abcdef", "algorithm in hexadecimal"};
static const struct recipe_lines recipe_strategies = {"strategies", "abcdefghijklmnopqrstuvwxyz.+*/0123456789",
                                                      "strategy"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static VEC(char *) kept;

/* Under the lock; NULL without memory. */
static const char *find_or_add(const char *lines) {
    for (size_t i = 0; i < kept.count; i++)
        if (strcmp(kept.items[i], lines) == 0) return kept.items[i];
    char *own = mem_string(lines);
    if (!own || vec_push(&kept, own) == STATUS_OK) return own;
    mem_free(own);
    return NULL;
}

enum status recipe_lines_keep(const char *lines, const char **out) {
    *out = NULL;
    if (!lines || !lines[0]) return STATUS_OK;
    pthread_mutex_lock(&lock);
    *out = find_or_add(lines);
    pthread_mutex_unlock(&lock);
    return *out ? STATUS_OK : STATUS_FAILED;
}

void recipe_lines_forget(void) {
    for (size_t i = 0; i < kept.count; i++)
        mem_free(kept.items[i]);
    vec_free(&kept);
}

/* Adds the line that begins there; returns where the next one does, NULL when out of memory. */
static const char *add_line(json_t *object, const char *line) {
    size_t name = strcspn(line, " \n"), value = line[name] == ' ' ? strcspn(line + name + 1, "\n") : 0;
    const char *from = line + name + (line[name] == ' ');
    json_t *text = json_stringn(from, value);
    if (!text || json_object_setn_new(object, line, name, text) != 0) return NULL;
    return from + value + (from[value] == '\n');
}

/* {NAME: VALUE, …}; NULL when out of memory. */
static json_t *recipe_lines_to_json(const char *lines) {
    json_t *object = json_object();
    const char *line = object ? lines : NULL;
    while (line && *line)
        line = add_line(object, line);
    return json_unless(!line, object);
}

static bool is_name(const char *text) { return *text && !text[strcspn(text, " \n")]; }

static enum status check_line(const char *file, const struct recipe_lines *kind, const char *name,
                              const json_t *value) {
    const char *text = json_string_value(value);
    if (is_name(name) && text && *text && !text[strspn(text, kind->characters)]) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s: '%.80s' has no %s", file, kind->field, name, kind->trouble);
}

/* NULL for `object`: no lines. BAD_INPUT "FILE: FIELD: …" where it is no such object. */
static enum status recipe_lines_from_json(const char *file, const struct recipe_lines *kind, const json_t *object,
                                          const char **out) {
    const char *name;
    json_t *value, *values = (json_t *)(uintptr_t)object;
    size_t bytes = 1, used = 0;
    *out = NULL;
    if (!object) return STATUS_OK;
    if (!json_is_object(object)) return status_set(STATUS_BAD_INPUT, "%s: %s: must be an object", file, kind->field);
    json_object_foreach(values, name, value) {
        TRY(check_line(file, kind, name, value));
        bytes += strlen(name) + json_string_length(value) + 2;
    }
    AUTO_FREE char *lines = mem_array(bytes, 1);
    if (!lines) return STATUS_FAILED;
    json_object_foreach(values, name, value) used +=
        (size_t)snprintf(lines + used, bytes - used, "%s %s\n", name, json_string_value(value));
    return recipe_lines_keep(lines, out);
}

/* A GEMM's thread block computes a tile of this size (cuBLASLt's largest on Hopper). */
static const int64_t TILE_TOKENS = 128, TILE_FEATURES = 256;
/* FLOPs for each byte of the GPU's memory rate (H100: 989 TFLOP/s in bf16, 3.35 TB/s). A weight's gradient is 8 bytes
 * of traffic a micro-batch, and each token takes 6 FLOPs of every weight. */
static const double FLOPS_A_BYTE = 295, GRADIENT_BYTES = 8, FLOPS_A_TOKEN = 6;
/* Activations of a layer that are kept, in bytes for each of its features and a token (Korthikanti et al., arXiv
 * 2205.05198, without dropout and scores), and the most of the memory that those of all layers take. */
static const double LAYER_BYTES = 34, MEMORY_SHARE = 0.25;
/* As good as the best: less memory is worth the rest. */
static const double ENOUGH = 0.97;

/* Fraction of the GPU's rate that GEMMs of this many tokens reach, by full tile waves and by the gradient's traffic. */
static double rate_of(int multiprocessors, int64_t tokens, int64_t width) {
    int64_t tiles = (tokens + TILE_TOKENS - 1) / TILE_TOKENS * ((width + TILE_FEATURES - 1) / TILE_FEATURES);
    int64_t tile_waves = (tiles + multiprocessors - 1) / multiprocessors;
    double filled = (double)tiles / (double)(tile_waves * multiprocessors);
    return filled / (1 + FLOPS_A_BYTE * GRADIENT_BYTES / (FLOPS_A_TOKEN * (double)tokens));
}

int64_t gpu_micro_batch_tokens(int multiprocessors, int64_t memory_bytes, int64_t layers, int64_t width) {
    double token_bytes = LAYER_BYTES * (double)layers * (double)width, best = 0;
    int64_t max = GPU_MICRO_BATCH_MIN;
    while (max < GPU_MICRO_BATCH_MAX && token_bytes * (double)(2 * max) <= MEMORY_SHARE * (double)memory_bytes)
        max *= 2;
    for (int64_t tokens = GPU_MICRO_BATCH_MIN; tokens <= max; tokens *= 2) {
        double rate = rate_of(multiprocessors, tokens, width);
        if (rate > best) best = rate;
    }
    int64_t tokens = GPU_MICRO_BATCH_MIN;
    while (tokens < max && rate_of(multiprocessors, tokens, width) < ENOUGH * best)
        tokens *= 2;
    return tokens;
}

int64_t recipe_default_micro_batch(int64_t batch, int64_t sequence_length, int64_t min_tokens) {
    int64_t sequences = (min_tokens + sequence_length - 1) / sequence_length;
    return sequences < batch ? sequences : batch;
}

/* Bytes of one element of a moment, with its share of a scale. */
static double state_format_bytes(enum state_format format) {
    double scale = format == STATE_INT8 ? (double)dtype_bytes(DTYPE_F32) / UPDATE_SCALE_BLOCK : 0;
    return (double)dtype_bytes(state_format_dtype(format)) + scale;
}

double recipe_state_bytes_per_byte(const struct recipe *recipe) {
    double own = (double)dtype_bytes(recipe->dtype);
    double moments = update_rule_moments(recipe->optimizer) * state_format_bytes(recipe->optimizer_dtype);
    static const double masters[] = {[MASTER_WEIGHTS_FP32] = 4, [MASTER_WEIGHTS_SPLIT] = 2, [MASTER_WEIGHTS_NONE] = 0};
    double master_weights = recipe->dtype == DTYPE_F32 ? 0 : masters[recipe->master_weights];
    return (own + 4 + moments + master_weights) / own;
}

int64_t recipe_micro_batches(const struct recipe *recipe) {
    return (recipe->batch + recipe->micro_batch_sequences - 1) / recipe->micro_batch_sequences;
}

int64_t recipe_lane_micro_batches(const struct recipe *recipe) {
    int64_t lanes = lane_shape_lanes(&recipe->lanes);
    return (recipe_micro_batches(recipe) + lanes - 1) / lanes;
}

int64_t recipe_share_micro_batches(const struct recipe *recipe) {
    int64_t all = recipe_lane_micro_batches(recipe);
    return recipe->round_micro_batches > 0 && recipe->round_micro_batches < all ? recipe->round_micro_batches : all;
}

bool recipe_has_segments(const struct recipe *recipe) {
    return recipe->document_attention == DOCUMENT_ATTENTION_WITHIN || recipe->packing != EXAMPLE_PACKING_OFF;
}

const char *tensor_layout_name(enum tensor_layout layout) {
    return layout == TENSOR_LAYOUT_SOLVER ? "solver" : "megatron";
}

enum dtype state_format_dtype(enum state_format format) {
    static const enum dtype dtypes[] = {
#define STATE_FORMAT_DTYPE(name, dtype) [STATE_##name] = DTYPE_##dtype,
        STATE_FORMAT_LIST(STATE_FORMAT_DTYPE)};
    return dtypes[format];
}

/* ---- The table of settings, of a recipe ---- */

#define PLACE(field, ...) [SETTING_##field] = SETTING_PLACE(struct recipe, field),
const struct settings_holder recipe_settings = {
    .places = {SETTING_LIST_RECIPE(PLACE) SETTING_LIST_TRAINED(PLACE) SETTING_LIST_OPTIMIZER(PLACE)}};

void recipe_load_setting(const struct recipe *recipe, enum setting_id id, struct setting_value *out) {
    const struct setting *setting = &setting_table[id];
    char name[SETTING_PRINT_BYTES];
    settings_load(&recipe_settings, recipe, id, out);
    if (out->int_value != 0 || !setting->fallback) return;
    bool number = setting->type == SETTING_INT && setting->min > 0;
    bool choice =
        setting->type == SETTING_CHOICE && !setting_has_choice(setting, setting_choice_name(setting, 0, name));
    if (number || choice) setting_default(setting, out);
}

/* ---- Checks ---- */

static enum status refuse_odd(const char *field, int64_t value) {
    return status_set(STATUS_BAD_INPUT,
                      "plan: recipe.%s: %lld is not legal: sequences are pairs, and a pair lies in one micro-batch" HINT
                      "the nearest legal value is %lld",
                      field, (long long)value, (long long)(value > 1 ? value - 1 : 2));
}

/* Checks recipes that train on preference pairs. */
static enum status check_pairs(const struct recipe *recipe) {
    if (recipe_together(recipe) == 1) return STATUS_OK;
    if (recipe->batch % 2 != 0) return refuse_odd("batch", recipe->batch);
    if (recipe->micro_batch_sequences % 2 != 0) return refuse_odd("micro_batch", recipe->micro_batch_sequences);
    if (recipe->document_attention != DOCUMENT_ATTENTION_ACROSS)
        return status_hint(status_set(STATUS_BAD_INPUT, "plan: recipe.document_attention: within is for several "
                                                        "examples in a sequence, and those of pairs have one each"),
                           "leave out --document-attention");
    if (recipe->packing != EXAMPLE_PACKING_OFF)
        return status_set(STATUS_BAD_INPUT, "plan: recipe.packing: preference pairs cannot be packed: "
                                            "each answer has a row of its own" HINT "leave out --packing");
    bool smooths = recipe->dpo_loss == PAIR_LOSS_SIGMOID || recipe->dpo_loss == PAIR_LOSS_ROBUST;
    if (smooths || recipe->dpo_label_smoothing <= 0) return STATUS_OK;
    return status_hint(status_set(STATUS_BAD_INPUT, "plan: recipe.dpo_label_smoothing: %g: the loss %s is not smoothed",
                                  recipe->dpo_label_smoothing, pair_loss_name(recipe->dpo_loss)),
                       "--dpo-loss sigmoid and robust are");
}

/* Numbers alone: other types have no value that is not legal. */
static enum status check_value(const struct recipe *recipe, enum setting_id id, const struct setting_value *value) {
    const struct setting *setting = &setting_table[id];
    char name[64];
    snprintf(name, sizeof name, "recipe.%s", setting->key);
    int64_t max = id == SETTING_micro_batch_sequences ? recipe->batch : setting->max;
    if (setting->type == SETTING_INT) return plan_check_range(name, value->int_value, setting->min, max, setting->rule);
    if (setting->type != SETTING_FLOAT) return STATUS_OK;
    return plan_check_float(name, value->float_value, setting->float_min, setting->float_max, setting->rule);
}

static enum status check_setting(const struct recipe *recipe, enum setting_id id) {
    struct setting_value value;
    if (!settings_apply(&recipe_settings, recipe, id)) return STATUS_OK;
    recipe_load_setting(recipe, id, &value);
    return check_value(recipe, id, &value);
}

#define CHECK(field, ...) TRY(check_setting(recipe, SETTING_##field));

enum status recipe_check(const struct recipe *recipe) {
    TRY(check_pairs(recipe)); /* first: the micro-batch of an odd batch may be larger than it */
    SETTING_LIST_RECIPE(CHECK)
    return STATUS_OK;
}

enum status recipe_check_optimizer(const struct recipe *recipe) {
    SETTING_LIST_OPTIMIZER(CHECK)
    CHECK(muon_momentum)
    return STATUS_OK;
}

/* ---- JSON ---- */

#define LAYOUT_RATES(X)                                                                                                \
    X(flops_per_s, "flops_per_s")                                                                                      \
    X(bytes_per_s, "bytes_per_s")                                                                                      \
    X(latency_s, "latency_s")                                                                                          \
    X(link_bytes_per_s, "link_bytes_per_s")                                                                            \
    X(device_bytes, "device_bytes")

static json_t *layout_rates_to_json(const struct layout_rates *rates) {
    json_t *object = json_object();
    int failed = !object;
#define SET_RATE(field, key) failed |= json_object_set_new(object, key, json_real(rates->field));
    LAYOUT_RATES(SET_RATE)
    return json_unless(failed, object);
}

json_t *recipe_to_json(const struct recipe *recipe) {
    json_t *object = json_object();
    int failed = !object;
    for (enum setting_id id = 0; id < SETTING_COUNT; id++) {
        struct setting_value value;
        if (!settings_have(&recipe_settings, id) || !settings_apply(&recipe_settings, recipe, id)) continue;
        recipe_load_setting(recipe, id, &value);
        failed |= json_object_set_new(object, setting_table[id].key, setting_to_json(&setting_table[id], &value));
    }
    if (recipe->packing_auto)
        failed |= json_object_set_new(object, "packing", json_string(setting_table[SETTING_packing].automatic));
    if (recipe->layout_rates.flops_per_s > 0)
        failed |= json_object_set_new(object, "layout_rates", layout_rates_to_json(&recipe->layout_rates));
    if (recipe->strategies)
        failed |= json_object_set_new(object, "strategies", recipe_lines_to_json(recipe->strategies));
    failed |= json_object_set_new(object, "isa", json_string(recipe->isa));
    failed |= json_object_set_new(object, "kernels_version", json_integer(recipe->kernels_version));
    if (recipe->products) failed |= json_object_set_new(object, "products", recipe_lines_to_json(recipe->products));
    return json_made(failed, object, "a recipe's JSON");
}

/* Ballast 0.1.0 had no such key: it packed where attention was within documents, unless examples were pairs. */
static enum status read_packing(const char *file, const json_t *object, struct recipe *out) {
    bool packed = out->document_attention == DOCUMENT_ATTENTION_WITHIN && out->loss != TRAINING_DPO;
    const json_t *text = json_present(object, "packing");
    struct setting_value value;
    out->packing = packed && !text ? EXAMPLE_PACKING_ROWS_HELD : EXAMPLE_PACKING_OFF;
    out->packing_auto =
        json_is_string(text) && strcmp(json_string_value(text), setting_table[SETTING_packing].automatic) == 0;
    if (out->packing_auto || !text) return STATUS_OK;
    TRY(setting_from_json(file, object, &setting_table[SETTING_packing], false, NULL, &value));
    out->packing = (enum example_packing)value.int_value;
    return STATUS_OK;
}

static enum status read_setting(const char *file, const json_t *object, enum setting_id id, struct recipe *out) {
    const struct setting *setting = &setting_table[id];
    const struct setting_place *place = &recipe_settings.places[id];
    struct setting_value value;
    setting_default(setting, &value);
    if (id == SETTING_packing || !settings_apply(&recipe_settings, out, id)) return STATUS_OK;
    if (!setting->later) TRY(json_require(file, object, setting->key));
    if (place->storage == STORED_CHARS)
        return json_read_text(file, object, setting->key, place->bytes, (char *)out + place->offset);
    if (json_present(object, setting->key)) TRY(setting_from_json(file, object, setting, false, NULL, &value));
    if (setting->type == SETTING_INT) TRY(status_prefix(check_value(out, id, &value), "%s", file));
    return settings_store(&recipe_settings, out, id, "", &value);
}

static enum status read_layout_rates(const char *file, const json_t *object, struct layout_rates *out) {
    const json_t *rates = json_object_get(object, "layout_rates");
    if (!rates) return STATUS_OK;
    if (!json_is_object(rates)) return status_set(STATUS_BAD_INPUT, "%s: layout_rates: must be an object", file);
#define READ_RATE(field, key)                                                                                          \
    TRY(json_require(file, rates, key));                                                                               \
    TRY(json_read_double(file, rates, key, 0, 1e30, &out->field));
    LAYOUT_RATES(READ_RATE)
    if (out->flops_per_s > 0 && out->bytes_per_s > 0 && out->link_bytes_per_s > 0) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: layout_rates: rates must be above 0", file);
}

static enum status check_keys(const char *file, const json_t *object) {
#define KEY(field, key, ...) key,
    static const char *const known[] = {SETTING_LIST_RECIPE(KEY) SETTING_LIST_TRAINED(KEY)
                                            SETTING_LIST_OPTIMIZER(KEY) "products",
                                        "layout_rates",
                                        "strategies",
                                        "isa",
                                        "kernels_version",
                                        "threads" /* of old recipes: plan_from_json reads it */};
    TRY(json_require(file, object, "isa"));
    TRY(json_require(file, object, "kernels_version"));
    for (enum setting_id id = 0; id < SETTING_COUNT; id++)
        if (settings_have(&recipe_settings, id) && !setting_table[id].later && setting_table[id].only_with == 0)
            TRY(json_require(file, object, setting_table[id].key));
    return json_refuse_unknown(file, "recipe.", object, known, sizeof known / sizeof *known);
}

enum status recipe_from_json(const char *file, const json_t *object, struct recipe *out) {
    struct recipe recipe = {0};
    int64_t version = 0;
    TRY(check_keys(file, object));
    for (enum setting_id id = 0; id < SETTING_COUNT; id++)
        if (settings_have(&recipe_settings, id)) TRY(read_setting(file, object, id, &recipe));
    TRY(read_packing(file, object, &recipe));
    TRY(plan_read_int(file, object, "recipe.", "kernels_version", 0, INT32_MAX, "a version is not negative", &version));
    recipe.kernels_version = (int)version;
    TRY(json_read_text(file, object, "isa", sizeof recipe.isa, recipe.isa));
    TRY(read_layout_rates(file, object, &recipe.layout_rates));
    TRY(recipe_lines_from_json(file, &recipe_strategies, json_object_get(object, "strategies"), &recipe.strategies));
    TRY(recipe_lines_from_json(file, &recipe_products, json_object_get(object, "products"), &recipe.products));
    *out = recipe;
    return STATUS_OK;
}

enum status recipe_require_equal(const struct recipe *expected, const struct recipe *actual) {
#define DIFFERENT(key) return status_set(STATUS_BAD_INPUT, "recipe: %s is another here", key);
    for (enum setting_id id = 0; id < SETTING_COUNT; id++) {
        struct setting_value a, b;
        if (!settings_have(&recipe_settings, id)) continue;
        recipe_load_setting(expected, id, &a);
        recipe_load_setting(actual, id, &b);
        if (!setting_values_equal(&setting_table[id], &a, &b)) DIFFERENT(setting_table[id].key)
    }
    if (expected->kernels_version != actual->kernels_version) DIFFERENT("kernels_version")
#define COMPARE_RATE(field, key)                                                                                       \
    if (expected->layout_rates.field < actual->layout_rates.field ||                                                   \
        expected->layout_rates.field > actual->layout_rates.field)                                                     \
    DIFFERENT("layout_rates")
    LAYOUT_RATES(COMPARE_RATE)
    if (expected->strategies != actual->strategies) DIFFERENT("strategies") /* equal lines are one text */
    if (strcmp(expected->isa, actual->isa) != 0) DIFFERENT("isa")
    return STATUS_OK;
}
