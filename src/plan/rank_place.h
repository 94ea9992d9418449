/* Who computes: a rank, and how it meets the others. All 0: alone.
 *
 * Ranks have three axes: rank = (stage * data + d) * tensor + t. The tensor ranks of a group hold the parts that
 * layouts cut (plan/layout/shard_graph.h); the data ranks each have micro-batches, lanes and shards of their own;
 * stages have blocks. What lanes, rounds, partitions and sums of gradients call a rank is a place among the data ranks.
 */
#ifndef BALLAST_PLAN_RANK_PLACE_H
#define BALLAST_PLAN_RANK_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "collective/mesh.h"
#include "machine/tier.h"

struct rank_place {
    struct mesh mesh; /* of all ranks; 0x0: one */
    int rank;
    int tensor_parallel, pipeline_parallel; /* ranks along these axes; 0: one. Their product divides the ranks */
    bool in_place;         /* the ranks of a node read each other's data in place (comm_spec.in_place) */
    bool on_device;        /* collectives work on the memory of devices (comm_spec.on_device); then not in_place */
    int64_t message_bytes; /* most of one message; 0: RANK_MESSAGE_BYTES */
    enum tier tier; /* of the data of collectives: the device where on_device or where the CPU has addresses of it */
};

/* That of comm_options, where it says nothing else. */
#define RANK_MESSAGE_BYTES ((int64_t)4 << 20)

static inline int rank_place_ranks(const struct rank_place *place) {
    return place->mesh.nodes > 0 ? mesh_ranks(&place->mesh) : 1;
}
static inline int rank_place_tensor_parallel(const struct rank_place *place) {
    return place->tensor_parallel > 0 ? place->tensor_parallel : 1;
}
static inline int rank_place_pipeline_parallel(const struct rank_place *place) {
    return place->pipeline_parallel > 0 ? place->pipeline_parallel : 1;
}
static inline int rank_place_data(const struct rank_place *place) {
    return rank_place_ranks(place) / (rank_place_tensor_parallel(place) * rank_place_pipeline_parallel(place));
}
/* The rank's places along the axes. */
static inline int rank_place_tensor_rank(const struct rank_place *place) {
    return place->rank % rank_place_tensor_parallel(place);
}
static inline int rank_place_data_rank(const struct rank_place *place) {
    return place->rank / rank_place_tensor_parallel(place) % rank_place_data(place);
}
static inline int rank_place_stage(const struct rank_place *place) {
    return place->rank / (rank_place_tensor_parallel(place) * rank_place_data(place));
}
/* The ranks that differ from this one along one axis alone, itself among them. */
struct comm_group rank_place_tensor_group(const struct rank_place *place);
/* Of these, the `parts` along an axis of their mesh, between whose neighbours there are `stride` ranks. */
struct comm_group rank_place_tensor_axis(const struct rank_place *place, int parts, int stride);
struct comm_group rank_place_data_group(const struct rank_place *place);
struct comm_group rank_place_stage_group(const struct rank_place *place);
/* The data ranks by nodes; of one node where those of a group are not as many in each. */
struct mesh rank_place_data_mesh(const struct rank_place *place);

static inline int64_t rank_place_message_bytes(const struct rank_place *place) {
    return place->message_bytes > 0 ? place->message_bytes : RANK_MESSAGE_BYTES;
}

#endif
