#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/nearest.h"
#include "plan/plan_keys.h"
#include "plan/recipe_lines.h"
#include "plan/recipe_pairs.h"
#include "plan/settings.h"

enum { PLAN_FILE_LIMIT_BYTES = 1 << 24 };

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

const char *document_attention_name(enum document_attention attention) {
    return attention == DOCUMENT_ATTENTION_WITHIN ? "within" : "across";
}

enum document_attention document_attention_find(const char *name) {
    if (strcmp(name, "across") == 0) return DOCUMENT_ATTENTION_ACROSS;
    return strcmp(name, "within") == 0 ? DOCUMENT_ATTENTION_WITHIN : DOCUMENT_ATTENTION_COUNT;
}

const char *example_packing_name(enum example_packing packing) {
    static const char *const names[] = {"off", "on", "rows-held"};
    return names[packing];
}

enum example_packing example_packing_find(const char *name) {
    enum example_packing packing = 0;
    while (packing < EXAMPLE_PACKING_COUNT && strcmp(name, example_packing_name(packing)) != 0)
        packing++;
    return packing;
}

bool recipe_has_segments(const struct recipe *recipe) {
    return recipe->document_attention == DOCUMENT_ATTENTION_WITHIN || recipe->packing != EXAMPLE_PACKING_OFF;
}

const char *training_loss_name(enum training_loss loss) {
    static const char *const names[] = {
#define TRAINING_LOSS_NAME(name, text) [TRAINING_##name] = text,
        TRAINING_LOSS_LIST(TRAINING_LOSS_NAME)};
    return names[loss];
}

enum training_loss training_loss_find(const char *name) {
    enum training_loss loss = 0;
    while (loss < TRAINING_LOSS_COUNT && strcmp(name, training_loss_name(loss)) != 0)
        loss++;
    return loss;
}

const char *tensor_layout_name(enum tensor_layout layout) {
    return layout == TENSOR_LAYOUT_SOLVER ? "solver" : "megatron";
}

enum tensor_layout tensor_layout_find(const char *name) {
    if (strcmp(name, "megatron") == 0) return TENSOR_LAYOUT_MEGATRON;
    return strcmp(name, "solver") == 0 ? TENSOR_LAYOUT_SOLVER : TENSOR_LAYOUT_COUNT;
}

const char *state_format_name(enum state_format format) {
    static const char *const names[] = {
#define STATE_FORMAT_NAME(name, text, dtype) [STATE_##name] = text,
        STATE_FORMAT_LIST(STATE_FORMAT_NAME)};
    return names[format];
}

enum state_format state_format_find(const char *name) {
    enum state_format format = 0;
    while (format < STATE_FORMAT_COUNT && strcmp(name, state_format_name(format)) != 0)
        format++;
    return format;
}

enum dtype state_format_dtype(enum state_format format) {
    static const enum dtype dtypes[] = {
#define STATE_FORMAT_DTYPE(name, text, dtype) [STATE_##name] = DTYPE_##dtype,
        STATE_FORMAT_LIST(STATE_FORMAT_DTYPE)};
    return dtypes[format];
}

const char *master_weights_name(enum master_weights master_weights) {
    static const char *const names[] = {
#define MASTER_WEIGHTS_NAME(name, text) [MASTER_WEIGHTS_##name] = text,
        MASTER_WEIGHTS_LIST(MASTER_WEIGHTS_NAME)};
    return names[master_weights];
}

enum master_weights master_weights_find(const char *name) {
    enum master_weights master_weights = 0;
    while (master_weights < MASTER_WEIGHTS_COUNT && strcmp(name, master_weights_name(master_weights)) != 0)
        master_weights++;
    return master_weights;
}

/* One list of the recipe's numbers serves checking, writing, reading and comparing: key, type, min, max and why.
 * What may be set has its limits from the table of settings. */
#define SETTING_MIN(field) setting_table[SETTING_##field].min
#define SETTING_MAX(field) setting_table[SETTING_##field].max
#define RECIPE_INTEGERS(X)                                                                                             \
    X(round_micro_batches, "round_micro_batches", int64_t, SETTING_MIN(round_micro_batches),                           \
      SETTING_MAX(round_micro_batches), "0 for all micro-batches of a lane")                                           \
    X(batch, "batch", int64_t, SETTING_MIN(batch), SETTING_MAX(batch), "a step needs at least one sequence")           \
    X(sequence_length, "sequence_length", int64_t, SETTING_MIN(sequence_length), SETTING_MAX(sequence_length),         \
      "a sequence needs at least one token")                                                                           \
    X(micro_batch_sequences, "micro_batch", int64_t, SETTING_MIN(micro_batch_sequences), recipe->batch,                \
      "a micro-batch holds whole sequences and at most the batch")                                                     \
    X(seed, "seed", uint64_t, SETTING_MIN(seed), SETTING_MAX(seed), "a seed is not negative")                          \
    X(kernels_version, "kernels_version", int, 0, INT32_MAX, "a version is not negative")
#define RECIPE_DOUBLES(X)                                                                                              \
    X(beta1, "beta1", "a decaying average's share is below 1")                                                         \
    X(beta2, "beta2", "a decaying average's share is below 1")                                                         \
    X(epsilon, "epsilon", "what keeps divisors from 0 is above 0, in fp32 too, and at most 1")                         \
    X(weight_decay, "weight_decay", "0 for none, and at most 1000")                                                    \
    X(clip_norm, "clip_norm", "0 for none, and at most 1e9")

/* `group` ranks, or a multiple of them, are needed; `nearest`: the largest value that the ranks at hand allow. */
static enum status hint_ranks(enum status status, int group, int ranks, int nearest) {
    if (ranks == 1) return status_hint(status, "use --ranks %d, or another multiple of %d", group, group);
    return status_hint(status, "use --ranks %d, or another multiple of %d; for %d ranks the nearest legal value is %d",
                       group, group, ranks, nearest);
}

static enum status check_tensor_parallel(const struct recipe *recipe, int ranks) {
    int tensor = recipe_tensor_parallel(recipe), nearest = tensor;
    while (ranks % nearest != 0)
        nearest--;
    if (nearest == tensor) return STATUS_OK;
    enum status status =
        status_set(STATUS_BAD_INPUT, "plan: recipe.tensor_parallel: %d does not divide %d rank%s (--tensor-parallel)",
                   tensor, ranks, ranks == 1 ? "" : "s");
    return hint_ranks(status, tensor, ranks, nearest);
}

static enum status check_pipeline_parallel(const struct rank_place *place, int tensor) {
    int ranks = rank_place_ranks(place), stages = rank_place_pipeline_parallel(place), nearest = stages;
    while (ranks % (nearest * tensor) != 0)
        nearest--;
    if (nearest == stages) return STATUS_OK;
    char with_tensor[48] = "";
    if (tensor > 1) snprintf(with_tensor, sizeof with_tensor, " with tensor_parallel %d", tensor);
    enum status status = status_set(STATUS_BAD_INPUT,
                                    "plan: policy.pipeline_parallel: %d%s does not divide %d rank%s "
                                    "(--pipeline-parallel)",
                                    stages, with_tensor, ranks, ranks == 1 ? "" : "s");
    return hint_ranks(status, stages * tensor, ranks, nearest);
}

static enum status check_axes(const struct plan *plan) {
    const struct recipe *recipe = &plan->recipe;
    int tensor = recipe_tensor_parallel(recipe), of_place = rank_place_tensor_parallel(&plan->place);
    if (of_place != tensor)
        return status_set(STATUS_BAD_INPUT, "plan: recipe.tensor_parallel: %d differs from the %d of the ranks", tensor,
                          of_place);
    TRY(check_tensor_parallel(recipe, rank_place_ranks(&plan->place)));
    if (recipe->sequence_parallel && tensor == 1)
        return status_hint(
            status_set(STATUS_BAD_INPUT, "plan: recipe.sequence_parallel: on requires tensor parallelism"),
            "add --tensor-parallel N, or use --sequence-parallel off");
    if (recipe->sequence_parallel && recipe->layout == TENSOR_LAYOUT_SOLVER)
        return status_hint(status_set(STATUS_BAD_INPUT,
                                      "plan: recipe.sequence_parallel: on conflicts with --layout solver, which "
                                      "chooses itself where to shard the sequence dimension"),
                           "use --sequence-parallel off, or --layout megatron");
    if (tensor > 1 && recipe->optimizer_dtype == STATE_INT8)
        return status_hint(status_set(STATUS_BAD_INPUT,
                                      "plan: recipe.optimizer_dtype: int8 does not work with tensor parallelism, which "
                                      "would split the blocks that share a scale"),
                           "use --optimizer-dtype bf16, or shard int8 moments with --partition instead of "
                           "--tensor-parallel");
    if (tensor > 1 && recipe->optimizer == UPDATE_MUON)
        return status_hint(status_set(STATUS_BAD_INPUT,
                                      "plan: recipe.optimizer: muon does not work with tensor parallelism, since it "
                                      "needs whole matrices"),
                           "shard the model with --partition instead of --tensor-parallel");
    return check_pipeline_parallel(&plan->place, tensor);
}

static enum status check_ranks(const struct plan *plan) {
    int ranks = rank_place_data(&plan->place);
    struct lane_tree tree;
    if (ranks == 1) return STATUS_OK;
    TRY(lane_tree_of_shape(&plan->recipe.lanes, &tree));
    int *subtree = mem_array((size_t)ranks, sizeof *subtree);
    enum status status = subtree ? lane_tree_cut(&tree, ranks, subtree) : STATUS_FAILED;
    mem_free(subtree);
    lane_tree_free(&tree);
    return status == STATUS_OK ? status : status_prefix(status, "plan: policy.ranks");
}

bool plan_updates_anywhere(const struct recipe *recipe) { return recipe->optimizer != UPDATE_MUON; }

static enum status check_update(const struct plan *plan) {
    if (plan->policy.update == TIER_DEVICE || plan_updates_anywhere(&plan->recipe)) return STATUS_OK;
    return status_hint(status_set(STATUS_BAD_INPUT, "plan: policy.update: %s, but muon's GEMMs give other bits there",
                                  tier_name(plan->policy.update)),
                       "the nearest legal value is device");
}

enum status plan_check(const struct plan *plan) {
    const struct recipe *recipe = &plan->recipe;
    TRY(recipe_pairs_check(recipe)); /* first: the micro-batch of an odd batch may be larger than it */
#define CHECK_INTEGER(field, key, type, min, max, rule)                                                                \
    TRY(plan_check_range("recipe." key, (int64_t)recipe->field, min, max, rule));
    RECIPE_INTEGERS(CHECK_INTEGER)
    TRY(check_axes(plan));
    TRY(check_ranks(plan));
    const struct mesh data = rank_place_data_mesh(&plan->place);
    TRY(partition_check(&plan->policy.partition, &data));
    TRY(policy_check(&plan->policy, recipe_share_micro_batches(recipe)));
    return check_update(plan);
}

enum status recipe_check_optimizer(const struct recipe *recipe) {
#define CHECK_DOUBLE(field, key, rule)                                                                                 \
    TRY(plan_check_float("recipe." key, recipe->field, setting_table[SETTING_##field].float_min,                       \
                         setting_table[SETTING_##field].float_max, rule));
    RECIPE_DOUBLES(CHECK_DOUBLE)
    if (recipe->optimizer == UPDATE_MUON)
        CHECK_DOUBLE(muon_momentum, "muon_momentum", "a decaying average's share is below 1")
    return STATUS_OK;
}

/* Left out where plans were written before there were such: "" then. */
#define RECIPE_TEXTS(X) X(lora, "lora") X(freeze, "freeze")

/* What says nothing does not. */
static bool rounds_sums(const struct recipe *recipe) { return recipe->reduce_dtype == DTYPE_BF16; }

#define LAYOUT_RATES(X)                                                                                                \
    X(flops_per_s, "flops_per_s")                                                                                      \
    X(bytes_per_s, "bytes_per_s")                                                                                      \
    X(latency_s, "latency_s")                                                                                          \
    X(link_bytes_per_s, "link_bytes_per_s")                                                                            \
    X(device_bytes, "device_bytes")

static json_t *layout_rates_to_json(const struct layout_rates *rates) {
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "flops_per_s", rates->flops_per_s, "bytes_per_s", rates->bytes_per_s,
                     "latency_s", rates->latency_s, "link_bytes_per_s", rates->link_bytes_per_s, "device_bytes",
                     rates->device_bytes);
}

json_t *recipe_to_json(const struct recipe *recipe) {
    json_t *object = json_object();
    int failed = !object;
    failed |= json_object_set_new(object, "dtype", json_string(dtype_name(recipe->dtype)));
    failed |= json_object_set_new(object, "reduce_dtype", json_string(rounds_sums(recipe) ? "bf16" : "fp32"));
#define SET_INTEGER(field, key, type, min, max, rule)                                                                  \
    failed |= json_object_set_new(object, key, json_integer((json_int_t)recipe->field));
    RECIPE_INTEGERS(SET_INTEGER)
#define SET_DOUBLE(field, key, rule) failed |= json_object_set_new(object, key, json_real(recipe->field));
    RECIPE_DOUBLES(SET_DOUBLE)
    failed |= json_object_set_new(object, "document_attention",
                                  json_string(document_attention_name(recipe->document_attention)));
    const char *packing = recipe->packing_auto ? "auto" : example_packing_name(recipe->packing);
    failed |= json_object_set_new(object, "packing", json_string(packing));
    failed |= json_object_set_new(object, "loss", json_string(training_loss_name(recipe->loss)));
    if (recipe->loss == TRAINING_DPO) failed |= recipe_pairs_to_json(recipe, object);
    failed |= json_object_set_new(object, "optimizer", json_string(update_rule_name(recipe->optimizer)));
    if (recipe->optimizer == UPDATE_MUON)
        failed |= json_object_set_new(object, "muon_momentum", json_real(recipe->muon_momentum));
    failed |= json_object_set_new(object, "optimizer_dtype", json_string(state_format_name(recipe->optimizer_dtype)));
    failed |= json_object_set_new(object, "quantize_base", json_string(weight_format_name(recipe->quantize_base)));
    failed |= json_object_set_new(object, "master_weights", json_string(master_weights_name(recipe->master_weights)));
    char lanes[LANE_SHAPE_BYTES];
    failed |= json_object_set_new(object, "lanes", json_string(lane_shape_print(&recipe->lanes, lanes)));
    failed |= json_object_set_new(object, "tensor_parallel", json_integer(recipe_tensor_parallel(recipe)));
    failed |= json_object_set_new(object, "sequence_parallel", json_string(recipe->sequence_parallel ? "on" : "off"));
    failed |= json_object_set_new(object, "layout", json_string(tensor_layout_name(recipe->layout)));
    if (recipe->layout_rates.flops_per_s > 0)
        failed |= json_object_set_new(object, "layout_rates", layout_rates_to_json(&recipe->layout_rates));
    if (recipe->strategies)
        failed |= json_object_set_new(object, "strategies", recipe_lines_to_json(recipe->strategies));
    failed |= json_object_set_new(object, "isa", json_string(recipe->isa));
#define SET_TEXT(field, key) failed |= json_object_set_new(object, key, json_string(recipe->field));
    RECIPE_TEXTS(SET_TEXT)
    if (recipe->products) failed |= json_object_set_new(object, "products", recipe_lines_to_json(recipe->products));
    if (!failed) return object;
    json_decref(object);
    (void)status_no_memory(0, "a recipe's JSON");
    return NULL;
}

json_t *plan_to_json(const struct plan *plan) {
    json_t *recipe = recipe_to_json(&plan->recipe);
    if (!recipe) return NULL;
    json_t *policy = policy_to_json(&plan->policy);
    if (!policy) {
        json_decref(recipe);
        return NULL;
    }
    char ranks[LANE_SHAPE_BYTES];
    const struct lane_shape mesh = {plan->place.mesh.nodes, plan->place.mesh.per_node};
    if (json_object_set_new(policy, "ranks", json_string(lane_shape_print(&mesh, ranks))) != 0 ||
        json_object_set_new(policy, "pipeline_parallel", json_integer(rank_place_pipeline_parallel(&plan->place))) !=
            0) {
        json_decref(recipe);
        json_decref(policy);
        (void)status_no_memory(0, "a plan's JSON");
        return NULL;
    }
    json_t *object = json_pack("{s:i, s:o, s:o, s:i}", "version", PLAN_VERSION, "recipe", recipe, "policy", policy,
                               "threads", plan->threads);
    if (!object) (void)status_no_memory(0, "a plan's JSON");
    return object;
}

static enum status read_dtype(const char *file, const json_t *object, const char *field, enum dtype *out) {
    static const char *const names[] = {"bf16", "fp32"};
    const char *name = "fp32";
    TRY(json_read_string(file, object, field, &name));
    *out = dtype_find(name);
    if (*out == DTYPE_F32 || *out == DTYPE_BF16) return STATUS_OK;
    enum status status = status_set(STATUS_BAD_INPUT, "%s: %s: nothing is computed in '%s'", file, field, name);
    return nearest_hint(status, "value", name, names, sizeof names / sizeof *names);
}

static enum status read_document_attention(const char *file, const json_t *object, enum document_attention *out) {
    static const char *const names[] = {"across", "within"};
    const char *name = "";
    TRY(json_read_string(file, object, "document_attention", &name));
    *out = document_attention_find(name);
    if (*out != DOCUMENT_ATTENTION_COUNT) return STATUS_OK;
    enum status status = status_set(STATUS_BAD_INPUT, "%s: document_attention: '%s' is not known", file, name);
    return nearest_hint(status, "value", name, names, sizeof names / sizeof *names);
}

/* Ballast 0.1.0 had no such key: it packed where attention was within documents, unless examples were pairs. */
static enum status read_packing(const char *file, const json_t *object, struct recipe *out) {
    static const char *const names[] = {"off", "on", "rows-held", "auto"};
    bool packed = out->document_attention == DOCUMENT_ATTENTION_WITHIN && out->loss != TRAINING_DPO;
    const char *name = example_packing_name(packed ? EXAMPLE_PACKING_ROWS_HELD : EXAMPLE_PACKING_OFF);
    TRY(json_read_string(file, object, "packing", &name));
    out->packing_auto = strcmp(name, "auto") == 0;
    if (out->packing_auto) name = example_packing_name(EXAMPLE_PACKING_OFF);
    out->packing = example_packing_find(name);
    if (out->packing != EXAMPLE_PACKING_COUNT) return STATUS_OK;
    enum status status = status_set(STATUS_BAD_INPUT, "%s: packing: '%s' is not known", file, name);
    return nearest_hint(status, "value", name, names, sizeof names / sizeof *names);
}

/* The next token in files of versions that had no other. */
static enum status read_loss(const char *file, const json_t *object, struct recipe *out) {
    static const char *const names[] = {"next-token", "dpo"};
    const char *name = names[0];
    TRY(json_read_string(file, object, "loss", &name));
    out->loss = training_loss_find(name);
    if (out->loss == TRAINING_LOSS_COUNT)
        return nearest_hint(status_set(STATUS_BAD_INPUT, "%s: loss: '%s' is not known", file, name), "value", name,
                            names, sizeof names / sizeof *names);
    return out->loss == TRAINING_DPO ? recipe_pairs_from_json(file, object, out) : STATUS_OK;
}

/* AdamW in files of versions that had no other. */
static enum status read_optimizer(const char *file, const json_t *object, struct recipe *out) {
    const char *names[UPDATE_RULE_COUNT], *name = update_rule_name(UPDATE_ADAMW);
    for (int i = 0; i < UPDATE_RULE_COUNT; i++)
        names[i] = update_rule_name((enum update_rule)i);
    TRY(json_read_string(file, object, "optimizer", &name));
    out->optimizer = update_rule_find(name);
    if (out->optimizer == UPDATE_RULE_COUNT)
        return nearest_hint(status_set(STATUS_BAD_INPUT, "%s: optimizer: '%s' is not known", file, name), "value", name,
                            names, sizeof names / sizeof *names);
    if (out->optimizer != UPDATE_MUON) return STATUS_OK;
    TRY(json_require(file, object, "muon_momentum"));
    return json_read_double(file, object, "muon_momentum", -HUGE_VAL, HUGE_VAL, &out->muon_momentum);
}

/* Megatron's in files of versions that had no other. */
static enum status read_layout(const char *file, const json_t *object, struct recipe *out) {
    static const char *const names[] = {"megatron", "solver"};
    const char *name = names[0];
    const json_t *rates = json_object_get(object, "layout_rates");
    TRY(recipe_lines_from_json(file, &recipe_strategies, json_object_get(object, "strategies"), &out->strategies));
    TRY(json_read_string(file, object, "layout", &name));
    out->layout = tensor_layout_find(name);
    if (out->layout == TENSOR_LAYOUT_COUNT)
        return nearest_hint(status_set(STATUS_BAD_INPUT, "%s: layout: '%s' is not known", file, name), "value", name,
                            names, sizeof names / sizeof *names);
    if (!rates) return STATUS_OK;
    if (!json_is_object(rates)) return status_set(STATUS_BAD_INPUT, "%s: layout_rates: must be an object", file);
#define READ_RATE(field, key)                                                                                          \
    TRY(json_require(file, rates, key));                                                                               \
    TRY(json_read_double(file, rates, key, 0, 1e30, &out->layout_rates.field));
    LAYOUT_RATES(READ_RATE)
    if (out->layout_rates.flops_per_s > 0 && out->layout_rates.bytes_per_s > 0 &&
        out->layout_rates.link_bytes_per_s > 0)
        return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: layout_rates: rates must be above 0", file);
}

/* fp32 in files of versions that had no other. */
static enum status read_state_formats(const char *file, const json_t *object, struct recipe *out) {
    static const char *const formats[] = {"fp32", "bf16", "int8"}, *const masters[] = {"fp32", "split", "none"};
    const char *format = "fp32", *master_weights = "fp32";
    TRY(json_read_string(file, object, "optimizer_dtype", &format));
    TRY(json_read_string(file, object, "master_weights", &master_weights));
    out->optimizer_dtype = state_format_find(format);
    out->master_weights = master_weights_find(master_weights);
    if (out->optimizer_dtype == STATE_FORMAT_COUNT)
        return nearest_hint(status_set(STATUS_BAD_INPUT, "%s: optimizer_dtype: '%s' is not known", file, format),
                            "value", format, formats, sizeof formats / sizeof *formats);
    if (out->master_weights == MASTER_WEIGHTS_COUNT)
        return nearest_hint(status_set(STATUS_BAD_INPUT, "%s: master_weights: '%s' is not known", file, master_weights),
                            "value", master_weights, masters, sizeof masters / sizeof *masters);
    return STATUS_OK;
}

/* none in files of versions that had no other. */
static enum status read_quantize_base(const char *file, const json_t *object, enum weight_format *out) {
#define FORMAT_TEXT(name, text, block) text,
    static const char *const formats[] = {WEIGHT_FORMAT_LIST(FORMAT_TEXT)};
#undef FORMAT_TEXT
    const char *format = weight_format_name(WEIGHT_PLAIN);
    TRY(json_read_string(file, object, "quantize_base", &format));
    *out = weight_format_find(format);
    if (*out != WEIGHT_FORMAT_COUNT) return STATUS_OK;
    return nearest_hint(status_set(STATUS_BAD_INPUT, "%s: quantize_base: '%s' is not known", file, format), "value",
                        format, formats, WEIGHT_FORMAT_COUNT);
}

/* Checked before it becomes a narrower type. `part` of the plan: "recipe.", or "" for what stands in none. */
static enum status read_integer(const char *file, const json_t *object, const char *part, const char *field,
                                int64_t min, int64_t max, const char *rule, int64_t *out) {
    TRY(json_read_int(file, object, field, INT64_MIN, INT64_MAX, out));
    char name[64];
    snprintf(name, sizeof name, "%s%s", part, field);
    enum status status = plan_check_range(name, *out, min, max, rule);
    return status == STATUS_OK ? status : status_prefix(status, "%s", file);
}

/* Numbers by nodes; one where the file says nothing. */
static enum status read_shape(const char *file, const json_t *object, const char *field, struct lane_shape *out) {
    const char *text = "1";
    TRY(json_read_string(file, object, field, &text));
    enum status status = lane_shape_parse(text, out);
    return status == STATUS_OK ? status : status_prefix(status, "%s: %s", file, field);
}

/* Off where the file says nothing. */
static enum status read_sequence(const char *file, const json_t *object, bool *out) {
    const char *text = "off";
    TRY(json_read_string(file, object, "sequence_parallel", &text));
    *out = strcmp(text, "on") == 0;
    if (*out || strcmp(text, "off") == 0) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: recipe.sequence_parallel: '%s' is neither on nor off", file, text);
}

/* Old recipes may hold "threads", which plan_from_json reads. */
static enum status recipe_from_json(const char *file, const json_t *object, struct recipe *out) {
    enum { OPTIONAL_FIELDS = 22 };
    static const char *const known[] = {"threads",
                                        "quantize_base",
                                        "lora",
                                        "freeze",
                                        "products",
                                        "lanes",
                                        "packing",
                                        "loss",
                                        "dpo_beta",
                                        "dpo_loss",
                                        "dpo_label_smoothing",
                                        "optimizer",
                                        "muon_momentum",
                                        "optimizer_dtype",
                                        "master_weights",
                                        "reduce_dtype",
                                        "tensor_parallel",
                                        "sequence_parallel",
                                        "layout",
                                        "layout_rates",
                                        "strategies",
#define NAME_INTEGER(field, key, type, min, max, rule) key,
                                        RECIPE_INTEGERS(NAME_INTEGER) /* the first: plans had no rounds once */
                                        "dtype",
                                        "isa",
                                        "document_attention",
#define NAME_DOUBLE(field, key, rule) key,
                                        RECIPE_DOUBLES(NAME_DOUBLE)};
    struct recipe read = {0}, *recipe = &read;
    for (size_t i = OPTIONAL_FIELDS; i < sizeof known / sizeof *known; i++)
        TRY(json_require(file, object, known[i]));
    TRY(json_refuse_unknown(file, "recipe.", object, known, sizeof known / sizeof *known));
#define READ_INTEGER(field, key, type, min, max, rule)                                                                 \
    {                                                                                                                  \
        int64_t value = 0;                                                                                             \
        TRY(read_integer(file, object, "recipe.", key, min, max, rule, &value));                                       \
        recipe->field = (type)value;                                                                                   \
    }
    RECIPE_INTEGERS(READ_INTEGER)
#define READ_DOUBLE(field, key, rule) TRY(json_read_double(file, object, key, -HUGE_VAL, HUGE_VAL, &recipe->field));
    RECIPE_DOUBLES(READ_DOUBLE)
    TRY(read_dtype(file, object, "dtype", &recipe->dtype));
    TRY(read_dtype(file, object, "reduce_dtype", &recipe->reduce_dtype));
    TRY(read_document_attention(file, object, &recipe->document_attention));
    TRY(read_loss(file, object, recipe));
    TRY(read_packing(file, object, recipe));
    TRY(read_optimizer(file, object, recipe));
    TRY(read_state_formats(file, object, recipe));
    TRY(read_quantize_base(file, object, &recipe->quantize_base));
    TRY(read_shape(file, object, "lanes", &recipe->lanes));
    int64_t tensor = 1;
    TRY(read_integer(file, object, "recipe.", "tensor_parallel", SETTING_MIN(tensor_parallel),
                     SETTING_MAX(tensor_parallel), "at least one rank", &tensor));
    recipe->tensor_parallel = (int)tensor;
    TRY(read_sequence(file, object, &recipe->sequence_parallel));
    TRY(read_layout(file, object, recipe));
    TRY(json_read_text(file, object, "isa", sizeof recipe->isa, recipe->isa));
#define READ_TEXT(field, key) TRY(json_read_text(file, object, key, sizeof recipe->field, recipe->field));
    RECIPE_TEXTS(READ_TEXT)
    TRY(recipe_lines_from_json(file, &recipe_products, json_object_get(object, "products"), &recipe->products));
    *out = *recipe;
    return STATUS_OK;
}

/* Plans of earlier versions have the threads in the recipe. */
static enum status read_threads(const char *file, const json_t *plan, int *out) {
    const json_t *recipe = json_object_get(plan, "recipe");
    bool earlier = !json_object_get(plan, "threads") && json_object_get(recipe, "threads");
    const json_t *holder = earlier ? recipe : plan;
    int64_t value = 0;
    TRY(json_require(file, holder, "threads"));
    TRY(read_integer(file, holder, earlier ? "recipe." : "", "threads", SETTING_MIN(threads), SETTING_MAX(threads),
                     "at least one compute thread", &value));
    *out = (int)value;
    return STATUS_OK;
}

static enum status read_plan(const char *file, const json_t *object, struct plan *out) {
    const json_t *recipe = json_object_get(object, "recipe"), *policy = json_object_get(object, "policy");
    if (!json_is_object(recipe)) return status_set(STATUS_BAD_INPUT, "%s: recipe: must be an object", file);
    if (!json_is_object(policy)) return status_set(STATUS_BAD_INPUT, "%s: policy: must be an object", file);
    TRY(recipe_from_json(file, recipe, &out->recipe));
    TRY(policy_from_json(file, policy, &out->policy));
    struct lane_shape ranks = {0};
    TRY(read_shape(file, policy, "ranks", &ranks));
    int64_t stages = 1;
    TRY(read_integer(file, policy, "policy.", "pipeline_parallel", 1, LANES_MAX, "a pipeline has at least one stage",
                     &stages));
    out->place = (struct rank_place){.mesh = {ranks.nodes, ranks.per_node},
                                     .tensor_parallel = out->recipe.tensor_parallel,
                                     .pipeline_parallel = (int)stages};
    TRY(read_threads(file, object, &out->threads));
    enum status status = recipe_check_optimizer(&out->recipe);
    if (status == STATUS_OK) status = plan_check(out);
    return status == STATUS_OK ? status : status_prefix(status, "%s", file);
}

enum status plan_from_json(const char *file, const json_t *object, struct plan *out) {
    struct plan plan = {0};
    json_t *updated = NULL;
    enum status status = plan_update_keys(file, object, &updated);
    if (status == STATUS_OK) status = read_plan(file, updated, &plan);
    json_decref(updated);
    if (status == STATUS_OK)
        *out = plan;
    else if (!status_hint_text()[0]) /* what is missing, or of another type, has no nearest value */
        return status_hint(status, "`ballast plan MODEL_DIR -o FILE` writes a plan with all fields");
    return status;
}

const json_t *plan_find(const json_t *object) {
    const json_t *plan = json_object_get(object, "plan");
    return json_is_object(plan) ? plan : object;
}

enum status plan_read(const char *path, struct plan *out) {
    json_t *object;
    TRY(json_read_object(path, PLAN_FILE_LIMIT_BYTES, &object));
    enum status status = plan_from_json(path, plan_find(object), out);
    json_decref(object);
    return status;
}

enum status plan_set_model(json_t *plan, const char *model_folder) {
    json_t *text = json_string(model_folder);
    if (!text) return STATUS_OK;
    return json_object_set_new(plan, "model", text) == 0 ? STATUS_OK : status_no_memory(0, "a plan's JSON");
}

enum status plan_read_model(const char *path, struct scratch *memory, const char **out) {
    json_t *object;
    const char *folder = NULL, *copy = NULL;
    enum status status;
    TRY(json_read_object(path, PLAN_FILE_LIMIT_BYTES, &object));
    TRY_GOTO(status, json_read_string(path, object, "model", &folder), done);
    if (folder) {
        copy = scratch_format(memory, "%s", folder);
        TRY_GOTO(status, copy ? STATUS_OK : STATUS_FAILED, done);
    }
    *out = copy;
done:
    json_decref(object);
    return status;
}

enum status recipe_require_equal(const struct recipe *expected, const struct recipe *actual) {
#define DIFFERENT(key) return status_set(STATUS_BAD_INPUT, "recipe: %s is another here", key);
#define COMPARE_INTEGER(field, key, type, min, max, rule)                                                              \
    if (expected->field != actual->field) DIFFERENT(key)
    RECIPE_INTEGERS(COMPARE_INTEGER)
#define COMPARE_DOUBLE(field, key, rule)                                                                               \
    if (expected->field < actual->field || expected->field > actual->field) DIFFERENT(key)
    RECIPE_DOUBLES(COMPARE_DOUBLE)
    if (expected->dtype != actual->dtype) DIFFERENT("dtype")
    if (!lane_shape_equal(&expected->lanes, &actual->lanes)) DIFFERENT("lanes")
    if (rounds_sums(expected) != rounds_sums(actual)) DIFFERENT("reduce_dtype")
    if (recipe_tensor_parallel(expected) != recipe_tensor_parallel(actual)) DIFFERENT("tensor_parallel")
    if (expected->sequence_parallel != actual->sequence_parallel) DIFFERENT("sequence_parallel")
    if (expected->layout != actual->layout) DIFFERENT("layout")
#define COMPARE_RATE(field, key)                                                                                       \
    if (expected->layout_rates.field < actual->layout_rates.field ||                                                   \
        expected->layout_rates.field > actual->layout_rates.field)                                                     \
    DIFFERENT("layout_rates")
    LAYOUT_RATES(COMPARE_RATE)
    if (expected->strategies != actual->strategies) DIFFERENT("strategies") /* equal lines are one text */
#define COMPARE_TEXT(field, key)                                                                                       \
    if (strcmp(expected->field, actual->field) != 0) DIFFERENT(key)
    RECIPE_TEXTS(COMPARE_TEXT)
    if (expected->document_attention != actual->document_attention) DIFFERENT("document_attention")
    if (expected->packing != actual->packing) DIFFERENT("packing")
    if (expected->loss != actual->loss) DIFFERENT("loss")
    const char *of_pairs = recipe_pairs_differ(expected, actual);
    if (of_pairs) return status_set(STATUS_BAD_INPUT, "recipe: %s is another here", of_pairs);
    if (expected->optimizer != actual->optimizer) DIFFERENT("optimizer")
    if (expected->muon_momentum < actual->muon_momentum || expected->muon_momentum > actual->muon_momentum)
        DIFFERENT("muon_momentum")
    if (expected->optimizer_dtype != actual->optimizer_dtype) DIFFERENT("optimizer_dtype")
    if (expected->master_weights != actual->master_weights) DIFFERENT("master_weights")
    if (expected->quantize_base != actual->quantize_base) DIFFERENT("quantize_base")
    if (strcmp(expected->isa, actual->isa) != 0) DIFFERENT("isa")
    return STATUS_OK;
}
