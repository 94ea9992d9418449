#include "collective/schedule_proof.h"

#include <string.h>

#include "base/mem.h"

/* What a rank writes of its own data, or reads of another's, at a step. */
struct data_access {
    int rank, owner;
    size_t step;
    int64_t begin, end;
};

/* Time on a rank: 1 when the operation begins, s + 2 at step s, and one more when it is over. */
struct rank_walk {
    const struct comm_schedule *schedule;
    size_t next;                 /* step */
    int *matches;                /* by transfer: the peer's transfer that it is for; -1: there is none */
    size_t *posted_at;           /* by transfer: 1 + the step that posts it; 0: none */
    size_t *sent_at;             /* the same for sends */
    int *transfer_of;            /* by message */
    size_t arrived_at[MEETINGS]; /* 1 + the step */
    int32_t *clocks;             /* by step and rank: what is known of it when the step ends */
};

struct proof {
    enum comm_kind kind;
    int ranks;
    struct rank_walk *walks;
    VEC(struct data_access) writes; /* of own data */
    VEC(struct data_access) reads;  /* of others' */
};

static int32_t *clock_at(const struct proof *proof, int rank, size_t step) {
    return proof->walks[rank].clocks + step * (size_t)proof->ranks;
}

#define FAULT(rank, step, ...) status_prefix(status_set(STATUS_FAILED, __VA_ARGS__), "rank %d, step %zu", rank, step)

/* ---- which transfer is for which ---- */

/* The number-th transfer of a rank with a peer in one direction; -1: there is none. */
static int find_transfer(const struct comm_schedule *schedule, int peer, bool receive, int number) {
    for (size_t t = 0; t < schedule->transfers.count; t++) {
        const struct schedule_transfer *transfer = &schedule->transfers.items[t];
        if (transfer->peer == peer && transfer->receive == receive && number-- == 0) return (int)t;
    }
    return -1;
}

static enum status match_transfers(struct proof *proof, int rank) {
    struct rank_walk *walk = &proof->walks[rank];
    const struct comm_schedule *schedule = walk->schedule;
    for (size_t t = 0; t < schedule->transfers.count; t++) {
        const struct schedule_transfer *mine = &schedule->transfers.items[t];
        int number = 0;
        for (size_t u = 0; u < t; u++)
            number += schedule->transfers.items[u].peer == mine->peer &&
                      schedule->transfers.items[u].receive == mine->receive;
        const struct comm_schedule *theirs = mine->peer < proof->ranks ? proof->walks[mine->peer].schedule : NULL;
        walk->matches[t] = theirs ? find_transfer(theirs, rank, !mine->receive, number) : -1;
        if (walk->matches[t] < 0)
            return status_set(STATUS_FAILED, "rank %d: transfer %zu has no end at rank %d", rank, t, mine->peer);
        const struct schedule_transfer *other = &theirs->transfers.items[walk->matches[t]];
        bool same = mine->messages == other->messages;
        for (int m = 0; m < mine->messages && same; m++) {
            walk->transfer_of[mine->first_message + m] = (int)t;
            same = schedule->messages.items[mine->first_message + m].bytes ==
                   theirs->messages.items[other->first_message + m].bytes;
        }
        if (!same)
            return status_set(STATUS_FAILED, "rank %d: transfer %zu has other messages at rank %d", rank, t,
                              mine->peer);
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
static bool join(const struct proof *proof, int rank, size_t number, int32_t *clock) {
    if (number == 0 || number > proof->walks[rank].next) return false;
    const int32_t *other = clock_at(proof, rank, number - 1);
    for (int r = 0; r < proof->ranks; r++)
        if (other[r] > clock[r]) clock[r] = other[r];
    return true;
}

/* Whether the step can be taken now; `clock` then has what it waited for. */
static bool may_take(const struct proof *proof, const struct rank_walk *walk, const struct schedule_step *step,
                     int32_t *clock) {
    const struct comm_schedule *schedule = walk->schedule;
    if (step->kind == STEP_MEET) {
        for (int r = step->first; r < step->first + step->count; r++)
            if (!join(proof, r, proof->walks[r].arrived_at[step->index], clock)) return false;
        return true;
    }
    if (step->kind != STEP_SEND && step->kind != STEP_FINISH) return true;
    int own = step->kind == STEP_SEND ? step->index : walk->transfer_of[step->index];
    const struct schedule_transfer *transfer = &schedule->transfers.items[own];
    const struct rank_walk *peer = &proof->walks[transfer->peer];
    int theirs = walk->matches[own];
    if (step->kind == STEP_SEND) return join(proof, transfer->peer, peer->posted_at[theirs], clock);
    return !transfer->receive || join(proof, transfer->peer, peer->sent_at[theirs], clock);
}

static bool take_steps(struct proof *proof, int rank) {
    struct rank_walk *walk = &proof->walks[rank];
    bool moved = false;
    for (; walk->next < walk->schedule->steps.count; walk->next++, moved = true) {
        int32_t *clock = clock_at(proof, rank, walk->next);
        size_t bytes = (size_t)proof->ranks * sizeof *clock;
        memset(clock, 0, bytes);
        if (walk->next > 0) memcpy(clock, clock_at(proof, rank, walk->next - 1), bytes);
        if (!may_take(proof, walk, &walk->schedule->steps.items[walk->next], clock)) break;
        clock[rank] = (int32_t)walk->next + 2;
    }
    return moved;
}

static enum status walk_all(struct proof *proof) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < proof->ranks; r++)
            moved |= take_steps(proof, r);
    }
    for (int r = 0; r < proof->ranks; r++)
        if (proof->walks[r].next < proof->walks[r].schedule->steps.count)
            return FAULT(r, proof->walks[r].next, "waits for ever");
    return STATUS_OK;
}

/* ---- data read in place ---- */

static enum status add_message(struct proof *proof, int rank, size_t step, int index) {
    const struct comm_schedule *schedule = proof->walks[rank].schedule;
    const struct schedule_message *message = &schedule->messages.items[index];
    bool writes = message->receive && message->place == PLACE_DATA;
    for (int p = 0; p < message->pieces && writes; p++) {
        const struct schedule_piece *piece = &schedule->pieces.items[message->first_piece + p];
        struct data_access access = {rank, rank, step, piece->offset, piece->offset + piece->bytes};
        TRY(vec_push(&proof->writes, access));
    }
    return STATUS_OK;
}

/* A message is written from when it is posted until it is finished. */
static enum status add_transfer(struct proof *proof, int rank, size_t step, int index) {
    const struct schedule_transfer *transfer = &proof->walks[rank].schedule->transfers.items[index];
    for (int m = 0; m < transfer->messages; m++)
        TRY(add_message(proof, rank, step, transfer->first_message + m));
    return STATUS_OK;
}

static enum status add_merge(struct proof *proof, int rank, size_t step, int index) {
    const struct comm_schedule *schedule = proof->walks[rank].schedule;
    const struct schedule_message *message = &schedule->messages.items[index];
    for (int p = 0; p < message->pieces; p++) {
        const struct schedule_piece *piece = &schedule->pieces.items[message->first_piece + p];
        struct data_access access = {rank, rank, step, piece->offset, piece->offset + piece->bytes};
        TRY(vec_push(&proof->writes, access));
    }
    return STATUS_OK;
}

static enum status add_sum(struct proof *proof, int rank, size_t at, const struct schedule_step *step) {
    const struct comm_schedule *schedule = proof->walks[rank].schedule;
    const struct lane_node *node = &schedule->tree.node[step->index];
    for (int peer = node->first; peer < node->first + node->lanes; peer++) {
        struct data_access access = {rank, peer, at, step->to, step->to + step->bytes};
        if (peer != rank) TRY(vec_push(&proof->reads, access));
    }
    return vec_push(&proof->writes, (struct data_access){rank, rank, at, step->to, step->to + step->bytes});
}

static enum status add_step(struct proof *proof, int rank, size_t at) {
    const struct schedule_step *step = &proof->walks[rank].schedule->steps.items[at];
    struct data_access own = {rank, rank, at, step->to, step->to + step->bytes};
    struct data_access other = {rank, step->index, at, step->from, step->from + step->bytes};
    switch (step->kind) {
    case STEP_POST: return add_transfer(proof, rank, at, step->index);
    case STEP_FINISH: return add_message(proof, rank, at, step->index);
    case STEP_MERGE: return add_merge(proof, rank, at, step->index);
    case STEP_ROUND: return vec_push(&proof->writes, own);
    case STEP_SUM: return add_sum(proof, rank, at, step);
    case STEP_COPY:
        if (other.owner != rank) TRY(vec_push(&proof->reads, other));
        return proof->kind == COMM_ALL_TO_ALL ? STATUS_OK : vec_push(&proof->writes, own);
    case STEP_SEND:
    case STEP_PACK:
    case STEP_ARRIVE:
    case STEP_MEET: return STATUS_OK;
    }
    BUG("a step that is none");
}

static bool is_before(const struct proof *proof, const struct data_access *first, const struct data_access *second) {
    return clock_at(proof, second->rank, second->step)[first->rank] >= (int32_t)first->step + 2;
}

static enum status check_read(const struct proof *proof, const struct data_access *read) {
    if (clock_at(proof, read->rank, read->step)[read->owner] < 1)
        return FAULT(read->rank, read->step, "may read the data of rank %d before it has any", read->owner);
    for (size_t i = 0; i < proof->writes.count; i++) {
        const struct data_access *write = &proof->writes.items[i];
        bool meet = write->owner == read->owner && write->begin < read->end && read->begin < write->end;
        if (meet && !is_before(proof, write, read) && !is_before(proof, read, write))
            return FAULT(read->rank, read->step, "reads of rank %d what that writes at step %zu, in no order",
                         read->owner, write->step);
    }
    size_t last = proof->walks[read->owner].schedule->steps.count;
    bool ended = last > 0 && clock_at(proof, read->owner, last - 1)[read->rank] >= (int32_t)read->step + 2;
    if (!ended)
        return FAULT(read->rank, read->step, "may still read the data of rank %d when that one is done", read->owner);
    return STATUS_OK;
}

static enum status check_data(struct proof *proof) {
    for (int r = 0; r < proof->ranks; r++)
        for (size_t s = 0; s < proof->walks[r].schedule->steps.count; s++)
            TRY(add_step(proof, r, s));
    for (size_t i = 0; i < proof->reads.count; i++)
        TRY(check_read(proof, &proof->reads.items[i]));
    return STATUS_OK;
}

/* ---- */

static enum status begin_walk(struct proof *proof, int rank, const struct comm_schedule *schedule) {
    struct rank_walk *walk = &proof->walks[rank];
    size_t transfers = schedule->transfers.count + 1;
    walk->schedule = schedule;
    walk->matches = mem_array(transfers, sizeof *walk->matches);
    walk->posted_at = mem_array(transfers, sizeof *walk->posted_at);
    walk->sent_at = mem_array(transfers, sizeof *walk->sent_at);
    walk->transfer_of = mem_array(schedule->messages.count + 1, sizeof *walk->transfer_of);
    walk->clocks = mem_array((schedule->steps.count + 1) * (size_t)proof->ranks, sizeof *walk->clocks);
    bool room = walk->matches && walk->posted_at && walk->sent_at && walk->transfer_of && walk->clocks;
    if (!room) return STATUS_FAILED;
    find_steps(walk);
    return STATUS_OK;
}

static enum status verify(struct proof *proof, const struct comm_schedule *schedules) {
    for (int r = 0; r < proof->ranks; r++)
        TRY(begin_walk(proof, r, &schedules[r]));
    for (int r = 0; r < proof->ranks; r++)
        TRY(match_transfers(proof, r));
    TRY(walk_all(proof));
    return check_data(proof);
}

enum status comm_schedules_verify(enum comm_kind kind, const struct comm_schedule *schedules, int ranks) {
    struct proof proof = {.kind = kind, .ranks = ranks, .walks = mem_array((size_t)ranks, sizeof *proof.walks)};
    enum status status = proof.walks ? verify(&proof, schedules) : STATUS_FAILED;
    for (int r = 0; r < ranks && proof.walks; r++) {
        struct rank_walk *walk = &proof.walks[r];
        mem_free(walk->matches);
        mem_free(walk->posted_at);
        mem_free(walk->sent_at);
        mem_free(walk->transfer_of);
        mem_free(walk->clocks);
    }
    mem_free(proof.walks);
    vec_free(&proof.writes);
    vec_free(&proof.reads);
    return status;
}
