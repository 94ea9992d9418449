/* Seconds of collectives, as NCCL's tuning model has them: latency by steps, bytes by the slowest link, the fastest of
 * the algorithms and protocols (NVIDIA/nccl, src/ir/tuning.cc, as of NCCL 2.2x; figures, not code, are taken). */
#pragma once

#include "base/base.h"
#include "collective/collective.h"

enum cluster_link { CLUSTER_LINK_PCIE, CLUSTER_LINK_NVLINK, CLUSTER_LINK_COUNT };

/* How devices reach each other. Rates are one way, by data sheet; what collectives reach of them is for
 * this file to say. */
struct cluster_network {
    int64_t devices;         /* of a node; 0: no network is described, and all else is 0 */
    enum cluster_link link;  /* between devices of a node */
    double link_bytes_per_s; /* of one device to the others of its node */
    double node_bytes_per_s; /* of a node to other nodes, all adapters together */
    double hop_s;            /* latency of one step of a ring from node to node */
};

enum collective_algorithm {
    COLLECTIVE_RING,
    COLLECTIVE_TREE,
    COLLECTIVE_SWITCH,
    COLLECTIVE_PAIRS /* every rank to every other at once */
};
enum collective_protocol { PROTOCOL_LL, PROTOCOL_LL128, PROTOCOL_SIMPLE, PROTOCOL_COUNT };

/* Ranks of a group, spread evenly over nodes. Other groups of the same nodes are taken to be at work too: a group of
 * fewer than a node's devices has its part of the node's adapters. */
struct rank_group {
    int64_t in_node, nodes;
};

/* The fabric that collectives use; rates are one way. */
struct fabric {
    enum cluster_link link;
    int64_t node_devices;
    double link_bytes_per_s;   /* of a ring within a node */
    double node_bytes_per_s;   /* of a node's adapters together */
    double switch_bytes_per_s; /* of all-reduces that the switch adds up (NVLS); 0: it cannot */
    double hop_s;
    double congestion;
    long capability; /* of the GPUs */
};
/* `congestion`: by how much the rate across nodes falls with each doubling of their number, where paths collide. */
struct cluster;
struct fabric fabric_describe(const struct cluster *cluster, double congestion);

struct collective_cost {
    double seconds;
    enum collective_algorithm algorithm;
    enum collective_protocol protocol;
};
/* `bytes` are those of the whole tensor: what an all-gather gives, a reduce-scatter takes, an all-reduce keeps; of an
 * all-to-all what one rank has, an equal part of it for each. A group of one takes no time. */
struct collective_cost collective_cost(const struct fabric *fabric, enum comm_kind kind, double bytes,
                                       struct rank_group group);
static inline double collective_s(const struct fabric *fabric, enum comm_kind kind, double bytes,
                                  struct rank_group group) {
    return collective_cost(fabric, kind, bytes, group).seconds;
}
/* From one rank to another of another node, each rank of the node sending as much. */
double send_s(const struct fabric *fabric, double bytes, bool across);
