/* Makes the integer program of a question, and makes it smaller: by ties, by choices that another makes needless, and
 * by eliminating variables. */
#include "plan/layout/ilp_program.h"

/* `order`: of choosing; NULL: that of eliminating each time the variable that leaves the smallest table. NO_FIT where a
 * table would have more than ILP_ENTRIES_MAX: variables depend on too many others at once. The program must stay
 * until ilp_buckets_free, which is due also after a failure. */
#define ILP_ENTRIES_MAX ((int64_t)1 << 22)

/* The node at the end of the ties. */
static int node_kept(const struct intra_op_program *program, int node) {
    while (program->nodes[node].same_as != node)
        node = program->nodes[node].same_as;
    return node;
}

static enum status number_variables(const struct intra_op_program *program, struct ilp_program *ilp) {
    size_t nodes = (size_t)program->node_count;
    TRY(scratch_items(&ilp->scratch, &ilp->variable_of, nodes));
    TRY(scratch_items(&ilp->scratch, &ilp->choices, nodes));
    TRY(scratch_items(&ilp->scratch, &ilp->first, nodes + 1));
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
    TRY(scratch_items(&ilp->scratch, &ilp->cost, choices));
    TRY(scratch_items(&ilp->scratch, &ilp->original, choices));
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
    TRY(scratch_items(&ilp->scratch, cost, entries));
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

struct reduction {
    struct ilp_program *ilp;
    bool *gone; /* [first[count]] */
};

static int64_t pair_cost(const struct ilp_program *ilp, const struct ilp_pair *pair, int variable, int choice,
                         int other) {
    int columns = ilp->choices[pair->high];
    return variable == pair->low ? pair->cost[choice * columns + other] : pair->cost[other * columns + choice];
}

/* ---- fewer choices ---- */

/* Removes dominated choices (dead-end elimination by Goldstein's criterion, Biophysical Journal 66, 1994). A choice is
 * dominated if another one of the same variable never costs more, whatever the other variables choose, and never takes
 * more memory. If their costs can be equal, the dominating choice must come earlier. So the first of the cheapest
 * solutions stays. */

/* Minimum of cost(k) - cost(by) over the remaining choices of the variable at the pair's other end. */
static int64_t min_difference(const struct reduction *reduction, const struct ilp_pair *pair, int variable, int k,
                              int by) {
    const struct ilp_program *ilp = reduction->ilp;
    int other = variable == pair->low ? pair->high : pair->low;
    int64_t min = ILP_FORBIDDEN;
    for (int l = 0; l < ilp->choices[other]; l++) {
        int64_t own = pair_cost(ilp, pair, variable, k, l);
        if (reduction->gone[ilp->first[other] + l] || own >= ILP_FORBIDDEN) continue;
        int64_t difference = own - pair_cost(ilp, pair, variable, by, l);
        min = difference < min ? difference : min;
    }
    return min;
}

static bool takes_no_more_memory(const struct ilp_program *ilp, int at, int by) {
    for (int m = 0; m < ilp->moment_count; m++) {
        const int64_t *memory = ilp->memory + (size_t)m * (size_t)ilp->first[ilp->count];
        if (memory[by] > memory[at]) return false;
    }
    return true;
}

static bool makes_needless(const struct reduction *reduction, int variable, int k, int by) {
    const struct ilp_program *ilp = reduction->ilp;
    int first = ilp->first[variable];
    int64_t saved = ilp->cost[first + k] - ilp->cost[first + by];
    if (!takes_no_more_memory(ilp, first + k, first + by)) return false;
    for (size_t i = 0; i < ilp->pairs.count && saved > -ILP_FORBIDDEN; i++) {
        const struct ilp_pair *pair = &ilp->pairs.items[i];
        if (pair->low == variable || pair->high == variable)
            saved = ilp_sum(saved, min_difference(reduction, pair, variable, k, by));
    }
    return saved > 0 || (saved == 0 && by < k);
}

static bool is_needless(const struct reduction *reduction, int variable, int k) {
    const struct ilp_program *ilp = reduction->ilp;
    for (int by = 0; by < ilp->choices[variable]; by++)
        if (by != k && !reduction->gone[ilp->first[variable] + by] && makes_needless(reduction, variable, k, by))
            return true;
    return false;
}

/* Repeats until none is found: removed choices can make others dominated. */
static void mark(struct reduction *reduction) {
    const struct ilp_program *ilp = reduction->ilp;
    bool found = true;
    while (found) {
        found = false;
        for (int v = 0; v < ilp->count; v++) {
            for (int k = 0; k < ilp->choices[v]; k++) {
                bool *gone = &reduction->gone[ilp->first[v] + k];
                if (*gone || !is_needless(reduction, v, k)) continue;
                *gone = found = true;
            }
        }
    }
}

/* Moves the remaining entries of an array over all choices to its front. */
static void compact(const struct reduction *reduction, int64_t *values) {
    int kept = 0;
    for (int k = 0; k < reduction->ilp->first[reduction->ilp->count]; k++)
        if (!reduction->gone[k]) values[kept++] = values[k];
}

static void compact_pair(const struct reduction *reduction, struct ilp_pair *pair) {
    const struct ilp_program *ilp = reduction->ilp;
    int columns = ilp->choices[pair->high], kept = 0;
    for (int a = 0; a < ilp->choices[pair->low]; a++)
        for (int b = 0; b < columns; b++)
            if (!reduction->gone[ilp->first[pair->low] + a] && !reduction->gone[ilp->first[pair->high] + b])
                pair->cost[kept++] = pair->cost[a * columns + b];
}

static void compact_moments(const struct reduction *reduction, int width) {
    struct ilp_program *ilp = reduction->ilp;
    size_t before = (size_t)ilp->first[ilp->count];
    for (int m = 0; m < ilp->moment_count; m++) {
        int64_t *memory = ilp->memory + (size_t)m * before;
        compact(reduction, memory);
        memmove(ilp->memory + (size_t)m * (size_t)width, memory, (size_t)width * sizeof *memory);
    }
}

static void compact_all(const struct reduction *reduction) {
    struct ilp_program *ilp = reduction->ilp;
    int kept = 0, at = 0;
    for (int k = 0; k < ilp->first[ilp->count]; k++)
        if (!reduction->gone[k]) ilp->original[kept++] = ilp->original[k];
    compact(reduction, ilp->cost);
    for (size_t i = 0; i < ilp->pairs.count; i++)
        compact_pair(reduction, &ilp->pairs.items[i]);
    compact_moments(reduction, kept);
    kept = 0;
    for (int v = 0; v < ilp->count; v++) {
        int begin = kept;
        for (int k = 0; k < ilp->choices[v]; k++)
            kept += !reduction->gone[at++];
        ilp->first[v] = begin;
        ilp->choices[v] = kept - begin;
    }
    ilp->first[ilp->count] = kept;
}

enum status ilp_program_reduce(struct ilp_program *ilp) {
    struct reduction reduction = {ilp, mem_array((size_t)ilp->first[ilp->count], sizeof *reduction.gone)};
    if (!reduction.gone) return STATUS_FAILED;
    mark(&reduction);
    compact_all(&reduction);
    mem_free(reduction.gone);
    return STATUS_OK;
}

/* ---- elimination of variables ---- */

/* Least costs by eliminating variables: a table over the variables that the eliminated one met takes its place (bucket
 * elimination; Dechter, "Bucket elimination: a unifying framework for reasoning", 1999). */

enum { SCOPE_MAX = 24 };

/* Costs for all combinations of some variables' choices. The last variable varies fastest. */
struct table {
    int count;
    int scope[SCOPE_MAX]; /* ascending variables */
    int64_t *cost;
    bool gone;
};
/* A variable that was eliminated, and the tables that it was in: they depend on it and on those eliminated later. */
struct ilp_bucket {
    int variable, count;
    struct table *tables;
};
/* While variables are eliminated: the tables that are left. */
struct work {
    const struct ilp_program *ilp;
    struct ilp_buckets *buckets;
    VEC(struct table) tables;
    bool *left; /* by variable: not eliminated */
};

static int scope_find(const struct table *table, int variable) {
    for (int i = 0; i < table->count; i++)
        if (table->scope[i] == variable) return i;
    return -1;
}

/* Adds the variable in its place; false where there is no space. */
static bool scope_add(struct table *table, int variable) {
    int at = table->count;
    if (scope_find(table, variable) >= 0) return true;
    if (at == SCOPE_MAX) return false;
    for (; at > 0 && table->scope[at - 1] > variable; at--)
        table->scope[at] = table->scope[at - 1];
    table->scope[at] = variable;
    table->count++;
    return true;
}

/* Entries of a table over the scope; ILP_ENTRIES_MAX + 1 where there are more. */
static int64_t scope_entries(const struct work *work, const struct table *table) {
    int64_t entries = 1;
    for (int i = 0; i < table->count && entries <= ILP_ENTRIES_MAX; i++)
        entries *= work->ilp->choices[table->scope[i]];
    return entries <= ILP_ENTRIES_MAX ? entries : ILP_ENTRIES_MAX + 1;
}

/* The variables that meet `variable` in a table, and itself. */
static bool scope_around(const struct work *work, int variable, struct table *out) {
    *out = (struct table){0};
    if (!scope_add(out, variable)) return false;
    for (size_t i = 0; i < work->tables.count; i++) {
        const struct table *table = &work->tables.items[i];
        if (table->gone || scope_find(table, variable) < 0) continue;
        for (int k = 0; k < table->count; k++)
            if (!scope_add(out, table->scope[k])) return false;
    }
    return true;
}

static enum status begin(struct work *work) {
    const struct ilp_program *ilp = work->ilp;
    TRY(scratch_items(&work->buckets->scratch, &work->left, (size_t)ilp->count));
    TRY(scratch_items(&work->buckets->scratch, &work->buckets->of, (size_t)ilp->count));
    for (int v = 0; v < ilp->count; v++) {
        work->left[v] = true;
        TRY(vec_push(&work->tables, (struct table){.count = 1, .scope = {v}, .cost = ilp->cost + ilp->first[v]}));
    }
    for (size_t i = 0; i < ilp->pairs.count; i++) {
        const struct ilp_pair *pair = &ilp->pairs.items[i];
        TRY(vec_push(&work->tables, (struct table){.count = 2, .scope = {pair->low, pair->high}, .cost = pair->cost}));
    }
    return STATUS_OK;
}

/* Goes through all choices of a scope, and keeps for each table where it is then. */
struct walk {
    const struct work *work;
    struct table scope;
    int choice[SCOPE_MAX];
    int table_count;
    const struct table **tables;
    int64_t *offset;              /* [tables] */
    int64_t (*stride)[SCOPE_MAX]; /* [tables] of each variable of the scope in it */
};

static enum status walk_begin(struct work *work, const struct table *scope, int variable, struct walk *walk) {
    size_t max = work->tables.count;
    *walk = (struct walk){.work = work, .scope = *scope};
    TRY(scratch_items(&work->buckets->scratch, &walk->tables, max));
    TRY(scratch_items(&work->buckets->scratch, &walk->offset, max));
    TRY(scratch_items(&work->buckets->scratch, &walk->stride, max));
    for (size_t i = 0; i < max; i++) {
        struct table *table = &work->tables.items[i];
        if (table->gone || (table->count > 0 && scope_find(table, variable) < 0)) continue;
        table->gone = true;
        int64_t stride = 1;
        for (int k = table->count - 1; k >= 0; k--) {
            walk->stride[walk->table_count][scope_find(scope, table->scope[k])] = stride;
            stride *= work->ilp->choices[table->scope[k]];
        }
        walk->tables[walk->table_count++] = table;
    }
    return STATUS_OK;
}

static int64_t walk_cost(const struct walk *walk) {
    int64_t sum = 0;
    for (int i = 0; i < walk->table_count; i++)
        sum = ilp_sum(sum, walk->tables[i]->cost[walk->offset[i]]);
    return sum;
}

static void walk_move(struct walk *walk, int at, int by) {
    walk->choice[at] += by;
    for (int i = 0; i < walk->table_count; i++)
        walk->offset[i] += by * walk->stride[i][at];
}

/* The next choices of the scope but for `skipped`, which stands at its first; false after the last. */
static bool walk_next(struct walk *walk, int skipped) {
    for (int at = walk->scope.count - 1; at >= 0; at--) {
        if (at == skipped) continue;
        if (walk->choice[at] + 1 < walk->work->ilp->choices[walk->scope.scope[at]]) {
            walk_move(walk, at, 1);
            return true;
        }
        walk_move(walk, at, -walk->choice[at]);
    }
    return false;
}

/* Over the choices of the variable at `position`, the others as they are. */
static int64_t walk_min(struct walk *walk, int position) {
    int choices = walk->work->ilp->choices[walk->scope.scope[position]];
    int64_t min = ILP_FORBIDDEN;
    for (int k = 0; k < choices; k++) {
        int64_t cost = walk_cost(walk);
        if (cost < min) min = cost;
        walk_move(walk, position, k + 1 < choices ? 1 : -k);
    }
    return min;
}

/* Keeps the tables; the work's own list moves as it grows. */
static enum status remember(struct work *work, int variable, const struct walk *walk) {
    struct ilp_buckets *buckets = work->buckets;
    struct ilp_bucket *made = &buckets->of[buckets->count++];
    *made = (struct ilp_bucket){.variable = variable, .count = walk->table_count};
    TRY(scratch_items(&buckets->scratch, &made->tables, (size_t)walk->table_count));
    for (int i = 0; i < walk->table_count; i++)
        made->tables[i] = *walk->tables[i];
    return STATUS_OK;
}

static enum status eliminate(struct work *work, int variable) {
    struct table around, made = {0};
    struct walk walk;
    if (!scope_around(work, variable, &around)) BUG("a scope that was measured does not fit");
    TRY(walk_begin(work, &around, variable, &walk));
    TRY(remember(work, variable, &walk));
    int position = scope_find(&around, variable);
    for (int i = 0; i < around.count; i++)
        if (i != position) made.scope[made.count++] = around.scope[i];
    TRY(scratch_items(&work->buckets->scratch, &made.cost, (size_t)scope_entries(work, &made)));
    int64_t *cost = made.cost;
    do
        *cost++ = walk_min(&walk, position);
    while (walk_next(&walk, position));
    work->left[variable] = false;
    return vec_push(&work->tables, made);
}

/* The variable whose table is smallest; -1 when none is left, -2 when the smallest is too large. */
static int smallest(const struct work *work) {
    int best = -1;
    int64_t min = ILP_ENTRIES_MAX + 1;
    bool any = false;
    for (int v = 0; v < work->ilp->count; v++) {
        struct table around;
        if (!work->left[v]) continue;
        any = true;
        int64_t entries = scope_around(work, v, &around) ? scope_entries(work, &around) : ILP_ENTRIES_MAX + 1;
        if (entries < min) min = entries, best = v;
    }
    return any && best < 0 ? -2 : best;
}

/* The next variable to eliminate: where an order of choosing is given the last of it, else the smallest. */
static int next_variable(const struct work *work, const int *order) {
    int left = work->ilp->count - work->buckets->count;
    if (!order) return smallest(work);
    if (left == 0) return -1;
    struct table around;
    bool small = scope_around(work, order[left - 1], &around) && scope_entries(work, &around) <= ILP_ENTRIES_MAX;
    return small ? order[left - 1] : -2;
}

static enum status eliminate_all(struct work *work, const int *order) {
    TRY(begin(work));
    int next;
    while ((next = next_variable(work, order)) >= 0)
        TRY(eliminate(work, next));
    if (next == -2) return status_set(STATUS_NO_FIT, "a table of more than %lld entries", (long long)ILP_ENTRIES_MAX);
    for (size_t i = 0; i < work->tables.count; i++)
        if (!work->tables.items[i].gone)
            work->buckets->min = ilp_sum(work->buckets->min, work->tables.items[i].cost[0]);
    return STATUS_OK;
}

enum status ilp_buckets_make(const struct ilp_program *ilp, const int *order, struct ilp_buckets *out) {
    *out = (struct ilp_buckets){.ilp = ilp};
    struct work work = {.ilp = ilp, .buckets = out};
    enum status status = eliminate_all(&work, order);
    vec_free(&work.tables);
    return status;
}

void ilp_buckets_free(struct ilp_buckets *buckets) { scratch_free(&buckets->scratch); }

static const struct ilp_bucket *bucket_at(const struct ilp_buckets *buckets, int at) {
    return &buckets->of[buckets->count - 1 - at];
}

int ilp_buckets_variable(const struct ilp_buckets *buckets, int at) { return bucket_at(buckets, at)->variable; }

static int64_t table_offset(const struct ilp_program *ilp, const struct table *table, const int *choice) {
    int64_t at = 0;
    for (int i = 0; i < table->count; i++)
        at = at * ilp->choices[table->scope[i]] + choice[table->scope[i]];
    return at;
}

void ilp_buckets_values(const struct ilp_buckets *buckets, int at, int *choice, int64_t *values) {
    const struct ilp_bucket *bucket = bucket_at(buckets, at);
    const struct ilp_program *ilp = buckets->ilp;
    int choices = ilp->choices[bucket->variable], was = choice[bucket->variable];
    for (int k = 0; k < choices; k++) {
        values[k] = 0, choice[bucket->variable] = k;
        for (int t = 0; t < bucket->count; t++)
            values[k] = ilp_sum(values[k], bucket->tables[t].cost[table_offset(ilp, &bucket->tables[t], choice)]);
    }
    choice[bucket->variable] = was;
}

void ilp_buckets_choose(const struct ilp_buckets *buckets, int64_t *values, int *choice) {
    for (int at = 0; at < buckets->count; at++) {
        int variable = ilp_buckets_variable(buckets, at), best = 0;
        ilp_buckets_values(buckets, at, choice, values);
        for (int k = 1; k < buckets->ilp->choices[variable]; k++)
            if (values[k] < values[best]) best = k;
        choice[variable] = best;
    }
}
