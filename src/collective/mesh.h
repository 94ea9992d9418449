/* Ranks by axes: `nodes` times `per_node`, rank = node * per_node + place in the node. */
#pragma once

#include "base/base.h"

enum { MESH_HOST_BYTES = 64 };

struct mesh {
    int nodes, per_node;
};

/* Where two ranks are apart: within a node, or across nodes. */
enum mesh_axis { MESH_IN_NODE, MESH_ACROSS, MESH_AXES };

/* Some ranks, in ascending order: first + i * stride for i < count. */
struct comm_group {
    int first, stride, count;
};

/* MESH_ALL: all ranks; MESH_NODE: those of the rank's node; MESH_PEERS: those at its place in all nodes. */
enum mesh_group_kind { MESH_ALL, MESH_NODE, MESH_PEERS };

static inline int mesh_ranks(const struct mesh *mesh) { return mesh->nodes * mesh->per_node; }
static inline int mesh_node(const struct mesh *mesh, int rank) { return rank / mesh->per_node; }
static inline enum mesh_axis mesh_axis_between(const struct mesh *mesh, int a, int b) {
    return mesh_node(mesh, a) == mesh_node(mesh, b) ? MESH_IN_NODE : MESH_ACROSS;
}

struct comm_group mesh_group(const struct mesh *mesh, int rank, enum mesh_group_kind kind);
/* The part with this rank of a group that is cut into parts of `width` neighbours. Width divides the group's count. */
struct comm_group mesh_group_part(const struct comm_group *group, int rank, int width);
struct comm_group mesh_group_pair(int a, int b);
/* The ranks at the positions `inner` of the group `outer`. */
struct comm_group mesh_group_within(const struct comm_group *outer, const struct comm_group *inner);

static inline int mesh_group_rank(const struct comm_group *group, int position) {
    return group->first + position * group->stride;
}
/* The rank's position in the group, or -1. */
int mesh_group_position(const struct comm_group *group, int rank);
/* How many of its ranks each node has, where that is the same for all nodes it touches and these follow each other;
 * else 0. */
int mesh_group_per_node(const struct mesh *mesh, const struct comm_group *group);
