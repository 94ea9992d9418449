/* Batches of instructions, with kernels of every operator, random policies and streams. The instructions of a batch
 * are consecutive on a stream, wait for nothing within the batch, and touch nothing that another of them writes. */
#include "base/mem.h"
#include "ir/ops/ops.h"
#include "runtime/segments.h"
#include "support/random_policy.h"
#include "support/small_graph.h"
#include "support/unit.h"

enum { MICRO_BATCHES = 6 };

static enum status first_function(const struct kernel *const *kernels, const struct kernel_call *calls, int count) {
    (void)kernels, (void)calls, (void)count;
    return STATUS_OK;
}
static enum status second_function(const struct kernel *const *kernels, const struct kernel_call *calls, int count) {
    (void)kernels, (void)calls, (void)count;
    return STATUS_OK;
}

/* Updates, norms and all else have functions of their own, or none. */
static kernel_run_together *function_of(const struct node *node) {
    if (node->op == &op_adamw) return first_function;
    return node->op == &op_head_loss_grad ? NULL : second_function;
}

static bool waits_for(const struct instruction *by, int32_t index) {
    for (int32_t w = 0; w < by->wait_count; w++)
        if (by->waits[w] == index) return true;
    return false;
}

static bool overlap(const struct program *program, const struct operand *a, const struct operand *b) {
    if (a->buffer < 0 || b->buffer < 0) return false;
    const struct buffer *x = &program->buffers.items[a->buffer], *y = &program->buffers.items[b->buffer];
    int64_t x_at = x->offset + a->offset, y_at = y->offset + b->offset;
    return x->tier == y->tier && x_at < y_at + b->bytes && y_at < x_at + a->bytes;
}

static void check_pair(const struct program *program, const struct instruction *a, const struct instruction *b) {
    for (int i = 0; i < OPERANDS_MAX; i++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            bool writes = a->operands[i].access != ACCESS_READ || b->operands[k].access != ACCESS_READ;
            if (writes && overlap(program, &a->operands[i], &b->operands[k]))
                fail_msg("%s and %s of a batch touch the same bytes", a->node->name, b->node->name);
        }
}

/* Returns how many instructions it holds. */
static int check_batch(const struct executable *executable, int32_t first, int32_t last) {
    const struct program *program = executable->program;
    const struct instruction *head = &program->instructions.items[first];
    int32_t members[KERNELS_TOGETHER];
    int count = 0;
    for (int32_t i = first; i <= last; i++) {
        const struct instruction *own = &program->instructions.items[i];
        if (own->stream != head->stream) continue;
        assert_true(count < KERNELS_TOGETHER);
        assert_true(own->opcode == OPCODE_KERNEL && own->tier == TIER_DEVICE && own->section == head->section);
        assert_int_equal(own->deferred, head->deferred);
        assert_ptr_equal(function_of(own->node), function_of(head->node));
        assert_int_equal(executable->kernels[own->node->id]->workspace_bytes, 0);
        assert_true(i == first || own->wait_count == 0);
        for (int m = 0; m < count; m++)
            check_pair(program, &program->instructions.items[members[m]], own);
        members[count++] = i;
    }
    for (size_t k = 0; k < program->instructions.count; k++)
        for (int m = 0; m + 1 < count; m++)
            assert_false(waits_for(&program->instructions.items[k], members[m]));
    return count;
}

/* Returns how many instructions are in batches. */
static int64_t check_program(struct graph *graph, struct program *program) {
    int64_t *workspace = small_graph_workspace(graph), held = 0;
    struct kernel *kernels = mem_array(graph->nodes.count, sizeof *kernels);
    struct executable executable = {.graph = graph, .program = program};
    executable.kernels = mem_array(graph->nodes.count, sizeof *executable.kernels);
    assert_true(workspace && kernels && executable.kernels);
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        kernels[i] = (struct kernel){.run_together = function_of(node), .workspace_bytes = workspace[i]};
        executable.kernels[i] = &kernels[i];
    }
    int32_t *last;
    assert_int_equal(batches_find(&executable, &last), STATUS_OK);
    for (int32_t i = 0; i < (int32_t)program->instructions.count; i++) {
        assert_true(last[i] >= i);
        if (last[i] > i) held += check_batch(&executable, i, last[i]);
    }
    mem_free(last);
    mem_free(executable.kernels);
    mem_free(kernels);
    mem_free(workspace);
    return held;
}

static struct graph *small(uint64_t seed) {
    struct small_graph_options options = {
        .layers = 3, .tied = seed % 2, .dtype = DTYPE_BF16, .micro_batch_sequences = 2, .sequence_length = 8};
    return small_graph_build(&options);
}

static void batches_of_random_policies_are_legal(void **state) {
    (void)state;
    int64_t held = 0;
    for (uint64_t seed = 1; seed <= unit_sweep(40, 1000); seed++) {
        struct graph *graph = small(seed);
        struct policy policy = random_policy(graph, MICRO_BATCHES, NULL, seed);
        struct program *program = small_program_under(graph, MICRO_BATCHES, &policy);
        held += check_program(graph, program);
        program_free(program);
        graph_free(graph);
    }
    assert_true(held > 0);
}

static void batches_of_random_streams_are_legal(void **state) {
    (void)state;
    int64_t held = 0;
    for (uint64_t seed = 1; seed <= unit_sweep(40, 400); seed++) {
        struct graph *graph = small(seed);
        struct program *program =
            small_program(graph, MICRO_BATCHES, 1 + (int64_t)(seed % 3), 1 + (int)(seed % 4), seed);
        held += check_program(graph, program);
        program_free(program);
        graph_free(graph);
    }
    assert_true(held > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_of_random_policies_are_legal),
        cmocka_unit_test(batches_of_random_streams_are_legal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
