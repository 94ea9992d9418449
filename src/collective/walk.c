#include "collective/walk.h"

/* ---- which transfer is for which ---- */

/* The number-th transfer of a rank with a peer in one direction; -1: there is none. */
static int find_transfer(const struct comm_schedule *schedule, int peer, bool receive, int number) {
    for (size_t t = 0; t < schedule->transfers.count; t++) {
        const struct schedule_transfer *transfer = &schedule->transfers.items[t];
        if (transfer->peer == peer && transfer->receive == receive && number-- == 0) return (int)t;
    }
    return -1;
}

static enum status match_transfers(struct schedule_walk *all, int rank) {
    struct rank_walk *walk = &all->of[rank];
    const struct comm_schedule *schedule = walk->schedule;
    for (size_t t = 0; t < schedule->transfers.count; t++) {
        const struct schedule_transfer *mine = &schedule->transfers.items[t];
        int number = 0;
        for (size_t u = 0; u < t; u++)
            number += schedule->transfers.items[u].peer == mine->peer &&
                      schedule->transfers.items[u].receive == mine->receive;
        const struct comm_schedule *theirs = mine->peer < all->ranks ? all->of[mine->peer].schedule : NULL;
        walk->matches[t] = theirs ? find_transfer(theirs, rank, !mine->receive, number) : -1;
        if (walk->matches[t] < 0)
            return status_set(STATUS_FAILED, "rank %d: transfer %zu has no end at rank %d",
                              mesh_group_rank(all->group, rank), t, mesh_group_rank(all->group, mine->peer));
        const struct schedule_transfer *other = &theirs->transfers.items[walk->matches[t]];
        bool same = mine->messages == other->messages;
        for (int m = 0; m < mine->messages && same; m++) {
            walk->transfer_of[mine->first_message + m] = (int)t;
            same = schedule->messages.items[mine->first_message + m].bytes ==
                   theirs->messages.items[other->first_message + m].bytes;
        }
        if (!same)
            return status_set(STATUS_FAILED, "rank %d: transfer %zu has other messages at rank %d",
                              mesh_group_rank(all->group, rank), t, mesh_group_rank(all->group, mine->peer));
    }
    return STATUS_OK;
}

static void find_steps(struct rank_walk *walk) {
    for (size_t s = 0; s < walk->schedule->steps.count; s++) {
        const struct schedule_step *step = &walk->schedule->steps.items[s];
        if (step->kind == STEP_POST) walk->posted_at[step->index] = s + 1;
        if (step->kind == STEP_SEND) walk->sent_at[step->index] = s + 1;
        if (step->kind == STEP_ARRIVE) walk->arrived_at[step->index] = s + 1;
    }
}

/* ---- the walk ---- */

/* Joins what is known after a step (1 + its number; 0: there is none) of another rank. False: it is still to come. */
static bool join(const struct schedule_walk *all, int rank, size_t number, int32_t *clock) {
    if (number == 0 || number > all->of[rank].next) return false;
    const int32_t *other = schedule_walk_clock(all, rank, number - 1);
    for (int r = 0; r < all->ranks; r++)
        if (other[r] > clock[r]) clock[r] = other[r];
    return true;
}

/* Whether the step can be taken now; `clock` then has what it waited for. */
static bool may_take(const struct schedule_walk *all, const struct rank_walk *walk, const struct schedule_step *step,
                     int32_t *clock) {
    const struct comm_schedule *schedule = walk->schedule;
    if (step->kind == STEP_MEET) {
        for (int r = step->first; r < step->first + step->count; r++)
            if (!join(all, r, all->of[r].arrived_at[step->index], clock)) return false;
        return true;
    }
    if (step->kind != STEP_SEND && step->kind != STEP_FINISH) return true;
    int own = step->kind == STEP_SEND ? step->index : walk->transfer_of[step->index];
    const struct schedule_transfer *transfer = &schedule->transfers.items[own];
    const struct rank_walk *peer = &all->of[transfer->peer];
    int theirs = walk->matches[own];
    if (step->kind == STEP_SEND) return join(all, transfer->peer, peer->posted_at[theirs], clock);
    return !transfer->receive || join(all, transfer->peer, peer->sent_at[theirs], clock);
}

static enum status take_steps(struct schedule_walk *all, int rank, bool *moved) {
    struct rank_walk *walk = &all->of[rank];
    for (; walk->next < walk->schedule->steps.count; walk->next++, *moved = true) {
        int32_t *clock = schedule_walk_clock(all, rank, walk->next);
        size_t bytes = (size_t)all->ranks * sizeof *clock;
        memset(clock, 0, bytes);
        if (walk->next > 0) memcpy(clock, schedule_walk_clock(all, rank, walk->next - 1), bytes);
        if (!may_take(all, walk, &walk->schedule->steps.items[walk->next], clock)) break;
        clock[rank] = (int32_t)walk->next + 2;
        TRY(vec_push(&all->order, (struct walked_step){rank, walk->next}));
    }
    return STATUS_OK;
}

static enum status walk_all(struct schedule_walk *all) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < all->ranks; r++)
            TRY(take_steps(all, r, &moved));
    }
    for (int r = 0; r < all->ranks; r++)
        if (all->of[r].next < all->of[r].schedule->steps.count)
            return SCHEDULE_FAULT(all, r, all->of[r].next, "waits for ever");
    return STATUS_OK;
}

/* ---- */

static enum status begin_walk(struct schedule_walk *all, int rank, const struct comm_schedule *schedule) {
    struct rank_walk *walk = &all->of[rank];
    size_t transfers = schedule->transfers.count + 1;
    walk->schedule = schedule;
    TRY(scratch_items(&all->memory, &walk->matches, transfers));
    TRY(scratch_items(&all->memory, &walk->posted_at, transfers));
    TRY(scratch_items(&all->memory, &walk->sent_at, transfers));
    TRY(scratch_items(&all->memory, &walk->transfer_of, schedule->messages.count + 1));
    TRY(scratch_items(&all->memory, &walk->clocks, (schedule->steps.count + 1) * (size_t)all->ranks));
    find_steps(walk);
    return STATUS_OK;
}

enum status schedule_walk_create(const struct comm_group *group, const struct comm_schedule *const *schedules,
                                 struct schedule_walk *out) {
    *out = (struct schedule_walk){.group = group, .ranks = group->count};
    TRY(scratch_items(&out->memory, &out->of, (size_t)group->count));
    for (int r = 0; r < out->ranks; r++)
        TRY(begin_walk(out, r, schedules[r]));
    for (int r = 0; r < out->ranks; r++)
        TRY(match_transfers(out, r));
    return walk_all(out);
}

void schedule_walk_free(struct schedule_walk *all) {
    scratch_free(&all->memory);
    vec_free(&all->order);
    *all = (struct schedule_walk){0};
}
