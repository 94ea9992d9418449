#include "program/collectives.h"

#include "collective/comm_schedule.h"
#include "plan/lane_shares.h"

enum status collectives_spec(const struct program *program, int32_t collective, struct lane_tree *tree,
                             struct comm_spec *out) {
    const struct program_collective *operation = &program->collectives.items[collective];
    int ranks = rank_place_ranks(&program->place);
    struct lane_tree lanes;
    *tree = (struct lane_tree){0};
    TRY(lane_tree_of_shape(&program->lanes, &lanes));
    enum status status = lane_tree_top(&lanes, ranks, tree);
    lane_tree_free(&lanes);
    *out = (struct comm_spec){.kind = operation->kind,
                              .group = mesh_group(&program->place.mesh, program->place.rank, MESH_ALL),
                              .bytes = operation->bytes,
                              .in_place = program->place.in_place,
                              .round_bf16 = operation->round_bf16,
                              .tree = tree,
                              .empty = operation->empty};
    return status;
}

static enum status measure(struct program *program, int32_t collective, int64_t *staging_bytes) {
    struct lane_tree tree;
    struct comm_spec spec;
    struct comm_schedule schedule;
    enum status status = collectives_spec(program, collective, &tree, &spec);
    if (status == STATUS_OK)
        status = comm_schedule_create(&program->place.mesh, program->place.rank,
                                      rank_place_message_bytes(&program->place), &spec, &schedule);
    lane_tree_free(&tree);
    TRY(status);
    program->collectives.items[collective].traffic = schedule.traffic;
    *staging_bytes = schedule.staging_bytes;
    comm_schedule_free(&schedule);
    return STATUS_OK;
}

static enum status find_empty(struct program *program, const struct recipe *recipe, int64_t round, const bool **out) {
    int ranks = rank_place_ranks(&program->place);
    bool *empty = scratch_alloc(&program->memory, (size_t)ranks, sizeof *empty), any = false;
    if (!empty) return STATUS_FAILED;
    TRY(lane_shares_find_empty(recipe, &program->place, round, empty));
    for (int rank = 0; rank < ranks; rank++)
        any |= empty[rank];
    *out = any ? empty : NULL;
    return STATUS_OK;
}

enum status collectives_add_reduction(struct program *program, const struct recipe *recipe, int64_t round,
                                      int64_t bytes, int64_t *staging_bytes) {
    struct program_collective collective = {
        .kind = COMM_ALL_REDUCE, .bytes = bytes, .round_bf16 = recipe->reduce_dtype == DTYPE_BF16};
    TRY(find_empty(program, recipe, round, &collective.empty));
    TRY(vec_push(&program->collectives, collective));
    return measure(program, (int32_t)program->collectives.count - 1, staging_bytes);
}

struct comm_traffic collectives_traffic(const struct program *program) {
    struct comm_traffic sum = {.read = 0};
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (instruction->opcode != OPCODE_ALL_REDUCE) continue;
        const struct comm_traffic *one = &program->collectives.items[instruction->collective].traffic;
        int64_t times = program->sections.items[instruction->section].repeat;
        for (int axis = 0; axis < MESH_AXES; axis++) {
            sum.sent[axis] += times * one->sent[axis];
            sum.received[axis] += times * one->received[axis];
        }
        sum.read += times * one->read;
    }
    return sum;
}
