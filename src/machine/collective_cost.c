#include "machine/collective_cost.h"

#include <math.h>

#include "machine/cluster.h"

/* The fraction of a link's data-sheet rate that NCCL assumes (src/ir/topo.h): 20 of 25 GB/s up to NVLink 3, 20.6 of 25
 * for NVLink 4, 40.1 of 50 for NVLink 5; 12 of 15.75 for PCIe 3 x16. */
static double counted_part(enum cluster_link link, long capability) {
    if (link == CLUSTER_LINK_PCIE) return 12 / 15.75;
    return capability >= 100 ? 40.1 / 50 : capability >= 90 ? 20.6 / 25 : 20.0 / 25;
}

/* Bus rate of sums in NVLink 4 and 5 switches (NVLS), relative to a ring's. Each device sends and receives every byte
 * once, while a ring counts 2 (n - 1) / n times. NCCL assumes 0.85 of the links on H100 and 0.74 on B200. */
static double switch_rate(double ring_bytes_per_s, enum cluster_link link, long capability) {
    if (link != CLUSTER_LINK_NVLINK || capability < 90) return 0;
    const double hopper = 1.3;
    return ring_bytes_per_s * (capability >= 100 ? hopper * 0.74 / 0.85 : hopper);
}

/* The fraction of the adapters' data-sheet rate that is left after packet headers and pauses. */
static const double NETWORK_PART = 0.95;

struct fabric fabric_describe(const struct cluster *cluster, double congestion) {
    const struct cluster_network *network = &cluster->network;
    const char *digits = strstr(cluster->device.isa, "sm_");
    long capability = digits ? strtol(digits + 3, NULL, 10) : 0;
    double counted = network->link_bytes_per_s * counted_part(network->link, capability);
    return (struct fabric){
        .link = network->link,
        .node_devices = network->devices,
        .link_bytes_per_s = counted,
        .node_bytes_per_s = network->node_bytes_per_s * NETWORK_PART,
        .switch_bytes_per_s = switch_rate(counted, network->link, capability),
        .hop_s = network->hop_s,
        .congestion = congestion,
        .capability = capability,
    };
}

/* NCCL's latencies in microseconds: of a collective, and of a step over NVLink, PCIe and the network. */
static const double base_us[][PROTOCOL_COUNT] = {
    [COLLECTIVE_RING] = {6.6, 14.0, 8.4}, [COLLECTIVE_TREE] = {6.8, 14.0, 8.4}};
static const double link_us[CLUSTER_LINK_COUNT][2][PROTOCOL_COUNT] = {
    [CLUSTER_LINK_NVLINK] = {[COLLECTIVE_RING] = {0.6, 1.9, 3.4}, [COLLECTIVE_TREE] = {0.6, 1.25, 4.0}},
    [CLUSTER_LINK_PCIE] = {[COLLECTIVE_RING] = {1.0, 2.5, 5.7}, [COLLECTIVE_TREE] = {1.0, 1.9, 4.0}}};
static const double network_us[2][PROTOCOL_COUNT] = {
    [COLLECTIVE_RING] = {2.7, 4.0, 14.0}, [COLLECTIVE_TREE] = {5.0, 8.5, 14.0}};
/* Latency of an all-reduce by the switch within a node. */
static const double SWITCH_US = 25;

/* Fraction of a ring's full rate. LL sends a flag with each word and does not saturate a link; LL128 sends 120 bytes of
 * 128. */
static const double protocol_part[PROTOCOL_COUNT] = {
    [PROTOCOL_LL] = 0.25, [PROTOCOL_LL128] = 0.92, [PROTOCOL_SIMPLE] = 1};
/* A tree sends up and down at once: nine tenths of a ring's rate. */
static const double TREE_PART = 0.9;

/* Bytes a second through the group's share of its nodes' adapters. */
static double across_rate(const struct fabric *fabric, struct rank_group group) {
    double part = (double)group.in_node / (double)fabric->node_devices;
    return fabric->node_bytes_per_s * fmin(1, part) / (1 + fabric->congestion * log2((double)group.nodes / 2));
}

/* Bytes a second around a ring: the slower of the link within a node and the group's part of the adapters. */
static double ring_rate(const struct fabric *fabric, struct rank_group group) {
    if (group.nodes == 1) return fabric->link_bytes_per_s;
    double across = across_rate(fabric, group);
    return group.in_node == 1 ? across : fmin(fabric->link_bytes_per_s, across);
}

/* Latency of a step between nodes, relative to NCCL's 14 us. */
static double hop_part(const struct fabric *fabric) { return fabric->hop_s / 14e-6; }

static double latency_s(const struct fabric *fabric, enum comm_kind kind, enum collective_algorithm algorithm,
                        enum collective_protocol protocol, struct rank_group group) {
    double rounds = kind == COMM_ALL_REDUCE ? 2 : 1, ranks = (double)(group.in_node * group.nodes);
    double nodes = (double)group.nodes;
    double step = link_us[fabric->link][algorithm][protocol];
    double hop = network_us[algorithm][protocol] * hop_part(fabric);
    double steps = algorithm == COLLECTIVE_RING ? ranks - nodes : (double)group.in_node - 1;
    double hops = algorithm == COLLECTIVE_RING ? nodes - 1 : log2(nodes);
    return 1e-6 * (base_us[algorithm][protocol] + rounds * (steps * step + hops * hop));
}

/* Times that each byte passes a rank's link: once around, less its own part. */
static double passes(enum comm_kind kind, double ranks) {
    return (kind == COMM_ALL_REDUCE ? 2 : 1) * (ranks - 1) / ranks;
}

static double one_way_s(const struct fabric *fabric, enum comm_kind kind, double bytes, struct rank_group group,
                        struct collective_cost way) {
    double rate = ring_rate(fabric, group) * protocol_part[way.protocol];
    double ranks = (double)(group.in_node * group.nodes);
    if (way.algorithm == COLLECTIVE_TREE) rate *= TREE_PART;
    double bytes_s = bytes * (way.algorithm == COLLECTIVE_TREE ? 2 : passes(kind, ranks)) / rate;
    return latency_s(fabric, kind, way.algorithm, way.protocol, group) + bytes_s;
}

static void take_faster(struct collective_cost *best, struct collective_cost other) {
    if (other.seconds < best->seconds) *best = other;
}

/* NCCL sends to all others at once: over the links to ranks of the node, and through the adapters, of which each rank
 * of the group has its share, to the rest. The slower of the two decides. Latency is that of one step. */
static struct collective_cost all_to_all(const struct fabric *fabric, double bytes, struct rank_group group) {
    double ranks = (double)(group.in_node * group.nodes), near = (double)group.in_node, latency = 0;
    double in_node_s = bytes * (near - 1) / ranks / fabric->link_bytes_per_s, across_s = 0;
    if (near > 1) latency = link_us[fabric->link][COLLECTIVE_RING][PROTOCOL_SIMPLE];
    if (group.nodes > 1) {
        across_s = near * bytes * (ranks - near) / ranks / across_rate(fabric, group);
        latency = network_us[COLLECTIVE_RING][PROTOCOL_SIMPLE] * hop_part(fabric);
    }
    latency += base_us[COLLECTIVE_RING][PROTOCOL_SIMPLE];
    return (struct collective_cost){1e-6 * latency + fmax(in_node_s, across_s), COLLECTIVE_PAIRS, PROTOCOL_SIMPLE};
}

struct collective_cost collective_cost(const struct fabric *fabric, enum comm_kind kind, double bytes,
                                       struct rank_group group) {
    int64_t ranks = group.in_node * group.nodes;
    struct collective_cost best = {.seconds = INFINITY};
    if (ranks <= 1) return (struct collective_cost){.seconds = 0};
    if (kind == COMM_ALL_TO_ALL) return all_to_all(fabric, bytes, group);
    for (enum collective_protocol protocol = 0; protocol < PROTOCOL_COUNT; protocol++)
        for (enum collective_algorithm algorithm = 0; algorithm <= COLLECTIVE_TREE; algorithm++) {
            if (algorithm == COLLECTIVE_TREE && (kind != COMM_ALL_REDUCE || group.nodes == 1)) continue;
            struct collective_cost way = {.algorithm = algorithm, .protocol = protocol};
            way.seconds = one_way_s(fabric, kind, bytes, group, way);
            take_faster(&best, way);
        }
    if (kind == COMM_ALL_REDUCE && group.nodes == 1 && ranks > 2 && fabric->switch_bytes_per_s > 0)
        take_faster(&best, (struct collective_cost){SWITCH_US * 1e-6 + bytes * passes(kind, (double)ranks) /
                                                                           fabric->switch_bytes_per_s,
                                                    COLLECTIVE_SWITCH, PROTOCOL_SIMPLE});
    return best;
}

double send_s(const struct fabric *fabric, double bytes, bool across) {
    double rate = across ? fabric->node_bytes_per_s / (double)fabric->node_devices : fabric->link_bytes_per_s;
    return 1e-6 * base_us[COLLECTIVE_RING][PROTOCOL_SIMPLE] + (across ? fabric->hop_s : 3.4e-6) + bytes / rate;
}
