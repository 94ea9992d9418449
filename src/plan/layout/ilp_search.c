/* Finds the first of the cheapest choices that fit, exactly: a beam of partial choices, extended variable by variable.
 *
 * A partial choice (a label) is discarded in three cases:
 * - The lower bound on the cost of its continuations, by elimination with prices for memory, is too high.
 * - Its memory and the least memory of the other variables exceed the limit.
 * - Another label dominates it. That label made the same choices for all variables that have pairs with later ones. It
 *   takes no more memory at any moment. It costs less, or the same and comes first in lexicographic order.
 *
 * If more labels are left than may be kept, the ones with the most expensive continuations are dropped, and the result
 * is the best found. (Label setting under resources: Desrochers and Soumis, INFOR 26, 1988.) */
#include <math.h>

#include "plan/layout/ilp_program.h"

/* ---- the order of variables ---- */

/* An order in which variables are chosen, so that what is chosen is soon of no more concern: at each place few choices
 * are open of the frontier, the chosen variables that have pairs with others. Greedy, from each of some variables; the
 * best of these orders. */

enum { STARTS_MAX = 16 };

struct ordering {
    const struct ilp_program *ilp;
    int *neighbours, *first; /* [first[variables]] by variable */
    int *open;               /* by variable: neighbours that are not chosen yet */
    bool *chosen;
    int *order, count;
    double frontier; /* logarithm of how many ways there are to choose the frontier */
    struct scratch scratch;
};

static enum status find_neighbours(struct ordering *ordering) {
    const struct ilp_program *ilp = ordering->ilp;
    size_t count = (size_t)ilp->count;
    TRY(scratch_items(&ordering->scratch, &ordering->first, count + 1));
    TRY(scratch_items(&ordering->scratch, &ordering->neighbours, 2 * ilp->pairs.count));
    TRY(scratch_items(&ordering->scratch, &ordering->open, count));
    TRY(scratch_items(&ordering->scratch, &ordering->chosen, count));
    TRY(scratch_items(&ordering->scratch, &ordering->order, count));
    for (size_t i = 0; i < ilp->pairs.count; i++)
        ordering->open[ilp->pairs.items[i].low]++, ordering->open[ilp->pairs.items[i].high]++;
    for (size_t v = 0; v < count; v++)
        ordering->first[v + 1] = ordering->first[v] + ordering->open[v];
    memset(ordering->open, 0, count * sizeof(int));
    for (size_t i = 0; i < ilp->pairs.count; i++) {
        int low = ilp->pairs.items[i].low, high = ilp->pairs.items[i].high;
        ordering->neighbours[ordering->first[low] + ordering->open[low]++] = high;
        ordering->neighbours[ordering->first[high] + ordering->open[high]++] = low;
    }
    return STATUS_OK;
}

static double ways(const struct ordering *ordering, int variable) { return log(ordering->ilp->choices[variable]); }

/* The frontier after the variable is chosen too. */
static double frontier_with(const struct ordering *ordering, int variable) {
    double frontier = ordering->frontier + (ordering->open[variable] > 0 ? ways(ordering, variable) : 0);
    for (int i = ordering->first[variable]; i < ordering->first[variable + 1]; i++) {
        int other = ordering->neighbours[i];
        if (ordering->chosen[other] && ordering->open[other] == 1) frontier -= ways(ordering, other);
    }
    return frontier;
}

static void choose(struct ordering *ordering, int variable) {
    ordering->frontier = frontier_with(ordering, variable);
    ordering->chosen[variable] = true;
    ordering->order[ordering->count++] = variable;
    for (int i = ordering->first[variable]; i < ordering->first[variable + 1]; i++)
        ordering->open[ordering->neighbours[i]]--;
}

/* Next to a chosen one where there is such; the first of those after which the frontier is smallest. */
static int next_variable(const struct ordering *ordering) {
    int best = -1;
    bool near = false;
    double min = 0;
    for (int v = 0; v < ordering->ilp->count; v++) {
        if (ordering->chosen[v]) continue;
        bool own = ordering->open[v] < ordering->first[v + 1] - ordering->first[v];
        double frontier = frontier_with(ordering, v);
        if (best >= 0 && (near != own ? near : frontier >= min - 1e-9)) continue;
        best = v, near = own, min = frontier;
    }
    return best;
}

/* The sum of all frontiers' ways. */
static double order_from(struct ordering *ordering, int start) {
    double sum = 0;
    ordering->count = 0, ordering->frontier = 0;
    memset(ordering->chosen, 0, (size_t)ordering->ilp->count * sizeof(bool));
    for (int v = 0; v < ordering->ilp->count; v++)
        ordering->open[v] = ordering->first[v + 1] - ordering->first[v];
    for (int next = start; next >= 0; next = next_variable(ordering)) {
        choose(ordering, next);
        sum += exp(ordering->frontier);
    }
    return sum;
}

enum status ilp_order_find(const struct ilp_program *ilp, int *order) {
    struct ordering ordering = {.ilp = ilp};
    enum status status = find_neighbours(&ordering);
    double min = INFINITY;
    for (int start = 0; start < ilp->count && start < STARTS_MAX && status == STATUS_OK; start++) {
        double sum = order_from(&ordering, start);
        if (start > 0 && sum >= min * (1 - 1e-9)) continue;
        min = sum;
        memcpy(order, ordering.order, (size_t)ilp->count * sizeof *order);
    }
    scratch_free(&ordering.scratch);
    return status;
}

/* ---- prices for memory ---- */

/* Prices for bytes, so that elimination, which knows no memory, gives bounds that do (Lagrangian relaxation; Polyak,
 * "Minimization of unsmooth functionals", 1969). All sums are whole: a price is a fraction of 2^PRICE_BITS, a choice
 * pays it rounded down, the limit gets it back rounded up, so that the bound holds exactly. */

enum { PRICE_BITS = 40, STEPS = 60 };
#define PRICE_MAX 0x1p60

/* Memory of one moment, by all choices. */
static const int64_t *moment_at(const struct ilp_program *ilp, int moment) {
    return ilp->memory + (size_t)moment * (size_t)ilp->first[ilp->count];
}

/* The price of `bytes`, rounded down; never more than is counted. */
static int64_t price_of(int64_t bytes, int64_t price) {
    __int128 paid = ((__int128)bytes * price) >> PRICE_BITS;
    return paid < ILP_FORBIDDEN ? (int64_t)paid : ILP_FORBIDDEN;
}

/* The costs at these prices, clamped to ILP_FORBIDDEN, and the limit's price. */
static void set_prices(const struct ilp_program *ilp, const int64_t *price, struct ilp_prices *out) {
    int choices = ilp->first[ilp->count];
    out->paid = 0;
    memcpy(out->priced.cost, ilp->cost, (size_t)choices * sizeof *ilp->cost);
    for (int m = 0; m < ilp->moment_count; m++) {
        const int64_t *memory = moment_at(ilp, m);
        __int128 paid = (((__int128)ilp->limit * price[m]) >> PRICE_BITS) + 1;
        out->paid = paid < INT64_MAX / 2 - out->paid ? out->paid + (int64_t)paid : INT64_MAX / 2;
        for (int k = 0; k < choices; k++)
            out->priced.cost[k] = ilp_sum(out->priced.cost[k], price_of(memory[k], price[m]));
    }
}

/* How far the choices exceed the limit at each moment, and the squares' sum. */
static double find_excess(const struct ilp_program *ilp, const int *choice, double *excess) {
    double squares = 0;
    for (int m = 0; m < ilp->moment_count; m++) {
        int64_t sum = 0;
        for (int v = 0; v < ilp->count; v++)
            sum += moment_at(ilp, m)[ilp->first[v] + choice[v]];
        excess[m] = (double)(sum - ilp->limit);
        squares += excess[m] * excess[m];
    }
    return squares;
}

struct pricing {
    const struct ilp_program *ilp;
    int *choice;
    int64_t *values, *price, *best_price;
    double *exact, *excess; /* prices before rounding */
};

static enum status pricing_create(const struct ilp_program *ilp, struct scratch *scratch, struct pricing *out) {
    size_t count = (size_t)ilp->count, moments = (size_t)ilp->moment_count;
    *out = (struct pricing){.ilp = ilp};
    TRY(scratch_items(scratch, &out->choice, count));
    TRY(scratch_items(scratch, &out->values, ilp_max_choices(ilp)));
    TRY(scratch_items(scratch, &out->price, moments));
    TRY(scratch_items(scratch, &out->best_price, moments));
    TRY(scratch_items(scratch, &out->exact, moments));
    return scratch_items(scratch, &out->excess, moments);
}

/* The bound at the present prices, and the choices that have it. */
static enum status find_bound(const struct pricing *pricing, struct ilp_prices *out, int64_t *bound) {
    AUTO(ilp_buckets_free) struct ilp_buckets buckets = {0};
    set_prices(pricing->ilp, pricing->price, out);
    enum status status = ilp_buckets_make(&out->priced, NULL, &buckets);
    if (status == STATUS_OK) ilp_buckets_choose(&buckets, pricing->values, pricing->choice);
    *bound = buckets.min - out->paid;
    return status;
}

static void move_prices(struct pricing *pricing, double step) {
    for (int m = 0; m < pricing->ilp->moment_count; m++) {
        pricing->exact[m] = fmin(fmax(pricing->exact[m] + step * pricing->excess[m], 0), PRICE_MAX);
        pricing->price[m] = (int64_t)fmin(pricing->exact[m] * exp2(PRICE_BITS), PRICE_MAX);
    }
}

static enum status raise_bound(struct pricing *pricing, int64_t above, struct ilp_prices *out) {
    size_t bytes = (size_t)pricing->ilp->moment_count * sizeof *pricing->price;
    double reach = 1;
    out->bound = INT64_MIN;
    for (int i = 0; i < STEPS && out->bound < above; i++) {
        int64_t bound;
        TRY(find_bound(pricing, out, &bound));
        if (bound > out->bound) {
            out->bound = bound;
            memcpy(pricing->best_price, pricing->price, bytes);
        } else {
            reach *= 0.8;
        }
        double squares = find_excess(pricing->ilp, pricing->choice, pricing->excess);
        if (squares == 0 || bound >= above) break;
        move_prices(pricing, reach * (double)(above - bound) / squares);
    }
    set_prices(pricing->ilp, pricing->best_price, out);
    return STATUS_OK;
}

enum status ilp_prices_find(const struct ilp_program *ilp, int64_t above, struct ilp_prices *out) {
    struct pricing pricing;
    AUTO(scratch_free) struct scratch scratch = {0};
    *out = (struct ilp_prices){.priced = *ilp};
    TRY(mem_items(&out->priced.cost, (size_t)ilp->first[ilp->count]));
    TRY(pricing_create(ilp, &scratch, &pricing));
    return raise_bound(&pricing, above, out);
}

void ilp_prices_free(struct ilp_prices *prices) {
    mem_free(prices->priced.cost);
    *prices = (struct ilp_prices){0};
}

/* ---- partial choices ---- */

/* How many of the cheapest a label is compared with: the others rarely leave it out. */
enum { COMPARED_MAX = 64 };

/* Data about the variable at one place of the order, computed before anything is chosen. */
struct place {
    int variable;
    int link_count, frontier_count;
    const struct ilp_pair **links; /* to variables before it */
    int *frontier;                 /* variables up to here that have pairs with later ones */
    int64_t *min, *max;            /* [moments] memory of all later variables */
};

struct label {
    int64_t cost;    /* of the choices made */
    int64_t reach;   /* no continuation that fits costs less */
    int *choice;     /* [variables] -1: open */
    int64_t *memory; /* [moments] what is chosen takes, or so much that no continuation exceeds the limit */
    const struct place *place;
    int count; /* variables; for comparing */
};

/* All labels of one place. */
struct layer {
    VEC(struct label) labels;
    struct scratch scratch;
};

struct state {
    struct ilp_search *search;
    struct place *places;
    int64_t *values; /* of one variable's choices */
    bool cut;        /* labels were left out that might have been the best */
    struct scratch scratch;
};

/* ---- bounds that are known before the search ---- */

static void add_extremes(const struct ilp_program *ilp, int variable, const int64_t *later, int64_t *sums, bool max) {
    for (int m = 0; m < ilp->moment_count; m++) {
        const int64_t *own = ilp->memory + (size_t)m * (size_t)ilp->first[ilp->count] + ilp->first[variable];
        int64_t extreme = own[0];
        for (int k = 1; k < ilp->choices[variable]; k++)
            if (max ? own[k] > extreme : own[k] < extreme) extreme = own[k];
        sums[m] = later[m] + extreme;
    }
}

static enum status link(const struct ilp_program *ilp, const int *place_of, int at, struct scratch *scratch,
                        struct place *place) {
    TRY(scratch_items(scratch, &place->links, ilp->pairs.count + 1));
    TRY(scratch_items(scratch, &place->frontier, (size_t)ilp->count));
    for (size_t i = 0; i < ilp->pairs.count; i++) {
        const struct ilp_pair *pair = &ilp->pairs.items[i];
        int low = place_of[pair->low], high = place_of[pair->high];
        if ((low == at && high < at) || (high == at && low < at)) place->links[place->link_count++] = pair;
        if ((low > at) == (high > at)) continue;
        int known = low > at ? pair->high : pair->low, n = 0;
        while (n < place->frontier_count && place->frontier[n] != known)
            n++;
        if (n == place->frontier_count) place->frontier[place->frontier_count++] = known;
    }
    return STATUS_OK;
}

static enum status find_places(struct state *state) {
    const struct ilp_program *ilp = state->search->ilp;
    const struct ilp_buckets *buckets = state->search->buckets;
    size_t count = (size_t)ilp->count, moments = (size_t)ilp->moment_count;
    int *place_of;
    int64_t *sums;
    TRY(scratch_items(&state->scratch, &place_of, count));
    TRY(scratch_items(&state->scratch, &state->places, count));
    TRY(scratch_items(&state->scratch, &state->values, ilp_max_choices(ilp)));
    TRY(scratch_items(&state->scratch, &sums, 2 * moments * (count + 1)));
    for (int at = 0; at < ilp->count; at++)
        place_of[ilp_buckets_variable(buckets, at)] = at;
    for (int at = ilp->count - 1; at >= 0; at--) {
        struct place *place = &state->places[at];
        place->variable = ilp_buckets_variable(buckets, at);
        place->min = sums + 2 * moments * (size_t)at, place->max = place->min + moments;
        if (at + 1 < ilp->count) {
            const struct place *next = &state->places[at + 1];
            add_extremes(ilp, next->variable, next->min, place->min, false);
            add_extremes(ilp, next->variable, next->max, place->max, true);
        }
        TRY(link(ilp, place_of, at, &state->scratch, place));
    }
    return STATUS_OK;
}

/* ---- labels ---- */

static enum status add_label(struct layer *layer, const struct ilp_program *ilp, struct label label) {
    const int *choice = label.choice;
    const int64_t *memory = label.memory;
    TRY(scratch_items(&layer->scratch, &label.choice, (size_t)ilp->count));
    TRY(scratch_items(&layer->scratch, &label.memory, (size_t)ilp->moment_count));
    memcpy(label.choice, choice, (size_t)ilp->count * sizeof *choice);
    memcpy(label.memory, memory, (size_t)ilp->moment_count * sizeof *memory);
    return vec_push(&layer->labels, label);
}

static void layer_free(struct layer *layer) {
    vec_free(&layer->labels);
    scratch_free(&layer->scratch);
}

/* With the variable's choice put in; ILP_FORBIDDEN where two may not meet. */
static int64_t added_cost(const struct ilp_program *ilp, const struct place *place, const int *choice) {
    int64_t sum = ilp->cost[ilp->first[place->variable] + choice[place->variable]];
    for (int i = 0; i < place->link_count; i++) {
        const struct ilp_pair *pair = place->links[i];
        sum = ilp_sum(sum, pair->cost[choice[pair->low] * ilp->choices[pair->high] + choice[pair->high]]);
    }
    return sum;
}

/* Adds the memory of the label's choice; false where no continuation fits. */
static bool add_memory(const struct ilp_program *ilp, const struct place *place, const int64_t *before,
                       struct label *label) {
    size_t width = (size_t)ilp->first[ilp->count];
    size_t at = (size_t)(ilp->first[place->variable] + label->choice[place->variable]);
    for (int m = 0; m < ilp->moment_count; m++) {
        int64_t sum = before[m] + ilp->memory[(size_t)m * width + at];
        if (sum + place->min[m] > ilp->limit) return false;
        label->memory[m] = sum > ilp->limit - place->max[m] ? sum : ilp->limit - place->max[m];
    }
    return true;
}

/* All labels that one is continued by. `made` is space for one. */
static enum status extend(struct state *state, int at, const struct label *from, struct label *made, struct layer *to) {
    struct ilp_search *search = state->search;
    const struct place *place = &state->places[at];
    int choices = search->ilp->choices[place->variable];
    memcpy(made->choice, from->choice, (size_t)search->ilp->count * sizeof *made->choice);
    ilp_buckets_values(search->buckets, at, made->choice, state->values);
    int64_t min = ilp_min(state->values, choices);
    for (int k = 0; k < choices; k++) {
        made->reach = from->reach + state->values[k] - min;
        if (made->reach >= search->below) continue;
        made->choice[place->variable] = k;
        made->cost = ilp_sum(from->cost, added_cost(search->ilp, place, made->choice));
        if (made->cost >= ILP_FORBIDDEN || !add_memory(search->ilp, place, from->memory, made)) continue;
        if (search->nodes_left <= 0) {
            state->cut = true;
            if (made->reach < search->bound) search->bound = made->reach;
            continue;
        }
        search->nodes_left--;
        made->place = place, made->count = search->ilp->count;
        TRY(add_label(to, search->ilp, *made));
    }
    return STATUS_OK;
}

/* ---- which are kept ---- */

static int compare_choices(const struct label *a, const struct label *b) {
    for (int v = 0; v < a->count; v++)
        if (a->choice[v] != b->choice[v]) return a->choice[v] < b->choice[v] ? -1 : 1;
    return 0;
}

static int compare_costs(const struct label *a, const struct label *b) {
    if (a->cost != b->cost) return a->cost < b->cost ? -1 : 1;
    return compare_choices(a, b);
}

static int compare_frontiers(const struct label *a, const struct label *b) {
    for (int i = 0; i < a->place->frontier_count; i++) {
        int v = a->place->frontier[i];
        if (a->choice[v] != b->choice[v]) return a->choice[v] < b->choice[v] ? -1 : 1;
    }
    return 0;
}

static int by_frontier(const void *a, const void *b) {
    int order = compare_frontiers(a, b);
    return order != 0 ? order : compare_costs(a, b);
}

static int by_reach(const void *a, const void *b) {
    const struct label *x = a, *y = b;
    if (x->reach != y->reach) return x->reach < y->reach ? -1 : 1;
    return compare_costs(x, y);
}

static bool takes_no_more(const struct label *a, const struct label *b, int moments) {
    for (int m = 0; m < moments; m++)
        if (a->memory[m] > b->memory[m]) return false;
    return true;
}

/* Leaves out labels for which another is no worse. Those of the same frontier come one after the other, the cheapest
 * first. */
static void leave_out_worse(struct layer *layer, int moments) {
    struct label *labels = layer->labels.items;
    size_t kept = 0, first = 0;
    for (size_t i = 0; i < layer->labels.count; i++) {
        if (kept > first && compare_frontiers(&labels[first], &labels[i]) != 0) first = kept;
        bool worse = false;
        for (size_t other = first; other < kept && other < first + COMPARED_MAX && !worse; other++)
            worse = takes_no_more(&labels[other], &labels[i], moments);
        if (!worse) labels[kept++] = labels[i];
    }
    layer->labels.count = kept;
}

static void keep_best(struct state *state, struct layer *layer) {
    struct ilp_search *search = state->search;
    size_t count = layer->labels.count;
    if (count < 2) return;
    qsort(layer->labels.items, count, sizeof *layer->labels.items, by_frontier);
    leave_out_worse(layer, search->ilp->moment_count);
    if (layer->labels.count <= search->width) return;
    qsort(layer->labels.items, layer->labels.count, sizeof *layer->labels.items, by_reach);
    layer->labels.count = search->width;
    state->cut = true;
    int64_t reach = layer->labels.items[search->width].reach;
    if (reach < search->bound) search->bound = reach;
}

/* ---- the search ---- */

static enum status begin(const struct state *state, struct layer *layer, struct label *made) {
    const struct ilp_search *search = state->search;
    const struct ilp_program *ilp = search->ilp;
    TRY(mem_items(&made->choice, (size_t)ilp->count));
    TRY(mem_items(&made->memory, (size_t)ilp->moment_count));
    for (int v = 0; v < ilp->count; v++)
        made->choice[v] = -1;
    made->reach = search->buckets->min - search->paid;
    return add_label(layer, ilp, *made);
}

static enum status walk(struct state *state, struct layer *layer, struct label *made) {
    TRY(begin(state, layer, made));
    for (int at = 0; at < state->search->ilp->count && layer->labels.count > 0; at++) {
        struct layer next = {.labels = {0}};
        enum status status = STATUS_OK;
        for (size_t i = 0; i < layer->labels.count && status == STATUS_OK; i++)
            status = extend(state, at, &layer->labels.items[i], made, &next);
        layer_free(layer);
        *layer = next;
        TRY(status);
        keep_best(state, layer);
    }
    return STATUS_OK;
}

/* One label of the last place is left. All of its memory counts as if it met the limit. */
static void take(struct state *state, const struct layer *layer) {
    struct ilp_search *search = state->search;
    search->found = layer->labels.count > 0;
    search->complete = !state->cut;
    if (!search->found) return;
    const struct label *best = &layer->labels.items[0];
    search->cost = best->cost;
    memcpy(search->choice, best->choice, (size_t)search->ilp->count * sizeof *search->choice);
    if (best->cost < search->bound) search->bound = best->cost;
}

enum status ilp_search(struct ilp_search *search) {
    struct state state = {.search = search};
    struct layer layer = {.labels = {0}};
    struct label made = {.cost = 0};
    search->found = search->complete = false;
    search->bound = search->below;
    enum status status = find_places(&state);
    if (status == STATUS_OK) status = walk(&state, &layer, &made);
    if (status == STATUS_OK) take(&state, &layer);
    layer_free(&layer);
    mem_free(made.choice);
    mem_free(made.memory);
    scratch_free(&state.scratch);
    return status;
}
