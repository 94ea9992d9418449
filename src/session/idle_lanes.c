#include "session/idle_lanes.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "plan/lane_shares.h"

/* Of so many lanes, each of which has ceil(micro-batches / lanes) as long as there are any. */
static int count_idle(int64_t micro_batches, int lanes) {
    int64_t each = (micro_batches + lanes - 1) / lanes;
    return lanes - (int)((micro_batches + each - 1) / each);
}

static bool can_hold(int lanes, int ranks) {
    struct lane_tree tree;
    if (lane_tree_create(1, lanes, &tree) != STATUS_OK) return false;
    bool held = lane_tree_holds(&tree, ranks);
    lane_tree_free(&tree);
    return held;
}

static enum status count_idle_ranks(const struct plan *plan, int *out) {
    int ranks = rank_place_data(&plan->place);
    bool *empty = mem_array((size_t)ranks, sizeof *empty);
    if (!empty) return STATUS_FAILED;
    enum status status = lane_shares_find_empty(&plan->recipe, &plan->place, 0, empty);
    *out = 0;
    for (int r = 0; r < ranks; r++)
        *out += empty[r];
    mem_free(empty);
    return status;
}

enum status idle_lanes_find(const struct plan *plan, struct idle_lanes *out) {
    const struct recipe *recipe = &plan->recipe;
    int lanes = lane_shape_lanes(&recipe->lanes), ranks = rank_place_data(&plan->place);
    int64_t micro_batches = recipe_micro_batches(recipe), whole = recipe->micro_batch_sequences * lanes;
    *out = (struct idle_lanes){.lanes = count_idle(micro_batches, lanes)};
    if (out->lanes == 0) return STATUS_OK;
    if (ranks > 1) TRY(count_idle_ranks(plan, &out->ranks));
    out->batch = (recipe->batch + whole - 1) / whole * whole;
    for (int n = lanes - 1; n >= ranks && out->lanes_instead == 0; n--)
        if (count_idle(micro_batches, n) == 0 && can_hold(n, ranks)) out->lanes_instead = n;
    for (int64_t g = recipe->micro_batch_sequences - 1; g >= 1 && out->micro_batch_instead == 0; g--)
        if (count_idle((recipe->batch + g - 1) / g, lanes) == 0) out->micro_batch_instead = g;
    return STATUS_OK;
}

enum status idle_lanes_warn(const struct plan *plan) {
    struct idle_lanes idle;
    char ranks[64] = "", lanes[32] = "", micro_batch[48] = "";
    TRY(idle_lanes_find(plan, &idle));
    if (idle.lanes == 0) return STATUS_OK;
    if (idle.ranks > 0)
        snprintf(ranks, sizeof ranks, ", and %d of %d ranks nothing to compute", idle.ranks,
                 rank_place_data(&plan->place));
    if (idle.lanes_instead > 0) snprintf(lanes, sizeof lanes, " or --lanes %d", idle.lanes_instead);
    if (idle.micro_batch_instead > 0)
        snprintf(micro_batch, sizeof micro_batch, " or --micro-batch %" PRId64, idle.micro_batch_instead);
    int64_t micro_batches = recipe_micro_batches(&plan->recipe);
    log_warning("a batch of %" PRId64 " %s leaves %d of %d lanes empty%s; --batch %" PRId64
                "%s%s gives each of them micro-batches",
                micro_batches, micro_batches == 1 ? "micro-batch" : "micro-batches", idle.lanes,
                lane_shape_lanes(&plan->recipe.lanes), ranks, idle.batch, lanes, micro_batch);
    return STATUS_OK;
}
