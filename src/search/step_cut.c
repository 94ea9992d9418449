#include "search/step_cut.h"

#include "compiler/program.h"
#include "plan/movement.h"

static enum status count_reductions(struct step_cut *cut, const struct recipe *recipe) {
    int ranks = rank_place_data(&cut->place);
    bool *empty = mem_array((size_t)ranks, sizeof *empty);
    enum status status = empty ? STATUS_OK : STATUS_FAILED;
    for (int64_t round = 0; ranks > 1 && round < cut->shares.rounds && status == STATUS_OK; round++) {
        bool any = false;
        status = lane_shares_find_empty(recipe, &cut->place, round, empty);
        for (int rank = 0; rank < ranks && status == STATUS_OK; rank++)
            any |= empty[rank];
        cut->reductions += !any;
    }
    mem_free(empty);
    return status;
}

enum status step_cut_create(const struct graph *graph, const struct recipe *recipe, const struct rank_place *place,
                            struct step_cut *out) {
    *out = (struct step_cut){.deepest = -1, .lanes = recipe->lanes, .rounds_sums = recipe->reduce_dtype == DTYPE_BF16};
    if (graph_has_backward(graph)) out->place = *place;
    TRY(program_cut(graph, recipe, place, &out->shares));
    for (size_t i = 0; i < out->shares.list.count; i++) {
        const struct lane_share *share = &out->shares.list.items[i];
        if (share->micro_batches == 0) continue;
        out->computed++;
        if (share->level > step_cut_waiting(out) || out->deepest < 0) out->deepest = (int32_t)i;
    }
    for (size_t i = 0; i < out->shares.steps.count; i++)
        out->adds += out->shares.steps.items[i].kind != LANE_SUM_REDUCE;
    return graph_has_backward(graph) ? count_reductions(out, recipe) : STATUS_OK;
}

void step_cut_free(struct step_cut *cut) { lane_shares_free(&cut->shares); }

int64_t step_cut_waves(const struct step_cut *cut, int64_t micro_batches_per_wave) {
    int64_t waves = 0;
    for (size_t i = 0; i < cut->shares.list.count; i++)
        if (cut->shares.list.items[i].micro_batches > 0)
            waves += movement_split_waves(cut->shares.list.items[i].micro_batches, micro_batches_per_wave).count;
    return waves;
}

static int64_t opening_micro_batches(const struct lane_share *share, int64_t micro_batches_per_wave) {
    return share->micro_batches < micro_batches_per_wave ? share->micro_batches : micro_batches_per_wave;
}

struct cut_waves step_cut_largest(const struct step_cut *cut, int64_t micro_batches_per_wave) {
    struct cut_waves waves = {0};
    for (size_t i = 0; i < cut->shares.list.count; i++) {
        const struct lane_share *share = &cut->shares.list.items[i];
        if (share->micro_batches == 0) continue;
        struct wave_split split = movement_split_waves(share->micro_batches, micro_batches_per_wave);
        int64_t later = split.count == 1 ? 0 : split.count > 2 ? split.micro_batches : split.last_micro_batches;
        if (i == 0) waves.first = opening_micro_batches(share, micro_batches_per_wave);
        if (later > waves.later) waves.later = later;
    }
    if (step_cut_waiting(cut) > 0)
        waves.deepest = opening_micro_batches(&cut->shares.list.items[cut->deepest], micro_batches_per_wave);
    return waves;
}
