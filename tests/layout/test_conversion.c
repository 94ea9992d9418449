/* Conversions between layouts: neither exhaustive relaxation nor the published walk is cheaper, and the steps move
 * the right elements. */
#include "plan/layout/sharding.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/random.h"
#include "support/case_layout.h"
#include "support/fault_sweep.h"
#include "support/published_layouts.h"
#include "support/unit.h"

struct draw {
    uint64_t seed, at;
};
static uint64_t draw_below(struct draw *draw, uint64_t limit) {
    return random_u64(draw->seed, RANDOM_TEST, 0, draw->at++) % limit;
}
static double draw_between(struct draw *draw, double min, double max) {
    return min + (max - min) * random_uniform(draw->seed, RANDOM_TEST, 1, draw->at++);
}

static struct device_mesh draw_mesh(struct draw *draw) {
    struct device_mesh mesh = {.axes = 1 + (int)draw_below(draw, 3)};
    for (int axis = 0; axis < mesh.axes; axis++) {
        mesh.sizes[axis] = 1 + (int64_t)draw_below(draw, 4);
        mesh.latency_s[axis] = draw_between(draw, 0, 300);
        mesh.s_per_byte[axis] = draw_between(draw, 0, 2);
    }
    return mesh;
}

static struct layout_shape draw_shape(struct draw *draw) {
    static const int64_t sizes[] = {1, 2, 3, 4, 6, 8, 12, 24, 48, 7};
    struct layout_shape shape = {.rank = (int)draw_below(draw, 4)};
    for (int d = 0; d < shape.rank; d++)
        shape.dims[d] = sizes[draw_below(draw, sizeof sizes / sizeof *sizes)];
    return shape;
}

/* Least prices from `source`, by relaxing all steps until none gets better. */
static void relax_all(const struct conversions *c, int source, double *price) {
    bool better = true;
    for (int i = 0; i < c->count; i++)
        price[i] = INFINITY;
    price[source] = 0;
    while (better) {
        better = false;
        for (int at = 0; at < c->count; at++) {
            struct layout layout = layout_of_number(at, &c->mesh, c->shape.rank);
            double bytes = (double)(layout_local_elements(&layout, &c->mesh, &c->shape) * c->element_bytes);
            struct layout_step steps[LAYOUT_STEPS_MAX];
            int count = isinf(price[at]) ? 0 : layout_steps(&layout, &c->mesh, c->shape.rank, steps);
            for (int i = 0; i < count; i++) {
                struct layout after = layout_after(&layout, &steps[i]);
                struct step_price taken = c->pricer(&c->mesh, &steps[i], bytes);
                int to = layout_number(&after, &c->mesh, c->shape.rank);
                double sum = price[at] + taken.forward + taken.backward;
                if (!layout_fits(&after, &c->mesh, &c->shape) || sum >= price[to] - 1e-9) continue;
                price[to] = sum, better = true;
            }
        }
    }
}

static double price_walk(const struct conversions *c, const struct layout *from, const struct layout *to) {
    struct layout_step steps[CONVERSION_STEPS_MAX];
    struct layout at = *from;
    double sum = 0;
    int count = published_walk(&c->mesh, &c->shape, from, to, steps);
    for (int i = 0; i < count; i++) {
        double bytes = (double)(layout_local_elements(&at, &c->mesh, &c->shape) * c->element_bytes);
        struct step_price taken = c->pricer(&c->mesh, &steps[i], bytes);
        sum += taken.forward + taken.backward;
        at = layout_after(&at, &steps[i]);
    }
    return count < 0 ? INFINITY : sum;
}

static void check_pair(const struct conversions *c, const struct layout *from, const struct layout *to, double min) {
    struct conversion_step path[CONVERSION_STEPS_MAX];
    double price = conversions_price(c, from, to), sum = 0;
    struct layout at = *from;
    if (isinf(min)) {
        assert_true(isinf(price));
        return;
    }
    assert_true(fabs(price - min) <= 1e-9 * (1 + min));
    assert_true(price <= price_walk(c, from, to) * (1 + 1e-12));
    int count = conversions_path(c, from, to, path);
    for (int i = 0; i < count; i++) {
        sum += path[i].price.forward + path[i].price.backward;
        at = layout_after(&at, &path[i].step);
        assert_true(layout_fits(&at, &c->mesh, &c->shape));
    }
    assert_true(layout_equal(&at, to));
    assert_true(fabs(sum - price) <= 1e-9 * (1 + price));
}

static void check_all_pairs(const struct conversions *c) {
    double *min = malloc((size_t)c->count * sizeof *min);
    assert_non_null(min);
    for (int source = 0; source < c->count; source++) {
        struct layout from = layout_of_number(source, &c->mesh, c->shape.rank);
        bool fits = layout_fits(&from, &c->mesh, &c->shape);
        if (fits) relax_all(c, source, min);
        for (int target = 0; target < c->count; target++) {
            struct layout to = layout_of_number(target, &c->mesh, c->shape.rank);
            check_pair(c, &from, &to, fits ? min[target] : INFINITY);
        }
    }
    free(min);
}

static void nothing_is_cheaper(void **state) {
    (void)state;
    step_pricer *const pricers[] = {conversion_price_s, published_step_price};
    for (uint64_t seed = 1; seed <= unit_sweep(60, 1000); seed++) {
        struct draw draw = {seed, 0};
        struct device_mesh mesh = draw_mesh(&draw);
        struct layout_shape shape = draw_shape(&draw);
        struct conversions c;
        print_message("seed %llu: %d axes, rank %d\n", (unsigned long long)seed, mesh.axes, shape.rank);
        assert_int_equal(conversions_create(&mesh, &shape, 2, pricers[seed % 2], &c), STATUS_OK);
        check_all_pairs(&c);
        conversions_free(&c);
    }
}

/* What a step may read: a gather and a collective only from devices that differ along the step's axis, a cut only from
 * the device itself. */
static void check_reach(const struct device_mesh *mesh, const struct layout_shape *shape, const struct layout *before,
                        const struct layout_step *step) {
    struct layout after = layout_after(before, step);
    int64_t devices = device_mesh_devices(mesh, device_mesh_all_axes(mesh));
    int64_t begin[LAYOUT_RANK_MAX], size[LAYOUT_RANK_MAX], from[LAYOUT_RANK_MAX], length[LAYOUT_RANK_MAX];
    for (int64_t device = 0; device < devices; device++) {
        int64_t wanted = 1, covered = 0;
        layout_part(&after, mesh, shape, device, begin, size);
        for (int d = 0; d < shape->rank; d++)
            wanted *= size[d];
        int64_t sources = step->action == LAYOUT_CUT ? 1 : mesh->sizes[step->axis];
        for (int64_t i = 0; i < sources; i++) {
            int64_t source = step->action == LAYOUT_CUT ? device : device_mesh_neighbour(mesh, device, step->axis, i);
            int64_t shared = 1;
            layout_part(before, mesh, shape, source, from, length);
            for (int d = 0; d < shape->rank; d++) {
                int64_t first = begin[d] > from[d] ? begin[d] : from[d];
                int64_t end = begin[d] + size[d] < from[d] + length[d] ? begin[d] + size[d] : from[d] + length[d];
                shared *= end > first ? end - first : 0;
            }
            covered += shared;
        }
        assert_int_equal(covered, wanted); /* each element from exactly one of them */
    }
}

static void steps_reach_only_devices_of_their_axis(void **state) {
    (void)state;
    struct device_mesh mesh = {.axes = 3, .sizes = {2, 3, 2}};
    struct layout_shape shape = {3, {12, 12, 4}};
    for (int number = 0; number < layout_count(&mesh, 3); number++) {
        struct layout layout = layout_of_number(number, &mesh, 3);
        struct layout_step steps[LAYOUT_STEPS_MAX];
        int count = layout_fits(&layout, &mesh, &shape) ? layout_steps(&layout, &mesh, 3, steps) : 0;
        for (int i = 0; i < count; i++) {
            struct layout after = layout_after(&layout, &steps[i]);
            if (layout_fits(&after, &mesh, &shape)) check_reach(&mesh, &shape, &layout, &steps[i]);
        }
    }
}

static enum status find_twice(void *payload) {
    (void)payload;
    struct conversion_cache cache = {.mesh = {.axes = 2, .sizes = {2, 2}}, .pricer = conversion_price_s};
    const struct conversions *first = NULL, *again = NULL, *other = NULL;
    struct layout_shape shape = {2, {4, 8}};
    enum status status = conversion_cache_find(&cache, &shape, 2, &first);
    if (status == STATUS_OK) status = conversion_cache_find(&cache, &shape, 2, &again);
    if (status == STATUS_OK) status = conversion_cache_find(&cache, &shape, 4, &other);
    if (status == STATUS_OK) assert_true(first == again && other != first);
    conversion_cache_free(&cache);
    return status;
}

static void conversions_are_kept_by_shape(void **state) {
    (void)state;
    assert_true(fault_sweep(FAULT_ALLOCATE, false, find_twice, NULL) >= 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_cheaper),
        cmocka_unit_test(steps_reach_only_devices_of_their_axis),
        cmocka_unit_test(conversions_are_kept_by_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
