#include "session/plan.h"

#include <math.h>

#include "base/folder.h"
#include "base/json.h"

static const char *const plan_part_names[PART_COUNT] = {[PART_TENSOR] = "tensor_parallel",
                                                        [PART_CUT] = "cut",
                                                        [PART_STAGES] = "pipeline_parallel",
                                                        [PART_PARTITION] = "partition",
                                                        [PART_MEMORY] = "memory"};

/* Records a step without the part: its time, or a lower bound. */
static void take(struct plan_gain *gain, double step_s, bool exact) {
    if (gain->possible && step_s >= gain->seconds) return;
    gain->possible = true;
    gain->exact = exact;
    gain->seconds = step_s;
}

static bool has_part(const struct plan *plan, enum plan_part part) {
    const struct recipe *recipe = &plan->recipe;
    if (part == PART_STAGES) return rank_place_pipeline_parallel(&plan->place) > 1;
    bool shared = recipe_tensor_parallel(recipe) > 1;
    return part == PART_TENSOR ? shared
                               : shared && (recipe->sequence_parallel || recipe->layout != TENSOR_LAYOUT_MEGATRON);
}

static void take_shapes(const struct rank_shapes *shapes, enum plan_part part, struct plan_gain *gain) {
    for (size_t i = 0; i < shapes->list.count; i++) {
        const struct rank_shape *shape = &shapes->list.items[i];
        if (has_part(shape->plan, part)) continue;
        if (shape->outcome == SHAPE_PLANNED) take(gain, shape->step_s, true);
        if (shape->outcome == SHAPE_BOUNDED) take(gain, shape->bound_s, false);
        if (shape->outcome == SHAPE_UNTRIED) take(gain, shape->expected_s, false);
    }
}

static double seconds_of(const struct session_plan *plan, const struct trial *trial) {
    return plan->request.objective == OBJECTIVE_SUM ? trial->sum_s : trial->step_s;
}

static void take_partitions(const struct session_plan *plan, struct plan_gain *gain) {
    for (size_t i = 0; i < plan->search.partitions.count; i++) {
        const struct partition_outcome *outcome = &plan->search.partitions.items[i];
        if (partition_cuts(&outcome->partition) || !outcome->may_fit) continue;
        if (outcome->best.step_s > 0)
            take(gain, seconds_of(plan, &outcome->best), true);
        else if (outcome->tried == 0)
            take(gain, outcome->bound_s, false);
    }
}

static void take_plain(const struct session_plan *plan, struct plan_gain *gain) {
    for (size_t i = 0; i < plan->search.tried.count; i++) {
        const struct trial *tried = &plan->search.tried.items[i];
        if (policy_stays(&tried->policy) && tried->step_s > 0) take(gain, seconds_of(plan, tried), true);
    }
}

void plan_gains_find(const struct session_plan *plan, struct plan_gain out[PART_COUNT]) {
    const struct policy *policy = &plan->chosen.policy;
    double best_s = INFINITY;
    for (size_t i = 0; i < plan->shapes.list.count; i++)
        if (plan->shapes.list.items[i].outcome == SHAPE_PLANNED)
            best_s = fmin(best_s, plan->shapes.list.items[i].step_s);
    for (int part = 0; part < PART_COUNT; part++)
        out[part] = (struct plan_gain){.used = false};
    for (enum plan_part part = PART_TENSOR; part <= PART_STAGES; part++)
        out[part].used = has_part(&plan->chosen, part);
    out[PART_PARTITION].used = partition_cuts(&policy->partition);
    out[PART_MEMORY].used = !policy_stays(policy);
    for (enum plan_part part = PART_TENSOR; part <= PART_STAGES; part++)
        take_shapes(&plan->shapes, part, &out[part]);
    take_partitions(plan, &out[PART_PARTITION]);
    take_plain(plan, &out[PART_MEMORY]);
    for (int part = 0; part < PART_COUNT; part++) {
        struct plan_gain *gain = &out[part];
        gain->seconds = gain->used && gain->possible ? fmax(0, gain->seconds - best_s) : 0;
    }
}

static json_t *float_or_null(bool known, double value) { return known ? json_real(value) : json_null(); }

/* Adds the bytes of each tier, or 0, to an object, which is returned; NULL without memory. */
static json_t *with_tier_bytes(json_t *object, const int64_t tier_bytes[TIER_COUNT], bool known) {
    static const char *const keys[] = {
        [TIER_DEVICE] = "device_bytes", [TIER_HOST] = "host_bytes", [TIER_DISK] = "disk_bytes"};
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        json_put(&object, keys[tier], json_integer(known ? (json_int_t)tier_bytes[tier] : 0));
    return object;
}

/* {"tensor_parallel": {"used", "seconds", "exact"}, …}; seconds are null if nothing fits without it. NULL without
 * memory. */
static json_t *plan_gains_to_json(const struct session_plan *plan) {
    struct plan_gain gains[PART_COUNT];
    json_t *object = json_object();
    plan_gains_find(plan, gains);
    for (int part = 0; part < PART_COUNT; part++) {
        const struct plan_gain *gain = &gains[part];
        bool known = gain->possible || !gain->used;
        json_put(&object, plan_part_names[part],
                 json_pack("{s:b, s:o, s:b}", "used", gain->used, "seconds", float_or_null(known, gain->seconds),
                           "exact", gain->exact || !gain->used));
    }
    return object;
}

enum { FILE_LIMIT_BYTES = 16 << 20 };

static json_t *kinds_to_json(const struct memory_report *memory) {
    json_t *kinds = json_object();
    for (int kind = 0; kind < BUFFER_KIND_COUNT; kind++)
        json_put(&kinds, buffer_kind_name((enum buffer_kind)kind), json_integer((json_int_t)memory->by_kind[kind]));
    json_put(&kinds, "unused", json_integer((json_int_t)memory->unused));
    return kinds;
}

static json_t *tiers_to_json(const struct session_plan *plan) {
    json_t *tiers = json_array();
    for (int tier = 0; tier < TIER_COUNT; tier++) {
        int64_t program = plan->programs.tier_bytes[tier], capacity = plan->session->machine.capacity_bytes[tier];
        if (capacity == 0 && program == 0) continue;
        json_push(&tiers, json_pack("{s:s, s:I, s:I, s:o}", "name", tier_name((enum tier)tier), "program_bytes",
                                    (json_int_t)program, "capacity_bytes", (json_int_t)capacity, "by_kind",
                                    kinds_to_json(&plan->memory[tier])));
    }
    return tiers;
}

static json_t *trials_to_json(const struct trial *trials, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const struct trial *trial = &trials[i];
        json_t *object = json_pack("{s:o}", "step_s", float_or_null(trial->step_s > 0, trial->step_s));
        object = with_tier_bytes(object, trial->tier_bytes, true);
        json_put(&object, "policy", policy_to_json(&trial->policy));
        json_push(&list, object);
    }
    return list;
}

static json_t *partitions_to_json(const struct search_result *search) {
    json_t *list = json_array();
    for (size_t i = 0; i < search->partitions.count; i++) {
        const struct partition_outcome *outcome = &search->partitions.items[i];
        const struct trial *best = &outcome->best;
        bool timed = best->step_s > 0;
        json_t *object =
            json_pack("{s:o, s:b, s:o, s:I, s:o}", "partition", partition_to_json(&outcome->partition), "may_fit",
                      outcome->may_fit, "bound_s", float_or_null(outcome->may_fit, outcome->bound_s), "tried",
                      (json_int_t)outcome->tried, "step_s", float_or_null(timed, best->step_s));
        json_push(&list, with_tier_bytes(object, best->tier_bytes, timed));
    }
    return list;
}

/* Empty if the shape was given. */
static json_t *shapes_to_json(const struct rank_shapes *shapes) {
    static const char *const outcomes[] = {
        [SHAPE_OPEN] = "open",      [SHAPE_SAME] = "same as before",         [SHAPE_REFUSED] = "refused",
        [SHAPE_NO_FIT] = "no fit",  [SHAPE_BOUNDED] = "slower by its bound", [SHAPE_UNTRIED] = "not tried",
        [SHAPE_PLANNED] = "planned"};
    json_t *list = json_array();
    for (size_t i = 0; i < shapes->list.count; i++) {
        const struct rank_shape *shape = &shapes->list.items[i];
        const struct recipe *recipe = &shape->plan->recipe;
        json_t *object = json_pack(
            "{s:i, s:s, s:s, s:o, s:i, s:s, s:o, s:o}", "tensor_parallel", recipe_tensor_parallel(recipe),
            "sequence_parallel", recipe->sequence_parallel ? "on" : "off", "layout", tensor_layout_name(recipe->layout),
            "solver_memory", float_or_null(isfinite(shape->solver_memory), shape->solver_memory), "pipeline_parallel",
            rank_place_pipeline_parallel(&shape->plan->place), "outcome", outcomes[shape->outcome], "bound_s",
            float_or_null(shape->bound_s > 0, shape->bound_s), "step_s",
            float_or_null(shape->outcome == SHAPE_PLANNED, shape->step_s));
        object = with_tier_bytes(object, shape->tier_bytes, true);
        json_put(&object, "reason", json_string(shape->reason));
        json_push(&list, object);
    }
    return list;
}

/* Null if the policy was given, or the plain one fits: there was no search. */
static json_t *search_to_json(const struct search_result *search) {
    if (search->enumerated == 0) return json_null();
    return json_pack("{s:I, s:I, s:b}", "enumerated", (json_int_t)search->enumerated, "compiled",
                     (json_int_t)search->compiled, "proved", search->proved);
}

static json_t *pipeline_to_json(const struct stage_steps *steps) {
    json_t *list = json_array();
    for (int stage = 0; stage < steps->count; stage++) {
        const struct stage_step *step = &steps->list[stage];
        json_push(&list, with_tier_bytes(json_pack("{s:f}", "compute_s", step->compute_s), step->tier_bytes, true));
    }
    return json_pack("{s:f, s:o}", "bubble", steps->bubble, "stages", list);
}

/* A plan file with the plan's properties. `prediction` NULL: there is none. */
static json_t *document(const struct session_plan *plan, const struct step_summary *prediction) {
    const struct step_summary none = {0};
    const struct search_result *search = &plan->search;
    json_t *object = plan_to_json(&plan->chosen);
    json_put(&object, "model_shape", model_shape_to_json(&plan->session->model->config));
    object = json_unless(step_summary_add_json(prediction ? prediction : &none, object) != STATUS_OK, object);
    json_put(&object, "extrapolated_operators", json_integer(plan->costs.extrapolated));
    json_put(&object, "tiers", tiers_to_json(plan));
    json_put(&object, "runners_up", trials_to_json(search->runners_up.items, search->runners_up.count));
    json_put(&object, "pareto_front", trials_to_json(search->pareto_front.items, search->pareto_front.count));
    json_put(&object, "tried", trials_to_json(search->tried.items, search->tried.count));
    json_put(&object, "partitions", partitions_to_json(search));
    json_put(&object, "search", search_to_json(search));
    if (plan->stages.count > 1) json_put(&object, "pipeline", pipeline_to_json(&plan->stages));
    if (plan->shapes.list.count > 0) {
        json_put(&object, "shapes", shapes_to_json(&plan->shapes));
        json_put(&object, "gains", plan_gains_to_json(plan));
    }
    if (!object) (void)status_no_memory(0, "the plan's JSON");
    return object;
}

enum status plan_document_make(const struct session_plan *plan, const struct step_summary *prediction,
                               const char *model_folder, json_t **out) {
    json_auto_t *object = document(plan, prediction);
    if (!object) return STATUS_FAILED;
    TRY(plan_set_model(object, model_folder));
    *out = TAKE(object);
    return STATUS_OK;
}

static bool policies_equal(const struct policy *a, const struct policy *b) {
    json_auto_t *left = policy_to_json(a), *right = policy_to_json(b);
    return left && right && json_equal(left, right);
}

enum status plan_document_read_prediction(const char *path, const struct plan *plan, struct step_summary *out) {
    json_auto_t *object = NULL;
    struct plan found;
    struct step_summary prediction = {.step_s = 0};
    *out = prediction;
    TRY(json_read_object(path, FILE_LIMIT_BYTES, &object));
    TRY(plan_from_json(path, plan_find(object), &found));
    TRY(step_summary_read_json(path, object, &prediction));
    bool same = recipe_require_equal(&found.recipe, &plan->recipe) == STATUS_OK;
    if (!same) status_clear();
    if (same && found.threads == plan->threads && policies_equal(&found.policy, &plan->policy)) *out = prediction;
    return STATUS_OK;
}

enum status plan_document_check_model(const char *path, const struct model_config *config) {
    json_auto_t *object = NULL;
    TRY(json_read_object(path, FILE_LIMIT_BYTES, &object));
    const json_t *shape = json_object_get(object, "model_shape");
    enum status status = json_is_object(shape) ? model_shape_check(path, shape, config) : STATUS_OK;
    return status == STATUS_OK ? status : status_hint(status, "plan for this model: `ballast plan MODEL_DIR -o FILE`");
}

enum status plan_document_write(const char *run_folder, const struct session_plan *plan,
                                const struct step_summary *prediction, const char *model_folder) {
    json_auto_t *object = NULL;
    TRY(plan_document_make(plan, prediction, model_folder, &object));
    AUTO_FREE char *path = path_join(run_folder, "plan.json");
    return path ? json_write(path, object) : STATUS_FAILED;
}
