#include "compiler/verify_matching.h"

#include <string.h>

#define FAULT(rank, ...) status_prefix(status_set(STATUS_FAILED, __VA_ARGS__), "program: rank %d", rank)

/* How far a rank is in its step. */
struct cursor {
    const struct program *program;
    size_t section;
    int64_t run;     /* of the section */
    int32_t next;    /* instruction */
    int32_t waiting; /* at this one; -1: the step is over */
    int64_t made;    /* operations so far */
};

struct matching {
    int ranks;
    struct cursor *cursors;
    int32_t **number; /* by rank and operation: which of all ranks' it is; those of a group with one number were made
                         together (comm_create) */
    int32_t *turn;    /* what the visitor gets */
};

static bool same_empty(const bool *a, const bool *b, int ranks) {
    for (int r = 0; r < ranks; r++)
        if ((a && a[r]) != (b && b[r])) return false;
    return true;
}

static bool same_owners(const int *a, const int *b, int blocks) {
    for (int i = 0; i < blocks; i++)
        if ((a ? a[i] : i) != (b ? b[i] : i)) return false;
    return true;
}

bool program_collective_resembles(const struct program_collective *a, const struct program_collective *b, int ranks) {
    bool same_group =
        a->group.first == b->group.first && a->group.stride == b->group.stride && a->group.count == b->group.count;
    bool same_node = !a->node == !b->node && (!a->node || strcmp(a->node->name, b->node->name) == 0);
    return a->kind == b->kind && same_node && a->round_bf16 == b->round_bf16 && a->round_sum == b->round_sum &&
           a->bytes == b->bytes && a->block_bytes == b->block_bytes && a->apart == b->apart && a->root == b->root &&
           same_group && same_owners(a->owner, b->owner, a->group.count) && same_empty(a->empty, b->empty, ranks);
}

static bool program_collective_matches(const struct program_collective *a, const struct program_collective *b,
                                       int ranks) {
    bool same_tensor = !a->tensor == !b->tensor && (!a->tensor || a->tensor->id == b->tensor->id);
    return same_tensor && a->micro_batch == b->micro_batch && program_collective_resembles(a, b, ranks);
}

/* Moves on to the rank's next operation. */
static void seek(struct cursor *cursor) {
    const struct program *program = cursor->program;
    for (; cursor->section < program->sections.count; cursor->section++, cursor->run = 0) {
        const struct section *section = &program->sections.items[cursor->section];
        for (; cursor->run < section->repeat; cursor->run++, cursor->next = 0)
            while (cursor->next < section->count) {
                cursor->waiting = section->first + cursor->next++;
                if (opcode_is_collective(program->instructions.items[cursor->waiting].opcode)) return;
            }
    }
    cursor->waiting = -1;
}

static const struct instruction *waiting(const struct matching *matching, int rank) {
    const struct cursor *cursor = &matching->cursors[rank];
    return cursor->waiting < 0 ? NULL : &cursor->program->instructions.items[cursor->waiting];
}

static const struct program_collective *operation_of(const struct matching *matching, int rank) {
    const struct instruction *instruction = waiting(matching, rank);
    return instruction ? &matching->cursors[rank].program->collectives.items[instruction->collective] : NULL;
}

static bool matches(const struct matching *matching, int rank, int other) {
    const struct program_collective *mine = operation_of(matching, rank), *theirs = operation_of(matching, other);
    return mine && theirs &&
           matching->number[rank][waiting(matching, rank)->collective] ==
               matching->number[other][waiting(matching, other)->collective] &&
           waiting(matching, rank)->deferred == waiting(matching, other)->deferred &&
           (!mine->node || waiting(matching, rank)->micro_batch == waiting(matching, other)->micro_batch);
}

static bool is_ready(const struct matching *matching, int rank) {
    const struct program_collective *own = operation_of(matching, rank);
    for (int i = 0; own && i < own->group.count; i++)
        if (!matches(matching, rank, mesh_group_rank(&own->group, i))) return false;
    return own;
}

/* ---- before the first step: ranks make their operations in the order of their lists ---- */

static const struct program_collective *next_of(const struct matching *matching, const int32_t *next, int rank) {
    const struct program *program = matching->cursors[rank].program;
    return next[rank] < (int32_t)program->collectives.count ? &program->collectives.items[next[rank]] : NULL;
}

/* Whether the rank's next is that of its whole group. */
static bool can_be_made(const struct matching *matching, const int32_t *next, int rank) {
    const struct program_collective *own = next_of(matching, next, rank);
    for (int i = 0; own && i < own->group.count; i++) {
        const struct program_collective *other = next_of(matching, next, mesh_group_rank(&own->group, i));
        if (!other || !program_collective_matches(own, other, matching->ranks)) return false;
    }
    return own;
}

static enum status name_unmade(const struct matching *matching, const int32_t *next) {
    for (int rank = 0; rank < matching->ranks; rank++) {
        const struct program_collective *own = next_of(matching, next, rank);
        for (int i = 0; own && i < own->group.count; i++) {
            int other = mesh_group_rank(&own->group, i);
            const struct program_collective *theirs = next_of(matching, next, other);
            if (theirs && program_collective_matches(own, theirs, matching->ranks)) continue;
            if (!theirs) return FAULT(other, "%d operations, rank %d has more, which wait for it", next[other], rank);
            return FAULT(other, "operation %d is another than operation %d of rank %d, which waits for it", next[other],
                         next[rank], rank);
        }
    }
    return STATUS_OK;
}

static enum status number_operations(struct matching *matching) {
    int32_t *next = mem_array((size_t)matching->ranks, sizeof *next), made = 0;
    if (!next) return STATUS_FAILED;
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < matching->ranks; rank++) {
            if (!can_be_made(matching, next, rank)) continue;
            struct comm_group group = next_of(matching, next, rank)->group;
            for (int i = 0; i < group.count; i++) {
                int member = mesh_group_rank(&group, i);
                matching->number[member][next[member]++] = made;
            }
            made++;
            moved = true;
        }
    }
    enum status status = name_unmade(matching, next);
    mem_free(next);
    return status;
}

/* ---- a step ---- */

/* Nobody is ready. Somebody waits for a rank that has something else next, or nothing. */
static enum status name_fault(const struct matching *matching) {
    for (int rank = 0; rank < matching->ranks; rank++) {
        const struct program_collective *own = operation_of(matching, rank);
        for (int i = 0; own && i < own->group.count; i++) {
            int other = mesh_group_rank(&own->group, i);
            long long made = matching->cursors[other].made, mine = matching->cursors[rank].made;
            if (matches(matching, rank, other)) continue;
            if (!operation_of(matching, other))
                return FAULT(other, "%lld operations, rank %d has more, which wait for it", made, rank);
            return FAULT(other, "operation %lld is another than operation %lld of rank %d, which waits for it", made,
                         mine, rank);
        }
    }
    BUG("ranks wait, and each is ready");
}

/* Whether an operation was made, or the step is over. */
static enum status take_turn(struct matching *matching, matching_visitor *visitor, void *payload, bool *over) {
    int ready = 0, left = 0;
    for (int rank = 0; rank < matching->ranks; rank++) {
        const struct instruction *instruction = waiting(matching, rank);
        bool now = is_ready(matching, rank);
        matching->turn[rank] = now ? instruction->collective : -1;
        ready += now;
        left += instruction != NULL;
    }
    *over = left == 0;
    if (left == 0) return STATUS_OK;
    if (ready == 0) return name_fault(matching);
    TRY(visitor(payload, matching->turn));
    for (int rank = 0; rank < matching->ranks; rank++) {
        if (matching->turn[rank] < 0) continue;
        matching->cursors[rank].made++;
        seek(&matching->cursors[rank]);
    }
    return STATUS_OK;
}

static enum status begin_rank(struct matching *matching, int rank, const struct program *program) {
    matching->cursors[rank] = (struct cursor){.program = program};
    seek(&matching->cursors[rank]);
    matching->number[rank] = mem_array(program->collectives.count + 1, sizeof **matching->number);
    return matching->number[rank] ? STATUS_OK : STATUS_FAILED;
}

enum status program_verify_matching(const struct program *const *programs, int ranks, matching_visitor *visitor,
                                    void *payload) {
    struct matching matching = {.ranks = ranks,
                                .cursors = mem_array((size_t)ranks, sizeof *matching.cursors),
                                .number = mem_array((size_t)ranks, sizeof *matching.number),
                                .turn = mem_array((size_t)ranks, sizeof *matching.turn)};
    enum status status = matching.cursors && matching.number && matching.turn ? STATUS_OK : STATUS_FAILED;
    for (int rank = 0; rank < ranks && status == STATUS_OK; rank++)
        status = begin_rank(&matching, rank, programs[rank]);
    if (status == STATUS_OK) status = number_operations(&matching);
    for (bool over = false; !over && status == STATUS_OK;)
        status = take_turn(&matching, visitor, payload, &over);
    for (int rank = 0; matching.number && rank < ranks; rank++)
        mem_free(matching.number[rank]);
    mem_free(matching.number);
    mem_free(matching.cursors);
    mem_free(matching.turn);
    return status;
}
