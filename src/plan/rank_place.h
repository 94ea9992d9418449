/* Who computes: a rank, and how it meets the others. All 0: alone. */
#ifndef BALLAST_PLAN_RANK_PLACE_H
#define BALLAST_PLAN_RANK_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster/tier.h"
#include "collective/mesh.h"

struct rank_place {
    struct mesh mesh; /* of all ranks; 0x0: one */
    int rank;
    bool in_place;         /* the ranks of a node read each other's data in place (comm_spec.in_place) */
    bool on_device;        /* ranks exchange the memory of their devices (comm_spec.on_device); then not in_place */
    int64_t message_bytes; /* most of one message; 0: RANK_MESSAGE_BYTES */
    enum tier tier;        /* of what is exchanged: the device where on_device or where the CPU has addresses of it */
};

/* That of comm_options, where it says nothing else. */
#define RANK_MESSAGE_BYTES ((int64_t)4 << 20)

static inline int rank_place_ranks(const struct rank_place *place) {
    return place->mesh.nodes > 0 ? mesh_ranks(&place->mesh) : 1;
}
static inline int64_t rank_place_message_bytes(const struct rank_place *place) {
    return place->message_bytes > 0 ? place->message_bytes : RANK_MESSAGE_BYTES;
}

#endif
