#include "search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "search/estimates.h"
#include "search/measure.h"
#include "search/policy_outcomes.h"
#include "search/queue.h"
#include "search/refine.h"

/* Best first: proposals are taken in the order of their expected time (estimates.h). */

/* Of several inputs: by so much the best of some tries is not made faster by more of them. The best of all tries was up
 * to 13% faster than the first that fits, in shapes of 64 ranks for GPT-3 175B. */
static const double CATCH_UP = 1.15;
/* Programs of fewer nodes take too little time to be spared. */
enum { SLOW_TRY_LESS = 8, SLOW_TRIED_MIN = 2, SLOW_NODES = 500 };
/* Of all programs the part that is for those near the best. */
enum { REFINE_PART = 2 };
/* Where nothing fits: how many of the smallest are compiled. */
enum { SMALLEST_COMPILED = 12 };
enum { COMPILED_MIN = 6, COMPILED_NODES = 16000 };

int search_max_compiled(const struct graph *graph) {
    size_t count = COMPILED_NODES / (graph->nodes.count + 1);
    return count < COMPILED_MIN ? COMPILED_MIN : (int)count;
}

struct search {
    const struct search_input *input;
    struct space space;
    struct queue resident; /* families that move nothing, whose programs come close to their bounds */
    struct queue moving;   /* all others */
    struct queue doubtful; /* what is expected not to fit */
    struct estimates estimates;
    bool *scouted; /* by division: one of its programs was compiled */
    struct search_result *result;
    struct family_numbers families; /* of those that were tried */
    double best_s;                  /* INFINITY: none fits yet */
    struct best_program best;
    struct policy best_policy;
    bool refines;         /* so that not all programs are for the order of what is expected */
    int64_t enough_bytes; /* of the device: a policy that needs no more ends search_min_memory */
    struct candidate min; /* needs least of the device, of those compiled that fit the tiers below it */
};

static int stages_of(const struct search *search) { return rank_place_stages(&search->input->place); }

static double expected_s(const struct search *search, int32_t family, const struct policy_seconds *seconds) {
    return estimates_family_s(&search->estimates, family, seconds);
}

/* What has to be beaten. */
static double mark_s(const struct search *search) {
    double faster_than_s = search->input->faster_than_s;
    return faster_than_s > 0 ? fmin(search->best_s, faster_than_s) : search->best_s;
}

static bool cannot_win(const struct search *search, double bound) { return bound >= mark_s(search) * (1 - 1e-9); }

/* Those that were listed last. */
static enum status push_families(struct search *search, int32_t from) {
    TRY(estimates_follow(&search->estimates));
    for (int32_t f = from; f < (int32_t)search->space.families.count; f++) {
        const struct family *family = &search->space.families.items[f];
        search->result->enumerated++;
        if (space_is_hopeless(&search->space, family)) continue;
        if (space_is_crowded(&search->space, family)) {
            search->result->crowded++;
            continue;
        }
        struct proposal proposal = {.key = expected_s(search, f, &family->min),
                                    .bound = outcome_min_s(search->input, &family->min),
                                    .family = f};
        bool moves = family_moves_states(family) || space_schedule(&search->space, family)->tier != TIER_DEVICE;
        proposal.stage = PROPOSAL_FAMILY;
        if (cannot_win(search, proposal.bound)) continue;
        TRY(queue_push(moves ? &search->moving : &search->resident, proposal));
    }
    return STATUS_OK;
}

static enum status push_clans(struct search *search) {
    for (int32_t c = 0; c < (int32_t)search->space.clans.count; c++) {
        const struct clan *clan = &search->space.clans.items[c];
        if (!clan->may_fit) continue;
        const struct proposal proposal = {.key = estimates_clan_s(&search->estimates, clan),
                                          .bound = outcome_min_s(search->input, &clan->min),
                                          .family = c,
                                          .stage = PROPOSAL_CLAN};
        bool moves = clan->at.parameters != TIER_DEVICE || clan->at.gradients != TIER_DEVICE ||
                     clan->at.optimizer != TIER_DEVICE;
        TRY(queue_push(moves ? &search->moving : &search->resident, proposal));
    }
    return STATUS_OK;
}

static enum status list_clan(struct search *search, int32_t clan) {
    int32_t listed = (int32_t)search->space.families.count;
    TRY(space_list_clan(&search->space, clan));
    return push_families(search, listed);
}

/* A family goes back into the queue with the expected time of its fullest member; it is dropped when no member fits.
 * Other members can have lower bounds, so the family's bound stays what it was. */
static enum status bound_fullest(struct search *search, struct proposal proposal, struct queue *queue) {
    struct member member;
    if (!space_fullest(&search->space, &search->space.families.items[proposal.family], &member)) return STATUS_OK;
    proposal.stage = PROPOSAL_FULLEST;
    proposal.member = member;
    proposal.key = expected_s(search, proposal.family, &member.bound.seconds);
    proposal.learned = search->result->compiled;
    return queue_push(queue, proposal);
}

static enum status expand(struct search *search, int32_t family, struct queue *queue) {
    struct member_list members = {0};
    enum status status = space_members(&search->space, &search->space.families.items[family], &members);
    for (size_t m = 0; m < members.list.count && status == STATUS_OK; m++) {
        const struct member *member = &members.list.items[m];
        struct proposal proposal = {.key = expected_s(search, family, &member->bound.seconds),
                                    .bound = outcome_min_s(search->input, &member->bound.seconds),
                                    .family = family,
                                    .stage = PROPOSAL_MEMBER,
                                    .learned = search->result->compiled,
                                    .member = *member};
        search->result->enumerated++;
        if (!cannot_win(search, proposal.bound)) status = queue_push(queue, proposal);
    }
    vec_free(&members.list);
    return status;
}

/* The fastest so far, with its program. */
static void take_best(struct search *search, const struct proposal *proposal, const struct candidate *candidate,
                      struct program **program) {
    double bytes = (double)candidate->tier_bytes[TIER_DEVICE] * stages_of(search);
    search->best_s = outcome_seconds(search->input, candidate);
    search->best = (struct best_program){proposal->family, proposal->member.bound.seconds, search->best_s,
                                         bytes / (double)(proposal->member.bound.likely_bytes + 1)};
    search->best_policy = candidate->policy;
    program_free(search->result->best);
    search->result->best = *program;
    *program = NULL;
}

static enum status note_compiled(struct search *search, const struct proposal *proposal,
                                 const struct candidate *candidate, struct program **program) {
    int64_t bytes = candidate->tier_bytes[TIER_DEVICE];
    struct candidate lower = *candidate;
    lower.tier_bytes[TIER_DEVICE] = 0;
    if (search_fits(search->input, &lower) && bytes < search->result->min_bytes) {
        search->result->min_bytes = bytes;
        search->min = *candidate;
    }
    if (candidate->step_s > 0 && outcome_seconds(search->input, candidate) < search->best_s)
        take_best(search, proposal, candidate, program);
    estimates_learn(&search->estimates, proposal->family, &proposal->member.bound, candidate,
                    search->best_s < INFINITY);
    TRY(vec_push(&search->families.list, proposal->family));
    return vec_push(&search->result->tried, *candidate);
}

static enum status compile(struct search *search, const struct proposal *proposal) {
    const struct family *family = &search->space.families.items[proposal->family];
    struct candidate candidate = {.bound_s = proposal->bound};
    struct program *program;
    space_policy(&search->space, family, &proposal->member, &candidate.policy);
    enum status status = policy_measure(search->input, search->enough_bytes, &candidate, &program);
    if (status != STATUS_OK && status != STATUS_NO_FIT) return status;
    search->result->compiled++;
    search->scouted[family->division] = true;
    if (status == STATUS_NO_FIT) {
        search->result->crowded++;
        return STATUS_OK;
    }
    status = note_compiled(search, proposal, &candidate, &program);
    program_free(program);
    return status;
}

/* Of several inputs one is tried half as often as if it were the only one, and less while it is not likely to be the
 * fastest: by what is expected of the next proposal, and by the best so far. Until a program fits, it is tried more
 * often: else its plan would be the smallest one (plan_policy.c), with most of the memory unused. */
static int max_tries(const struct search *search, const struct proposal *proposal) {
    const struct search_input *input = search->input;
    int max = input->max_compiled, few = max / SLOW_TRY_LESS;
    if (search->refines && search->best.family >= 0) return max - max / REFINE_PART;
    if (input->faster_than_s <= 0 || input->graph->nodes.count < SLOW_NODES) return max;
    bool expected = proposal->key < input->faster_than_s;
    if (search->best_s == INFINITY) return expected ? max : max / 2;
    bool behind = search->best_s > CATCH_UP * input->faster_than_s;
    if (!behind && expected) return max / 2;
    return few < SLOW_TRIED_MIN ? SLOW_TRIED_MIN : few;
}

static bool may_compile(const struct search *search, const struct proposal *proposal) {
    return search->input->max_compiled == 0 || search->result->compiled < max_tries(search, proposal);
}

/* Whether more was learned since a proposal's key was found, by which it takes longer. A program is compiled between
 * two times that it does, so that queues come to an end. */
static bool takes_longer(struct search *search, struct proposal *proposal) {
    double key = proposal->key;
    if (proposal->learned == search->result->compiled) return false;
    proposal->learned = search->result->compiled;
    proposal->key = fmax(key, expected_s(search, proposal->family, &proposal->member.bound.seconds));
    return proposal->key > key;
}

/* The next step of a proposal: its family is bounded, or expanded, or its program compiled. A member that is expected
 * not to fit goes to `doubtful`; NULL: it is compiled all the same. */
static enum status advance(struct search *search, struct proposal *proposal, struct queue *from,
                           struct queue *doubtful) {
    if (proposal->stage == PROPOSAL_CLAN) return list_clan(search, proposal->family);
    if (proposal->stage == PROPOSAL_FAMILY) return bound_fullest(search, *proposal, from);
    if (takes_longer(search, proposal)) return queue_push(from, *proposal);
    if (proposal->stage == PROPOSAL_FULLEST) return expand(search, proposal->family, from);
    if (!proposal->device_bounded) {
        space_bound_device(&search->space, &search->space.families.items[proposal->family], &proposal->member);
        proposal->device_bounded = true;
    }
    if (doubtful && estimates_doubt(&search->estimates, proposal->family, &proposal->member.bound))
        return queue_push(doubtful, *proposal);
    return compile(search, proposal);
}

/* Works a queue off. Ends early when no more may be compiled: that nothing left is faster is then not proved. */
static enum status work_off(struct search *search, struct queue *queue, struct queue *doubtful) {
    struct proposal next;
    while (queue_pop(queue, &next)) {
        if (cannot_win(search, next.bound)) continue;
        if (next.stage == PROPOSAL_MEMBER && !may_compile(search, &next)) {
            search->result->proved = false;
            return queue_push(queue, next);
        }
        TRY(advance(search, &next, queue, doubtful));
    }
    return STATUS_OK;
}

/* Of several partitions the best program of each, as it is expected, before any other of one: what was not tried has no
 * time to be compared by. For half of the programs that may be compiled. */
static enum status scout(struct search *search) {
    struct queue later = {0};
    struct proposal next;
    int max = search->input->max_compiled / 2;
    enum status status = STATUS_OK;
    while ((max == 0 || search->result->compiled < max) && queue_pop(&search->resident, &next)) {
        if (cannot_win(search, next.bound)) continue;
        bool waits = next.stage != PROPOSAL_CLAN && search->scouted[search->space.families.items[next.family].division];
        TRY_GOTO(status,
                 waits ? queue_push(&later, next) : advance(search, &next, &search->resident, &search->doubtful), done);
    }
    while (queue_pop(&later, &next))
        TRY_GOTO(status, queue_push(&search->resident, next), done);
done:
    queue_free(&later);
    return status;
}

/* What is still in a queue was not compiled. */
static void note_left(struct search *search, const struct queue *queue) {
    for (size_t i = 0; i < queue->heap.count; i++)
        if (!cannot_win(search, queue->heap.items[i].bound))
            search->result->left_s = fmin(search->result->left_s, queue->heap.items[i].bound);
}

/* First the families that move nothing: the fastest of them that fits takes one program or two, and what the others
 * must beat is known. Then the others. Last those that were expected not to fit; first those of them that are expected
 * to fit by now. */
static enum status compile_best(struct search *search) {
    search->result->proved = true;
    search->result->left_s = INFINITY;
    if (search->space.divisions.count > 1) TRY(scout(search));
    TRY(work_off(search, &search->resident, &search->doubtful));
    TRY(work_off(search, &search->moving, &search->doubtful));
    TRY(work_off(search, &search->doubtful, &search->moving));
    TRY(work_off(search, &search->moving, NULL));
    note_left(search, &search->resident);
    note_left(search, &search->moving);
    note_left(search, &search->doubtful);
    return STATUS_OK;
}

/* More lookahead only needs more bytes, and so do more micro-batches in a wave, unless the wave is the last of its
 * share and does away with gradients that else wait whole for the next: those that are cut, and those that are updated
 * early. */
static bool may_need_min_memory(const struct search *search, const struct family *family) {
    int64_t fixed = search->input->micro_batches_per_wave;
    const struct division *division = &search->space.divisions.items[family->division];
    bool waits = partition_width(division->partition.gradients) > 1 || division->early;
    bool last = waits && family->micro_batches_per_wave >= search->space.micro_batches;
    return family->lookahead == 0 && (last || family->micro_batches_per_wave == (fixed > 0 ? fixed : 1));
}

/* Whether no program of it is enough. Then none but the first is compiled where another of several inputs may fit. */
static bool is_too_large(const struct search *search, const struct proposal *proposal) {
    int64_t max = search->enough_bytes * stages_of(search);
    return search->input->faster_than_s > 0 && max > 0 && search->min.compiled &&
           proposal->member.bound.bytes[TIER_DEVICE] > max;
}

static bool is_enough(const struct search *search) {
    return search->min.compiled && search->min.tier_bytes[TIER_DEVICE] <= search->enough_bytes;
}

/* Of several partitions: all but the parameters cut as fine as can be, these so or not at all; and nothing cut, which
 * takes least where a model is so small that what aligns shards is more. */
static enum status list_smallest(struct search *search) {
    const struct space *space = &search->space;
    int finest = 1;
    for (size_t d = 0; d < space->divisions.count; d++) {
        int width = partition_width(space->divisions.items[d].partition.optimizer);
        if (width > finest) finest = width;
    }
    for (int32_t c = 0; c < (int32_t)space->clans.count; c++) {
        const struct clan *clan = &space->clans.items[c];
        const struct partition *partition = &space->divisions.items[clan->division].partition;
        int parameters = partition_width(partition->parameters);
        bool twin = clan->flat && search->input->collectives == COLLECTIVES_EITHER; /* takes the same */
        bool ends = partition_width(partition->gradients) == finest && (parameters == finest || parameters == 1);
        bool small = !twin && (ends || !partition_cuts(partition));
        if (!small && space->divisions.count > 1) continue;
        TRY(space_list_clan(&search->space, c));
    }
    return estimates_follow(&search->estimates);
}

/* Up to `left` programs in the queue's order; what programs like it say will not fit below the device goes to
 * `doubtful`. */
static enum status compile_some(struct search *search, struct queue *queue, struct queue *doubtful, int *left) {
    struct proposal next;
    while (*left > 0 && !is_enough(search) && queue_pop(queue, &next)) {
        if (is_too_large(search, &next)) continue;
        if (doubtful && estimates_doubt_below(&search->estimates, next.family, &next.member.bound)) {
            TRY(queue_push(doubtful, next));
            continue;
        }
        TRY(compile(search, &next));
        --*left;
    }
    return STATUS_OK;
}

/* For when no compiled program fits: compiles those that need least of the device. */
static enum status compile_smallest(struct search *search) {
    struct queue smallest = {0};
    enum status status = list_smallest(search);
    for (int32_t f = 0; f < (int32_t)search->space.families.count && status == STATUS_OK; f++) {
        const struct family *family = &search->space.families.items[f];
        struct proposal proposal = {.family = f, .stage = PROPOSAL_MEMBER};
        if (!may_need_min_memory(search, family)) continue;
        if (space_is_crowded(&search->space, family)) {
            search->result->crowded++;
            continue;
        }
        proposal.member = space_min_memory(&search->space, family);
        const struct policy_bound *bound = &proposal.member.bound;
        if (!space_may_fit(&search->space, bound, TIER_HOST)) continue;
        proposal.key = (double)bound->likely_bytes;
        proposal.bound = outcome_min_s(search->input, &bound->seconds);
        status = queue_push(&smallest, proposal);
    }
    struct queue doubtful = {0};
    int limit = search->input->max_compiled;
    int left = limit != 0 && limit < SMALLEST_COMPILED ? limit : SMALLEST_COMPILED;
    if (status == STATUS_OK) status = compile_some(search, &smallest, &doubtful, &left);
    if (status == STATUS_OK) status = compile_some(search, &doubtful, NULL, &left);
    queue_free(&smallest);
    queue_free(&doubtful);
    return status;
}

static enum status open_space(struct search *search) {
    search->estimates = estimates_of(search->input, &search->space);
    TRY(space_create(search->input, &search->space));
    search->scouted = mem_array(search->space.divisions.count, sizeof *search->scouted);
    return search->scouted ? STATUS_OK : STATUS_FAILED;
}

static void close(struct search *search) {
    queue_free(&search->resident);
    queue_free(&search->moving);
    queue_free(&search->doubtful);
    estimates_free(&search->estimates);
    mem_free(search->scouted);
    vec_free(&search->families.list);
    space_free(&search->space);
}

static void lower_bound(const struct search *search, const struct policy_seconds *seconds, struct search_bound *bound) {
    int64_t fixed = search->input->micro_batches_per_wave;
    double min = outcome_min_s(search->input, seconds),
           expected = min * (1 + estimates_wait_part(&search->estimates, fixed > 0 ? fixed : 1));
    if (!bound->may_fit || min < bound->seconds) bound->seconds = min;
    if (!bound->may_fit || expected < bound->expected_s) bound->expected_s = expected;
    bound->may_fit = true;
}

enum status search_bound(const struct search_input *input, struct search_bound *out) {
    struct search search = {.input = input};
    *out = (struct search_bound){.may_fit = false};
    enum status status = open_space(&search);
    const struct space *space = &search.space;
    for (size_t c = 0; c < space->clans.count && status == STATUS_OK; c++)
        if (space->clans.items[c].may_fit) lower_bound(&search, &space->clans.items[c].min, out);
    for (size_t f = 0; f < space->families.count && status == STATUS_OK; f++)
        if (!space_is_hopeless(space, &space->families.items[f]))
            lower_bound(&search, &space->families.items[f].min, out);
    close(&search);
    return status;
}

static enum status follow(void *payload) { return estimates_follow(&((struct search *)payload)->estimates); }
static enum status compile_proposal(void *payload, const struct proposal *proposal) {
    return compile(payload, proposal);
}
/* Near the best program others are expected to take as much beside their bounds as it does. */
static bool is_doubtful_near(void *payload, const struct proposal *proposal) {
    const struct search *search = payload;
    const struct policy_bound *bound = &proposal->member.bound;
    bool known = estimates_know(&search->estimates, proposal->family);
    bool large =
        search->best.bytes_factor * (double)bound->likely_bytes > (double)search->space.capacity_bytes[TIER_DEVICE];
    return (large && !known) || estimates_doubt(&search->estimates, proposal->family, bound);
}

static enum status refine_best(struct search *search) {
    const struct refinement refinement = {.input = search->input,
                                          .space = &search->space,
                                          .best = &search->best,
                                          .result = search->result,
                                          .families = &search->families,
                                          .max = search->input->max_compiled,
                                          .payload = search,
                                          .follow = follow,
                                          .compile = compile_proposal,
                                          .is_doubtful = is_doubtful_near};
    bool chunks = search->best.family >= 0 && family_moves_states(&search->space.families.items[search->best.family]);
    if (!search->refines || !(chunks || !search->result->proved)) return STATUS_OK;
    TRY(refine(&refinement));
    search->refines = false; /* what is left is for all others */
    return search->result->proved ? STATUS_OK : compile_best(search);
}

/* Of policies that take the same time the first of the Pareto front needs less, and may have been compiled later. */
static void drop_other_program(struct search *search) {
    struct search_result *result = search->result;
    const struct candidate *first = result->pareto_front.items;
    if (result->pareto_front.count > 0 && memcmp(&search->best_policy, &first->policy, sizeof first->policy) == 0)
        return;
    program_free(result->best);
    result->best = NULL;
}

static enum status search_space(struct search *search) {
    TRY(open_space(search));
    TRY(space_is_listed(&search->space) ? push_families(search, 0) : push_clans(search));
    TRY(compile_best(search));
    TRY(refine_best(search));
    bool any = search->best_s < INFINITY || search->input->faster_than_s > 0;
    if (!any && search->input->max_compiled >= 0) TRY(compile_smallest(search));
    const struct outcomes outcomes = {search->input, &search->space, search->families.list.items, search->result};
    TRY(outcomes_note_partitions(&outcomes));
    TRY(outcomes_rank(&outcomes));
    drop_other_program(search);
    return STATUS_OK;
}

enum status search_policies(const struct search_input *input, struct search_result *out) {
    *out = (struct search_result){.min_bytes = INT64_MAX};
    struct search search = {.input = input,
                            .result = out,
                            .best_s = INFINITY,
                            .best.family = -1,
                            .refines = input->max_compiled > 0 && input->faster_than_s <= 0};
    enum status status = search_space(&search);
    close(&search);
    if (status != STATUS_OK) search_result_free(out);
    return status;
}

/* With costs of nothing, and a device of no bytes, so that no program fits and none is simulated. */
enum status search_min_memory(const struct search_input *input, struct candidate *out) {
    struct costs free_of_charge = {.count = (int32_t)input->graph->nodes.count};
    struct search_input sizes = *input;
    struct search_result result = {.min_bytes = INT64_MAX};
    struct search search = {.input = &sizes,
                            .result = &result,
                            .best_s = INFINITY,
                            .best.family = -1,
                            .enough_bytes = input->capacity_bytes[TIER_DEVICE]};
    free_of_charge.kernels = mem_array(input->graph->nodes.count, sizeof *free_of_charge.kernels);
    if (!free_of_charge.kernels) return STATUS_FAILED;
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
