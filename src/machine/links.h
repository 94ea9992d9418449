/* Bandwidth and latency between ranks: messages between two of them by axis of the mesh, and whole operations by size.
 */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "collective/collective.h"
#include "machine/collective_cost.h"

/* Seconds of a transfer of n bytes: latency_s + n / bytes_per_s. */
struct transfer_rate {
    double latency_s;
    double bytes_per_s; /* 0: not measured */
};

/* Operations that were measured, and pairs of ranks: at most so many of each. */
enum { LINK_POINTS_MAX = 96, LINK_PAIRS_MAX = 64 };
/* With fewer ranks than this, all pairs are measured. */
enum { LINK_ROW_RANKS_MAX = 12 };

/* One operation, alone, on all groups of its kind at once. */
struct link_point {
    enum comm_kind kind;
    enum mesh_group_kind group;
    bool in_place, flat;
    int64_t bytes; /* of data, on each rank */
    double seconds;
};

/* Messages between two ranks while all others are silent. */
struct link_pair {
    int first, second;
    struct transfer_rate rate;
};

/* The mesh that the pairs' rates show, whatever the nodes: ranks near each other are a row. */
struct link_rows {
    int rows, columns;             /* 0: the rates show none */
    int ranks[LINK_ROW_RANKS_MAX]; /* row by row */
};

struct cluster_links {
    struct mesh mesh;                        /* on which all this was measured; 0 nodes: nothing was */
    bool shared;                             /* ranks of a node read each other's data in place */
    struct transfer_rate message[MESH_AXES]; /* of one rank, while all ranks send along that axis; 0: no such axis */
    struct transfer_rate read;               /* of one rank, in place, while all ranks of its node read */
    struct link_point points[LINK_POINTS_MAX];
    int point_count;
    struct link_pair pairs[LINK_PAIRS_MAX];
    int pair_count;
    struct link_rows rows;
    struct fabric fabric; /* by data sheet, in place of measurements; 0 node_devices: none */
};

/* An operation of a program. */
struct link_request {
    enum comm_kind kind;
    struct comm_group group;
    bool in_place, flat;
    int64_t bytes;                      /* of data */
    struct mesh mesh;                   /* of the ranks that the program is for */
    const struct comm_traffic *traffic; /* what one rank moves (schedule.h) */
    bool on_device;                     /* works on the memory of devices */
};

/* Whether flat and hierarchical are two: not among two ranks, nor where all read each other's data in place. */
bool links_flat_differs(const struct mesh *mesh, const struct comm_group *group, bool in_place);

/* Seconds of a collective that runs alone.
 *
 * On the measured mesh they are interpolated linearly between the measured sizes of the same operation. Below the
 * smallest size they equal its time; above the largest they grow at the rate of the two largest sizes.
 *
 * Other groups and other algorithms set *extrapolated, and use the sum over the axes of
 *     phases x latency + bytes / rate.
 *
 * A hierarchical operation has ceil(log2 of the group's length along the axis) phases. A flat one has as many as
 * messages: the other ranks along the axis, or across nodes those of all other nodes. An all-reduce has twice as many.
 * The ranks of a node share the rate across nodes, so with twice as many ranks in a node each has half of it. (Thakur,
 * Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005: recursive halving and
 * doubling, and pairwise exchange, with the latency and the rate of each axis).
 *
 * 0 and *extrapolated if nothing was measured. Described devices use collective_cost, and set *extrapolated. */
double links_seconds(const struct cluster_links *links, const struct link_request *request, bool *extrapolated);

/* --- in JSON: a part of cluster files (cluster.c) --- */

/* {"mesh": "2x4", "shared", "messages": {"in node": {"latency_s", "bytes_per_s"}, "across nodes": …}, "read": {…},
 *  "operations": [{"kind", "group", "in_place", "flat", "bytes", "seconds"}],
 *  "pairs": [{"first", "second", "latency_s", "bytes_per_s"}], "rows": [[0, 2], [1, 3]] where there are any}; null
 * where nothing was measured. NULL when out of memory. */
json_t *links_to_json(const struct cluster_links *links);
/* BAD_INPUT "FILE: links…: what is wrong"; `out` is then as it was. */
enum status links_from_json(const char *file, const json_t *object, struct cluster_links *out);

/* "all-gather", … and "all", "node", "peers": as messages, files and tables name them. */
const char *link_kind_name(enum comm_kind kind);
const char *link_group_name(enum mesh_group_kind group);
const char *link_axis_name(enum mesh_axis axis);
