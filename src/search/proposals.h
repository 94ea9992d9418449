/* The state of a search: what it has not tried yet, by expected time; what came of what it tried, and what that teaches
 * of the rest. Private to the search. */
#pragma once

#include "search/space.h"

/* ---- what is not tried yet ---- */

enum proposal_kind {
    PROPOSAL_PLACEMENT,    /* a placement, bounded as a whole */
    PROPOSAL_POLICY_CLASS, /* a policy class, bounded as a whole by closed forms */
    PROPOSAL_FULLEST,      /* a policy class whose fullest candidate was bounded */
    PROPOSAL_CANDIDATE,
};

struct proposal {
    double key;      /* expected seconds; least first */
    double bound;    /* seconds that no program of it goes below */
    int64_t learned; /* programs that had been compiled when `key` was found */
    int64_t number;
    int32_t policy_class; /* PROPOSAL_PLACEMENT: the placement */
    enum proposal_kind kind;
    struct candidate candidate; /* the policy class's fullest; of PROPOSAL_CANDIDATE: this */
    bool device_bounded;        /* the candidate's device bytes are known */
};

/* The least key first, then by arrival. */
struct queue {
    VEC(struct proposal) heap;
    int64_t arrived;
};

enum status queue_push(struct queue *queue, struct proposal proposal);
/* The least; false when there is none. */
bool queue_pop(struct queue *queue, struct proposal *out);
void queue_free(struct queue *queue);

/* ---- what the programs that were compiled teach of those that were not ----
 *
 * Expected time = bound + exposed share x (serial time - bound), where the bound assumes that streams hide each other
 * wherever they can, and in the serial time nothing is hidden. The share is learned by kind of policy class, and so is
 * by how much programs exceed their bounds of bytes. Only bounds end a search; expected times decide its order. */

/* By how much programs exceeded their bounds of bytes, at least. */
struct excess {
    bool learned;
    int64_t bytes[TIER_COUNT];
};

/* What the programs of a kind of policy class took, at least. A kind: the same kind of schedule, the same kinds of
 * states elsewhere, the same lookahead. */
struct kind_estimate {
    bool sized, timed;    /* which of the two were learned */
    double bytes_factor;  /* the device's bytes, over the likely bytes of the bound */
    double exposed_share; /* of the time that the bound assumes hidden */
};
enum {
    TIER_PLACEMENTS = TIER_COUNT * TIER_COUNT * TIER_COUNT * TIER_COUNT,
    KINDS = SCHEDULE_KINDS * TIER_COUNT * COPY_WAYS * SPACE_FITS
};

struct estimates {
    VEC(struct excess) excesses; /* by policy class */
    struct kind_estimate kinds[KINDS];
    struct kind_estimate placed[2 * SPACE_FITS]; /* the same by tier placement, and whether parameters are gathered */
    /* Of the tiers below the device, by copies and tier placement: space for copies in passing, which depends on where
     * the states are and on the lookahead more than on the schedule. */
    struct excess lower[COPY_WAYS * TIER_PLACEMENTS];
    double margin; /* expected device bytes are multiplied by it */
};

/* ---- the search ---- */

/* The fastest program so far. */
struct best_program {
    int32_t policy_class; /* -1: none fits yet */
    struct policy_seconds bound;
    double seconds;      /* INFINITY: none fits yet */
    double bytes_factor; /* the device's bytes, over the likely ones of its bound */
    struct policy policy;
};

struct search {
    const struct search_input *input;
    struct space space;
    struct queue resident; /* policy classes that move nothing, whose programs come close to their bounds */
    struct queue moving;   /* all others */
    struct queue doubtful; /* what is expected not to fit */
    struct estimates estimates;
    bool *scouted; /* by sharding option: one of its programs was compiled */
    struct search_result *result;
    struct policy_class_numbers policy_classes; /* of result->tried */
    struct best_program best;
    bool refines;         /* so that not all programs are for the order of what is expected */
    int64_t enough_bytes; /* of the device: a policy that needs no more ends search_min_memory */
    struct trial min;     /* needs least of the device, of those compiled that fit the tiers below it */
};

static inline const struct policy_class *search_class(const struct search *search, int32_t index) {
    return &search->space.policy_classes.items[index];
}
static inline int search_stages(const struct search *search) {
    return rank_place_pipeline_parallel(&search->input->place);
}

/* A candidate that is expected to take `key` seconds. */
struct proposal search_propose(const struct search *search, int32_t policy_class, const struct candidate *candidate,
                               double key);
/* Whether what has such a bound is no faster than what has to be beaten. */
bool search_cannot_win(const struct search *search, double bound);
/* Bounds a candidate's bytes of the device, where that was not done. */
void search_bound_device(struct search *search, struct proposal *proposal);
/* Compiles a candidate, which may change the best. */
enum status search_compile(struct search *search, const struct proposal *proposal);

/* The fewer, the better. Of what was simulated; and at least, by its bound: of a pipeline the longest stage takes at
 * least its part of the whole model's. */
double outcome_seconds(const struct search_input *input, const struct trial *trial);
double outcome_min_s(const struct search_input *input, const struct policy_seconds *seconds);
/* Fills result->pareto_front and result->runners_up, by result->tried. */
enum status outcomes_rank(const struct search *search);
/* Fills result->partitions, where there are several. */
enum status outcomes_note_partitions(const struct search *search);

/* Space for what is learned of policy classes that were listed since. FAILED without memory. */
enum status estimates_follow(struct search *search);
/* What the stages of a pipeline are expected to wait besides their work, as a part of it: while it fills and drains
 * (1F1B), as long as the waves of all other stages take. `micro_batches` of a wave. */
double estimates_wait_part(const struct search *search, int64_t micro_batches);
/* Expected seconds where such a share of the time is exposed that the bound assumes hidden. */
double estimates_exposed_s(const struct search *search, const struct policy_seconds *seconds, double share);
/* Expected seconds of a placement, whose policy classes are not listed; and of a policy class, or of a candidate with
 * such bounds. */
double estimates_placement_s(const struct search *search, const struct placement *placement);
double estimates_policy_class_s(const struct search *search, int32_t policy_class,
                                const struct policy_seconds *seconds);
/* Whether a candidate is expected not to fit: any tier, or one below the device. Its bytes are bounded. */
bool estimates_doubt(const struct search *search, const struct proposal *proposal);
bool estimates_doubt_below(const struct search *search, const struct proposal *proposal);
/* A program was compiled, and simulated where it fits. */
void estimates_learn(struct search *search, const struct proposal *proposal, const struct trial *trial);

/* What a search does with its last programs (refine.c): looks at the policies near the best one found.
 *
 * The search before orders policies by what is expected of their kind, which is little knowledge: programs of one kind
 * expose different shares of what their bounds assume hidden. Those near the best policy are taken to expose as much as
 * it does. Besides them are chunks of a half and a quarter of the usual size, where these are few: there more of the
 * states stay on the device by parts of a layer. What these gain is another part for each tier placement and lookahead,
 * up to a third where nothing is fetched ahead: so the best policy of each such kind is tried with them first. Nothing
 * where none fits yet. */
enum status refine(struct search *search);
