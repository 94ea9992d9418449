/* The integer program with a variable for each group of tied nodes: what is solved.
 *
 * Costs of tied nodes are added up, edges between the same two variables are added up, and an edge within one variable
 * is a cost of its choices. Moments that can never exceed the limit are left out, and those that another dominates. */
#ifndef BALLAST_LAYOUT_TIED_PROGRAM_H
#define BALLAST_LAYOUT_TIED_PROGRAM_H

#include "base/mem.h"
#include "layout/intra_op.h"

/* Of choices that may not be taken, alone or in pairs; more than any allowed sum, and sums of a thousand of them are
 * still 63 bits. Sums are cut to it. */
#define TIED_FORBIDDEN ((int64_t)1 << 52)

struct tied_pair {
    int low, high; /* variables, low < high */
    int64_t *cost; /* [choices of low][choices of high] */
};
struct tied_program {
    int count;        /* variables, in the order of their first nodes */
    int *variable_of; /* [nodes of the program] */
    int *choices;     /* [count] what is left of each variable's */
    int *first;       /* [count + 1] where a variable's choices begin in the arrays over all choices */
    int *original;    /* [first[count]] a choice's number in the program */
    int64_t *cost;    /* [first[count]] */
    VEC(struct tied_pair) pairs;
    int moment_count;
    int64_t *memory; /* [moment_count][first[count]] */
    int64_t limit;
    struct scratch scratch; /* of the arrays */
};
/* The program is checked. Free with tied_program_free, also after a failure. */
enum status tied_program_make(const struct intra_op_program *program, struct tied_program *out);
void tied_program_free(struct tied_program *tied);

static inline int64_t tied_sum(int64_t a, int64_t b) { return a + b < TIED_FORBIDDEN ? a + b : TIED_FORBIDDEN; }

/* Leaves out choices that no first of the cheapest solutions has (tied_reduce.c). */
enum status tied_program_reduce(struct tied_program *tied);

/* Cost of a choice for each variable, TIED_FORBIDDEN or more where it may not be; and whether it fits at all moments.
 */
int64_t tied_program_cost(const struct tied_program *tied, const int *choice);
bool tied_program_fits(const struct tied_program *tied, const int *choice);

/* --- by elimination (tied_eliminate.c) --- */

/* least[k]: the least cost, memory apart, with choice k for `root` and chosen[v] for each variable v with chosen[v] >=
 * 0. Exact, by eliminating the other variables one by one, each time the one that leaves the smallest table. `best`, if
 * not NULL, gets choices for all variables that have the least of these. NO_FIT where a table would have more than
 * TIED_MOST_ENTRIES: variables depend on too many others at once. */
#define TIED_MOST_ENTRIES ((int64_t)1 << 22)
enum status tied_eliminate(const struct tied_program *tied, const int *chosen, int root, int64_t *least, int *best);

/* --- with a price for memory (tied_price.c) --- */

/* The same variables and pairs, and costs in which each byte of a moment has a price; the limit's bytes are paid back.
 * Least cost less `paid` is a bound of the cost of all choices that fit (Lagrangian relaxation). */
struct tied_prices {
    struct tied_program priced; /* shares all but the costs */
    int64_t paid;
    int64_t bound; /* of all choices */
};
/* Prices that raise the bound as far as a fixed number of steps does (Polyak's subgradient method) towards `above`, the
 * cost of some choices that fit. Free with tied_prices_free, also after a failure. */
enum status tied_prices_find(const struct tied_program *tied, int64_t above, struct tied_prices *out);
void tied_prices_free(struct tied_prices *prices);

/* --- by CBC (tied_cbc.c) --- */

struct cbc_result {
    bool found;  /* `choice` holds choices that fit, and cost `cost` */
    bool proven; /* CBC says that none is cheaper, within its tolerance; or, where none was found, that there is none */
    int64_t cost;
};
/* Solves the program with memory, in at most `node_limit` nodes of branch and bound. FAILED where CBC gives up. */
enum status tied_solve_cbc(const struct tied_program *tied, int64_t node_limit, int *choice, struct cbc_result *out);

#endif
