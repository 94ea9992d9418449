#include "search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "search/queue.h"

/* Best first. What is expected of a family or a member is its bound and a part of what the bound takes to be hidden,
 * since some of it never is. Only bounds end the search: what is expected decides the order alone. By lookahead, before
 * anything is learned: programs of bench/search_gap.c exposed 0.6 to 0.7 without it, 0.1 to 0.3 with it (medians by
 * kind); somewhat less apart than that, for no kind should go untried. */
static const double EXPOSED_PART[LOOKAHEADS] = {0.5, 0.25};
/* Within a dozen programs that do not fit, those are looked at that are likely to take a quarter of what there is. */
static const double MORE_CAUTION = 1.12;
/* Where nothing fits: the smallest that are compiled. */
enum { SMALLEST_COMPILED = 12, RUNNERS_UP_MOST = 8 };
enum { COMPILED_LEAST = 6, COMPILED_NODES = 16000 };

int search_most_compiled(const struct graph *graph) {
    size_t count = COMPILED_NODES / (graph->nodes.count + 1);
    return count < COMPILED_LEAST ? COMPILED_LEAST : (int)count;
}

/* How a program of a family differed from its bound: what others of it will take. */
struct lesson {
    bool learned;
    int64_t excess_bytes; /* of the device */
};

/* The same for families that are alike (same kind of schedule, the same kinds of states elsewhere, the same lookahead):
 * the least of what their programs took. */
struct hint {
    bool weighed, timed;
    double bytes;   /* by the bytes that were likely */
    double exposed; /* part of what the bound takes to be hidden */
};
/* What programs took of the tiers below the device above their bounds, at least: staging, which does not depend on the
 * schedule but on where the states are and on the lookahead. */
struct below_hint {
    bool learned;
    int64_t excess_bytes[TIER_COUNT];
};

enum { PLACEMENTS = TIER_COUNT * TIER_COUNT * TIER_COUNT * TIER_COUNT };
enum { HINTS = SCHEDULE_KINDS * TIER_COUNT * LOOKAHEADS * SPACE_FITS };

struct search {
    const struct search_input *input;
    struct space space;
    struct queue still;           /* families that move nothing, whose bounds are about what they take */
    struct queue queue, doubtful; /* all others; what is expected not to fit */
    struct lesson *lessons;       /* by family */
    struct hint hints[HINTS];
    struct below_hint below[LOOKAHEADS * PLACEMENTS];
    double caution; /* with the device's bytes: more after each program that did not fit, as long as none has */
    struct search_result *result;
    VEC(int32_t) families; /* of those that were tried */
    double best_s;         /* INFINITY: none fits yet */
    struct plan plan;
    int64_t enough_bytes;   /* of the device: nothing smaller is looked for */
    struct candidate least; /* of the device's bytes, of the compiled ones that the tiers below hold */
};

static struct hint *hint_of(struct search *search, int32_t index) {
    const struct family *family = &search->space.families.items[index];
    const struct schedule *schedule = space_schedule(&search->space, family);
    int32_t kind = (int32_t)schedule->kind * TIER_COUNT + (int32_t)schedule->tier;
    kind = kind * LOOKAHEADS + (int32_t)family->lookahead;
    return &search->hints[kind * SPACE_FITS + space_fit_number(&family->at)];
}

static struct below_hint *below_of(struct search *search, int32_t index) {
    const struct family *family = &search->space.families.items[index];
    const enum tier at[] = {family->at.parameters, family->at.gradients, family->at.optimizer, family->at.update};
    int64_t number = family->lookahead;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        number = number * TIER_COUNT + (int64_t)at[i];
    return &search->below[number];
}

static double expected_s(struct search *search, int32_t family, const struct policy_seconds *seconds) {
    const struct hint *hint = hint_of(search, family);
    int64_t lookahead = search->space.families.items[family].lookahead;
    double exposed = hint->timed ? hint->exposed : EXPOSED_PART[lookahead];
    return seconds->step_s + exposed * (seconds->serial_s - seconds->step_s);
}

static bool is_certain_loser(const struct search *search, double bound) { return bound >= search->best_s * (1 - 1e-9); }

static enum status push_families(struct search *search) {
    for (int32_t f = 0; f < (int32_t)search->space.families.count; f++) {
        const struct family *family = &search->space.families.items[f];
        search->result->enumerated++;
        if (space_is_hopeless(&search->space, family)) continue;
        struct proposal proposal = {
            .key = expected_s(search, f, &family->least), .bound = family->least.step_s, .family = f};
        bool moves = family_moves_states(family) || space_schedule(&search->space, family)->tier != TIER_DEVICE;
        TRY(queue_push(moves ? &search->queue : &search->still, proposal));
    }
    return STATUS_OK;
}

/* A family goes back into the queue by its most promising member, unless the device holds none. Members that hold less
 * there can have bounds below that one's, so the bound stays what it was. */
static enum status promise(struct search *search, struct proposal proposal, struct queue *queue) {
    struct member member;
    if (!space_promising(&search->space, &search->space.families.items[proposal.family], &member)) return STATUS_OK;
    proposal.stage = PROPOSAL_PROMISED;
    proposal.member = member;
    proposal.key = expected_s(search, proposal.family, &member.bound.seconds);
    return queue_push(queue, proposal);
}

static enum status expand(struct search *search, int32_t family, struct queue *queue) {
    struct member_list members = {0};
    enum status status = space_members(&search->space, &search->space.families.items[family], &members);
    for (size_t m = 0; m < members.list.count && status == STATUS_OK; m++) {
        const struct member *member = &members.list.items[m];
        struct proposal proposal = {.key = expected_s(search, family, &member->bound.seconds),
                                    .bound = member->bound.seconds.step_s,
                                    .family = family,
                                    .stage = PROPOSAL_MEMBER,
                                    .member = *member};
        search->result->enumerated++;
        if (!is_certain_loser(search, proposal.bound)) status = queue_push(queue, proposal);
    }
    vec_free(&members.list);
    return status;
}

static bool is_doubtful_below(struct search *search, const struct proposal *proposal) {
    const struct below_hint *hint = below_of(search, proposal->family);
    bool doubtful = false;
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        doubtful |= proposal->member.bound.bytes[tier] + hint->excess_bytes[tier] > search->input->capacity_bytes[tier];
    return doubtful;
}

static bool is_doubtful(struct search *search, const struct proposal *proposal) {
    if (is_doubtful_below(search, proposal)) return true;
    const struct lesson *lesson = &search->lessons[proposal->family];
    const struct hint *hint = hint_of(search, proposal->family);
    const struct policy_bound *bound = &proposal->member.bound;
    int64_t bytes = bound->likely_bytes;
    if (lesson->learned)
        bytes = bound->bytes[TIER_DEVICE] + lesson->excess_bytes;
    else if (hint->weighed)
        bytes = (int64_t)(hint->bytes * (double)bytes);
    return (double)bytes * search->caution > (double)search->input->capacity_bytes[TIER_DEVICE];
}

static bool fits(const struct search_input *input, const struct candidate *candidate) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        if (candidate->tier_bytes[tier] > input->capacity_bytes[tier]) return false;
    return true;
}

static enum status measure(struct search *search, struct candidate *candidate) {
    const struct search_input *input = search->input;
    struct program *program;
    struct timeline timeline;
    search->plan.policy = candidate->policy;
    TRY(program_compile_unproved(input->graph, &search->plan, input->workspace, &program));
    memcpy(candidate->tier_bytes, program->tier_bytes, sizeof candidate->tier_bytes);
    candidate->compiled = true;
    enum status status = STATUS_OK;
    if (fits(input, candidate)) {
        status = simulate(program, input->costs, &timeline);
        if (status == STATUS_OK) {
            candidate->step_s = timeline.step_s;
            timeline_free(&timeline);
        }
    }
    program_free(program);
    return status;
}

static void learn_below(struct search *search, const struct proposal *proposal, const struct candidate *candidate) {
    struct below_hint *hint = below_of(search, proposal->family);
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++) {
        int64_t excess = candidate->tier_bytes[tier] - proposal->member.bound.bytes[tier];
        if (!hint->learned || excess < hint->excess_bytes[tier]) hint->excess_bytes[tier] = excess;
    }
    hint->learned = true;
}

static void learn(struct search *search, const struct proposal *proposal, const struct candidate *candidate) {
    const struct policy_bound *bound = &proposal->member.bound;
    struct lesson *lesson = &search->lessons[proposal->family];
    struct hint *hint = hint_of(search, proposal->family);
    int64_t excess = candidate->tier_bytes[TIER_DEVICE] - bound->bytes[TIER_DEVICE];
    if (!lesson->learned || excess < lesson->excess_bytes) *lesson = (struct lesson){true, excess};
    double bytes = (double)candidate->tier_bytes[TIER_DEVICE] / (double)(bound->likely_bytes + 1);
    if (!hint->weighed || bytes < hint->bytes) hint->bytes = bytes;
    hint->weighed = true;
    double hidden_s = bound->seconds.serial_s - bound->seconds.step_s;
    if (candidate->step_s <= 0 || hidden_s <= 0) return;
    double exposed = (candidate->step_s - bound->seconds.step_s) / hidden_s;
    if (!hint->timed || exposed < hint->exposed) hint->exposed = exposed;
    hint->timed = true;
}

static enum status compile(struct search *search, const struct proposal *proposal) {
    const struct family *family = &search->space.families.items[proposal->family];
    struct candidate candidate = {.bound_s = proposal->bound};
    space_policy(&search->space, family, &proposal->member, &candidate.policy);
    TRY(measure(search, &candidate));
    search->result->compiled++;
    int64_t bytes = candidate.tier_bytes[TIER_DEVICE];
    learn(search, proposal, &candidate);
    learn_below(search, proposal, &candidate);
    struct candidate lower = candidate;
    lower.tier_bytes[TIER_DEVICE] = 0;
    if (fits(search->input, &lower) && bytes < search->result->least_bytes) {
        search->result->least_bytes = bytes;
        search->least = candidate;
    }
    if (candidate.step_s > 0 && candidate.step_s < search->best_s) search->best_s = candidate.step_s;
    search->caution = search->best_s < INFINITY ? 1 : search->caution * MORE_CAUTION;
    TRY(vec_push(&search->families, proposal->family));
    return vec_push(&search->result->tried, candidate);
}

static bool may_compile(const struct search *search) {
    return search->input->most_compiled == 0 || search->result->compiled < search->input->most_compiled;
}

/* What is doubtful goes to `doubtful`; NULL: there are no doubts. */
static enum status look_at(struct search *search, struct proposal *proposal, struct queue *from,
                           struct queue *doubtful) {
    if (proposal->stage == PROPOSAL_FAMILY) return promise(search, *proposal, from);
    double expected = expected_s(search, proposal->family, &proposal->member.bound.seconds);
    if (expected > proposal->key * (1 + 1e-9)) {
        proposal->key = expected; /* more was learned since it was put there */
        return queue_push(from, *proposal);
    }
    if (proposal->stage == PROPOSAL_PROMISED) return expand(search, proposal->family, from);
    if (!proposal->weighed) {
        space_weigh(&search->space, &search->space.families.items[proposal->family], &proposal->member);
        proposal->weighed = true;
    }
    if (doubtful && is_doubtful(search, proposal)) return queue_push(doubtful, *proposal);
    return compile(search, proposal);
}

/* Ends with what may be compiled; what is then left and no certain loser stays unproved. */
static enum status drain(struct search *search, struct queue *queue, struct queue *doubtful) {
    struct proposal next;
    while (queue_pop(queue, &next)) {
        if (is_certain_loser(search, next.bound)) continue;
        if (next.stage == PROPOSAL_MEMBER && !may_compile(search)) {
            search->result->proved = false;
            return STATUS_OK;
        }
        TRY(look_at(search, &next, queue, doubtful));
    }
    return STATUS_OK;
}

/* What moves nothing comes first: the fastest of it that fits costs one program or two, and what others must beat is
 * then known. Those that are expected not to fit come when all others have been; first those of them that are not any
 * more, by what was learned meanwhile. */
static enum status look(struct search *search) {
    search->result->proved = true;
    TRY(drain(search, &search->still, &search->doubtful));
    TRY(drain(search, &search->queue, &search->doubtful));
    TRY(drain(search, &search->doubtful, &search->queue));
    return drain(search, &search->queue, NULL);
}

/* More grains and room for lookahead only take more. */
static bool may_be_least(const struct search *search, const struct family *family) {
    int64_t fixed = search->input->grains_per_pass;
    return family->lookahead == 0 && family->grains_per_pass == (fixed > 0 ? fixed : 1);
}

static bool is_enough(const struct search *search) {
    return search->least.compiled && search->least.tier_bytes[TIER_DEVICE] <= search->enough_bytes;
}

/* Nothing fits, or nothing that fits was among those that were compiled: those that take least. */
static enum status look_smallest(struct search *search) {
    struct queue smallest = {0};
    enum status status = STATUS_OK;
    for (int32_t f = 0; f < (int32_t)search->space.families.count && status == STATUS_OK; f++) {
        const struct family *family = &search->space.families.items[f];
        struct proposal proposal = {.family = f, .stage = PROPOSAL_MEMBER};
        if (!may_be_least(search, family)) continue;
        proposal.member = space_least(&search->space, family);
        const struct policy_bound *bound = &proposal.member.bound;
        if (!space_may_fit(&search->space, bound, TIER_HOST)) continue;
        proposal.key = (double)bound->likely_bytes;
        proposal.bound = bound->seconds.step_s;
        status = queue_push(&smallest, proposal);
    }
    struct proposal next;
    int asked = search->input->most_compiled;
    int most = asked != 0 && asked < SMALLEST_COMPILED ? asked : SMALLEST_COMPILED;
    for (int i = 0; i < most && status == STATUS_OK && !is_enough(search) && queue_pop(&smallest, &next); i++)
        status = compile(search, &next);
    queue_free(&smallest);
    return status;
}

/* ---- what came out ---- */

struct ranked {
    double step_s;
    int64_t bytes;
    size_t index;
};

/* The faster; of equals the smaller, then the one that was found first. */
static int compare_ranked(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->step_s < y->step_s || x->step_s > y->step_s) return x->step_s < y->step_s ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static bool same_way(const struct search *search, size_t a, size_t b) {
    const struct family *x = &search->space.families.items[search->families.items[a]];
    const struct family *y = &search->space.families.items[search->families.items[b]];
    const struct schedule *p = space_schedule(&search->space, x), *q = space_schedule(&search->space, y);
    return p->kind == q->kind && p->tier == q->tier && x->at.parameters == y->at.parameters &&
           x->at.gradients == y->at.gradients && x->at.optimizer == y->at.optimizer && x->at.update == y->at.update;
}

static enum status add_runner_up(struct search *search, const struct ranked *ranks, size_t at) {
    for (size_t i = 0; i < at; i++)
        if (same_way(search, ranks[i].index, ranks[at].index)) return STATUS_OK;
    if (search->result->runners_up.count == RUNNERS_UP_MOST) return STATUS_OK;
    return vec_push(&search->result->runners_up, search->result->tried.items[ranks[at].index]);
}

static enum status rank(struct search *search) {
    size_t count = 0, tried = search->result->tried.count;
    struct ranked *ranks = mem_array(tried + 1, sizeof *ranks);
    if (!ranks) return STATUS_FAILED;
    for (size_t i = 0; i < tried; i++) {
        const struct candidate *candidate = &search->result->tried.items[i];
        if (candidate->step_s > 0)
            ranks[count++] = (struct ranked){candidate->step_s, candidate->tier_bytes[TIER_DEVICE], i};
    }
    if (count > 0) qsort(ranks, count, sizeof *ranks, compare_ranked);
    enum status status = STATUS_OK;
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        if (ranks[i].bytes < least) {
            least = ranks[i].bytes;
            status = vec_push(&search->result->front, search->result->tried.items[ranks[i].index]);
        }
        if (status == STATUS_OK && i > 0) status = add_runner_up(search, ranks, i);
    }
    mem_free(ranks);
    return status;
}

static enum status open_space(struct search *search) {
    TRY(space_create(search->input, &search->space));
    search->lessons = mem_array(search->space.families.count, sizeof *search->lessons);
    return search->lessons ? STATUS_OK : STATUS_FAILED;
}

static void close(struct search *search) {
    queue_free(&search->still);
    queue_free(&search->queue);
    queue_free(&search->doubtful);
    mem_free(search->lessons);
    vec_free(&search->families);
    space_free(&search->space);
}

static enum status run(struct search *search) {
    TRY(open_space(search));
    TRY(push_families(search));
    TRY(look(search));
    if (!(search->best_s < INFINITY) && search->input->most_compiled >= 0) TRY(look_smallest(search));
    return rank(search);
}

enum status search_policies(const struct search_input *input, struct search_result *out) {
    *out = (struct search_result){.least_bytes = INT64_MAX};
    struct search search = {
        .input = input, .result = out, .best_s = INFINITY, .caution = 1, .plan.recipe = *input->recipe};
    enum status status = run(&search);
    close(&search);
    if (status != STATUS_OK) search_result_free(out);
    return status;
}

/* On a machine where nothing takes time, with a device that holds nothing, so that nothing is simulated. */
enum status search_least(const struct search_input *input, struct candidate *out) {
    struct costs free_of_charge = {.count = (int32_t)input->graph->nodes.count};
    struct search_input sizes = *input;
    struct search_result result = {.least_bytes = INT64_MAX};
    struct search search = {.input = &sizes,
                            .result = &result,
                            .best_s = INFINITY,
                            .caution = 1,
                            .plan.recipe = *input->recipe,
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
    if (status == STATUS_OK) status = look_smallest(&search);
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
    *result = (struct search_result){0};
}
