/* Chunks: groups of parameters side by side in memory, the unit in which model states are copied and updated.
 *
 * Parameters are packed in the order in which forward first uses them (ProTrain, arXiv 2406.08334, section 3.1), so
 * that the chunks of a wave are visited in ascending order. Those of one block stay together where they fit. A chunk
 * holds only parameters that are trained, only frozen ones, or only frozen ones in fewer bits. A shared parameter stays
 * at its first use.
 *
 * WHOLE UPDATES. Parameters whose update needs all of their elements at once (tensor.updated_whole) have chunks of
 * their own. Where a partition cuts the optimizer's states, chunks_deal gives each of their shards whole parameters. */
#pragma once

#include "base/base.h"
#include "collective/collective.h"
#include "ir/graph.h"
#include "plan/plan.h"
#include "plan/ranks.h"

/* Shards of a chunk: the elements that each rank has under a partition. A rank is here a place among the data ranks.
 *
 * ELEMENTS. A chunk's tensors of one kind lie side by side, each at a multiple of SHARD_BLOCK elements, at the same
 * element offsets for parameters, gradients and each of the optimizer's states. So a range of elements is a range of
 * all of them, and a block of a squared norm (GRADIENT_NORM_BLOCK) lies in one shard. The last shards may be shorter or
 * empty.
 *
 * PIECES. With D ranks a chunk is cut into D pieces of equal numbers of blocks, one for each rank, and a shard of width
 * w is D / w consecutive pieces. Pieces are dealt so that a rank's shards lie in each other: the optimizer's in the
 * gradients', and that in the parameters'. With widths p, g, o and a rank r that is piece = (((r mod p) (g/p) + r/p mod
 * g/p) (o/g) + r/g mod o/g) (D/o) + r/o so the ranks of a group do not always have their shards in the order of ranks;
 * see shard_owners. */

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
/* owners[i] is the position in that group of the rank with the i-th fine shard. There are fine / coarse fine shards. */
void shard_owners(const struct partition *partition, int ranks, int rank, int coarse, int fine, int *owners);

struct chunk {
    int32_t first, count; /* its parameters in the list's order */
    int64_t bytes;        /* of the parameters, as they are stored */
    int64_t elements;     /* each parameter's rounded up to SHARD_BLOCK (plan/chunks.h) */
    int block;            /* the first block that uses it */
    bool trained;
    bool whole; /* its parameters are updated whole */
};

struct chunk_list {
    VEC(const struct tensor *) parameters; /* chunk by chunk */
    VEC(struct chunk) chunks;              /* in the order of their first use */
    size_t tensors;                        /* of the graph, and one: entries of the two arrays below */
    int32_t *chunk_of;                     /* by tensor id; -1 for tensors that are not parameters */
    int64_t *first_element;                /* by id of a parameter: where it lies among its chunk's elements */
    bool within_blocks;                    /* no chunk has parameters of two blocks */
};

/* Packs the graph's parameters into chunks of at most `chunk_bytes`; a larger parameter is a chunk by itself. The
 * caller frees, also after a failure. */
enum status chunks_pack(const struct graph *graph, int64_t chunk_bytes, struct chunk_list *out);
/* Makes the chunks of a policy, of the policy's chunk size. If that is 0, chunks_choose_bytes takes the size. If the
 * partition cuts chunks into shards, each chunk is within a block, so that its gradients are complete at one time. */
enum status chunks_of_policy(const struct graph *graph, const struct policy *policy, struct chunk_list *out);
/* Deals the parameters of chunks that are updated whole to the shards of optimizer states, the largest first, each to
 * the shard that has least: shards are as long as the fullest, and none cuts a parameter. Once for a list; nothing
 * where no state is cut. `ranks` as in struct shard_cut. */
enum status chunks_deal(struct chunk_list *chunks, const struct partition *partition, int ranks);
/* The list with places of its own, for chunks_deal; all else is shared. The caller frees with chunks_free_places. */
enum status chunks_copy_places(const struct chunk_list *chunks, struct chunk_list *out);
void chunks_free_places(struct chunk_list *copy);
void chunks_free(struct chunk_list *chunks);

/* The chunk whose parameter an update's node writes; -1: none. */
int32_t chunks_updated_by(const struct chunk_list *chunks, const struct node *node);
/* A contiguous part of a chunk's tensors of one kind. The gradients of each block are a part of their own, so that they
 * can leave after that block's backward. Chunks within a block have one part. */
struct chunk_part {
    int32_t chunk;
    int32_t block; /* gradients, of chunks that span blocks; else 0 */
};
/* The part that a parameter, its gradient or its state belongs to. */
struct chunk_part chunks_part_of(const struct chunk_list *chunks, const struct tensor *tensor);

/* The size that costs least memory, of all up to 256 MiB that hold a whole number of the largest layer. The cost: the
 * bytes that chunks leave unused, and two chunks on the device at a time. */
enum status chunks_choose_bytes(const struct graph *graph, int64_t *out);
