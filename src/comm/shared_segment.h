/* Memory that ranks of one node share: a memory file of each rank (memfd), mapped by the others by way of
 * /proc/PID/fd. Such files have no name and no limit but the memory that there is, /dev/shm's size included, and are
 * gone with the last process that has them mapped. */
#pragma once

#include "comm/comm.h"

struct mpi_comm;

struct shared_segment {
    int number;
    int64_t bytes;  /* of this rank's memory */
    int ranks, me;  /* of the node */
    void **base;    /* by place in the node; base[me] is one's own, the others NULL where it is private */
    size_t *mapped; /* the same: whole pages */
    bool shared;
    struct mpi_comm *mpi;
    struct shared_segment *next;
};

/* Together among all ranks. */
enum status shared_segment_open(struct comm *comm, int64_t bytes, struct comm_shared_segment *out);
void shared_segment_close(struct comm_shared_segment *shared_segment);
/* The shared segment whose own memory has [address, address + bytes), or NULL. */
const struct shared_segment *shared_segment_find(const struct mpi_comm *mpi, const void *address, int64_t bytes);
