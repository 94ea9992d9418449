/* Shards of a chunk: who has which of its elements under a partition. A rank is here a place among the data ranks.
 *
 * ELEMENTS. What a chunk has of one kind lies side by side, each tensor at a multiple of SHARD_BLOCK elements, at the
 * same element offsets for parameters, gradients and each of the optimizer's states. So a range of elements is a range
 * of all of them, and a block of a squared norm (GRADIENT_NORM_BLOCK) lies in one shard. The last shards may be shorter
 * or empty.
 *
 * PIECES. With D ranks a chunk is cut into D pieces of equal numbers of blocks, one for each rank, and a shard of width
 * w is D / w consecutive pieces. Pieces are dealt so that a rank's shards lie in each other: the optimizer's in the
 * gradients', and that in the parameters'. With widths p, g, o and a rank r that is piece = (((r mod p) (g/p) + r/p mod
 * g/p) (o/g) + r/g mod o/g) (D/o) + r/o so the ranks of a group do not always have their shards in the order of ranks:
 * shard_owners says who has which. */
#ifndef BALLAST_PLAN_SHARDS_H
#define BALLAST_PLAN_SHARDS_H

#include <stdint.h>

#include "collective/mesh.h"
#include "plan/partition.h"
#include "plan/rank_place.h"

enum { SHARD_BLOCK = 4096 };

static inline int64_t shard_aligned(int64_t elements) {
    return (elements + SHARD_BLOCK - 1) / SHARD_BLOCK * SHARD_BLOCK;
}

/* [begin, end) in elements of a chunk. */
struct shard_range {
    int64_t begin, end;
};

/* A chunk of `elements`, a multiple of SHARD_BLOCK, among `ranks`. */
struct shard_cut {
    struct partition partition;
    int ranks;
    int64_t elements;
};

/* Elements of a piece, and of a shard of this width, but for the last ones. */
int64_t shard_piece_elements(const struct shard_cut *cut);
int64_t shard_elements(const struct shard_cut *cut, int width);

/* The piece of a rank. */
int shard_piece_of(const struct partition *partition, int ranks, int rank);

/* The rank's shard of this width, which is one of the partition's, 1 or `ranks`. */
struct shard_range shard_range_of(const struct shard_cut *cut, int width, int rank);

/* The ranks that together hold the rank's shard of width `coarse` by shards of width `fine`, a multiple of it; both are
 * of the partition, 1 or the number of ranks. With 1 they hold the whole, with equal widths it is the rank alone. */
struct comm_group shard_group(int rank, int coarse, int fine);
/* The same as ranks of the mesh, where data ranks are some of them. */
struct comm_group shard_group_of(const struct rank_place *place, int coarse, int fine);
/* owners[i] is the position in that group of the rank with the i-th of the fine shards, of which there are fine /
 * coarse.
 */
void shard_owners(const struct partition *partition, int ranks, int rank, int coarse, int fine, int *owners);

#endif
