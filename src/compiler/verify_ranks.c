/* The proof that the programs of all ranks fit together. */
#include <string.h>

#include "collective/schedule_proof.h"
#include "compiler/collectives.h"
#include "compiler/verify_matching.h"
#include "compiler/verify_sums.h"

#define FAULT(rank, ...) status_prefix(status_set(STATUS_FAILED, __VA_ARGS__), "program: rank %d", rank)

static bool same_place(const struct program *a, const struct program *b) {
    return a->place.mesh.nodes == b->place.mesh.nodes && a->place.mesh.per_node == b->place.mesh.per_node &&
           a->place.in_place == b->place.in_place && a->place.on_device == b->place.on_device && a->flat == b->flat &&
           rank_place_pipeline_parallel(&a->place) == rank_place_pipeline_parallel(&b->place) &&
           lane_shape_equal(&a->lanes, &b->lanes) &&
           rank_place_message_bytes(&a->place) == rank_place_message_bytes(&b->place);
}

/* Every operation has one instruction, in the order of the list, on one stream. */
static enum status check_order(const struct program *program, int rank) {
    int32_t next = 0, stream = -1;
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (!opcode_is_collective(instruction->opcode)) continue;
        if (instruction->collective != next)
            return FAULT(rank, "instruction %zu is operation %d, where %d comes next", i, instruction->collective,
                         next);
        if (stream >= 0 && instruction->stream != stream)
            return FAULT(rank, "instruction %zu: operations on streams %d and %d", i, stream, instruction->stream);
        stream = instruction->stream;
        next++;
    }
    if (next != (int32_t)program->collectives.count)
        return FAULT(rank, "%d of %zu operations are made", next, program->collectives.count);
    return STATUS_OK;
}

static enum status check_places(const struct program *const *programs, int ranks) {
    for (int r = 0; r < ranks; r++) {
        const struct program *program = programs[r];
        if (program->place.rank != r || rank_place_ranks(&program->place) != ranks || !same_place(program, programs[0]))
            return FAULT(r, "it is not for rank %d of %d on the mesh of rank 0", r, ranks);
        TRY(check_order(program, r));
    }
    return STATUS_OK;
}

/* The instruction's staging is what the schedule takes, and the traffic what it moves. */
static enum status check_schedule(const struct program *program, size_t i, const struct comm_schedule *schedule) {
    const struct instruction *instruction = &program->instructions.items[i];
    const struct program_collective *operation = &program->collectives.items[instruction->collective];
    const struct operand *staging = &instruction->operands[OPERAND_WORKSPACE];
    if ((staging->buffer < 0 ? 0 : staging->bytes) < schedule->staging_bytes)
        return FAULT(program->place.rank, "instruction %zu: staging of %lld bytes, its operation takes %lld", i,
                     (long long)(staging->buffer < 0 ? 0 : staging->bytes), (long long)schedule->staging_bytes);
    if (memcmp(&operation->traffic, &schedule->traffic, sizeof operation->traffic) != 0)
        return FAULT(program->place.rank, "operation %d moves other bytes than it says", instruction->collective);
    return STATUS_OK;
}

/* What the ranks have of one operation. */
struct operation {
    struct comm_spec *specs;
    struct lane_tree *trees; /* theirs */
    struct comm_schedule *schedules;
};

static enum status make_schedule(const struct program *program, int32_t collective, struct operation *operation) {
    int rank = program->place.rank;
    TRY(collectives_spec(program, collective, &operation->trees[rank], &operation->specs[rank]));
    return comm_schedule_create(&program->place.mesh, rank, rank_place_message_bytes(&program->place),
                                &operation->specs[rank], &operation->schedules[rank]);
}

static void free_operation(struct operation *operation, int ranks) {
    for (int r = 0; r < ranks && operation->trees; r++)
        lane_tree_free(&operation->trees[r]);
    for (int r = 0; r < ranks && operation->schedules; r++)
        comm_schedule_free(&operation->schedules[r]);
    mem_free(operation->specs);
    mem_free(operation->trees);
    mem_free(operation->schedules);
}

/* Turns that were proved: by turn and rank, the operation that the rank makes in it. */
struct turns {
    const struct program *const *programs;
    int ranks;
    VEC(int32_t) proved;
};

static bool same_turn(const struct turns *turns, const int32_t *a, const int32_t *b) {
    for (int r = 0; r < turns->ranks; r++) {
        const struct program_collective *of = turns->programs[r]->collectives.items;
        if ((a[r] < 0) != (b[r] < 0)) return false;
        if (a[r] >= 0 && a[r] != b[r] && !program_collective_resembles(&of[a[r]], &of[b[r]], turns->ranks))
            return false;
    }
    return true;
}

static bool was_proved(const struct turns *turns, const int32_t *operations) {
    for (size_t at = 0; at < turns->proved.count; at += (size_t)turns->ranks)
        if (same_turn(turns, turns->proved.items + at, operations)) return true;
    return false;
}

static enum status prove(const struct turns *turns, const int32_t *operations, struct operation *out) {
    size_t ranks = (size_t)turns->ranks;
    out->specs = mem_array(ranks, sizeof *out->specs);
    out->trees = mem_array(ranks, sizeof *out->trees);
    out->schedules = mem_array(ranks, sizeof *out->schedules);
    if (!out->specs || !out->trees || !out->schedules) return STATUS_FAILED;
    for (int r = 0; r < turns->ranks; r++)
        if (operations[r] >= 0) TRY(make_schedule(turns->programs[r], operations[r], out));
    return comm_schedules_verify(out->specs, out->schedules, turns->ranks);
}

/* The operations that are made at the same time, of which each group of ranks may have one. */
static enum status verify_turn(void *payload, const int32_t *operations) {
    struct turns *turns = payload;
    struct operation operation = {.specs = NULL};
    int first = 0;
    if (was_proved(turns, operations)) return STATUS_OK;
    while (operations[first] < 0)
        first++;
    enum status status = prove(turns, operations, &operation);
    if (status != STATUS_OK)
        status = status_prefix(status, "program: operation %d of rank %d", operations[first], first);
    free_operation(&operation, turns->ranks);
    for (int r = 0; r < turns->ranks && status == STATUS_OK; r++)
        status = vec_push(&turns->proved, operations[r]);
    return status;
}

static enum status verify_operation(const struct program *program, size_t instruction) {
    struct lane_tree tree;
    struct comm_spec spec;
    struct comm_schedule schedule = {.staging_bytes = 0};
    enum status status = collectives_spec(program, program->instructions.items[instruction].collective, &tree, &spec);
    if (status == STATUS_OK)
        status = comm_schedule_create(&program->place.mesh, program->place.rank,
                                      rank_place_message_bytes(&program->place), &spec, &schedule);
    if (status == STATUS_OK) status = check_schedule(program, instruction, &schedule);
    comm_schedule_free(&schedule);
    lane_tree_free(&tree);
    return status;
}

/* Each operation by the one instruction that it has (check_order). */
static enum status verify_traffic(const struct program *program) {
    for (size_t i = 0; i < program->instructions.count; i++)
        if (opcode_is_collective(program->instructions.items[i].opcode)) TRY(verify_operation(program, i));
    return STATUS_OK;
}

enum status program_verify_ranks(const struct program *const *programs, int ranks, const struct recipe *recipe) {
    struct turns turns = {.programs = programs, .ranks = ranks};
    TRY(check_places(programs, ranks));
    enum status status = program_verify_matching(programs, ranks, verify_turn, &turns);
    vec_free(&turns.proved);
    TRY(status);
    for (int r = 0; r < ranks; r++)
        TRY(verify_traffic(programs[r]));
    return program_verify_sums(programs, ranks, recipe);
}
