/* What lanes, rounds and ranks make of a step, for bounds: the rank's micro-batches in shares, each in waves of its
 * own, and the sums that follow (plan/lane_shares.h). */
#ifndef BALLAST_SEARCH_STEP_CUT_H
#define BALLAST_SEARCH_STEP_CUT_H

#include "plan/lane_shares.h"
#include "search/states.h"

struct step_cut {
    struct lane_shares shares;
    struct rank_place place;
    struct lane_shape lanes;
    bool rounds_sums;   /* recipe.reduce_dtype is bf16 */
    int64_t computed;   /* shares with micro-batches */
    int64_t adds;       /* of each pack of sums, in a step */
    int64_t reductions; /* those to which every rank adds something */
    int32_t deepest; /* the share with micro-batches next to which most levels wait, the first of several; -1: none */
};

/* The cut that a program of the graph has (program_cut). The caller frees with step_cut_free, also after a failure. */
enum status step_cut_create(const struct graph *graph, const struct recipe *recipe, const struct rank_place *place,
                            struct step_cut *out);
void step_cut_free(struct step_cut *cut);

/* Of all shares. */
int64_t step_cut_waves(const struct step_cut *cut, int64_t micro_batches_per_wave);

/* Micro-batches of a wave, 0: there is none: the first of the step, the first of the deepest share, and the largest of
 * those that go on with a share. */
struct cut_waves {
    int64_t first, deepest, later;
};
struct cut_waves step_cut_largest(const struct step_cut *cut, int64_t micro_batches_per_wave);
/* Levels that wait next to the deepest share. */
static inline int64_t step_cut_waiting(const struct step_cut *cut) {
    return cut->deepest < 0 ? 0 : cut->shares.list.items[cut->deepest].level;
}

#endif
