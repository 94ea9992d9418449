/* Prices for bytes, so that elimination, which knows no memory, gives bounds that do (Lagrangian relaxation; Polyak,
 * "Minimization of unsmooth functionals", 1969). All sums are whole: a price is a fraction of 2^PRICE_BITS, a choice
 * pays it rounded down, the limit gets it back rounded up, so that the bound holds exactly. */
#include <math.h>
#include <string.h>

#include "layout/tied_program.h"

enum { PRICE_BITS = 40, STEPS = 60 };
#define PRICE_MOST 0x1p60

/* Memory of one moment, by all choices. */
static const int64_t *moment_at(const struct tied_program *tied, int moment) {
    return tied->memory + (size_t)moment * (size_t)tied->first[tied->count];
}

/* What so many bytes pay, rounded down; not more than counts. */
static int64_t price_of(int64_t bytes, int64_t price) {
    __int128 paid = ((__int128)bytes * price) >> PRICE_BITS;
    return paid < TIED_FORBIDDEN ? (int64_t)paid : TIED_FORBIDDEN;
}

/* The costs at these prices, cut to TIED_FORBIDDEN, and what the limit gets back. */
static void set_prices(const struct tied_program *tied, const int64_t *price, struct tied_prices *out) {
    int choices = tied->first[tied->count];
    out->paid = 0;
    memcpy(out->priced.cost, tied->cost, (size_t)choices * sizeof *tied->cost);
    for (int m = 0; m < tied->moment_count; m++) {
        const int64_t *memory = moment_at(tied, m);
        __int128 paid = (((__int128)tied->limit * price[m]) >> PRICE_BITS) + 1;
        out->paid = paid < INT64_MAX / 2 - out->paid ? out->paid + (int64_t)paid : INT64_MAX / 2;
        for (int k = 0; k < choices; k++)
            out->priced.cost[k] = tied_sum(out->priced.cost[k], price_of(memory[k], price[m]));
    }
}

/* How far the choices exceed the limit at each moment, and the squares' sum. */
static double find_excess(const struct tied_program *tied, const int *choice, double *excess) {
    double squares = 0;
    for (int m = 0; m < tied->moment_count; m++) {
        int64_t sum = 0;
        for (int v = 0; v < tied->count; v++)
            sum += moment_at(tied, m)[tied->first[v] + choice[v]];
        excess[m] = (double)(sum - tied->limit);
        squares += excess[m] * excess[m];
    }
    return squares;
}

struct pricing {
    const struct tied_program *tied;
    int *choice;
    int64_t *values, *price, *best_price;
    double *exact, *excess; /* prices before rounding */
};

static enum status pricing_create(const struct tied_program *tied, struct scratch *scratch, struct pricing *out) {
    size_t count = (size_t)tied->count, moments = (size_t)tied->moment_count;
    *out = (struct pricing){.tied = tied,
                            .choice = scratch_alloc(scratch, count, sizeof(int)),
                            .values = scratch_alloc(scratch, tied_most_choices(tied), sizeof(int64_t)),
                            .price = scratch_alloc(scratch, moments, sizeof(int64_t)),
                            .best_price = scratch_alloc(scratch, moments, sizeof(int64_t)),
                            .exact = scratch_alloc(scratch, moments, sizeof(double)),
                            .excess = scratch_alloc(scratch, moments, sizeof(double))};
    if (!out->choice || !out->values || !out->price || !out->best_price || !out->exact || !out->excess)
        return STATUS_FAILED;
    return STATUS_OK;
}

/* The bound at the present prices, and the choices that have it. */
static enum status find_bound(const struct pricing *pricing, struct tied_prices *out, int64_t *bound) {
    struct tied_buckets buckets;
    set_prices(pricing->tied, pricing->price, out);
    enum status status = tied_buckets_make(&out->priced, NULL, &buckets);
    if (status == STATUS_OK) tied_buckets_choose(&buckets, pricing->values, pricing->choice);
    *bound = buckets.least - out->paid;
    tied_buckets_free(&buckets);
    return status;
}

static void move_prices(struct pricing *pricing, double step) {
    for (int m = 0; m < pricing->tied->moment_count; m++) {
        pricing->exact[m] = fmin(fmax(pricing->exact[m] + step * pricing->excess[m], 0), PRICE_MOST);
        pricing->price[m] = (int64_t)fmin(pricing->exact[m] * exp2(PRICE_BITS), PRICE_MOST);
    }
}

static enum status raise_bound(struct pricing *pricing, int64_t above, struct tied_prices *out) {
    size_t bytes = (size_t)pricing->tied->moment_count * sizeof *pricing->price;
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
        double squares = find_excess(pricing->tied, pricing->choice, pricing->excess);
        if (squares == 0 || bound >= above) break;
        move_prices(pricing, reach * (double)(above - bound) / squares);
    }
    set_prices(pricing->tied, pricing->best_price, out);
    return STATUS_OK;
}

enum status tied_prices_find(const struct tied_program *tied, int64_t above, struct tied_prices *out) {
    struct pricing pricing;
    struct scratch scratch = {0};
    *out = (struct tied_prices){.priced = *tied};
    out->priced.cost = mem_array((size_t)tied->first[tied->count], sizeof *out->priced.cost);
    if (!out->priced.cost) return STATUS_FAILED;
    enum status status = pricing_create(tied, &scratch, &pricing);
    if (status == STATUS_OK) status = raise_bound(&pricing, above, out);
    scratch_free(&scratch);
    return status;
}

void tied_prices_free(struct tied_prices *prices) {
    mem_free(prices->priced.cost);
    *prices = (struct tied_prices){0};
}
