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

/* Of the variable that has most. */
size_t tied_most_choices(const struct tied_program *tied);

static inline int64_t tied_sum(int64_t a, int64_t b) { return a + b < TIED_FORBIDDEN ? a + b : TIED_FORBIDDEN; }

/* Leaves out choices that no first of the cheapest solutions has (tied_reduce.c). */
enum status tied_program_reduce(struct tied_program *tied);

/* Cost of a choice for each variable, TIED_FORBIDDEN or more where it may not be; and whether it fits at all moments.
 */
int64_t tied_program_cost(const struct tied_program *tied, const int *choice);
bool tied_program_fits(const struct tied_program *tied, const int *choice);

/* --- by elimination (tied_eliminate.c) --- */

/* The least cost, memory apart, whatever is chosen for some of the variables. Variables are eliminated one by one, and
 * chosen in the other order, each knowing what those before it chose. Exact. */
struct tied_buckets {
    const struct tied_program *tied;
    int count;              /* variables */
    struct tied_bucket *of; /* as they were eliminated */
    int64_t least;          /* cost of the cheapest choices; TIED_FORBIDDEN where all meet a pair that is forbidden */
    struct scratch scratch;
};
/* `order`: of choosing; NULL: that of eliminating each time the variable that leaves the smallest table. NO_FIT where a
 * table would have more than TIED_MOST_ENTRIES: variables depend on too many others at once. The program must stay
 * until tied_buckets_free, which is due also after a failure. */
#define TIED_MOST_ENTRIES ((int64_t)1 << 22)
enum status tied_buckets_make(const struct tied_program *tied, const int *order, struct tied_buckets *out);
void tied_buckets_free(struct tied_buckets *buckets);
/* The variable that is chosen in place `at`. */
int tied_buckets_variable(const struct tied_buckets *buckets, int at);
/* With choice[] for the variables before place `at`: by how much each choice of its variable makes the cheapest
 * continuation dearer, but for a constant. values[choices of the variable]. `choice` is as it was afterwards. */
void tied_buckets_values(const struct tied_buckets *buckets, int at, int *choice, int64_t *values);
/* The cheapest choices. `values`: room for as many as the variable with the most choices has. */
void tied_buckets_choose(const struct tied_buckets *buckets, int64_t *values, int *choice);

/* An order of choosing in which few variables that are chosen have pairs with others that are not (tied_order.c).
 * order[variables], out. */
enum status tied_order_find(const struct tied_program *tied, int *order);

/* --- one variable after the other, with the best of all partial choices (tied_search.c) --- */

struct tied_search {
    const struct tied_program *tied;
    const struct tied_buckets *buckets; /* of the program, or of the same with prices for memory */
    int64_t paid;                       /* what the prices give back */
    int64_t below;                      /* what costs as much is not looked for */
    size_t width;                       /* partial choices that are kept at most, for each variable */
    int64_t nodes_left;                 /* partial choices that may be made; those that are made are taken off */
    int *choice;                        /* out, where found [variables] */
    bool found;                         /* choices that fit and cost less than `below` */
    bool complete;                      /* nothing was left out: `choice` is the first of the cheapest, or there is none
                                           below `below` */
    int64_t cost;                       /* of `choice` */
    int64_t bound;                      /* no choices that fit cost less, unless they cost `below` or more */
};
enum status tied_search(struct tied_search *search);

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
/* Solves the program with memory, in at most `node_limit` nodes of branch and bound. FAILED where CBC gives up or
 * is missing. */
enum status tied_solve_cbc(const struct tied_program *tied, int64_t node_limit, int *choice, struct cbc_result *out);

#endif
