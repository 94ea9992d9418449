/* Cuts a step into lanes and rounds for one rank: the micro-batches that it adds up, in order, and the sums that
 * follow.
 *
 * With S micro-batches, L lanes and c = ceil(S / L), lane l has the micro-batches [l c, (l + 1) c) below S, and round r
 * of a lane has its micro-batches [r G, (r + 1) G), where G is recipe.round_micro_batches (0: c). In a round each lane
 * adds up its micro-batches in order; then lanes are added by their tree (collective/lane_tree.h), and rounds in order.
 * Lanes without micro-batches add nothing.
 *
 * LEVELS. A rank that holds several lanes keeps partial sums. Level 0 is the gradients' own buffers: the sum of the
 * first round is made there, and there each later round is added. The levels from 1 on are partial sums: a left child
 * is added up in its parent's level, the right one in the next, so that no sum is copied.
 *
 * Where recipe.reduce_dtype is bf16 every edge of the lanes' tree rounds; rounds are added as they are. */
#pragma once

#include "plan/plan.h"

enum lane_sum_kind {
    LANE_SUM_ADD,   /* level `to` = level `to` + level `from`, which is done with */
    LANE_SUM_ROUND, /* level `to` is rounded to bf16: an edge of the tree without another next to it */
    LANE_SUM_REDUCE /* level `to` = its sum over all ranks by the tree above the ranks (lane_tree_top) */
};

struct lane_sum_step {
    enum lane_sum_kind kind;
    int to, from;
    bool rounds; /* LANE_SUM_ADD: both are rounded to bf16 before, as edges of the tree are */
};

/* Consecutive micro-batches of one lane. A rank that has none in a round has one share there without micro-batches, for
 * its sums. */
struct lane_share {
    int64_t round;
    int lane;                                 /* -1: without micro-batches */
    int64_t first_micro_batch, micro_batches; /* counted from the rank's first */
    int level;               /* where they are added up; without micro-batches: where the round's sum arrives */
    int32_t first_sum, sums; /* steps that follow this share */
};

struct lane_shares {
    VEC(struct lane_share) list;     /* in the order in which the rank computes them: rounds, and within one lanes */
    VEC(struct lane_sum_step) steps; /* in the order of shares */
    int levels;                      /* at least 1 */
    int64_t first_micro_batch,
        micro_batches; /* of the step: the rank's are [first_micro_batch, first_micro_batch + micro-batches) */
    int64_t rounds;
};

/* BAD_INPUT if this many ranks cannot hold the lanes. The caller frees with lane_shares_free, also after a failure. */
enum status lane_shares_create(const struct recipe *recipe, const struct rank_place *place, struct lane_shares *out);
void lane_shares_free(struct lane_shares *shares);

/* The step's micro-batches of a lane in a round. */
struct micro_batch_range {
    int64_t first, count;
};
struct micro_batch_range lane_shares_micro_batches(const struct recipe *recipe, int lane, int64_t round);
/* empty[r]: whether rank r has nothing to add in a round. BAD_INPUT as above. */
enum status lane_shares_find_empty(const struct recipe *recipe, const struct rank_place *place, int64_t round,
                                   bool *empty);
/* Whether all ranks have the same numbers of lanes and micro-batches. BAD_INPUT as above. */
enum status lane_shares_find_equal(const struct recipe *recipe, const struct rank_place *place, bool *equal);
/* The step's sum of a number that each share has, such as its loss, added as gradients are: by[round * lanes + lane]
 * of those with micro-batches. `tree` is that of the recipe's lanes. */
double lane_shares_total(const struct recipe *recipe, const struct lane_tree *tree, const double *by);

/* Lanes and ranks for which a batch has no micro-batches. */

/* Lanes or ranks that a batch leaves without micro-batches, and the nearest settings that leave none idle (0: there are
 * none). */
struct idle_lanes {
    int lanes, ranks;  /* without micro-batches */
    int64_t batch;     /* the next one that gives every lane as many */
    int lanes_instead; /* the most, fewer than there are, that these ranks hold and that all get micro-batches */
    int64_t micro_batch_instead; /* sequences: the largest smaller micro-batch with which all lanes get some */
};

/* The plan has been checked. FAILED if out of memory. */
enum status idle_lanes_find(const struct plan *plan, struct idle_lanes *out);
/* Warns about idle lanes and suggests other settings. Prints nothing if all lanes have micro-batches. */
enum status idle_lanes_warn(const struct plan *plan);
