#include "session/rank_shapes.h"

#include <stdio.h>

static bool is_auto(const struct plan_options *options, enum setting_id id, int64_t value) {
    return (options->given & (UINT64_C(1) << id)) != 0 && value == 0;
}

static bool tensor_is_open(const struct plan_options *options) {
    return is_auto(options, SETTING_tensor, options->tensor);
}

static bool stages_are_open(const struct plan_options *options) {
    return is_auto(options, SETTING_stages, options->stages);
}

bool rank_shapes_are_open(const struct plan_options *options) {
    return tensor_is_open(options) || stages_are_open(options);
}

void rank_shape_refuse(struct rank_shape *shape) {
    shape->outcome = SHAPE_REFUSED;
    snprintf(shape->reason, sizeof shape->reason, "%s", status_message());
    status_clear();
}

/* Also where its plan is refused; its axes are known then, too. */
static enum status add_shape(const struct plan_options *options, int tensor, int stages,
                             const struct shape_resolver *resolver, struct rank_shapes *out) {
    struct plan_options own = *options;
    struct rank_shape shape = {.plan = mem_array(1, sizeof *shape.plan)};
    if (!shape.plan) return STATUS_FAILED;
    if (tensor_is_open(options)) SETTINGS_GIVE(&own, tensor, tensor);
    if (stages_are_open(options)) SETTINGS_GIVE(&own, stages, stages);
    enum status status = resolver->resolve(resolver->context, &own, shape.plan);
    if (status == STATUS_BAD_INPUT) {
        rank_shape_refuse(&shape);
        shape.plan->recipe.tensor = shape.plan->place.tensor = tensor;
        shape.plan->place.stages = stages;
        status = STATUS_OK;
    }
    if (status == STATUS_OK) status = vec_push(&out->list, shape);
    if (status != STATUS_OK) mem_free(shape.plan);
    return status;
}

/* The message that a user gets who asks for the first shape. */
static enum status refuse_all(const struct plan_options *options, const struct rank_shape *first,
                              const struct shape_resolver *resolver) {
    struct plan_options own = *options;
    struct plan plan;
    if (tensor_is_open(options)) SETTINGS_GIVE(&own, tensor, first->plan->recipe.tensor);
    if (stages_are_open(options)) SETTINGS_GIVE(&own, stages, first->plan->place.stages);
    return resolver->resolve(resolver->context, &own, &plan);
}

enum status rank_shapes_list(const struct plan_options *options, int ranks, int tensor,
                             const struct shape_resolver *resolver, struct rank_shapes *out) {
    *out = (struct rank_shapes){0};
    bool possible = false;
    int fixed = tensor_is_open(options) ? tensor : SETTINGS_HAVE(options, tensor) ? (int)options->tensor : tensor;
    int64_t stages_fixed = stages_are_open(options) ? 0 : SETTINGS_HAVE(options, stages) ? options->stages : 1;
    for (int t = 1; t <= ranks; t++)
        for (int s = 1; ranks % t == 0 && s <= ranks / t; s++) {
            bool asked = (fixed == 0 || t == fixed) && (stages_fixed == 0 || s == stages_fixed);
            if (!asked || ranks / t % s != 0) continue;
            TRY(add_shape(options, t, s, resolver, out));
            possible |= out->list.items[out->list.count - 1].outcome == SHAPE_OPEN;
        }
    if (possible) return STATUS_OK;
    if (out->list.count > 0) return refuse_all(options, &out->list.items[0], resolver);
    return status_set(STATUS_BAD_INPUT, "%d ranks do not divide by what --tensor or --stages says", ranks);
}

void rank_shapes_free(struct rank_shapes *shapes) {
    for (size_t i = 0; i < shapes->list.count; i++)
        mem_free(shapes->list.items[i].plan);
    vec_free(&shapes->list);
}
