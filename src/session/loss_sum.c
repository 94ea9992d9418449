#include "session/loss_sum.h"

enum status loss_sum_create(const struct plan *plan, struct loss_sum *out) {
    *out = (struct loss_sum){.recipe = &plan->recipe};
    TRY(lane_tree_of_shape(&plan->recipe.lanes, &out->tree));
    TRY(lane_shares_create(&plan->recipe, &plan->place, &out->shares));
    out->by = mem_array((size_t)(out->shares.rounds * out->tree.lanes), sizeof *out->by);
    return out->by ? STATUS_OK : STATUS_FAILED;
}

void loss_sum_free(struct loss_sum *sum) {
    lane_tree_free(&sum->tree);
    lane_shares_free(&sum->shares);
    mem_free(sum->by);
}

void loss_sum_take(struct loss_sum *sum, const double *slots) {
    for (size_t i = 0; i < sum->shares.list.count; i++) {
        const struct lane_share *share = &sum->shares.list.items[i];
        if (share->grains > 0) sum->by[share->round * sum->tree.lanes + share->lane] = slots[i];
    }
}

double loss_sum_total(const struct loss_sum *sum) { return lane_shares_total(sum->recipe, &sum->tree, sum->by); }
