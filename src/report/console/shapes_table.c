#include "report/console/shapes_table.h"

#include <math.h>

#include "base/size.h"
#include "session/plan_document.h"

static bool is_chosen(const struct session_plan *plan, const struct rank_shape *shape) {
    return shape->outcome == SHAPE_PLANNED && rank_shape_is_of(shape, &plan->chosen);
}

enum { CUT_BYTES = 32 };
/* How tensors are cut, where it is not Megatron-LM's way. */
static const char *cut_of(const struct rank_shape *shape, char text[CUT_BYTES]) {
    const struct recipe *recipe = &shape->plan->recipe;
    if (recipe_tensor_parallel(recipe) == 1) return "";
    if (recipe->layout != TENSOR_LAYOUT_SOLVER) return recipe->sequence_parallel ? "sequence" : "";
    snprintf(text, CUT_BYTES, "solver");
    if (isinf(shape->solver_memory)) snprintf(text, CUT_BYTES, "solver, any memory");
    if (isfinite(shape->solver_memory) && shape->solver_memory != 1)
        snprintf(text, CUT_BYTES, "solver, %.3g memories", shape->solver_memory);
    return text;
}

static void print_planned(FILE *out, const struct rank_shape *shape, bool chosen) {
    char device[SIZE_TEXT], host[SIZE_TEXT];
    fprintf(out, "%9.4f s  %10s", shape->step_s, size_print(shape->tier_bytes[TIER_DEVICE], device));
    if (shape->tier_bytes[TIER_HOST] > 0) fprintf(out, "  host %s", size_print(shape->tier_bytes[TIER_HOST], host));
    if (shape->larger_micro_batch)
        fprintf(out, "  micro-batches of %lld sequences: smaller ones need too many sends and collectives",
                (long long)shape->plan->recipe.micro_batch_sequences);
    if (chosen) fprintf(out, "  in the plan");
}

static void print_shape(FILE *out, const struct session_plan *plan, const struct rank_shape *shape) {
    const struct rank_place *place = &shape->plan->place;
    char size[SIZE_TEXT], cut[CUT_BYTES];
    int tensor = recipe_tensor_parallel(&shape->plan->recipe), stages = rank_place_pipeline_parallel(place);
    fprintf(out, "  %4d x %4d x %4d  %-8s  ", tensor, stages, rank_place_ranks(&plan->chosen.place) / (tensor * stages),
            cut_of(shape, cut));
    switch (shape->outcome) {
    case SHAPE_PLANNED: print_planned(out, shape, is_chosen(plan, shape)); break;
    case SHAPE_BOUNDED:
        fprintf(out, "%11s  %10s  lower bound %.4f s: slower than the plan", "", "", shape->bound_s);
        break;
    case SHAPE_UNTRIED:
        fprintf(out, "%11s  %10s  not tried: expected %.4f s, lower bound %.4f s", "", "", shape->expected_s,
                shape->bound_s);
        break;
    case SHAPE_NO_FIT:
        fprintf(out, "%11s  %10s  ", "", "");
        if (shape->min_bytes > 0)
            fprintf(out, "does not fit: the smallest tried needs %s of device memory",
                    size_print(shape->min_bytes, size));
        else
            fprintf(out, "does not fit");
        break;
    case SHAPE_SAME: fprintf(out, "%11s  %10s  the same as above", "", ""); break;
    case SHAPE_REFUSED:
        fprintf(out, "%11s  %10s  %s%s", "", "", shape->unjudged ? "not judged: " : "", shape->reason);
        break;
    case SHAPE_OPEN: break;
    }
    fputc('\n', out);
}

static void print_gains(FILE *out, const struct session_plan *plan) {
    static const char *const without[PART_COUNT] = {
        [PART_TENSOR] = "tensor parallelism",           [PART_CUT] = "sequence parallelism or the solver's layout",
        [PART_STAGES] = "pipeline parallelism",         [PART_PARTITION] = "sharding of model states",
        [PART_MEMORY] = "offloading and recomputation",
    };
    struct plan_gain gains[PART_COUNT];
    plan_gains_find(plan, gains);
    fprintf(out, "\ngain of each part: how much slower the best plan without it is, or is expected to be\n");
    for (int part = 0; part < PART_COUNT; part++) {
        const struct plan_gain *gain = &gains[part];
        fprintf(out, "  %-40s", without[part]);
        if (!gain->used)
            fprintf(out, "not used\n");
        else if (!gain->possible)
            fprintf(out, "no plan that was tried fits without it\n");
        else
            fprintf(out, "%s%.4f s\n", gain->exact ? "" : "at least ", gain->seconds);
    }
}

/* How much could be left to gain, by what was not simulated. */
static void print_gap(FILE *out, const struct session_plan *plan) {
    const struct rank_shapes *shapes = &plan->shapes;
    for (size_t i = 0; i < shapes->list.count; i++) {
        const struct rank_shape *shape = &shapes->list.items[i];
        if (!is_chosen(plan, shape)) continue;
        if (shapes->min_s >= shape->step_s)
            fprintf(out, "  none of the others is faster than the plan\n");
        else
            fprintf(out, "  lower bound of all shapes: %.4f s, %.1f%% less than the plan\n", shapes->min_s,
                    100 * (1 - shapes->min_s / shape->step_s));
    }
}

void shapes_table_print(FILE *out, const struct session_plan *plan, bool explain) {
    const struct rank_shapes *shapes = &plan->shapes;
    size_t hidden = 0;
    if (shapes->list.count == 0) return;
    fprintf(out, "\nshapes (tensor x pipeline x data parallelism, layout): step time, device memory\n");
    for (size_t i = 0; i < shapes->list.count; i++) {
        const struct rank_shape *shape = &shapes->list.items[i];
        bool shown = explain || shape->outcome == SHAPE_PLANNED || shape->unjudged;
        hidden += !shown;
        if (shown) print_shape(out, plan, shape);
    }
    if (hidden > 0) fprintf(out, "  %zu more; --explain gives the reasons\n", hidden);
    if (explain) print_gap(out, plan);
    print_gains(out, plan);
}
