#include "search/refine.h"

#include <math.h>
#include <string.h>

#include "search/policy_outcomes.h"

/* Smaller chunks are in use for a shorter time and wait less, which bounds do not know: so what is expected to take a
 * little longer than the best is tried too. */
static const double WORTH = 1.02;
/* Of all programs the part that is for policies near one that are expected not to fit. */
enum { DOUBTFUL_PART = 8 };

/* Of the time that the best program's bound assumes hidden. */
static double exposed_share(const struct refinement *refinement) {
    const struct best_program *best = refinement->best;
    double hidden_s = best->bound.serial_s - best->bound.step_s;
    double exposed_s = best->seconds * rank_place_stages(&refinement->input->place) - best->bound.step_s;
    return hidden_s > 0 ? fmax(exposed_s, 0) / hidden_s : 0;
}

static double expected_s(const struct refinement *refinement, const struct policy_seconds *seconds) {
    if (refinement->input->objective == OBJECTIVE_SUM) return outcome_min_s(refinement->input, seconds);
    double all = seconds->step_s + exposed_share(refinement) * (seconds->serial_s - seconds->step_s);
    return all / rank_place_stages(&refinement->input->place);
}

static bool is_worth(const struct refinement *refinement, double seconds) {
    return seconds < refinement->best->seconds * WORTH;
}

static bool may_win(const struct refinement *refinement, double bound_s) {
    return bound_s < refinement->best->seconds * (1 - 1e-9);
}

static enum status propose(const struct refinement *refinement, int32_t f, struct member_list *members,
                           struct queue *out) {
    const struct family *family = &refinement->space->families.items[f];
    if (space_is_hopeless(refinement->space, family) || space_is_crowded(refinement->space, family)) return STATUS_OK;
    if (!may_win(refinement, outcome_min_s(refinement->input, &family->min))) return STATUS_OK;
    TRY(space_members(refinement->space, family, members));
    for (size_t m = 0; m < members->list.count; m++) {
        const struct member *member = &members->list.items[m];
        const struct proposal proposal = {.key = expected_s(refinement, &member->bound.seconds),
                                          .bound = outcome_min_s(refinement->input, &member->bound.seconds),
                                          .family = f,
                                          .stage = PROPOSAL_MEMBER,
                                          .member = *member};
        if (may_win(refinement, proposal.bound) && is_worth(refinement, proposal.key)) TRY(queue_push(out, proposal));
    }
    return STATUS_OK;
}

static bool was_tried(const struct refinement *refinement, const struct proposal *proposal) {
    struct policy policy;
    space_policy(refinement->space, &refinement->space->families.items[proposal->family], &proposal->member, &policy);
    for (size_t i = 0; i < refinement->result->tried.count; i++)
        if (memcmp(&refinement->result->tried.items[i].policy, &policy, sizeof policy) == 0) return true;
    return false;
}

static bool is_left(const struct refinement *refinement) { return refinement->result->compiled < refinement->max; }

/* In their order, until one is faster than the best: others are near to that. What is expected not to fit comes last, a
 * few of those at most. */
static enum status compile_near(const struct refinement *refinement, struct queue *queue, struct queue *doubtful) {
    struct proposal next;
    int32_t around = refinement->best->family;
    int64_t max = refinement->result->compiled + refinement->max / (doubtful ? 1 : DOUBTFUL_PART);
    while (is_left(refinement) && refinement->result->compiled < max && refinement->best->family == around &&
           queue_pop(queue, &next)) {
        if (!may_win(refinement, next.bound) || !is_worth(refinement, next.key) || was_tried(refinement, &next))
            continue;
        space_bound_device(refinement->space, &refinement->space->families.items[next.family], &next.member);
        next.device_bounded = true;
        if (doubtful && refinement->is_doubtful(refinement->payload, &next))
            TRY(queue_push(doubtful, next));
        else
            TRY(refinement->compile(refinement->payload, &next));
    }
    return STATUS_OK;
}

static enum status look_around(const struct refinement *refinement) {
    struct queue queue = {0}, doubtful = {0};
    struct family_numbers near = {0};
    struct member_list members = {0};
    enum status status = space_list_near(refinement->space, refinement->best->family, &near);
    if (status == STATUS_OK) status = refinement->follow(refinement->payload);
    for (size_t i = near.list.count;
         i-- > 0 && status == STATUS_OK;) /* of equal ones those with smaller chunks first */
        status = propose(refinement, near.list.items[i], &members, &queue);
    if (status == STATUS_OK) status = compile_near(refinement, &queue, &doubtful);
    if (status == STATUS_OK) status = compile_near(refinement, &doubtful, NULL);
    vec_free(&members.list);
    vec_free(&near.list);
    queue_free(&queue);
    queue_free(&doubtful);
    return status;
}

/* ---- smaller chunks ---- */

/* How many kinds' best policies are tried with smaller chunks, and by how much they may be behind the best of all. */
enum { KINDS_MAX = 3, KINDS_PART = 2 /* of the programs that are left */ };
static const double KINDS_WITHIN = 1.3;

static const struct family *family_of(const struct refinement *refinement, int32_t index) {
    return &refinement->space->families.items[index];
}

static bool same_kind(const struct family *a, const struct family *b) {
    return memcmp(&a->at, &b->at, sizeof a->at) == 0 && family_copy_way(a) == family_copy_way(b) &&
           a->division == b->division;
}

static double seconds_of(const struct refinement *refinement, size_t tried) {
    const struct candidate *candidate = &refinement->result->tried.items[tried];
    return candidate->step_s > 0 ? outcome_seconds(refinement->input, candidate) : INFINITY;
}

/* The fastest tried that is of none of the kinds of `bests`; -1: none is near the best of all. */
static int find_best_of_other(const struct refinement *refinement, const size_t *bests, int count) {
    int found = -1;
    for (size_t i = 0; i < refinement->result->tried.count; i++) {
        const struct family *family = family_of(refinement, refinement->families->list.items[i]);
        bool other = family_moves_states(family);
        for (int k = 0; k < count; k++)
            other &= !same_kind(family, family_of(refinement, refinement->families->list.items[bests[k]]));
        double min = found < 0 ? refinement->best->seconds * KINDS_WITHIN : seconds_of(refinement, (size_t)found);
        if (other && seconds_of(refinement, i) < min) found = (int)i;
    }
    return found;
}

/* The chunks that a family's partition may have, by `packing`. */
static const struct states *packings_of(const struct refinement *refinement, const struct family *family) {
    const struct division *division = &refinement->space->divisions.items[family->division];
    return space_packings_for(refinement->space, &division->partition)->states;
}

static int64_t chunk_bytes(const struct refinement *refinement, const struct family *family) {
    return packings_of(refinement, family)[family->packing].chunk_bytes;
}

/* Of the families near one the same with the largest chunks that are smaller than `bytes`; -1: none. */
static int32_t find_finer(const struct refinement *refinement, const struct family_numbers *near, int32_t like,
                          int64_t bytes) {
    const struct family *base = family_of(refinement, like);
    int32_t found = -1;
    for (size_t i = 0; i < near->list.count; i++) {
        const struct family *family = family_of(refinement, near->list.items[i]);
        bool same = same_kind(family, base) && family->schedule == base->schedule && family->flat == base->flat &&
                    family->micro_batches_per_wave == base->micro_batches_per_wave;
        int64_t own = chunk_bytes(refinement, family);
        if (same && own < bytes && (found < 0 || own > chunk_bytes(refinement, family_of(refinement, found))))
            found = near->list.items[i];
    }
    return found;
}

/* Whether a member comes before another: more stays; of as much, in more buffers, but no more than `buffers`. */
static bool is_fuller(const struct member *member, const struct member *than, int64_t buffers) {
    if (member->persistent != than->persistent) return member->persistent > than->persistent;
    return member->buffers > than->buffers && member->buffers <= buffers;
}

/* Of a family's members the one of which most stays on the device in chunks and buffers, but no more than under the
 * policy. `any`: there is one. */
static enum status find_alike(const struct refinement *refinement, int32_t f, const struct policy *policy,
                              struct member *out, bool *any) {
    const struct family *family = family_of(refinement, f);
    int64_t bytes = chunk_bytes(refinement, family), stay = policy->persistent_chunks * policy->chunk_bytes / bytes;
    int64_t buffers = policy->buffers * policy->chunk_bytes / bytes;
    struct member_list members = {0};
    enum status status = space_members(refinement->space, family, &members);
    *any = false;
    for (size_t m = 0; m < members.list.count && status == STATUS_OK; m++) {
        const struct member *member = &members.list.items[m];
        if (member->persistent > stay || (*any && !is_fuller(member, out, buffers))) continue;
        *out = *member;
        *any = true;
    }
    vec_free(&members.list);
    return status;
}

static enum status compile_alike(const struct refinement *refinement, int32_t f, const struct member *member) {
    struct proposal proposal = {.key = expected_s(refinement, &member->bound.seconds),
                                .bound = outcome_min_s(refinement->input, &member->bound.seconds),
                                .family = f,
                                .stage = PROPOSAL_MEMBER,
                                .member = *member};
    if (!may_win(refinement, proposal.bound) || was_tried(refinement, &proposal)) return STATUS_OK;
    space_bound_device(refinement->space, family_of(refinement, f), &proposal.member);
    proposal.device_bounded = true;
    if (!space_may_fit(refinement->space, &proposal.member.bound, TIER_DEVICE)) return STATUS_OK;
    return refinement->compile(refinement->payload, &proposal);
}

/* One that was tried, with ever smaller chunks while these gain. */
static enum status try_finer(const struct refinement *refinement, size_t tried, const struct family_numbers *near,
                             int64_t max) {
    struct policy policy = refinement->result->tried.items[tried].policy;
    int32_t like = refinement->families->list.items[tried], finer;
    double min = seconds_of(refinement, tried);
    int64_t bytes = packings_of(refinement, family_of(refinement, like))[0].chunk_bytes; /* the least that is listed */
    struct member member;
    bool any;
    while (refinement->result->compiled < max && (finer = find_finer(refinement, near, like, bytes)) >= 0) {
        size_t before = refinement->result->tried.count;
        TRY(find_alike(refinement, finer, &policy, &member, &any));
        if (any) TRY(compile_alike(refinement, finer, &member));
        bool compiled = refinement->result->tried.count > before;
        if (!any || (compiled && seconds_of(refinement, before) > min)) break;
        if (compiled) min = seconds_of(refinement, before);
        bytes = chunk_bytes(refinement, family_of(refinement, finer));
    }
    return STATUS_OK;
}

static enum status try_kinds(const struct refinement *refinement) {
    size_t bests[KINDS_MAX];
    int64_t compiled = refinement->result->compiled, max = compiled + (refinement->max - compiled) / KINDS_PART;
    enum status status = STATUS_OK;
    for (int k = 0, found; k < KINDS_MAX && status == STATUS_OK; k++) {
        struct family_numbers near = {0};
        if ((found = find_best_of_other(refinement, bests, k)) < 0) break;
        bests[k] = (size_t)found;
        status = space_list_near(refinement->space, refinement->families->list.items[found], &near);
        if (status == STATUS_OK) status = refinement->follow(refinement->payload);
        if (status == STATUS_OK) status = try_finer(refinement, bests[k], &near, max);
        vec_free(&near.list);
    }
    return status;
}

enum status refine(const struct refinement *refinement) {
    if (refinement->best->family >= 0) TRY(try_kinds(refinement));
    for (int32_t around = -1; around != refinement->best->family && is_left(refinement);) {
        around = refinement->best->family;
        TRY(look_around(refinement));
    }
    return STATUS_OK;
}
