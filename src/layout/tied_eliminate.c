/* Least costs by eliminating variables: a table over the variables that the eliminated one met takes its place (bucket
 * elimination; Dechter, "Bucket elimination: a unifying framework for reasoning", 1999). */
#include <string.h>

#include "layout/tied_program.h"

enum { MOST_SCOPE = 24 };

/* Costs by the choices of some variables, the last of which moves on fastest. */
struct table {
    int count;
    int scope[MOST_SCOPE]; /* ascending variables */
    int64_t *cost;
    bool gone;
};
/* A variable that was eliminated, and the tables that it was in. */
struct eliminated {
    int variable, count;
    struct table *tables;
};
struct work {
    const struct tied_program *tied;
    VEC(struct table) tables;
    VEC(struct eliminated) order;
    bool *left; /* by variable: neither chosen nor eliminated */
    struct scratch scratch;
};

static int scope_find(const struct table *table, int variable) {
    for (int i = 0; i < table->count; i++)
        if (table->scope[i] == variable) return i;
    return -1;
}

/* Adds the variable in its place; false where there is no room. */
static bool scope_add(struct table *table, int variable) {
    int at = table->count;
    if (scope_find(table, variable) >= 0) return true;
    if (at == MOST_SCOPE) return false;
    for (; at > 0 && table->scope[at - 1] > variable; at--)
        table->scope[at] = table->scope[at - 1];
    table->scope[at] = variable;
    table->count++;
    return true;
}

/* Entries of a table over the scope; TIED_MOST_ENTRIES + 1 where there are more. */
static int64_t scope_entries(const struct work *work, const struct table *table) {
    int64_t entries = 1;
    for (int i = 0; i < table->count && entries <= TIED_MOST_ENTRIES; i++)
        entries *= work->tied->choices[table->scope[i]];
    return entries <= TIED_MOST_ENTRIES ? entries : TIED_MOST_ENTRIES + 1;
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

/* A table of one variable, or of none. */
static enum status add_small(struct work *work, int variable, const int64_t *cost, int stride) {
    int choices = variable < 0 ? 1 : work->tied->choices[variable];
    struct table table = {.count = variable < 0 ? 0 : 1, .scope = {variable}};
    table.cost = scratch_alloc(&work->scratch, (size_t)choices, sizeof *table.cost);
    if (!table.cost) return STATUS_FAILED;
    for (int k = 0; k < choices; k++)
        table.cost[k] = cost[k * stride];
    return vec_push(&work->tables, table);
}

/* The pair with what is chosen put in. */
static enum status add_pair(struct work *work, const struct tied_pair *pair, const int *chosen) {
    int columns = work->tied->choices[pair->high], low = chosen[pair->low], high = chosen[pair->high];
    if (low >= 0 && high >= 0) return add_small(work, -1, pair->cost + low * columns + high, 0);
    if (low >= 0) return add_small(work, pair->high, pair->cost + low * columns, 1);
    if (high >= 0) return add_small(work, pair->low, pair->cost + high, columns);
    struct table table = {.count = 2, .scope = {pair->low, pair->high}, .cost = pair->cost};
    return vec_push(&work->tables, table);
}

static enum status begin(struct work *work, const int *chosen) {
    const struct tied_program *tied = work->tied;
    work->left = scratch_alloc(&work->scratch, (size_t)tied->count, sizeof *work->left);
    if (!work->left) return STATUS_FAILED;
    for (int v = 0; v < tied->count; v++) {
        const int64_t *cost = tied->cost + tied->first[v];
        work->left[v] = chosen[v] < 0;
        TRY(chosen[v] < 0 ? add_small(work, v, cost, 1) : add_small(work, -1, cost + chosen[v], 0));
    }
    for (size_t i = 0; i < tied->pairs.count; i++)
        TRY(add_pair(work, &tied->pairs.items[i], chosen));
    return STATUS_OK;
}

/* Goes through all choices of a scope, and keeps for each table where it is then. */
struct walk {
    const struct work *work;
    struct table scope;
    int choice[MOST_SCOPE];
    int table_count;
    const struct table **tables;
    int64_t *offset;               /* [tables] */
    int64_t (*stride)[MOST_SCOPE]; /* [tables] of each variable of the scope in it */
};

static enum status walk_begin(struct work *work, const struct table *scope, int variable, struct walk *walk) {
    size_t most = work->tables.count;
    *walk = (struct walk){.work = work, .scope = *scope};
    walk->tables = scratch_alloc(&work->scratch, most, sizeof *walk->tables);
    walk->offset = scratch_alloc(&work->scratch, most, sizeof *walk->offset);
    walk->stride = scratch_alloc(&work->scratch, most, sizeof *walk->stride);
    if (!walk->tables || !walk->offset || !walk->stride) return STATUS_FAILED;
    for (size_t i = 0; i < most; i++) {
        struct table *table = &work->tables.items[i];
        if (table->gone || (table->count > 0 && scope_find(table, variable) < 0)) continue;
        table->gone = true;
        int64_t stride = 1;
        for (int k = table->count - 1; k >= 0; k--) {
            walk->stride[walk->table_count][scope_find(scope, table->scope[k])] = stride;
            stride *= work->tied->choices[table->scope[k]];
        }
        walk->tables[walk->table_count++] = table;
    }
    return STATUS_OK;
}

static int64_t walk_cost(const struct walk *walk) {
    int64_t sum = 0;
    for (int i = 0; i < walk->table_count; i++)
        sum = tied_sum(sum, walk->tables[i]->cost[walk->offset[i]]);
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
        if (walk->choice[at] + 1 < walk->work->tied->choices[walk->scope.scope[at]]) {
            walk_move(walk, at, 1);
            return true;
        }
        walk_move(walk, at, -walk->choice[at]);
    }
    return false;
}

/* Over the choices of the variable at `position`, the others as they are. */
static int64_t walk_least(struct walk *walk, int position) {
    int choices = walk->work->tied->choices[walk->scope.scope[position]];
    int64_t least = TIED_FORBIDDEN;
    for (int k = 0; k < choices; k++) {
        int64_t cost = walk_cost(walk);
        if (cost < least) least = cost;
        walk_move(walk, position, k + 1 < choices ? 1 : -k);
    }
    return least;
}

/* Keeps the tables for choose_back; the work's own list moves as it grows. */
static enum status remember(struct work *work, int variable, const struct walk *walk) {
    struct table *tables = scratch_alloc(&work->scratch, (size_t)walk->table_count, sizeof *tables);
    if (!tables) return STATUS_FAILED;
    for (int i = 0; i < walk->table_count; i++)
        tables[i] = *walk->tables[i];
    return vec_push(&work->order, (struct eliminated){variable, walk->table_count, tables});
}

static int64_t table_cost(const struct work *work, const struct table *table, const int *choice) {
    int64_t at = 0;
    for (int i = 0; i < table->count; i++)
        at = at * work->tied->choices[table->scope[i]] + choice[table->scope[i]];
    return table->cost[at];
}

/* The last that was eliminated depends on the root alone, the one before on these two, and so on. */
static void choose_back(const struct work *work, int *choice) {
    for (size_t i = work->order.count; i-- > 0;) {
        const struct eliminated *one = &work->order.items[i];
        int64_t least = INT64_MAX;
        int best = 0;
        for (int k = 0; k < work->tied->choices[one->variable]; k++) {
            int64_t sum = 0;
            choice[one->variable] = k;
            for (int t = 0; t < one->count; t++)
                sum = tied_sum(sum, table_cost(work, &one->tables[t], choice));
            if (sum < least) least = sum, best = k;
        }
        choice[one->variable] = best;
    }
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
    made.cost = scratch_alloc(&work->scratch, (size_t)scope_entries(work, &made), sizeof *made.cost);
    if (!made.cost) return STATUS_FAILED;
    int64_t *cost = made.cost;
    do
        *cost++ = walk_least(&walk, position);
    while (walk_next(&walk, position));
    work->left[variable] = false;
    return vec_push(&work->tables, made);
}

/* The variable other than `root` whose table is smallest; -1 when none is left, -2 when the smallest is too large. */
static int smallest(const struct work *work, int root) {
    int best = -1;
    int64_t least = TIED_MOST_ENTRIES + 1;
    bool any = false;
    for (int v = 0; v < work->tied->count; v++) {
        struct table around;
        if (v == root || !work->left[v]) continue;
        any = true;
        int64_t entries = scope_around(work, v, &around) ? scope_entries(work, &around) : TIED_MOST_ENTRIES + 1;
        if (entries < least) least = entries, best = v;
    }
    return any && best < 0 ? -2 : best;
}

static int index_of_least(const int64_t *values, int count) {
    int best = 0;
    for (int k = 1; k < count; k++)
        if (values[k] < values[best]) best = k;
    return best;
}

static enum status eliminate_all(struct work *work, const int *chosen, int root, int64_t *least, int *best) {
    TRY(begin(work, chosen));
    int next;
    while ((next = smallest(work, root)) >= 0)
        TRY(eliminate(work, next));
    if (next == -2) return status_set(STATUS_NO_FIT, "a table of more than %lld entries", (long long)TIED_MOST_ENTRIES);
    struct table scope = {.count = 1, .scope = {root}};
    struct walk walk;
    TRY(walk_begin(work, &scope, root, &walk));
    for (int k = 0; k < work->tied->choices[root]; k++) {
        least[k] = walk_cost(&walk);
        if (k + 1 < work->tied->choices[root]) walk_move(&walk, 0, 1);
    }
    if (!best) return STATUS_OK;
    memcpy(best, chosen, (size_t)work->tied->count * sizeof *best);
    best[root] = index_of_least(least, work->tied->choices[root]);
    choose_back(work, best);
    return STATUS_OK;
}

enum status tied_eliminate(const struct tied_program *tied, const int *chosen, int root, int64_t *least, int *best) {
    struct work work = {.tied = tied};
    enum status status = eliminate_all(&work, chosen, root, least, best);
    vec_free(&work.tables);
    vec_free(&work.order);
    scratch_free(&work.scratch);
    return status;
}
