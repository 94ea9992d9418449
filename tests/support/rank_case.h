/* Small training runs that have the same bits on any number of ranks. */
#pragma once

#include <stdbool.h>

#include "backend/backend.h"
#include "comm/comm.h"
#include "plan/plan.h"
#include "support/mpi_job.h"

enum { RANK_CASE_STEPS = 10, RANK_CASE_NAME_BYTES = 200 };

/* What a run is drawn from: a value of each axis. Pairs of values are what `make check` covers. */
#define RANK_CASE_AXES(X)                                                                                              \
    X(subject)   /* family, and dtype, adapters or frozen layers: of policy_subjects */                                \
    X(lanes)     /* 8, 2x4, 3 */                                                                                       \
    X(batch)     /* full micro-batches, a short last one, fewer micro-batches than lanes */                            \
    X(round)     /* all micro-batches of a lane, 1, 2 */                                                               \
    X(reduce)    /* gradients are added in fp32, or rounded to bf16 before */                                          \
    X(clip)      /* at work, or off */                                                                                 \
    X(tiers)     /* of all states: the device, the host, the disk; or drawn each for itself */                         \
    X(schedule)  /* activations are kept, computed again, moved; or drawn */                                           \
    X(partition) /* none, those with names, others; every other seed by flat operations */                             \
    X(job)       /* how many ranks on how many nodes, by shared segments or messages */                                \
    X(mpi)       /* Open MPI, MPICH */                                                                                 \
    X(stages)    /* of a pipeline: 1, 2, 4; of two seeds in four interleaved */
enum rank_axis {
#define RANK_CASE_AXIS(name) RANK_AXIS_##name,
    RANK_CASE_AXES(RANK_CASE_AXIS)
#undef RANK_CASE_AXIS
        RANK_AXES
};

struct rank_case {
    int value[RANK_AXES];
    uint64_t seed; /* of random policies */
    bool brief;    /* two blocks, two steps of a micro-batch a lane or fewer: where an emulator runs the kernels */
};

/* By axis. */
int rank_axis_values(enum rank_axis axis);
/* The same for the same seed and number. Its job is one of those that hold its lanes. */
struct rank_case rank_case_random(uint64_t seed, uint64_t number);
/* Whether so many ranks can have the case's stages, and their data ranks hold its lanes; whether its own job's can. */
bool rank_case_holds(const struct rank_case *spec, int ranks);
bool rank_case_is_legal(const struct rank_case *spec);
/* The case's job, without arguments. */
struct rank_job rank_case_job(const struct rank_case *spec);
/* The value of the axis for an MPI, as mpi_job_name has it. */
int rank_case_mpi_value(const char *mpi);
void rank_case_print(const struct rank_case *spec, char name[RANK_CASE_NAME_BYTES]);

struct rank_result {
    double losses[RANK_CASE_STEPS], norms[RANK_CASE_STEPS];
    uint64_t weights; /* parameters and optimizer states */
    bool on_device;   /* what ranks communicated was in the memory of their devices */
};

/* Trains with the backend (NULL: the CPU's); comm NULL: on one rank. Checks the bytes that were moved against the
 * program's list of operations and, where every rank has something to add, against the formula of collective.h. FAILED
 * where they differ. */
enum status rank_case_train(const struct rank_case *spec, const struct backend *backend, struct comm *comm,
                            struct rank_result *out);
