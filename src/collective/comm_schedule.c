#include "collective/comm_schedule.h"

#include "collective/lane_sum.h"
#include "collective/schedule_maker.h"

static enum status copy_tree(const struct lane_tree *from, struct lane_tree *out) {
    *out = *from;
    out->node = mem_array((size_t)from->count, sizeof *out->node);
    if (!out->node) return STATUS_FAILED;
    memcpy(out->node, from->node, (size_t)from->count * sizeof *out->node);
    return STATUS_OK;
}

static enum status make_sums(struct schedule_maker *maker) {
    struct comm_schedule *schedule = maker->schedule;
    if (maker->spec->tree)
        TRY(copy_tree(maker->spec->tree, &schedule->tree));
    else
        TRY(lane_tree_create(1, maker->count, &schedule->tree));
    schedule->absent = mem_array((size_t)schedule->tree.count, sizeof *schedule->absent);
    if (!schedule->absent) return STATUS_FAILED;
    lane_find_absent(&schedule->tree, maker->spec->empty, schedule->absent);
    return maker->spec->flat ? schedule_reduce_flat(maker) : schedule_reduce_along_tree(maker);
}

/* A block that lies elsewhere yet is put in its place first. */
static enum status make_gather(struct schedule_maker *maker) {
    int own = maker->owned[maker->me];
    if (maker->spec->mine && own >= 0) {
        struct comm_range range = maker_block(maker, own);
        struct schedule_step take = {.kind = STEP_TAKE, .to = range.begin, .bytes = range.end - range.begin};
        if (take.bytes > 0) TRY(maker_step(maker, take));
    }
    return maker->spec->flat ? schedule_gather_flat(maker) : schedule_gather_along_tree(maker);
}

/* What is gathered as bf16 is so on its owner too. */
static enum status round_own_block(struct schedule_maker *maker) {
    int own = maker->owned[maker->me];
    struct comm_range range = own >= 0 ? maker_block(maker, own) : (struct comm_range){0, 0};
    struct schedule_step round = {.kind = STEP_ROUND, .to = range.begin, .bytes = range.end - range.begin};
    return maker->spec->round_sum && round.bytes > 0 ? maker_step(maker, round) : STATUS_OK;
}

static enum status make(struct schedule_maker *maker) {
    switch (maker->spec->kind) {
    case COMM_REDUCE_SCATTER: return make_sums(maker);
    case COMM_ALL_REDUCE:
        TRY(make_sums(maker));
        TRY(round_own_block(maker));
        return make_gather(maker);
    case COMM_ALL_GATHER:
    case COMM_BROADCAST: return make_gather(maker);
    case COMM_ALL_TO_ALL: return schedule_all_to_all(maker);
    default: BUG("no such operation: %d", (int)maker->spec->kind);
    }
}

static enum status find_owners(struct schedule_maker *maker) {
    maker->owner = scratch_alloc(&maker->scratch, (size_t)maker->blocks, sizeof *maker->owner);
    maker->owned = scratch_alloc(&maker->scratch, (size_t)maker->count, sizeof *maker->owned);
    if (!maker->owner || !maker->owned) return STATUS_FAILED;
    for (int i = 0; i < maker->count; i++)
        maker->owned[i] = -1;
    for (int b = 0; b < maker->blocks; b++) {
        maker->owner[b] = maker->spec->kind == COMM_BROADCAST ? maker->spec->root
                          : maker->spec->owner                ? maker->spec->owner[b]
                                                              : b;
        maker->owned[maker->owner[b]] = b;
    }
    return STATUS_OK;
}

enum status comm_schedule_create(const struct mesh *mesh, int rank, int64_t message_bytes, const struct comm_spec *spec,
                                 struct comm_schedule *out) {
    struct comm_schedule schedule = {0};
    struct schedule_maker maker = {.mesh = mesh,
                                   .spec = spec,
                                   .message_bytes = message_bytes,
                                   .count = spec->group.count,
                                   .me = mesh_group_position(&spec->group, rank),
                                   .blocks = comm_spec_blocks(spec),
                                   .schedule = &schedule};
    enum status status = find_owners(&maker);
    if (status == STATUS_OK) status = make(&maker);
    scratch_free(&maker.scratch);
    if (status == STATUS_OK)
        *out = schedule;
    else
        comm_schedule_free(&schedule);
    return status;
}

void comm_schedule_free(struct comm_schedule *schedule) {
    vec_free(&schedule->steps);
    vec_free(&schedule->transfers);
    vec_free(&schedule->messages);
    vec_free(&schedule->pieces);
    lane_tree_free(&schedule->tree);
    mem_free(schedule->absent);
    *schedule = (struct comm_schedule){0};
}
