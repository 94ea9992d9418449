#include "machine/links.h"

#include <math.h>

#include "collective/lane_tree.h"
#include "machine/cluster.h"
#include "machine/kernel_cost.h"

static const char *const kind_names[COMM_KINDS] = {"all-gather", "reduce-scatter", "all-reduce", "broadcast",
                                                   "all-to-all"};
static const char *const group_names[] = {[MESH_ALL] = "all", [MESH_NODE] = "node", [MESH_PEERS] = "peers"};
static const char *const axis_names[MESH_AXES] = {[MESH_IN_NODE] = "in node", [MESH_ACROSS] = "across nodes"};

const char *link_kind_name(enum comm_kind kind) { return kind_names[kind]; }
const char *link_group_name(enum mesh_group_kind group) { return group_names[group]; }
const char *link_axis_name(enum mesh_axis axis) { return axis_names[axis]; }

static bool same_mesh(const struct mesh *a, const struct mesh *b) {
    return a->nodes == b->nodes && a->per_node == b->per_node;
}

bool links_flat_differs(const struct mesh *mesh, const struct comm_group *group, bool in_place) {
    int last = mesh_group_rank(group, group->count - 1);
    bool in_node = mesh_axis_between(mesh, group->first, last) == MESH_IN_NODE;
    return group->count > 2 && !(in_node && in_place);
}

static bool group_is_of(const struct mesh *mesh, const struct comm_group *group, enum mesh_group_kind kind) {
    struct comm_group like = mesh_group(mesh, group->first, kind);
    return like.first == group->first && like.count == group->count && like.stride == group->stride;
}

static bool point_is_of(const struct link_point *point, const struct link_request *request) {
    bool flat = request->flat && links_flat_differs(&request->mesh, &request->group, request->in_place);
    return point->kind == request->kind && point->in_place == request->in_place && point->flat == flat &&
           group_is_of(&request->mesh, &request->group, point->group);
}

/* The points of the request's operation that are the nearest below and above its size; NULL where there is none. */
struct neighbours {
    const struct link_point *below, *above, *before_below;
};

static struct neighbours find_neighbours(const struct cluster_links *links, const struct link_request *request) {
    struct neighbours found = {NULL, NULL, NULL};
    for (int i = 0; i < links->point_count; i++) {
        const struct link_point *point = &links->points[i];
        if (!point_is_of(point, request)) continue;
        if (point->bytes > request->bytes) {
            if (!found.above || point->bytes < found.above->bytes) found.above = point;
        } else if (!found.below || point->bytes > found.below->bytes) {
            found.before_below = found.below;
            found.below = point;
        } else if (!found.before_below || point->bytes > found.before_below->bytes)
            found.before_below = point;
    }
    return found;
}

static double on_line(const struct link_point *from, const struct link_point *to, int64_t bytes) {
    double slope = (to->seconds - from->seconds) / (double)(to->bytes - from->bytes);
    return to->seconds + fmax(slope, 0) * (double)(bytes - to->bytes);
}

/* -1: this operation was not measured. */
static double measured_seconds(const struct cluster_links *links, const struct link_request *request) {
    struct neighbours near = find_neighbours(links, request);
    if (near.below && near.above) {
        double share = (double)(request->bytes - near.below->bytes) / (double)(near.above->bytes - near.below->bytes);
        return near.below->seconds + share * (near.above->seconds - near.below->seconds);
    }
    if (near.above) return near.above->seconds;
    if (!near.below) return -1;
    if (near.before_below) return on_line(near.before_below, near.below, request->bytes);
    return near.below->seconds * (double)request->bytes / (double)near.below->bytes;
}

/* How long a group is along an axis; one whose ranks nodes have in different numbers counts as one rank a node. */
static int axis_length(const struct link_request *request, enum mesh_axis axis) {
    int in_node = mesh_group_per_node(&request->mesh, &request->group);
    if (in_node == 0) in_node = 1;
    return axis == MESH_IN_NODE ? in_node : request->group.count / in_node;
}

/* Latencies that follow each other along the axis, one way. */
static int latencies(const struct link_request *request, enum mesh_axis axis) {
    int length = axis_length(request, axis);
    if (!request->flat) return lane_levels(length);
    return axis == MESH_IN_NODE ? length - 1 : request->group.count - axis_length(request, MESH_IN_NODE);
}

/* The rate of one rank along an axis when all ranks send along it. */
static double shared_rate(const struct cluster_links *links, const struct link_request *request, enum mesh_axis axis) {
    double rate = links->message[axis].bytes_per_s;
    if (axis == MESH_ACROSS) rate *= (double)links->mesh.per_node / (double)request->mesh.per_node;
    return rate;
}

static double axis_seconds(const struct cluster_links *links, const struct link_request *request, enum mesh_axis axis) {
    int steps = latencies(request, axis), ways = request->kind == COMM_ALL_REDUCE ? 2 : 1;
    /* If the axis was never measured, the other axis's data replaces it. */
    bool known = links->message[axis].bytes_per_s > 0;
    enum mesh_axis from = known ? axis : (axis == MESH_IN_NODE ? MESH_ACROSS : MESH_IN_NODE);
    double rate = shared_rate(links, request, from);
    const struct comm_traffic *traffic = request->traffic;
    int64_t sent = traffic->sent[axis], received = traffic->received[axis];
    if (steps == 0 || rate <= 0) return 0;
    return ways * steps * links->message[from].latency_s + (double)(sent > received ? sent : received) / rate;
}

/* A send is a broadcast to one other. */
static double described_seconds(const struct fabric *fabric, const struct link_request *request) {
    const struct comm_group *group = &request->group;
    struct rank_group ranks = {axis_length(request, MESH_IN_NODE), axis_length(request, MESH_ACROSS)};
    if (request->kind == COMM_BROADCAST && group->count == 2)
        return send_s(fabric, (double)request->bytes, ranks.nodes > 1);
    return collective_s(fabric, request->kind, (double)request->bytes, ranks);
}

double links_seconds(const struct cluster_links *links, const struct link_request *request, bool *extrapolated) {
    double seconds = -1;
    *extrapolated = true;
    if (links->fabric.node_devices > 0 && request->on_device) return described_seconds(&links->fabric, request);
    if (same_mesh(&links->mesh, &request->mesh)) seconds = measured_seconds(links, request);
    *extrapolated = seconds < 0;
    if (!*extrapolated) return seconds;
    seconds = 0;
    for (int axis = 0; axis < MESH_AXES; axis++)
        seconds += axis_seconds(links, request, (enum mesh_axis)axis);
    if (request->traffic->read > 0 && links->read.bytes_per_s > 0)
        seconds += links->read.latency_s + (double)request->traffic->read / links->read.bytes_per_s;
    return seconds;
}

void cluster_describe_links(const struct cluster *cluster, struct cluster_rates *out) {
    const struct calibration calibration = calibration_default();
    const struct fabric fabric = fabric_describe(cluster, calibration.congestion);
    out->links = (struct cluster_links){.mesh = {1, (int)fabric.node_devices}, .fabric = fabric};
    for (int axis = 0; axis < MESH_AXES; axis++) {
        double start_s = send_s(&fabric, 0, axis == MESH_ACROSS), whole_s = send_s(&fabric, 1e9, axis == MESH_ACROSS);
        out->links.message[axis] = (struct transfer_rate){start_s, 1e9 / (whole_s - start_s)};
    }
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        out->slowdown[a][ACTIVITY_MESSAGE] = out->slowdown[ACTIVITY_MESSAGE][a] = 1;
    out->slowdown[ACTIVITY_PRODUCT][ACTIVITY_MESSAGE] = 1 + calibration.collective_slowdown;
    out->slowdown[ACTIVITY_STREAMING][ACTIVITY_MESSAGE] = 1 + calibration.collective_slowdown;
}
