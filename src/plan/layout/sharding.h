/* How tensors lie on a mesh of devices: sharding specs and what it takes to change them.
 *
 * Files, in the order to read them:
 *     sharding: this file: devices by axes, what collectives take, layouts, and the cheapest way from one to another;
 *     strategy: how a node may be cut, what that costs, and which ways ranks execute;
 *     intra_op: the integer program that chooses a strategy for each node;
 *     ilp_program, ilp_search, ilp_cbc: how it is solved;
 *     shard_choice, shard_graph: the part of each rank of a group, and its own graph;
 *     shard_program: the program of a model's forward graph;
 *     tensor_layout: the part of each tensor that a plan's ranks have, by that program or as Megatron-LM assigns it;
 *     joint_solution: strategies and recomputation together, over the sharded step as a chain of blocks;
 *     pipeline: where a pipeline is cut into stages, the blocks and tensors of each, and which works on what when.
 *
 * Devices by up to three axes, and what a collective over some of the axes takes.
 *
 * Devices are numbered along the last axis first. An axis has a latency and a time per byte; a collective over several
 * axes at once (a *flattened* mesh) has the worst of each. Costs are those of rings (Colossal-Auto, arXiv 2302.02599;
 * Alpa, OSDI'22), in seconds, with n for the number of devices that take part; all are 0 where n is 1. */
#pragma once

#include "base/base.h"
#include "ir/tensor.h"

enum { DEVICE_MESH_AXES_MAX = 3, DEVICE_MESH_DEVICES_MAX = 1 << 20 };

struct device_mesh {
    int axes;                                /* 1 to DEVICE_MESH_AXES_MAX */
    int64_t sizes[DEVICE_MESH_AXES_MAX];     /* devices along each, at least 1 */
    double latency_s[DEVICE_MESH_AXES_MAX];  /* alpha */
    double s_per_byte[DEVICE_MESH_AXES_MAX]; /* beta */
};

/* BAD_INPUT naming the axis when a size, latency or time per byte is out of range, or there are too many devices. */
enum status device_mesh_check(const struct device_mesh *mesh);

/* Sets of axes are bits: 1 << axis. */
static inline unsigned device_mesh_all_axes(const struct device_mesh *mesh) { return (1u << mesh->axes) - 1; }
/* Devices along these axes together; 1 for none. */
int64_t device_mesh_devices(const struct device_mesh *mesh, unsigned axes);

/* A device's coordinate on each axis. */
void device_mesh_place(const struct device_mesh *mesh, int64_t device, int64_t place[DEVICE_MESH_AXES_MAX]);

/* alpha + beta x (n-1)/n, times the bytes that each device has afterwards. */
double device_mesh_all_gather_s(const struct device_mesh *mesh, unsigned axes, double bytes);
/* alpha + beta x (n-1)/n, times the bytes that each device has before. */
double device_mesh_reduce_scatter_s(const struct device_mesh *mesh, unsigned axes, double bytes);
/* alpha + 2 beta x (n-1)/n, times the bytes that each device has. */
double device_mesh_all_reduce_s(const struct device_mesh *mesh, unsigned axes, double bytes);
/* alpha + beta x (n-1)/n, times the bytes that each device has. With n times as many bytes in all, this is the
 * (n-1)/n^2 of the papers. */
double device_mesh_all_to_all_s(const struct device_mesh *mesh, unsigned axes, double bytes);

/* --- which devices form the rows of a mesh --- */

/* A measurement between two devices, by their positions in the list of devices. */
struct device_pair {
    int first, second;
    double latency_s, s_per_byte;
};
struct mesh_rows {
    int rows, columns;
    int *devices; /* [rows * columns] positions in the list, each row ascending, rows by their first */
};
/* Two axes for `count` devices, of which each pair was measured. Pairs are put in classes of times per byte within 10%;
 * from the fastest class up, but never the slowest, the first whose pairs touch every device gives the rows, as its
 * connected components, if these are of one size. Otherwise rows and columns as equal as they can be, columns the
 * larger (Colossal-Auto's AlphaBetaProfiler). FAILED without memory. Free with mesh_rows_free. */
enum status mesh_rows_search(int count, const struct device_pair *pairs, int pair_count, struct mesh_rows *out);
void mesh_rows_free(struct mesh_rows *rows);

/* ---- layouts ----
 *
 * Each dimension of a tensor is replicated (R) or cut evenly along some axes of the mesh: S0, S1, S01. A layout holds
 * it the other way round: for each axis the dimension that it cuts, so that no axis is ever used twice. A dimension
 * that several axes cut is cut by the lower one first, and must divide by the product of their sizes. */

enum { LAYOUT_RANK_MAX = 8, LAYOUT_REPLICATED = -1, LAYOUT_TEXT = 64 };

struct layout {
    int8_t dimension[DEVICE_MESH_AXES_MAX]; /* that each axis cuts, or LAYOUT_REPLICATED; so for axes that are none */
};
/* Sizes of any tensor; struct shape (ir/tensor.h) has as many dimensions as operators need. */
struct layout_shape {
    int rank; /* 0 to LAYOUT_RANK_MAX */
    int64_t dims[LAYOUT_RANK_MAX];
};

/* Replicated on all devices. */
struct layout layout_replicated(void);
bool layout_equal(const struct layout *a, const struct layout *b);
/* The axes that cut a dimension, as bits. */
unsigned layout_axes_of(const struct layout *layout, int dimension);
/* How many parts a dimension is cut into. */
int64_t layout_parts(const struct layout *layout, const struct device_mesh *mesh, int dimension);
/* Whether every dimension divides. An axis of one device may cut any dimension. */
bool layout_fits(const struct layout *layout, const struct device_mesh *mesh, const struct layout_shape *shape);
/* Elements that each device holds; where a dimension does not divide, those of its first. */
int64_t layout_local_elements(const struct layout *layout, const struct device_mesh *mesh,
                              const struct layout_shape *shape);

/* All layouts of a tensor of this rank, divisible or not, are numbered from 0, the replicated one, to
 * layout_count - 1. */
int layout_count(const struct device_mesh *mesh, int rank);
int layout_number(const struct layout *layout, const struct device_mesh *mesh, int rank);
struct layout layout_of_number(int number, const struct device_mesh *mesh, int rank);

/* "S0RS12": a letter a dimension, with axes after each S; "" for rank 0. Returns `text`. */
char *layout_print(const struct layout *layout, int rank, char text[LAYOUT_TEXT]);

/* --- steps: one collective, or a local cut --- */

enum layout_action {
    LAYOUT_GATHER,     /* the last axis of a dimension cuts it no more: an all-gather */
    LAYOUT_ALL_TO_ALL, /* the last axis of a dimension cuts another as its last */
    LAYOUT_CUT,        /* a free axis cuts a dimension as its last: nothing moves */
};
struct layout_step {
    enum layout_action action;
    int axis;
    int from, to; /* dimensions; LAYOUT_REPLICATED where the action has none */
};
enum { LAYOUT_STEPS_MAX = DEVICE_MESH_AXES_MAX * (LAYOUT_RANK_MAX + 1) };
/* The steps that lead on, by action, then axis, then dimension; whether the dimension divides is not asked. */
int layout_steps(const struct layout *layout, const struct device_mesh *mesh, int rank,
                 struct layout_step out[LAYOUT_STEPS_MAX]);
struct layout layout_after(const struct layout *layout, const struct layout_step *step);

/* The cheapest way from one layout of a tensor to another: a shortest path over one-step changes.
 *
 * A tensor of rank r on a mesh of a axes has (r+1)^a layouts at most, so all pairs are solved at once (Dijkstra from
 * each) and kept. The result is exact: no chain of steps through layouts that fit is cheaper. Ties go to the fewest
 * steps, then to the lowest numbers of the first steps (layout_number). */

/* Cost of a step in training: of the tensor, and of its gradient on the way back. At least 0, in any single unit. */
struct step_price {
    double forward, backward;
};
/* `bytes` is the size that each device holds before the step. */
typedef struct step_price step_pricer(const struct device_mesh *mesh, const struct layout_step *step, double bytes);

/* In seconds, by the bytes moved. Gathering is an all-gather, whose gradient each device already has. Cutting is free,
 * and its gradient is an all-gather. An all-to-all goes back as an all-to-all. */
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
