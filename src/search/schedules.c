#include "search/schedules.h"

#include <stdlib.h>
#include <string.h>

#include "plan/activations.h"
#include "plan/plan.h"
#include "plan/rotor.h"

/* Of the largest budget. The solver's time grows with them: 15 ms at 98 blocks, which fill a hundredth of a wave each.
 */
enum { SOLVER_SLOTS = 64 };

/* Blocks from the first layer on: `moved` of them, then `recomputed` ones; the rest is kept. */
struct split {
    int32_t moved, recomputed;
    bool inputs; /* of all layers move, the recomputed ones' too */
};

static enum status push(struct activation_steps *steps, enum activation_action action, int32_t block, enum tier tier) {
    return vec_push(&steps->list, (struct activation_step){action, block, tier});
}

/* The embedding is no work and the head's backward comes at once: neither is recomputed, and what the head made is not
 * moved. */
static enum status write_steps(int32_t blocks, const struct split *split, enum tier tier,
                               struct activation_steps *steps) {
    int32_t moving = split->inputs ? blocks - 1 : split->moved > 0 ? 1 + split->moved : 0;
    for (int32_t i = 0; i < blocks; i++)
        TRY(push(steps, ACTIVATION_FORWARD, i, TIER_DEVICE));
    for (int32_t i = 0; i < moving; i++)
        TRY(push(steps, ACTIVATION_MOVE, i, tier));
    for (int32_t i = blocks; i-- > 0;) {
        bool again = i > split->moved && i <= split->moved + split->recomputed;
        if (again) TRY(push(steps, ACTIVATION_FORWARD, i, TIER_DEVICE));
        TRY(push(steps, ACTIVATION_BACKWARD, i, TIER_DEVICE));
    }
    return STATUS_OK;
}

/* One that no text of a policy holds is left out, and one that is there. */
static enum status add_steps(struct schedule_list *out, enum schedule_kind kind, enum tier tier,
                             const struct activation_steps *steps) {
    char text[POLICY_SCHEDULE_BYTES];
    if (activations_print(steps, text, sizeof text) != STATUS_OK) return STATUS_OK;
    for (size_t i = 0; i < out->list.count; i++)
        if (strcmp(out->list.items[i].text, text) == 0) return STATUS_OK;
    char *kept = scratch_format(&out->memory, "%s", text);
    if (!kept) return STATUS_FAILED;
    return vec_push(&out->list, (struct schedule){kind, tier, -1, kept});
}

static enum status add_split(struct schedule_list *out, enum schedule_kind kind, enum tier tier, int32_t blocks,
                             struct split split) {
    struct activation_steps steps = {0};
    enum status status;
    TRY_GOTO(status, write_steps(blocks, &split, tier, &steps), done);
    TRY_GOTO(status, add_steps(out, kind, tier, &steps), done);
done:
    activation_steps_free(&steps);
    return status;
}

/* The k-th of `max` counts up to `layers`. */
static int32_t count_of(int32_t layers, int32_t max, int32_t k) {
    return (int32_t)(((int64_t)layers * k + max - 1) / max);
}

static enum status add_moving(struct schedule_list *out, enum tier tier, int32_t blocks, int32_t max) {
    int32_t layers = blocks - 2, coarse = max < 4 ? max : 4;
    for (int32_t k = 1; k <= max; k++)
        TRY(add_split(out, SCHEDULE_MOVE, tier, blocks, (struct split){count_of(layers, max, k), 0, false}));
    for (int32_t k = 1; k < coarse; k++)
        for (int32_t m = 1; m + k <= coarse; m++) {
            int32_t moved = count_of(layers, coarse, k), both = count_of(layers, coarse, k + m);
            TRY(add_split(out, SCHEDULE_MOVE_RECOMPUTE, tier, blocks, (struct split){moved, both - moved, false}));
        }
    return add_split(out, SCHEDULE_RECOMPUTE_INPUTS, tier, blocks, (struct split){0, layers, true});
}

/* Segments of `length` layers, each computed again from the input of its first, then once more layer by layer. */
static enum status write_nested(int32_t blocks, int32_t length, struct activation_steps *steps) {
    for (int32_t i = 0; i < blocks; i++)
        TRY(push(steps, ACTIVATION_FORWARD, i, TIER_DEVICE));
    for (int32_t i = blocks; i-- > 0;) {
        bool layer = i > 0 && i < blocks - 1;
        int32_t first = layer ? i - (i - 1) % length : i;
        bool ends = layer && (i == blocks - 2 || i % length == 0);
        for (int32_t k = first; ends && k < i; k++)
            TRY(push(steps, ACTIVATION_FORWARD, k, TIER_DEVICE));
        if (layer) TRY(push(steps, ACTIVATION_FORWARD, i, TIER_DEVICE));
        TRY(push(steps, ACTIVATION_BACKWARD, i, TIER_DEVICE));
    }
    return STATUS_OK;
}

static enum status add_nested(struct schedule_list *out, int32_t blocks, int32_t length) {
    struct activation_steps steps = {0};
    enum status status;
    TRY_GOTO(status, write_nested(blocks, length, &steps), done);
    TRY_GOTO(status, add_steps(out, SCHEDULE_NESTED, TIER_DEVICE, &steps), done);
done:
    activation_steps_free(&steps);
    return status;
}

enum status schedules_list(int32_t blocks, const bool tiers[TIER_COUNT], int32_t max, struct schedule_list *out) {
    int32_t layers = blocks - 2;
    *out = (struct schedule_list){0};
    TRY(vec_push(&out->list, (struct schedule){SCHEDULE_KEEP, TIER_DEVICE, -1, ""}));
    if (max > layers) max = layers;
    for (int32_t k = 1; k <= max; k++)
        TRY(add_split(out, SCHEDULE_RECOMPUTE, TIER_DEVICE, blocks,
                      (struct split){0, count_of(layers, max, k), false}));
    int32_t before = 0, here = 0; /* where the schedules of the tier before begin, and those of this one; 0: none */
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT && max > 0; tier++) {
        if (!tiers[tier]) continue;
        before = here, here = (int32_t)out->list.count;
        TRY(add_moving(out, tier, blocks, max));
        for (int32_t i = here; i < (int32_t)out->list.count && before > 0; i++)
            out->list.items[i].twin = before + i - here;
    }
    for (int32_t length = 2; length < layers; length *= 2)
        TRY(add_nested(out, blocks, length));
    return STATUS_OK;
}

static enum status add_solved(const struct recompute_schedule *solved, struct schedule_list *out) {
    struct activation_steps steps;
    if (solved->count == 0) return STATUS_OK;
    enum status status = activations_from_recompute(solved, &steps);
    if (status == STATUS_OK) status = add_steps(out, SCHEDULE_FASTEST, TIER_DEVICE, &steps);
    activation_steps_free(&steps);
    return status;
}

/* `chain` and `slots` in slots. */
static enum status solve(const struct chain *chain, const int64_t *slots, int count, struct schedule_list *out) {
    struct recompute_schedule solved[BUDGETS_MAX];
    struct recompute_cost costs[BUDGETS_MAX];
    enum status status = rotor_solve_each(chain, slots, count, solved, costs);
    for (int i = 0; i < count && status == STATUS_OK; i++)
        status = add_solved(&solved[i], out);
    for (int i = 0; i < count; i++)
        vec_free(&solved[i]);
    return status;
}

static int compare_slots(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

enum status schedules_add_fastest(const struct chain *chain, const int64_t *budgets_bytes, int count,
                                  struct schedule_list *out) {
    int64_t max = 0, slots[BUDGETS_MAX];
    int used = 0;
    for (int i = 0; i < count; i++)
        if (budgets_bytes[i] > max) max = budgets_bytes[i];
    if (max < SOLVER_SLOTS || chain->count > SOLVED_BLOCKS_MAX) return STATUS_OK;
    for (int i = 0; i < count && used < BUDGETS_MAX; i++)
        if (budgets_bytes[i] > 0) slots[used++] = (int64_t)((__int128)budgets_bytes[i] * SOLVER_SLOTS / max);
    qsort(slots, (size_t)used, sizeof *slots, compare_slots);
    struct chain rounded;
    TRY(chain_discretise(chain, max, SOLVER_SLOTS, &rounded));
    enum status status = solve(&rounded, slots, used, out);
    chain_free(&rounded);
    return status;
}

void schedules_free(struct schedule_list *schedules) {
    vec_free(&schedules->list);
    scratch_free(&schedules->memory);
}
