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
    if (refinement->input->objective == OBJECTIVE_SUM) return outcome_least_s(refinement->input, seconds);
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
    if (!may_win(refinement, outcome_least_s(refinement->input, &family->least))) return STATUS_OK;
    TRY(space_members(refinement->space, family, members));
    for (size_t m = 0; m < members->list.count; m++) {
        const struct member *member = &members->list.items[m];
        const struct proposal proposal = {.key = expected_s(refinement, &member->bound.seconds),
                                          .bound = outcome_least_s(refinement->input, &member->bound.seconds),
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

static bool is_left(const struct refinement *refinement) { return refinement->result->compiled < refinement->most; }

/* In their order, until one is faster than the best: others are near to that. What is expected not to fit comes last, a
 * few of those at most. */
static enum status compile_near(const struct refinement *refinement, struct queue *queue, struct queue *doubtful) {
    struct proposal next;
    int32_t around = refinement->best->family;
    int64_t most = refinement->result->compiled + refinement->most / (doubtful ? 1 : DOUBTFUL_PART);
    while (is_left(refinement) && refinement->result->compiled < most && refinement->best->family == around &&
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

enum status refine(const struct refinement *refinement) {
    for (int32_t around = -1; around != refinement->best->family && is_left(refinement);) {
        around = refinement->best->family;
        TRY(look_around(refinement));
    }
    return STATUS_OK;
}
