#include "search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "search/measure.h"
#include "search/policy_outcomes.h"
#include "search/queue.h"
#include "search/refine.h"

/* Best first: proposals are taken in the order of their expected time = bound + exposed share x (serial time - bound),
 * where the bound assumes that streams hide each other wherever they can, and in the serial time nothing is hidden.
 * The share is learned from the programs that are compiled. Only bounds end the search; expected times decide the
 * order.
 *
 * Shares before anything is learned, by lookahead: programs of bench/search_gap.c exposed 0.6 to 0.7 without lookahead
 * and 0.1 to 0.3 with it (medians by kind). These are nearer to each other, so that every kind is tried. */
static const double EXPOSED_SHARE[COPY_WAYS] = {0.5, 0.25, 0.25};
/* Each program that does not fit makes the search want this much more room on the device: after a dozen of them it aims
 * for a quarter of the capacity. */
static const double MORE_MARGIN = 1.12;
/* Of several inputs: by so much the best of some tries is not made faster by more of them. The best of all tries was up
 * to 13% faster than the first that fits, in shapes of 64 ranks for GPT-3 175B. */
static const double CATCH_UP = 1.15;
/* Programs of fewer nodes take too little time to be spared. */
enum { SLOW_TRY_LESS = 8, SLOW_TRIED_LEAST = 2, SLOW_NODES = 500 };
/* Of all programs the part that is for those near the best. */
enum { REFINE_PART = 2 };
/* Where nothing fits: how many of the smallest are compiled. */
enum { SMALLEST_COMPILED = 12 };
enum { COMPILED_LEAST = 6, COMPILED_NODES = 16000 };

int search_most_compiled(const struct graph *graph) {
    size_t count = COMPILED_NODES / (graph->nodes.count + 1);
    return count < COMPILED_LEAST ? COMPILED_LEAST : (int)count;
}

/* By how much the programs of a family exceeded their bounds of the device's bytes, at least. */
struct family_excess {
    bool learned;
    int64_t bytes;
};

/* What the programs of a kind of family took, at least. A kind: the same kind of schedule, the same kinds of states
 * elsewhere, the same lookahead. */
struct kind_estimate {
    bool sized, timed;    /* which of the two were learned */
    double bytes_factor;  /* the device's bytes, over the likely bytes of the bound */
    double exposed_share; /* of the time that the bound assumes hidden */
};
/* By how much programs exceeded their bounds of the tiers below the device, at least: room for copies in passing, which
 * depends on where the states are and on the lookahead, not on the schedule. */
struct lower_excess {
    bool learned;
    int64_t bytes[TIER_COUNT];
};

enum { PLACEMENTS = TIER_COUNT * TIER_COUNT * TIER_COUNT * TIER_COUNT };
enum { KINDS = SCHEDULE_KINDS * TIER_COUNT * COPY_WAYS * SPACE_FITS };

struct search {
    const struct search_input *input;
    struct space space;
    struct queue resident;              /* families that move nothing, whose programs come close to their bounds */
    struct queue moving;                /* all others */
    struct queue doubtful;              /* what is expected not to fit */
    VEC(struct family_excess) excesses; /* by family */
    struct kind_estimate estimates[KINDS];
    struct kind_estimate placed[2 * SPACE_FITS]; /* the same by placement, and whether parameters are gathered */
    struct lower_excess lower[COPY_WAYS * PLACEMENTS];
    bool *scouted; /* by division: one of its programs was compiled */
    double margin; /* expected device bytes are multiplied by it; 1 as soon as a program fits */
    struct search_result *result;
    VEC(int32_t) families; /* of those that were tried */
    double best_s;         /* INFINITY: none fits yet */
    struct best_program best;
    bool refines;           /* so that not all programs are for the order of what is expected */
    int64_t enough_bytes;   /* of the device: a policy that needs no more ends search_least */
    struct candidate least; /* needs least of the device, of those compiled that fit the tiers below it */
};

static struct kind_estimate *estimate_of(struct search *search, int32_t index) {
    const struct family *family = &search->space.families.items[index];
    const struct schedule *schedule = space_schedule(&search->space, family);
    int32_t kind = (int32_t)schedule->kind * TIER_COUNT + (int32_t)schedule->tier;
    kind = kind * COPY_WAYS + family_copy_way(family);
    return &search->estimates[kind * SPACE_FITS + space_fit_number(&family->at)];
}

static struct kind_estimate *placed_of(struct search *search, int32_t index) {
    const struct family *family = &search->space.families.items[index];
    bool gathers = space_gathers(&search->space, family);
    return &search->placed[gathers * SPACE_FITS + space_fit_number(&family->at)];
}

static struct lower_excess *lower_excess_of(struct search *search, int32_t index) {
    const struct family *family = &search->space.families.items[index];
    const enum tier at[] = {family->at.parameters, family->at.gradients, family->at.optimizer, family->at.update};
    int64_t number = family_copy_way(family);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        number = number * TIER_COUNT + (int64_t)at[i];
    return &search->lower[number];
}

static int stages_of(const struct search *search) { return rank_place_stages(&search->input->place); }

/* What the stages of a pipeline are expected to wait beside their work, as a part of it: while it fills and drains
 * (1F1B), as long as the passes of all other stages take. `grains` of a pass. */
static double wait_part(const struct search *search, int64_t grains) {
    if (stages_of(search) == 1) return 0;
    int64_t passes = step_cut_passes(&search->space.cut, grains);
    return passes > 0 ? (double)(stages_of(search) - 1) / (double)passes : 0;
}

static double wait_part_of(const struct search *search, int32_t family) {
    return wait_part(search, search->space.families.items[family].grains_per_pass);
}

static double with_exposed(const struct search *search, const struct policy_seconds *seconds, double share) {
    if (search->input->objective == OBJECTIVE_SUM) return outcome_least_s(search->input, seconds);
    return (seconds->step_s + share * (seconds->serial_s - seconds->step_s)) / stages_of(search);
}

static double expected_s(struct search *search, int32_t family, const struct policy_seconds *seconds) {
    const struct kind_estimate *estimate = estimate_of(search, family), *placed = placed_of(search, family);
    int32_t way = family_copy_way(&search->space.families.items[family]);
    double share = estimate->timed ? estimate->exposed_share : EXPOSED_SHARE[way];
    /* With other schedules too, ranks wait for each other as long. */
    if (!estimate->timed && placed->timed && search->space.divisions.count > 1) share = placed->exposed_share;
    return with_exposed(search, seconds, share) * (1 + wait_part_of(search, family));
}

/* What has to be beaten. */
static double mark_s(const struct search *search) {
    double faster_than_s = search->input->faster_than_s;
    return faster_than_s > 0 ? fmin(search->best_s, faster_than_s) : search->best_s;
}

static bool cannot_win(const struct search *search, double bound) { return bound >= mark_s(search) * (1 - 1e-9); }

/* Room for what is learned of families that were listed last. */
static enum status follow_families(struct search *search) {
    while (search->excesses.count < search->space.families.count)
        TRY(vec_push(&search->excesses, (struct family_excess){.learned = false}));
    return STATUS_OK;
}

/* Those that were listed last. */
static enum status push_families(struct search *search, int32_t from) {
    TRY(follow_families(search));
    for (int32_t f = from; f < (int32_t)search->space.families.count; f++) {
        const struct family *family = &search->space.families.items[f];
        search->result->enumerated++;
        if (space_is_hopeless(&search->space, family)) continue;
        if (space_is_crowded(&search->space, family)) {
            search->result->crowded++;
            continue;
        }
        struct proposal proposal = {.key = expected_s(search, f, &family->least),
                                    .bound = outcome_least_s(search->input, &family->least),
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
        const struct proposal proposal = {.key = with_exposed(search, &clan->least, EXPOSED_SHARE[LOOKAHEADS - 1]),
                                          .bound = outcome_least_s(search->input, &clan->least),
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
                                    .bound = outcome_least_s(search->input, &member->bound.seconds),
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

static bool is_doubtful_below(struct search *search, const struct proposal *proposal) {
    const struct lower_excess *excess = lower_excess_of(search, proposal->family);
    bool doubtful = false;
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        doubtful |= proposal->member.bound.bytes[tier] + excess->bytes[tier] > search->space.capacity_bytes[tier];
    return doubtful;
}

static bool is_doubtful(struct search *search, const struct proposal *proposal) {
    if (is_doubtful_below(search, proposal)) return true;
    const struct family_excess *excess = &search->excesses.items[proposal->family];
    const struct kind_estimate *estimate = estimate_of(search, proposal->family);
    const struct policy_bound *bound = &proposal->member.bound;
    int64_t bytes = bound->likely_bytes;
    if (excess->learned)
        bytes = bound->bytes[TIER_DEVICE] + excess->bytes;
    else if (estimate->sized)
        bytes = (int64_t)(estimate->bytes_factor * (double)bytes);
    return (double)bytes * search->margin > (double)search->space.capacity_bytes[TIER_DEVICE];
}

static void learn_lower(struct search *search, const struct proposal *proposal, const struct candidate *candidate) {
    struct lower_excess *learned = lower_excess_of(search, proposal->family);
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++) {
        int64_t excess = candidate->tier_bytes[tier] * stages_of(search) - proposal->member.bound.bytes[tier];
        if (!learned->learned || excess < learned->bytes[tier]) learned->bytes[tier] = excess;
    }
    learned->learned = true;
}

/* A pipeline may wait less than is expected of it (interleaved ones do); no time is negative. */
static void learn_exposed(struct kind_estimate *estimate, double exposed) {
    exposed = fmax(exposed, 0);
    if (!estimate->timed || exposed < estimate->exposed_share) estimate->exposed_share = exposed;
    estimate->timed = true;
}

static void learn(struct search *search, const struct proposal *proposal, const struct candidate *candidate) {
    const struct policy_bound *bound = &proposal->member.bound;
    struct family_excess *learned = &search->excesses.items[proposal->family];
    struct kind_estimate *estimate = estimate_of(search, proposal->family);
    int64_t whole = candidate->tier_bytes[TIER_DEVICE] * stages_of(search);
    int64_t excess = whole - bound->bytes[TIER_DEVICE];
    if (!learned->learned || excess < learned->bytes) *learned = (struct family_excess){true, excess};
    double bytes = (double)whole / (double)(bound->likely_bytes + 1);
    if (!estimate->sized || bytes < estimate->bytes_factor) estimate->bytes_factor = bytes;
    estimate->sized = true;
    double hidden_s = bound->seconds.serial_s - bound->seconds.step_s;
    if (candidate->step_s <= 0 || hidden_s <= 0) return;
    double worked_s = candidate->step_s * stages_of(search) / (1 + wait_part_of(search, proposal->family));
    double exposed = (worked_s - bound->seconds.step_s) / hidden_s;
    learn_exposed(estimate, exposed);
    learn_exposed(placed_of(search, proposal->family), exposed);
}

static enum status compile(struct search *search, const struct proposal *proposal) {
    const struct family *family = &search->space.families.items[proposal->family];
    struct candidate candidate = {.bound_s = proposal->bound};
    space_policy(&search->space, family, &proposal->member, &candidate.policy);
    enum status status = policy_measure(search->input, search->enough_bytes, &candidate);
    if (status != STATUS_OK && status != STATUS_NO_FIT) return status;
    search->result->compiled++;
    search->scouted[family->division] = true;
    if (status == STATUS_NO_FIT) {
        search->result->crowded++;
        return STATUS_OK;
    }
    int64_t bytes = candidate.tier_bytes[TIER_DEVICE];
    learn(search, proposal, &candidate);
    learn_lower(search, proposal, &candidate);
    struct candidate lower = candidate;
    lower.tier_bytes[TIER_DEVICE] = 0;
    if (search_fits(search->input, &lower) && bytes < search->result->least_bytes) {
        search->result->least_bytes = bytes;
        search->least = candidate;
    }
    double seconds = outcome_seconds(search->input, &candidate);
    if (candidate.step_s > 0 && seconds < search->best_s) {
        search->best_s = seconds;
        search->best = (struct best_program){proposal->family, proposal->member.bound.seconds, seconds,
                                             (double)bytes * stages_of(search) /
                                                 (double)(proposal->member.bound.likely_bytes + 1)};
    }
    search->margin = search->best_s < INFINITY ? 1 : search->margin * MORE_MARGIN;
    TRY(vec_push(&search->families, proposal->family));
    return vec_push(&search->result->tried, candidate);
}

/* Of several inputs one is tried half as often as if it were the only one, and less while it is not likely to be the
 * fastest: by what is expected of the next proposal, and by the best so far. */
static int most_tries(const struct search *search, const struct proposal *proposal) {
    const struct search_input *input = search->input;
    int most = input->most_compiled, few = most / SLOW_TRY_LESS;
    if (search->refines && search->best.family >= 0) return most - most / REFINE_PART;
    if (input->faster_than_s <= 0 || input->graph->nodes.count < SLOW_NODES) return most;
    bool behind = search->best_s < INFINITY && search->best_s > CATCH_UP * input->faster_than_s;
    if (!behind && proposal->key < input->faster_than_s) return most / 2;
    return few < SLOW_TRIED_LEAST ? SLOW_TRIED_LEAST : few;
}

static bool may_compile(const struct search *search, const struct proposal *proposal) {
    return search->input->most_compiled == 0 || search->result->compiled < most_tries(search, proposal);
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
    if (doubtful && is_doubtful(search, proposal)) return queue_push(doubtful, *proposal);
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
    int most = search->input->most_compiled / 2;
    enum status status = STATUS_OK;
    while ((most == 0 || search->result->compiled < most) && queue_pop(&search->resident, &next)) {
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

/* More lookahead only needs more bytes, and so do more grains in a pass, unless the pass is the last of its share and
 * does away with gradients that else wait whole for the next: those that are cut, and those that are updated early. */
static bool may_be_least(const struct search *search, const struct family *family) {
    int64_t fixed = search->input->grains_per_pass;
    const struct division *division = &search->space.divisions.items[family->division];
    bool waits = partition_width(division->partition.gradients) > 1 || division->early;
    bool last = waits && family->grains_per_pass >= search->space.grains;
    return family->lookahead == 0 && (last || family->grains_per_pass == (fixed > 0 ? fixed : 1));
}

/* Whether no program of it is enough. Then none but the first is compiled where another of several inputs may fit. */
static bool is_too_large(const struct search *search, const struct proposal *proposal) {
    int64_t most = search->enough_bytes * stages_of(search);
    return search->input->faster_than_s > 0 && most > 0 && search->least.compiled &&
           proposal->member.bound.bytes[TIER_DEVICE] > most;
}

static bool is_enough(const struct search *search) {
    return search->least.compiled && search->least.tier_bytes[TIER_DEVICE] <= search->enough_bytes;
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
    return follow_families(search);
}

/* Up to `left` programs in the queue's order; what programs like it say will not fit below the device goes to
 * `doubtful`. */
static enum status compile_some(struct search *search, struct queue *queue, struct queue *doubtful, int *left) {
    struct proposal next;
    while (*left > 0 && !is_enough(search) && queue_pop(queue, &next)) {
        if (is_too_large(search, &next)) continue;
        if (doubtful && is_doubtful_below(search, &next)) {
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
        if (!may_be_least(search, family)) continue;
        if (space_is_crowded(&search->space, family)) {
            search->result->crowded++;
            continue;
        }
        proposal.member = space_least(&search->space, family);
        const struct policy_bound *bound = &proposal.member.bound;
        if (!space_may_fit(&search->space, bound, TIER_HOST)) continue;
        proposal.key = (double)bound->likely_bytes;
        proposal.bound = outcome_least_s(search->input, &bound->seconds);
        status = queue_push(&smallest, proposal);
    }
    struct queue doubtful = {0};
    int asked = search->input->most_compiled;
    int left = asked != 0 && asked < SMALLEST_COMPILED ? asked : SMALLEST_COMPILED;
    if (status == STATUS_OK) status = compile_some(search, &smallest, &doubtful, &left);
    if (status == STATUS_OK) status = compile_some(search, &doubtful, NULL, &left);
    queue_free(&smallest);
    queue_free(&doubtful);
    return status;
}

static enum status open_space(struct search *search) {
    TRY(space_create(search->input, &search->space));
    search->scouted = mem_array(search->space.divisions.count, sizeof *search->scouted);
    return search->scouted ? STATUS_OK : STATUS_FAILED;
}

static void close(struct search *search) {
    queue_free(&search->resident);
    queue_free(&search->moving);
    queue_free(&search->doubtful);
    vec_free(&search->excesses);
    mem_free(search->scouted);
    vec_free(&search->families);
    space_free(&search->space);
}

static void lower_bound(const struct search *search, const struct policy_seconds *seconds, struct search_bound *bound) {
    int64_t fixed = search->input->grains_per_pass;
    double least = outcome_least_s(search->input, seconds),
           expected = least * (1 + wait_part(search, fixed > 0 ? fixed : 1));
    if (!bound->may_fit || least < bound->seconds) bound->seconds = least;
    if (!bound->may_fit || expected < bound->expected_s) bound->expected_s = expected;
    bound->may_fit = true;
}

enum status search_bound(const struct search_input *input, struct search_bound *out) {
    struct search search = {.input = input};
    *out = (struct search_bound){.may_fit = false};
    enum status status = open_space(&search);
    const struct space *space = &search.space;
    for (size_t c = 0; c < space->clans.count && status == STATUS_OK; c++)
        if (space->clans.items[c].may_fit) lower_bound(&search, &space->clans.items[c].least, out);
    for (size_t f = 0; f < space->families.count && status == STATUS_OK; f++)
        if (!space_is_hopeless(space, &space->families.items[f]))
            lower_bound(&search, &space->families.items[f].least, out);
    close(&search);
    return status;
}

static enum status follow(void *payload) { return follow_families(payload); }
static enum status compile_proposal(void *payload, const struct proposal *proposal) {
    return compile(payload, proposal);
}
/* Near the best program others are expected to take as much beside their bounds as it does. */
static bool is_doubtful_near(void *payload, const struct proposal *proposal) {
    struct search *search = payload;
    double bytes = search->best.bytes_factor * (double)proposal->member.bound.likely_bytes;
    bool learned = search->excesses.items[proposal->family].learned;
    return is_doubtful(search, proposal) || (!learned && bytes > (double)search->space.capacity_bytes[TIER_DEVICE]);
}

static enum status refine_best(struct search *search) {
    const struct refinement refinement = {.input = search->input,
                                          .space = &search->space,
                                          .best = &search->best,
                                          .result = search->result,
                                          .most = search->input->most_compiled,
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

static enum status search_space(struct search *search) {
    TRY(open_space(search));
    TRY(space_is_listed(&search->space) ? push_families(search, 0) : push_clans(search));
    TRY(compile_best(search));
    TRY(refine_best(search));
    bool any = search->best_s < INFINITY || search->input->faster_than_s > 0;
    if (!any && search->input->most_compiled >= 0) TRY(compile_smallest(search));
    const struct outcomes outcomes = {search->input, &search->space, search->families.items, search->result};
    TRY(outcomes_note_partitions(&outcomes));
    return outcomes_rank(&outcomes);
}

enum status search_policies(const struct search_input *input, struct search_result *out) {
    *out = (struct search_result){.least_bytes = INT64_MAX};
    struct search search = {.input = input,
                            .result = out,
                            .best_s = INFINITY,
                            .best.family = -1,
                            .refines = input->most_compiled > 0 && input->faster_than_s <= 0,
                            .margin = 1};
    enum status status = search_space(&search);
    close(&search);
    if (status != STATUS_OK) search_result_free(out);
    return status;
}

/* With costs of nothing, and a device of no bytes, so that no program fits and none is simulated. */
enum status search_least(const struct search_input *input, struct candidate *out) {
    struct costs free_of_charge = {.count = (int32_t)input->graph->nodes.count};
    struct search_input sizes = *input;
    struct search_result result = {.least_bytes = INT64_MAX};
    struct search search = {.input = &sizes,
                            .result = &result,
                            .best_s = INFINITY,
                            .best.family = -1,
                            .margin = 1,
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
    *out = search.least;
    return status;
}

void search_result_free(struct search_result *result) {
    vec_free(&result->front);
    vec_free(&result->runners_up);
    vec_free(&result->tried);
    vec_free(&result->partitions);
    *result = (struct search_result){0};
}
