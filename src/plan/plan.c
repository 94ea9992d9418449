#include "plan/plan.h"

#include "base/json.h"
#include "plan/lane_shares.h"
#include "plan/recipe.h"
#include "plan/settings.h"

/* ---- keys of older versions ----
 *
 * Version 2 has the field's terms; version 1 is that of Ballast 0.1.0. */

enum { FIRST_TERMS = 2 };

static const struct json_renamed recipe_keys[] = {
    {"grain_sequences", "micro_batch"}, {"round_grains", "round_micro_batches"},
    {"tensor", "tensor_parallel"},      {"sequence", "sequence_parallel"},
    {"master", "master_weights"},       {"base_dtype", "quantize_base"},
};
static const struct json_renamed policy_keys[] = {
    {"grains_per_pass", "micro_batches_per_wave"},
    {"remake", "selective_recompute"},
    {"stages", "pipeline_parallel"},
    {"spans", "stage_starts"},
};
static const struct json_renamed document_keys[] = {{"front", "pareto_front"}};

#define RENAME(file, where, object, renamed)                                                                           \
    json_rename_keys(file, where, object, renamed, sizeof(renamed) / sizeof *(renamed))

static enum status rename_candidates(const char *file, const json_t *candidates) {
    size_t i;
    json_t *candidate;
    json_array_foreach((json_t *)(uintptr_t)candidates, i, candidate)
        TRY(RENAME(file, "policy.", json_object_get(candidate, "policy"), policy_keys));
    return STATUS_OK;
}

static enum status rename_all(const char *file, json_t *object) {
    TRY(RENAME(file, "", object, document_keys));
    TRY(RENAME(file, "recipe.", json_object_get(object, "recipe"), recipe_keys));
    TRY(RENAME(file, "policy.", json_object_get(object, "policy"), policy_keys));
    TRY(rename_candidates(file, json_object_get(object, "runners_up")));
    TRY(rename_candidates(file, json_object_get(object, "pareto_front")));
    TRY(rename_candidates(file, json_object_get(object, "tried")));
    json_t *version = json_integer(PLAN_VERSION);
    return json_object_set_new(object, "version", version) == 0 ? STATUS_OK : status_no_memory(0, "a plan's JSON");
}

enum status plan_update_keys(const char *file, const json_t *object, json_t **out) {
    int64_t version = 0;
    TRY(json_read_version(file, object, PLAN_VERSION, &version));
    json_auto_t *copy = version < FIRST_TERMS ? json_deep_copy(object) : json_incref((json_t *)(uintptr_t)object);
    if (!copy) return status_no_memory(0, "a plan's JSON");
    TRY(version < FIRST_TERMS ? rename_all(file, copy) : STATUS_OK);
    *out = TAKE(copy);
    return STATUS_OK;
}

/* ---- checks ---- */

enum { PLAN_FILE_LIMIT_BYTES = 1 << 24 };

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
        return status_set(STATUS_BAD_INPUT, "plan: recipe.sequence_parallel: on requires tensor parallelism" HINT
                                            "add --tensor-parallel N, or use --sequence-parallel off");
    if (recipe->sequence_parallel && recipe->layout == TENSOR_LAYOUT_SOLVER)
        return status_set(STATUS_BAD_INPUT, "plan: recipe.sequence_parallel: on conflicts with --layout solver, which "
                                            "chooses itself where to shard the sequence dimension" HINT
                                            "use --sequence-parallel off, or --layout megatron");
    if (tensor > 1 && recipe->optimizer_dtype == STATE_INT8)
        return status_hint(status_set(STATUS_BAD_INPUT,
                                      "plan: recipe.optimizer_dtype: int8 does not work with tensor parallelism, which "
                                      "would split the blocks that share a scale"),
                           "use --optimizer-dtype bf16, or shard int8 moments with --partition instead of "
                           "--tensor-parallel");
    if (tensor > 1 && recipe->optimizer == UPDATE_MUON)
        return status_set(STATUS_BAD_INPUT,
                          "plan: recipe.optimizer: muon does not work with tensor parallelism, since it "
                          "needs whole matrices" HINT "shard the model with --partition instead of --tensor-parallel");
    return check_pipeline_parallel(&plan->place, tensor);
}

static enum status check_ranks(const struct plan *plan) {
    bool equal;
    if (rank_place_data(&plan->place) == 1) return STATUS_OK;
    return status_prefix(lane_shares_find_equal(&plan->recipe, &plan->place, &equal), "plan: policy.ranks");
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
    TRY(recipe_check(recipe));
    TRY(check_axes(plan));
    TRY(check_ranks(plan));
    const struct mesh data = rank_place_data_mesh(&plan->place);
    TRY(partition_check(&plan->policy.partition, &data));
    TRY(policy_check(&plan->policy, recipe_share_micro_batches(recipe)));
    return check_update(plan);
}

json_t *plan_to_json(const struct plan *plan) {
    json_t *recipe = recipe_to_json(&plan->recipe), *policy = policy_to_json(&plan->policy);
    char ranks[LANE_SHAPE_BYTES];
    const struct lane_shape mesh = {plan->place.mesh.nodes, plan->place.mesh.per_node};
    int failed = json_object_set_new(policy, "ranks", json_string(lane_shape_print(&mesh, ranks)));
    failed |=
        json_object_set_new(policy, "pipeline_parallel", json_integer(rank_place_pipeline_parallel(&plan->place)));
    json_t *object = json_pack("{s:i, s:o, s:o, s:i}", "version", PLAN_VERSION, "recipe", recipe, "policy", policy,
                               "threads", plan->threads);
    return json_made(failed, object, "a plan's JSON");
}

enum status plan_read_int(const char *file, const json_t *object, const char *part, const char *field, int64_t min,
                          int64_t max, const char *rule, int64_t *out) {
    TRY(json_read_int(file, object, field, INT64_MIN, INT64_MAX, out));
    char name[64];
    snprintf(name, sizeof name, "%s%s", part, field);
    return status_prefix(plan_check_range(name, *out, min, max, rule), "%s", file);
}

/* Numbers by nodes; one where the file says nothing. */
static enum status read_shape(const char *file, const json_t *object, const char *field, struct lane_shape *out) {
    const char *text = "1";
    TRY(json_read_string(file, object, field, &text));
    return status_prefix(lane_shape_parse(text, out), "%s: %s", file, field);
}

/* Plans of earlier versions have the threads in the recipe. */
static enum status read_threads(const char *file, const json_t *plan, int *out) {
    const json_t *recipe = json_object_get(plan, "recipe");
    bool earlier = !json_object_get(plan, "threads") && json_object_get(recipe, "threads");
    const json_t *holder = earlier ? recipe : plan;
    int64_t value = 0;
    TRY(json_require(file, holder, "threads"));
    const struct setting *setting = &setting_table[SETTING_threads];
    TRY(plan_read_int(file, holder, earlier ? "recipe." : "", "threads", setting->min, setting->max, setting->rule,
                      &value));
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
    TRY(plan_read_int(file, policy, "policy.", "pipeline_parallel", 1, LANES_MAX, "a pipeline has at least one stage",
                      &stages));
    out->place = (struct rank_place){.mesh = {ranks.nodes, ranks.per_node},
                                     .tensor_parallel = out->recipe.tensor_parallel,
                                     .pipeline_parallel = (int)stages};
    TRY(read_threads(file, object, &out->threads));
    enum status status = recipe_check_optimizer(&out->recipe);
    if (status == STATUS_OK) status = plan_check(out);
    return status_prefix(status, "%s", file);
}

enum status plan_from_json(const char *file, const json_t *object, struct plan *out) {
    struct plan plan = {0};
    json_t *updated = NULL;
    enum status status = plan_update_keys(file, object, &updated);
    if (status == STATUS_OK) status = read_plan(file, updated, &plan);
    json_decref(updated);
    if (status == STATUS_OK)
        *out = plan;
    else if (!status_hint_text()[0]) /* a missing value, or one of another type, has no nearest value */
        return status_hint(status, "`ballast plan MODEL_DIR -o FILE` writes a plan with all fields");
    return status;
}

const json_t *plan_find(const json_t *object) {
    const json_t *plan = json_object_get(object, "plan");
    return json_is_object(plan) ? plan : object;
}

enum status plan_read(const char *path, struct plan *out) {
    json_auto_t *object = NULL;
    enum status status = json_read_object(path, PLAN_FILE_LIMIT_BYTES, &object);
    if (status == STATUS_OK) status = plan_from_json(path, plan_find(object), out);
    return status_hint_else(status, "plan files are written by `ballast plan -o`");
}

enum status plan_set_model(json_t *plan, const char *model_folder) {
    json_t *text = json_string(model_folder);
    if (!text) return STATUS_OK;
    return json_object_set_new(plan, "model", text) == 0 ? STATUS_OK : status_no_memory(0, "a plan's JSON");
}

enum status plan_read_model(const char *path, struct scratch *memory, const char **out) {
    json_auto_t *object = NULL;
    const char *folder = NULL, *copy = NULL;
    TRY(json_read_object(path, PLAN_FILE_LIMIT_BYTES, &object));
    TRY(json_read_string(path, object, "model", &folder));
    if (folder) {
        copy = scratch_format(memory, "%s", folder);
        TRY(copy ? STATUS_OK : STATUS_FAILED);
    }
    *out = copy;
    return STATUS_OK;
}
