/* The steps of an operation executed on symbols: each segment of a rank's data has a number that depends on where it
 * comes from and on all that was added to it. For schedule_values alone. */
#pragma once

#include "collective/schedule_walk.h"

/* 0: nothing. The last bit: it is rounded to bf16. */
typedef uint64_t symbol;
enum { SYMBOL_NOTHING = 0 };

struct rank_symbols {
    symbol *data, *out; /* by segment */
    symbol **payload;   /* by message: its segments in their order, as they travel */
    bool *flies;        /* by message: begun and not finished */
    bool *staged;       /* by message: its place in staging is its own */
};

struct symbols {
    const struct schedule_walk *walk;
    const struct comm_spec *spec; /* of the first rank */
    VEC(int64_t) cuts;            /* segment i is [cuts[i], cuts[i + 1]) of data, or of out */
    struct rank_symbols *of;      /* by position */
    struct lane_tree tree;        /* reductions */
    bool *absent;
};

/* What a rank has of a segment of its own. */
symbol symbol_leaf(int rank, int segment);
symbol symbol_rounded(symbol value);
/* The value of a node of the tree, from what each leaf has. */
symbol symbols_add_up(const struct symbols *symbols, int node, const symbol *leaves);

/* Of all ranks, all data NOTHING. The caller frees, also after a failure. */
enum status symbols_create(const struct schedule_walk *walk, const struct comm_spec *spec, struct symbols *out);
void symbols_free(struct symbols *symbols);
/* The segment that begins at an offset. */
int symbols_segment(const struct symbols *symbols, int64_t offset);
static inline int symbols_count(const struct symbols *symbols) { return (int)symbols->cuts.count - 1; }

/* FAILED where the step uses bytes that are on their way, or that are not there. `leaves`: space for one a rank. */
enum status symbols_take_step(const struct symbols *symbols, const struct walked_step *at, symbol *leaves);
