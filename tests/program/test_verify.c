/* Every kind of fault that program_verify must find is planted in a correct program, one at a time. */
#include <stdio.h>
#include <string.h>

#include "support/small_graph.h"
#include "support/unit.h"

static struct graph *graph;

static int build_graph(void **state) {
    (void)state;
    graph = small_graph_build(&(struct small_graph_options){.layers = 2,
                                                            .tied = true,
                                                            .packed_qkv = true,
                                                            .dtype = DTYPE_BF16,
                                                            .grain_sequences = 2,
                                                            .sequence_length = 5});
    return 0;
}

static int free_graph(void **state) {
    (void)state;
    graph_free(graph);
    return 0;
}

/* First kernel instruction of this operator from `from` on. */
static struct instruction *find(struct program *program, const char *op, size_t from) {
    for (size_t i = from; i < program->instructions.count; i++) {
        struct instruction *instruction = &program->instructions.items[i];
        if (instruction->node && strcmp(instruction->node->op->name, op) == 0) return instruction;
    }
    fail_msg("no instruction of %s", op);
    return NULL;
}

static struct buffer *buffer_of(struct program *program, const struct operand *operand) {
    return &program->buffers.items[operand->buffer];
}

static struct buffer *find_kind(struct program *program, enum buffer_kind kind, int skip) {
    for (size_t i = 0; i < program->buffers.count; i++)
        if (program->buffers.items[i].kind == kind && skip-- == 0) return &program->buffers.items[i];
    fail_msg("no such buffer");
    return NULL;
}

static void buffer_outside_arena(struct program *program) {
    find_kind(program, BUFFER_ACTIVATIONS, 3)->offset = program->tier_bytes[TIER_DEVICE];
}
static void buffer_below_arena(struct program *program) { find_kind(program, BUFFER_GRADIENTS, 0)->offset = -64; }
static void arena_too_small(struct program *program) { program->tier_bytes[TIER_DEVICE] -= BUFFER_ALIGNMENT; }
static void misaligned_buffer(struct program *program) { find_kind(program, BUFFER_ACTIVATIONS, 0)->offset += 4; }
static void overlapping_parameters(struct program *program) {
    find_kind(program, BUFFER_PARAMETERS, 1)->offset = find_kind(program, BUFFER_PARAMETERS, 0)->offset;
}
static void operand_past_buffer(struct program *program) { find(program, "linear", 0)->operands[0].offset += 64; }
static void slices_past_input(struct program *program) {
    find(program, "embedding", (size_t)program->sections.items[1].first)->operands[0].stride *= 4;
}
static void unknown_buffer(struct program *program) {
    find(program, "linear", 0)->operands[0].buffer = (int32_t)program->buffers.count;
}
static void missing_operand(struct program *program) { find(program, "rms_norm", 0)->operands[1].buffer = -1; }
static void short_operand(struct program *program) { find(program, "rms_norm", 0)->operands[0].bytes -= 2; }
static void overwrite_for_update(struct program *program) {
    find(program, "linear_dw", 0)->operands[OP_INPUTS_MAX].access = ACCESS_WRITE;
}
static void write_to_input(struct program *program) {
    struct instruction *instruction = find(program, "embedding", 0);
    instruction->operands[OP_INPUTS_MAX].buffer = instruction->operands[0].buffer;
}
static void never_written(struct program *program) {
    struct operand *operand = &find(program, "rms_norm", 0)->operands[0];
    struct buffer copy = *buffer_of(program, operand);
    copy.id = (int)program->buffers.count;
    copy.offset = program->tier_bytes[TIER_DEVICE];
    program->tier_bytes[TIER_DEVICE] += (copy.bytes + 63) / 64 * 64;
    operand->buffer = copy.id;
    assert_int_equal(vec_push(&program->buffers, copy), STATUS_OK);
}
static void shared_while_live(struct program *program) {
    struct instruction *norm = find(program, "rms_norm", 0);
    buffer_of(program, &norm->operands[OP_INPUTS_MAX])->offset = buffer_of(program, &norm->operands[0])->offset;
}
static void freed_too_early(struct program *program) {
    /* The head's input is written over by the block before it. */
    struct instruction *head = find(program, "head_loss_grad", 0), *act = find(program, "gated_activation", 0);
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
    struct instruction *grad = find(program, "attention_grad", 0);
    grad->operands[OP_INPUTS_MAX + 1].offset = grad->operands[OP_INPUTS_MAX].offset;
}
/* Reads, as `mine`, what has the size and kind of it. */
static void other_parameter(struct program *program) {
    struct operand *mine = &find(program, "rms_norm", 0)->operands[1];
    int64_t bytes = buffer_of(program, mine)->bytes;
    for (int32_t i = 0; i < (int32_t)program->buffers.count; i++)
        if (i != mine->buffer && program->buffers.items[i].kind == BUFFER_PARAMETERS &&
            program->buffers.items[i].bytes == bytes) {
            mine->buffer = i;
            return;
        }
    fail_msg("no other parameter of that size");
}
static void other_columns(struct program *program) {
    struct instruction *attention = find(program, "attention", 0);
    attention->operands[1].offset = attention->operands[2].offset;
}
static void columns_as_whole(struct program *program) {
    struct operand *operand = &find(program, "attention_grad", 0)->operands[OP_INPUTS_MAX];
    operand->row_bytes = operand->row_stride = 0;
}
static void other_slice(struct program *program) {
    struct operand *operand = &find(program, "embedding", 0)->operands[0];
    operand->offset += operand->bytes;
}
/* The second grain's norm reads the first grain's activation. */
static void other_grain(struct program *program) {
    struct instruction *first = find(program, "layer_norm", 0);
    struct instruction *second = find(program, "layer_norm", (size_t)(first - program->instructions.items) + 1);
    assert_int_equal(second->grain, first->grain + 1);
    second->operands[0].buffer = first->operands[0].buffer;
}
static void other_activation(struct program *program) {
    struct instruction *gated = find(program, "gated_activation", 0);
    gated->operands[0].buffer = gated->operands[1].buffer;
}
static void wide_columns(struct program *program) {
    find(program, "attention_grad", 0)->operands[OP_INPUTS_MAX + 1].row_stride = 2;
}
static void alias_in_instruction(struct program *program) {
    struct instruction *linear = find(program, "linear", 0);
    linear->operands[OPERAND_WORKSPACE] = linear->operands[0];
    linear->operands[OPERAND_WORKSPACE].access = ACCESS_WRITE;
}
static void unknown_stream(struct program *program) { find(program, "linear", 0)->stream = program->streams; }
static void too_many_streams(struct program *program) { program->streams = 100; }
static void no_stream(struct program *program) { program->streams = 0; }
static void section_without_runs(struct program *program) { program->sections.items[1].repeat = 0; }
static void section_gap(struct program *program) { program->sections.items[1].first++; }
static void section_too_short(struct program *program) { program->sections.items[program->sections.count - 1].count--; }
static void kernel_without_node(struct program *program) { find(program, "linear", 0)->node = NULL; }

static int32_t some_wait(struct program *program) {
    for (size_t i = program->instructions.count / 3; i < program->instructions.count; i++)
        if (program->instructions.items[i].wait_count > 0) return (int32_t)i;
    fail_msg("no waits");
    return 0;
}
static void missing_waits(struct program *program) { program->instructions.items[some_wait(program)].wait_count = 0; }
static void waits_for_itself(struct program *program) {
    int32_t at = some_wait(program);
    program->instructions.items[at].waits[0] = at;
}
static void waits_for_nobody(struct program *program) {
    program->instructions.items[some_wait(program)].waits[0] = (int32_t)program->instructions.count;
}
static void kernel_on_two_streams(struct program *program) {
    struct instruction *linear = find(program, "linear", 0);
    linear->stream = (linear->stream + 1) % program->streams;
}
static void wrong_wait(struct program *program) {
    struct instruction *instruction = &program->instructions.items[some_wait(program)];
    instruction->waits[0] = 0;
    instruction->wait_count = 1;
}

static const struct {
    const char *name;
    void (*plant)(struct program *program);
    int streams;
    const char *expected; /* part of the message */
} faults[] = {
    {"buffer outside its arena", buffer_outside_arena, 1, "outside its arena"},
    {"buffer below its arena", buffer_below_arena, 1, "outside its arena"},
    {"arena too small", arena_too_small, 1, "outside its arena"},
    {"misaligned buffer", misaligned_buffer, 1, "aligned"},
    {"overlapping parameters", overlapping_parameters, 1, "overlap"},
    {"operand past its buffer", operand_past_buffer, 1, "reaches outside"},
    {"slices past an input", slices_past_input, 1, "reaches outside"},
    {"unknown buffer", unknown_buffer, 1, "names buffer"},
    {"missing operand", missing_operand, 1, "is missing"},
    {"short operand", short_operand, 1, "its tensor"},
    {"overwriting a sum", overwrite_for_update, 1, "otherwise"},
    {"writing to an input", write_to_input, 1, ""},
    {"never written", never_written, 1, "read before it is written"},
    {"sharing bytes while live", shared_while_live, 1, "the bytes"},
    {"freed too early", freed_too_early, 1, "took its bytes"},
    {"accumulator not zeroed", no_zeroing, 1, "read before"},
    {"columns written over", missing_columns, 1, "is not where"},
    {"columns wider than rows", wide_columns, 1, "wider"},
    {"another parameter", other_parameter, 1, "not the buffer of"},
    {"other columns", other_columns, 1, "is not where"},
    {"columns taken as a whole", columns_as_whole, 1, "is not where"},
    {"another grain's input", other_slice, 1, "is not where"},
    {"another grain's activation", other_grain, 1, "where"},
    {"another activation", other_activation, 1, "where"},
    {"aliased workspace", alias_in_instruction, 1, "same instruction"},
    {"unknown stream", unknown_stream, 2, "stream"},
    {"too many streams", too_many_streams, 1, "streams"},
    {"no stream", no_stream, 1, "streams"},
    {"section without runs", section_without_runs, 1, "no runs"},
    {"gap between sections", section_gap, 1, "does not follow"},
    {"instructions outside sections", section_too_short, 1, "in sections"},
    {"kernel without node", kernel_without_node, 1, "without a node"},
    {"kernel on two streams", kernel_on_two_streams, 3, "runs on streams"},
    {"missing waits", missing_waits, 3, "stream"},
    {"waiting for itself", waits_for_itself, 3, "waits for"},
    {"waiting for nobody", waits_for_nobody, 3, "waits for"},
    {"waiting for the wrong one", wrong_wait, 3, "stream"},
};

static void test_planted_faults(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct program *program = small_program(graph, 7, 2, faults[i].streams, 11);
        assert_int_equal(program_verify(program), STATUS_OK);
        faults[i].plant(program);
        enum status status = program_verify(program);
        if (status != STATUS_FAILED || !strstr(status_message(), faults[i].expected))
            fail_msg("%s: status %d, message '%s'", faults[i].name, status,
                     status == STATUS_OK ? "" : status_message());
        program_free(program);
    }
}

/* Each wait of a program on several streams is either needed, or implied by others: with any one instruction's waits
 * gone verification fails, unless the streams' order happens to hold everything together without them. */
static void test_waits_are_needed(void **state) {
    (void)state;
    struct program *program = small_program(graph, 3, 1, 3, 5);
    int found = 0, with_waits = 0;
    for (size_t i = 0; i < program->instructions.count; i++) {
        struct instruction *instruction = &program->instructions.items[i];
        int32_t count = instruction->wait_count;
        if (count == 0) continue;
        with_waits++;
        instruction->wait_count = 0;
        found += program_verify(program) != STATUS_OK;
        instruction->wait_count = count;
    }
    assert_int_equal(program_verify(program), STATUS_OK);
    print_message("waits missed: %d of %d\n", found, with_waits);
    assert_true(found * 10 >= with_waits * 9);
    program_free(program);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planted_faults),
        cmocka_unit_test(test_waits_are_needed),
    };
    return cmocka_run_group_tests(tests, build_graph, free_graph);
}
