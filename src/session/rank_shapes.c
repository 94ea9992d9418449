#include "session/rank_shapes.h"

#include <stdio.h>
#include <string.h>

static bool is_auto(const struct plan_options *options, enum setting_id id, int64_t value) {
    return options->given.of[id] && value == 0;
}

static bool tensor_is_open(const struct plan_options *options) {
    return is_auto(options, SETTING_tensor_parallel, options->tensor_parallel);
}

static bool stages_are_open(const struct plan_options *options) {
    return is_auto(options, SETTING_pipeline_parallel, options->pipeline_parallel);
}

bool rank_shapes_are_open(const struct plan_options *options) {
    return tensor_is_open(options) || stages_are_open(options);
}

void rank_shape_refuse(struct rank_shape *shape) {
    shape->outcome = SHAPE_REFUSED;
    snprintf(shape->reason, sizeof shape->reason, "%s", status_message());
    status_clear();
}

/* One shape's axes. How tensors are cut is an axis only where that is not settled. */
struct axes {
    int tensor, stages;
    bool cut_open, sequence;
    enum tensor_layout layout;
};

static struct plan_options options_of(const struct plan_options *options, const struct axes *axes) {
    struct plan_options own = *options;
    if (tensor_is_open(options)) SETTINGS_GIVE(&own, tensor_parallel, axes->tensor);
    if (stages_are_open(options)) SETTINGS_GIVE(&own, pipeline_parallel, axes->stages);
    if (!axes->cut_open) return own;
    SETTINGS_GIVE(&own, sequence_parallel, axes->sequence);
    SETTINGS_GIVE(&own, layout, axes->layout);
    return own;
}

/* Also where its plan is refused; its axes are known then, too. */
static enum status add_shape(const struct plan_options *options, const struct axes *axes,
                             const struct shape_resolver *resolver, struct rank_shapes *out) {
    struct plan_options own = options_of(options, axes);
    struct rank_shape shape = {.plan = mem_array(1, sizeof *shape.plan), .solver_memory = 1};
    if (!shape.plan) return STATUS_FAILED;
    enum status status = resolver->resolve(resolver->context, &own, shape.plan);
    if (status == STATUS_BAD_INPUT) {
        rank_shape_refuse(&shape);
        shape.plan->recipe.tensor_parallel = shape.plan->place.tensor_parallel = axes->tensor;
        shape.plan->place.pipeline_parallel = axes->stages;
        shape.plan->recipe.sequence_parallel = axes->sequence;
        shape.plan->recipe.layout = axes->layout;
        status = STATUS_OK;
    }
    if (status == STATUS_OK) status = vec_push(&out->list, shape);
    if (status != STATUS_OK) mem_free(shape.plan);
    return status;
}

/* The message that a user gets who asks for the first shape. */
static enum status refuse_all(const struct plan_options *options, const struct rank_shape *first,
                              const struct shape_resolver *resolver) {
    const struct axes axes = {.tensor = first->plan->recipe.tensor_parallel,
                              .stages = first->plan->place.pipeline_parallel};
    struct plan_options own = options_of(options, &axes);
    struct plan plan;
    return resolver->resolve(resolver->context, &own, &plan);
}

/* The ways to cut tensors among so many ranks: as the options say, else all. Those of ranks that share none do not
 * differ. */
static enum status add_cuts(const struct plan_options *options, struct axes axes, bool decided,
                            const struct shape_resolver *resolver, struct rank_shapes *out) {
    static const struct axes cuts[] = {{.layout = TENSOR_LAYOUT_MEGATRON},
                                       {.layout = TENSOR_LAYOUT_MEGATRON, .sequence = true},
                                       {.layout = TENSOR_LAYOUT_SOLVER}};
    bool given = SETTINGS_HAVE(options, sequence_parallel) || SETTINGS_HAVE(options, layout);
    axes.sequence = options->sequence_parallel, axes.layout = options->layout;
    axes.cut_open = tensor_is_open(options) && !decided && !given && axes.tensor > 1;
    if (!axes.cut_open) return add_shape(options, &axes, resolver, out);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        axes.sequence = cuts[i].sequence, axes.layout = cuts[i].layout;
        TRY(add_shape(options, &axes, resolver, out));
    }
    return STATUS_OK;
}

static bool any_is_open(const struct rank_shapes *shapes) {
    bool any = false;
    for (size_t i = 0; i < shapes->list.count; i++)
        any |= shapes->list.items[i].outcome == SHAPE_OPEN;
    return any;
}

enum status rank_shapes_list(const struct plan_options *options, int ranks, int tensor,
                             const struct shape_resolver *resolver, struct rank_shapes *out) {
    *out = (struct rank_shapes){0};
    int fixed = tensor_is_open(options)                   ? tensor
                : SETTINGS_HAVE(options, tensor_parallel) ? (int)options->tensor_parallel
                                                          : tensor;
    int64_t stages_fixed = stages_are_open(options)                    ? 0
                           : SETTINGS_HAVE(options, pipeline_parallel) ? options->pipeline_parallel
                                                                       : 1;
    for (int t = 1; t <= ranks; t++)
        for (int s = 1; ranks % t == 0 && s <= ranks / t; s++) {
            bool requested = (fixed == 0 || t == fixed) && (stages_fixed == 0 || s == stages_fixed);
            if (!requested || ranks / t % s != 0) continue;
            TRY(add_cuts(options, (struct axes){.tensor = t, .stages = s}, tensor > 0, resolver, out));
        }
    if (any_is_open(out)) return STATUS_OK;
    if (out->list.count > 0) return refuse_all(options, &out->list.items[0], resolver);
    return status_set(STATUS_BAD_INPUT, "%d ranks do not divide by what --tensor-parallel or --pipeline-parallel says",
                      ranks);
}

bool rank_shape_is_of(const struct rank_shape *shape, const struct plan *plan) {
    const struct recipe *recipe = &shape->plan->recipe;
    return recipe_tensor_parallel(recipe) == recipe_tensor_parallel(&plan->recipe) &&
           rank_place_pipeline_parallel(&shape->plan->place) == rank_place_pipeline_parallel(&plan->place) &&
           recipe->sequence_parallel == plan->recipe.sequence_parallel && recipe->layout == plan->recipe.layout &&
           recipe->strategies == plan->recipe.strategies; /* equal lines are one text */
}

enum status rank_shapes_repeat(struct rank_shapes *shapes, size_t at) {
    struct plan *plan = mem_array(1, sizeof *plan);
    if (!plan) return STATUS_FAILED;
    struct rank_shape shape = shapes->list.items[at];
    *plan = *shape.plan;
    shape.plan = plan;
    enum status status = vec_push(&shapes->list, shape);
    if (status != STATUS_OK) {
        mem_free(plan);
        return status;
    }
    struct rank_shape *behind = &shapes->list.items[at + 1];
    memmove(behind + 1, behind, (shapes->list.count - at - 2) * sizeof *behind);
    *behind = shape;
    return STATUS_OK;
}

void rank_shapes_free(struct rank_shapes *shapes) {
    for (size_t i = 0; i < shapes->list.count; i++)
        mem_free(shapes->list.items[i].plan);
    vec_free(&shapes->list);
}
