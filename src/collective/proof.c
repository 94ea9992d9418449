#include "collective/proof.h"

#include "collective/symbols.h"
#include "collective/walk.h"

/* A rank's write of its own data, or read of another's, at a step. */
struct data_access {
    int rank, owner;
    size_t step;
    int64_t begin, end;
};

/* One group's. */
struct proof {
    const struct comm_spec *spec;
    struct schedule_walk walk;
    VEC(struct data_access) writes; /* of own data */
    VEC(struct data_access) reads;  /* of others', in place */
};

/* ---- data read in place ---- */

/* Adds the write of the message at `index`: its bytes in staging, or, when merged, in the data. */
static enum status add_message(struct proof *proof, int rank, size_t step, int index, bool merged) {
    const struct comm_schedule *schedule = proof->walk.of[rank].schedule;
    const struct schedule_message *message = &schedule->messages.items[index];
    bool writes = merged || (message->receive && message->place == PLACE_DATA);
    for (int p = 0; p < message->pieces && writes; p++) {
        const struct schedule_piece *piece = &schedule->pieces.items[message->first_piece + p];
        struct data_access access = {rank, rank, step, piece->offset, piece->offset + piece->bytes};
        TRY(vec_push(&proof->writes, access));
    }
    return STATUS_OK;
}

/* A message is written from when it is posted until it is finished. */
static enum status add_transfer(struct proof *proof, int rank, size_t step, int index) {
    const struct schedule_transfer *transfer = &proof->walk.of[rank].schedule->transfers.items[index];
    for (int m = 0; m < transfer->messages; m++)
        TRY(add_message(proof, rank, step, transfer->first_message + m, false));
    return STATUS_OK;
}

static bool came_by_message(const struct comm_schedule *schedule, const struct schedule_step *sum, int peer) {
    for (int t = sum->first; t < sum->first + sum->count; t++)
        if (schedule->transfers.items[t].peer == peer) return true;
    return false;
}

static enum status add_sum(struct proof *proof, int rank, size_t at, const struct schedule_step *step) {
    const struct comm_schedule *schedule = proof->walk.of[rank].schedule;
    const struct lane_node *node = &schedule->tree.node[step->index];
    const bool *empty = proof->spec->empty;
    for (int peer = node->first; peer < node->first + node->lanes; peer++) {
        struct data_access access = {rank, peer, at, step->to, step->to + step->bytes};
        bool read = peer != rank && !(empty && empty[peer]) && !came_by_message(schedule, step, peer);
        if (read) TRY(vec_push(&proof->reads, access));
    }
    return vec_push(&proof->writes, (struct data_access){rank, rank, at, step->to, step->to + step->bytes});
}

static enum status add_step(struct proof *proof, int rank, size_t at) {
    const struct schedule_step *step = &proof->walk.of[rank].schedule->steps.items[at];
    struct data_access own = {rank, rank, at, step->to, step->to + step->bytes};
    struct data_access other = {rank, step->index, at, step->from, step->from + step->bytes};
    switch (step->kind) {
    case STEP_POST: return add_transfer(proof, rank, at, step->index);
    case STEP_FINISH: return add_message(proof, rank, at, step->index, false);
    case STEP_MERGE: return add_message(proof, rank, at, step->index, true);
    case STEP_ROUND:
    case STEP_TAKE: return vec_push(&proof->writes, own);
    case STEP_SUM: return add_sum(proof, rank, at, step);
    case STEP_COPY:
        if (other.owner != rank) TRY(vec_push(&proof->reads, other));
        return proof->spec->kind == COMM_ALL_TO_ALL ? STATUS_OK : vec_push(&proof->writes, own);
    case STEP_SEND:
    case STEP_PACK:
    case STEP_ARRIVE:
    case STEP_MEET: return STATUS_OK;
    }
    BUG("a step that is none");
}

static bool is_before(const struct proof *proof, const struct data_access *first, const struct data_access *second) {
    return schedule_walk_clock(&proof->walk, second->rank, second->step)[first->rank] >= (int32_t)first->step + 2;
}

static enum status check_read(const struct proof *proof, const struct data_access *read) {
    if (schedule_walk_clock(&proof->walk, read->rank, read->step)[read->owner] < 1)
        return SCHEDULE_FAULT(&proof->walk, read->rank, read->step, "may read the data of rank %d before it has any",
                              mesh_group_rank(&proof->spec->group, read->owner));
    for (size_t i = 0; i < proof->writes.count; i++) {
        const struct data_access *write = &proof->writes.items[i];
        bool meet = write->owner == read->owner && write->begin < read->end && read->begin < write->end;
        if (meet && !is_before(proof, write, read) && !is_before(proof, read, write))
            return SCHEDULE_FAULT(&proof->walk, read->rank, read->step,
                                  "reads of rank %d what that writes at step %zu, in no order",
                                  mesh_group_rank(&proof->spec->group, read->owner), write->step);
    }
    size_t last = proof->walk.of[read->owner].schedule->steps.count;
    bool ended =
        last > 0 && schedule_walk_clock(&proof->walk, read->owner, last - 1)[read->rank] >= (int32_t)read->step + 2;
    if (!ended)
        return SCHEDULE_FAULT(&proof->walk, read->rank, read->step,
                              "may still read the data of rank %d when that one is done",
                              mesh_group_rank(&proof->spec->group, read->owner));
    return STATUS_OK;
}

static enum status check_data(struct proof *proof) {
    for (int r = 0; r < proof->walk.ranks; r++)
        for (size_t s = 0; s < proof->walk.of[r].schedule->steps.count; s++)
            TRY(add_step(proof, r, s));
    for (size_t i = 0; i < proof->reads.count; i++)
        TRY(check_read(proof, &proof->reads.items[i]));
    return STATUS_OK;
}

/* ---- the group ---- */

static enum status verify_group(const struct comm_spec *const *specs, const struct comm_schedule *const *schedules) {
    struct proof proof = {.spec = specs[0]};
    enum status status = schedule_walk_create(&specs[0]->group, schedules, &proof.walk);
    if (status == STATUS_OK) status = check_data(&proof);
    if (status == STATUS_OK) status = schedule_values_check(&proof.walk, specs);
    schedule_walk_free(&proof.walk);
    vec_free(&proof.writes);
    vec_free(&proof.reads);
    return status;
}

bool comm_same_group(const struct comm_group *a, const struct comm_group *b) {
    return a->first == b->first && a->stride == b->stride && a->count == b->count;
}

bool comm_same_owners(const int *a, const int *b, int blocks) {
    for (int i = 0; i < blocks; i++)
        if ((a ? a[i] : i) != (b ? b[i] : i)) return false;
    return true;
}

bool comm_same_empty(const bool *a, const bool *b, int ranks) {
    for (int r = 0; r < ranks; r++)
        if ((a && a[r]) != (b && b[r])) return false;
    return true;
}

static const char *difference(const struct comm_spec *a, const struct comm_spec *b) {
    if (!comm_same_group(&a->group, &b->group)) return "group";
    if (a->kind != b->kind || a->root != b->root) return "kind";
    if (a->bytes != b->bytes || a->block_bytes != b->block_bytes) return "size";
    if (a->flat != b->flat || a->in_place != b->in_place || a->round_bf16 != b->round_bf16 ||
        a->round_sum != b->round_sum)
        return "algorithm";
    if (!comm_same_owners(a->owner, b->owner, comm_spec_blocks(a))) return "owners";
    return comm_same_empty(a->empty, b->empty, a->group.count) ? NULL : "empty ranks";
}

static enum status check_same(const struct comm_spec *specs, int first, int rank) {
    const char *differs = difference(&specs[first], &specs[rank]);
    if (!differs) return STATUS_OK;
    return status_set(STATUS_FAILED, "rank %d: another %s than rank %d has", rank, differs, first);
}

/* The group whose first rank this is. */
static enum status verify_group_of(int first, const struct comm_spec *specs, const struct comm_schedule *schedules) {
    const struct comm_group *group = &specs[first].group;
    const struct comm_spec **own = mem_array((size_t)group->count, sizeof *own);
    const struct comm_schedule **lists = mem_array((size_t)group->count, sizeof *lists);
    enum status status = own && lists ? STATUS_OK : STATUS_FAILED;
    for (int i = 0; i < group->count && status == STATUS_OK; i++) {
        int rank = mesh_group_rank(group, i);
        own[i] = &specs[rank];
        lists[i] = &schedules[rank];
        status = check_same(specs, first, rank);
    }
    if (status == STATUS_OK) status = verify_group(own, lists);
    mem_free(own);
    mem_free(lists);
    return status;
}

enum status comm_schedules_verify(const struct comm_spec *specs, const struct comm_schedule *schedules, int ranks) {
    for (int rank = 0; rank < ranks; rank++) {
        const struct comm_group *group = &specs[rank].group;
        if (group->count == 0) continue;
        int place = mesh_group_position(group, rank);
        if (place < 0 || mesh_group_rank(group, group->count - 1) >= ranks)
            return status_set(STATUS_FAILED, "rank %d is not in its group", rank);
        if (place > 0) TRY(check_same(specs, group->first, rank));
        if (place == 0) TRY(verify_group_of(rank, specs, schedules));
    }
    return STATUS_OK;
}
