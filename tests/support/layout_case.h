/* Small training runs with tensor parallelism, pipeline stages, sharded states, or combinations. Their losses must
 * be close to one rank's. */
#pragma once

#include "comm/comm.h"
#include "support/pair_cover.h"

enum { LAYOUT_CASE_STEPS = 10, LAYOUT_CASE_NAME_BYTES = 200 };

/* What a run is drawn from. */
#define LAYOUT_CASE_AXES(X)                                                                                            \
    X(family)    /* of the fixtures; experts on whole tensors alone */                                                 \
    X(shape)     /* tensor x stages x data ranks: 2, 4 and 8 in all */                                                 \
    X(layout)    /* Megatron-LM's, with positions cut too, or the solver's by several kinds of rates */                \
    X(partition) /* of states among data ranks: none, and the three levels */                                          \
    X(tiers)     /* of all states: the device, the host, the disk, or drawn each for itself */                         \
    X(schedule)  /* activations are kept, computed again, moved, or drawn */                                           \
    X(spans)     /* of stages: one run of blocks each, or two by turns */                                              \
    X(adapter)   /* all weights are trained, or adapters of all of them, next to full weights, int8 or nf4 */          \
    X(heads)     /* as many as the ranks divide; fewer of keys than ranks; or such that positions are cut instead */   \
    X(messages)  /* ranks read each other's shared segments, or get messages */
enum layout_axis {
#define LAYOUT_CASE_AXIS(name) LAYOUT_AXIS_##name,
    LAYOUT_CASE_AXES(LAYOUT_CASE_AXIS)
#undef LAYOUT_CASE_AXIS
        LAYOUT_AXES
};

struct layout_case {
    int value[PAIR_COVER_AXES]; /* by axis */
    uint64_t seed;              /* of the policy */
};

/* The generator, for this seed. */
struct pair_cover layout_case_cover(uint64_t seed);
int layout_case_ranks(const struct layout_case *spec);
bool layout_case_has_messages(const struct layout_case *spec);
/* Whether one rank comes to the same numbers for both. */
bool layout_case_is_alike(const struct layout_case *a, const struct layout_case *b);
void layout_case_print(const struct layout_case *spec, char name[LAYOUT_CASE_NAME_BYTES]);

struct layout_result {
    double losses[LAYOUT_CASE_STEPS], norms[LAYOUT_CASE_STEPS];
};
/* comm NULL: on one rank, with whole tensors. Ends the test on failures. */
void layout_case_train(const struct layout_case *spec, struct comm *comm, struct layout_result *out);
