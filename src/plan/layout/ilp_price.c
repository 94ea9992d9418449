/* Prices for bytes, so that elimination, which knows no memory, gives bounds that do (Lagrangian relaxation; Polyak,
 * "Minimization of unsmooth functionals", 1969). All sums are whole: a price is a fraction of 2^PRICE_BITS, a choice
 * pays it rounded down, the limit gets it back rounded up, so that the bound holds exactly. */
#include <math.h>
#include <string.h>

#include "plan/layout/ilp_program.h"

enum { PRICE_BITS = 40, STEPS = 60 };
#define PRICE_MAX 0x1p60

/* Memory of one moment, by all choices. */
static const int64_t *moment_at(const struct ilp_program *ilp, int moment) {
    return ilp->memory + (size_t)moment * (size_t)ilp->first[ilp->count];
}

/* What so many bytes pay, rounded down; not more than counts. */
static int64_t price_of(int64_t bytes, int64_t price) {
    __int128 paid = ((__int128)bytes * price) >> PRICE_BITS;
    return paid < ILP_FORBIDDEN ? (int64_t)paid : ILP_FORBIDDEN;
}

/* The costs at these prices, cut to ILP_FORBIDDEN, and what the limit gets back. */
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
    *out = (struct pricing){.ilp = ilp,
                            .choice = scratch_alloc(scratch, count, sizeof(int)),
                            .values = scratch_alloc(scratch, ilp_max_choices(ilp), sizeof(int64_t)),
                            .price = scratch_alloc(scratch, moments, sizeof(int64_t)),
                            .best_price = scratch_alloc(scratch, moments, sizeof(int64_t)),
                            .exact = scratch_alloc(scratch, moments, sizeof(double)),
                            .excess = scratch_alloc(scratch, moments, sizeof(double))};
    if (!out->choice || !out->values || !out->price || !out->best_price || !out->exact || !out->excess)
        return STATUS_FAILED;
    return STATUS_OK;
}

/* The bound at the present prices, and the choices that have it. */
static enum status find_bound(const struct pricing *pricing, struct ilp_prices *out, int64_t *bound) {
    struct ilp_buckets buckets;
    set_prices(pricing->ilp, pricing->price, out);
    enum status status = ilp_buckets_make(&out->priced, NULL, &buckets);
    if (status == STATUS_OK) ilp_buckets_choose(&buckets, pricing->values, pricing->choice);
    *bound = buckets.min - out->paid;
    ilp_buckets_free(&buckets);
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
    struct scratch scratch = {0};
    *out = (struct ilp_prices){.priced = *ilp};
    out->priced.cost = mem_array((size_t)ilp->first[ilp->count], sizeof *out->priced.cost);
    if (!out->priced.cost) return STATUS_FAILED;
    enum status status = pricing_create(ilp, &scratch, &pricing);
    if (status == STATUS_OK) status = raise_bound(&pricing, above, out);
    scratch_free(&scratch);
    return status;
}

void ilp_prices_free(struct ilp_prices *prices) {
    mem_free(prices->priced.cost);
    *prices = (struct ilp_prices){0};
}
