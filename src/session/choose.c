#include "session/candidate.h"

#include <math.h>

#include "base/text.h"
#include "compiler/program.h"
#include "ir/rewrite.h"
#include "search/search.h"

/* The candidate whose policy is chosen, the tiers that it must fit, and the search's input for its main program. */
struct choosing {
    struct plan_candidate *candidate;
    const int64_t *capacity_bytes;
    struct search_input input;
    bool fits_as_is; /* under the requested policy */
};

/* Several ranks consider sharding their states even if each could hold all of them: the memory saved can hold
 * activations. A program that does not train shards only if it must, or if an option says so. */
static bool chooses_partition(const struct plan_candidate *candidate) {
    const struct plan_request *request = candidate->request;
    bool trains = program_set_has(&request->set, PROGRAM_STEP);
    bool partitioned = partition_cuts(&candidate->requested.partition);
    return rank_place_data(&candidate->plan.place) > 1 && policy_is_plain(&candidate->requested) &&
           (trains || partitioned);
}

/* Whether the tiers below the device can hold so many bytes. */
static bool fits_below(const struct choosing *choosing, const int64_t tier_bytes[TIER_COUNT]) {
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        if (tier_bytes[tier] > choosing->capacity_bytes[tier]) return false;
    return true;
}

static bool fits(const struct choosing *choosing, const int64_t tier_bytes[TIER_COUNT]) {
    return fits_below(choosing, tier_bytes) && tier_bytes[TIER_DEVICE] <= choosing->capacity_bytes[TIER_DEVICE];
}

/* Whether the programs of the other pipeline stages fit too. Each stage has its own weights. */
static enum status fit_stages(const struct choosing *choosing, const struct plan *plan, bool *fitted) {
    const struct plan_candidate *of = choosing->candidate;
    struct plan other = *plan;
    int stages = rank_place_pipeline_parallel(&plan->place), between = rank_place_ranks(&plan->place) / stages;
    for (int stage = 1; stage < stages && *fitted; stage++) {
        struct programs made;
        other.place.rank = (plan->place.rank + stage * between) % (stages * between);
        TRY(programs_compile(of->session, &of->request->set, &other, &made));
        *fitted = fits(choosing, made.tier_bytes);
        programs_free(&made);
    }
    return STATUS_OK;
}

/* Compiles all programs under the policy. If `main` is not NULL, it is the compiled main program, and the callee takes
 * it over. The programs become the plan's if they fit. */
static enum status try_policy(struct choosing *choosing, const struct policy *policy, struct program **main,
                              bool *fitted) {
    struct plan_candidate *candidate = choosing->candidate;
    struct plan tried = candidate->plan;
    tried.policy = *policy;
    snprintf(tried.policy.spans, sizeof tried.policy.spans, "%s", candidate->plan.policy.spans);
    AUTO(recompiled_free) struct recompiled made = {0};
    *fitted = false;
    enum status status = programs_recompile(&candidate->programs, &tried, main, &made);
    if (status == STATUS_NO_FIT) return STATUS_OK; /* it has too many collectives */
    TRY(status);
    int64_t bytes = made.tier_bytes[TIER_DEVICE];
    if (fits_below(choosing, made.tier_bytes) && bytes < candidate->min_bytes) candidate->min_bytes = bytes;
    bool all_fit = fits(choosing, made.tier_bytes);
    TRY(fit_stages(choosing, &tried, &all_fit));
    *fitted = all_fit;
    if (!all_fit) return STATUS_OK;
    programs_replace(&candidate->programs, &made);
    candidate->plan = tried;
    return STATUS_OK;
}

/* Compiles the programs of the fastest policies of the search, if these are fast enough. */
static enum status try_pareto_front(struct choosing *choosing, bool *fitted) {
    struct plan_candidate *candidate = choosing->candidate;
    double enough_s = candidate->faster_than_s;
    for (size_t i = 0; i < candidate->search.pareto_front.count && !*fitted; i++) {
        if (enough_s > 0 && candidate_seconds(candidate, &candidate->search.pareto_front.items[i]) >= enough_s) break;
        TRY(try_policy(choosing, &candidate->search.pareto_front.items[i].policy,
                       i == 0 ? &candidate->search.best : NULL, fitted));
        if (*fitted) candidate->fastest = candidate->search.pareto_front.items[i];
    }
    return STATUS_OK;
}

static enum status try_fastest(struct choosing *choosing, bool *fitted) {
    TRY(candidate_measure(choosing->candidate));
    TRY(search_policies(&choosing->input, &choosing->candidate->search));
    return try_pareto_front(choosing, fitted);
}

/* Tries the policy with the least memory if the search found none that fits within its tries. */
static enum status try_small(struct choosing *choosing, const struct trial *small, bool *fitted) {
    struct trial measured = *small;
    TRY(policy_measure(&choosing->input, 0, &measured, NULL));
    if (measured.step_s <= 0) return STATUS_OK;
    TRY(vec_push(&choosing->candidate->search.pareto_front, measured));
    return try_pareto_front(choosing, fitted);
}

/* Ignores the device bytes of the main program: other programs of the set may need more. */
static enum status try_min_memory(struct choosing *choosing) {
    struct search_input any = choosing->input;
    struct trial min;
    bool fitted;
    any.capacity_bytes[TIER_DEVICE] = 0;
    TRY(search_min_memory(&any, &min));
    return min.compiled ? try_policy(choosing, &min.policy, NULL, &fitted) : STATUS_OK;
}

/* Tries the policy with the least memory first. If even that does not fit, measuring is unnecessary. */
static enum status try_all(struct choosing *choosing, bool fastest) {
    const struct search_input *input = &choosing->input;
    struct trial small;
    bool fitted = false, free = !choosing->candidate->request->partition_fixed;
    if (fastest && free && choosing->fits_as_is) return try_fastest(choosing, &fitted);
    struct search_input sizes = *input; /* the minimum is found by trying: equally often for a pipeline */
    sizes.max_compiled *= rank_place_pipeline_parallel(&input->place);
    TRY(search_min_memory(&sizes, &small));
    if (!small.compiled) return STATUS_OK;
    bool one_of_several = choosing->candidate->faster_than_s > 0;
    bool hopeless = small.tier_bytes[TIER_DEVICE] > input->capacity_bytes[TIER_DEVICE];
    if (hopeless && one_of_several) choosing->candidate->min_bytes = small.tier_bytes[TIER_DEVICE];
    if (hopeless) return one_of_several ? STATUS_OK : try_policy(choosing, &small.policy, NULL, &fitted);
    if (fastest) TRY(try_fastest(choosing, &fitted));
    if (fastest && one_of_several && choosing->candidate->search.pareto_front.count == 0)
        TRY(try_small(choosing, &small, &fitted));
    return fitted || one_of_several ? STATUS_OK : try_min_memory(choosing);
}

/* Refuses a requested partition that does not fit, even if another one would. */
static enum status check_requested_partition(const struct plan_candidate *candidate) {
    const struct partition *requested = &candidate->requested.partition;
    char text[PARTITION_BYTES], size[SIZE_TEXT];
    if (!candidate->request->partition_fixed || partition_equal(requested, &candidate->plan.policy.partition))
        return STATUS_OK;
    if (candidate->search.crowded > 0)
        return status_hint(status_set(STATUS_NO_FIT,
                                      "no plan fits: with the partition %s there are more than %d operations "
                                      "between ranks",
                                      partition_print(requested, &candidate->plan.place.mesh, text),
                                      COMM_OPERATIONS_MAX),
                           COLLECTIVES_FEWER);
    return status_hint(status_set(STATUS_NO_FIT, "no plan fits: with the partition %s the device tier needs %s",
                                  partition_print(requested, &candidate->plan.place.mesh, text),
                                  size_print(candidate->min_bytes, size)),
                       "give it more by --device-memory SIZE, or leave out --partition");
}

static enum status choose(struct plan_candidate *candidate, const int64_t capacity_bytes[TIER_COUNT], bool fastest) {
    struct choosing choosing = {.candidate = candidate, .capacity_bytes = capacity_bytes};
    AUTO_FREE struct partition *partitions = NULL; /* of the input, if the search may choose */
    bool fitted = fits(&choosing, candidate->programs.tier_bytes);
    candidate->fastest = (struct trial){.compiled = false};
    TRY(fit_stages(&choosing, &candidate->plan, &fitted));
    choosing.fits_as_is = fitted;
    if (fitted && !(fastest && chooses_partition(candidate))) return STATUS_OK;
    const struct executable *main = programs_main(&candidate->programs);
    TRY(candidate_search_input(candidate, main->graph, &main->workspace, &candidate->costs, capacity_bytes,
                               &choosing.input, &partitions));
    TRY(try_all(&choosing, fastest));
    return fitted ? check_requested_partition(candidate) : STATUS_OK;
}

/* If the compiled programs do not fit the machine's tiers, or a partition is open: compiles programs under policies
 * from a search, the fastest first, until some fit. If none fits, the candidate does not change. */
static enum status choose_policy(struct plan_candidate *candidate) {
    return choose(candidate, candidate->session->machine.capacity_bytes, true);
}

struct choice {
    const struct session *session;
    const struct plan_request *request;
    struct rank_shapes *shapes;
    struct plan_candidate best; /* session NULL: no candidate is evaluated yet */
    double best_s;              /* INFINITY: none fits */
    struct known_rates rates;   /* of micro-batches that the solver has seen */
    VEC(struct graph *) graphs; /* of the rank layouts with the tensor and pipeline parallelism of the last one */
    int tensor, stages;         /* degrees of parallelism of these graphs */
};

/* Fills in everything that the candidate leaves open except tiles, and compiles it. */
static enum status complete(struct choice *choice, struct plan_candidate *candidate) {
    TRY(candidate_fill_in(candidate, &choice->rates));
    return candidate->request->policy_fixed ? STATUS_OK : choose_policy(candidate);
}

enum status choose_min_memory(const struct session *session, const struct plan_request *request,
                              const int64_t capacity_bytes[TIER_COUNT], struct min_memory *out) {
    AUTO(candidate_free) struct plan_candidate candidate = candidate_begin(session, request, &request->plan);
    *out = (struct min_memory){.fits = true};
    TRY(candidate_compile(&candidate));
    enum status status = request->policy_fixed ? STATUS_OK : choose(&candidate, capacity_bytes, false);
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        out->tier_bytes[tier] = candidate.programs.tier_bytes[tier];
        out->fits &= out->tier_bytes[tier] <= capacity_bytes[tier];
    }
    out->min_bytes = candidate.min_bytes;
    return status;
}

/* The seconds of a candidate's step; INFINITY if it does not fit. */
static enum status time_step(struct plan_candidate *candidate, struct trial *trial, double *seconds) {
    *trial = (struct trial){.step_s = 0};
    if (candidate_fits(candidate)) TRY(candidate_simulate(candidate, trial));
    *seconds = trial->step_s > 0 ? candidate_seconds(candidate, trial) : INFINITY;
    return STATUS_OK;
}

/* Moves the candidate to the best if it is faster. The caller's is empty then. */
static void keep_faster(struct choice *choice, struct plan_candidate *candidate, double seconds) {
    if (seconds >= choice->best_s) return;
    candidate->faster_than_s = 0;
    candidate_free(&choice->best);
    choice->best = TAKE(*candidate);
    choice->best_s = seconds;
}

/* ---- rank layouts: bounds ---- */

static bool is_solved(const struct rank_shape *shape) { return shape->plan->recipe.layout == TENSOR_LAYOUT_SOLVER; }

static struct plan_candidate candidate_of(const struct choice *choice, const struct rank_shape *shape) {
    return candidate_begin(choice->session, choice->request, shape->plan);
}

/* Records an error of a rank layout, including too many collectives, as that layout's outcome. */
static enum status forgive(enum status status, struct rank_shape *shape) {
    if (status != STATUS_BAD_INPUT && status != STATUS_NO_FIT) return status;
    shape->unjudged = status == STATUS_NO_FIT;
    rank_shape_refuse(shape);
    return STATUS_OK;
}

/* If the solver partitions a layout's tensors, its answer becomes the layout's recipe. */
static enum status solve_shape(struct choice *choice, struct rank_shape *shape) {
    struct plan_candidate candidate = candidate_of(choice, shape);
    TRY(candidate_solve(&candidate, &choice->rates));
    shape->plan->recipe = candidate.plan.recipe;
    return STATUS_OK;
}

/* Sets `plan` to the solver's answer under another memory limit. `device_bytes` is the memory of the devices. */
static enum status solve_under(const struct choice *choice, double device_bytes, double limit, struct plan *plan) {
    plan->recipe.strategies = NULL;
    plan->recipe.layout_rates.device_bytes = isfinite(limit) ? limit * device_bytes : 0;
    return plan_fill_in_strategies(choice->session, plan);
}

/* Adds variants of a solver's layout with looser memory limits, if the solver answers differently. Sharded states,
 * other tiers or recomputation may make a faster variant fit. Colossal-Auto (section 5.3) has such limits, too. */
static enum status add_limits(const struct choice *choice, size_t at) {
    static const double limits[] = {1.3 * 1.3, INFINITY};
    struct rank_shapes *shapes = choice->shapes;
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

static void forget_graphs(struct choice *choice) {
    for (size_t i = 0; i < choice->graphs.count; i++)
        graph_free(choice->graphs.items[i]);
    choice->graphs.count = 0;
}

/* Whether no earlier layout has such a graph. Takes it over. */
static enum status keep_graph(struct choice *choice, const struct plan *plan, struct graph *graph, bool *is_new) {
    int tensor = recipe_tensor_parallel(&plan->recipe), stages = rank_place_pipeline_parallel(&plan->place);
    if (tensor != choice->tensor || stages != choice->stages) forget_graphs(choice);
    choice->tensor = tensor, choice->stages = stages;
    *is_new = true;
    for (size_t i = 0; i < choice->graphs.count; i++)
        *is_new = *is_new && !graph_same_work(choice->graphs.items[i], graph);
    enum status status = vec_push(&choice->graphs, graph);
    if (status != STATUS_OK) graph_free(graph);
    return status;
}

static enum status bound_shape(struct choice *choice, struct rank_shape *shape) {
    TRY(solve_shape(choice, shape));
    struct plan_candidate candidate = candidate_of(choice, shape);
    struct search_bound bound;
    struct graph *graph;
    bool is_new;
    TRY(candidate_check_collectives(&candidate));
    TRY(candidate_build_graph(&candidate, &graph));
    TRY(keep_graph(choice, &candidate.plan, graph, &is_new));
    if (!is_new) {
        shape->outcome = SHAPE_SAME;
        return STATUS_OK;
    }
    TRY(candidate_cut_stages(&candidate, graph));
    TRY(candidate_bound(&candidate, graph, &bound));
    if (!bound.may_fit) shape->outcome = SHAPE_NO_FIT;
    shape->bound_s = shape->left_s = bound.may_fit ? bound.seconds : 0;
    shape->expected_s = bound.may_fit ? bound.expected_s : 0;
    return STATUS_OK;
}

static bool have_same_ranks(const struct rank_shape *a, const struct rank_shape *b) {
    return recipe_tensor_parallel(&a->plan->recipe) == recipe_tensor_parallel(&b->plan->recipe) &&
           rank_place_pipeline_parallel(&a->plan->place) == rank_place_pipeline_parallel(&b->plan->place);
}

/* Tries the solver's partition after Megatron-LM's on the same ranks, whose result predicts its time. */
static void put_solved_later(const struct rank_shapes *shapes) {
    for (size_t i = 0; i < shapes->list.count; i++)
        for (size_t j = 0; j < shapes->list.count; j++) {
            struct rank_shape *solved = &shapes->list.items[i], *other = &shapes->list.items[j];
            if (is_solved(solved) && !is_solved(other) && other->outcome == SHAPE_OPEN &&
                have_same_ranks(solved, other))
                solved->expected_s = fmax(solved->expected_s, other->expected_s);
        }
}

static enum status bound_all(struct choice *choice) {
    struct rank_shapes *shapes = choice->shapes;
    for (size_t i = 0; i < shapes->list.count; i++) {
        if (shapes->list.items[i].outcome != SHAPE_OPEN) continue;
        TRY(forgive(bound_shape(choice, &shapes->list.items[i]), &shapes->list.items[i]));
        bool first = is_solved(&shapes->list.items[i]) && shapes->list.items[i].solver_memory == 1;
        if (first && shapes->list.items[i].outcome != SHAPE_REFUSED) TRY(add_limits(choice, i));
    }
    put_solved_later(shapes);
    return STATUS_OK;
}

/* ---- rank layouts: the best ---- */

static void note_planned(const struct plan_candidate *candidate, const struct trial *best, struct rank_shape *shape) {
    shape->outcome = SHAPE_PLANNED;
    shape->step_s = candidate_seconds(candidate, best);
    memcpy(shape->tier_bytes, best->tier_bytes, sizeof shape->tier_bytes);
}

/* Records the bound on what the search left untried. A pipeline was searched with one cut. A step that fits as it is
 * may not have been searched. */
static void note_left(const struct plan_candidate *candidate, struct rank_shape *shape) {
    const struct plan *plan = &candidate->plan;
    bool whole = rank_place_pipeline_parallel(&plan->place) == 1 && plan->policy.tile_tokens == 0;
    if (candidate->search.enumerated > 0 && whole) shape->left_s = fmax(shape->bound_s, candidate->search.left_s);
}

/* Its own programs fit, or the search found them too slow to compile. */
static void note_outcome(const struct plan_candidate *candidate, const struct trial *own, double best_s,
                         struct rank_shape *shape) {
    const struct search_result *search = &candidate->search;
    const struct trial *found = search->pareto_front.count > 0 ? &search->pareto_front.items[0] : NULL;
    shape->min_bytes = candidate->min_bytes;
    shape->outcome = SHAPE_NO_FIT;
    if (own->step_s > 0)
        note_planned(candidate, own, shape);
    else if (found && candidate_seconds(candidate, found) >= best_s)
        note_planned(candidate, found, shape);
}

/* Expects other layouts of the same ranks to exceed their bounds as much as Megatron-LM's partition does, for lack of
 * memory or waiting. The solver's partition is no measure: it may have split the slow operators. */
static void learn_expected(const struct rank_shapes *shapes, const struct rank_shape *tried) {
    if (tried->outcome != SHAPE_PLANNED || is_solved(tried)) return;
    for (size_t i = 0; i < shapes->list.count; i++) {
        struct rank_shape *shape = &shapes->list.items[i];
        if (shape->outcome == SHAPE_OPEN && have_same_ranks(shape, tried))
            shape->expected_s = fmax(shape->expected_s, shape->bound_s / tried->bound_s * tried->step_s);
    }
}

static enum status try_shape(struct choice *choice, struct rank_shape *shape) {
    AUTO(candidate_free) struct plan_candidate candidate = candidate_of(choice, shape);
    struct trial own = {.step_s = 0};
    double seconds = INFINITY;
    candidate.faster_than_s = choice->best_s;
    enum status status = complete(choice, &candidate);
    int64_t sequences = candidate.plan.recipe.micro_batch_sequences;
    shape->larger_micro_batch = sequences > shape->plan->recipe.micro_batch_sequences;
    shape->plan->recipe.micro_batch_sequences = sequences;
    TRY(status);
    note_left(&candidate, shape);
    TRY(time_step(&candidate, &own, &seconds));
    note_outcome(&candidate, &own, choice->best_s, shape);
    learn_expected(choice->shapes, shape);
    keep_faster(choice, &candidate, seconds);
    return STATUS_OK;
}

/* The open layout with the shortest expected time, the first on ties. NULL: none is left. */
static struct rank_shape *next_shape(const struct rank_shapes *shapes) {
    struct rank_shape *next = NULL;
    for (size_t i = 0; i < shapes->list.count; i++) {
        struct rank_shape *shape = &shapes->list.items[i];
        if (shape->outcome == SHAPE_OPEN && (!next || shape->expected_s < next->expected_s)) next = shape;
    }
    return next;
}

/* Skips a layout whose expected time is this many times the best. Also skips a solver's layout that is not expected to
 * be faster. */
static const double HOPELESS = 1.1;

static enum status try_best_first(struct choice *choice) {
    struct rank_shape *shape;
    while ((shape = next_shape(choice->shapes))) {
        if (shape->bound_s >= choice->best_s)
            shape->outcome = SHAPE_BOUNDED;
        else if (shape->expected_s >= (is_solved(shape) ? 1 : HOPELESS) * choice->best_s)
            shape->outcome = SHAPE_UNTRIED;
        else
            TRY(forgive(try_shape(choice, shape), shape));
    }
    return STATUS_OK;
}

/* The step time of the best plan, or less if a plan that was not simulated may be faster. */
static double min_seconds(const struct rank_shapes *shapes, double best_s) {
    double min_s = best_s;
    for (size_t i = 0; i < shapes->list.count; i++) {
        const struct rank_shape *shape = &shapes->list.items[i];
        if (shape->left_s > 0) min_s = fmin(min_s, shape->left_s);
    }
    return min_s;
}

/* Whether `a` needs less memory than `b`. A layout that was not compiled needs more than any that was. */
static bool needs_less(const struct rank_shape *a, const struct rank_shape *b) {
    int64_t x = a->min_bytes > 0 ? a->min_bytes : INT64_MAX, y = b->min_bytes > 0 ? b->min_bytes : INT64_MAX;
    return x < y;
}

/* Nothing fits: takes the plan of the layout with the least memory, so that a message can say how much is missing. */
static enum status take_min_memory(struct choice *choice) {
    const struct rank_shapes *shapes = choice->shapes;
    const struct rank_shape *min = NULL;
    for (size_t i = shapes->list.count; i-- > 0;) {
        const struct rank_shape *shape = &shapes->list.items[i];
        if (shape->outcome == SHAPE_NO_FIT && (!min || needs_less(shape, min))) min = shape;
    }
    if (!min) return status_set(STATUS_BAD_INPUT, "%s", shapes->list.items[0].reason);
    choice->best = candidate_of(choice, min);
    return complete(choice, &choice->best);
}

/* ---- tiles ---- */

/* Number of tiles of a micro-batch. More tiles would leave GEMMs too few tokens to reach their peak rate. */
static const int64_t tile_counts[] = {4, 16};

static int64_t micro_batch_tokens(const struct plan_candidate *candidate) {
    return candidate->plan.recipe.micro_batch_sequences * candidate->plan.recipe.sequence_length;
}

/* Whether MLPs in tiles over a micro-batch's tokens (ir/rewrite.h) may make a step faster, or make it fit. True if it
 * does not fit, moves tensors or recomputes. Tiles are not tried on several ranks. */
static bool tiles_may_gain(const struct plan_candidate *candidate) {
    const struct plan_request *request = candidate->request;
    int64_t tokens = micro_batch_tokens(candidate);
    bool alone = rank_place_ranks(&candidate->plan.place) == 1 && !request->costs;
    bool possible =
        tokens % OP_ROWS_APART == 0 && tokens > OP_ROWS_APART && programs_take_tiles(&candidate->session->machine);
    bool open = !request->policy_fixed && program_set_has(&request->set, PROGRAM_STEP) &&
                policy_is_plain(&candidate->requested);
    return alone && possible && open && !(candidate_fits(candidate) && policy_stays(&candidate->plan.policy)) &&
           graph_has_tiles(programs_main(&candidate->programs)->graph);
}

/* The best candidate with tiles of so many tokens. Each size is a graph of its own, with its own policy search. */
static enum status try_tile(struct choice *choice, int64_t tile_tokens) {
    struct plan_candidate *best = &choice->best;
    AUTO(candidate_free)
    struct plan_candidate tiled = candidate_begin(choice->session, choice->request, &best->plan);
    struct trial trial;
    double seconds;
    tiled.requested = tiled.plan.policy = best->requested;
    tiled.plan.policy.tile_tokens = tile_tokens;
    tiled.plan.policy.selective_recompute = best->plan.policy.selective_recompute;
    tiled.faster_than_s = choice->best_s;
    TRY(candidate_compile(&tiled));
    TRY(choose_policy(&tiled));
    TRY(time_step(&tiled, &trial, &seconds));
    if (best->min_bytes < tiled.min_bytes) tiled.min_bytes = best->min_bytes;
    best->min_bytes = tiled.min_bytes;
    keep_faster(choice, &tiled, seconds);
    return STATUS_OK;
}

static enum status choose_tiles(struct choice *choice) {
    int64_t tokens = micro_batch_tokens(&choice->best), last = tokens;
    struct trial trial;
    if (!tiles_may_gain(&choice->best)) return STATUS_OK;
    TRY(time_step(&choice->best, &trial, &choice->best_s));
    for (size_t i = 0; i < sizeof tile_counts / sizeof *tile_counts; i++) {
        int64_t runs = (tokens / OP_ROWS_APART + tile_counts[i] - 1) / tile_counts[i];
        if (runs * OP_ROWS_APART >= last) continue;
        last = runs * OP_ROWS_APART;
        TRY(try_tile(choice, last));
    }
    return STATUS_OK;
}

/* ---- the choice ---- */

/* The rank layout is open. */
static enum status choose_shape(struct choice *choice) {
    TRY(bound_all(choice));
    TRY(try_best_first(choice));
    if (!choice->best.session) {
        TRY(take_min_memory(choice));
        TRY(choose_tiles(choice));
    }
    choice->shapes->min_s = min_seconds(choice->shapes, choice->best_s);
    return STATUS_OK;
}

/* The rank layout is settled. */
static enum status choose_settled(struct choice *choice) {
    choice->best = candidate_begin(choice->session, choice->request, &choice->request->plan);
    TRY(candidate_check_collectives(&choice->best));
    TRY(complete(choice, &choice->best));
    return choose_tiles(choice);
}

enum status choose_candidate(const struct session *session, const struct plan_request *request,
                             struct rank_shapes *shapes, struct plan_candidate *out) {
    struct choice choice = {.session = session, .request = request, .shapes = shapes, .best_s = INFINITY};
    enum status status = shapes->list.count > 0 ? choose_shape(&choice) : choose_settled(&choice);
    forget_graphs(&choice);
    vec_free(&choice.graphs);
    vec_free(&choice.rates.list);
    if (status == STATUS_OK)
        *out = choice.best;
    else
        candidate_free(&choice.best);
    return status;
}
