/* How tensors lie on a mesh of devices: sharding specs and what it takes to change them.
 *
 * Files, in the order to read them:
 *     device_mesh: devices by axes, and what collectives take; mesh_search: which devices form the rows;
 *     layout: this file;
 *     conversion: the cheapest way from one layout to another;
 *     conversion_nodes: a step of it as nodes of a graph;
 *     strategy: how a node may be cut, and what that costs;
 *     intra_op: the program that chooses a strategy for each node;
 *     ilp_program, ilp_reduce, ilp_eliminate, ilp_price, ilp_order, ilp_search, cbc_library, ilp_cbc: how
 *     it is solved;
 *     shard_choice, shard_share, shard_graph: the part of each rank of a group, how a node's operands lie then, and its
 *     own graph; shard_texts: where they write texts;
 *     shard_strategies: the same from strategies, and which of these ranks execute;
 *     shard_program: the program of a model's forward graph; strategy_lines: its solution as text;
 *     tensor_layout: the part of each tensor that a plan's ranks have;
 *     shard_chain: the sharded step as a chain of blocks; joint_solution: strategies and recomputation together;
 *     block_costs, stage_cut: where a pipeline is cut into stages; stage_spans: the blocks and tensors of
 *     each.
 *
 * Each dimension of a tensor is replicated (R) or cut evenly along some axes of the mesh: S0, S1, S01. A layout holds
 * it the other way round: for each axis the dimension that it cuts, so that no axis is ever used twice. A dimension
 * that several axes cut is cut by the lower one first, and must divide by the product of their sizes. */
#ifndef BALLAST_PLAN_LAYOUT_LAYOUT_H
#define BALLAST_PLAN_LAYOUT_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/tensor.h"
#include "plan/layout/device_mesh.h"

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

/* --- steps: one collective, or a cut of what each device has --- */

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

#endif
