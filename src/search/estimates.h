/* What the programs that were compiled teach of those that were not.
 *
 * Expected time = bound + exposed share x (serial time - bound), where the bound assumes that streams hide each other
 * wherever they can, and in the serial time nothing is hidden. The share is learned by kind of policy class, and so is
 * by how much programs exceed their bounds of bytes. Only bounds end a search; expected times decide its order. */
#ifndef BALLAST_SEARCH_ESTIMATES_H
#define BALLAST_SEARCH_ESTIMATES_H

#include "search/space.h"

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
    const struct search_input *input;
    const struct space *space;
    VEC(struct excess) excesses; /* by policy class */
    struct kind_estimate kinds[KINDS];
    struct kind_estimate placed[2 * SPACE_FITS]; /* the same by tier placement, and whether parameters are gathered */
    /* Of the tiers below the device, by copies and tier placement: space for copies in passing, which depends on where
     * the states are and on the lookahead more than on the schedule. */
    struct excess lower[COPY_WAYS * TIER_PLACEMENTS];
    double margin; /* expected device bytes are multiplied by it */
};

/* Of input and space, which outlive it; nothing is learned yet. The caller frees. */
struct estimates estimates_of(const struct search_input *input, const struct space *space);
void estimates_free(struct estimates *estimates);
/* Space for what is learned of policy classes that were listed since. FAILED without memory. */
enum status estimates_follow(struct estimates *estimates);

/* What the stages of a pipeline are expected to wait besides their work, as a part of it: while it fills and drains
 * (1F1B), as long as the waves of all other stages take. `micro_batches` of a wave. */
double estimates_wait_part(const struct estimates *estimates, int64_t micro_batches);
/* Expected seconds of a placement, whose policy classes are not listed; and of a policy class, or of a candidate with
 * such bounds. */
double estimates_placement_s(const struct estimates *estimates, const struct placement *placement);
double estimates_policy_class_s(const struct estimates *estimates, int32_t policy_class,
                                const struct policy_seconds *seconds);

/* Whether a candidate is expected not to fit: any tier, or one below the device. Its bytes are bounded. */
bool estimates_doubt(const struct estimates *estimates, int32_t policy_class, const struct policy_bound *bound);
bool estimates_doubt_below(const struct estimates *estimates, int32_t policy_class, const struct policy_bound *bound);
/* Whether a program of the policy class was compiled. */
bool estimates_know(const struct estimates *estimates, int32_t policy_class);

/* `trial` was compiled, and simulated where it fits; `any` fits: itself or another. */
void estimates_learn(struct estimates *estimates, int32_t policy_class, const struct policy_bound *bound,
                     const struct trial *trial, bool any);

#endif
