/* Integer programs that choose strategies: sections 6 and 8. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "plan/layout/intra_op.h"
#include "support/case_results.h"
#include "support/intra_op_check.h"

#define VALUE_MAX 1e15 /* of a cost, or bytes */
/* Costs are counted in thousandths, or in larger units where that would be too many of them. */
#define FINEST_UNITS 1000.0
#define UNITS_MAX ((double)((int64_t)1 << 44))
/* Alpa forbids a pair of choices by a cost above this. */
#define FORBIDS 0.5

/* An instance as it is in the file, and the program that is made of it. */
struct instance {
    struct scratch scratch; /* of all arrays */
    int count, edge_count, forbid_count;
    int *choices, *same_as;
    double **cost, **memory; /* [count][choices] */
    int (*edges)[2];         /* [edge_count + forbid_count] */
    double **edge_cost;      /* by edge; of the last forbid_count: whether the pair is forbidden */
    struct intra_op_moment *moments;
    int moment_count;
    double units; /* whole numbers in a unit of the file */
    struct intra_op_program program;
};

static void *take(struct instance *instance, size_t count, size_t size) {
    return scratch_alloc(&instance->scratch, count, size);
}

static enum status read_doubles(struct instance *instance, const char *place, const char *field, const json_t *array,
                                size_t index, size_t count, double **out) {
    const json_t *values;
    TRY(case_item_array(place, field, array, index, &values));
    if (json_array_size(values) != count)
        return status_set(STATUS_BAD_INPUT, "%s: %s[%zu]: must hold %zu numbers; holds %zu", place, field, index, count,
                          json_array_size(values));
    *out = take(instance, count, sizeof **out);
    if (!*out) return STATUS_FAILED;
    for (size_t k = 0; k < count; k++)
        TRY(case_item_double(place, field, values, k, 0, VALUE_MAX, &(*out)[k]));
    return STATUS_OK;
}

/* {"6": 4}: node 6 is the same as node 4; or [-1, …, 4]. */
static enum status read_ties(struct instance *instance, const char *place, const json_t *ties) {
    const char *key;
    json_t *value;
    for (int i = 0; i < instance->count; i++)
        instance->same_as[i] = i;
    if (json_is_object(ties)) {
        json_object_foreach((json_t *)ties, key, value) {
            char *end;
            long node = strtol(key, &end, 10);
            if (end == key || *end != '\0' || node < 0 || node >= instance->count || !json_is_integer(value) ||
                json_integer_value(value) < 0 || json_integer_value(value) >= instance->count)
                return status_set(STATUS_BAD_INPUT, "%s: s_follow: \"%.16s\": must be nodes below %d", place, key,
                                  instance->count);
            instance->same_as[node] = (int)json_integer_value(value);
        }
        return STATUS_OK;
    }
    if (!json_is_array(ties) || json_array_size(ties) != (size_t)instance->count)
        return status_set(STATUS_BAD_INPUT, "%s: s_follow: must be an object, or an array of %d nodes", place,
                          instance->count);
    for (int i = 0; i < instance->count; i++) {
        int64_t other;
        TRY(case_item_int(place, "s_follow", ties, (size_t)i, -1, instance->count - 1, &other));
        if (other >= 0) instance->same_as[i] = (int)other;
    }
    return STATUS_OK;
}

static enum status read_nodes(struct instance *instance, const char *place, const json_t *object) {
    const json_t *lengths, *compute, *comm, *memory;
    TRY(case_array(place, object, "s_len", &lengths));
    size_t count = json_array_size(lengths);
    if (count < 1 || count > INTRA_OP_NODES_MAX)
        return status_set(STATUS_BAD_INPUT, "%s: s_len: must hold 1 to %d numbers", place, INTRA_OP_NODES_MAX);
    instance->count = (int)count;
    instance->choices = take(instance, count, sizeof *instance->choices);
    instance->same_as = take(instance, count, sizeof *instance->same_as);
    instance->cost = take(instance, count, sizeof *instance->cost);
    instance->memory = take(instance, count, sizeof *instance->memory);
    if (!instance->choices || !instance->same_as || !instance->cost || !instance->memory) return STATUS_FAILED;
    TRY(case_array_of(place, object, "compute", count, &compute));
    TRY(case_array_of(place, object, "comm", count, &comm));
    TRY(case_array_of(place, object, "mem", count, &memory));
    for (size_t i = 0; i < count; i++) {
        int64_t choices;
        double *moved;
        TRY(case_item_int(place, "s_len", lengths, i, 1, INTRA_OP_CHOICES_MAX, &choices));
        instance->choices[i] = (int)choices;
        TRY(read_doubles(instance, place, "compute", compute, i, (size_t)choices, &instance->cost[i]));
        TRY(read_doubles(instance, place, "comm", comm, i, (size_t)choices, &moved));
        TRY(read_doubles(instance, place, "mem", memory, i, (size_t)choices, &instance->memory[i]));
        for (int64_t k = 0; k < choices; k++)
            instance->cost[i][k] += moved[k];
    }
    TRY(json_require(place, object, "s_follow"));
    return read_ties(instance, place, json_object_get(object, "s_follow"));
}

/* Pairs of nodes and their tables, after those that are there. */
static enum status read_pairs(struct instance *instance, const char *place, const char *field, const json_t *pairs,
                              const char *cost_field, const json_t *costs, int at) {
    for (size_t i = 0; i < json_array_size(pairs); i++) {
        const json_t *pair;
        TRY(case_item_array(place, field, pairs, i, &pair));
        for (size_t end = 0; end < 2; end++) {
            int64_t node;
            TRY(case_item_int(place, field, pair, end, 0, instance->count - 1, &node));
            instance->edges[at][end] = (int)node;
        }
        size_t entries =
            (size_t)instance->choices[instance->edges[at][0]] * (size_t)instance->choices[instance->edges[at][1]];
        TRY(read_doubles(instance, place, cost_field, costs, i, entries, &instance->edge_cost[at]));
        at++;
    }
    return STATUS_OK;
}

static enum status read_edges(struct instance *instance, const char *place, const json_t *object,
                              const char *cost_field) {
    const json_t *edges, *costs, *forbidden = NULL, *forbids = NULL;
    TRY(case_array(place, object, "edges", &edges));
    TRY(case_array_of(place, object, cost_field, json_array_size(edges), &costs));
    instance->edge_count = (int)json_array_size(edges);
    if (json_object_get(object, "alias")) {
        TRY(case_array(place, object, "alias", &forbidden));
        TRY(case_array_of(place, object, "alias_costs", json_array_size(forbidden), &forbids));
        instance->forbid_count = (int)json_array_size(forbidden);
    }
    size_t capacity = (size_t)instance->edge_count + (size_t)instance->forbid_count;
    instance->edges = take(instance, capacity, sizeof *instance->edges);
    instance->edge_cost = take(instance, capacity, sizeof *instance->edge_cost);
    if (!instance->edges || !instance->edge_cost) return STATUS_FAILED;
    TRY(read_pairs(instance, place, "edges", edges, cost_field, costs, 0));
    return read_pairs(instance, place, "alias", forbidden, "alias_costs", forbids, instance->edge_count);
}

/* Without a list of what is live when, all is live together. */
static enum status read_moments(struct instance *instance, const char *place, const json_t *object) {
    const json_t *times = NULL, *live;
    if (json_object_get(object, "liveness")) TRY(case_array(place, object, "liveness", &times));
    instance->moment_count = times ? (int)json_array_size(times) : 1;
    instance->moments = take(instance, (size_t)instance->moment_count, sizeof *instance->moments);
    if (!instance->moments) return STATUS_FAILED;
    for (int t = 0; t < instance->moment_count; t++) {
        if (times) TRY(case_item_array(place, "liveness", times, (size_t)t, &live));
        size_t count = times ? json_array_size(live) : (size_t)instance->count;
        int *nodes = take(instance, count, sizeof *nodes);
        if (!nodes) return STATUS_FAILED;
        for (size_t i = 0; i < count; i++) {
            int64_t node = (int64_t)i;
            if (times) TRY(case_item_int(place, "liveness[]", live, i, 0, instance->count - 1, &node));
            nodes[i] = (int)node;
        }
        instance->moments[t] = (struct intra_op_moment){(int)count, nodes};
    }
    return STATUS_OK;
}

static double largest_of(const double *values, int count) {
    double largest = 0;
    for (int k = 0; k < count; k++)
        largest = fmax(largest, values[k]);
    return largest;
}

static int edge_entries(const struct instance *instance, int edge) {
    return instance->choices[instance->edges[edge][0]] * instance->choices[instance->edges[edge][1]];
}

static double choose_units(const struct instance *instance) {
    double sum = 0;
    for (int i = 0; i < instance->count; i++)
        sum += largest_of(instance->cost[i], instance->choices[i]);
    for (int i = 0; i < instance->edge_count; i++)
        sum += largest_of(instance->edge_cost[i], edge_entries(instance, i));
    return fmin(FINEST_UNITS, sum > 0 ? UNITS_MAX / sum : FINEST_UNITS);
}

static int64_t *count_units(struct instance *instance, const double *values, int count, double units) {
    int64_t *counted = take(instance, (size_t)count, sizeof *counted);
    for (int k = 0; k < count && counted; k++)
        counted[k] = llround(values[k] * units);
    return counted;
}

static int64_t *forbid(struct instance *instance, const double *values, int count) {
    int64_t *counted = take(instance, (size_t)count, sizeof *counted);
    for (int k = 0; k < count && counted; k++)
        counted[k] = values[k] > FORBIDS ? INTRA_OP_FORBIDDEN : 0;
    return counted;
}

static enum status make_program(struct instance *instance) {
    int edges = instance->edge_count + instance->forbid_count;
    struct intra_op_node *node = take(instance, (size_t)instance->count, sizeof *node);
    struct intra_op_edge *edge = take(instance, (size_t)edges, sizeof *edge);
    if (!node || !edge) return STATUS_FAILED;
    instance->units = choose_units(instance);
    for (int i = 0; i < instance->count; i++) {
        int choices = instance->choices[i];
        node[i] = (struct intra_op_node){choices, instance->same_as[i],
                                         count_units(instance, instance->cost[i], choices, instance->units),
                                         count_units(instance, instance->memory[i], choices, 1)};
        if (!node[i].cost || !node[i].memory) return STATUS_FAILED;
    }
    for (int i = 0; i < edges; i++) {
        int entries = edge_entries(instance, i);
        int64_t *cost = i < instance->edge_count
                            ? count_units(instance, instance->edge_cost[i], entries, instance->units)
                            : forbid(instance, instance->edge_cost[i], entries);
        if (!cost) return STATUS_FAILED;
        edge[i] = (struct intra_op_edge){instance->edges[i][0], instance->edges[i][1], cost};
    }
    instance->program = (struct intra_op_program){.node_count = instance->count,
                                                  .edge_count = edges,
                                                  .moment_count = instance->moment_count,
                                                  .nodes = node,
                                                  .edges = edge,
                                                  .moments = instance->moments,
                                                  .memory_limit = INTRA_OP_NO_LIMIT};
    return STATUS_OK;
}

static enum status instance_read(struct instance *instance, const char *place, const json_t *object,
                                 const char *cost_field) {
    *instance = (struct instance){0};
    TRY(read_nodes(instance, place, object));
    TRY(read_edges(instance, place, object, cost_field));
    TRY(read_moments(instance, place, object));
    TRY(make_program(instance));
    enum status status = intra_op_check(&instance->program);
    return status == STATUS_OK ? status : status_prefix(status, "%s", place);
}

static void instance_free(struct instance *instance) { scratch_free(&instance->scratch); }

/* The costs of the choices as the file has them, without the rounding to units. */
static double cost_in_file(const struct instance *instance, const int *choice) {
    double sum = 0;
    for (int i = 0; i < instance->count; i++)
        sum += instance->cost[i][choice[i]];
    for (int i = 0; i < instance->edge_count; i++) {
        const int *end = instance->edges[i];
        sum += instance->edge_cost[i][choice[end[0]] * instance->choices[end[1]] + choice[end[1]]];
    }
    return sum;
}

static json_t *choices_to_json(const struct instance *instance, const struct intra_op_solution *solution) {
    json_t *array = json_array();
    for (int i = 0; i < instance->count && solution->choice; i++)
        (void)json_array_append_new(array, json_integer(solution->choice[i]));
    return array;
}

/* With what the file gives as bytes, below 0: no limit. */
static enum status solve(struct instance *instance, double limit, struct case_result *result) {
    struct intra_op_solution solution = {0};
    instance->program.memory_limit = limit < 0 ? INTRA_OP_NO_LIMIT : (int64_t)limit;
    enum status status = intra_op_solve(&instance->program, 0, &solution);
    bool fits = status == STATUS_OK;
    if (!fits && status != STATUS_NO_FIT) return status_prefix(status, "%s", result->place);
    result->objective = fits ? cost_in_file(instance, solution.choice) : INFINITY;
    if (fits && !solution.exact)
        case_fail(result, "the limit of nodes was met: at least %.17g", (double)solution.bound / instance->units);
    result->more = json_pack("{s:f, s:o, s:b, s:b, s:o}", "memory_budget", limit, "memory",
                             fits ? json_integer(solution.peak) : json_null(), "exact", solution.exact, "first",
                             solution.first, "s_val", choices_to_json(instance, &solution));
    intra_op_solution_free(&solution);
    return STATUS_OK;
}

/* --- section 6 --- */

static enum status add_budget(const char *name, struct instance *instance, const json_t *object,
                              struct case_result *result, struct case_results *out) {
    double limit, answer = INFINITY;
    TRY(case_double(result->place, object, "memory_budget", -1, VALUE_MAX, &limit));
    bool infeasible = json_object_get(object, "infeasible") != NULL;
    TRY(json_read_double(result->place, object, "objective", 0, INFINITY, &answer));
    result->section = name;
    TRY(solve(instance, limit, result));
    if (infeasible || json_object_get(object, "objective")) case_compare(result, answer, false);
    return case_results_add(out, result);
}

static enum status add_budgets(const char *name, struct instance *instance, const json_t *object, size_t index,
                               struct case_results *out) {
    const json_t *budgets, *budget;
    char place[CASE_PLACE_BYTES];
    snprintf(place, sizeof place, "instances[%zu]", index);
    TRY(case_array(place, object, "solutions", &budgets));
    for (size_t i = 0; i < json_array_size(budgets); i++) {
        struct case_result result = {.index = (int)index};
        snprintf(result.place, sizeof result.place, "instances[%zu].solutions[%zu]", index, i);
        TRY(case_item_object(place, "solutions", budgets, i, &budget));
        TRY(add_budget(name, instance, budget, &result, out));
    }
    return STATUS_OK;
}

/* An instance whose costs the file has left out is not one. */
static enum status add_colossal(const char *name, const json_t *object, size_t index, struct case_results *out) {
    const json_t *program;
    char place[CASE_PLACE_BYTES];
    struct instance instance;
    snprintf(place, sizeof place, "instances[%zu]", index);
    TRY(case_object(place, object, "ilp", &program));
    if (!json_object_get(program, "compute")) {
        case_skip(out, name, place, "the file has no costs");
        return STATUS_OK;
    }
    snprintf(place, sizeof place, "instances[%zu].ilp", index);
    enum status status = instance_read(&instance, place, program, "edge_costs_row_major_src_by_dst");
    if (status == STATUS_OK) status = add_budgets(name, &instance, object, index, out);
    instance_free(&instance);
    return status;
}

enum status solve_colossal_cases(const char *name, const json_t *section, struct case_results *out) {
    const json_t *instances, *object;
    TRY(case_array(name, section, "instances", &instances));
    for (size_t i = 0; i < json_array_size(instances); i++) {
        TRY(case_item_object(name, "instances", instances, i, &object));
        TRY(case_named(name, add_colossal(name, object, i, out)));
    }
    return STATUS_OK;
}

/* --- section 8 --- */

/* What the file says of the instance: what was found, and what a closed form gives. */
static enum status compare_checks(const json_t *object, size_t index, struct case_result *result) {
    static const char *const fields[] = {"objective", "expected"};
    const json_t *checks = json_object_get(object, "checks"), *check;
    if (!checks || index >= json_array_size(checks)) return STATUS_OK;
    TRY(case_item_object(result->place, "checks", checks, index, &check));
    for (int i = 0; i < 2; i++) {
        double answer = INFINITY;
        TRY(json_read_double(result->place, check, fields[i], 0, INFINITY, &answer));
        if (json_object_get(check, fields[i])) case_compare(result, answer, false);
    }
    return STATUS_OK;
}

static enum status add_alpa(const char *name, const json_t *object, size_t index, size_t which, const json_t *program,
                            struct case_results *out) {
    struct instance instance;
    struct case_result result = {.section = name, .index = (int)index};
    double limit = -1;
    snprintf(result.place, sizeof result.place, "cases[%zu].instances[%zu]", index, which);
    enum status status = instance_read(&instance, result.place, program, "edge_costs");
    if (status == STATUS_OK) status = case_double(result.place, program, "memory_budget", -1, VALUE_MAX, &limit);
    if (status == STATUS_OK) status = solve(&instance, limit, &result);
    if (status == STATUS_OK) status = compare_checks(object, which, &result);
    instance_free(&instance);
    if (status != STATUS_OK) {
        json_decref(result.more);
        return status;
    }
    (void)json_object_set_new(result.more, "instance", json_integer((json_int_t)which));
    return case_results_add(out, &result);
}

static enum status add_alpa_case(const char *name, const json_t *object, size_t index, struct case_results *out) {
    const json_t *instances, *program;
    char place[CASE_PLACE_BYTES];
    snprintf(place, sizeof place, "cases[%zu]", index);
    if (!json_object_get(object, "instances")) {
        case_skip(out, name, place, "the file has no instances");
        return STATUS_OK;
    }
    TRY(case_array(place, object, "instances", &instances));
    for (size_t i = 0; i < json_array_size(instances); i++) {
        TRY(case_item_object(place, "instances", instances, i, &program));
        TRY(add_alpa(name, object, index, i, program, out));
    }
    return STATUS_OK;
}

enum status solve_alpa_cases(const char *name, const json_t *section, struct case_results *out) {
    const json_t *cases, *object;
    TRY(case_array(name, section, "cases", &cases));
    for (size_t i = 0; i < json_array_size(cases); i++) {
        TRY(case_item_object(name, "cases", cases, i, &object));
        TRY(case_named(name, add_alpa_case(name, object, i, out)));
    }
    return STATUS_OK;
}
