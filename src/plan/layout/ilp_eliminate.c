/* Least costs by eliminating variables: a table over the variables that the eliminated one met takes its place (bucket
 * elimination; Dechter, "Bucket elimination: a unifying framework for reasoning", 1999). */
#include <string.h>

#include "plan/layout/ilp_program.h"

enum { SCOPE_MAX = 24 };

/* Costs by the choices of some variables, the last of which moves on fastest. */
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
    work->left = scratch_alloc(&work->buckets->scratch, (size_t)ilp->count, sizeof *work->left);
    work->buckets->of = scratch_alloc(&work->buckets->scratch, (size_t)ilp->count, sizeof *work->buckets->of);
    if (!work->left || !work->buckets->of) return STATUS_FAILED;
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
    walk->tables = scratch_alloc(&work->buckets->scratch, max, sizeof *walk->tables);
    walk->offset = scratch_alloc(&work->buckets->scratch, max, sizeof *walk->offset);
    walk->stride = scratch_alloc(&work->buckets->scratch, max, sizeof *walk->stride);
    if (!walk->tables || !walk->offset || !walk->stride) return STATUS_FAILED;
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
    struct table *tables = scratch_alloc(&buckets->scratch, (size_t)walk->table_count, sizeof *tables);
    if (!tables) return STATUS_FAILED;
    for (int i = 0; i < walk->table_count; i++)
        tables[i] = *walk->tables[i];
    buckets->of[buckets->count++] = (struct ilp_bucket){variable, walk->table_count, tables};
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
    made.cost = scratch_alloc(&work->buckets->scratch, (size_t)scope_entries(work, &made), sizeof *made.cost);
    if (!made.cost) return STATUS_FAILED;
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
