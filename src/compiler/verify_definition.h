/* What a step must compute, from the recipe's and the graph's definition alone: for verify_sums. */
#ifndef BALLAST_COMPILER_VERIFY_DEFINITION_H
#define BALLAST_COMPILER_VERIFY_DEFINITION_H

#include "collective/lane_tree.h"
#include "compiler/verify_cells.h"

enum { DEFINITION_STEPS = 2 };

/* ---- values ---- */

static inline value value_mix(value a, value b) {
    value x = (a ^ b >> 32) * 0x9e3779b97f4a7c15u + b;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9u;
    return (x ^ x >> 29) | 1;
}

static inline value value_add(value left, value right) { return value_mix(value_mix(left, '+'), right); }
static inline value value_round(value sum) { return sum ? value_mix(sum, 'r') : 0; }
static inline value value_add_use(value sum, value use) { return value_mix(value_mix(sum, 'u'), use); }
static inline value value_add_micro_batch(value sum, const struct node *node, int64_t micro_batch) {
    return value_mix(value_mix(sum, (value)node->id + 1), (value)micro_batch + 1);
}
static inline value value_zero(int64_t step, int64_t cell) {
    return value_mix(value_mix((value)step + 1, 'z'), (value)cell + 1);
}
static inline value value_squares(value gradient) { return value_mix(gradient, 's'); }
/* Of the parameter or of one of its states. */
static inline value value_updated(value old, value gradient) { return value_mix(value_mix(old, 'w'), gradient); }

/* Of a parameter that an update overwrites: it is made of what its master becomes, whatever it was. */
static inline value value_rounded(value master, value gradient) { return value_round(value_updated(master, gradient)); }
/* The output from whose old value an update makes output i: i itself, or for what is overwritten the master. */
int definition_source(const struct node *update, int i);

/* The value of a tree's node, whose edges may round, from each lane's, `stride` apart; 0: the lane has nothing. */
value value_tree_sum(const struct lane_tree *tree, int node, bool rounds, const value *lanes, size_t stride);

/* ---- steps ---- */

struct definition {
    const struct cells *cells;
    struct lane_tree tree; /* the recipe's lanes */
    bool edges_round;      /* to bf16 */
    int64_t micro_batches, in_lane, in_share, rounds;
    value *gradients[DEFINITION_STEPS]; /* by cell: finished, in each step */
    value *kept[DEFINITION_STEPS + 1];  /* by cell: parameters and states when so many steps are done */
};

/* The caller frees, also after a failure. */
enum status definition_create(const struct cells *cells, const struct recipe *recipe, struct definition *out);
void definition_free(struct definition *definition);

/* How many micro-batches a lane adds up in a round, and the step's number of the first. */
int64_t definition_micro_batches(const struct definition *definition, int lane, int64_t round, int64_t *first);

#endif
