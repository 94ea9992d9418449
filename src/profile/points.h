/* The measurements that a graph needs: each distinct operator once, operators over a whole parameter at the sizes of
 * their curve, large ones on parts. */
#pragma once

#include "profile/cache.h"
#include "profile/operator_bench.h"

/* The cost of operators that go once over a parameter (norm, sum of gradients, update): measured at a few sizes and
 * interpolated, since a model has many sizes, some of them gigabytes. */

enum { CURVE_POINTS = 3 };
extern const int64_t curve_elements[CURVE_POINTS];

bool curve_fits(const struct node *node);

/* Linear between two points; below the first equal to it, above the last in proportion. */
double curve_seconds(const double seconds[CURVE_POINTS], int64_t elements);

/* Large operators are measured on a part of their tokens or of their vocabulary: a GEMM of a model with billions of
 * parameters takes seconds, which would make starts slow. */

enum { PARTS_MAX = CURVE_POINTS };

/* The dimensions of a part; 0: the node's own. */
struct part {
    int64_t tokens;   /* of the micro-batch, as one sequence */
    int64_t vocab;    /* rows of the head's weight or of the embedding's table */
    int64_t elements; /* of the parameter, on a curve */
};

/* How a node is measured: as it is (`count` 0), at the sizes of its curve, or by parts of it. With W the FLOPs of the
 * node, its cost is that of
 * - two parts: on the line through them at W;
 * - one part: in proportion to W; the same where the operator has no FLOPs (an embedding reads the rows of its tokens,
 *   however many others there are).
 * GEMMs and attention have two, since a part of their work (packing weights, adding gradients) does not depend on the
 * tokens. The head has one, since it works tile by tile. */
struct parts {
    int count;
    struct part part[PARTS_MAX]; /* the smaller one first */
};

/* Nodes with at most `large_flops` are measured whole; 0: all are. Knows no curves. */
struct parts parts_of(const struct node *node, double large_flops);

/* The same operator on a part. Its tensors are its own; it must not be moved. */
struct part_node {
    struct node node;
    struct tensor tensors[OPERAND_COUNT], bases[OPERAND_COUNT];
    struct operands operands;
    _Alignas(max_align_t) char attributes[OP_ATTRIBUTES_BYTES_MAX]; /* where they hold the table's rows */
};
void part_node_make(const struct operands *operands, const struct part *part, struct part_node *out);

/* Seconds of a node from those of its parts. */
double parts_seconds(const struct operands *operands, const struct parts *parts, const double seconds[PARTS_MAX]);

struct point {
    const char *key; /* operator_key */
    struct operands operands;
    struct part part; /* the measured part; all zero: the operator as it is */
    double work;      /* bytes plus FLOPs of a call, by which measurements are ordered */
    struct measurement measurement;
};

/* Zero-initialise; points_free. */
struct points {
    const struct graph *graph; /* operators are measured in its order (graph_walk.h); NULL: each by itself */
    bool on_host;              /* of kernels for the host tier of a device with memory of its own */
    double large_flops;        /* parts_of */
    VEC(struct point) list;
    struct scratch keys;
    bool evicts; /* cold operands are taken out of the caches (walk_points_measure tells) */
};
void points_free(struct points *points);

/* The places of a node's points in the list: one for the operator as it is, or one for each of its parts. */
struct point_set {
    int32_t at[PARTS_MAX];
    struct parts parts;
};
/* Whether its cost is that of parts, and not read from a curve. */
static inline bool point_set_extrapolates(const struct point_set *set) {
    return set->parts.count > 0 && set->parts.part[0].elements == 0;
}
/* Adds the points of a node that the list lacks. */
enum status points_add(struct points *points, const struct operands *operands, struct point_set *out);
/* Seconds and spread of a node with these points, when all were measured. */
struct measurement points_cost(const struct points *points, const struct operands *operands,
                               const struct point_set *set);

/* Whether a point has no time, or a noisy one. */
bool point_lacks(const struct point *point);

/* Measures the points that are missing or noisy in the cache, and puts them there. Points that are measured in the
 * order of the graph come first. The others follow, small ones first, each with an equal share of the time until
 * `end_ns` (clock.h), but at least one call. Noisy ones are measured again while time is left. Counts them in
 * *measured. The caller has set the backend's threads. */
enum status points_measure(struct points *points, const struct backend *backend, struct profile_cache *cache,
                           int64_t end_ns, int32_t *measured);
