/* Collectives on data that each rank can compute for all ranks, and their expected results from a plain tree in one
 * process, written independently of the product. Threads and MPI use the same checks. */
#pragma once

#include "backend/backend.h"
#include "comm/comm.h"

/* One operation, drawn from a seed: kind, group, size, blocks and their owners, flat or not, lanes, empty ones,
 * rounding, in place or by messages. Created,
 * executed `times` times on other data each time, compared to the bit, its traffic with the formula; freed. Collective
 * over all ranks. FAILED, with seed and place, where anything differs. */
enum status comm_check_random(struct comm *comm, uint64_t seed, int times);
/* The same on the memory of devices, which comm_device_open has connected. */
enum status comm_check_on_device(struct comm *comm, const struct backend *device, uint64_t seed, int times);
/* `count` of them created, and then started together in an order of each rank's own. */
enum status comm_check_together(struct comm *comm, uint64_t seed, int count);
/* Lanes 8, 2x4 and 3, fp32 and bf16 on the edges, all lanes or some empty: all-reduce and reduce-scatter by all ranks
 * that hold the lanes, equal to the bit to one rank that adds the same lanes. */
enum status comm_check_lanes(struct comm *comm, uint64_t seed);

/* Each legal partition of the mesh's, `of_each` times: a drawn operation on the shards of a chunk, of all groups at
 * once.
 */
enum status comm_check_partitions(struct comm *comm, uint64_t seed, int of_each);
