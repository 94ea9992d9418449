#include "session/shape_search.h"

#include <math.h>
#include <string.h>

#include "session/machine_costs.h"
#include "session/plan_choice.h"
#include "session/plan_policy.h"
#include "session/tensor_layout.h"

/* A shape that is expected to take so many times as long as the best one is not tried; nor is one whose tensors the
 * solver cuts where it is not expected to be faster. */
static const double HOPELESS = 1.1;

struct shape_choice {
    struct session_plan *plan;       /* that asks; it becomes the best */
    struct session_plan best;        /* session NULL: none fits yet */
    double best_s;                   /* INFINITY: none fits */
    VEC(struct machine_rates) rates; /* of micro-batches that the solver was asked about */
    VEC(struct graph *) cuts;        /* graphs of the shapes with as many tensor ranks and stages as the last */
    int tensor, stages;              /* of these */
};

/* The plan of one shape, before anything is chosen. */
static struct session_plan plan_of(const struct shape_choice *choice, const struct rank_shape *shape) {
    struct session_plan plan = {
        .session = choice->plan->session, .request = choice->plan->request, .chosen = *shape->plan};
    plan.request.plan = *shape->plan;
    plan_choice_place(&plan);
    return plan;
}

/* What is wrong with a shape is the shape's matter, and that it has more operations between ranks than there can be. */
static enum status forgive(enum status status, struct rank_shape *shape) {
    if (status != STATUS_BAD_INPUT && status != STATUS_NO_FIT) return status;
    shape->unjudged = status == STATUS_NO_FIT;
    rank_shape_refuse(shape);
    return STATUS_OK;
}

/* Shapes with the same micro-batch have the same rates, but for their links. */
static enum status find_rates(struct shape_choice *choice, struct session_plan *plan) {
    struct machine_rates rates;
    if (!tensor_layout_lacks_rates(&plan->chosen.recipe)) return STATUS_OK;
    for (size_t i = 0; i < choice->rates.count; i++)
        if (choice->rates.items[i].micro_batch_sequences == plan->chosen.recipe.micro_batch_sequences) {
            tensor_layout_take_rates(plan->session, &choice->rates.items[i], &plan->chosen);
            return STATUS_OK;
        }
    TRY(tensor_layout_measure(plan, &rates));
    tensor_layout_take_rates(plan->session, &rates, &plan->chosen);
    return vec_push(&choice->rates, rates);
}

/* Where the solver cuts a shape's tensors: its answer becomes the shape's recipe. */
static enum status solve_shape(struct shape_choice *choice, struct rank_shape *shape) {
    struct session_plan plan = plan_of(choice, shape);
    TRY(find_rates(choice, &plan));
    TRY(tensor_layout_find_strategies(plan.session, &plan.chosen));
    shape->plan->recipe = plan.chosen.recipe;
    return STATUS_OK;
}

static bool is_solved(const struct rank_shape *shape) { return shape->plan->recipe.layout == TENSOR_LAYOUT_SOLVER; }

/* The solver's answer under another limit, in `plan`; the memory of the devices is `device_bytes`. */
static enum status solve_under(const struct shape_choice *choice, double device_bytes, double limit,
                               struct plan *plan) {
    plan->recipe.strategies = NULL;
    plan->recipe.layout_rates.device_bytes = isfinite(limit) ? limit * device_bytes : 0;
    return tensor_layout_find_strategies(choice->plan->session, plan);
}

/* Behind a shape that the solver cuts, the same under looser limits, where it answers otherwise: what shards of states,
 * other tiers and repeated work make fit may be faster (Colossal-Auto, section 5.3, whose limits these are some of). */
static enum status add_limits(struct shape_choice *choice, size_t at) {
    static const double limits[] = {1.3 * 1.3, INFINITY};
    struct rank_shapes *shapes = &choice->plan->shapes;
    struct plan loosest = *shapes->list.items[at].plan;
    double device_bytes = loosest.recipe.layout_rates.device_bytes;
    const char *before = loosest.recipe.strategies;
    if (!before || device_bytes <= 0) return STATUS_OK;
    TRY(solve_under(choice, device_bytes, INFINITY, &loosest));
    for (size_t i = 0; i < sizeof limits / sizeof *limits && before != loosest.recipe.strategies; i++) {
        struct plan plan = loosest;
        if (isfinite(limits[i])) TRY(solve_under(choice, device_bytes, limits[i], &plan));
        if (plan.recipe.strategies == before) continue;
        TRY(rank_shapes_repeat(shapes, at));
        struct rank_shape *added = &shapes->list.items[++at];
        *added->plan = plan;
        added->outcome = SHAPE_OPEN;
        added->solver_memory = limits[i];
        added->bound_s = added->expected_s = added->left_s = 0;
        before = plan.recipe.strategies;
    }
    return STATUS_OK;
}

static void forget_cuts(struct shape_choice *choice) {
    for (size_t i = 0; i < choice->cuts.count; i++)
        graph_free(choice->cuts.items[i]);
    choice->cuts.count = 0;
}

/* Whether an earlier shape has such a graph. Takes it. */
static enum status keep_cut(struct shape_choice *choice, const struct plan *plan, struct graph *graph, bool *is_new) {
    int tensor = recipe_tensor_parallel(&plan->recipe), stages = rank_place_pipeline_parallel(&plan->place);
    if (tensor != choice->tensor || stages != choice->stages) forget_cuts(choice);
    choice->tensor = tensor, choice->stages = stages;
    *is_new = true;
    for (size_t i = 0; i < choice->cuts.count; i++)
        *is_new = *is_new && !graph_same_work(choice->cuts.items[i], graph);
    enum status status = vec_push(&choice->cuts, graph);
    if (status != STATUS_OK) graph_free(graph);
    return status;
}

static enum status bound_graph(struct session_plan *plan, const struct graph *graph, struct search_bound *out) {
    struct costs costs;
    TRY(plan_choice_cut(plan, graph));
    enum status status = machine_costs_bound(&plan->session->machine, graph, &plan->chosen, &costs);
    if (status == STATUS_OK) status = plan_policy_bound(plan, graph, &costs, out);
    costs_free(&costs);
    return status;
}

static enum status bound_shape(struct shape_choice *choice, struct rank_shape *shape) {
    TRY(solve_shape(choice, shape));
    struct session_plan plan = plan_of(choice, shape);
    struct search_bound bound;
    struct graph *graph;
    TRY(plan_policy_check_ways(&plan.request, &plan.chosen.place));
    bool is_new;
    TRY(plan_choice_build_graph(&plan, &graph));
    TRY(keep_cut(choice, &plan.chosen, graph, &is_new));
    if (!is_new) {
        shape->outcome = SHAPE_SAME;
        return STATUS_OK;
    }
    TRY(bound_graph(&plan, graph, &bound));
    if (!bound.may_fit) shape->outcome = SHAPE_NO_FIT;
    shape->bound_s = shape->left_s = bound.may_fit ? bound.seconds : 0;
    shape->expected_s = bound.may_fit ? bound.expected_s : 0;
    return STATUS_OK;
}

static bool fits(const struct session_plan *plan) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        if (plan->programs.tier_bytes[tier] > plan->session->machine.capacity_bytes[tier]) return false;
    return true;
}

static double objective_of(const struct session_plan *plan, const struct trial *trial) {
    return plan->request.objective == OBJECTIVE_SUM ? trial->sum_s : trial->step_s;
}

static void note_planned(const struct session_plan *plan, const struct trial *best, struct rank_shape *shape) {
    shape->outcome = SHAPE_PLANNED;
    shape->step_s = objective_of(plan, best);
    memcpy(shape->tier_bytes, best->tier_bytes, sizeof shape->tier_bytes);
}

/* What came of a shape: its own programs fit (`made`), or the search found them too slow to be made. */
static enum status time_plan(struct session_plan *plan, double best_s, struct rank_shape *shape, bool *made) {
    struct trial measured = {.bound_s = 0};
    shape->min_bytes = plan->min_bytes;
    shape->outcome = SHAPE_NO_FIT;
    if (fits(plan)) {
        TRY(session_plan_measure(plan));
        TRY(plan_policy_measure(plan, &measured));
    }
    *made = measured.step_s > 0;
    if (*made) note_planned(plan, &measured, shape);
    const struct trial *found = plan->search.pareto_front.count > 0 ? &plan->search.pareto_front.items[0] : NULL;
    if (!*made && found && objective_of(plan, found) >= best_s) note_planned(plan, found, shape);
    return STATUS_OK;
}

static bool have_same_ranks(const struct rank_shape *a, const struct rank_shape *b) {
    return recipe_tensor_parallel(&a->plan->recipe) == recipe_tensor_parallel(&b->plan->recipe) &&
           rank_place_pipeline_parallel(&a->plan->place) == rank_place_pipeline_parallel(&b->plan->place);
}

/* The solver's cut of tensors is tried after Megatron-LM's among the same ranks, which tells what to expect of it. */
static void put_solved_later(const struct rank_shapes *shapes) {
    for (size_t i = 0; i < shapes->list.count; i++)
        for (size_t j = 0; j < shapes->list.count; j++) {
            struct rank_shape *solved = &shapes->list.items[i], *other = &shapes->list.items[j];
            if (is_solved(solved) && !is_solved(other) && other->outcome == SHAPE_OPEN &&
                have_same_ranks(solved, other))
                solved->expected_s = fmax(solved->expected_s, other->expected_s);
        }
}

/* What Megatron-LM's cut of tensors takes above its bound, for want of memory or waiting, others of the same ranks are
 * expected to take too. The solver's is no measure: it may have cut what takes long. */
static void learn_expected(const struct rank_shapes *shapes, const struct rank_shape *tried) {
    for (size_t i = 0; i < shapes->list.count; i++) {
        struct rank_shape *shape = &shapes->list.items[i];
        if (shape->outcome == SHAPE_OPEN && !is_solved(tried) && have_same_ranks(shape, tried))
            shape->expected_s = fmax(shape->expected_s, shape->bound_s / tried->bound_s * tried->step_s);
    }
}

/* What a search left. A pipeline was searched with one cut; a step that fits as it is may not have been searched, and
 * where tiles were chosen the search is that of their graph. */
static void note_left(const struct session_plan *plan, struct rank_shape *shape) {
    bool whole = rank_place_pipeline_parallel(&plan->chosen.place) == 1 && plan->chosen.policy.tile_tokens == 0;
    bool searched = plan->search.enumerated > 0 && whole;
    if (searched) shape->left_s = fmax(shape->bound_s, plan->search.left_s);
}

static enum status try_shape(struct shape_choice *choice, struct rank_shape *shape) {
    struct session_plan plan = plan_of(choice, shape);
    plan.request.faster_than_s = choice->best_s;
    enum status status = plan_choice_make(&plan);
    plan.request.faster_than_s = 0;
    bool made = false;
    shape->larger_micro_batch = plan.chosen.recipe.micro_batch_sequences > shape->plan->recipe.micro_batch_sequences;
    shape->plan->recipe.micro_batch_sequences = plan.chosen.recipe.micro_batch_sequences;
    if (status == STATUS_OK) note_left(&plan, shape);
    if (status == STATUS_OK) status = time_plan(&plan, choice->best_s, shape, &made);
    if (status == STATUS_OK && shape->outcome == SHAPE_PLANNED) learn_expected(&choice->plan->shapes, shape);
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
    for (size_t i = 0; i < shapes->list.count; i++) {
        if (shapes->list.items[i].outcome != SHAPE_OPEN) continue;
        TRY(forgive(bound_shape(choice, &shapes->list.items[i]), &shapes->list.items[i]));
        bool first = is_solved(&shapes->list.items[i]) && shapes->list.items[i].solver_memory == 1;
        if (first && shapes->list.items[i].outcome != SHAPE_REFUSED) TRY(add_limits(choice, i));
    }
    put_solved_later(shapes);
    while ((shape = next_shape(shapes))) {
        if (shape->bound_s >= choice->best_s)
            shape->outcome = SHAPE_BOUNDED;
        else if (shape->expected_s >= (is_solved(shape) ? 1 : HOPELESS) * choice->best_s)
            shape->outcome = SHAPE_UNTRIED;
        else
            TRY(forgive(try_shape(choice, shape), shape));
    }
    return STATUS_OK;
}

/* The best plan's step, or less where a plan that was not simulated may take less. */
static double min_seconds(const struct rank_shapes *shapes, double best_s) {
    double min_s = best_s;
    for (size_t i = 0; i < shapes->list.count; i++) {
        const struct rank_shape *shape = &shapes->list.items[i];
        if (shape->left_s > 0) min_s = fmin(min_s, shape->left_s);
    }
    return min_s;
}

/* What was not compiled needs more than what was. */
static bool needs_less(const struct rank_shape *a, const struct rank_shape *b) {
    int64_t x = a->min_bytes > 0 ? a->min_bytes : INT64_MAX, y = b->min_bytes > 0 ? b->min_bytes : INT64_MAX;
    return x < y;
}

/* Nothing fits: the plan of the shape that needs least, by which a message can say what is missing. */
static enum status make_min_memory(struct shape_choice *choice) {
    const struct rank_shapes *shapes = &choice->plan->shapes;
    const struct rank_shape *min = NULL;
    for (size_t i = shapes->list.count; i-- > 0;) {
        const struct rank_shape *shape = &shapes->list.items[i];
        if (shape->outcome == SHAPE_NO_FIT && (!min || needs_less(shape, min))) min = shape;
    }
    if (!min) return status_set(STATUS_BAD_INPUT, "%s", shapes->list.items[0].reason);
    choice->best = plan_of(choice, min);
    return plan_choice_make(&choice->best);
}

enum status shape_search(struct session_plan *plan) {
    struct shape_choice choice = {.plan = plan, .best_s = INFINITY};
    enum status status = search(&choice);
    if (status == STATUS_OK && !choice.best.session) status = make_min_memory(&choice);
    forget_cuts(&choice);
    vec_free(&choice.cuts);
    vec_free(&choice.rates);
    if (status == STATUS_OK) {
        plan->shapes.min_s = min_seconds(&plan->shapes, choice.best_s);
        choice.best.shapes = plan->shapes;
        *plan = choice.best;
    } else {
        session_plan_free(&choice.best);
    }
    return status;
}
