#include "plan/plan_keys.h"

#include "base/json.h"
#include "plan/plan.h"

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
    json_t *copy = version < FIRST_TERMS ? json_deep_copy(object) : json_incref((json_t *)(uintptr_t)object);
    if (!copy) return status_no_memory(0, "a plan's JSON");
    enum status status = version < FIRST_TERMS ? rename_all(file, copy) : STATUS_OK;
    if (status == STATUS_OK)
        *out = copy;
    else
        json_decref(copy);
    return status;
}
