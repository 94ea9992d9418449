#include "session/shape_gains.h"

#include <math.h>

static const char *const plan_part_names[PART_COUNT] = {[PART_TENSOR] = "tensor_parallel",
                                                        [PART_CUT] = "cut",
                                                        [PART_STAGES] = "pipeline_parallel",
                                                        [PART_PARTITION] = "partition",
                                                        [PART_MEMORY] = "memory"};

/* A step without the part: known, or at least so long. */
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

json_t *plan_gains_to_json(const struct session_plan *plan) {
    struct plan_gain gains[PART_COUNT];
    json_t *object = json_object();
    int failed = !object;
    plan_gains_find(plan, gains);
    for (int part = 0; part < PART_COUNT && !failed; part++) {
        const struct plan_gain *gain = &gains[part];
        bool known = gain->possible || !gain->used;
        failed |= json_object_set_new(object, plan_part_names[part],
                                      json_pack("{s:b, s:o, s:b}", "used", gain->used, "seconds",
                                                known ? json_real(gain->seconds) : json_null(), "exact",
                                                gain->exact || !gain->used));
    }
    if (!failed) return object;
    json_decref(object);
    return NULL;
}
