/* The integer program that is solved, with a variable for each group of tied nodes.
 *
 * Costs of tied nodes are added up, edges between the same two variables are added up, and an edge within one variable
 * is a cost of its choices. Moments that can never exceed the limit, and dominated moments, are left out. */
#pragma once

#include "base/base.h"
#include "plan/layout/intra_op.h"

/* Cost of forbidden choices and forbidden pairs of choices. It exceeds any allowed sum, and a thousand of them still
 * fit 63 bits. Larger sums are clamped to it. */
#define ILP_FORBIDDEN ((int64_t)1 << 52)

struct ilp_pair {
    int low, high; /* variables, low < high */
    int64_t *cost; /* [choices of low][choices of high] */
};
struct ilp_program {
    int count;        /* variables, in the order of their first nodes */
    int *variable_of; /* [nodes of the program] */
    int *choices;     /* [count] remaining choices of each variable */
    int *first;       /* [count + 1] where a variable's choices begin in the arrays over all choices */
    int *original;    /* [first[count]] a choice's number in the program */
    int64_t *cost;    /* [first[count]] */
    VEC(struct ilp_pair) pairs;
    int moment_count;
    int64_t *memory; /* [moment_count][first[count]] */
    int64_t limit;
    struct scratch scratch; /* of the arrays */
};
/* The program is checked. Free with ilp_program_free, also after a failure. */
enum status ilp_program_make(const struct intra_op_program *program, struct ilp_program *out);
void ilp_program_free(struct ilp_program *ilp);

/* The number of choices of the variable with the most. */
size_t ilp_max_choices(const struct ilp_program *ilp);

static inline int64_t ilp_min(const int64_t *values, int count) {
    int64_t min = values[0];
    for (int k = 1; k < count; k++)
        min = values[k] < min ? values[k] : min;
    return min;
}
static inline int64_t ilp_sum(int64_t a, int64_t b) { return a + b < ILP_FORBIDDEN ? a + b : ILP_FORBIDDEN; }

/* Leaves out choices that no first of the cheapest solutions has. */
enum status ilp_program_reduce(struct ilp_program *ilp);

/* Cost of a choice for each variable, ILP_FORBIDDEN or more where it may not be; and whether it fits at all moments.
 */
int64_t ilp_program_cost(const struct ilp_program *ilp, const int *choice);
bool ilp_program_fits(const struct ilp_program *ilp, const int *choice);

/* --- by elimination --- */

/* The least cost, memory apart, whatever is chosen for some of the variables. Variables are eliminated one by one, and
 * chosen in the other order, each knowing what those before it chose. Exact. */
struct ilp_buckets {
    const struct ilp_program *ilp;
    int count;             /* variables */
    struct ilp_bucket *of; /* as they were eliminated */
    int64_t min;           /* cost of the cheapest choices; ILP_FORBIDDEN where all meet a pair that is forbidden */
    struct scratch scratch;
};
enum status ilp_buckets_make(const struct ilp_program *ilp, const int *order, struct ilp_buckets *out);
void ilp_buckets_free(struct ilp_buckets *buckets);
/* The variable that is chosen in place `at`. */
int ilp_buckets_variable(const struct ilp_buckets *buckets, int at);
/* With choice[] for the variables before place `at`: by how much each choice of its variable makes the cheapest
 * continuation dearer, but for a constant. values[choices of the variable]. `choice` is as it was afterwards. */
void ilp_buckets_values(const struct ilp_buckets *buckets, int at, int *choice, int64_t *values);
/* The cheapest choices. `values`: space for as many as the variable with the most choices has. */
void ilp_buckets_choose(const struct ilp_buckets *buckets, int64_t *values, int *choice);

/* An order of choosing in which few variables that are chosen have pairs with others that are not (ilp_search.c).
 * order[variables], out. */
enum status ilp_order_find(const struct ilp_program *ilp, int *order);

/* --- one variable after the other, with the best of all partial choices (ilp_search.c) --- */

struct ilp_search {
    const struct ilp_program *ilp;
    const struct ilp_buckets *buckets; /* of the program, or of the same with prices for memory */
    int64_t paid;                      /* the sum that the prices give back */
    int64_t below;                     /* the search only looks for costs below this */
    size_t width;                      /* partial choices that are kept at most, for each variable */
    int64_t nodes_left;                /* partial choices that may still be made; making one decrements it */
    int *choice;                       /* out, where found [variables] */
    bool found;                        /* choices that fit and cost less than `below` */
    bool complete;                     /* nothing was left out: `choice` is the first of the cheapest, or there is none
                                          below `below` */
    int64_t cost;                      /* of `choice` */
    int64_t bound;                     /* no choices that fit cost less, unless they cost `below` or more */
};
enum status ilp_search(struct ilp_search *search);

/* --- with a price for memory (ilp_search.c) --- */

/* The same variables and pairs, and costs in which each byte of a moment has a price; the limit's bytes are paid back.
 * Least cost less `paid` is a bound of the cost of all choices that fit (Lagrangian relaxation). */
struct ilp_prices {
    struct ilp_program priced; /* shares all but the costs */
    int64_t paid;
    int64_t bound; /* of all choices */
};
/* Prices that raise the bound as far as a fixed number of steps does (Polyak's subgradient method) towards `above`, the
 * cost of some choices that fit. Free with ilp_prices_free, also after a failure. */
enum status ilp_prices_find(const struct ilp_program *ilp, int64_t above, struct ilp_prices *out);
void ilp_prices_free(struct ilp_prices *prices);

/* --- by CBC (ilp_cbc.c) --- */

struct cbc_result {
    bool found;  /* `choice` holds choices that fit, and cost `cost` */
    bool proven; /* CBC says that none is cheaper, within its tolerance; or, where none was found, that there is none */
    int64_t cost;
};
/* Solves the program with memory, in at most `node_limit` nodes of branch and bound. FAILED where CBC gives up or
 * is missing. */
enum status ilp_solve_cbc(const struct ilp_program *ilp, int64_t node_limit, int *choice, struct cbc_result *out);
