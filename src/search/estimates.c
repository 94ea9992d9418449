#include "search/estimates.h"

#include <math.h>

#include "search/policy_outcomes.h"

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
    while (estimates->excesses.count < estimates->space->families.count)
        TRY(vec_push(&estimates->excesses, (struct excess){.learned = false}));
    return STATUS_OK;
}

/* ---- where what is learned is kept ---- */

static const struct family *family_at(const struct estimates *estimates, int32_t index) {
    return &estimates->space->families.items[index];
}

static int32_t kind_of(const struct estimates *estimates, int32_t index) {
    const struct family *family = family_at(estimates, index);
    const struct schedule *schedule = space_schedule(estimates->space, family);
    int32_t kind = (int32_t)schedule->kind * TIER_COUNT + (int32_t)schedule->tier;
    kind = kind * COPY_WAYS + family_copy_way(family);
    return kind * SPACE_FITS + space_fit_number(&family->at);
}

static int32_t placed_of(const struct estimates *estimates, int32_t index) {
    const struct family *family = family_at(estimates, index);
    return space_gathers(estimates->space, family) * SPACE_FITS + space_fit_number(&family->at);
}

static int32_t lower_of(const struct estimates *estimates, int32_t index) {
    const struct family *family = family_at(estimates, index);
    const enum tier at[] = {family->at.parameters, family->at.gradients, family->at.optimizer, family->at.update};
    int32_t number = family_copy_way(family);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        number = number * TIER_COUNT + (int32_t)at[i];
    return number;
}

/* ---- seconds ---- */

static int stages_of(const struct estimates *estimates) { return rank_place_stages(&estimates->input->place); }

double estimates_wait_part(const struct estimates *estimates, int64_t micro_batches) {
    if (stages_of(estimates) == 1) return 0;
    int64_t waves = step_cut_waves(&estimates->space->cut, micro_batches);
    return waves > 0 ? (double)(stages_of(estimates) - 1) / (double)waves : 0;
}

static double wait_part_of(const struct estimates *estimates, int32_t family) {
    return estimates_wait_part(estimates, family_at(estimates, family)->micro_batches_per_wave);
}

static double with_exposed(const struct estimates *estimates, const struct policy_seconds *seconds, double share) {
    if (estimates->input->objective == OBJECTIVE_SUM) return outcome_min_s(estimates->input, seconds);
    return (seconds->step_s + share * (seconds->serial_s - seconds->step_s)) / stages_of(estimates);
}

double estimates_clan_s(const struct estimates *estimates, const struct clan *clan) {
    return with_exposed(estimates, &clan->min, EXPOSED_SHARE[LOOKAHEADS - 1]);
}

double estimates_family_s(const struct estimates *estimates, int32_t family, const struct policy_seconds *seconds) {
    const struct kind_estimate *kind = &estimates->kinds[kind_of(estimates, family)];
    const struct kind_estimate *placed = &estimates->placed[placed_of(estimates, family)];
    double share = kind->timed ? kind->exposed_share : EXPOSED_SHARE[family_copy_way(family_at(estimates, family))];
    /* With other schedules too, ranks wait for each other as long. */
    if (!kind->timed && placed->timed && estimates->space->divisions.count > 1) share = placed->exposed_share;
    return with_exposed(estimates, seconds, share) * (1 + wait_part_of(estimates, family));
}

/* ---- bytes ---- */

bool estimates_doubt_below(const struct estimates *estimates, int32_t family, const struct policy_bound *bound) {
    const struct excess *own = &estimates->excesses.items[family];
    const struct excess *excess = own->learned ? own : &estimates->lower[lower_of(estimates, family)];
    bool doubtful = false;
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        doubtful |= bound->bytes[tier] + excess->bytes[tier] > estimates->space->capacity_bytes[tier];
    return doubtful;
}

bool estimates_doubt(const struct estimates *estimates, int32_t family, const struct policy_bound *bound) {
    if (estimates_doubt_below(estimates, family, bound)) return true;
    const struct excess *own = &estimates->excesses.items[family];
    const struct kind_estimate *kind = &estimates->kinds[kind_of(estimates, family)];
    int64_t bytes = bound->likely_bytes;
    if (own->learned)
        bytes = bound->bytes[TIER_DEVICE] + own->bytes[TIER_DEVICE];
    else if (kind->sized)
        bytes = (int64_t)(kind->bytes_factor * (double)bytes);
    return (double)bytes * estimates->margin > (double)estimates->space->capacity_bytes[TIER_DEVICE];
}

bool estimates_know(const struct estimates *estimates, int32_t family) {
    return estimates->excesses.items[family].learned;
}

/* ---- learning ---- */

static void learn_excess(const struct estimates *estimates, const struct policy_bound *bound,
                         const struct candidate *candidate, struct excess *learned) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        int64_t excess = candidate->tier_bytes[tier] * stages_of(estimates) - bound->bytes[tier];
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

void estimates_learn(struct estimates *estimates, int32_t family, const struct policy_bound *bound,
                     const struct candidate *candidate, bool any) {
    estimates->margin = any ? 1 : estimates->margin * MORE_MARGIN;
    learn_excess(estimates, bound, candidate, &estimates->lower[lower_of(estimates, family)]);
    learn_excess(estimates, bound, candidate, &estimates->excesses.items[family]);
    learn_factor(&estimates->kinds[kind_of(estimates, family)], bound,
                 candidate->tier_bytes[TIER_DEVICE] * stages_of(estimates));
    double hidden_s = bound->seconds.serial_s - bound->seconds.step_s;
    if (candidate->step_s <= 0 || hidden_s <= 0) return;
    double worked_s = candidate->step_s * stages_of(estimates) / (1 + wait_part_of(estimates, family));
    double exposed = (worked_s - bound->seconds.step_s) / hidden_s;
    learn_exposed(&estimates->kinds[kind_of(estimates, family)], exposed);
    learn_exposed(&estimates->placed[placed_of(estimates, family)], exposed);
}
