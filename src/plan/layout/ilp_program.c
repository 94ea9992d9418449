#include "plan/layout/ilp_program.h"

#include <string.h>

/* The node at the end of the ties. */
static int node_kept(const struct intra_op_program *program, int node) {
    while (program->nodes[node].same_as != node)
        node = program->nodes[node].same_as;
    return node;
}

static enum status number_variables(const struct intra_op_program *program, struct ilp_program *ilp) {
    size_t nodes = (size_t)program->node_count;
    ilp->variable_of = scratch_alloc(&ilp->scratch, nodes, sizeof *ilp->variable_of);
    ilp->choices = scratch_alloc(&ilp->scratch, nodes, sizeof *ilp->choices);
    ilp->first = scratch_alloc(&ilp->scratch, nodes + 1, sizeof *ilp->first);
    if (!ilp->variable_of || !ilp->choices || !ilp->first) return STATUS_FAILED;
    for (int i = 0; i < program->node_count; i++)
        ilp->variable_of[i] = -1;
    for (int i = 0; i < program->node_count; i++) {
        int kept = node_kept(program, i);
        if (ilp->variable_of[kept] < 0) {
            ilp->choices[ilp->count] = program->nodes[kept].choices;
            ilp->first[ilp->count + 1] = ilp->first[ilp->count] + ilp->choices[ilp->count];
            ilp->variable_of[kept] = ilp->count++;
        }
        ilp->variable_of[i] = ilp->variable_of[kept];
    }
    return STATUS_OK;
}

static int64_t allowed(int64_t cost) { return cost == INTRA_OP_FORBIDDEN ? ILP_FORBIDDEN : cost; }

static enum status add_costs(const struct intra_op_program *program, struct ilp_program *ilp) {
    size_t choices = (size_t)ilp->first[ilp->count];
    ilp->cost = scratch_alloc(&ilp->scratch, choices, sizeof *ilp->cost);
    ilp->original = scratch_alloc(&ilp->scratch, choices, sizeof *ilp->original);
    if (!ilp->cost || !ilp->original) return STATUS_FAILED;
    for (int v = 0; v < ilp->count; v++)
        for (int k = 0; k < ilp->choices[v]; k++)
            ilp->original[ilp->first[v] + k] = k;
    for (int i = 0; i < program->node_count; i++) {
        int64_t *cost = ilp->cost + ilp->first[ilp->variable_of[i]];
        for (int k = 0; k < program->nodes[i].choices; k++)
            cost[k] = ilp_sum(cost[k], program->nodes[i].cost[k]);
    }
    return STATUS_OK;
}

static enum status find_pair(struct ilp_program *ilp, int low, int high, int64_t **cost) {
    for (size_t i = 0; i < ilp->pairs.count; i++) {
        *cost = ilp->pairs.items[i].cost;
        if (ilp->pairs.items[i].low == low && ilp->pairs.items[i].high == high) return STATUS_OK;
    }
    size_t entries = (size_t)ilp->choices[low] * (size_t)ilp->choices[high];
    *cost = scratch_alloc(&ilp->scratch, entries, sizeof **cost);
    if (!*cost) return STATUS_FAILED;
    return vec_push(&ilp->pairs, (struct ilp_pair){low, high, *cost});
}

static enum status add_edge(const struct intra_op_edge *edge, struct ilp_program *ilp) {
    int from = ilp->variable_of[edge->from], to = ilp->variable_of[edge->to];
    int rows = ilp->choices[from], columns = ilp->choices[to];
    int64_t *pair;
    if (from == to) {
        int64_t *cost = ilp->cost + ilp->first[from];
        for (int k = 0; k < rows; k++)
            cost[k] = ilp_sum(cost[k], allowed(edge->cost[k * columns + k]));
        return STATUS_OK;
    }
    TRY(find_pair(ilp, from < to ? from : to, from < to ? to : from, &pair));
    for (int a = 0; a < rows; a++)
        for (int b = 0; b < columns; b++) {
            int64_t *cost = from < to ? &pair[a * columns + b] : &pair[b * rows + a];
            *cost = ilp_sum(*cost, allowed(edge->cost[a * columns + b]));
        }
    return STATUS_OK;
}

size_t ilp_max_choices(const struct ilp_program *ilp) {
    int max = 0;
    for (int v = 0; v < ilp->count; v++)
        max = ilp->choices[v] > max ? ilp->choices[v] : max;
    return (size_t)max;
}

static int64_t largest_of(const int64_t *values, int count) {
    int64_t largest = values[0];
    for (int k = 1; k < count; k++)
        largest = values[k] > largest ? values[k] : largest;
    return largest;
}

static bool can_exceed(const struct ilp_program *ilp, const int64_t *memory) {
    int64_t max = 0;
    for (int v = 0; v < ilp->count; v++)
        max += largest_of(memory + ilp->first[v], ilp->choices[v]);
    return max > ilp->limit;
}

static bool dominates(const int64_t *a, const int64_t *b, int count) {
    for (int k = 0; k < count; k++)
        if (a[k] < b[k]) return false;
    return true;
}

/* Keeps the moment in place of those it dominates, unless another dominates it. `memory` has space for it at the end.
 */
static void keep_moment(struct ilp_program *ilp) {
    int width = ilp->first[ilp->count], kept = 0;
    const int64_t *added = ilp->memory + (size_t)ilp->moment_count * (size_t)width;
    if (!can_exceed(ilp, added)) return;
    for (int m = 0; m < ilp->moment_count; m++)
        if (dominates(ilp->memory + (size_t)m * (size_t)width, added, width)) return;
    for (int m = 0; m <= ilp->moment_count; m++) {
        int64_t *memory = ilp->memory + (size_t)m * (size_t)width;
        if (m < ilp->moment_count && dominates(added, memory, width)) continue;
        memmove(ilp->memory + (size_t)kept++ * (size_t)width, memory, (size_t)width * sizeof *memory);
    }
    ilp->moment_count = kept;
}

static enum status add_moments(const struct intra_op_program *program, struct ilp_program *ilp) {
    size_t width = (size_t)ilp->first[ilp->count], capacity = 0;
    ilp->limit = program->memory_limit;
    if (ilp->limit == INTRA_OP_NO_LIMIT) return STATUS_OK;
    for (int i = 0; i < program->moment_count; i++) {
        if ((size_t)ilp->moment_count == capacity) {
            capacity = 2 * capacity + 1;
            int64_t *grown = mem_resize(ilp->memory, capacity * width, sizeof *grown);
            if (!grown) return STATUS_FAILED;
            ilp->memory = grown;
        }
        int64_t *memory = ilp->memory + (size_t)ilp->moment_count * width;
        memset(memory, 0, width * sizeof *memory);
        for (int n = 0; n < program->moments[i].count; n++) {
            int node = program->moments[i].nodes[n];
            for (int k = 0; k < program->nodes[node].choices; k++)
                memory[ilp->first[ilp->variable_of[node]] + k] += program->nodes[node].memory[k];
        }
        keep_moment(ilp);
    }
    return STATUS_OK;
}

enum status ilp_program_make(const struct intra_op_program *program, struct ilp_program *out) {
    *out = (struct ilp_program){0};
    TRY(number_variables(program, out));
    TRY(add_costs(program, out));
    for (int i = 0; i < program->edge_count; i++)
        TRY(add_edge(&program->edges[i], out));
    return add_moments(program, out);
}

void ilp_program_free(struct ilp_program *ilp) {
    vec_free(&ilp->pairs);
    mem_free(ilp->memory);
    scratch_free(&ilp->scratch);
    *ilp = (struct ilp_program){0};
}

int64_t ilp_program_cost(const struct ilp_program *ilp, const int *choice) {
    int64_t sum = 0;
    for (int v = 0; v < ilp->count; v++)
        sum = ilp_sum(sum, ilp->cost[ilp->first[v] + choice[v]]);
    for (size_t i = 0; i < ilp->pairs.count; i++) {
        const struct ilp_pair *pair = &ilp->pairs.items[i];
        sum = ilp_sum(sum, pair->cost[choice[pair->low] * ilp->choices[pair->high] + choice[pair->high]]);
    }
    return sum;
}

bool ilp_program_fits(const struct ilp_program *ilp, const int *choice) {
    size_t width = (size_t)ilp->first[ilp->count];
    for (int m = 0; m < ilp->moment_count; m++) {
        int64_t sum = 0;
        for (int v = 0; v < ilp->count; v++)
            sum += ilp->memory[(size_t)m * width + (size_t)(ilp->first[v] + choice[v])];
        if (sum > ilp->limit) return false;
    }
    return true;
}
