/* A file of its own and a file of kernels (support/token_shift.h) add an operator. It can be differentiated,
 * compiled, proved, run under policies, used in decoding, measured and estimated. It is refused if a backend lacks
 * it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "base/random.h"
#include "ir/differentiate.h"
#include "machine/kernel_cost.h"
#include "model/model.h"
#include "profile/model.h"
#include "profile/operator_bench.h"
#include "runtime/runner.h"
#include "support/kept_profile.h"
#include "support/small_graph.h"
#include "support/token_shift.h"
#include "support/unit.h"

enum { HIDDEN = 16, VOCABULARY = 29, LAYERS = 2, SEQUENCES = 2, LENGTH = 8, MICRO_BATCHES = 2, SEED = 14 };
static const double MIX = 0.75, BETA1 = 0.9;

static void require(enum status status, const char *what) {
    if (status != STATUS_OK) fail_msg("%s: %s", what, status_message());
}

/* x + W relu(shift(x)), LAYERS times. */
static struct tensor *build_layers(struct graph *graph, struct tensor *x) {
    for (int layer = 0; layer < LAYERS; layer++) {
        graph_begin_block(graph, graph_format(graph, "layer %d", layer));
        struct tensor *weight = graph_parameter(graph, graph_format(graph, "weight.%d", layer), 2, HIDDEN, HIDDEN);
        struct tensor *shifted = ops_token_shift(graph, graph_format(graph, "shift.%d", layer), x, MIX);
        struct tensor *active =
            ops_activation(graph, graph_format(graph, "active.%d", layer), shifted, ACTIVATION_GELU_TANH);
        x = ops_linear(graph, graph_format(graph, "linear.%d", layer), active, weight, NULL, x,
                       (struct linear_attributes){0});
    }
    return x;
}

static struct tensor *input(struct graph *graph, const char *name) {
    return graph_tensor(graph, TENSOR_INPUT, name,
                        shape_make(DTYPE_I32, 2, graph->micro_batch_sequences, graph->sequence_length, 1));
}

/* Up to the head's input; `table` is the embedding's, and the head's weight. */
static struct tensor *build_model(struct graph *graph, struct tensor **table) {
    graph_begin_block(graph, "embedding");
    *table = graph_parameter(graph, "table", 2, VOCABULARY, HIDDEN);
    struct tensor *x = build_layers(graph, ops_embedding(graph, "embedding", input(graph, "tokens"), *table));
    graph_begin_block(graph, "head");
    return x;
}

static struct graph *training_graph(void) {
    static const struct optimizer_options optimizer = {
        .moments = DTYPE_F32, .beta1 = BETA1, .beta2 = 0.95, .epsilon = 1e-8};
    struct graph *graph = graph_create(DTYPE_F32, SEQUENCES, LENGTH);
    struct tensor *table, *x = build_model(graph, &table);
    struct tensor *loss =
        ops_head_loss(graph, "head", x, table, input(graph, "targets"), NULL, (struct head_attributes){0});
    require(graph_status(graph), "graph");
    require(graph_differentiate(graph, loss), "differentiate");
    require(ops_add_optimizer(graph, &optimizer), "optimizer");
    return graph;
}

/* Of `tokens` tokens of one sequence, which follow others in a cache where `cached`. */
static struct graph *logits_graph(int64_t tokens, bool cached, struct tensor **logits) {
    struct graph *graph = graph_create(DTYPE_F32, 1, tokens);
    if (cached) graph->cache_texts = 1, graph->cache_positions = LENGTH;
    struct tensor *table, *x = build_model(graph, &table);
    *logits = ops_head_logits(graph, "logits", x, table, NULL, (struct head_attributes){0});
    require(graph_status(graph), "graph");
    return graph;
}

struct job {
    struct backend backend;
    struct executable *executable;
    struct arena arenas[TIER_COUNT];
    struct runner *runner;
};

/* Takes over the graph. */
static void job_open(struct graph *graph, int64_t micro_batches, const char *schedule, struct job *job) {
    struct plan plan = small_plan(graph, micro_batches, 1);
    plan.recipe.beta2 = 0.95, plan.recipe.weight_decay = 0, plan.recipe.clip_norm = 0;
    snprintf(plan.policy.schedule, sizeof plan.policy.schedule, "%s", schedule);
    *job = (struct job){0};
    job->backend = token_shift_backend();
    job->backend.set_threads(plan.threads);
    require(executable_create(&job->backend, graph, &plan, NULL, &job->executable), "compile");
    require(executable_prove(job->executable), "prove");
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        require(arena_open(tier, job->executable->program->tier_bytes[tier], NULL, &job->arenas[tier]), "arena");
    require(runner_create(job->executable, job->arenas, NULL, &job->runner), "runner");
}

static void job_close(struct job *job) {
    runner_free(job->runner);
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        arena_close(&job->arenas[tier]);
    executable_free(job->executable);
}

static void *data_of(const struct job *job, const char *name) {
    const struct tensor *tensor = graph_find(job->executable->graph, name);
    return tensor ? runner_data(job->runner, tensor) : NULL;
}

/* Parameters by name alone, so that all graphs have the same. */
static void set_weights(const struct job *job) {
    const struct graph *graph = job->executable->graph;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != TENSOR_PARAMETER) continue;
        float *weights = runner_data(job->runner, tensor);
        uint32_t name = (uint32_t)tensor->name[strlen(tensor->name) - 1];
        for (int64_t k = 0; k < shape_elements(&tensor->shape); k++)
            weights[k] = (float)random_uniform(SEED, RANDOM_TEST, name, (uint64_t)k) - 0.5F;
    }
}

static int32_t token_at(int64_t index) {
    return (int32_t)(random_u64(SEED, RANDOM_TEST, 1, (uint64_t)index) % VOCABULARY);
}

static void training_open(const char *schedule, struct job *job) {
    job_open(training_graph(), MICRO_BATCHES, schedule, job);
    set_weights(job);
    int32_t *tokens = data_of(job, "tokens"), *targets = data_of(job, "targets");
    for (int64_t i = 0; i < MICRO_BATCHES * SEQUENCES * LENGTH; i++) {
        tokens[i] = token_at(i);
        targets[i] = token_at(i + 1);
    }
}

/* One step that changes no weight; returns the loss. */
static double training_step(const struct job *job) {
    const double scalars[SCALAR_COUNT] = {[SCALAR_LOSS_SCALE] = 1.0 / (MICRO_BATCHES * SEQUENCES * LENGTH),
                                          [SCALAR_BIAS_CORRECTION] = 1,
                                          [SCALAR_BIAS_CORRECTION_SQ] = 1};
    require(runner_step(job->runner, scalars), "step");
    return *(const double *)data_of(job, "loss") * scalars[SCALAR_LOSS_SCALE];
}

static const struct tensor *state_of(const struct job *job, const char *parameter) {
    const struct graph *graph = job->executable->graph;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind == TENSOR_STATE && strcmp(tensor->role, "exp_avg") == 0 &&
            strcmp(tensor->parameter->name, parameter) == 0)
            return tensor;
    }
    fail_msg("%s is not trained", parameter);
    return NULL;
}

/* The derivative of the loss by one weight, from the losses next to it. */
static double difference(const struct job *job, float *weight) {
    const float step = 1e-2F, at = *weight;
    *weight = at + step;
    double above = training_step(job);
    *weight = at - step;
    double below = training_step(job);
    *weight = at;
    return (above - below) / (2 * (double)step);
}

/* Through both shifts: the first layer's weight reaches the loss by the second one's. After the first step AdamW's
 * average is (1 - beta1) of the gradient. */
static void its_gradient_is_that_of_differences(void **state) {
    (void)state;
    struct job job;
    double largest = 0;
    training_open("", &job);
    training_step(&job);
    const struct tensor *average = state_of(&job, "weight.0");
    const float *kept = runner_data(job.runner, average);
    float gradient[HIDDEN * HIDDEN], *weights = data_of(&job, "weight.0");
    memcpy(gradient, kept, sizeof gradient);
    for (int i = 0; i < HIDDEN * HIDDEN; i += 5) {
        double found = (double)gradient[i] / (1 - BETA1), expected = difference(&job, &weights[i]);
        largest = fmax(largest, fabs(expected));
        if (fabs(found - expected) > 2e-4) fail_msg("weight %d: %g, by differences %g", i, found, expected);
    }
    assert_true(largest > 1e-2);
    job_close(&job);
}

/* Loss and all averages of gradients after one step. */
static double fingerprint(const struct job *job) {
    double mixed = training_step(job);
    for (int layer = 0; layer < LAYERS; layer++) {
        char name[16];
        snprintf(name, sizeof name, "weight.%d", layer);
        const float *average = runner_data(job->runner, state_of(job, name));
        for (int i = 0; i < HIDDEN * HIDDEN; i++)
            mixed += (double)average[i] * (i + 1);
    }
    return mixed;
}

/* Blocks: embedding 0, layers 1 and 2, head 3. */
static void recomputed_bits(void **state) {
    (void)state;
    struct job kept, recomputed;
    training_open("", &kept);
    training_open("f0-3 b3 b2 f1 b1 b0", &recomputed);
    double expected = fingerprint(&kept), found = fingerprint(&recomputed);
    if (memcmp(&expected, &found, sizeof found) != 0) fail_msg("%.17g, recomputed %.17g", expected, found);
    assert_true(recomputed.executable->program->instructions.count > kept.executable->program->instructions.count);
    job_close(&kept);
    job_close(&recomputed);
}

static const float *logits_of(const struct job *job, const struct tensor *logits) {
    const double scalars[SCALAR_COUNT] = {0};
    require(runner_step(job->runner, scalars), "step");
    return runner_data(job->runner, logits);
}

/* A text whose tokens come two at a time has the bits that it has at once. */
static void it_decodes_from_its_cache(void **state) {
    (void)state;
    enum { AT_ONCE = 2 };
    struct job whole, parts;
    struct tensor *whole_logits, *logits;
    struct graph *graph = logits_graph(LENGTH, false, &whole_logits);
    job_open(graph, 1, "", &whole);
    job_open(logits_graph(AT_ONCE, true, &logits), 1, "", &parts);
    set_weights(&whole);
    set_weights(&parts);
    for (int i = 0; i < LENGTH; i++)
        ((int32_t *)data_of(&whole, "tokens"))[i] = token_at(i);
    const float *expected = logits_of(&whole, whole_logits);
    for (int begin = 0; begin < LENGTH; begin += AT_ONCE) {
        for (int i = 0; i < AT_ONCE; i++) {
            ((int32_t *)data_of(&parts, "tokens"))[i] = token_at(begin + i);
            ((int32_t *)data_of(&parts, "rows"))[i] = begin + i;
        }
        const float *found = logits_of(&parts, logits);
        assert_memory_equal(found, expected + begin * VOCABULARY, AT_ONCE * VOCABULARY * sizeof *found);
    }
    job_close(&whole);
    job_close(&parts);
}

static const struct node *first_node(const struct graph *graph, const struct op *op) {
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (graph->nodes.items[i]->op == op) return graph->nodes.items[i];
    fail_msg("no %s", op->name);
    return NULL;
}

static void expect_measured(const struct graph *graph, const struct op *op) {
    const struct backend backend = token_shift_backend();
    const struct profile_options options = {.threads = 1, .budget_s = 0.01};
    struct cluster cluster = kept_profile_machine();
    struct profile_report report;
    struct costs costs;
    require(profile_model(&backend, graph, &cluster, &options, &costs, &report), "profile");
    assert_true(costs.kernels[first_node(graph, op)->id].seconds > 0);
    costs_free(&costs);
    profile_report_free(&report);
}

static void its_costs_are_counted(void **state) {
    (void)state;
    struct tensor *logits;
    struct graph *trained = training_graph(), *cached = logits_graph(2, true, &logits);
    expect_measured(trained, &op_token_shift_grad);
    expect_measured(cached, &op_token_shift_cache);
    struct operands operands;
    struct scratch memory = {0};
    operands_find(trained, first_node(trained, &op_token_shift), &operands);
    assert_string_equal(operator_key(&operands, &memory), "token_shift 0w:fp32[2,8,16] > 1w:fp32[2,8,16] - - - - -");
    scratch_free(&memory);
    struct cluster_device device = {
        .limits = {.memory_bytes_per_s = 1e12, .bf16_flops_per_s = 1e15, .fp32_flops_per_s = 1e14}};
    struct roofline roofline = roofline_of(first_node(trained, &op_token_shift), &device, ROOFLINE_EXPECTED);
    assert_string_equal(roofline.class_name, "elementwise");
    assert_true(roofline.limit_s > 0 && roofline.seconds > roofline.limit_s);
    assert_int_equal(model_matrix_parameter_count(trained), LAYERS * HIDDEN * HIDDEN + VOCABULARY * HIDDEN);
    graph_free(trained);
    graph_free(cached);
}

/* A backend without the kernel says so when the plan is made, and others are not changed by a copy that has it. */
static void a_backend_may_lack_it(void **state) {
    (void)state;
    const struct backend with = token_shift_backend();
    struct graph *graph = training_graph();
    struct plan plan = small_plan(graph, MICRO_BATCHES, 1);
    struct executable *executable = NULL;
    assert_true(backend_has_kernel(&with, &op_token_shift) && backend_has_kernel(&with, &op_linear));
    assert_false(backend_has_kernel(&backend_cpu, &op_token_shift));
    assert_int_equal(executable_create(&backend_cpu, graph, &plan, NULL, &executable), STATUS_BAD_INPUT);
    assert_null(executable);
    assert_string_equal(status_message(), "shift.0: the cpu backend has no kernel for the operator token_shift");
    assert_non_null(strstr(status_hint_text(), "CONTRIBUTING.md"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_gradient_is_that_of_differences),
        cmocka_unit_test(recomputed_bits),
        cmocka_unit_test(it_decodes_from_its_cache),
        cmocka_unit_test(its_costs_are_counted),
        cmocka_unit_test(a_backend_may_lack_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
