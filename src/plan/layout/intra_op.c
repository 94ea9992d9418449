#include "plan/layout/intra_op.h"

#include "plan/layout/ilp_program.h"

/* Nodes are partial choices in the search's own order, and of branch and bound for CBC, which takes longer for one. */
enum { USUAL_NODES = 1 << 18, USUAL_CBC_NODES = 4000, FEW_CBC_NODES = 64 };
/* Partial choices that are kept of each variable: at first, and how much more after each walk that left some out. */
enum { WIDTH_FIRST = 64, WIDTH_RATIO = 8 };

void intra_op_evaluate(const struct intra_op_program *program, const int *choice, int64_t *cost, int64_t *peak) {
    *cost = *peak = 0;
    for (int i = 0; i < program->node_count; i++)
        *cost += program->nodes[i].cost[choice[i]];
    for (int i = 0; i < program->edge_count && *cost != INTRA_OP_FORBIDDEN; i++) {
        const struct intra_op_edge *edge = &program->edges[i];
        int64_t met = edge->cost[choice[edge->from] * program->nodes[edge->to].choices + choice[edge->to]];
        *cost = met == INTRA_OP_FORBIDDEN ? met : *cost + met;
    }
    for (int i = 0; i < program->moment_count; i++) {
        int64_t sum = 0;
        for (int n = 0; n < program->moments[i].count; n++) {
            int node = program->moments[i].nodes[n];
            sum += program->nodes[node].memory[choice[node]];
        }
        *peak = sum > *peak ? sum : *peak;
    }
}

/* --- the search for the first of the cheapest --- */

struct solving {
    const struct ilp_program *ilp;
    int64_t node_limit, nodes; /* 0: the default limits */
    int *best, *tried, *order; /* [variables] order: of choosing where memory binds */
    bool found, exact, first;
    bool hopeless;       /* it is proven that none fits */
    int64_t cost, bound; /* of `best`; no choices that fit cost less */
    struct scratch scratch;
};

static enum status solving_create(const struct ilp_program *ilp, int64_t node_limit, struct solving *out) {
    *out = (struct solving){.ilp = ilp, .node_limit = node_limit, .cost = ILP_FORBIDDEN};
    TRY(scratch_items(&out->scratch, &out->best, (size_t)ilp->count));
    TRY(scratch_items(&out->scratch, &out->tried, (size_t)ilp->count));
    TRY(scratch_items(&out->scratch, &out->order, (size_t)ilp->count));
    return ilp_order_find(ilp, out->order);
}

static void solving_free(struct solving *solving) { scratch_free(&solving->scratch); }

static void take(struct solving *solving, int64_t cost) {
    memcpy(solving->best, solving->tried, (size_t)solving->ilp->count * sizeof *solving->best);
    solving->found = true, solving->cost = cost;
}

static int64_t nodes_left(const struct solving *solving) {
    return (solving->node_limit > 0 ? solving->node_limit : USUAL_NODES) - solving->nodes;
}

/* The search includes solutions that cost as much as the best one found: they may come first lexicographically. */
static enum status search_within(struct solving *solving, const struct ilp_buckets *buckets, int64_t paid,
                                 int64_t below, size_t width) {
    struct ilp_search search = {.ilp = solving->ilp,
                                .buckets = buckets,
                                .paid = paid,
                                .below = below,
                                .width = width,
                                .nodes_left = nodes_left(solving),
                                .choice = solving->tried};
    TRY(ilp_search(&search));
    solving->nodes += nodes_left(solving) - search.nodes_left;
    if (search.bound > solving->bound) solving->bound = search.bound;
    if (search.found && (search.complete || search.cost < solving->cost)) take(solving, search.cost);
    solving->exact = solving->first = search.found && search.complete;
    solving->hopeless = !search.found && search.complete;
    return STATUS_OK;
}

static bool is_settled(const struct solving *solving) { return solving->first || solving->hopeless; }

static int64_t below_best(const struct solving *solving) { return solving->found ? solving->cost + 1 : ILP_FORBIDDEN; }

static enum status widen(struct solving *solving, const struct ilp_buckets *buckets, int64_t paid) {
    for (size_t width = WIDTH_FIRST; !is_settled(solving) && nodes_left(solving) > 0; width *= WIDTH_RATIO)
        TRY(search_within(solving, buckets, paid, below_best(solving), width));
    return STATUS_OK;
}

/* Prices are raised towards what is known to fit, or to some cost above the bound. */
static enum status search_with_prices(struct solving *solving) {
    AUTO(ilp_prices_free) struct ilp_prices prices = {0};
    AUTO(ilp_buckets_free) struct ilp_buckets buckets = {.count = 0};
    enum status status =
        ilp_prices_find(solving->ilp, solving->found ? solving->cost : 2 * solving->bound + 1, &prices);
    if (status == STATUS_OK) status = ilp_buckets_make(&prices.priced, solving->order, &buckets);
    if (status == STATUS_OK) {
        if (prices.bound > solving->bound) solving->bound = prices.bound;
        status = widen(solving, &buckets, prices.paid);
    }
    return status;
}

static enum status solve_with_cbc(struct solving *solving) {
    struct cbc_result cbc;
    int64_t few = solving->node_limit < FEW_CBC_NODES ? solving->node_limit : FEW_CBC_NODES;
    TRY(ilp_solve_cbc(solving->ilp, solving->node_limit > 0 ? few : USUAL_CBC_NODES, solving->tried, &cbc));
    if (cbc.found && cbc.cost < solving->cost) take(solving, cbc.cost);
    solving->exact = solving->found && cbc.proven && cbc.cost == solving->cost;
    solving->hopeless = cbc.proven && !cbc.found && !solving->found;
    return STATUS_OK;
}

static enum status solve_by_elimination(struct solving *solving, const struct ilp_buckets *buckets) {
    bool limited = solving->ilp->moment_count > 0;
    solving->bound = buckets->min;
    if (buckets->min >= ILP_FORBIDDEN) return status_set(STATUS_NO_FIT, "all choices meet a pair that is forbidden");
    if (!limited) return search_within(solving, buckets, 0, buckets->min + 1, SIZE_MAX);
    TRY(search_within(solving, buckets, 0, ILP_FORBIDDEN, WIDTH_FIRST));
    if (!is_settled(solving)) TRY(search_with_prices(solving));
    bool enough = is_settled(solving) || (solving->node_limit > 0 && solving->found);
    return enough ? STATUS_OK : solve_with_cbc(solving);
}

/* Solves with CBC alone if elimination takes too much memory. */
static enum status solve_ilp(struct solving *solving) {
    AUTO(ilp_buckets_free) struct ilp_buckets buckets = {0};
    enum status status = ilp_buckets_make(solving->ilp, NULL, &buckets);
    if (status == STATUS_OK)
        status = solve_by_elimination(solving, &buckets);
    else if (status == STATUS_NO_FIT)
        status = solve_with_cbc(solving);
    return status;
}

static enum status write_solution(const struct intra_op_program *program, const struct solving *solving,
                                  struct intra_op_solution *out) {
    int *choice = mem_array((size_t)program->node_count, sizeof *choice);
    if (!choice) return STATUS_FAILED;
    for (int i = 0; i < program->node_count; i++) {
        int variable = solving->ilp->variable_of[i];
        choice[i] = solving->ilp->original[solving->ilp->first[variable] + solving->best[variable]];
    }
    *out = (struct intra_op_solution){.choice = choice, .first = solving->first, .nodes_searched = solving->nodes};
    intra_op_evaluate(program, choice, &out->cost, &out->peak);
    out->exact = solving->exact || solving->bound >= solving->cost;
    out->bound = out->exact ? out->cost : solving->bound;
    return STATUS_OK;
}

static enum status refuse(const struct intra_op_program *program, const struct solving *solving) {
    if (!solving->hopeless)
        return status_set(STATUS_FAILED, "no choices that fit were found within %lld nodes",
                          (long long)(solving->node_limit > 0 ? solving->node_limit : USUAL_NODES));
    return status_set(STATUS_NO_FIT, "no choices fit a memory limit of %lld bytes", (long long)program->memory_limit);
}

enum status intra_op_solve(const struct intra_op_program *program, int64_t node_limit, struct intra_op_solution *out) {
    AUTO(ilp_program_free) struct ilp_program ilp = {0};
    AUTO(solving_free) struct solving solving = {0};
    *out = (struct intra_op_solution){0};
    TRY(ilp_program_make(program, &ilp));
    TRY(ilp_program_reduce(&ilp));
    TRY(solving_create(&ilp, node_limit, &solving));
    TRY(solve_ilp(&solving));
    out->given_up = !solving.found && !solving.hopeless;
    return solving.found ? write_solution(program, &solving, out) : refuse(program, &solving);
}

void intra_op_solution_free(struct intra_op_solution *solution) {
    mem_free(solution->choice);
    *solution = (struct intra_op_solution){0};
}
