/* Faults of copies, tiers, deferred updates and recomputation, planted in a program that has all of these. */
#include "support/planted_fault.h"
#include "support/small_graph.h"
#include "support/unit.h"

#include <stdio.h>
#include <string.h>

static struct graph *graph;

/* Blocks: embedding, three layers, head; each chunk holds about one. */
static const struct policy everywhere = {.micro_batches_per_wave = 2,
                                         .chunk_bytes = 8192,
                                         .buffers = 3,
                                         .lookahead = 1,
                                         .parameters = TIER_DISK,
                                         .gradients = TIER_HOST,
                                         .optimizer = TIER_DISK,
                                         .update = TIER_HOST,
                                         .schedule = "f0-4 h1 d2 b4 f3 b3-0"};

static int build_graph(void **state) {
    (void)state;
    graph = small_graph_build(&(struct small_graph_options){.layers = 3,
                                                            .tied = true,
                                                            .packed_qkv = true,
                                                            .dtype = DTYPE_BF16,
                                                            .micro_batch_sequences = 2,
                                                            .sequence_length = 5});
    return 0;
}

static int free_graph(void **state) {
    (void)state;
    graph_free(graph);
    return 0;
}

static bool is_fetch(const struct program *program, const struct instruction *copy) {
    return program->buffers.items[copy->operands[OP_INPUTS_MAX].buffer].original == copy->operands[0].buffer;
}

/* The copy's side at the home tier. */
static const struct buffer *original_of(const struct program *program, const struct instruction *copy) {
    int k = is_fetch(program, copy) ? 0 : OP_INPUTS_MAX;
    return &program->buffers.items[copy->operands[k].buffer];
}

/* The first fetch or store of what is of a kind and lives in a tier, from instruction `from` on. */
static struct instruction *find_copy(struct program *program, bool fetch, enum buffer_kind kind, enum tier home_tier,
                                     int32_t from) {
    for (int32_t i = from; i < (int32_t)program->instructions.count; i++) {
        struct instruction *copy = &program->instructions.items[i];
        if (copy->opcode != OPCODE_COPY || is_fetch(program, copy) != fetch) continue;
        const struct buffer *buffer = original_of(program, copy);
        if (buffer->kind == kind && buffer->tier == home_tier) return copy;
    }
    fail_msg("no %s of %s in the %s tier", fetch ? "fetch" : "store", buffer_kind_name(kind), tier_name(home_tier));
    return NULL;
}
static int32_t index_of(const struct program *program, const struct instruction *instruction) {
    return (int32_t)(instruction - program->instructions.items);
}
static struct instruction *find_fetch(struct program *program, enum buffer_kind kind, enum tier home_tier) {
    return find_copy(program, true, kind, home_tier, 0);
}
static struct instruction *find_store(struct program *program, enum buffer_kind kind, enum tier home_tier) {
    return find_copy(program, false, kind, home_tier, 0);
}
static struct instruction *some_fetch(struct program *program) {
    return find_fetch(program, BUFFER_PARAMETERS, TIER_DISK);
}
static struct operand *source(struct instruction *copy) { return &copy->operands[0]; }
static struct operand *target(struct instruction *copy) { return &copy->operands[OP_INPUTS_MAX]; }

/* ---- the form of copies ---- */

/* The bytes of one chunk where those of another belong. */
static void fetch_of_another_chunk(struct program *program) {
    struct instruction *fetch = some_fetch(program), *other = fetch;
    do
        other = find_copy(program, true, BUFFER_PARAMETERS, TIER_DISK, index_of(program, other) + 1);
    while (source(other)->buffer == source(fetch)->buffer);
    *target(fetch) = *target(other);
}
static void fetch_to_a_sibling(struct program *program) {
    struct instruction *fetch = some_fetch(program), *other = fetch;
    do
        other = find_copy(program, true, BUFFER_PARAMETERS, TIER_DISK, index_of(program, other) + 1);
    while (source(other)->buffer != source(fetch)->buffer);
    *source(fetch) = *target(other);
    source(fetch)->access = ACCESS_READ;
}
static void copy_within_a_tier(struct program *program) {
    struct buffer *copy = buffer_of(program, target(some_fetch(program)));
    copy->tier = TIER_DISK;
    copy->offset = 0;
}
static void copy_of_a_part(struct program *program) {
    struct instruction *fetch = some_fetch(program);
    source(fetch)->bytes -= BUFFER_ALIGNMENT;
    target(fetch)->bytes -= BUFFER_ALIGNMENT;
}
static void copy_of_the_rest(struct program *program) {
    struct instruction *fetch = some_fetch(program);
    copy_of_a_part(program);
    source(fetch)->offset = target(fetch)->offset = BUFFER_ALIGNMENT;
}
static void copy_to_a_smaller(struct program *program) {
    struct instruction *fetch = some_fetch(program);
    target(fetch)->bytes = buffer_of(program, target(fetch))->bytes -= BUFFER_ALIGNMENT;
}
static void copy_of_columns(struct program *program) {
    source(some_fetch(program))->row_bytes = source(some_fetch(program))->row_stride = 64;
}
static void copy_that_updates(struct program *program) { target(some_fetch(program))->access = ACCESS_UPDATE; }
static void copy_that_writes_its_source(struct program *program) { source(some_fetch(program))->access = ACCESS_WRITE; }
static void copy_from_nowhere(struct program *program) { source(some_fetch(program))->buffer = -1; }
static void copy_to_nowhere(struct program *program) { target(some_fetch(program))->buffer = -1; }
static void copy_to_two(struct program *program) {
    struct instruction *fetch = some_fetch(program);
    fetch->operands[OP_INPUTS_MAX + 1] = *target(fetch);
}
static void copy_in_another_section(struct program *program) { some_fetch(program)->section++; }
static void copy_of_a_copy(struct program *program) {
    struct instruction *fetch = some_fetch(program);
    struct instruction *other = find_copy(program, true, BUFFER_PARAMETERS, TIER_DISK, index_of(program, fetch) + 1);
    buffer_of(program, target(fetch))->original = target(other)->buffer;
}
static void disk_without_alignment(struct program *program) { program->alignment = BUFFER_ALIGNMENT; }
static void misaligned_on_disk(struct program *program) {
    buffer_of(program, source(some_fetch(program)))->offset += BUFFER_ALIGNMENT;
}
/* The last buffer's bytes are inside, the rest of its last block is not. */
static void half_a_block(struct program *program) { program->tier_bytes[TIER_DISK] -= BUFFER_ALIGNMENT; }

/* ---- operands ---- */

static struct instruction *some_reader(struct program *program) { return find_kernel(program, "rms_norm", 0); }
static struct operand *parameter_of(struct instruction *norm) { return &norm->operands[1]; }

static void operand_in_another_tier(struct program *program) {
    struct operand *operand = parameter_of(some_reader(program));
    operand->buffer = buffer_of(program, operand)->original;
}
static void kernel_in_another_tier(struct program *program) { some_reader(program)->tier = TIER_HOST; }
static void zero_in_another_tier(struct program *program) {
    for (size_t i = 0; i < program->instructions.count; i++)
        if (program->instructions.items[i].opcode == OPCODE_ZERO) program->instructions.items[i].tier = TIER_HOST;
}
static void workspace_in_another_tier(struct program *program) {
    for (size_t i = 0; i < program->instructions.count; i++) {
        struct operand *operand = &program->instructions.items[i].operands[OPERAND_WORKSPACE];
        if (operand->buffer < 0 || program->instructions.items[i].tier != TIER_DEVICE) continue;
        buffer_of(program, operand)->tier = TIER_HOST;
        buffer_of(program, operand)->offset = 0;
        return;
    }
}
static void copy_of_another_chunk(struct program *program) {
    struct instruction *norm = some_reader(program);
    struct operand *mine = parameter_of(norm);
    struct instruction *other = some_fetch(program);
    while (source(other)->buffer == buffer_of(program, mine)->original)
        other = find_copy(program, true, BUFFER_PARAMETERS, TIER_DISK, index_of(program, other) + 1);
    mine->buffer = target(other)->buffer;
    mine->offset = 0;
}
/* What the first wave fetched, in the second. */
static void copy_of_another_wave(struct program *program) {
    struct operand *then = parameter_of(some_reader(program));
    struct operand *now = parameter_of(find_kernel(program, "rms_norm", (size_t)program->sections.items[1].first));
    *now = *then;
    synchronise_again(program);
}
static void copy_of_another_micro_batch(struct program *program) {
    struct instruction *fetch = find_fetch(program, BUFFER_ACTIVATIONS, TIER_DISK), *other = fetch;
    const struct buffer *copy = buffer_of(program, target(fetch));
    do
        other = find_copy(program, true, BUFFER_ACTIVATIONS, TIER_DISK, index_of(program, other) + 1);
    while (buffer_of(program, target(other))->tensor != copy->tensor || other->micro_batch == fetch->micro_batch);
    int32_t mine = target(fetch)->buffer;
    for (size_t i = 0; i < program->instructions.count; i++)
        for (int k = 0; k < OP_INPUTS_MAX; k++) {
            struct operand *operand = &program->instructions.items[i].operands[k];
            if (program->instructions.items[i].node && operand->buffer == mine) operand->buffer = target(other)->buffer;
        }
    synchronise_again(program);
}
/* Backward reads the copy of an activation that another tensor of that size is in. */
static void copy_of_another_activation(struct program *program) {
    struct instruction *grad = find_kernel(program, "gated_activation_grad", 0);
    grad->operands[1].buffer = grad->operands[2].buffer;
    synchronise_again(program);
}

/* Nothing fetched the weights of a chunk, one of which is then not written before all are stored. */
static void update_left_out(struct program *program) {
    struct instruction *update = find_kernel(program, "adamw", 0), *next = update;
    do {
        update = next;
        next = find_kernel(program, "adamw", (size_t)index_of(program, update) + 1);
    } while (next->operands[OP_INPUTS_MAX].buffer != update->operands[OP_INPUTS_MAX].buffer);
    drop_instruction(program, index_of(program, next));
    synchronise_again(program);
}

/* ---- versions ---- */

static void drop_copy(struct program *program, const struct instruction *copy) {
    drop_instruction(program, index_of(program, copy));
    synchronise_again(program);
}
static void swap(struct program *program, int32_t first, int32_t second) {
    struct instruction *items = program->instructions.items, kept = items[first];
    items[first] = items[second];
    items[second] = kept;
    assert_int_equal(items[first].section, items[second].section);
    synchronise_again(program);
}
static void move_before(struct program *program, int32_t from, int32_t to) {
    struct instruction *items = program->instructions.items, moved = items[from];
    memmove(items + to + 1, items + to, (size_t)(from - to) * sizeof *items);
    items[to] = moved;
    synchronise_again(program);
}
static void no_fetch_of_parameters(struct program *program) { drop_copy(program, some_fetch(program)); }
static void no_fetch_of_gradients(struct program *program) {
    drop_copy(program, find_fetch(program, BUFFER_GRADIENTS, TIER_HOST));
}
static void no_fetch_of_state(struct program *program) {
    drop_copy(program, find_fetch(program, BUFFER_OPTIMIZER, TIER_DISK));
}
static void no_fetch_of_activations(struct program *program) {
    drop_copy(program, find_fetch(program, BUFFER_ACTIVATIONS, TIER_HOST));
}
static void no_store_of_parameters(struct program *program) {
    drop_copy(program, find_store(program, BUFFER_PARAMETERS, TIER_DISK));
}
static void no_store_of_gradients(struct program *program) {
    drop_copy(program, find_store(program, BUFFER_GRADIENTS, TIER_HOST));
}
static void no_store_of_state(struct program *program) {
    drop_copy(program, find_store(program, BUFFER_OPTIMIZER, TIER_DISK));
}
static void no_store_of_activations(struct program *program) {
    drop_copy(program, find_store(program, BUFFER_ACTIVATIONS, TIER_DISK));
}
/* The forward's weights are fetched before the update's have come home. */
static void fetch_before_store(struct program *program) {
    struct instruction *store = find_store(program, BUFFER_PARAMETERS, TIER_DISK), *fetch = store;
    do
        fetch = find_copy(program, true, BUFFER_PARAMETERS, TIER_DISK, index_of(program, fetch) + 1);
    while (source(fetch)->buffer != target(store)->buffer);
    swap(program, index_of(program, store), index_of(program, fetch));
}
static void store_of_state_before_the_update(struct program *program) {
    struct instruction *store = find_store(program, BUFFER_OPTIMIZER, TIER_DISK);
    for (int32_t i = index_of(program, store); i > 0; i--)
        for (int k = OP_INPUTS_MAX; k < OPERANDS_MAX; k++) {
            struct instruction *update = &program->instructions.items[i];
            if (!update->node || update->operands[k].buffer != source(store)->buffer) continue;
            move_before(program, index_of(program, store), i);
            return;
        }
    fail_msg("no update of what is stored");
}

/* ---- order ---- */

/* Without the waits of the first copy of that sort whose waits are needed. */
static void drop_waits_of(struct program *program, bool fetch, enum buffer_kind kind, enum tier home_tier) {
    for (int32_t from = 0;; from++) {
        struct instruction *copy = find_copy(program, fetch, kind, home_tier, from);
        from = index_of(program, copy);
        int32_t count = copy->wait_count;
        copy->wait_count = 0;
        if (program_verify(program) != STATUS_OK) return;
        copy->wait_count = count;
    }
}
static void fetch_beside_store(struct program *program) { drop_waits_of(program, true, BUFFER_PARAMETERS, TIER_DISK); }
static void store_beside_update(struct program *program) {
    drop_waits_of(program, false, BUFFER_PARAMETERS, TIER_DISK);
}
static void store_beside_backward(struct program *program) {
    drop_waits_of(program, false, BUFFER_GRADIENTS, TIER_HOST);
}
static void kernel_before_its_fetch(struct program *program) {
    for (size_t i = 0; i < program->instructions.count; i++) {
        struct instruction *kernel = &program->instructions.items[i];
        for (int32_t w = 0; w < kernel->wait_count && kernel->node; w++)
            if (program->instructions.items[kernel->waits[w]].opcode == OPCODE_COPY) {
                kernel->waits[w] = kernel->waits[--kernel->wait_count];
                if (program_verify(program) != STATUS_OK) return;
            }
    }
    fail_msg("no kernel waits for a copy");
}
static void place_taken_too_early(struct program *program) { drop_waits(program, "may overwrite what stream"); }

/* ---- deferral ---- */

static void fetch_for_deferred_alone(struct program *program) { some_fetch(program)->deferred ^= true; }
static void update_of_this_step(struct program *program) {
    for (size_t i = 0; i < program->instructions.count; i++)
        if (program->instructions.items[i].deferred && program->instructions.items[i].node) {
            program->instructions.items[i].deferred = false;
            return;
        }
    fail_msg("nothing is deferred");
}

static const struct planted_fault faults[] = {
    {"fetch of another chunk", fetch_of_another_chunk, 0, "which is no copy of it nor its home"},
    {"fetch from another copy", fetch_to_a_sibling, 0, "which is no copy of it nor its home"},
    {"copy within a tier", copy_within_a_tier, 0, "copied within the disk tier"},
    {"copy of a part", copy_of_a_part, 0, "otherwise than as a whole"},
    {"copy of the rest", copy_of_the_rest, 0, "otherwise than as a whole"},
    {"copy to a smaller buffer", copy_to_a_smaller, 0, "otherwise than as a whole"},
    {"copy of columns", copy_of_columns, 0, "no plain read"},
    {"copy that updates", copy_that_updates, 0, "no plain write"},
    {"copy that writes its source", copy_that_writes_its_source, 0, "no plain read"},
    {"copy from nowhere", copy_from_nowhere, 0, "operand 0 is missing"},
    {"copy to nowhere", copy_to_nowhere, 0, "is missing"},
    {"update left out", update_left_out, 0, "read before it is written"},
    {"copy to two buffers", copy_to_two, 0, "one too many"},
    {"copy in another section", copy_in_another_section, 0, "says that it is in section"},
    {"copy of a copy", copy_of_a_copy, 0, "is a copy of none"},
    {"disk without alignment", disk_without_alignment, 0, "without its alignment"},
    {"misaligned on the disk", misaligned_on_disk, 0, "aligned to 4096"},
    {"half a block", half_a_block, 0, "outside its arena"},
    {"operand in another tier", operand_in_another_tier, 0, "in the disk tier, used in the device tier"},
    {"kernel in another tier", kernel_in_another_tier, 0, "in the device tier, used in the host tier"},
    {"zero in another tier", zero_in_another_tier, 0, "in the device tier, used in the host tier"},
    {"workspace in another tier", workspace_in_another_tier, 0, "in the host tier, used in the device tier"},
    {"copy of another chunk", copy_of_another_chunk, 0, "not the buffer of"},
    {"copy of another pass", copy_of_another_wave, 0, "took its bytes"},
    {"copy of another micro-batch", copy_of_another_micro_batch, 0, "holds micro-batch"},
    {"copy of another activation", copy_of_another_activation, 0, "where"},
    {"parameters not fetched", no_fetch_of_parameters, 0, "parameters of chunk"},
    {"gradients not fetched", no_fetch_of_gradients, 0, "gradients of chunk"},
    {"state not fetched", no_fetch_of_state, 0, "optimizer of chunk"},
    {"activations not fetched", no_fetch_of_activations, 0, "read"},
    {"parameters not stored", no_store_of_parameters, 0, "changed elsewhere"},
    {"gradients not stored", no_store_of_gradients, 0, "changed elsewhere"},
    {"state not stored", no_store_of_state, 0, "changed elsewhere"},
    {"activations not stored", no_store_of_activations, 0, "read before it is written"},
    {"fetch before store", fetch_before_store, 0, "changed elsewhere"},
    {"store before update", store_of_state_before_the_update, 0, "changed elsewhere"},
    {"fetch concurrent with a store", fetch_beside_store, 0, "stream"},
    {"store concurrent with the update", store_beside_update, 0, "may start before a write"},
    {"store concurrent with backward", store_beside_backward, 0, "may start before a write"},
    {"kernel before its fetch", kernel_before_its_fetch, 0, "may start before a write"},
    {"place taken too early", place_taken_too_early, 0, "may overwrite what stream"},
    {"a deferred fetch for others", fetch_for_deferred_alone, 0, "used by deferred instructions and by others"},
    {"an update of this step", update_of_this_step, 0, "used by deferred instructions and by others"},
};

static void planted_faults_are_found(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        planted_fault_check(&faults[i], small_program_under(graph, 7, &everywhere));
}

static void waits_are_needed(void **state) {
    (void)state;
    struct program *program = small_program_under(graph, 5, &everywhere);
    int found, with_waits;
    assert_int_equal(program->streams, STREAM_COMM); /* one rank uses all others */
    count_needed_waits(program, &with_waits, &found);
    print_message("waits missed: %d of %d\n", found, with_waits);
    assert_true(found * 10 >= with_waits * 9);
    program_free(program);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_faults_are_found),
        cmocka_unit_test(waits_are_needed),
    };
    return cmocka_run_group_tests(tests, build_graph, free_graph);
}
