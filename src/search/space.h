/* The space of policies that a search chooses from, as policy classes of candidates (see search/search.h). */
#pragma once

#include "search/policy_bound.h"
#include "search/schedule_cost.h"
#include "search/search.h"

/* The tiers of chunks that do not stay on the device, and of their updates. */
struct tier_placement {
    enum tier parameters, gradients, optimizer, update;
};

enum { TIER_PLACEMENTS_MAX = 2 * TIER_COUNT * TIER_COUNT * TIER_COUNT };
struct tier_placement_list {
    int count;
    struct tier_placement items[TIER_PLACEMENTS_MAX];
};

enum {
    COPY_WAYS = 3,        /* lookaheads, and lookahead only for updates (policy_class_copy_way) */
    LOOKAHEADS = 2,       /* 0 and 1 */
    PACKINGS_LISTED = 2,  /* chunk sizes: the least wasteful, and twice that; */
    PACKINGS_MAX = 4,     /* and also half and a quarter of it (refine.c) */
    BUFFERS_MORE_MAX = 4, /* buffers beyond the minimum */
    SPACE_FITS = 16,      /* which states are off the device (3 bits), and whether the update is */
};

/* The device's bytes, shared by policy classes that differ only in lower tiers. */
struct fit {
    int64_t max_persistent;         /* chunks that may stay, by a closed form; -1: no candidate fits */
    int64_t fullest, fullest_bytes; /* chunks that stay, and device bytes, of the fullest candidate */
    bool listed, fullest_known;     /* whether max_persistent, and the others, are known */
};

/* A partition to choose from: its model states and collective times, by chunk size. */
struct sharding_option {
    struct partition partition;
    bool early; /* updates follow their gradients */
    struct chunk_sum *from[PACKINGS_MAX];
    struct collective_seconds collective_seconds[PACKINGS_MAX][2]; /* hierarchical, flat */
};

/* Policy classes of one sharding option, one kind of collectives and one tier placement. */
struct placement {
    int32_t sharding_option;
    bool flat;
    struct tier_placement at;
    bool may_fit;              /* on the device, by a closed form */
    struct policy_seconds min; /* lower bound on the programs of all its policy classes */
};

struct policy_class {
    int32_t schedule, packing, fit, sharding_option;
    bool flat;
    int64_t micro_batches_per_wave, lookahead;
    int64_t update_ahead; /* 1 only near another policy class (refine.c) … */
    bool has_ahead;       /* … which then has this */
    struct tier_placement at;
    struct policy_seconds min; /* lower bound on the programs of all its candidates */
};

struct candidate {
    int64_t persistent, buffers;
    struct policy_bound bound;
};

enum { CANDIDATES_MAX = 160 }; /* of a policy class */
struct candidate_list {
    int count;
    struct candidate items[CANDIDATES_MAX];
};

struct space {
    const struct search_input *input;
    /* Bounds are for the whole model. A pipeline's largest stage takes at least its part of their sum, so bounds are
     * compared with the capacities of all stages together. */
    int64_t capacity_bytes[TIER_COUNT];
    struct step_cut cut;
    int64_t micro_batches; /* of the largest share */
    struct schedule_list schedules;
    struct schedule_cost
        *schedule_costs; /* by schedule * LOOKAHEADS + lookahead; schedules that move nothing have only lookahead 0 */
    struct execution_source source;
    struct policy plain; /* the policy of `source` */
    /* Chunks span blocks or not, as a partition requires. */
    struct packings {
        struct states states[PACKINGS_MAX];
        int32_t listed, count; /* of all listed policy classes, and including those near one; 0: no sharding option
                                * needs them */
    } packings[2];
    VEC(struct sharding_option) sharding_options;
    VEC(struct placement) placements;
    VEC(struct policy_class) policy_classes; /* of all placements that were listed */
    size_t coarse_policy_classes;            /* without those that space_list_near added; 0: it was not called */
    VEC(struct fit) fits;
    int32_t *first_fits;         /* by schedule, of the placement being listed */
    struct wave_activations min; /* over all schedules, with one micro-batch per wave */
    int64_t fixed_bytes;
    int64_t *scratch; /* for the schedule with the most groups */
    size_t scratch_count;
    struct policy policy; /* the policy being bounded; its schedule text is not used */
};

/* Whether all placements are listed at once, because there is only one sharding option. */
bool space_is_listed(const struct space *space);
/* Adds a placement's policy classes. */
enum status space_list_placement(struct space *space, int32_t placement);

/* The caller frees, also after a failure. */
enum status space_create(const struct search_input *input, struct space *out);
void space_free(struct space *space);

/* The fullest candidate, with as many chunks as the bounds allow: probably the fastest. False if no candidate fits. */
bool space_fullest(struct space *space, const struct policy_class *policy_class, struct candidate *out);
/* Whether no candidate fits, by the closed form alone. */
bool space_is_hopeless(const struct space *space, const struct policy_class *policy_class);
/* Whether all candidates certainly have too many collectives. */
bool space_is_crowded(const struct space *space, const struct policy_class *policy_class);
/* Lists all candidates whose tiers may all fit. Their device bytes are not bounded yet (device_bounded): that needs a
 * walk through the wave, and few candidates are examined. */
void space_candidates(struct space *space, const struct policy_class *policy_class, struct candidate_list *out);
void space_bound_device(struct space *space, const struct policy_class *policy_class, struct candidate *candidate);
/* The candidate with the minimum device memory: no chunk stays. */
struct candidate space_min_memory(struct space *space, const struct policy_class *policy_class);
bool space_may_fit(const struct space *space, const struct policy_bound *bound, enum tier from);
/* From 0 to SPACE_FITS - 1. */
int32_t space_fit_number(const struct tier_placement *at);
/* Index below COPY_WAYS: the lookahead, or LOOKAHEADS if only updates are ahead. */
int32_t policy_class_copy_way(const struct policy_class *policy_class);
bool policy_class_moves_states(const struct policy_class *policy_class);
/* Whether its partition cuts parameters. */
bool space_gathers(const struct space *space, const struct policy_class *policy_class);
/* The policy of a candidate, for the compiler. */
void space_policy(const struct space *space, const struct policy_class *policy_class, const struct candidate *candidate,
                  struct policy *out);
const struct schedule *space_schedule(const struct space *space, const struct policy_class *policy_class);

struct policy_class_numbers {
    VEC(int32_t) list;
};
/* Lists policy classes that differ from one in at most one choice (schedule, micro-batches per wave, lookahead, a
 * tier), with chunks of any size. If there are few chunks, adds policy classes with smaller ones. */
enum status space_list_near(struct space *space, int32_t policy_class, struct policy_class_numbers *out);

/* For refine.c. Returns the chunk sizes of a partition's kind. Returns the cost of one micro-batch under a schedule.
 * Adds a policy class whose fit exists. Measures the costs of chunks of size `k` in a sharding option. FAILED without
 * memory. */
struct packings *space_packings_for(struct space *space, const struct partition *partition);
struct schedule_cost *space_schedule_cost(const struct space *space, int32_t schedule, int64_t lookahead);
enum status space_add_policy_class(struct space *space, struct policy_class policy_class,
                                   const struct wave_activations *activations);
enum status space_divide_packing(const struct space *space, const struct states *packed, int32_t k,
                                 struct sharding_option *sharding_option);
