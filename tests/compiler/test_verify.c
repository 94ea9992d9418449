/* Plants every kind of fault that program_verify must find in a correct program, one at a time. test_verify_tiers.c
 * has those of copies and tiers. */
#include <string.h>

#include "support/planted_fault.h"
#include "support/small_graph.h"
#include "support/unit.h"

static struct graph *graph;

static int build_graph(void **state) {
    (void)state;
    graph = small_graph_build(&(struct small_graph_options){.layers = 2,
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

static void buffer_outside_arena(struct program *program) {
    find_kind(program, BUFFER_ACTIVATIONS, 3)->offset = program->tier_bytes[TIER_DEVICE];
}
static void buffer_below_arena(struct program *program) { find_kind(program, BUFFER_GRADIENTS, 0)->offset = -64; }
static void arena_too_small(struct program *program) { program->tier_bytes[TIER_DEVICE] -= BUFFER_ALIGNMENT; }
static void misaligned_buffer(struct program *program) { find_kind(program, BUFFER_ACTIVATIONS, 0)->offset += 4; }
static void overlapping_state(struct program *program) {
    find_kind(program, BUFFER_OPTIMIZER, 0)->offset = find_kind(program, BUFFER_PARAMETERS, 0)->offset;
}
static void operand_past_buffer(struct program *program) {
    find_kernel(program, "linear", 0)->operands[0].offset += 64;
}
static void slices_past_input(struct program *program) {
    find_kernel(program, "embedding", (size_t)program->sections.items[1].first)->operands[0].stride *= 4;
}
static void unknown_buffer(struct program *program) {
    find_kernel(program, "linear", 0)->operands[0].buffer = (int32_t)program->buffers.count;
}
static void missing_operand(struct program *program) { find_kernel(program, "rms_norm", 0)->operands[1].buffer = -1; }
static void short_operand(struct program *program) { find_kernel(program, "rms_norm", 0)->operands[0].bytes -= 2; }
static void overwrite_for_update(struct program *program) {
    find_kernel(program, "linear_dw", 0)->operands[OP_INPUTS_MAX].access = ACCESS_WRITE;
}
static void write_to_input(struct program *program) {
    struct operand *tokens = &find_kernel(program, "embedding", 0)->operands[0];
    tokens->access = ACCESS_WRITE;
    tokens->stride = 0;
}
static void write_to_slices(struct program *program) {
    find_kernel(program, "embedding", (size_t)program->sections.items[1].first)->operands[0].access = ACCESS_WRITE;
}
static void never_written(struct program *program) {
    struct operand *operand = &find_kernel(program, "rms_norm", 0)->operands[0];
    struct buffer copy = *buffer_of(program, operand);
    copy.id = (int)program->buffers.count;
    copy.offset = program->tier_bytes[TIER_DEVICE];
    program->tier_bytes[TIER_DEVICE] += (copy.bytes + 63) / 64 * 64;
    operand->buffer = copy.id;
    assert_int_equal(vec_push(&program->buffers, copy), STATUS_OK);
}
static void shared_while_live(struct program *program) {
    struct instruction *norm = find_kernel(program, "rms_norm", 0);
    buffer_of(program, &norm->operands[OP_INPUTS_MAX])->offset = buffer_of(program, &norm->operands[0])->offset;
}
static void freed_too_early(struct program *program) {
    /* The head's input is written over by the block before it. */
    struct instruction *head = find_kernel(program, "head_loss_grad", 0),
                       *act = find_kernel(program, "gated_activation", 0);
    struct buffer *saved = buffer_of(program, &act->operands[0]);
    buffer_of(program, &head->operands[OP_INPUTS_MAX + 1])->offset = saved->offset;
}
static void no_zeroing(struct program *program) {
    for (size_t i = 0; i < program->instructions.count; i++) {
        struct instruction *instruction = &program->instructions.items[i];
        if (instruction->opcode != OPCODE_ZERO) continue;
        instruction->operands[OP_INPUTS_MAX] =
            (struct operand){.buffer = find_kind(program, BUFFER_RESULTS, 2)->id, .access = ACCESS_WRITE, .bytes = 8};
        return;
    }
}
static void missing_columns(struct program *program) {
    /* dk is written where dq belongs, so that a third of dqkv is never written. */
    struct instruction *grad = find_kernel(program, "attention_grad", 0);
    grad->operands[OP_INPUTS_MAX + 1].offset = grad->operands[OP_INPUTS_MAX].offset;
}
/* Another tensor of the same pack, as large as the one that is meant. */
static void other_parameter(struct program *program) {
    struct instruction *norm = find_kernel(program, "rms_norm", 0);
    const struct tensor *mine = norm->node->in[1];
    const struct pack *pack = buffer_of(program, &norm->operands[1])->pack;
    for (int32_t i = 0; i < pack->count; i++)
        if (pack->members[i].tensor != mine && shape_bytes(&pack->members[i].tensor->shape) == norm->operands[1].bytes)
            norm->operands[1].offset = pack->members[i].offset;
}
static void other_pack(struct program *program) {
    find_kernel(program, "rms_norm", 0)->operands[1].buffer = find_kind(program, BUFFER_OPTIMIZER, 0)->id;
}
static void other_columns(struct program *program) {
    struct instruction *attention = find_kernel(program, "attention", 0);
    attention->operands[1].offset = attention->operands[2].offset;
}
static void columns_as_whole(struct program *program) {
    struct operand *operand = &find_kernel(program, "attention_grad", 0)->operands[OP_INPUTS_MAX];
    operand->row_bytes = operand->row_stride = 0;
}
static void other_slice(struct program *program) {
    struct operand *operand = &find_kernel(program, "embedding", 0)->operands[0];
    operand->offset += operand->bytes;
}
/* The second micro-batch's norm reads the first micro-batch's activation. */
static void other_micro_batch(struct program *program) {
    struct instruction *first = find_kernel(program, "rms_norm", 0), *second = first + 1;
    while (second->node != first->node)
        second++;
    assert_int_equal(second->micro_batch, first->micro_batch + 1);
    second->operands[0].buffer = first->operands[0].buffer;
}
static void other_activation(struct program *program) {
    struct instruction *gated = find_kernel(program, "gated_activation", 0);
    gated->operands[0].buffer = gated->operands[1].buffer;
}
static void wide_columns(struct program *program) {
    find_kernel(program, "attention_grad", 0)->operands[OP_INPUTS_MAX + 1].row_stride = 2;
}
static void alias_in_instruction(struct program *program) {
    struct instruction *linear = find_kernel(program, "linear", 0);
    linear->operands[OPERAND_WORKSPACE] = linear->operands[0];
    linear->operands[OPERAND_WORKSPACE].access = ACCESS_WRITE;
}
static struct instruction *find_zero(struct program *program) {
    for (size_t i = 0; i < program->instructions.count; i++)
        if (program->instructions.items[i].opcode == OPCODE_ZERO) return &program->instructions.items[i];
    fail_msg("nothing is zeroed");
    return NULL;
}
static void zero_of_nothing(struct program *program) { find_zero(program)->operands[OP_INPUTS_MAX].buffer = -1; }
static void zero_of_two(struct program *program) {
    struct instruction *zero = find_zero(program);
    zero->operands[0] = zero->operands[OP_INPUTS_MAX];
}
static void zero_by_reading(struct program *program) {
    find_zero(program)->operands[OP_INPUTS_MAX].access = ACCESS_READ;
}
static void zero_of_columns(struct program *program) {
    struct operand *operand = &find_zero(program)->operands[OP_INPUTS_MAX];
    operand->row_bytes = operand->row_stride = operand->bytes;
}
static void operand_too_many(struct program *program) {
    struct instruction *norm = find_kernel(program, "rms_norm", 0);
    norm->operands[2] = norm->operands[0];
}
static void other_section(struct program *program) { find_kernel(program, "linear", 0)->section = 1; }
static void no_section(struct program *program) {
    find_kernel(program, "linear", 0)->section = (int)program->sections.count;
}
static void copy_of_nothing(struct program *program) {
    find_kind(program, BUFFER_ACTIVATIONS, 0)->original = (int32_t)program->buffers.count;
}
static void computing_on_disk(struct program *program) { find_kernel(program, "linear", 0)->tier = TIER_DISK; }
/* Backward of the first wave's last block reads what the last wave makes. */
static void other_wave(struct program *program) {
    size_t last = (size_t)program->sections.items[program->sections.count - 2].first;
    struct operand *now = &find_kernel(program, "rms_norm", last)->operands[0];
    *now = find_kernel(program, "rms_norm", 0)->operands[0];
    buffer_of(program, now)->offset = program->tier_bytes[TIER_DEVICE];
    program->tier_bytes[TIER_DEVICE] += buffer_of(program, now)->bytes / 64 * 64 + 64;
}
static void unknown_stream(struct program *program) { find_kernel(program, "linear", 0)->stream = program->streams; }
static void too_many_streams(struct program *program) { program->streams = 100; }
static void no_stream(struct program *program) { program->streams = 0; }
static void section_without_repetitions(struct program *program) { program->sections.items[1].repeat = 0; }
static void section_gap(struct program *program) { program->sections.items[1].first++; }
static void section_too_short(struct program *program) { program->sections.items[program->sections.count - 1].count--; }
static void kernel_without_node(struct program *program) { find_kernel(program, "linear", 0)->node = NULL; }

static void missing_waits(struct program *program) {
    program->instructions.items[find_waiting(program)].wait_count = 0;
}
static void waits_for_itself(struct program *program) {
    int32_t at = find_waiting(program);
    program->instructions.items[at].waits[0] = at;
}
static void waits_for_nobody(struct program *program) {
    program->instructions.items[find_waiting(program)].waits[0] = (int32_t)program->instructions.count;
}
static void kernel_on_two_streams(struct program *program) {
    struct instruction *linear = find_kernel(program, "linear", 0);
    linear->stream = (linear->stream + 1) % program->streams;
}
static void missing_wait_for_write(struct program *program) { drop_waits(program, "may start before a write"); }
static void missing_wait_for_read(struct program *program) { drop_waits(program, "may overwrite what stream"); }
static void wrong_wait(struct program *program) {
    struct instruction *instruction = &program->instructions.items[find_waiting(program)];
    instruction->waits[0] = 0;
    instruction->wait_count = 1;
}

static const struct planted_fault faults[] = {
    {"buffer outside its arena", buffer_outside_arena, 1, "outside its arena"},
    {"buffer below its arena", buffer_below_arena, 1, "outside its arena"},
    {"arena too small", arena_too_small, 1, "outside its arena"},
    {"misaligned buffer", misaligned_buffer, 1, "aligned"},
    {"state over parameters", overlapping_state, 1, "overlap"},
    {"operand past its buffer", operand_past_buffer, 1, "reaches outside"},
    {"slices past an input", slices_past_input, 1, "reaches outside"},
    {"unknown buffer", unknown_buffer, 1, "names buffer"},
    {"missing operand", missing_operand, 1, "is missing"},
    {"short operand", short_operand, 1, "its tensor"},
    {"overwriting a sum", overwrite_for_update, 1, "otherwise"},
    {"writing to an input", write_to_input, 1, "inputs may only be read"},
    {"writing to slices", write_to_slices, 1, "slices of repetitions may only be read"},
    {"never written", never_written, 1, "read before it is written"},
    {"sharing bytes while live", shared_while_live, 1, "the bytes"},
    {"freed too early", freed_too_early, 1, "took its bytes"},
    {"accumulator not zeroed", no_zeroing, 1, "loss: read "},
    {"columns written over", missing_columns, 1, "is not where"},
    {"columns wider than rows", wide_columns, 1, "wider"},
    {"another parameter", other_parameter, 1, "is not where"},
    {"another pack", other_pack, 1, "not the buffer of"},
    {"other columns", other_columns, 1, "is not where"},
    {"columns taken as a whole", columns_as_whole, 1, "is not where"},
    {"another micro-batch's input", other_slice, 1, "is not where"},
    {"another micro-batch's activation", other_micro_batch, 1, "where"},
    {"another activation", other_activation, 1, "where"},
    {"aliased workspace", alias_in_instruction, 1, "same instruction"},
    {"another pass's activation", other_wave, 1, "read before this pass"},
    {"zero of nothing", zero_of_nothing, 1, "is missing"},
    {"zero of two buffers", zero_of_two, 1, "one too many"},
    {"zero by reading", zero_by_reading, 1, "no plain write"},
    {"zero of columns", zero_of_columns, 1, "no plain write"},
    {"an operand too many", operand_too_many, 1, "without a tensor"},
    {"another section", other_section, 1, "says that it is in section 1"},
    {"no section", no_section, 1, "says that it is in section"},
    {"copy of nothing", copy_of_nothing, 1, "is a copy of none"},
    {"computing on the disk", computing_on_disk, 1, "neither on the device nor on the host"},
    {"unknown stream", unknown_stream, 2, "stream"},
    {"too many streams", too_many_streams, 1, "streams"},
    {"no stream", no_stream, 1, "streams"},
    {"section without repetitions", section_without_repetitions, 1, "no repetitions"},
    {"gap between sections", section_gap, 1, "does not follow"},
    {"instructions outside sections", section_too_short, 1, "in sections"},
    {"kernel without node", kernel_without_node, 1, "without a node"},
    {"kernel on two streams", kernel_on_two_streams, 3, "is called on streams"},
    {"missing waits", missing_waits, 3, "stream"},
    {"missing waits for a write", missing_wait_for_write, 3, "may start before a write"},
    {"missing waits for a read", missing_wait_for_read, 3, "may overwrite what stream"},
    {"waiting for itself", waits_for_itself, 3, "waits for"},
    {"waiting for nobody", waits_for_nobody, 3, "waits for"},
    {"waiting for the wrong one", wrong_wait, 3, "stream"},
};

static void planted_faults_are_found(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        planted_fault_check(&faults[i], small_program(graph, 7, 2, faults[i].streams, 11));
}

/* Columns that several instructions write: those of a packed product's gradient, where q and k were turned. */
static void missing_columns_are_found(void **state) {
    (void)state;
    struct small_graph_options options = {.layers = 1,
                                          .packed_qkv = true,
                                          .packed_rotary = true,
                                          .dtype = DTYPE_BF16,
                                          .micro_batch_sequences = 2,
                                          .sequence_length = 5};
    struct graph *turned = small_graph_build(&options);
    struct program *program = small_program(turned, 2, 1, 1, 0);
    assert_int_equal(program_verify(program), STATUS_OK);
    size_t attention = (size_t)(find_kernel(program, "attention_grad", 0) - program->instructions.items);
    drop_instruction(program, (int32_t)(find_kernel(program, "rope", attention) - program->instructions.items));
    assert_int_equal(program_verify(program), STATUS_FAILED);
    if (!strstr(status_message(), "before all of its columns are written")) fail_msg("%s", status_message());
    program_free(program);
    graph_free(turned);
}

/* Each wait of a program on several streams is either needed, or implied by others: with any one instruction's waits
 * gone verification fails, unless the streams' order happens to hold everything together without them. */
static void waits_are_needed(void **state) {
    (void)state;
    struct program *program = small_program(graph, 3, 1, 3, 5);
    int found, with_waits;
    count_needed_waits(program, &with_waits, &found);
    print_message("waits missed: %d of %d\n", found, with_waits);
    assert_true(found * 10 >= with_waits * 9);
    program_free(program);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_faults_are_found),
        cmocka_unit_test(missing_columns_are_found),
        cmocka_unit_test(waits_are_needed),
    };
    return cmocka_run_group_tests(tests, build_graph, free_graph);
}
