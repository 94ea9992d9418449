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

/* The faster; of equals the smaller, then the one that was found first. */
static int compare_ranked(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->seconds < y->seconds || x->seconds > y->seconds) return x->seconds < y->seconds ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static bool same_kind(const struct outcomes *outcomes, size_t a, size_t b) {
    const struct policy_class *x = &outcomes->space->policy_classes.items[outcomes->policy_classes[a]];
    const struct policy_class *y = &outcomes->space->policy_classes.items[outcomes->policy_classes[b]];
    const struct schedule *p = space_schedule(outcomes->space, x), *q = space_schedule(outcomes->space, y);
    return p->kind == q->kind && p->tier == q->tier && x->at.parameters == y->at.parameters &&
           partition_equal(&outcomes->space->sharding_options.items[x->sharding_option].partition,
                           &outcomes->space->sharding_options.items[y->sharding_option].partition) &&
           x->at.gradients == y->at.gradients && x->at.optimizer == y->at.optimizer && x->at.update == y->at.update;
}

static enum status add_runner_up(const struct outcomes *outcomes, const struct ranked *ranks, size_t at) {
    for (size_t i = 0; i < at; i++)
        if (same_kind(outcomes, ranks[i].index, ranks[at].index)) return STATUS_OK;
    if (outcomes->result->runners_up.count == RUNNERS_UP_MAX) return STATUS_OK;
    return vec_push(&outcomes->result->runners_up, outcomes->result->tried.items[ranks[at].index]);
}

enum status outcomes_rank(const struct outcomes *outcomes) {
    size_t count = 0, tried = outcomes->result->tried.count;
    struct ranked *ranks = mem_array(tried + 1, sizeof *ranks);
    if (!ranks) return STATUS_FAILED;
    for (size_t i = 0; i < tried; i++) {
        const struct trial *trial = &outcomes->result->tried.items[i];
        if (trial->step_s > 0)
            ranks[count++] =
                (struct ranked){outcome_seconds(outcomes->input, trial), trial->tier_bytes[TIER_DEVICE], i};
    }
    if (count > 0) qsort(ranks, count, sizeof *ranks, compare_ranked);
    enum status status = STATUS_OK;
    int64_t min = INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        if (ranks[i].bytes < min) {
            min = ranks[i].bytes;
            TRY_GOTO(status, vec_push(&outcomes->result->pareto_front, outcomes->result->tried.items[ranks[i].index]),
                     done);
        }
        if (i > 0) TRY_GOTO(status, add_runner_up(outcomes, ranks, i), done);
    }
done:
    mem_free(ranks);
    return status;
}

static void note_bounds(const struct outcomes *outcomes, int32_t sharding_option, struct partition_outcome *out) {
    for (size_t c = 0; c < outcomes->space->placements.count; c++) {
        const struct placement *placement = &outcomes->space->placements.items[c];
        double bound = outcome_min_s(outcomes->input, &placement->min);
        if (placement->sharding_option != sharding_option || !placement->may_fit) continue;
        if (!out->may_fit || bound < out->bound_s) out->bound_s = bound;
        out->may_fit = true;
    }
}

enum status outcomes_note_partitions(const struct outcomes *outcomes) {
    struct search_result *result = outcomes->result;
    for (int32_t d = 0; d < (int32_t)outcomes->space->sharding_options.count && outcomes->input->partition_count > 1;
         d++) {
        struct partition_outcome outcome = {.partition = outcomes->space->sharding_options.items[d].partition};
        note_bounds(outcomes, d, &outcome);
        for (size_t i = 0; i < result->tried.count; i++) {
            const struct trial *tried = &result->tried.items[i];
            if (!partition_equal(&tried->policy.partition, &outcome.partition)) continue;
            bool better = tried->step_s > 0 &&
                          (outcome.best.step_s <= 0 ||
                           outcome_seconds(outcomes->input, tried) < outcome_seconds(outcomes->input, &outcome.best));
            if (better) outcome.best = *tried;
            outcome.tried++;
        }
        TRY(vec_push(&result->partitions, outcome));
    }
    return STATUS_OK;
}

/* Shares before anything is learned, by lookahead: programs of bench/search_gap.c exposed 0.6 to 0.7 without lookahead
 * and 0.1 to 0.3 with it (medians by kind). These are nearer to each other, so that every kind is tried. */
static const double EXPOSED_SHARE[COPY_WAYS] = {0.5, 0.25, 0.25};
/* Each program that does not fit makes the search want this much more space on the device: after a dozen of them it
 * aims for a quarter of the capacity. As soon as one fits, no more. */
static const double MORE_MARGIN = 1.12;

struct estimates estimates_of(const struct search_input *input, const struct space *space) {
    return (struct estimates){.input = input, .space = space, .margin = 1};
}

void estimates_free(struct estimates *estimates) { vec_free(&estimates->excesses); }

enum status estimates_follow(struct estimates *estimates) {
    while (estimates->excesses.count < estimates->space->policy_classes.count)
        TRY(vec_push(&estimates->excesses, (struct excess){.learned = false}));
    return STATUS_OK;
}

/* ---- where what is learned is kept ---- */

static const struct policy_class *policy_class_at(const struct estimates *estimates, int32_t index) {
    return &estimates->space->policy_classes.items[index];
}

static int32_t kind_of(const struct estimates *estimates, int32_t index) {
    const struct policy_class *policy_class = policy_class_at(estimates, index);
    const struct schedule *schedule = space_schedule(estimates->space, policy_class);
    int32_t kind = (int32_t)schedule->kind * TIER_COUNT + (int32_t)schedule->tier;
    kind = kind * COPY_WAYS + policy_class_copy_way(policy_class);
    return kind * SPACE_FITS + space_fit_number(&policy_class->at);
}

static int32_t placed_of(const struct estimates *estimates, int32_t index) {
    const struct policy_class *policy_class = policy_class_at(estimates, index);
    return space_gathers(estimates->space, policy_class) * SPACE_FITS + space_fit_number(&policy_class->at);
}

static int32_t lower_of(const struct estimates *estimates, int32_t index) {
    const struct policy_class *policy_class = policy_class_at(estimates, index);
    const enum tier at[] = {policy_class->at.parameters, policy_class->at.gradients, policy_class->at.optimizer,
                            policy_class->at.update};
    int32_t number = policy_class_copy_way(policy_class);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        number = number * TIER_COUNT + (int32_t)at[i];
    return number;
}

/* ---- seconds ---- */

static int stages_of(const struct estimates *estimates) {
    return rank_place_pipeline_parallel(&estimates->input->place);
}

double estimates_wait_part(const struct estimates *estimates, int64_t micro_batches) {
    if (stages_of(estimates) == 1) return 0;
    int64_t waves = step_cut_waves(&estimates->space->cut, micro_batches);
    return waves > 0 ? (double)(stages_of(estimates) - 1) / (double)waves : 0;
}

static double wait_part_of(const struct estimates *estimates, int32_t policy_class) {
    return estimates_wait_part(estimates, policy_class_at(estimates, policy_class)->micro_batches_per_wave);
}

static double with_exposed(const struct estimates *estimates, const struct policy_seconds *seconds, double share) {
    if (estimates->input->objective == OBJECTIVE_SUM) return outcome_min_s(estimates->input, seconds);
    return (seconds->step_s + share * (seconds->serial_s - seconds->step_s)) / stages_of(estimates);
}

double estimates_placement_s(const struct estimates *estimates, const struct placement *placement) {
    return with_exposed(estimates, &placement->min, EXPOSED_SHARE[LOOKAHEADS - 1]);
}

double estimates_policy_class_s(const struct estimates *estimates, int32_t policy_class,
                                const struct policy_seconds *seconds) {
    const struct kind_estimate *kind = &estimates->kinds[kind_of(estimates, policy_class)];
    const struct kind_estimate *placed = &estimates->placed[placed_of(estimates, policy_class)];
    double share = kind->timed ? kind->exposed_share
                               : EXPOSED_SHARE[policy_class_copy_way(policy_class_at(estimates, policy_class))];
    /* With other schedules too, ranks wait for each other as long. */
    if (!kind->timed && placed->timed && estimates->space->sharding_options.count > 1) share = placed->exposed_share;
    return with_exposed(estimates, seconds, share) * (1 + wait_part_of(estimates, policy_class));
}

/* ---- bytes ---- */

bool estimates_doubt_below(const struct estimates *estimates, int32_t policy_class, const struct policy_bound *bound) {
    const struct excess *own = &estimates->excesses.items[policy_class];
    const struct excess *excess = own->learned ? own : &estimates->lower[lower_of(estimates, policy_class)];
    bool doubtful = false;
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        doubtful |= bound->bytes[tier] + excess->bytes[tier] > estimates->space->capacity_bytes[tier];
    return doubtful;
}

bool estimates_doubt(const struct estimates *estimates, int32_t policy_class, const struct policy_bound *bound) {
    if (estimates_doubt_below(estimates, policy_class, bound)) return true;
    const struct excess *own = &estimates->excesses.items[policy_class];
    const struct kind_estimate *kind = &estimates->kinds[kind_of(estimates, policy_class)];
    int64_t bytes = bound->likely_bytes;
    if (own->learned)
        bytes = bound->bytes[TIER_DEVICE] + own->bytes[TIER_DEVICE];
    else if (kind->sized)
        bytes = (int64_t)(kind->bytes_factor * (double)bytes);
    return (double)bytes * estimates->margin > (double)estimates->space->capacity_bytes[TIER_DEVICE];
}

bool estimates_know(const struct estimates *estimates, int32_t policy_class) {
    return estimates->excesses.items[policy_class].learned;
}

/* ---- learning ---- */

static void learn_excess(const struct estimates *estimates, const struct policy_bound *bound, const struct trial *trial,
                         struct excess *learned) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        int64_t excess = trial->tier_bytes[tier] * stages_of(estimates) - bound->bytes[tier];
        if (!learned->learned || excess < learned->bytes[tier]) learned->bytes[tier] = excess;
    }
    learned->learned = true;
}

static void learn_factor(struct kind_estimate *kind, const struct policy_bound *bound, int64_t device_bytes) {
    double factor = (double)device_bytes / (double)(bound->likely_bytes + 1);
    if (!kind->sized || factor < kind->bytes_factor) kind->bytes_factor = factor;
    kind->sized = true;
}

/* A pipeline may wait less than is expected of it (interleaved ones do); no time is negative. */
static void learn_exposed(struct kind_estimate *estimate, double exposed) {
    exposed = fmax(exposed, 0);
    if (!estimate->timed || exposed < estimate->exposed_share) estimate->exposed_share = exposed;
    estimate->timed = true;
}

void estimates_learn(struct estimates *estimates, int32_t policy_class, const struct policy_bound *bound,
                     const struct trial *trial, bool any) {
    estimates->margin = any ? 1 : estimates->margin * MORE_MARGIN;
    learn_excess(estimates, bound, trial, &estimates->lower[lower_of(estimates, policy_class)]);
    learn_excess(estimates, bound, trial, &estimates->excesses.items[policy_class]);
    learn_factor(&estimates->kinds[kind_of(estimates, policy_class)], bound,
                 trial->tier_bytes[TIER_DEVICE] * stages_of(estimates));
    double hidden_s = bound->seconds.serial_s - bound->seconds.step_s;
    if (trial->step_s <= 0 || hidden_s <= 0) return;
    double worked_s = trial->step_s * stages_of(estimates) / (1 + wait_part_of(estimates, policy_class));
    double exposed = (worked_s - bound->seconds.step_s) / hidden_s;
    learn_exposed(&estimates->kinds[kind_of(estimates, policy_class)], exposed);
    learn_exposed(&estimates->placed[placed_of(estimates, policy_class)], exposed);
}
