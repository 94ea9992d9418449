#include "search/search.h"

#include <math.h>

#include "search/proposals.h"

/* Whether the trial fits every tier. */
static bool search_fits(const struct search_input *input, const struct trial *trial) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        if (trial->tier_bytes[tier] > input->capacity_bytes[tier]) return false;
    return true;
}

/* Seconds of all instructions of a step, one after the other. */
static double sum_seconds(const struct program *program, const struct costs *costs) {
    double sum = 0;
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        double repeat = (double)program->sections.items[instruction->section].repeat;
        sum += repeat * costs_of(costs, program, instruction).seconds;
    }
    return sum;
}

/* Takes the maximum over stages. False if a stage exceeds the limits. */
static bool take_bytes(const struct search_input *input, int64_t enough_bytes, const struct program *program,
                       struct trial *trial) {
    bool enough = true;
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        int64_t bytes = program->tier_bytes[tier], max = input->capacity_bytes[tier];
        if (bytes > trial->tier_bytes[tier]) trial->tier_bytes[tier] = bytes;
        enough &= bytes <= max || (tier == TIER_DEVICE && bytes <= enough_bytes);
    }
    return enough;
}

/* NO_FIT if the plan's other programs leave too few collectives. */
static enum status check_operations(const struct search_input *input, const struct program *program,
                                    int64_t micro_batches) {
    int64_t beside = input->operations_beside * micro_batches / rank_place_pipeline_parallel(&input->place);
    return collectives_check_count(program->collectives.count + (size_t)beside);
}

/* By stage: one rank of each. */
static enum status compile_stages(const struct search_input *input, int64_t enough_bytes, struct plan *plan,
                                  struct program **programs, struct trial *trial) {
    const struct comm_group stages = rank_place_stage_group(&input->place);
    memset(trial->tier_bytes, 0, sizeof trial->tier_bytes);
    for (int stage = 0; stage < stages.count; stage++) {
        if (stages.count > 1) plan->place.rank = mesh_group_rank(&stages, stage);
        TRY(program_compile_placed(input->graph, plan, input->workspace, &programs[stage]));
        TRY(check_operations(input, programs[stage], plan->policy.micro_batches_per_wave));
        if (!take_bytes(input, enough_bytes, programs[stage], trial)) break;
    }
    return STATUS_OK;
}

static enum status synchronise_stages(struct program *const *programs, int count) {
    for (int stage = 0; stage < count; stage++)
        TRY(program_synchronise(programs[stage]));
    return STATUS_OK;
}

static enum status time_stages(const struct search_input *input, struct program *const *programs, int count,
                               struct trial *trial) {
    TRY(synchronise_stages(programs, count));
    AUTO_FREE struct timeline *timelines = mem_array((size_t)count, sizeof *timelines);
    if (!timelines) return STATUS_FAILED;
    TRY(simulate_stages((const struct program *const *)programs, count, input->costs, timelines));
    for (int stage = 0; stage < count; stage++) {
        trial->step_s = fmax(trial->step_s, timelines[stage].step_s);
        trial->sum_s = fmax(trial->sum_s, sum_seconds(programs[stage], input->costs));
        timeline_free(&timelines[stage]);
    }
    return STATUS_OK;
}

enum status policy_measure(const struct search_input *input, int64_t enough_bytes, struct trial *trial,
                           struct program **out) {
    struct plan plan = {.recipe = *input->recipe, .policy = trial->policy, .place = input->place};
    int count = rank_place_pipeline_parallel(&plan.place);
    AUTO_FREE struct program **programs = mem_array((size_t)count, sizeof *programs);
    if (out) *out = NULL;
    if (!programs) return STATUS_FAILED;
    if (input->spans) snprintf(plan.policy.spans, sizeof plan.policy.spans, "%s", input->spans);
    trial->step_s = trial->sum_s = 0;
    enum status status = compile_stages(input, enough_bytes, &plan, programs, trial);
    trial->compiled = status == STATUS_OK;
    if (status == STATUS_OK && search_fits(input, trial)) status = time_stages(input, programs, count, trial);
    if (out && count == 1 && status == STATUS_OK && trial->step_s > 0) *out = programs[0], programs[0] = NULL;
    for (int stage = 0; stage < count; stage++)
        program_free(programs[stage]);
    return status;
}

/* Best first: proposals are tried in the order of their expected time (proposals.h). */

/* With several inputs: maximum factor by which more tries improve the best of some tries. The best of all tries was up
 * to 13% faster than the first that fits, for layouts of 64 ranks for GPT-3 175B. */
static const double CATCH_UP = 1.15;
/* Programs with fewer nodes compile so fast that tries need not be limited. */
enum { SLOW_TRY_LESS = 8, SLOW_TRIED_MIN = 2, SLOW_NODES = 500 };
/* One in this many programs is reserved for policies near the best. */
enum { REFINE_PART = 2 };
/* If nothing fits: how many of the smallest are compiled. */
enum { SMALLEST_COMPILED = 12 };
enum { COMPILED_MIN = 6, COMPILED_NODES = 16000 };

int search_max_compiled(const struct graph *graph) {
    size_t count = COMPILED_NODES / (graph->nodes.count + 1);
    return count < COMPILED_MIN ? COMPILED_MIN : (int)count;
}

/* The time to beat. */
static double mark_s(const struct search *search) {
    double faster_than_s = search->input->faster_than_s;
    return faster_than_s > 0 ? fmin(search->best.seconds, faster_than_s) : search->best.seconds;
}

bool search_cannot_win(const struct search *search, double bound) { return bound >= mark_s(search) * (1 - 1e-9); }

/* Pushes the policy classes that were listed last. */
static enum status push_policy_classes(struct search *search, int32_t from) {
    TRY(estimates_follow(search));
    for (int32_t f = from; f < (int32_t)search->space.policy_classes.count; f++) {
        const struct policy_class *policy_class = search_class(search, f);
        search->result->enumerated++;
        if (space_is_hopeless(&search->space, policy_class)) continue;
        if (space_is_crowded(&search->space, policy_class)) {
            search->result->crowded++;
            continue;
        }
        struct proposal proposal = {.key = estimates_policy_class_s(search, f, &policy_class->min),
                                    .bound = outcome_min_s(search->input, &policy_class->min),
                                    .policy_class = f};
        bool moves = policy_class_moves_states(policy_class) ||
                     space_schedule(&search->space, policy_class)->tier != TIER_DEVICE;
        proposal.kind = PROPOSAL_POLICY_CLASS;
        if (search_cannot_win(search, proposal.bound)) continue;
        TRY(queue_push(moves ? &search->moving : &search->resident, proposal));
    }
    return STATUS_OK;
}

static enum status push_placements(struct search *search) {
    for (int32_t c = 0; c < (int32_t)search->space.placements.count; c++) {
        const struct placement *placement = &search->space.placements.items[c];
        if (!placement->may_fit) continue;
        const struct proposal proposal = {.key = estimates_placement_s(search, placement),
                                          .bound = outcome_min_s(search->input, &placement->min),
                                          .policy_class = c,
                                          .kind = PROPOSAL_PLACEMENT};
        bool moves = placement->at.parameters != TIER_DEVICE || placement->at.gradients != TIER_DEVICE ||
                     placement->at.optimizer != TIER_DEVICE;
        TRY(queue_push(moves ? &search->moving : &search->resident, proposal));
    }
    return STATUS_OK;
}

static enum status list_placement(struct search *search, int32_t placement) {
    int32_t listed = (int32_t)search->space.policy_classes.count;
    TRY(space_list_placement(&search->space, placement));
    return push_policy_classes(search, listed);
}

/* Returns a policy class to the queue with the expected time of its fullest candidate, or drops it if no candidate
 * fits. Other candidates can have lower bounds, so the policy class's bound does not change. */
static enum status bound_fullest(struct search *search, struct proposal proposal, struct queue *queue) {
    struct candidate candidate;
    if (!space_fullest(&search->space, search_class(search, proposal.policy_class), &candidate)) return STATUS_OK;
    proposal.kind = PROPOSAL_FULLEST;
    proposal.candidate = candidate;
    proposal.key = estimates_policy_class_s(search, proposal.policy_class, &candidate.bound.seconds);
    proposal.learned = search->result->compiled;
    return queue_push(queue, proposal);
}

struct proposal search_propose(const struct search *search, int32_t policy_class, const struct candidate *candidate,
                               double key) {
    return (struct proposal){.key = key,
                             .bound = outcome_min_s(search->input, &candidate->bound.seconds),
                             .policy_class = policy_class,
                             .kind = PROPOSAL_CANDIDATE,
                             .learned = search->result->compiled,
                             .candidate = *candidate};
}

static enum status expand(struct search *search, int32_t policy_class, struct queue *queue) {
    struct candidate_list candidates;
    space_candidates(&search->space, search_class(search, policy_class), &candidates);
    for (int m = 0; m < candidates.count; m++) {
        const struct candidate *candidate = &candidates.items[m];
        double key = estimates_policy_class_s(search, policy_class, &candidate->bound.seconds);
        const struct proposal proposal = search_propose(search, policy_class, candidate, key);
        search->result->enumerated++;
        if (!search_cannot_win(search, proposal.bound)) TRY(queue_push(queue, proposal));
    }
    return STATUS_OK;
}

/* Records the fastest trial so far, with its program. */
static void take_best(struct search *search, const struct proposal *proposal, const struct trial *trial,
                      struct program **program) {
    const struct policy_bound *bound = &proposal->candidate.bound;
    double bytes = (double)trial->tier_bytes[TIER_DEVICE] * search_stages(search);
    search->best = (struct best_program){.policy_class = proposal->policy_class,
                                         .bound = bound->seconds,
                                         .seconds = outcome_seconds(search->input, trial),
                                         .bytes_factor = bytes / (double)(bound->likely_bytes + 1),
                                         .policy = trial->policy};
    program_free(search->result->best);
    search->result->best = *program;
    *program = NULL;
}

static enum status note_compiled(struct search *search, const struct proposal *proposal, const struct trial *trial,
                                 struct program **program) {
    int64_t bytes = trial->tier_bytes[TIER_DEVICE];
    struct trial lower = *trial;
    lower.tier_bytes[TIER_DEVICE] = 0;
    if (search_fits(search->input, &lower) && bytes < search->result->min_bytes) {
        search->result->min_bytes = bytes;
        search->min = *trial;
    }
    if (trial->step_s > 0 && outcome_seconds(search->input, trial) < search->best.seconds)
        take_best(search, proposal, trial, program);
    estimates_learn(search, proposal, trial);
    TRY(vec_push(&search->policy_classes.list, proposal->policy_class));
    return vec_push(&search->result->tried, *trial);
}

enum status search_compile(struct search *search, const struct proposal *proposal) {
    const struct policy_class *policy_class = search_class(search, proposal->policy_class);
    struct trial trial = {.bound_s = proposal->bound};
    struct program *program;
    space_policy(&search->space, policy_class, &proposal->candidate, &trial.policy);
    enum status status = policy_measure(search->input, search->enough_bytes, &trial, &program);
    if (status != STATUS_OK && status != STATUS_NO_FIT) return status;
    search->result->compiled++;
    search->scouted[policy_class->sharding_option] = true;
    if (status == STATUS_NO_FIT) {
        search->result->crowded++;
        return STATUS_OK;
    }
    status = note_compiled(search, proposal, &trial, &program);
    program_free(program);
    return status;
}

/* With several inputs, each gets half the tries of a single one, and fewer while it is unlikely to be the fastest. That
 * is judged by the next proposal's expected time and the best so far. Until a program fits, it gets more tries:
 * otherwise its plan would be the smallest one (session/choose.c), with most of the memory unused. */
static int max_tries(const struct search *search, const struct proposal *proposal) {
    const struct search_input *input = search->input;
    int max = input->max_compiled, few = max / SLOW_TRY_LESS;
    if (search->refines && search->best.policy_class >= 0) return max - max / REFINE_PART;
    if (input->faster_than_s <= 0 || input->graph->nodes.count < SLOW_NODES) return max;
    bool expected = proposal->key < input->faster_than_s;
    if (search->best.seconds == INFINITY) return expected ? max : max / 2;
    bool behind = search->best.seconds > CATCH_UP * input->faster_than_s;
    if (!behind && expected) return max / 2;
    return few < SLOW_TRIED_MIN ? SLOW_TRIED_MIN : few;
}

static bool may_compile(const struct search *search, const struct proposal *proposal) {
    return search->input->max_compiled == 0 || search->result->compiled < max_tries(search, proposal);
}

/* Whether estimates learned since the proposal's key was computed raise its expected time. A program is compiled
 * between two such raises, so queues come to an end. */
static bool takes_longer(struct search *search, struct proposal *proposal) {
    double key = proposal->key;
    if (proposal->learned == search->result->compiled) return false;
    proposal->learned = search->result->compiled;
    proposal->key =
        fmax(key, estimates_policy_class_s(search, proposal->policy_class, &proposal->candidate.bound.seconds));
    return proposal->key > key;
}

void search_bound_device(struct search *search, struct proposal *proposal) {
    if (!proposal->device_bounded)
        space_bound_device(&search->space, search_class(search, proposal->policy_class), &proposal->candidate);
    proposal->device_bounded = true;
}

/* Takes the next step of a proposal: bounds or expands its policy class, or compiles its program. A candidate that is
 * expected not to fit goes to `doubtful`; NULL: it is compiled anyway. */
static enum status advance(struct search *search, struct proposal *proposal, struct queue *from,
                           struct queue *doubtful) {
    if (proposal->kind == PROPOSAL_PLACEMENT) return list_placement(search, proposal->policy_class);
    if (proposal->kind == PROPOSAL_POLICY_CLASS) return bound_fullest(search, *proposal, from);
    if (takes_longer(search, proposal)) return queue_push(from, *proposal);
    if (proposal->kind == PROPOSAL_FULLEST) return expand(search, proposal->policy_class, from);
    search_bound_device(search, proposal);
    if (doubtful && estimates_doubt(search, proposal)) return queue_push(doubtful, *proposal);
    return search_compile(search, proposal);
}

/* Works off a queue. Ends early if no more programs may be compiled; then the best is not proved. */
static enum status work_off(struct search *search, struct queue *queue, struct queue *doubtful) {
    struct proposal next;
    while (queue_pop(queue, &next)) {
        if (search_cannot_win(search, next.bound)) continue;
        if (next.kind == PROPOSAL_CANDIDATE && !may_compile(search, &next)) {
            search->result->proved = false;
            return queue_push(queue, next);
        }
        TRY(advance(search, &next, queue, doubtful));
    }
    return STATUS_OK;
}

/* With several partitions, compiles the most promising program of each first: without a try there is no time to
 * compare. Uses up to half of the programs. */
static enum status scout(struct search *search) {
    AUTO(queue_free) struct queue later = {0};
    struct proposal next;
    int max = search->input->max_compiled / 2;
    while ((max == 0 || search->result->compiled < max) && queue_pop(&search->resident, &next)) {
        if (search_cannot_win(search, next.bound)) continue;
        bool waits = next.kind != PROPOSAL_PLACEMENT &&
                     search->scouted[search->space.policy_classes.items[next.policy_class].sharding_option];
        TRY(waits ? queue_push(&later, next) : advance(search, &next, &search->resident, &search->doubtful));
    }
    while (queue_pop(&later, &next))
        TRY(queue_push(&search->resident, next));
    return STATUS_OK;
}

/* Proposals left in a queue were not compiled. */
static void note_left(struct search *search, const struct queue *queue) {
    for (size_t i = 0; i < queue->heap.count; i++)
        if (!search_cannot_win(search, queue->heap.items[i].bound))
            search->result->left_s = fmin(search->result->left_s, queue->heap.items[i].bound);
}

/* First tries policy classes that move nothing. Their fastest one that fits needs a program or two, and sets the time
 * to beat for the others. Then tries the others. Last come those that were expected not to fit, starting with those
 * that now are. */
static enum status compile_best(struct search *search) {
    search->result->proved = true;
    search->result->left_s = INFINITY;
    if (search->space.sharding_options.count > 1) TRY(scout(search));
    TRY(work_off(search, &search->resident, &search->doubtful));
    TRY(work_off(search, &search->moving, &search->doubtful));
    TRY(work_off(search, &search->doubtful, &search->moving));
    TRY(work_off(search, &search->moving, NULL));
    note_left(search, &search->resident);
    note_left(search, &search->moving);
    note_left(search, &search->doubtful);
    return STATUS_OK;
}

/* More lookahead only needs more bytes, and so do more micro-batches in a wave. One exception: the last wave of a share
 * frees gradients that would otherwise wait complete for the next wave. These are cut gradients, and gradients that are
 * updated early. */
static bool may_need_min_memory(const struct search *search, const struct policy_class *policy_class) {
    int64_t fixed = search->input->micro_batches_per_wave;
    const struct sharding_option *sharding_option =
        &search->space.sharding_options.items[policy_class->sharding_option];
    bool waits = partition_width(sharding_option->partition.gradients) > 1 || sharding_option->early;
    bool last = waits && policy_class->micro_batches_per_wave >= search->space.micro_batches;
    return policy_class->lookahead == 0 && (last || policy_class->micro_batches_per_wave == (fixed > 0 ? fixed : 1));
}

/* Whether no program of it is small enough. Then only the first one is compiled if another of several inputs may
 * fit. */
static bool is_too_large(const struct search *search, const struct proposal *proposal) {
    int64_t max = search->enough_bytes * search_stages(search);
    return search->input->faster_than_s > 0 && max > 0 && search->min.compiled &&
           proposal->candidate.bound.bytes[TIER_DEVICE] > max;
}

static bool is_enough(const struct search *search) {
    return search->min.compiled && search->min.tier_bytes[TIER_DEVICE] <= search->enough_bytes;
}

/* The smallest of several partitions: everything except the parameters cut as finely as possible, with parameters cut
 * likewise or not at all. Also the partition that cuts nothing: for a tiny model, shard alignment costs more than
 * sharding saves. */
static enum status list_smallest(struct search *search) {
    const struct space *space = &search->space;
    int finest = 1;
    for (size_t d = 0; d < space->sharding_options.count; d++) {
        int width = partition_width(space->sharding_options.items[d].partition.optimizer);
        if (width > finest) finest = width;
    }
    for (int32_t c = 0; c < (int32_t)space->placements.count; c++) {
        const struct placement *placement = &space->placements.items[c];
        const struct partition *partition = &space->sharding_options.items[placement->sharding_option].partition;
        int parameters = partition_width(partition->parameters);
        bool twin = placement->flat && search->input->collectives == COLLECTIVES_EITHER; /* uses the same bytes */
        bool ends = partition_width(partition->gradients) == finest && (parameters == finest || parameters == 1);
        bool small = !twin && (ends || !partition_cuts(partition));
        if (!small && space->sharding_options.count > 1) continue;
        TRY(space_list_placement(&search->space, c));
    }
    return estimates_follow(search);
}

/* Compiles up to `left` programs in the queue's order. Proposals that similar programs predict not to fit below the
 * device go to `doubtful`. */
static enum status compile_some(struct search *search, struct queue *queue, struct queue *doubtful, int *left) {
    struct proposal next;
    while (*left > 0 && !is_enough(search) && queue_pop(queue, &next)) {
        if (is_too_large(search, &next)) continue;
        if (doubtful && estimates_doubt_below(search, &next)) {
            TRY(queue_push(doubtful, next));
            continue;
        }
        TRY(search_compile(search, &next));
        --*left;
    }
    return STATUS_OK;
}

/* If no compiled program fits: compiles those that need the least device memory. */
static enum status compile_smallest(struct search *search) {
    AUTO(queue_free) struct queue smallest = {0};
    enum status status = list_smallest(search);
    for (int32_t f = 0; f < (int32_t)search->space.policy_classes.count && status == STATUS_OK; f++) {
        const struct policy_class *policy_class = search_class(search, f);
        if (!may_need_min_memory(search, policy_class)) continue;
        if (space_is_crowded(&search->space, policy_class)) {
            search->result->crowded++;
            continue;
        }
        const struct candidate candidate = space_min_memory(&search->space, policy_class);
        if (!space_may_fit(&search->space, &candidate.bound, TIER_HOST)) continue;
        status = queue_push(&smallest, search_propose(search, f, &candidate, (double)candidate.bound.likely_bytes));
    }
    AUTO(queue_free) struct queue doubtful = {0};
    int limit = search->input->max_compiled;
    int left = limit != 0 && limit < SMALLEST_COMPILED ? limit : SMALLEST_COMPILED;
    if (status == STATUS_OK) status = compile_some(search, &smallest, &doubtful, &left);
    if (status == STATUS_OK) status = compile_some(search, &doubtful, NULL, &left);
    return status;
}

static enum status open_space(struct search *search) {
    search->estimates.margin = 1;
    TRY(space_create(search->input, &search->space));
    return mem_items(&search->scouted, search->space.sharding_options.count);
}

static void close(struct search *search) {
    queue_free(&search->resident);
    queue_free(&search->moving);
    queue_free(&search->doubtful);
    vec_free(&search->estimates.excesses);
    mem_free(search->scouted);
    vec_free(&search->policy_classes.list);
    space_free(&search->space);
}

static void lower_bound(const struct search *search, const struct policy_seconds *seconds, struct search_bound *bound) {
    int64_t fixed = search->input->micro_batches_per_wave;
    double min = outcome_min_s(search->input, seconds),
           expected = min * (1 + estimates_wait_part(search, fixed > 0 ? fixed : 1));
    if (!bound->may_fit || min < bound->seconds) bound->seconds = min;
    if (!bound->may_fit || expected < bound->expected_s) bound->expected_s = expected;
    bound->may_fit = true;
}

enum status search_bound(const struct search_input *input, struct search_bound *out) {
    struct search search = {.input = input};
    *out = (struct search_bound){.may_fit = false};
    enum status status = open_space(&search);
    const struct space *space = &search.space;
    for (size_t c = 0; c < space->placements.count && status == STATUS_OK; c++)
        if (space->placements.items[c].may_fit) lower_bound(&search, &space->placements.items[c].min, out);
    for (size_t f = 0; f < space->policy_classes.count && status == STATUS_OK; f++)
        if (!space_is_hopeless(space, &space->policy_classes.items[f]))
            lower_bound(&search, &space->policy_classes.items[f].min, out);
    close(&search);
    return status;
}

static enum status refine_best(struct search *search) {
    bool chunks =
        search->best.policy_class >= 0 && policy_class_moves_states(search_class(search, search->best.policy_class));
    if (!search->refines || !(chunks || !search->result->proved)) return STATUS_OK;
    TRY(refine(search));
    search->refines = false; /* the rest is for all others */
    return search->result->proved ? STATUS_OK : compile_best(search);
}

/* Among policies with the same time, the first of the Pareto front needs less memory, and may have been compiled
 * later. */
static void drop_other_program(struct search *search) {
    struct search_result *result = search->result;
    const struct trial *first = result->pareto_front.items;
    if (result->pareto_front.count > 0 && memcmp(&search->best.policy, &first->policy, sizeof first->policy) == 0)
        return;
    program_free(result->best);
    result->best = NULL;
}

static enum status search_space(struct search *search) {
    TRY(open_space(search));
    TRY(space_is_listed(&search->space) ? push_policy_classes(search, 0) : push_placements(search));
    TRY(compile_best(search));
    TRY(refine_best(search));
    bool any = search->best.seconds < INFINITY || search->input->faster_than_s > 0;
    if (!any && search->input->max_compiled >= 0) TRY(compile_smallest(search));
    TRY(outcomes_note_partitions(search));
    TRY(outcomes_rank(search));
    drop_other_program(search);
    return STATUS_OK;
}

enum status search_policies(const struct search_input *input, struct search_result *out) {
    *out = (struct search_result){.min_bytes = INT64_MAX};
    struct search search = {.input = input,
                            .result = out,
                            .best = {.policy_class = -1, .seconds = INFINITY},
                            .refines = input->max_compiled > 0 && input->faster_than_s <= 0};
    enum status status = search_space(&search);
    close(&search);
    if (status != STATUS_OK) search_result_free(out);
    return status;
}

/* Uses zero costs and a device of no bytes, so that no program fits and none is simulated. */
enum status search_min_memory(const struct search_input *input, struct trial *out) {
    struct costs free_of_charge = {.count = (int32_t)input->graph->nodes.count};
    struct search_input sizes = *input;
    struct search_result result = {.min_bytes = INT64_MAX};
    struct search search = {.input = &sizes,
                            .result = &result,
                            .best = {.policy_class = -1, .seconds = INFINITY},
                            .enough_bytes = input->capacity_bytes[TIER_DEVICE]};
    TRY(mem_items(&free_of_charge.kernels, input->graph->nodes.count));
    free_of_charge.rates.zero.bytes_per_s = 1;
    for (int from = 0; from < TIER_COUNT; from++)
        for (int to = 0; to < TIER_COUNT; to++)
            free_of_charge.rates.copy[from][to].bytes_per_s = 1;
    sizes.costs = &free_of_charge;
    sizes.capacity_bytes[TIER_DEVICE] = 0;
    enum status status = open_space(&search);
    if (status == STATUS_OK) status = compile_smallest(&search);
    close(&search);
    costs_free(&free_of_charge);
    search_result_free(&result);
    *out = search.min;
    return status;
}

void search_result_free(struct search_result *result) {
    program_free(result->best);
    vec_free(&result->pareto_front);
    vec_free(&result->runners_up);
    vec_free(&result->tried);
    vec_free(&result->partitions);
    *result = (struct search_result){0};
}
