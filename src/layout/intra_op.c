#include "layout/intra_op.h"

#include <string.h>

#include "layout/tied_program.h"

enum { USUAL_NODE_LIMIT = 4000 };
#define MOST_MEMORY ((int64_t)1 << 61)

/* --- what is allowed --- */

static enum status check_values(const char *what, int index, const char *field, const int64_t *values, int64_t count,
                                bool may_forbid, int64_t *sum) {
    int64_t largest = 0;
    for (int64_t k = 0; k < count; k++) {
        if (may_forbid && values[k] == INTRA_OP_FORBIDDEN) continue;
        if (values[k] < 0 || values[k] > MOST_MEMORY)
            return status_set(STATUS_BAD_INPUT, "%s %d: %s[%lld] is %lld: must be 0 or more", what, index, field,
                              (long long)k, (long long)values[k]);
        largest = values[k] > largest ? values[k] : largest;
    }
    *sum = largest < MOST_MEMORY - *sum ? *sum + largest : MOST_MEMORY;
    return STATUS_OK;
}

static enum status check_node(const struct intra_op_program *program, int index, int64_t *cost) {
    const struct intra_op_node *node = &program->nodes[index];
    int64_t memory = 0;
    if (node->choices < 1 || node->choices > INTRA_OP_MOST_CHOICES)
        return status_set(STATUS_BAD_INPUT, "node %d: %d choices: must be 1 to %d", index, node->choices,
                          INTRA_OP_MOST_CHOICES);
    if (node->same_as < 0 || node->same_as >= program->node_count)
        return status_set(STATUS_BAD_INPUT, "node %d: is the same as node %d, which there is not", index,
                          node->same_as);
    TRY(check_values("node", index, "cost", node->cost, node->choices, false, cost));
    return check_values("node", index, "memory", node->memory, node->choices, false, &memory);
}

/* From each node the ties end at one with as many choices. */
static enum status check_ties(const struct intra_op_program *program) {
    for (int i = 0; i < program->node_count; i++) {
        int kept = i, steps = 0;
        while (program->nodes[kept].same_as != kept && steps++ < program->node_count)
            kept = program->nodes[kept].same_as;
        if (steps > program->node_count)
            return status_set(STATUS_BAD_INPUT, "node %d: is the same as a node that is the same as itself", i);
        if (program->nodes[kept].choices != program->nodes[i].choices)
            return status_set(STATUS_BAD_INPUT, "node %d: has %d choices, and is the same as node %d, which has %d", i,
                              program->nodes[i].choices, kept, program->nodes[kept].choices);
    }
    return STATUS_OK;
}

static enum status check_edge(const struct intra_op_program *program, int index, int64_t *cost) {
    const struct intra_op_edge *edge = &program->edges[index];
    int count = program->node_count;
    if (edge->from < 0 || edge->from >= count || edge->to < 0 || edge->to >= count)
        return status_set(STATUS_BAD_INPUT, "edge %d: from node %d to node %d: must be below %d", index, edge->from,
                          edge->to, count);
    int64_t entries = (int64_t)program->nodes[edge->from].choices * program->nodes[edge->to].choices;
    return check_values("edge", index, "cost", edge->cost, entries, true, cost);
}

static enum status check_moment(const struct intra_op_program *program, int index) {
    const struct intra_op_moment *moment = &program->moments[index];
    int64_t sum = 0;
    for (int i = 0; i < moment->count; i++) {
        int node = moment->nodes[i];
        if (node < 0 || node >= program->node_count)
            return status_set(STATUS_BAD_INPUT, "moment %d: node %d: must be below %d", index, node,
                              program->node_count);
        TRY(check_values("node", node, "memory", program->nodes[node].memory, program->nodes[node].choices, false,
                         &sum));
    }
    if (sum < MOST_MEMORY) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "moment %d: more bytes than can be counted", index);
}

enum status intra_op_check(const struct intra_op_program *program) {
    int64_t cost = 0;
    if (program->node_count < 1 || program->node_count > INTRA_OP_MOST_NODES)
        return status_set(STATUS_BAD_INPUT, "%d nodes: must be 1 to %d", program->node_count, INTRA_OP_MOST_NODES);
    for (int i = 0; i < program->node_count; i++)
        TRY(check_node(program, i, &cost));
    TRY(check_ties(program));
    for (int i = 0; i < program->edge_count; i++)
        TRY(check_edge(program, i, &cost));
    for (int i = 0; i < program->moment_count; i++)
        TRY(check_moment(program, i));
    if (program->memory_limit < 0) return status_set(STATUS_BAD_INPUT, "a memory limit below 0");
    if (cost <= INTRA_OP_MOST_COST) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "costs that add up to more than %lld", (long long)INTRA_OP_MOST_COST);
    return status_hint(STATUS_BAD_INPUT, "count them in a larger unit");
}

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

/* Goes through the choices in lexicographic order, past those whose least cost by elimination, with prices for memory
 * where it binds, is too high, or whose least memory is. So the first that is met with the least cost is the one that
 * is wanted. */
struct search {
    const struct tied_program *tied;
    struct tied_prices prices; /* `priced` is the program itself where memory does not bind */
    int64_t node_limit, nodes;
    int *chosen, *best; /* [variables]; chosen is -1 where it is open */
    int64_t below;      /* what costs less is taken */
    bool found, ended;  /* ended: by the limit */
    struct scratch scratch;
};

/* With the choices made so far and the least memory of all others. */
static bool can_fit(const struct search *search) {
    const struct tied_program *tied = search->tied;
    for (int m = 0; m < tied->moment_count; m++) {
        const int64_t *memory = tied->memory + (size_t)m * (size_t)tied->first[tied->count];
        int64_t sum = 0;
        for (int v = 0; v < tied->count; v++) {
            const int64_t *own = memory + tied->first[v];
            int64_t least = own[search->chosen[v] < 0 ? 0 : search->chosen[v]];
            for (int k = 1; k < tied->choices[v] && search->chosen[v] < 0; k++)
                least = own[k] < least ? own[k] : least;
            sum += least;
        }
        if (sum > tied->limit) return false;
    }
    return true;
}

static enum status search_from(struct search *search, int variable) {
    const struct tied_program *tied = search->tied;
    if (search->nodes++ >= search->node_limit) {
        search->ended = true;
        return STATUS_OK;
    }
    int64_t *least = scratch_alloc(&search->scratch, (size_t)tied->choices[variable], sizeof *least);
    if (!least) return STATUS_FAILED;
    TRY(tied_eliminate(&search->prices.priced, search->chosen, variable, least, NULL));
    for (int k = 0; k < tied->choices[variable] && !search->ended; k++) {
        if (least[k] - search->prices.paid >= search->below) continue;
        search->chosen[variable] = k;
        if (!can_fit(search)) continue;
        if (variable + 1 < tied->count) {
            TRY(search_from(search, variable + 1));
            continue;
        }
        int64_t cost = tied_program_cost(tied, search->chosen);
        if (cost >= search->below) continue;
        search->below = cost, search->found = true;
        memcpy(search->best, search->chosen, (size_t)tied->count * sizeof *search->best);
    }
    search->chosen[variable] = -1;
    return STATUS_OK;
}

static enum status search_create(const struct tied_program *tied, int64_t node_limit, struct search *out) {
    *out = (struct search){.tied = tied, .prices.priced = *tied, .node_limit = node_limit, .below = TIED_FORBIDDEN};
    out->chosen = scratch_alloc(&out->scratch, (size_t)tied->count, sizeof *out->chosen);
    out->best = scratch_alloc(&out->scratch, (size_t)tied->count, sizeof *out->best);
    if (!out->chosen || !out->best) return STATUS_FAILED;
    for (int v = 0; v < tied->count; v++)
        out->chosen[v] = -1;
    return STATUS_OK;
}

/* The least cost without memory: no solution is below it. */
static enum status find_bound(struct search *search, int64_t *bound) {
    int choices = search->tied->choices[0];
    int64_t *least = scratch_alloc(&search->scratch, (size_t)choices, sizeof *least);
    if (!least) return STATUS_FAILED;
    TRY(tied_eliminate(search->tied, search->chosen, 0, least, NULL));
    *bound = least[0];
    for (int k = 1; k < choices; k++)
        *bound = least[k] < *bound ? least[k] : *bound;
    return STATUS_OK;
}

/* --- both together --- */

/* CBC's solution is what the search has to beat, and what is left where it meets its limit. */
static enum status begin_with_cbc(struct search *search, struct cbc_result *cbc) {
    TRY(tied_solve_cbc(search->tied, search->node_limit, search->best, cbc));
    if (cbc->found) search->below = cbc->cost + 1;
    return STATUS_OK;
}

static enum status search_with_prices(struct search *search, int64_t *bound) {
    enum status status = tied_prices_find(search->tied, search->below, &search->prices);
    if (status == STATUS_OK) {
        if (search->prices.bound > *bound) *bound = search->prices.bound;
        status = search_from(search, 0);
    }
    tied_prices_free(&search->prices);
    return status;
}

/* Where elimination takes too much memory, CBC alone. */
static enum status solve_tied(struct search *search, struct cbc_result *cbc, int64_t *bound) {
    enum status status = find_bound(search, bound);
    if (status == STATUS_NO_FIT) {
        *bound = 0, search->ended = true;
        return begin_with_cbc(search, cbc);
    }
    TRY(status);
    if (*bound >= TIED_FORBIDDEN) return status_set(STATUS_NO_FIT, "all choices meet a pair that is forbidden");
    if (search->tied->moment_count == 0) {
        search->below = *bound + 1;
        return search_from(search, 0);
    }
    TRY(begin_with_cbc(search, cbc));
    return cbc->proven && !cbc->found ? STATUS_OK : search_with_prices(search, bound);
}

static enum status write_solution(const struct intra_op_program *program, const struct search *search,
                                  const struct cbc_result *cbc, int64_t bound, struct intra_op_solution *out) {
    int *choice = mem_array((size_t)program->node_count, sizeof *choice);
    if (!choice) return STATUS_FAILED;
    for (int i = 0; i < program->node_count; i++) {
        int variable = search->tied->variable_of[i];
        choice[i] = search->tied->original[search->tied->first[variable] + search->best[variable]];
    }
    *out = (struct intra_op_solution){.choice = choice, .first = !search->ended, .nodes_searched = search->nodes};
    intra_op_evaluate(program, choice, &out->cost, &out->peak);
    out->exact = out->first || (cbc->proven && cbc->cost == out->cost);
    out->bound = out->exact ? out->cost : bound;
    return STATUS_OK;
}

static enum status refuse(const struct intra_op_program *program, const struct search *search) {
    if (search->ended)
        return status_set(STATUS_FAILED, "no choices that fit were found within %lld nodes",
                          (long long)search->node_limit);
    return status_set(STATUS_NO_FIT, "no choices fit a memory limit of %lld bytes", (long long)program->memory_limit);
}

enum status intra_op_solve(const struct intra_op_program *program, int64_t node_limit, struct intra_op_solution *out) {
    struct tied_program tied = {0};
    struct search search = {0};
    struct cbc_result cbc = {0};
    int64_t bound = 0;
    enum status status;
    TRY(intra_op_check(program));
    TRY_GOTO(status, tied_program_make(program, &tied), done);
    TRY_GOTO(status, tied_program_reduce(&tied), done);
    TRY_GOTO(status, search_create(&tied, node_limit > 0 ? node_limit : USUAL_NODE_LIMIT, &search), done);
    TRY_GOTO(status, solve_tied(&search, &cbc, &bound), done);
    status = search.found || cbc.found ? write_solution(program, &search, &cbc, bound, out) : refuse(program, &search);
done:
    scratch_free(&search.scratch);
    tied_program_free(&tied);
    return status;
}

void intra_op_solution_free(struct intra_op_solution *solution) {
    mem_free(solution->choice);
    *solution = (struct intra_op_solution){0};
}
