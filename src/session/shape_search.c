#include "session/shape_search.h"

#include <math.h>
#include <string.h>

#include "session/machine_costs.h"
#include "session/plan_choice.h"
#include "session/plan_policy.h"

struct shape_choice {
    struct session_plan *plan; /* that asks; it becomes the best */
    struct session_plan best;  /* session NULL: none fits yet */
    double best_s;             /* INFINITY: none fits */
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

static double objective_of(const struct session_plan *plan, const struct candidate *candidate) {
    return plan->request.objective == OBJECTIVE_SUM ? candidate->sum_s : candidate->step_s;
}

static void note_planned(const struct session_plan *plan, const struct candidate *best, struct rank_shape *shape) {
    shape->outcome = SHAPE_PLANNED;
    shape->step_s = objective_of(plan, best);
    memcpy(shape->tier_bytes, best->tier_bytes, sizeof shape->tier_bytes);
}

/* What came of a shape: its own programs fit (`made`), or the search found them too slow to be made. */
static enum status time_plan(struct session_plan *plan, double best_s, struct rank_shape *shape, bool *made) {
    struct candidate measured = {.bound_s = 0};
    shape->least_bytes = plan->least_bytes;
    shape->outcome = SHAPE_NO_FIT;
    if (fits(plan)) {
        TRY(session_plan_measure(plan));
        TRY(plan_policy_measure(plan, &measured));
    }
    *made = measured.step_s > 0;
    if (*made) note_planned(plan, &measured, shape);
    const struct candidate *found = plan->search.front.count > 0 ? &plan->search.front.items[0] : NULL;
    if (!*made && found && objective_of(plan, found) >= best_s) note_planned(plan, found, shape);
    return STATUS_OK;
}

static enum status try_shape(struct shape_choice *choice, struct rank_shape *shape) {
    struct session_plan plan = plan_of(choice, shape);
    plan.request.faster_than_s = choice->best_s;
    enum status status = plan_choice_make(&plan);
    plan.request.faster_than_s = 0;
    bool made = false;
    if (status == STATUS_OK) status = time_plan(&plan, choice->best_s, shape, &made);
    if (status == STATUS_OK && made && shape->step_s < choice->best_s) {
        session_plan_free(&choice->best);
        choice->best = plan;
        choice->best_s = shape->step_s;
    } else {
        session_plan_free(&plan);
    }
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

/* What was not compiled needs more than what was. */
static bool needs_less(const struct rank_shape *a, const struct rank_shape *b) {
    int64_t x = a->least_bytes > 0 ? a->least_bytes : INT64_MAX, y = b->least_bytes > 0 ? b->least_bytes : INT64_MAX;
    return x < y;
}

/* Nothing fits: the plan of the shape that needs least, by which a message can say what is missing. */
static enum status make_least(struct shape_choice *choice) {
    const struct rank_shapes *shapes = &choice->plan->shapes;
    const struct rank_shape *least = NULL;
    for (size_t i = shapes->list.count; i-- > 0;) {
        const struct rank_shape *shape = &shapes->list.items[i];
        if (shape->outcome == SHAPE_NO_FIT && (!least || needs_less(shape, least))) least = shape;
    }
    if (!least) return status_set(STATUS_BAD_INPUT, "%s", shapes->list.items[0].reason);
    choice->best = plan_of(choice, least);
    return plan_choice_make(&choice->best);
}

enum status shape_search(struct session_plan *plan) {
    struct shape_choice choice = {.plan = plan, .best_s = INFINITY};
    enum status status = search(&choice);
    if (status == STATUS_OK && !choice.best.session) status = make_least(&choice);
    if (status == STATUS_OK) {
        choice.best.shapes = plan->shapes;
        *plan = choice.best;
    } else {
        session_plan_free(&choice.best);
    }
    return status;
}
