/* The proof that the programs of all ranks fit together. */
#include "compiler/verify/verify.h"

#include "collective/proof.h"
#include "compiler/program.h"

#define RANK_FAULT(rank, ...) status_prefix(status_set(STATUS_FAILED, __VA_ARGS__), "program: rank %d", rank)

/* How far a rank is in making its operations, and then in its step. */
struct cursor {
    const struct program *program;
    size_t section;
    int64_t run;                                /* of the section */
    int32_t next;                               /* instruction of it */
    const struct instruction *instruction;      /* of the step: that it waits at */
    const struct program_collective *operation; /* that comes next; NULL: none does */
    int64_t made;                               /* operations so far */
};

struct matching {
    struct scratch memory;
    int ranks;
    bool steps; /* else ranks make their operations before the first step, in the order of their lists */
    struct cursor *cursors;
    int32_t **number; /* by rank and operation: which of all ranks' it is; those of a group with one number were made
                         together (comm_create) */
    int32_t made;     /* numbers so far */
    int32_t *turn;    /* what the visitor gets */
};

/* Whether two ranks' collectives do the same, apart from buffers. */
static bool program_collective_resembles(const struct program_collective *a, const struct program_collective *b,
                                         int ranks) {
    bool same_node = !a->node == !b->node && (!a->node || strcmp(a->node->name, b->node->name) == 0);
    return a->kind == b->kind && same_node && a->round_bf16 == b->round_bf16 && a->round_sum == b->round_sum &&
           a->bytes == b->bytes && a->block_bytes == b->block_bytes && a->apart == b->apart && a->root == b->root &&
           comm_same_group(&a->group, &b->group) && comm_same_owners(a->owner, b->owner, a->group.count) &&
           comm_same_empty(a->empty, b->empty, ranks);
}

static bool program_collective_matches(const struct program_collective *a, const struct program_collective *b,
                                       int ranks) {
    bool same_tensor = !a->tensor == !b->tensor && (!a->tensor || a->tensor->id == b->tensor->id);
    return same_tensor && a->micro_batch == b->micro_batch && program_collective_resembles(a, b, ranks);
}

/* Moves on to the rank's next operation. */
static void seek(const struct matching *matching, struct cursor *cursor) {
    const struct program *program = cursor->program;
    cursor->operation = NULL;
    if (!matching->steps && cursor->made < (int64_t)program->collectives.count)
        cursor->operation = &program->collectives.items[cursor->made];
    for (; matching->steps && cursor->section < program->sections.count; cursor->section++, cursor->run = 0) {
        const struct section *section = &program->sections.items[cursor->section];
        for (; cursor->run < section->repeat; cursor->run++, cursor->next = 0)
            while (cursor->next < section->count) {
                cursor->instruction = &program->instructions.items[section->first + cursor->next++];
                if (!opcode_is_collective(cursor->instruction->opcode)) continue;
                cursor->operation = &program->collectives.items[cursor->instruction->collective];
                return;
            }
    }
}

static int32_t operation_index(const struct cursor *cursor) {
    return (int32_t)(cursor->operation - cursor->program->collectives.items);
}

static bool matches(const struct matching *matching, int rank, int other) {
    const struct cursor *mine = &matching->cursors[rank], *theirs = &matching->cursors[other];
    if (!mine->operation || !theirs->operation) return false;
    if (!matching->steps) return program_collective_matches(mine->operation, theirs->operation, matching->ranks);
    return matching->number[rank][operation_index(mine)] == matching->number[other][operation_index(theirs)] &&
           mine->instruction->deferred == theirs->instruction->deferred &&
           (!mine->operation->node || mine->instruction->micro_batch == theirs->instruction->micro_batch);
}

static bool is_ready(const struct matching *matching, int rank) {
    const struct program_collective *own = matching->cursors[rank].operation;
    for (int i = 0; own && i < own->group.count; i++)
        if (!matches(matching, rank, mesh_group_rank(&own->group, i))) return false;
    return own;
}

/* Nobody is ready. Somebody waits for a rank that has something else next, or nothing. */
static enum status name_fault(const struct matching *matching) {
    for (int rank = 0; rank < matching->ranks; rank++) {
        const struct program_collective *own = matching->cursors[rank].operation;
        for (int i = 0; own && i < own->group.count; i++) {
            int other = mesh_group_rank(&own->group, i);
            long long made = matching->cursors[other].made, mine = matching->cursors[rank].made;
            if (matches(matching, rank, other)) continue;
            if (!matching->cursors[other].operation)
                return RANK_FAULT(other, "%lld operations, rank %d has more, which wait for it", made, rank);
            return RANK_FAULT(other, "operation %lld is another than operation %lld of rank %d, which waits for it",
                              made, mine, rank);
        }
    }
    BUG("ranks wait, and each is ready");
}

/* Makes what is ready; *over: nothing is left. */
static enum status take_turn(struct matching *matching, matching_visitor *visitor, void *payload, bool *over) {
    int ready = 0, left = 0;
    for (int rank = 0; rank < matching->ranks; rank++) {
        bool now = is_ready(matching, rank);
        matching->turn[rank] = now ? operation_index(&matching->cursors[rank]) : -1;
        ready += now;
        left += matching->cursors[rank].operation != NULL;
    }
    *over = left == 0;
    if (left == 0) return STATUS_OK;
    if (ready == 0) return name_fault(matching);
    TRY(visitor(payload, matching->turn));
    for (int rank = 0; rank < matching->ranks; rank++) {
        if (matching->turn[rank] < 0) continue;
        matching->cursors[rank].made++;
        seek(matching, &matching->cursors[rank]);
    }
    return STATUS_OK;
}

/* Operations that are made together get one number, which differs from that of others in the turn by the group. */
static enum status number_operations(void *payload, const int32_t *operations) {
    struct matching *matching = payload;
    for (int rank = 0; rank < matching->ranks; rank++)
        if (operations[rank] >= 0)
            matching->number[rank][operations[rank]] = matching->made + matching->cursors[rank].operation->group.first;
    matching->made += matching->ranks;
    return STATUS_OK;
}

static enum status walk(struct matching *matching, const struct program *const *programs, matching_visitor *visitor,
                        void *payload) {
    for (int rank = 0; rank < matching->ranks; rank++) {
        matching->cursors[rank] = (struct cursor){.program = programs[rank]};
        seek(matching, &matching->cursors[rank]);
    }
    for (bool over = false; !over;)
        TRY(take_turn(matching, visitor, payload, &over));
    return STATUS_OK;
}

static enum status match(struct matching *matching, const struct program *const *programs, matching_visitor *visitor,
                         void *payload) {
    size_t ranks = (size_t)matching->ranks;
    TRY(scratch_items(&matching->memory, &matching->cursors, ranks));
    TRY(scratch_items(&matching->memory, &matching->number, ranks));
    TRY(scratch_items(&matching->memory, &matching->turn, ranks));
    for (size_t rank = 0; rank < ranks; rank++)
        TRY(scratch_items(&matching->memory, &matching->number[rank], programs[rank]->collectives.count + 1));
    TRY(walk(matching, programs, number_operations, matching));
    matching->steps = true;
    return walk(matching, programs, visitor, payload);
}

enum status program_verify_matching(const struct program *const *programs, int ranks, matching_visitor *visitor,
                                    void *payload) {
    struct matching matching = {.ranks = ranks};
    enum status status = match(&matching, programs, visitor, payload);
    scratch_free(&matching.memory);
    return status;
}

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
            return RANK_FAULT(rank, "instruction %zu is operation %d, where %d comes next", i, instruction->collective,
                              next);
        if (stream >= 0 && instruction->stream != stream)
            return RANK_FAULT(rank, "instruction %zu: operations on streams %d and %d", i, stream, instruction->stream);
        stream = instruction->stream;
        next++;
    }
    if (next != (int32_t)program->collectives.count)
        return RANK_FAULT(rank, "%d of %zu operations are made", next, program->collectives.count);
    return STATUS_OK;
}

static enum status check_places(const struct program *const *programs, int ranks) {
    for (int r = 0; r < ranks; r++) {
        const struct program *program = programs[r];
        if (program->place.rank != r || rank_place_ranks(&program->place) != ranks || !same_place(program, programs[0]))
            return RANK_FAULT(r, "it is not for rank %d of %d on the mesh of rank 0", r, ranks);
        TRY(check_order(program, r));
    }
    return STATUS_OK;
}

/* The instruction's staging and traffic must be those of the schedule. */
static enum status check_schedule(const struct program *program, size_t i, const struct comm_schedule *schedule) {
    const struct instruction *instruction = &program->instructions.items[i];
    const struct program_collective *operation = &program->collectives.items[instruction->collective];
    const struct operand *staging = &instruction->operands[OPERAND_WORKSPACE];
    if ((staging->buffer < 0 ? 0 : staging->bytes) < schedule->staging_bytes)
        return RANK_FAULT(program->place.rank, "instruction %zu: staging of %lld bytes, its operation takes %lld", i,
                          (long long)(staging->buffer < 0 ? 0 : staging->bytes), (long long)schedule->staging_bytes);
    if (memcmp(&operation->traffic, &schedule->traffic, sizeof operation->traffic) != 0)
        return RANK_FAULT(program->place.rank, "operation %d moves other bytes than it says", instruction->collective);
    return STATUS_OK;
}

/* The ranks' views of one operation. */
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
    TRY(mem_items(&out->specs, ranks));
    TRY(mem_items(&out->trees, ranks));
    TRY(mem_items(&out->schedules, ranks));
    for (int r = 0; r < turns->ranks; r++)
        if (operations[r] >= 0) TRY(make_schedule(turns->programs[r], operations[r], out));
    return comm_schedules_verify(out->specs, out->schedules, turns->ranks);
}

/* Verifies the operations that ranks create at the same time. Each group of ranks may have one. */
static enum status verify_turn(void *payload, const int32_t *operations) {
    struct turns *turns = payload;
    struct operation operation = {.specs = NULL};
    int first = 0;
    if (was_proved(turns, operations)) return STATUS_OK;
    while (operations[first] < 0)
        first++;
    enum status status = prove(turns, operations, &operation);
    status = status_prefix(status, "program: operation %d of rank %d", operations[first], first);
    free_operation(&operation, turns->ranks);
    for (int r = 0; r < turns->ranks && status == STATUS_OK; r++)
        status = vec_push(&turns->proved, operations[r]);
    return status;
}

static enum status verify_operation(const struct program *program, size_t instruction) {
    AUTO(lane_tree_free) struct lane_tree tree = {0};
    struct comm_spec spec;
    AUTO(comm_schedule_free) struct comm_schedule schedule = {.staging_bytes = 0};
    TRY(collectives_spec(program, program->instructions.items[instruction].collective, &tree, &spec));
    TRY(comm_schedule_create(&program->place.mesh, program->place.rank, rank_place_message_bytes(&program->place),
                             &spec, &schedule));
    return check_schedule(program, instruction, &schedule);
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
