/* The proof that the programs of all ranks fit together. */
#include <string.h>

#include "collective/schedule_proof.h"
#include "program/collectives.h"
#include "program/verify_sums.h"

#define FAULT(rank, ...) status_prefix(status_set(STATUS_FAILED, __VA_ARGS__), "program: rank %d", rank)

static bool same_empty(const bool *a, const bool *b, int ranks) {
    for (int r = 0; r < ranks; r++)
        if ((a && a[r]) != (b && b[r])) return false;
    return true;
}

static bool same_place(const struct program *a, const struct program *b) {
    return a->place.mesh.nodes == b->place.mesh.nodes && a->place.mesh.per_node == b->place.mesh.per_node &&
           a->place.in_place == b->place.in_place && lane_shape_equal(&a->lanes, &b->lanes) &&
           rank_place_message_bytes(&a->place) == rank_place_message_bytes(&b->place);
}

/* Every operation has one instruction, in the order of the list, on one stream, and is issued once a step. */
static enum status check_order(const struct program *program, int rank) {
    int32_t next = 0, stream = -1;
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (instruction->opcode != OPCODE_ALL_REDUCE) continue;
        if (instruction->collective != next)
            return FAULT(rank, "instruction %zu is operation %d, where %d comes next", i, instruction->collective,
                         next);
        if (stream >= 0 && instruction->stream != stream)
            return FAULT(rank, "instruction %zu: operations on streams %d and %d", i, stream, instruction->stream);
        if (program->sections.items[instruction->section].repeat != 1 || instruction->deferred)
            return FAULT(rank, "instruction %zu: an operation that is not made once a step", i);
        stream = instruction->stream;
        next++;
    }
    if (next != (int32_t)program->collectives.count)
        return FAULT(rank, "%d of %zu operations are made", next, program->collectives.count);
    return STATUS_OK;
}

static enum status check_lists(const struct program *const *programs, int ranks) {
    const struct program *first = programs[0];
    for (int r = 0; r < ranks; r++) {
        const struct program *program = programs[r];
        if (program->place.rank != r || rank_place_ranks(&program->place) != ranks || !same_place(program, first))
            return FAULT(r, "it is not for rank %d of %d on the mesh of rank 0", r, ranks);
        if (program->collectives.count != first->collectives.count)
            return FAULT(r, "%zu operations, rank 0 has %zu", program->collectives.count, first->collectives.count);
        for (size_t c = 0; c < first->collectives.count; c++) {
            const struct program_collective *mine = &program->collectives.items[c],
                                            *theirs = &first->collectives.items[c];
            if (mine->kind != theirs->kind || mine->bytes != theirs->bytes ||
                !same_empty(mine->empty, theirs->empty, ranks))
                return FAULT(r, "operation %zu is another than that of rank 0", c);
        }
        TRY(check_order(program, r));
    }
    return STATUS_OK;
}

/* The instruction's staging is what the schedule takes, and the traffic what it moves. */
static enum status check_schedule(const struct program *program, int32_t collective,
                                  const struct comm_schedule *schedule) {
    const struct program_collective *operation = &program->collectives.items[collective];
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (instruction->opcode != OPCODE_ALL_REDUCE || instruction->collective != collective) continue;
        const struct operand *staging = &instruction->operands[OPERAND_WORKSPACE];
        if ((staging->buffer < 0 ? 0 : staging->bytes) < schedule->staging_bytes)
            return FAULT(program->place.rank, "instruction %zu: staging of %lld bytes, its operation takes %lld", i,
                         (long long)(staging->buffer < 0 ? 0 : staging->bytes), (long long)schedule->staging_bytes);
    }
    if (memcmp(&operation->traffic, &schedule->traffic, sizeof operation->traffic) != 0)
        return FAULT(program->place.rank, "operation %d moves other bytes than it says", collective);
    return STATUS_OK;
}

static enum status make_schedule(const struct program *program, int32_t collective, struct comm_schedule *out) {
    struct lane_tree tree;
    struct comm_spec spec;
    enum status status = collectives_spec(program, collective, &tree, &spec);
    if (status == STATUS_OK)
        status = comm_schedule_create(&program->place.mesh, program->place.rank,
                                      rank_place_message_bytes(&program->place), &spec, out);
    lane_tree_free(&tree);
    return status;
}

/* `proved`: one of the same kind and size was walked before. */
static enum status verify_operation(const struct program *const *programs, int ranks, int32_t collective, bool proved) {
    struct comm_schedule *schedules = mem_array((size_t)ranks, sizeof *schedules);
    enum status status = schedules ? STATUS_OK : STATUS_FAILED;
    for (int r = 0; r < ranks && status == STATUS_OK; r++) {
        status = make_schedule(programs[r], collective, &schedules[r]);
        if (status == STATUS_OK) status = check_schedule(programs[r], collective, &schedules[r]);
    }
    if (status == STATUS_OK && !proved) {
        status = comm_schedules_verify(programs[0]->collectives.items[collective].kind, schedules, ranks);
        if (status != STATUS_OK) status = status_prefix(status, "program: operation %d", collective);
    }
    for (int r = 0; schedules && r < ranks; r++)
        comm_schedule_free(&schedules[r]);
    mem_free(schedules);
    return status;
}

static bool was_proved(const struct program *program, int32_t collective, int ranks) {
    const struct program_collective *own = &program->collectives.items[collective];
    for (int32_t c = 0; c < collective; c++) {
        const struct program_collective *other = &program->collectives.items[c];
        if (other->kind == own->kind && other->bytes == own->bytes && other->round_bf16 == own->round_bf16 &&
            same_empty(other->empty, own->empty, ranks))
            return true;
    }
    return false;
}

enum status program_verify_ranks(const struct program *const *programs, int ranks, const struct recipe *recipe) {
    TRY(check_lists(programs, ranks));
    for (int32_t c = 0; c < (int32_t)programs[0]->collectives.count; c++)
        TRY(verify_operation(programs, ranks, c, was_proved(programs[0], c, ranks)));
    return program_verify_sums(programs, ranks, recipe);
}
