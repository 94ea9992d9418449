/* The proof of all ranks, or of a single rank, finds a fault planted in the programs of partitioned steps. */
#include <string.h>

#include "compiler/program.h"
#include "support/compile_proved.h"
#include "support/fault_sweep.h"
#include "support/small_graph.h"
#include "support/unit.h"

enum { RANKS = 4 };

struct ranks {
    struct plan plan;
    struct program *programs[RANKS];
};

static enum status verify(const struct ranks *ranks) {
    return program_verify_ranks((const struct program *const *)ranks->programs, RANKS, &ranks->plan.recipe);
}

static void compile(const struct graph *graph, const struct partition *partition, struct ranks *out) {
    int64_t *bytes = small_graph_workspace(graph);
    struct workspace_table table = {.bytes = bytes, .count = (int)graph->nodes.count};
    struct plan plan = small_plan(graph, 8, 1);
    plan.recipe.lanes = (struct lane_shape){1, 8};
    plan.recipe.round_micro_batches = 1;
    plan.policy.lookahead = 1;
    plan.policy.buffers = 4;
    plan.policy.partition = *partition;
    plan.place.mesh = (struct mesh){2, 2};
    plan.place.in_place = true;
    out->plan = plan;
    for (int r = 0; r < RANKS; r++) {
        plan.place.rank = r;
        if (program_compile_proved(graph, &plan, &table, &out->programs[r]) != STATUS_OK)
            fail_msg("%s", status_message());
    }
    mem_free(bytes);
}

static void drop(struct ranks *ranks) {
    for (int r = 0; r < RANKS; r++)
        program_free(ranks->programs[r]);
}

static struct graph *make_graph(void) {
    return small_graph_build(&(struct small_graph_options){.layers = 2,
                                                           .tied = true,
                                                           .dtype = DTYPE_BF16,
                                                           .micro_batch_sequences = 2,
                                                           .sequence_length = 4,
                                                           .vocabulary = 3000});
}

/* ---- what is looked for ---- */

typedef bool is_wanted(const struct program *program, const struct instruction *instruction);

static bool is_update(const struct program *program, const struct instruction *instruction) {
    (void)program;
    return instruction->node && instruction->node->out[0]->kind == TENSOR_PARAMETER;
}

static bool is_partial_update(const struct program *program, const struct instruction *instruction) {
    return is_update(program, instruction) && instruction->elements > 0;
}

/* Of updated parameters. */
static bool is_update_gather(const struct program *program, const struct instruction *instruction) {
    const struct buffer *buffer = &program->buffers.items[instruction->operands[OP_INPUTS_MAX].buffer];
    return instruction->opcode == OPCODE_ALL_GATHER && buffer->kind == BUFFER_PARAMETERS && buffer->persistent;
}

static bool is_whole_gather(const struct program *program, const struct instruction *instruction) {
    const struct buffer *buffer = &program->buffers.items[instruction->operands[OP_INPUTS_MAX].buffer];
    return instruction->opcode == OPCODE_ALL_GATHER && buffer->kind == BUFFER_PARAMETERS && !buffer->persistent;
}

static bool is_norm_gather(const struct program *program, const struct instruction *instruction) {
    const struct buffer *buffer = &program->buffers.items[instruction->operands[OP_INPUTS_MAX].buffer];
    return instruction->opcode == OPCODE_ALL_GATHER && buffer->kind == BUFFER_RESULTS;
}

static bool is_take(const struct program *program, const struct instruction *instruction) {
    (void)program;
    return instruction->opcode == OPCODE_TAKE;
}

static struct instruction *find(struct program *program, is_wanted *wanted) {
    for (size_t i = program->instructions.count; i-- > 0;)
        if (wanted(program, &program->instructions.items[i])) return &program->instructions.items[i];
    fail_msg("rank %d: there is no such instruction", program->place.rank);
    return NULL;
}

/* The operation is left out: an instruction that writes nothing stands in its place. */
static void leave_out(struct program *program, struct instruction *instruction) {
    size_t at = (size_t)instruction->collective;
    memmove(program->collectives.items + at, program->collectives.items + at + 1,
            (program->collectives.count - at - 1) * sizeof *program->collectives.items);
    program->collectives.count--;
    for (size_t i = 0; i < program->instructions.count; i++)
        if (opcode_is_collective(program->instructions.items[i].opcode) &&
            program->instructions.items[i].collective > (int32_t)at)
            program->instructions.items[i].collective--;
    instruction->opcode = OPCODE_ZERO;
    instruction->operands[OP_INPUTS_MAX].bytes = 0;
}

/* ---- faults ---- */

static void update_too_few_elements(struct ranks *ranks) {
    struct instruction *update = find(ranks->programs[1], is_partial_update);
    update->elements -= 1;
    for (int k = 0; k < OPERANDS_MAX; k++)
        if (update->operands[k].bytes >= update->elements)
            update->operands[k].bytes -= update->operands[k].bytes / (update->elements + 1);
}

static bool is_clip_factor(const struct program *program, const struct instruction *instruction) {
    (void)program;
    return instruction->node && strcmp(instruction->node->op->name, "clip_factor") == 0;
}

/* In the place of something that the proof does not follow. */
static void update_twice(struct ranks *ranks) {
    struct program *program = ranks->programs[1];
    *find(program, is_clip_factor) = *find(program, is_update);
}

/* Before the update instead of behind it. */
static void gather_stale_shards(struct ranks *ranks) {
    for (int r = 0; r < RANKS; r++) {
        struct program *program = ranks->programs[r];
        struct instruction *gather = find(program, is_update_gather), *update = gather;
        int32_t original = gather->operands[OP_INPUTS_MAX].buffer;
        while (!(is_update(program, update) && update->operands[OP_INPUTS_MAX].buffer == original)) {
            if (update == program->instructions.items) break; /* the rank has none of it to update */
            update--;
        }
        if (update == program->instructions.items) continue;
        struct instruction swapped = *gather;
        memmove(update + 1, update, (size_t)(gather - update) * sizeof *update);
        *update = swapped;
    }
}

static void miss_gathers(struct ranks *ranks, is_wanted *wanted) {
    for (int r = 0; r < RANKS; r++)
        leave_out(ranks->programs[r], find(ranks->programs[r], wanted));
}
static void miss_gather_after_update(struct ranks *ranks) { miss_gathers(ranks, is_update_gather); }
static void miss_gather_of_norms(struct ranks *ranks) { miss_gathers(ranks, is_norm_gather); }
static void miss_gather_alone(struct ranks *ranks) {
    leave_out(ranks->programs[2], find(ranks->programs[2], is_update_gather));
}

static int swapped[RANKS];

static void swap_owners(struct program *program, is_wanted *wanted) {
    struct program_collective *operation = &program->collectives.items[find(program, wanted)->collective];
    for (int b = 0; b < operation->group.count; b++)
        swapped[b] = operation->owner[b ^ 1];
    operation->owner = swapped;
}

static void have_another_owner(struct ranks *ranks) { swap_owners(ranks->programs[3], is_whole_gather); }
static void have_wrong_owners(struct ranks *ranks) {
    for (int r = 0; r < RANKS; r++)
        swap_owners(ranks->programs[r], is_whole_gather);
}

static void size_on_the_wrong_group(struct ranks *ranks) {
    for (int r = 0; r < RANKS; r++) {
        struct instruction *gather = find(ranks->programs[r], is_whole_gather);
        ranks->programs[r]->collectives.items[gather->collective].block_bytes *= 2;
    }
}

static void take_another_rank_s_part(struct ranks *ranks) {
    struct instruction *take = find(ranks->programs[0], is_take);
    take->operands[0].offset += take->operands[0].bytes;
}

static void leave_moments_to_nobody(struct ranks *ranks) {
    for (int r = 0; r < RANKS; r++)
        for (size_t b = 0; b < ranks->programs[r]->buffers.count; b++) {
            struct buffer *buffer = &ranks->programs[r]->buffers.items[b];
            if (buffer->kind != BUFFER_OPTIMIZER || !buffer->persistent) continue;
            for (int32_t m = 0; m < buffer->pack->count; m++)
                if (buffer->pack->members[m].elements > SHARD_BLOCK) {
                    buffer->pack->members[m].elements -= SHARD_BLOCK;
                    return;
                }
        }
}

static void faults_are_found(void **state) {
    (void)state;
    static const struct {
        const char *what;
        struct partition partition;
        void (*plant)(struct ranks *ranks);
        const char *message;
    } faults[] = {
        {"an element that nobody updates", {1, 1, 4}, update_too_few_elements, "leaves embedding"},
        {"an update made twice", {1, 4, 4}, update_twice, "leaves"},
        {"a gather of stale shards", {1, 4, 4}, gather_stale_shards, "leaves"},
        {"a missing gather after the update", {2, 2, 4}, miss_gather_after_update, "leaves"},
        {"a missing gather of norms", {1, 4, 4}, miss_gather_of_norms, "norm"},
        {"a gather that one rank leaves out", {1, 1, 4}, miss_gather_alone, "rank 2"},
        {"another owner than others believe", {4, 4, 4}, have_another_owner, "is another than"},
        {"wrong owners that all believe", {4, 4, 4}, have_wrong_owners, "gathers data to another place"},
        {"a shard sized on the wrong group", {4, 4, 4}, size_on_the_wrong_group, "moves other bytes"},
        {"another rank's part of a sum", {1, 4, 4}, take_another_rank_s_part, "another place than its own"},
        {"moments that nobody has", {1, 1, 4}, leave_moments_to_nobody, "run of"},
    };
    struct graph *graph = make_graph();
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
        struct ranks ranks;
        compile(graph, &faults[f].partition, &ranks);
        if (verify(&ranks) != STATUS_OK) fail_msg("%s", status_message());
        faults[f].plant(&ranks);
        if (verify(&ranks) == STATUS_OK) fail_msg("%s: not found", faults[f].what);
        print_message("%s: %s\n", faults[f].what, status_message());
        if (!strstr(status_message(), faults[f].message))
            fail_msg("%s: '%s' is not in '%s'", faults[f].what, faults[f].message, status_message());
        drop(&ranks);
    }
    graph_free(graph);
}

/* ---- waits for operations ---- */

static bool fails_without(struct program *program, struct instruction *instruction, int32_t wait) {
    int32_t waited = instruction->waits[wait];
    memmove(instruction->waits + wait, instruction->waits + wait + 1,
            (size_t)(instruction->wait_count - wait - 1) * sizeof waited);
    instruction->wait_count--;
    bool fails = program_verify(program) == STATUS_FAILED;
    memmove(instruction->waits + wait + 1, instruction->waits + wait,
            (size_t)(instruction->wait_count - wait) * sizeof waited);
    instruction->waits[wait] = waited;
    instruction->wait_count++;
    return fails;
}

/* Whoever reads what is gathered, or uses a window again of which peers may still read, waits for the operation. */
static void a_window_is_not_used_while_peers_read_it(void **state) {
    (void)state;
    struct graph *graph = make_graph();
    struct ranks ranks;
    int waits = 0, found = 0;
    compile(graph, &(struct partition){4, 4, 4}, &ranks);
    struct program *program = ranks.programs[1];
    for (size_t i = 0; i < program->instructions.count; i++) {
        struct instruction *instruction = &program->instructions.items[i];
        for (int32_t w = 0; w < instruction->wait_count; w++) {
            if (!opcode_is_collective(program->instructions.items[instruction->waits[w]].opcode)) continue;
            waits++;
            found += fails_without(program, instruction, w);
        }
    }
    print_message("%d of %d waits for operations are missed\n", found, waits);
    assert_true(found > 10);
    drop(&ranks);
    graph_free(graph);
}

static enum status verify_again(void *payload) { return verify(payload); }

static void allocations_of_the_proof_may_fail(void **state) {
    (void)state;
    struct graph *graph = small_graph_build(&(struct small_graph_options){
        .layers = 1, .dtype = DTYPE_F32, .micro_batch_sequences = 1, .sequence_length = 3, .vocabulary = 1500});
    struct ranks ranks;
    compile(graph, &(struct partition){2, 4, 4}, &ranks);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, verify_again, &ranks) > 100);
    drop(&ranks);
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(faults_are_found),
                                       cmocka_unit_test(a_window_is_not_used_while_peers_read_it),
                                       cmocka_unit_test(allocations_of_the_proof_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
