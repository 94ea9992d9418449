/* The activation schedules that a search tries (ProTrain, arXiv 2406.08334, section 3.2): the first blocks' activations
 * are moved to another tier, since most compute is left to hide the copies; the next blocks are recomputed; the last
 * are kept. For less memory, also recomputation from inputs in another tier, and of several layers from one input. */
#ifndef BALLAST_SEARCH_SCHEDULES_H
#define BALLAST_SEARCH_SCHEDULES_H

#include "base/mem.h"
#include "machine/tier.h"
#include "plan/chain.h"

enum schedule_kind {
    SCHEDULE_KEEP,
    SCHEDULE_RECOMPUTE,        /* some blocks */
    SCHEDULE_MOVE,             /* some blocks' activations go to another tier */
    SCHEDULE_MOVE_RECOMPUTE,   /* some of each */
    SCHEDULE_RECOMPUTE_INPUTS, /* all blocks, from inputs in another tier */
    SCHEDULE_NESTED,           /* several blocks recomputed from one input */
    SCHEDULE_FASTEST,          /* found by a solver for a budget of bytes (plan/rotor.h) */
    SCHEDULE_KINDS
};

struct schedule {
    enum schedule_kind kind;
    enum tier tier; /* where moved activations wait; the device: none are moved */
    int32_t twin;   /* an earlier one in the list that differs in the tier alone; -1: none */
    const char *text;
};

struct schedule_list {
    VEC(struct schedule) list;
    struct scratch memory; /* of the texts */
};

/* For `blocks` blocks, embedding and head among them. `tiers`: whether activations may wait there. `max`: how many
 * numbers of moved or recomputed blocks are tried of each kind, spread evenly. The caller frees, also after a failure.
 */
enum status schedules_list(int32_t blocks, const bool tiers[TIER_COUNT], int32_t max, struct schedule_list *out);
/* Adds the fastest schedules (plan/rotor.h) whose activations of one micro-batch stay within budgets of bytes, those
 * that are not in the list yet. Nothing is added where no schedule stays within a budget, nor for more than
 * SOLVED_BLOCKS_MAX blocks. */
enum { SOLVED_BLOCKS_MAX = 128, BUDGETS_MAX = 8 };
enum status schedules_add_fastest(const struct chain *chain, const int64_t *budgets_bytes, int count,
                                  struct schedule_list *out);
void schedules_free(struct schedule_list *schedules);

#endif
