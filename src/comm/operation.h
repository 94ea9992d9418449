/* An operation on its way: its schedule, its requests, and how far it is. For this module alone. */
#pragma once

#include "collective/comm_schedule.h"
#include "collective/lane_sum.h"
#include "comm/mpi_comm.h"

enum operation_state { OPERATION_IDLE, OPERATION_STARTED, OPERATION_FAILED };

/* What each rank of the group tells the others when an operation is created. */
struct operation_offer {
    bool good; /* could make its part */
    /* What must be the same for all. */
    int kind, root;
    bool in_place, round_bf16, round_sum, flat;
    int64_t bytes, block_bytes;
    uint64_t owners; /* hash */
    /* Its own. */
    int slot;
    uint64_t met;       /* what its counter of meetings stands at: from there it goes on */
    int shared_segment; /* in_place: where its data is */
    int64_t offset;
};

struct operation {
    struct comm_operation base;
    struct comm_spec spec; /* tree, empty and owner are gone */
    struct comm_schedule schedule;
    int me, slot;
    struct operation_offer *offers; /* by position, as the following */
    char **peer_data;               /* in_place: where ranks of the node have theirs; else NULL */
    atomic_ullong **peer_meeting;   /* their counters */
    struct lane_values *lanes;      /* for sums: what each has, from where the step begins */
    int *message_request;
    int *transfer_request; /* 0 bytes from receiver to sender: go on */
    bool requests_made;

    _Atomic(enum operation_state) state;
    uint64_t generation;          /* starts */
    size_t at;                    /* the step to take next */
    int64_t started_ns, moved_ns; /* the last time that a step was taken */
    struct operation *next;       /* in the queue, then among the active */
};

enum status operation_create(struct comm *comm, const struct comm_spec *spec, struct comm_operation **out);
void operation_free(struct comm_operation *operation);

/* For the thread: takes steps until one has to wait. Whether any was taken. Over when at == steps. */
bool operation_advance(struct operation *operation);
