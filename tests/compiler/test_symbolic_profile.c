/* The symbolic profile equals the memory of compiled programs, to the byte, for every family in fp32 and bf16, with
 * adapters and frozen layers: live activations at every kernel, the peak, and the activations of kept and recomputed
 * blocks between forward and backward. */
#include "ir/symbolic_profile.h"

#include <stdio.h>
#include <string.h>

#include "ir/differentiate.h"
#include "ir/ops/ops.h"
#include "model/model.h"
#include "support/policy_subject.h"
#include "support/small_graph.h"
#include "support/unit.h"

/* Bytes of the values that are live at a node. */
static int64_t values_at(const struct symbolic_profile *profile, int32_t node, bool aligned) {
    int64_t sum = 0;
    for (size_t i = 0; i < profile->values.count; i++) {
        const struct value_profile *value = &profile->values.items[i];
        if (value->first > node || value->last < node) continue;
        sum += aligned ? buffer_aligned_bytes(value->bytes) : value->bytes;
    }
    return sum;
}

/* Most bytes of activations at any node. */
static int64_t peak_of(const struct symbolic_profile *profile) {
    int64_t max = 0;
    for (size_t n = 0; n < profile->graph->nodes.count; n++) {
        int64_t bytes = values_at(profile, (int32_t)n, false);
        max = bytes > max ? bytes : max;
    }
    return max;
}

static struct graph *forward_of(const struct policy_subject *subject, struct tensor **loss) {
    struct model_config config;
    struct harness_options options = policy_options(subject, &(struct policy_way){0}, &config);
    struct model *model;
    struct graph *graph;
    assert_int_equal(model_create(&config, &model), STATUS_OK);
    if (subject->lora) assert_int_equal(model_set_adapter(model, subject->lora, 1), STATUS_OK);
    if (subject->freeze) assert_int_equal(model_set_frozen(model, subject->freeze), STATUS_OK);
    assert_int_equal(model_build_graph(model, MODEL_LOSS, subject->dtype, options.micro_batch_sequences,
                                       options.sequence_length, &graph, loss),
                     STATUS_OK);
    model_free(model);
    return graph;
}

static struct graph *training_of(const struct policy_subject *subject) {
    struct optimizer_options optimizer = {
        .moments = DTYPE_F32, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .clip_norm = 1};
    struct tensor *loss;
    struct graph *graph = forward_of(subject, &loss);
    assert_int_equal(graph_differentiate(graph, loss), STATUS_OK);
    assert_int_equal(ops_add_optimizer(graph, &optimizer), STATUS_OK);
    return graph;
}

/* Bytes of the buffers that are live at an instruction: of activations, or of all else. */
static int64_t live_at(const struct program *program, int32_t at, bool activations, bool aligned) {
    int64_t sum = 0;
    for (size_t i = 0; i < program->buffers.count; i++) {
        const struct buffer *buffer = &program->buffers.items[i];
        if ((buffer->kind == BUFFER_ACTIVATIONS) != activations || buffer->first > at || buffer->last < at) continue;
        sum += aligned ? buffer_aligned_bytes(buffer->bytes) : buffer->bytes;
    }
    return sum;
}

static void check_program(const struct policy_subject *subject) {
    struct graph *graph = training_of(subject);
    struct program *program = small_program(graph, 1, 1, 1, 1);
    struct symbolic_profile profile;
    int64_t peak = 0, kernels = 0;
    assert_int_equal(symbolic_profile_create(graph, &profile), STATUS_OK);
    for (int32_t i = 0; i < (int32_t)program->instructions.count; i++) {
        const struct node *node = program->instructions.items[i].node;
        int64_t others = live_at(program, i, false, true), values = live_at(program, i, true, true);
        if (node && node->phase <= PHASE_BACKWARD) {
            int64_t compiled = live_at(program, i, true, false), expected = values_at(&profile, node->id, false);
            if (compiled != expected)
                fail_msg("%s: %s: %lld bytes, not %lld", subject->name, node->name, (long long)expected,
                         (long long)compiled);
            values = values_at(&profile, node->id, true);
            kernels++;
        }
        peak = others + values > peak ? others + values : peak;
    }
    assert_true(kernels > 20 && peak_of(&profile) > 0);
    assert_int_equal(peak, program->live_bytes[TIER_DEVICE]);
    symbolic_profile_free(&profile);
    program_free(program);
    graph_free(graph);
}

static void activations_at_every_kernel_are_those_of_the_program(void **state) {
    (void)state;
    for (size_t i = 0; i < policy_subject_count; i++)
        check_program(&policy_subjects[i]);
}

/* "f0-5 b5 f4 b4 b3 …": the blocks of the set are computed again just before their backward. */
static const char *schedule_of(unsigned again, int32_t blocks, char text[512]) {
    int used = snprintf(text, 512, "f0-%d b%d", blocks - 1, blocks - 1);
    for (int32_t b = blocks - 2; b >= 0; b--)
        used += snprintf(text + used, 512 - (size_t)used, again >> b & 1 ? " f%d b%d" : " b%d", b, b);
    return text;
}

static bool reads(const struct node *node, const struct tensor *storage) {
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (node->in[i] && tensor_storage(node->in[i]) == storage) return true;
    return false;
}

/* Of a node of a block that comes again: whether something that backward reads rests on it within the block. */
static bool comes_again(const struct graph *graph, const struct node *node) {
    for (int o = 0; o < OP_OUTPUTS_MAX && node->out[o]; o++)
        for (size_t n = 0; n < graph->nodes.count; n++) {
            const struct node *reader = graph->nodes.items[n];
            if (reader->block != node->block || !reads(reader, node->out[o])) continue;
            if (reader->phase == PHASE_BACKWARD || (reader->phase == PHASE_FORWARD && comes_again(graph, reader)))
                return true;
        }
    return false;
}

/* Whether a value made before the loss is read behind it: by the backward of another block or of a kept one, or by
 * another block's forward that comes again. */
static bool waits(const struct graph *graph, const struct value_profile *value, unsigned again) {
    int block = value->tensor->block;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        bool other = node->block != block;
        if (!reads(node, value->tensor) || node->phase > PHASE_BACKWARD) continue;
        if (node->phase == PHASE_BACKWARD && (other || !(again >> block & 1))) return true;
        if (node->phase == PHASE_FORWARD && other && (again >> node->block & 1) && comes_again(graph, node))
            return true;
    }
    return false;
}

static int64_t waiting_bytes(const struct symbolic_profile *profile, unsigned again, int32_t loss) {
    int64_t sum = 0;
    for (size_t i = 0; i < profile->values.count; i++) {
        const struct value_profile *value = &profile->values.items[i];
        if (!value->gradient && value->first < loss && waits(profile->graph, value, again)) sum += value->bytes;
    }
    return sum;
}

static void check_recomputed(const struct policy_subject *subject, unsigned again) {
    struct graph *graph = training_of(subject);
    int32_t blocks = graph_count_blocks(graph), loss = 0, at = 0;
    char text[512];
    struct policy policy = {.micro_batches_per_wave = 1};
    snprintf(policy.schedule, sizeof policy.schedule, "%s", schedule_of(again, blocks, text));
    struct program *program = small_program_under(graph, 1, &policy);
    struct symbolic_profile profile;
    assert_int_equal(symbolic_profile_create(graph, &profile), STATUS_OK);
    while (graph->nodes.items[loss]->phase == PHASE_FORWARD)
        loss++;
    while (program->instructions.items[at].node != graph->nodes.items[loss])
        at++;
    int64_t made = 0;
    for (size_t i = 0; i < profile.values.count; i++)
        if (profile.values.items[i].first == loss) made += profile.values.items[i].bytes;
    int64_t compiled = live_at(program, at, true, false) - made;
    if (compiled != waiting_bytes(&profile, again, loss))
        fail_msg("%s: \"%s\": %lld bytes wait, not %lld", subject->name, policy.schedule,
                 (long long)waiting_bytes(&profile, again, loss), (long long)compiled);
    symbolic_profile_free(&profile);
    program_free(program);
    graph_free(graph);
}

static void what_waits_for_backward_is_that_of_the_program(void **state) {
    (void)state;
    for (size_t i = 0; i < policy_subject_count; i++)
        for (unsigned again = 0; again < 1u << (POLICY_SUBJECT_BLOCKS - 1); again += 3)
            check_recomputed(&policy_subjects[i], again);
}

/* The forward graph's profile is that of the training graph. */
static void forward_graphs_give_the_same_profile(void **state) {
    (void)state;
    for (size_t i = 0; i < policy_subject_count; i++) {
        struct symbolic_profile forward, training;
        struct tensor *loss;
        struct graph *graph = forward_of(&policy_subjects[i], &loss), *trained = training_of(&policy_subjects[i]);
        size_t nodes = graph->nodes.count;
        assert_int_equal(symbolic_profile_forward(graph, &forward), STATUS_OK);
        assert_int_equal(symbolic_profile_create(trained, &training), STATUS_OK);
        assert_int_equal(graph->nodes.count, nodes);
        assert_int_equal(forward.forward_nodes, nodes);
        assert_int_equal(training.forward_nodes, nodes);
        assert_memory_equal(forward.nodes, training.nodes, nodes * sizeof *forward.nodes);
        assert_int_equal(peak_of(&forward), peak_of(&training));
        symbolic_profile_free(&forward);
        symbolic_profile_free(&training);
        graph_free(trained);
        graph_free(graph);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_at_every_kernel_are_those_of_the_program),
        cmocka_unit_test(what_waits_for_backward_is_that_of_the_program),
        cmocka_unit_test(forward_graphs_give_the_same_profile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
