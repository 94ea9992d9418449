#include "support/intra_op_check.h"

#define MEMORY_MAX ((int64_t)1 << 61)

static enum status check_values(const char *what, int index, const char *field, const int64_t *values, int64_t count,
                                bool may_forbid, int64_t *sum) {
    int64_t largest = 0;
    for (int64_t k = 0; k < count; k++) {
        if (may_forbid && values[k] == INTRA_OP_FORBIDDEN) continue;
        if (values[k] < 0 || values[k] > MEMORY_MAX)
            return status_set(STATUS_BAD_INPUT, "%s %d: %s[%lld] is %lld: must be 0 or more", what, index, field,
                              (long long)k, (long long)values[k]);
        largest = values[k] > largest ? values[k] : largest;
    }
    *sum = largest < MEMORY_MAX - *sum ? *sum + largest : MEMORY_MAX;
    return STATUS_OK;
}

static enum status check_node(const struct intra_op_program *program, int index, int64_t *cost) {
    const struct intra_op_node *node = &program->nodes[index];
    int64_t memory = 0;
    if (node->choices < 1 || node->choices > INTRA_OP_CHOICES_MAX)
        return status_set(STATUS_BAD_INPUT, "node %d: %d choices: must be 1 to %d", index, node->choices,
                          INTRA_OP_CHOICES_MAX);
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
    if (sum < MEMORY_MAX) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "moment %d: more bytes than can be counted", index);
}

enum status intra_op_check(const struct intra_op_program *program) {
    int64_t cost = 0;
    if (program->node_count < 1 || program->node_count > INTRA_OP_NODES_MAX)
        return status_set(STATUS_BAD_INPUT, "%d nodes: must be 1 to %d", program->node_count, INTRA_OP_NODES_MAX);
    for (int i = 0; i < program->node_count; i++)
        TRY(check_node(program, i, &cost));
    TRY(check_ties(program));
    for (int i = 0; i < program->edge_count; i++)
        TRY(check_edge(program, i, &cost));
    for (int i = 0; i < program->moment_count; i++)
        TRY(check_moment(program, i));
    if (program->memory_limit < 0) return status_set(STATUS_BAD_INPUT, "a memory limit below 0");
    if (cost <= INTRA_OP_COST_MAX) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "costs that add up to more than %lld", (long long)INTRA_OP_COST_MAX);
    return status_hint(STATUS_BAD_INPUT, "count them in a larger unit");
}
