/* Model states chunk by chunk: bytes, seconds of updates, and which blocks use them. */
#ifndef BALLAST_SEARCH_STATES_H
#define BALLAST_SEARCH_STATES_H

#include "plan/chunks.h"
#include "search/sim/costs.h"

/* Sums over the chunks from one on to the last. Under a partition parameters and optimizer states are this rank's
 * shards; gradients are whole, and `shards` is what a rank keeps of their sums. `again` are the parameters that
 * backward reads, whole. */
struct chunk_sum {
    int64_t parameters, trained, gradients, summed, shards, optimizer; /* bytes; trained: of the parameters; summed: of
                                                                   the gradients; shards: 0 where they are not cut */
    int64_t again;
    int32_t packs, again_packs, trained_packs, gradient_packs, summed_packs, optimizer_packs;
    double update_s[ACTIVITY_COUNT]; /* of kernels on the device, with their issue */
    double host_update_s[ACTIVITY_COUNT];
    double finish_s[ACTIVITY_COUNT]; /* of the sums of squares of gradients, on the device */
};

struct gradient_pack {
    int32_t chunk, block;
    int64_t bytes;
    int64_t summed; /* of them, what lanes and ranks add: not the accumulators of a tied parameter's other uses */
};

/* A kernel that a step has once for a parameter, and that can do its work on some of the elements. */
struct element_kernel {
    int32_t chunk;
    bool updates; /* else it sums a gradient's squares */
    const struct tensor *parameter;
    struct kernel_cost device, host; /* of all elements, without its issue */
};

struct states {
    int64_t chunk_bytes;
    struct chunk_list chunks;
    struct chunk_sum *from; /* by chunk, and one more: 0; of one rank that has all */
    VEC(struct element_kernel) kernels;
    VEC(struct gradient_pack) gradients; /* by chunk */
    /* By phase (forward, backward) * blocks + block: the chunks that its nodes read, ascending; one more at the end. */
    int32_t *users_first, *users;
    int64_t *users_bytes; /* by place in `users`, and one more: parameters of those from it on */
    int32_t *min_buffers; /* by chunk, and one more: how many of those from it on one block uses; at least 1 */
    int64_t *largest;     /* by chunk, and one more: parameters of the largest from it on */
    bool *read_again;     /* by chunk: backward reads it */
    int32_t blocks;
    double once_s[ACTIVITY_COUNT]; /* kernels that run once a step and are of no chunk: clipping */
};

/* With chunks of so many bytes that span blocks or, for partitions that cut, do not (chunks_of_policy). The caller
 * frees, also after a failure. */
enum status states_create(const struct graph *graph, const struct costs *costs, const struct policy *policy,
                          struct states *out);
void states_free(struct states *states);

/* The same states with chunks as the partition deals them (chunks_deal), for states_divide and
 * collective_seconds_measure; the rest is shared. The caller frees with states_free_dealt, also after a failure. */
enum status states_deal(const struct states *states, const struct partition *partition, const struct rank_place *place,
                        struct states *out);
void states_free_dealt(struct states *dealt);

/* states->from as the rank has it under a partition; it has a part of every chunk, as the first one. `issue_s`: of a
 * kernel. The caller frees with mem_free. NULL without memory. */
struct chunk_sum *states_divide(const struct states *states, const struct partition *partition,
                                const struct rank_place *place, double issue_s);

static inline int32_t states_count(const struct states *states) { return (int32_t)states->chunks.chunks.count; }
/* Whole, whatever the partition. */
static inline int64_t states_parameters(const struct states *states, int64_t chunk) {
    return states->from[chunk].parameters - states->from[chunk + 1].parameters;
}
/* The chunk's own numbers, without seconds, of `from`. */
struct chunk_sum chunk_sum_of(const struct chunk_sum *from, int64_t chunk);

#endif
