#include "layout/tied_program.h"

#include <string.h>

/* The node at the end of the ties. */
static int node_kept(const struct intra_op_program *program, int node) {
    while (program->nodes[node].same_as != node)
        node = program->nodes[node].same_as;
    return node;
}

static enum status number_variables(const struct intra_op_program *program, struct tied_program *tied) {
    size_t nodes = (size_t)program->node_count;
    tied->variable_of = scratch_alloc(&tied->scratch, nodes, sizeof *tied->variable_of);
    tied->choices = scratch_alloc(&tied->scratch, nodes, sizeof *tied->choices);
    tied->first = scratch_alloc(&tied->scratch, nodes + 1, sizeof *tied->first);
    if (!tied->variable_of || !tied->choices || !tied->first) return STATUS_FAILED;
    for (int i = 0; i < program->node_count; i++)
        tied->variable_of[i] = -1;
    for (int i = 0; i < program->node_count; i++) {
        int kept = node_kept(program, i);
        if (tied->variable_of[kept] < 0) {
            tied->choices[tied->count] = program->nodes[kept].choices;
            tied->first[tied->count + 1] = tied->first[tied->count] + tied->choices[tied->count];
            tied->variable_of[kept] = tied->count++;
        }
        tied->variable_of[i] = tied->variable_of[kept];
    }
    return STATUS_OK;
}

static int64_t allowed(int64_t cost) { return cost == INTRA_OP_FORBIDDEN ? TIED_FORBIDDEN : cost; }

static enum status add_costs(const struct intra_op_program *program, struct tied_program *tied) {
    size_t choices = (size_t)tied->first[tied->count];
    tied->cost = scratch_alloc(&tied->scratch, choices, sizeof *tied->cost);
    tied->original = scratch_alloc(&tied->scratch, choices, sizeof *tied->original);
    if (!tied->cost || !tied->original) return STATUS_FAILED;
    for (int v = 0; v < tied->count; v++)
        for (int k = 0; k < tied->choices[v]; k++)
            tied->original[tied->first[v] + k] = k;
    for (int i = 0; i < program->node_count; i++) {
        int64_t *cost = tied->cost + tied->first[tied->variable_of[i]];
        for (int k = 0; k < program->nodes[i].choices; k++)
            cost[k] = tied_sum(cost[k], program->nodes[i].cost[k]);
    }
    return STATUS_OK;
}

static enum status find_pair(struct tied_program *tied, int low, int high, int64_t **cost) {
    for (size_t i = 0; i < tied->pairs.count; i++) {
        *cost = tied->pairs.items[i].cost;
        if (tied->pairs.items[i].low == low && tied->pairs.items[i].high == high) return STATUS_OK;
    }
    size_t entries = (size_t)tied->choices[low] * (size_t)tied->choices[high];
    *cost = scratch_alloc(&tied->scratch, entries, sizeof **cost);
    if (!*cost) return STATUS_FAILED;
    return vec_push(&tied->pairs, (struct tied_pair){low, high, *cost});
}

static enum status add_edge(const struct intra_op_edge *edge, struct tied_program *tied) {
    int from = tied->variable_of[edge->from], to = tied->variable_of[edge->to];
    int rows = tied->choices[from], columns = tied->choices[to];
    int64_t *pair;
    if (from == to) {
        int64_t *cost = tied->cost + tied->first[from];
        for (int k = 0; k < rows; k++)
            cost[k] = tied_sum(cost[k], allowed(edge->cost[k * columns + k]));
        return STATUS_OK;
    }
    TRY(find_pair(tied, from < to ? from : to, from < to ? to : from, &pair));
    for (int a = 0; a < rows; a++)
        for (int b = 0; b < columns; b++) {
            int64_t *cost = from < to ? &pair[a * columns + b] : &pair[b * rows + a];
            *cost = tied_sum(*cost, allowed(edge->cost[a * columns + b]));
        }
    return STATUS_OK;
}

size_t tied_most_choices(const struct tied_program *tied) {
    int most = 0;
    for (int v = 0; v < tied->count; v++)
        most = tied->choices[v] > most ? tied->choices[v] : most;
    return (size_t)most;
}

static int64_t largest_of(const int64_t *values, int count) {
    int64_t largest = values[0];
    for (int k = 1; k < count; k++)
        largest = values[k] > largest ? values[k] : largest;
    return largest;
}

static bool can_exceed(const struct tied_program *tied, const int64_t *memory) {
    int64_t most = 0;
    for (int v = 0; v < tied->count; v++)
        most += largest_of(memory + tied->first[v], tied->choices[v]);
    return most > tied->limit;
}

static bool dominates(const int64_t *a, const int64_t *b, int count) {
    for (int k = 0; k < count; k++)
        if (a[k] < b[k]) return false;
    return true;
}

/* Keeps the moment in place of those it dominates, unless another dominates it. `memory` has room for it at the end. */
static void keep_moment(struct tied_program *tied) {
    int width = tied->first[tied->count], kept = 0;
    const int64_t *added = tied->memory + (size_t)tied->moment_count * (size_t)width;
    if (!can_exceed(tied, added)) return;
    for (int m = 0; m < tied->moment_count; m++)
        if (dominates(tied->memory + (size_t)m * (size_t)width, added, width)) return;
    for (int m = 0; m <= tied->moment_count; m++) {
        int64_t *memory = tied->memory + (size_t)m * (size_t)width;
        if (m < tied->moment_count && dominates(added, memory, width)) continue;
        memmove(tied->memory + (size_t)kept++ * (size_t)width, memory, (size_t)width * sizeof *memory);
    }
    tied->moment_count = kept;
}

static enum status add_moments(const struct intra_op_program *program, struct tied_program *tied) {
    size_t width = (size_t)tied->first[tied->count], room = 0;
    tied->limit = program->memory_limit;
    if (tied->limit == INTRA_OP_NO_LIMIT) return STATUS_OK;
    for (int i = 0; i < program->moment_count; i++) {
        if ((size_t)tied->moment_count == room) {
            room = 2 * room + 1;
            int64_t *grown = mem_resize(tied->memory, room * width, sizeof *grown);
            if (!grown) return STATUS_FAILED;
            tied->memory = grown;
        }
        int64_t *memory = tied->memory + (size_t)tied->moment_count * width;
        memset(memory, 0, width * sizeof *memory);
        for (int n = 0; n < program->moments[i].count; n++) {
            int node = program->moments[i].nodes[n];
            for (int k = 0; k < program->nodes[node].choices; k++)
                memory[tied->first[tied->variable_of[node]] + k] += program->nodes[node].memory[k];
        }
        keep_moment(tied);
    }
    return STATUS_OK;
}

enum status tied_program_make(const struct intra_op_program *program, struct tied_program *out) {
    *out = (struct tied_program){0};
    TRY(number_variables(program, out));
    TRY(add_costs(program, out));
    for (int i = 0; i < program->edge_count; i++)
        TRY(add_edge(&program->edges[i], out));
    return add_moments(program, out);
}

void tied_program_free(struct tied_program *tied) {
    vec_free(&tied->pairs);
    mem_free(tied->memory);
    scratch_free(&tied->scratch);
    *tied = (struct tied_program){0};
}

int64_t tied_program_cost(const struct tied_program *tied, const int *choice) {
    int64_t sum = 0;
    for (int v = 0; v < tied->count; v++)
        sum = tied_sum(sum, tied->cost[tied->first[v] + choice[v]]);
    for (size_t i = 0; i < tied->pairs.count; i++) {
        const struct tied_pair *pair = &tied->pairs.items[i];
        sum = tied_sum(sum, pair->cost[choice[pair->low] * tied->choices[pair->high] + choice[pair->high]]);
    }
    return sum;
}

bool tied_program_fits(const struct tied_program *tied, const int *choice) {
    size_t width = (size_t)tied->first[tied->count];
    for (int m = 0; m < tied->moment_count; m++) {
        int64_t sum = 0;
        for (int v = 0; v < tied->count; v++)
            sum += tied->memory[(size_t)m * width + (size_t)(tied->first[v] + choice[v])];
        if (sum > tied->limit) return false;
    }
    return true;
}
