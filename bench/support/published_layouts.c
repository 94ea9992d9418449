#include "support/published_layouts.h"

#include <limits.h>

#define CUT_PRICE 100.0
enum { GATHER_DIFFERENCE = 20, CUT_DIFFERENCE = 5, BETWEEN_STEPS = 6 };

/* Of one device too: the published formulas then leave alpha. */
static double constant_beside(const struct device_mesh *mesh, unsigned axes, double own) {
    double latency = 0;
    if (device_mesh_devices(mesh, axes) > 1) return own;
    for (int axis = 0; axis < mesh->axes; axis++)
        if (axes >> axis & 1 && mesh->latency_s[axis] > latency) latency = mesh->latency_s[axis];
    return latency + own;
}

double published_all_gather(const struct device_mesh *mesh, unsigned axes, double x) {
    return device_mesh_all_gather_s(mesh, axes, x) + constant_beside(mesh, axes, 0.1);
}
double published_reduce_scatter(const struct device_mesh *mesh, unsigned axes, double x) {
    return device_mesh_reduce_scatter_s(mesh, axes, x) + constant_beside(mesh, axes, 0.001);
}
double published_all_reduce(const struct device_mesh *mesh, unsigned axes, double x) {
    return device_mesh_all_reduce_s(mesh, axes, x) + constant_beside(mesh, axes, 0.01);
}
double published_all_to_all(const struct device_mesh *mesh, unsigned axes, double x) {
    return device_mesh_all_to_all_s(mesh, axes, x / 2) + constant_beside(mesh, axes, 0.001);
}

struct step_price published_step_price(const struct device_mesh *mesh, const struct layout_step *step, double bytes) {
    unsigned axes = 1u << step->axis;
    double all_to_all = published_all_to_all(mesh, axes, bytes), gather = published_all_gather(mesh, axes, bytes);
    switch (step->action) {
    case LAYOUT_GATHER: return (struct step_price){gather, CUT_PRICE};
    case LAYOUT_ALL_TO_ALL: return (struct step_price){all_to_all, all_to_all};
    case LAYOUT_CUT: return (struct step_price){CUT_PRICE, gather};
    }
    BUG("a step of kind %d", (int)step->action);
}

/* The lowest axes that both have, before the first that only one has. */
static unsigned common_prefix(unsigned from, unsigned to) {
    unsigned differ = from ^ to, lowest = differ & (0u - differ);
    return lowest == 0 ? from : from & (lowest - 1);
}

int published_dimension_difference(unsigned from, unsigned to) {
    unsigned common = common_prefix(from, to);
    int gathers = __builtin_popcount(from & ~common), cuts = __builtin_popcount(to & ~common), steps = gathers + cuts;
    return GATHER_DIFFERENCE * gathers + CUT_DIFFERENCE * cuts + (steps > 1 ? BETWEEN_STEPS * (steps - 1) : 0);
}

static int difference(const struct layout *from, const struct layout *to, int rank) {
    int sum = 0;
    for (int d = 0; d < rank; d++)
        sum += published_dimension_difference(layout_axes_of(from, d), layout_axes_of(to, d));
    return sum;
}

/* Its order: gathers by dimension, all-to-alls by pair of dimensions, cuts by dimension and axis. */
static int rank_of(const struct layout_step *step) {
    int near = step->from < step->to ? step->from : step->to, far = step->from < step->to ? step->to : step->from;
    if (step->action == LAYOUT_GATHER) return step->from;
    if (step->action == LAYOUT_ALL_TO_ALL) return 100 + near * LAYOUT_RANK_MAX + far;
    return 1000 + step->to * DEVICE_MESH_AXES_MAX + step->axis;
}

/* It has all-to-alls only between dimensions of which each is cut by one axis at most. */
static bool walks(const struct layout *layout, const struct layout_step *step) {
    if (step->action != LAYOUT_ALL_TO_ALL) return true;
    return __builtin_popcount(layout_axes_of(layout, step->from)) < 2 &&
           __builtin_popcount(layout_axes_of(layout, step->to)) < 2;
}

static bool choose(const struct device_mesh *mesh, const struct layout_shape *shape, const struct layout *at,
                   const struct layout *to, struct layout_step *out) {
    struct layout_step steps[LAYOUT_STEPS_MAX];
    int count = layout_steps(at, mesh, shape->rank, steps), min = INT_MAX, first = INT_MAX;
    for (int i = 0; i < count; i++) {
        struct layout after = layout_after(at, &steps[i]);
        int apart = difference(&after, to, shape->rank), rank = rank_of(&steps[i]);
        if (!walks(at, &steps[i]) || !layout_fits(&after, mesh, shape)) continue;
        if (apart > min || (apart == min && rank > first)) continue;
        min = apart, first = rank, *out = steps[i];
    }
    return min < INT_MAX;
}

int published_walk(const struct device_mesh *mesh, const struct layout_shape *shape, const struct layout *from,
                   const struct layout *to, struct layout_step out[CONVERSION_STEPS_MAX]) {
    struct layout at = *from;
    for (int count = 0; count < CONVERSION_STEPS_MAX; count++) {
        if (layout_equal(&at, to)) return count;
        if (!choose(mesh, shape, &at, to, &out[count])) return -1;
        at = layout_after(&at, &out[count]);
    }
    return -1;
}
