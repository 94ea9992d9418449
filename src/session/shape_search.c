#include "session/shape_search.h"

#include <math.h>
#include <string.h>

#include "session/machine_costs.h"
#include "session/plan_choice.h"
#include "session/plan_policy.h"

struct shape_choice {
    struct session_plan *plan; /* that asks; it becomes the best */
    struct session_plan best;  /* of those compiled; session NULL: none is yet */
    double best_s;             /* INFINITY: none fits */
    int64_t least_bytes;       /* of the device, where none fits */
};

/* The plan of one shape, before anything is chosen. */
static struct session_plan plan_of(const struct shape_choice *choice, const struct rank_shape *shape) {
    struct session_plan plan = {
        .session = choice->plan->session, .request = choice->plan->request, .chosen = *shape->plan};
    plan.request.plan = *shape->plan;
    plan_choice_place(&plan);
    return plan;
}

/* What is wrong with a shape is the shape's matter. */
static enum status forgive(enum status status, struct rank_shape *shape) {
    if (status != STATUS_BAD_INPUT) return status;
    rank_shape_refuse(shape);
    return STATUS_OK;
}

static enum status bound_graph(struct session_plan *plan, const struct graph *graph, struct search_bound *out) {
    struct costs costs;
    TRY(plan_choice_cut(plan, graph));
    enum status status = machine_costs_bound(&plan->session->machine, graph, &plan->chosen, &costs);
    if (status == STATUS_OK) status = plan_policy_bound(plan, graph, &costs, out);
    costs_free(&costs);
    return status;
}

static enum status bound_shape(const struct shape_choice *choice, struct rank_shape *shape) {
    struct session_plan plan = plan_of(choice, shape);
    struct search_bound bound;
    struct graph *graph;
    TRY(plan_policy_check_ways(&plan.request, &plan.chosen.place));
    TRY(plan_choice_build_graph(&plan, &graph));
    enum status status = bound_graph(&plan, graph, &bound);
    graph_free(graph);
    TRY(status);
    if (!bound.may_fit) shape->outcome = SHAPE_NO_FIT;
    shape->bound_s = bound.may_fit ? bound.seconds : 0;
    shape->expected_s = bound.may_fit ? bound.expected_s : 0;
    return STATUS_OK;
}

static bool fits(const struct session_plan *plan) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        if (plan->programs.tier_bytes[tier] > plan->session->machine.capacity_bytes[tier]) return false;
    return true;
}

/* Of shapes that do not fit, the one that needs least; else the fastest. */
static void keep_best(struct shape_choice *choice, struct session_plan *plan, double step_s) {
    bool fitted = step_s < INFINITY, first = !choice->best.session;
    bool better =
        fitted ? step_s < choice->best_s : choice->best_s >= INFINITY && plan->least_bytes < choice->least_bytes;
    if (first || better) {
        session_plan_free(&choice->best);
        choice->best = *plan;
        choice->best_s = step_s;
        choice->least_bytes = plan->least_bytes;
    } else {
        session_plan_free(plan);
    }
}

static enum status time_plan(struct session_plan *plan, struct rank_shape *shape) {
    struct candidate measured;
    shape->least_bytes = plan->least_bytes;
    shape->outcome = SHAPE_NO_FIT;
    shape->step_s = INFINITY;
    if (!fits(plan)) return STATUS_OK;
    TRY(session_plan_measure(plan));
    TRY(plan_policy_measure(plan, &measured));
    if (measured.step_s <= 0) return STATUS_OK;
    shape->outcome = SHAPE_PLANNED;
    shape->step_s = plan->request.objective == OBJECTIVE_SUM ? measured.sum_s : measured.step_s;
    memcpy(shape->tier_bytes, measured.tier_bytes, sizeof shape->tier_bytes);
    return STATUS_OK;
}

static enum status try_shape(struct shape_choice *choice, struct rank_shape *shape) {
    struct session_plan plan = plan_of(choice, shape);
    enum status status = plan_choice_make(&plan);
    if (status == STATUS_OK) status = time_plan(&plan, shape);
    if (status == STATUS_OK)
        keep_best(choice, &plan, shape->step_s);
    else
        session_plan_free(&plan);
    return status;
}

/* The open shape that is expected to be the fastest; of equal ones the first. NULL: none is left. */
static struct rank_shape *next_shape(const struct rank_shapes *shapes) {
    struct rank_shape *next = NULL;
    for (size_t i = 0; i < shapes->list.count; i++) {
        struct rank_shape *shape = &shapes->list.items[i];
        if (shape->outcome == SHAPE_OPEN && (!next || shape->expected_s < next->expected_s)) next = shape;
    }
    return next;
}

static enum status search(struct shape_choice *choice) {
    struct rank_shapes *shapes = &choice->plan->shapes;
    struct rank_shape *shape;
    for (size_t i = 0; i < shapes->list.count; i++)
        if (shapes->list.items[i].outcome == SHAPE_OPEN)
            TRY(forgive(bound_shape(choice, &shapes->list.items[i]), &shapes->list.items[i]));
    while ((shape = next_shape(shapes))) {
        if (shape->bound_s >= choice->best_s)
            shape->outcome = SHAPE_BOUNDED;
        else
            TRY(forgive(try_shape(choice, shape), shape));
    }
    return STATUS_OK;
}

/* None was compiled: those that did not fit by their bounds are, so that a message can say what is missing. */
static enum status try_hopeless(struct shape_choice *choice) {
    struct rank_shapes *shapes = &choice->plan->shapes;
    for (size_t i = shapes->list.count; i-- > 0 && !choice->best.session;)
        if (shapes->list.items[i].outcome == SHAPE_NO_FIT)
            TRY(forgive(try_shape(choice, &shapes->list.items[i]), &shapes->list.items[i]));
    if (choice->best.session) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s", shapes->list.items[0].reason);
}

enum status shape_search(struct session_plan *plan) {
    struct shape_choice choice = {.plan = plan, .best_s = INFINITY};
    enum status status = search(&choice);
    if (status == STATUS_OK && !choice.best.session) status = try_hopeless(&choice);
    if (status == STATUS_OK) {
        choice.best.shapes = plan->shapes;
        *plan = choice.best;
    } else {
        session_plan_free(&choice.best);
    }
    return status;
}
