#include "search/proposals.h"

#include <math.h>

static bool before(const struct proposal *a, const struct proposal *b) {
    if (a->key < b->key || a->key > b->key) return a->key < b->key;
    return a->number < b->number;
}

enum status queue_push(struct queue *queue, struct proposal proposal) {
    proposal.number = queue->arrived++;
    TRY(vec_push(&queue->heap, proposal));
    struct proposal *heap = queue->heap.items;
    size_t at = queue->heap.count - 1;
    for (; at > 0 && before(&proposal, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = proposal;
    return STATUS_OK;
}

bool queue_pop(struct queue *queue, struct proposal *out) {
    struct proposal *heap = queue->heap.items;
    if (queue->heap.count == 0) return false;
    *out = heap[0];
    struct proposal last = heap[--queue->heap.count];
    size_t at = 0, count = queue->heap.count;
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && before(&heap[child + 1], &heap[child])) child++;
        if (!before(&heap[child], &last)) break;
        heap[at] = heap[child];
    }
    if (count > 0) heap[at] = last;
    return true;
}

void queue_free(struct queue *queue) { vec_free(&queue->heap); }

enum { RUNNERS_UP_MAX = 8 };

double outcome_seconds(const struct search_input *input, const struct trial *trial) {
    return input->objective == OBJECTIVE_SUM ? trial->sum_s : trial->step_s;
}

double outcome_min_s(const struct search_input *input, const struct policy_seconds *seconds) {
    bool sum = input->objective == OBJECTIVE_SUM;
    return (sum ? seconds->serial_s * (1 - 1e-9) : seconds->step_s) / rank_place_pipeline_parallel(&input->place);
}

struct ranked {
    double seconds;
    int64_t bytes;
    size_t index;
};

/* The faster first; on ties the smaller, then the one found first. */
static int compare_ranked(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->seconds < y->seconds || x->seconds > y->seconds) return x->seconds < y->seconds ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static bool same_kind(const struct search *search, size_t a, size_t b) {
    const struct policy_class *x = search_class(search, search->policy_classes.list.items[a]);
    const struct policy_class *y = search_class(search, search->policy_classes.list.items[b]);
    const struct schedule *p = space_schedule(&search->space, x), *q = space_schedule(&search->space, y);
    return p->kind == q->kind && p->tier == q->tier && memcmp(&x->at, &y->at, sizeof x->at) == 0 &&
           partition_equal(&search->space.sharding_options.items[x->sharding_option].partition,
                           &search->space.sharding_options.items[y->sharding_option].partition);
}

static enum status add_runner_up(const struct search *search, const struct ranked *ranks, size_t at) {
    for (size_t i = 0; i < at; i++)
        if (same_kind(search, ranks[i].index, ranks[at].index)) return STATUS_OK;
    if (search->result->runners_up.count == RUNNERS_UP_MAX) return STATUS_OK;
    return vec_push(&search->result->runners_up, search->result->tried.items[ranks[at].index]);
}

enum status outcomes_rank(const struct search *search) {
    size_t count = 0, tried = search->result->tried.count;
    AUTO_FREE struct ranked *ranks = mem_array(tried + 1, sizeof *ranks);
    if (!ranks) return STATUS_FAILED;
    for (size_t i = 0; i < tried; i++) {
        const struct trial *trial = &search->result->tried.items[i];
        if (trial->step_s > 0)
            ranks[count++] = (struct ranked){outcome_seconds(search->input, trial), trial->tier_bytes[TIER_DEVICE], i};
    }
    if (count > 0) qsort(ranks, count, sizeof *ranks, compare_ranked);
    int64_t min = INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        if (ranks[i].bytes < min) {
            min = ranks[i].bytes;
            TRY(vec_push(&search->result->pareto_front, search->result->tried.items[ranks[i].index]));
        }
        if (i > 0) TRY(add_runner_up(search, ranks, i));
    }
    return STATUS_OK;
}

static void note_bounds(const struct search *search, int32_t sharding_option, struct partition_outcome *out) {
    for (size_t c = 0; c < search->space.placements.count; c++) {
        const struct placement *placement = &search->space.placements.items[c];
        double bound = outcome_min_s(search->input, &placement->min);
        if (placement->sharding_option != sharding_option || !placement->may_fit) continue;
        if (!out->may_fit || bound < out->bound_s) out->bound_s = bound;
        out->may_fit = true;
    }
}

enum status outcomes_note_partitions(const struct search *search) {
    struct search_result *result = search->result;
    for (int32_t d = 0; d < (int32_t)search->space.sharding_options.count && search->input->partition_count > 1; d++) {
        struct partition_outcome outcome = {.partition = search->space.sharding_options.items[d].partition};
        note_bounds(search, d, &outcome);
        for (size_t i = 0; i < result->tried.count; i++) {
            const struct trial *tried = &result->tried.items[i];
            if (!partition_equal(&tried->policy.partition, &outcome.partition)) continue;
            bool better = tried->step_s > 0 &&
                          (outcome.best.step_s <= 0 ||
                           outcome_seconds(search->input, tried) < outcome_seconds(search->input, &outcome.best));
            if (better) outcome.best = *tried;
            outcome.tried++;
        }
        TRY(vec_push(&result->partitions, outcome));
    }
    return STATUS_OK;
}

/* Initial exposed shares, by lookahead. Programs of bench/search_gap.c exposed 0.6 to 0.7 without lookahead and 0.1 to
 * 0.3 with it (medians by kind). These values are closer together, so that every kind is tried. */
static const double EXPOSED_SHARE[COPY_WAYS] = {0.5, 0.25, 0.25};
/* Each program that does not fit raises the expected bytes by this factor: after a dozen, the search aims for a quarter
 * of the capacity. Once a program fits, the margin is 1 again. */
static const double MORE_MARGIN = 1.12;

enum status estimates_follow(struct search *search) {
    while (search->estimates.excesses.count < search->space.policy_classes.count)
        TRY(vec_push(&search->estimates.excesses, (struct excess){.learned = false}));
    return STATUS_OK;
}

/* ---- storage of the estimates ---- */

static int32_t kind_of(const struct search *search, int32_t index) {
    const struct policy_class *policy_class = search_class(search, index);
    const struct schedule *schedule = space_schedule(&search->space, policy_class);
    int32_t kind = (int32_t)schedule->kind * TIER_COUNT + (int32_t)schedule->tier;
    kind = kind * COPY_WAYS + policy_class_copy_way(policy_class);
    return kind * SPACE_FITS + space_fit_number(&policy_class->at);
}

static int32_t placed_of(const struct search *search, int32_t index) {
    const struct policy_class *policy_class = search_class(search, index);
    return space_gathers(&search->space, policy_class) * SPACE_FITS + space_fit_number(&policy_class->at);
}

static int32_t lower_of(const struct search *search, int32_t index) {
    const struct policy_class *policy_class = search_class(search, index);
    const enum tier at[] = {policy_class->at.parameters, policy_class->at.gradients, policy_class->at.optimizer,
                            policy_class->at.update};
    int32_t number = policy_class_copy_way(policy_class);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        number = number * TIER_COUNT + (int32_t)at[i];
    return number;
}

/* ---- seconds ---- */

double estimates_wait_part(const struct search *search, int64_t micro_batches) {
    if (search_stages(search) == 1) return 0;
    int64_t waves = step_cut_waves(&search->space.cut, micro_batches);
    return waves > 0 ? (double)(search_stages(search) - 1) / (double)waves : 0;
}

static double wait_part_of(const struct search *search, int32_t policy_class) {
    return estimates_wait_part(search, search_class(search, policy_class)->micro_batches_per_wave);
}

double estimates_exposed_s(const struct search *search, const struct policy_seconds *seconds, double share) {
    if (search->input->objective == OBJECTIVE_SUM) return outcome_min_s(search->input, seconds);
    return (seconds->step_s + share * (seconds->serial_s - seconds->step_s)) / search_stages(search);
}

double estimates_placement_s(const struct search *search, const struct placement *placement) {
    return estimates_exposed_s(search, &placement->min, EXPOSED_SHARE[LOOKAHEADS - 1]);
}

double estimates_policy_class_s(const struct search *search, int32_t policy_class,
                                const struct policy_seconds *seconds) {
    const struct kind_estimate *kind = &search->estimates.kinds[kind_of(search, policy_class)];
    const struct kind_estimate *placed = &search->estimates.placed[placed_of(search, policy_class)];
    double share =
        kind->timed ? kind->exposed_share : EXPOSED_SHARE[policy_class_copy_way(search_class(search, policy_class))];
    /* Ranks wait for each other equally long under other schedules. */
    if (!kind->timed && placed->timed && search->space.sharding_options.count > 1) share = placed->exposed_share;
    return estimates_exposed_s(search, seconds, share) * (1 + wait_part_of(search, policy_class));
}

/* ---- bytes ---- */

bool estimates_doubt_below(const struct search *search, const struct proposal *proposal) {
    const struct policy_bound *bound = &proposal->candidate.bound;
    const struct excess *own = &search->estimates.excesses.items[proposal->policy_class];
    const struct excess *excess =
        own->learned ? own : &search->estimates.lower[lower_of(search, proposal->policy_class)];
    bool doubtful = false;
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        doubtful |= bound->bytes[tier] + excess->bytes[tier] > search->space.capacity_bytes[tier];
    return doubtful;
}

bool estimates_doubt(const struct search *search, const struct proposal *proposal) {
    const struct policy_bound *bound = &proposal->candidate.bound;
    if (estimates_doubt_below(search, proposal)) return true;
    const struct excess *own = &search->estimates.excesses.items[proposal->policy_class];
    const struct kind_estimate *kind = &search->estimates.kinds[kind_of(search, proposal->policy_class)];
    int64_t bytes = bound->likely_bytes;
    if (own->learned)
        bytes = bound->bytes[TIER_DEVICE] + own->bytes[TIER_DEVICE];
    else if (kind->sized)
        bytes = (int64_t)(kind->bytes_factor * (double)bytes);
    return (double)bytes * search->estimates.margin > (double)search->space.capacity_bytes[TIER_DEVICE];
}

/* ---- learning ---- */

static void learn_excess(const struct search *search, const struct policy_bound *bound, const struct trial *trial,
                         struct excess *learned) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        int64_t excess = trial->tier_bytes[tier] * search_stages(search) - bound->bytes[tier];
        if (!learned->learned || excess < learned->bytes[tier]) learned->bytes[tier] = excess;
    }
    learned->learned = true;
}

static void learn_factor(struct kind_estimate *kind, const struct policy_bound *bound, int64_t device_bytes) {
    double factor = (double)device_bytes / (double)(bound->likely_bytes + 1);
    if (!kind->sized || factor < kind->bytes_factor) kind->bytes_factor = factor;
    kind->sized = true;
}

/* A pipeline may wait less than expected (interleaved ones do), but no time is negative. */
static void learn_exposed(struct kind_estimate *estimate, double exposed) {
    exposed = fmax(exposed, 0);
    if (!estimate->timed || exposed < estimate->exposed_share) estimate->exposed_share = exposed;
    estimate->timed = true;
}

void estimates_learn(struct search *search, const struct proposal *proposal, const struct trial *trial) {
    const struct policy_bound *bound = &proposal->candidate.bound;
    int32_t policy_class = proposal->policy_class;
    search->estimates.margin = search->best.seconds < INFINITY ? 1 : search->estimates.margin * MORE_MARGIN;
    learn_excess(search, bound, trial, &search->estimates.lower[lower_of(search, policy_class)]);
    learn_excess(search, bound, trial, &search->estimates.excesses.items[policy_class]);
    learn_factor(&search->estimates.kinds[kind_of(search, policy_class)], bound,
                 trial->tier_bytes[TIER_DEVICE] * search_stages(search));
    double hidden_s = bound->seconds.serial_s - bound->seconds.step_s;
    if (trial->step_s <= 0 || hidden_s <= 0) return;
    double worked_s = trial->step_s * search_stages(search) / (1 + wait_part_of(search, policy_class));
    double exposed = (worked_s - bound->seconds.step_s) / hidden_s;
    learn_exposed(&search->estimates.kinds[kind_of(search, policy_class)], exposed);
    learn_exposed(&search->estimates.placed[placed_of(search, policy_class)], exposed);
}
