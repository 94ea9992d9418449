/* Conversions executed by ranks: every conversion between two layouts gives each rank its part of the tensor, to the
 * bit, and returns the gradient of the whole. The same holds for partial sums that become parts. */
#include <stdio.h>
#include <stdlib.h>

#include "ir/differentiate.h"
#include "plan/layout/shard_choice.h"
#include "plan/layout/sharding.h"
#include "support/case_layout.h"
#include "support/graph_ranks.h"
#include "support/unit.h"

enum { SEED = 5, SHAPES = 24 };

struct subject {
    struct device_mesh mesh;
    struct layout_shape shape;
};

/* Whole numbers: sums of them are exact in any order. */
static float element(int64_t at, int salt) { return (float)((at * 37 + salt * 101) % 1009 - 500); }

static int64_t count_of(const struct layout_shape *shape) { return shape->dims[0] * shape->dims[1] * shape->dims[2]; }

/* Where element `at` of a part is in the whole. */
static int64_t place_of(const struct subject *subject, const struct layout *layout, int device, int64_t at) {
    int64_t begin[LAYOUT_RANK_MAX], size[LAYOUT_RANK_MAX];
    const int64_t *dims = subject->shape.dims;
    layout_part(layout, &subject->mesh, &subject->shape, device, begin, size);
    int64_t c = at % size[2], t = at / size[2] % size[1], s = at / size[2] / size[1];
    return ((begin[0] + s) * dims[1] + begin[1] + t) * dims[2] + begin[2] + c;
}

static struct tensor *make_input(struct graph *graph, const struct layout_shape *shape) {
    struct shape own = shape_make(DTYPE_F32, 3, shape->dims[0], shape->dims[1], shape->dims[2]);
    return ops_scale(graph, "before", graph_tensor(graph, TENSOR_ACTIVATION, "x", own), 0.5);
}

static const struct tensor *given_gradient(const struct graph *graph, const struct tensor *of) {
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (graph->tensors.items[i]->value == of && !graph->tensors.items[i]->producer) return graph->tensors.items[i];
    fail_msg("no gradient is given");
    return NULL;
}

static const struct tensor *made_gradient(const struct graph *graph) {
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (graph->tensors.items[i]->value == graph->tensors.items[0]) return graph->tensors.items[i];
    fail_msg("x has no gradient");
    return NULL;
}

static void set_values(struct graph_ranks *ranks, int rank, const struct tensor *tensor, const struct subject *subject,
                       const struct layout *layout, int salt) {
    float *to = ranks->data[rank][tensor->id];
    for (int64_t at = 0; at < shape_elements(&tensor->shape); at++)
        to[at] = element(place_of(subject, layout, rank, at), salt);
}

static void expect_values(const struct graph_ranks *ranks, int rank, const struct tensor *tensor,
                          const struct subject *subject, const struct layout *layout, double factor, int salt,
                          const char *what) {
    const float *values = graph_ranks_values(ranks, rank, tensor);
    for (int64_t at = 0; at < shape_elements(&tensor->shape); at++) {
        float expected = (float)(factor * (double)element(place_of(subject, layout, rank, at), salt));
        if (values[at] != expected)
            fail_msg("%s: element %lld of rank %d is %g, expected %g", what, (long long)at, rank, (double)values[at],
                     (double)expected);
    }
}

static struct tensor *add_way(struct graph *graph, const struct subject *subject, const struct conversions *ways,
                              const struct layout *from, const struct layout *to, struct tensor *x, int rank) {
    struct conversion_step steps[CONVERSION_STEPS_MAX];
    int count = conversions_path(ways, from, to, steps);
    for (int i = 0; i < count; i++) {
        struct group_part part = conversion_step_part(&subject->mesh, &steps[i].step, rank);
        x = conversion_add_step(graph, graph_format(graph, "step.%d", i), x, part, &steps[i].step, false);
    }
    return x;
}

/* From the whole to `from`, on to `to`. */
static void convert(const struct subject *subject, const struct conversions *ways, const struct layout *from,
                    const struct layout *to) {
    struct graph_ranks ranks = {.ranks =
                                    (int)device_mesh_devices(&subject->mesh, device_mesh_all_axes(&subject->mesh))};
    struct layout whole = layout_replicated();
    struct tensor *y[GRAPH_RANKS_MAX];
    char text[3][LAYOUT_TEXT], what[4 * LAYOUT_TEXT];
    snprintf(what, sizeof what, "[%lld, %lld, %lld] on %d axes from %s to %s", (long long)subject->shape.dims[0],
             (long long)subject->shape.dims[1], (long long)subject->shape.dims[2], subject->mesh.axes,
             layout_print(from, 3, text[0]), layout_print(to, 3, text[1]));
    for (int r = 0; r < ranks.ranks; r++) {
        struct graph *graph = ranks.graphs[r] = graph_create(DTYPE_F32, 1, 1);
        assert_non_null(graph);
        struct tensor *x = add_way(graph, subject, ways, &whole, from, make_input(graph, &subject->shape), r);
        y[r] = ops_scale(graph, "y", add_way(graph, subject, ways, from, to, x, r), 1);
        if (graph_differentiate_part(graph) != STATUS_OK) fail_msg("%s: %s", what, status_message());
    }
    graph_ranks_open(&ranks);
    for (int r = 0; r < ranks.ranks; r++) {
        set_values(&ranks, r, ranks.graphs[r]->tensors.items[0], subject, &whole, 1);
        set_values(&ranks, r, given_gradient(ranks.graphs[r], y[r]), subject, to, 2);
    }
    graph_ranks_run(&ranks, PHASE_BACKWARD, NULL);
    for (int r = 0; r < ranks.ranks; r++) {
        expect_values(&ranks, r, y[r], subject, to, 0.5, 1, what);
        expect_values(&ranks, r, made_gradient(ranks.graphs[r]), subject, &whole, 0.5, 2, what);
    }
    graph_ranks_close(&ranks);
}

/* Each rank's x times its number; `to`: the dimension along which the sum is scattered, or none. */
static void add_up(const struct subject *subject, int to) {
    int count = (int)subject->mesh.sizes[0];
    struct graph_ranks ranks = {.ranks = count};
    struct layout whole = layout_replicated(), layout = whole;
    struct tensor *y[GRAPH_RANKS_MAX];
    layout.dimension[0] = (int8_t)to;
    for (int r = 0; r < count; r++) {
        struct graph *graph = ranks.graphs[r] = graph_create(DTYPE_F32, 1, 1);
        assert_non_null(graph);
        struct group_part part = {.parts = count, .position = r};
        struct tensor *x = make_input(graph, &subject->shape);
        x = to == LAYOUT_REPLICATED ? ops_reduce_out(graph, "sum", x, part) : ops_scatter(graph, "sum", x, part, to);
        y[r] = ops_scale(graph, "y", x, 1);
        if (graph_differentiate_part(graph) != STATUS_OK) fail_msg("%s", status_message());
    }
    graph_ranks_open(&ranks);
    for (int r = 0; r < count; r++) {
        float *x = ranks.data[r][0];
        for (int64_t at = 0; at < count_of(&subject->shape); at++)
            x[at] = element(at, 1) * (float)(r + 1);
        set_values(&ranks, r, given_gradient(ranks.graphs[r], y[r]), subject, &layout, 2);
    }
    graph_ranks_run(&ranks, PHASE_BACKWARD, NULL);
    for (int r = 0; r < count; r++) {
        expect_values(&ranks, r, y[r], subject, &layout, 0.25 * count * (count + 1), 1, "a sum");
        expect_values(&ranks, r, made_gradient(ranks.graphs[r]), subject, &whole, 0.5, 2, "the gradient of a sum");
    }
    graph_ranks_close(&ranks);
}

static const int64_t meshes[][DEVICE_MESH_AXES_MAX] = {{2}, {4}, {2, 2}, {4, 2}, {2, 4}, {2, 2, 2}};
enum { MESHES = sizeof meshes / sizeof *meshes };

static struct subject draw_subject(const int64_t sizes[DEVICE_MESH_AXES_MAX]) {
    struct subject subject = {.shape.rank = 3};
    for (int d = 0; d < 3; d++)
        subject.shape.dims[d] = 1 + rand() % 3;
    for (int axis = 0; axis < DEVICE_MESH_AXES_MAX && sizes[axis] > 0; axis++) {
        subject.mesh.sizes[axis] = sizes[axis];
        subject.mesh.latency_s[axis] = 1e-6 * (axis + 1), subject.mesh.s_per_byte[axis] = 1e-9 / (axis + 1);
        subject.mesh.axes++;
        subject.shape.dims[rand() % 3] *= sizes[axis];
        if (rand() % 2) subject.shape.dims[rand() % 3] *= sizes[axis];
    }
    return subject;
}

/* Sums are of a mesh of one axis. */
static int add_all_up(const struct subject *subject) {
    int sums = 0;
    for (int to = LAYOUT_REPLICATED; to < 3 && subject->mesh.axes == 1; to++)
        if (to == LAYOUT_REPLICATED || subject->shape.dims[to] % subject->mesh.sizes[0] == 0)
            add_up(subject, to), sums++;
    return sums;
}

static void every_way_gives_the_parts_of_the_whole(void **state) {
    (void)state;
    int ways_taken = 0, sums = 0;
    print_message("seed %d\n", SEED);
    srand(SEED);
    for (int i = 0; i < SHAPES; i++) {
        struct subject subject = draw_subject(meshes[i % MESHES]);
        struct conversions ways;
        assert_int_equal(conversions_create(&subject.mesh, &subject.shape, 4, conversion_price_s, &ways), STATUS_OK);
        for (int from = 0; from < ways.count; from++)
            for (int to = 0; to < ways.count; to++) {
                struct layout a = layout_of_number(from, &subject.mesh, 3), b = layout_of_number(to, &subject.mesh, 3);
                if (!layout_fits(&a, &subject.mesh, &subject.shape) || !layout_fits(&b, &subject.mesh, &subject.shape))
                    continue;
                convert(&subject, &ways, &a, &b), ways_taken++;
            }
        sums += add_all_up(&subject);
        conversions_free(&ways);
    }
    print_message("%d ways, %d sums\n", ways_taken, sums);
    assert_true(ways_taken > 5000 && sums > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_gives_the_parts_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
