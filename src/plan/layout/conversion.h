/* The cheapest way from one layout of a tensor to another: a shortest path over one-step changes.
 *
 * A tensor of rank r on a mesh of a axes has (r+1)^a layouts at most, so all pairs are solved at once (Dijkstra from
 * each) and kept. Exact: no chain of steps through layouts that fit is cheaper. Of equally cheap ways the one with the
 * fewest steps is taken, then the one whose first steps have the lowest numbers (layout_number). */
#ifndef BALLAST_PLAN_LAYOUT_CONVERSION_H
#define BALLAST_PLAN_LAYOUT_CONVERSION_H

#include "base/mem.h"
#include "plan/layout/layout.h"

/* What a step takes in a training step: of the tensor, and of its gradient on the way back. At least 0, in any one
 * unit. */
struct step_price {
    double forward, backward;
};
/* `bytes` is what each device holds before the step. */
typedef struct step_price step_pricer(const struct device_mesh *mesh, const struct layout_step *step, double bytes);

/* In seconds, by what is moved: gathering is an all-gather, whose gradient each device has already; cutting is free,
 * and its gradient an all-gather; an all-to-all goes back as one. */
step_pricer conversion_price_s;

/* Ways between all layouts of one shape. */
struct conversions {
    struct device_mesh mesh;
    struct layout_shape shape;
    int64_t element_bytes;
    int count;      /* layouts, by number (layout_number) */
    double *price;  /* [count][count] from, to: forward and backward; infinite where one of them does not fit */
    int16_t *first; /* [count][count] the layout after the first step; -1 where there is none */
    step_pricer *pricer;
};
enum status conversions_create(const struct device_mesh *mesh, const struct layout_shape *shape, int64_t element_bytes,
                               step_pricer *pricer, struct conversions *out);
void conversions_free(struct conversions *conversions);

/* Forward and backward; INFINITY where a layout does not fit the shape. */
double conversions_price(const struct conversions *conversions, const struct layout *from, const struct layout *to);
struct conversion_step {
    struct layout_step step;
    struct step_price price;
};
/* The steps of the cheapest way, at most CONVERSION_STEPS_MAX; 0 where both are the same or one does not fit. */
enum { CONVERSION_STEPS_MAX = 64 };
int conversions_path(const struct conversions *conversions, const struct layout *from, const struct layout *to,
                     struct conversion_step out[CONVERSION_STEPS_MAX]);

/* Conversions by shape, each made when it is first asked for. Zero-initialise but for mesh and pricer. */
struct conversion_cache {
    struct device_mesh mesh;
    step_pricer *pricer;
    VEC(struct conversions *) kept;
};
/* Valid until conversion_cache_free. */
enum status conversion_cache_find(struct conversion_cache *cache, const struct layout_shape *shape,
                                  int64_t element_bytes, const struct conversions **out);
void conversion_cache_free(struct conversion_cache *cache);

#endif
