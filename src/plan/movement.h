/* The rules by which a policy moves things, in one place: the compiler applies them to a program (program/), the search
 * to whole policy classes (search/). Groups are those of compiler/executions.h, numbered from 0. */
#pragma once

#include "base/base.h"
#include "plan/plan.h"

/* How a share's micro-batches (plan/lane_shares.h) are cut into waves: all have `micro_batches`, but for the last one.
 */
struct wave_split {
    int64_t count, micro_batches, last_micro_batches;
};
static inline struct wave_split movement_split_waves(int64_t micro_batches, int64_t micro_batches_per_wave) {
    int64_t count = (micro_batches + micro_batches_per_wave - 1) / micro_batches_per_wave;
    return (struct wave_split){count, micro_batches_per_wave, micro_batches - (count - 1) * micro_batches_per_wave};
}

/* A buffer that is used away from its home tier is fetched and stored by copies, each of which has `lookahead` groups
 * to overlap. The fetch stands before this group when the first use is in `group` … */
static inline int64_t movement_fetch_group(int64_t group, int64_t lookahead) {
    return group > lookahead ? group - lookahead : 0;
}
/* … and the store before this one when the last use is in `group`; it may be past the last group. */
static inline int64_t movement_store_group(int64_t group, int64_t lookahead) { return group + 1 + lookahead; }
/* Whether a buffer stays between two uses: there is no space for a store and a fetch. */
static inline bool movement_stays(int64_t group, int64_t next_group, int64_t lookahead) {
    return next_group < movement_store_group(group, lookahead) + lookahead + 1;
}
/* A chunk's deferred update stands before the forward of this block, where `block` is the first to use the chunk: one
 * lookahead for the update's results to leave, one for the parameters to be fetched. With `update_ahead` blocks more,
 * state is fetched and updated while as many blocks are computed, and is in memory no longer; the first block's, the
 * embedding's, is often the largest, so no other is there then. */
static inline int64_t movement_update_block(int64_t block, const struct policy *policy) {
    int64_t ahead = 2 * policy->lookahead + policy->update_ahead;
    int64_t first = policy->update_ahead > 0 && block > 0;
    return block > first + ahead ? block - ahead : first;
}
