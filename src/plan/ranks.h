/* A rank's place among all ranks, and its communication groups. All fields 0: a single rank.
 *
 * Ranks have three axes: rank = (stage * data + d) * tensor + t. The tensor ranks of a group hold the parts that
 * layouts cut (plan/layout/shard_graph.c); the data ranks each have micro-batches, lanes and shards of their own;
 * stages have blocks. For lanes, rounds, partitions and sums of gradients, "rank" means a place among the data
 * ranks. */
#pragma once

#include "base/base.h"
#include "collective/collective.h"
#include "machine/rates.h"

struct rank_place {
    struct mesh mesh; /* of all ranks; 0x0: one */
    int rank;
    int tensor_parallel, pipeline_parallel; /* ranks along these axes; 0: one. Their product divides the ranks */
    bool in_place;         /* the ranks of a node read each other's data in place (comm_spec.in_place) */
    bool on_device;        /* collectives work on the memory of devices (comm_spec.on_device); then not in_place */
    int64_t message_bytes; /* most of one message; 0: RANK_MESSAGE_BYTES */
    enum tier tier; /* of the data of collectives: the device where on_device or where the CPU has addresses of it */
};

/* Largest message, where rank_place names none. */
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
/* The `parts` ranks along an axis of the tensor ranks' mesh; neighbours are `stride` ranks apart. */
struct comm_group rank_place_tensor_axis(const struct rank_place *place, int parts, int stride);
struct comm_group rank_place_data_group(const struct rank_place *place);
struct comm_group rank_place_stage_group(const struct rank_place *place);
/* The data ranks by nodes; of one node where those of a group are not as many in each. */
struct mesh rank_place_data_mesh(const struct rank_place *place);

static inline int64_t rank_place_message_bytes(const struct rank_place *place) {
    return place->message_bytes > 0 ? place->message_bytes : RANK_MESSAGE_BYTES;
}

/* Partitions model states among ranks. Parameters, gradients and optimizer states each have a width (AMSP, arXiv
 * 2311.00257, section 3). With width w, each group of w neighbouring ranks holds a full copy, one shard per rank. With
 * width 1, each rank has a full copy.
 *
 * A triple is legal under three rules. Each width divides the number of ranks and fills nodes first (it divides the
 * ranks of a node, or is a multiple of them). Widths ascend: parameters <= gradients <= optimizer. Gradients are cut
 * like the parameters or like the optimizer's states. 8 ranks in each of 128 nodes have 121 of them. It is policy: it
 * changes no bit. */

enum { PARTITION_BYTES = 96 };

/* Widths; 0 counts as 1. */
struct partition {
    int parameters, gradients, optimizer;
};

static inline int partition_width(int width) { return width > 0 ? width : 1; }
/* Whether anything is cut. */
static inline bool partition_cuts(const struct partition *partition) {
    return partition_width(partition->optimizer) > 1;
}

static inline bool partition_equal(const struct partition *a, const struct partition *b) {
    return partition_width(a->parameters) == partition_width(b->parameters) &&
           partition_width(a->gradients) == partition_width(b->gradients) &&
           partition_width(a->optimizer) == partition_width(b->optimizer);
}

/* "p|g|os", each "in-node x across" ("8x1|8x1|8x4") or a bare width, which fills the node first ("8|8|32"); or a name:
 *
 *     ddp    1|1|1       zero1   1|1|all       zero2   1|all|all       zero3   all|all|all
 *     mics:N N|N|N       hpz     node|all|all  hybrid:N N|N|all
 *
 * BAD_INPUT "partition: …" for anything else, and for a triple that is not legal on the mesh, with the rule. */
enum status partition_parse(const char *text, const struct mesh *mesh, struct partition *out);
/* "8x1|8x1|8x4". Returns `text`. */
const char *partition_print(const struct partition *partition, const struct mesh *mesh, char text[PARTITION_BYTES]);
/* BAD_INPUT "plan: policy.partition: …" with the rule. */
enum status partition_check(const struct partition *partition, const struct mesh *mesh);

/* All legal triples of a mesh, from 1|1|1 to all|all|all: by the optimizer's width, then the parameters', then the
 * gradients'. The caller frees with mem_free. */
enum status partition_list(const struct mesh *mesh, struct partition **out, int *count);
