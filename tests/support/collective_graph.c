#include "support/collective_graph.h"

#include <string.h>

#include "ir/differentiate.h"
#include "support/small_graph.h"
#include "support/unit.h"

enum { HIDDEN = 16, INNER = 24 };

struct maker {
    struct graph *graph;
    struct group_part part;
};

/* By columns: rows of the weight; by rows: columns of it. -1: every rank has all of it. */
static int cut_dimension(const char *parameter) {
    if (strncmp(parameter, "up.", 3) == 0) return 0;
    return strncmp(parameter, "down.", 5) == 0 ? 1 : -1;
}

/* Used by what is cut along positions or sequences: each rank has a part of its gradient. */
static struct tensor *note_partial(const struct maker *maker, struct tensor *parameter) {
    bool partial = parameter && maker->part.parts > 1 && strncmp(parameter->name, "cut.", 4) == 0;
    if (partial) parameter->gradient_parts = (struct group_axis){maker->part.parts, 0};
    return parameter;
}

static struct tensor *weight(const struct maker *maker, const char *name, int64_t rows, int64_t columns) {
    int dimension = cut_dimension(name);
    struct tensor *parameter = graph_parameter(maker->graph, name, 2, dimension == 0 ? rows / maker->part.parts : rows,
                                               dimension == 1 ? columns / maker->part.parts : columns);
    struct tensor_part *part = scratch_alloc(&maker->graph->memory, 1, sizeof *part);
    if (!parameter || !part) fail_msg("out of memory");
    *part = (struct tensor_part){
        .whole = shape_make(maker->graph->dtype, 2, rows, columns, 1),
        .count = 1,
        .cuts = {{.dimension = dimension, .part = maker->part.position, .parts = maker->part.parts}},
        .axis = {maker->part.parts, 0},
        .copies = 1};
    if (dimension >= 0 && maker->part.parts > 1) parameter->part = part;
    return note_partial(maker, parameter);
}

static struct tensor *linear(const struct maker *maker, const char *name, struct tensor *x, struct tensor *weight,
                             struct tensor *residual) {
    return ops_linear(maker->graph, name, x, weight, NULL, residual, (struct linear_attributes){0});
}

static struct tensor *active(const struct maker *maker, const char *name, struct tensor *x) {
    return ops_activation(maker->graph, name, x, ACTIVATION_SILU);
}

/* A product by columns, a function, a product by rows: a part of a sum on each rank. */
static struct tensor *two_products(const struct maker *maker, const char *block, struct tensor *x) {
    struct graph *graph = maker->graph;
    struct tensor *up = weight(maker, graph_format(graph, "up.%s", block), INNER, HIDDEN);
    struct tensor *down = weight(maker, graph_format(graph, "down.%s", block), HIDDEN, INNER);
    x = active(maker, graph_format(graph, "%s.active", block),
               linear(maker, graph_format(graph, "%s.up", block), x, up, NULL));
    return linear(maker, graph_format(graph, "%s.down", block), x, down, NULL);
}

static struct tensor *norm(const struct maker *maker, const char *name, struct tensor *x, const char *weight) {
    struct tensor *parameter = note_partial(maker, graph_parameter(maker->graph, weight, 1, HIDDEN, 1));
    return ops_rms_norm(maker->graph, name, x, parameter, (struct norm_attributes){.epsilon = 1e-5});
}

static struct tensor *add_tensor_block(const struct maker *maker, struct tensor *x) {
    struct graph *graph = maker->graph;
    graph_begin_block(graph, "tensor");
    struct tensor *whole = ops_copy_in(graph, "tensor.in", norm(maker, "tensor.norm", x, "norm.tensor"), maker->part);
    struct tensor *sum = ops_reduce_out(graph, "tensor.out", two_products(maker, "tensor", whole), maker->part);
    return ops_add(graph, "tensor.sum", x, sum);
}

static struct tensor *add_sequence_block(const struct maker *maker, struct tensor *x) {
    struct graph *graph = maker->graph;
    graph_begin_block(graph, "sequence");
    x = ops_cut(graph, "sequence.cut", x, maker->part, 1);
    struct tensor *whole =
        ops_gather(graph, "sequence.in", norm(maker, "sequence.norm", x, "cut.norm"), maker->part, 1, true);
    struct tensor *sum = ops_scatter(graph, "sequence.out", two_products(maker, "sequence", whole), maker->part, 1);
    x = ops_add(graph, "sequence.sum", x, sum);
    struct tensor *columns = ops_all_to_all(graph, "sequence.columns", x, maker->part, 1, 2);
    columns = active(maker, "sequence.active", columns);
    struct tensor *back = ops_all_to_all(graph, "sequence.back", columns, maker->part, 2, 1);
    return ops_gather(graph, "sequence.all", ops_add(graph, "sequence.both", x, back), maker->part, 1, false);
}

static struct tensor *add_columns_block(const struct maker *maker, struct tensor *x) {
    struct graph *graph = maker->graph;
    graph_begin_block(graph, "columns");
    struct tensor *whole = ops_copy_in(graph, "columns.in", x, maker->part);
    struct tensor *part = linear(maker, "columns.up", whole, weight(maker, "up.columns", INNER, HIDDEN), NULL);
    struct tensor *all = ops_gather(graph, "columns.all", part, maker->part, 2, false);
    x = linear(maker, "columns.back", all, weight(maker, "back", HIDDEN, INNER), x);
    whole = ops_copy_in(graph, "columns.again", x, maker->part);
    struct tensor *sum = ops_scatter(graph, "columns.scatter", two_products(maker, "scatter", whole), maker->part, 2);
    sum = active(maker, "columns.active", sum);
    return ops_add(graph, "columns.sum", x, ops_gather(graph, "columns.out", sum, maker->part, 2, false));
}

/* Along the axes of a mesh, 2 x 2 where there are four ranks: cut along both, the second passed from features to
 * positions, and gathered again. */
static struct tensor *add_axes(const struct maker *maker, struct tensor *x) {
    struct graph *graph = maker->graph;
    int64_t columns = maker->part.parts > 2 ? 2 : 1, rows = maker->part.parts / columns;
    const struct group_part row = {.parts = rows, .position = maker->part.position / columns, .stride = columns};
    const struct group_part column = {.parts = columns, .position = maker->part.position % columns, .stride = 1};
    struct tensor *part = ops_cut(graph, "axes.rows", x, row, 1);
    part = active(maker, "axes.active", ops_cut(graph, "axes.columns", part, column, 2));
    part = active(maker, "axes.again", ops_all_to_all(graph, "axes.all_to_all", part, column, 2, 1));
    part = ops_gather(graph, "axes.row", part, column, 1, false);
    return ops_add(graph, "axes.sum", x, ops_gather(graph, "axes.whole", part, row, 1, false));
}

static struct tensor *add_batch_block(const struct maker *maker, struct tensor *x) {
    struct graph *graph = maker->graph;
    graph_begin_block(graph, "batch");
    x = ops_cut(graph, "batch.cut", x, maker->part, 0);
    x = linear(maker, "batch.linear", x, weight(maker, "cut.batch", HIDDEN, HIDDEN), x);
    return add_axes(maker, ops_gather(graph, "batch.all", x, maker->part, 0, false));
}

static struct tensor *integers(struct graph *graph, const char *name) {
    return graph_tensor(graph, TENSOR_INPUT, name,
                        shape_make(DTYPE_I32, 2, graph->micro_batch_sequences, graph->sequence_length, 1));
}

struct graph *collective_graph_build(enum dtype dtype, struct group_part part) {
    const struct optimizer_options optimizer = {.moments = DTYPE_F32,
                                                .beta1 = 0.9,
                                                .beta2 = 0.95,
                                                .epsilon = 1e-8,
                                                .clip_norm = COLLECTIVE_CLIP,
                                                .group = part};
    struct graph *graph = graph_create(dtype, COLLECTIVE_SEQUENCES, COLLECTIVE_LENGTH);
    const struct maker maker = {graph, part};
    graph_begin_block(graph, "embedding");
    struct tensor *table = graph_parameter(graph, "table", 2, COLLECTIVE_VOCABULARY, HIDDEN);
    struct tensor *x = ops_embedding(graph, "embedding", integers(graph, "tokens"), table);
    x = add_tensor_block(&maker, x);
    x = add_sequence_block(&maker, x);
    x = add_columns_block(&maker, x);
    x = add_batch_block(&maker, x);
    graph_begin_block(graph, "head");
    struct tensor *loss =
        ops_head_loss(graph, "head", x, table, integers(graph, "targets"), NULL, (struct head_attributes){0});
    if (graph_status(graph) != STATUS_OK || graph_differentiate(graph, loss) != STATUS_OK ||
        ops_add_optimizer(graph, &optimizer) != STATUS_OK)
        fail_msg("%s", status_message());
    return graph;
}

struct plan collective_plan(const struct graph *graph, const struct rank_place *place, int64_t micro_batches) {
    struct plan plan = small_plan(graph, micro_batches, 1);
    plan.recipe.tensor_parallel = rank_place_tensor_parallel(place);
    plan.recipe.lanes = (struct lane_shape){1, rank_place_data(place)};
    plan.place = *place;
    return plan;
}
