/* The state of a search: untried proposals by expected time, the results of tried ones, and estimates learned from
 * them. Private to the search. */
#pragma once

#include "search/space.h"

/* ---- untried proposals ---- */

enum proposal_kind {
    PROPOSAL_PLACEMENT,    /* a placement, bounded as a whole */
    PROPOSAL_POLICY_CLASS, /* a policy class, bounded as a whole by closed forms */
    PROPOSAL_FULLEST,      /* a policy class whose fullest candidate was bounded */
    PROPOSAL_CANDIDATE,
};

struct proposal {
    double key;      /* expected seconds; the queue pops the minimum */
    double bound;    /* lower bound on the seconds of its programs */
    int64_t learned; /* number of compiled programs when `key` was computed */
    int64_t number;
    int32_t policy_class; /* PROPOSAL_PLACEMENT: the placement */
    enum proposal_kind kind;
    struct candidate candidate; /* the policy class's fullest; PROPOSAL_CANDIDATE: the candidate itself */
    bool device_bounded;        /* the candidate's device bytes are bounded */
};

/* The minimum key first, then by arrival. */
struct queue {
    VEC(struct proposal) heap;
    int64_t arrived;
};

enum status queue_push(struct queue *queue, struct proposal proposal);
/* Pops the minimum; false if there is none. */
bool queue_pop(struct queue *queue, struct proposal *out);
void queue_free(struct queue *queue);

/* ---- estimates for untried programs, learned from compiled ones ----
 *
 * Expected time = bound + exposed share x (serial time - bound). The bound assumes that streams overlap wherever they
 * can; in the serial time nothing overlaps. The share is learned per kind of policy class, and so is the factor by
 * which programs exceed their bounds of bytes. Only bounds end a search; expected times determine its order. */

/* By how much programs exceeded their bounds of bytes, at least. */
struct excess {
    bool learned;
    int64_t bytes[TIER_COUNT];
};

/* Minimum excess of the programs of a kind of policy class. A kind has the same kind of schedule, the same kinds of
 * moved states and the same lookahead. */
struct kind_estimate {
    bool sized, timed;    /* which of the two were learned */
    double bytes_factor;  /* the device's bytes, relative to the likely bytes of the bound */
    double exposed_share; /* fraction of the time that the bound assumes overlapped */
};
enum {
    TIER_PLACEMENTS = TIER_COUNT * TIER_COUNT * TIER_COUNT * TIER_COUNT,
    KINDS = SCHEDULE_KINDS * TIER_COUNT * COPY_WAYS * SPACE_FITS
};

struct estimates {
    VEC(struct excess) excesses; /* by policy class */
    struct kind_estimate kinds[KINDS];
    struct kind_estimate placed[2 * SPACE_FITS]; /* the same by tier placement, and by whether parameters are
                                                  * gathered */
    /* Excess on the tiers below the device, by copies and tier placement: space for staging copies. It depends more on
     * the states' tiers and the lookahead than on the schedule. */
    struct excess lower[COPY_WAYS * TIER_PLACEMENTS];
    double margin; /* factor on expected device bytes */
};

/* ---- the search ---- */

/* The fastest program so far. */
struct best_program {
    int32_t policy_class; /* -1: none fits yet */
    struct policy_seconds bound;
    double seconds;      /* INFINITY: none fits yet */
    double bytes_factor; /* the device's bytes, relative to the likely bytes of its bound */
    struct policy policy;
};

struct search {
    const struct search_input *input;
    struct space space;
    struct queue resident; /* policy classes that move nothing; their programs are close to their bounds */
    struct queue moving;   /* all others */
    struct queue doubtful; /* proposals that are expected not to fit */
    struct estimates estimates;
    bool *scouted; /* by sharding option: whether one of its programs was compiled */
    struct search_result *result;
    struct policy_class_numbers policy_classes; /* of result->tried */
    struct best_program best;
    bool refines;         /* some programs are reserved for refinement near the best policy */
    int64_t enough_bytes; /* of the device: a policy that needs no more ends search_min_memory */
    struct trial min;     /* minimum on the device, over compiled programs that fit the lower tiers */
};

static inline const struct policy_class *search_class(const struct search *search, int32_t index) {
    return &search->space.policy_classes.items[index];
}
static inline int search_stages(const struct search *search) {
    return rank_place_pipeline_parallel(&search->input->place);
}

/* A candidate with `key` expected seconds. */
struct proposal search_propose(const struct search *search, int32_t policy_class, const struct candidate *candidate,
                               double key);
/* Whether a candidate with such a bound cannot be faster than the time to beat. */
bool search_cannot_win(const struct search *search, double bound);
/* Bounds a candidate's device bytes, unless they are bounded already. */
void search_bound_device(struct search *search, struct proposal *proposal);
/* Compiles a candidate, which may become the best. */
enum status search_compile(struct search *search, const struct proposal *proposal);

/* A trial's objective, to be minimized. From the simulation if there was one, otherwise a lower bound. A pipeline's
 * longest stage takes at least its part of the whole model's time. */
double outcome_seconds(const struct search_input *input, const struct trial *trial);
double outcome_min_s(const struct search_input *input, const struct policy_seconds *seconds);
/* Fills result->pareto_front and result->runners_up from result->tried. */
enum status outcomes_rank(const struct search *search);
/* Fills result->partitions, if there are several. */
enum status outcomes_note_partitions(const struct search *search);

/* Extends the estimates to newly listed policy classes. FAILED without memory. */
enum status estimates_follow(struct search *search);
/* Expected waiting time of pipeline stages, relative to their work. While a pipeline fills and drains (1F1B), it waits
 * for the waves of all other stages. `micro_batches` of a wave. */
double estimates_wait_part(const struct search *search, int64_t micro_batches);
/* Expected seconds if this share of the overlapped time is exposed. */
double estimates_exposed_s(const struct search *search, const struct policy_seconds *seconds, double share);
/* Expected seconds of a placement whose policy classes are not listed; of a policy class; of a candidate with such
 * bounds. */
double estimates_placement_s(const struct search *search, const struct placement *placement);
double estimates_policy_class_s(const struct search *search, int32_t policy_class,
                                const struct policy_seconds *seconds);
/* Whether a candidate is expected not to fit any tier, or a tier below the device. Its bytes are bounded. */
bool estimates_doubt(const struct search *search, const struct proposal *proposal);
bool estimates_doubt_below(const struct search *search, const struct proposal *proposal);
/* Learns from a program that was compiled, and simulated if it fits. */
void estimates_learn(struct search *search, const struct proposal *proposal, const struct trial *trial);

/* Spends a search's last programs on policies near the best one found (refine.c).
 *
 * The search orders policies by coarse estimates for their kind. Programs of one kind expose different shares of the
 * overlap that their bounds assume. Policies near the best are assumed to expose the same share as the best.
 *
 * If there are few chunks, chunks of half and a quarter of the usual size are tried. They keep more of the states on
 * the device. Their gain depends on tier placement and lookahead, up to a third without prefetching. So each such
 * kind's best policy is tried with them first. Does nothing if no program fits yet. */
enum status refine(struct search *search);
