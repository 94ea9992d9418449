#include "support/harness.h"

#include <math.h>
#include <string.h>

#include "graph/differentiate.h"
#include "program/passes.h"
#include "support/random_policy.h"
#include "support/small_graph.h"
#include "support/unit.h"

static void require(enum status status, const char *what) {
    if (status != STATUS_OK) fail_msg("%s: status %d: %s", what, status, status_message());
}

static const struct backend *default_backend(void) {
    const char *device = getenv("BALLAST_TEST_BACKEND");
    const struct backend *backend = &backend_cpu;
    if (!device || backend_find(device, &backend) == STATUS_OK) return backend;
    unit_skip_all("%s; needs a GPU that this build can use", status_message());
}

static struct plan plan_of(const struct harness_options *options) {
    struct plan plan = {
        .recipe = {.dtype = options->dtype,
                   .batch = options->batch,
                   .sequence_length = options->sequence_length,
                   .grain_sequences = options->grain_sequences,
                   .threads = options->threads,
                   .beta1 = options->beta1,
                   .beta2 = options->beta2,
                   .epsilon = options->epsilon,
                   .weight_decay = options->weight_decay,
                   .clip_norm = options->clip_norm},
        .policy = options->policy,
    };
    plan.policy.grains_per_pass = options->grains_per_pass;
    return plan;
}

static void use_streams(struct executable *executable, const struct plan *plan, int streams, uint64_t seed) {
    struct graph *graph = executable->graph;
    int64_t *bytes = executable_workspace(executable);
    assert_non_null(bytes);
    struct workspace_table table = {.bytes = bytes, .count = (int)graph->nodes.count};
    program_free(executable->program);
    executable->program = NULL;
    require(program_schedule(graph, plan, &table, &executable->program), "schedule");
    mem_free(bytes);
    require(program_move(executable->program, &plan->policy), "move");
    small_scatter(executable->program, streams, seed);
    require(program_place(executable->program), "place");
    require(program_synchronise(executable->program), "synchronise");
    require(program_verify(executable->program), "verify");
}

/* Where a tensor's home is a disk, through memory of our own. */
static void load_weight(struct harness *harness, const struct tensor *home, struct tensor *parameter) {
    int64_t bytes = shape_bytes(&home->shape);
    void *there = runner_data(harness->runner, home), *own = there ? NULL : mem_array((size_t)bytes, 1);
    struct weight_target target = {.tensor = parameter, .data = there ? there : own, .dtype = home->shape.dtype};
    assert_non_null(target.data);
    if (harness->options.folder)
        require(model_load_weights(harness->model, &target, 1), "weights");
    else
        model_initialise_weights(harness->model, harness->options.seed, &target, 1);
    if (own) require(runner_write(harness->runner, home, 0, bytes, own), "home");
    mem_free(own);
}

static void load_weights(struct harness *harness) {
    struct graph *graph = harness_graph(harness);
    for (size_t i = 0; i < graph->tensors.count; i++) {
        struct tensor *tensor = graph->tensors.items[i];
        bool master = tensor->kind == TENSOR_STATE && strcmp(tensor->role, "master") == 0;
        if (tensor->kind == TENSOR_PARAMETER || master)
            load_weight(harness, tensor, master ? tensor->parameter : tensor);
    }
}

static void open_arenas(struct harness *harness) {
    const char *folder = harness->options.disk ? harness->options.disk : "/tmp";
    struct arena_settings settings = {.memory = harness->options.backend->memory,
                                      .folder = folder,
                                      .channels = RUNNER_CHANNELS,
                                      .engine = harness->options.engine,
                                      .buffered = harness->options.buffered};
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        int64_t bytes = harness->executable->program->tier_bytes[tier];
        int64_t other = harness->evaluation ? harness->evaluation->program->tier_bytes[tier] : 0;
        if (other > bytes) bytes = other;
        require(arena_open(tier, bytes, &settings, &harness->arenas[tier]), "arena");
    }
}

static void compile_evaluation(struct harness *harness, const struct plan *plan) {
    const struct harness_options *options = &harness->options;
    struct graph *graph;
    struct tensor *loss;
    require(model_build_graph(harness->model, MODEL_LOSS, options->dtype, options->grain_sequences,
                              options->sequence_length, &graph, &loss),
            "the graph of the evaluation");
    require(executable_create_beside(options->backend, graph, plan, harness->executable, &harness->evaluation),
            "compile the evaluation");
}

void harness_open(const struct harness_options *options, struct harness *out) {
    struct harness harness = {.options = *options};
    struct harness_options *own = &harness.options;
    if (own->threads == 0) own->threads = 2;
    if (own->beta1 <= 0) own->beta1 = 0.9, own->beta2 = 0.95, own->epsilon = 1e-6;
    if (!own->backend) own->backend = default_backend();
    own->backend->set_threads(own->threads);
    if (own->adapter)
        require(model_open_adapter(own->adapter, own->folder, &harness.model), own->adapter);
    else if (own->folder)
        require(model_open(own->folder, &harness.model), own->folder);
    else
        require(model_create(own->config, &harness.model), "model");
    require(model_set_adapter(harness.model, own->lora ? own->lora : "", own->seed), "adapter");
    require(model_set_frozen(harness.model, own->freeze ? own->freeze : ""), "frozen");
    struct graph *graph;
    require(model_build_graph(harness.model, own->purpose, own->dtype, own->grain_sequences, own->sequence_length,
                              &graph, &harness.output),
            "graph");
    if (own->purpose != MODEL_LOGITS && !own->forward_only) {
        struct optimizer_options optimizer = {.beta1 = own->beta1,
                                              .beta2 = own->beta2,
                                              .epsilon = own->epsilon,
                                              .weight_decay = own->weight_decay,
                                              .clip_norm = own->clip_norm};
        require(graph_differentiate(graph, harness.output), "differentiate");
        require(ops_add_optimizer(graph, &optimizer), "optimizer");
    }
    struct plan plan = plan_of(own);
    if (own->policy_seed != 0) {
        plan.policy = random_policy(graph, recipe_grains(&plan.recipe), own->policy_seed);
        own->policy = plan.policy;
    }
    enum status compiled = executable_create(own->backend, graph, &plan, &harness.executable);
    if (compiled != STATUS_OK) print_policy(&plan.policy, own->policy_seed);
    require(compiled, "compile");
    if (own->streams > 1) use_streams(harness.executable, &plan, own->streams, own->seed + own->stream_seed);
    if (own->evaluates) compile_evaluation(&harness, &plan);
    if (own->before_arena) own->before_arena(own->payload);
    *out = harness;
    open_arenas(out);
    require(runner_create(out->executable, out->arenas, &out->runner), "runner");
    if (out->evaluation) require(runner_create(out->evaluation, out->arenas, &out->evaluator), "evaluator");
    load_weights(out);
}

void harness_close(struct harness *harness) {
    runner_free(harness->runner);
    runner_free(harness->evaluator);
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        arena_close(&harness->arenas[tier]);
    executable_free(harness->executable);
    executable_free(harness->evaluation);
    model_free(harness->model);
}

struct graph *harness_graph(const struct harness *harness) {
    return harness->executable->graph;
}

void *harness_data(const struct harness *harness, const char *name) {
    const struct tensor *tensor = graph_find(harness_graph(harness), name);
    return tensor ? runner_data(harness->runner, tensor) : NULL;
}

static int32_t *input_of(const struct executable *executable, const struct runner *runner, const char *name) {
    const struct tensor *tensor = graph_find(executable->graph, name);
    return tensor ? runner_data(runner, tensor) : NULL;
}

static void set_inputs(const struct harness_options *options, const struct executable *executable,
                       const struct runner *runner, const int32_t *tokens, const int32_t *targets) {
    int64_t length = options->sequence_length, rows = options->batch;
    int64_t grains = (rows + options->grain_sequences - 1) / options->grain_sequences;
    int32_t *to_tokens = input_of(executable, runner, "tokens"), *to_targets = input_of(executable, runner, "targets");
    int32_t *positions = input_of(executable, runner, "positions");
    for (int64_t i = 0; i < grains * options->grain_sequences * length; i++) {
        bool real = i < rows * length;
        to_tokens[i] = real ? tokens[i] : 0;
        if (to_targets) to_targets[i] = real ? targets[i] : -100;
        if (positions) positions[i] = (int32_t)(i % length);
    }
}

void harness_set_inputs(struct harness *harness, const int32_t *tokens, const int32_t *targets) {
    set_inputs(&harness->options, harness->executable, harness->runner, tokens, targets);
}

static int64_t count_unmasked(const struct harness *harness, const int32_t *targets) {
    int64_t count = harness->options.batch * harness->options.sequence_length, unmasked = 0;
    for (int64_t i = 0; targets && i < count; i++)
        unmasked += targets[i] >= 0;
    return unmasked;
}

double harness_evaluate(struct harness *harness, const int32_t *tokens, const int32_t *targets) {
    double scalars[SCALAR_COUNT] = {[SCALAR_LOSS_SCALE] = 1};
    harness_finish(harness);
    set_inputs(&harness->options, harness->evaluation, harness->evaluator, tokens, targets);
    require(runner_step(harness->evaluator, scalars), "evaluation");
    const struct tensor *loss = graph_find(harness->evaluation->graph, "loss");
    return *(const double *)runner_data(harness->evaluator, loss) / (double)count_unmasked(harness, targets);
}

double harness_step(struct harness *harness, double learning_rate, bool interleaved) {
    int64_t unmasked = count_unmasked(harness, harness_data(harness, "targets"));
    harness->step++;
    double t = (double)harness->step;
    double scalars[SCALAR_COUNT] = {
        [SCALAR_LOSS_SCALE] = unmasked > 0 ? 1.0 / (double)unmasked : 0,
        [SCALAR_LEARNING_RATE] = learning_rate,
        [SCALAR_BIAS_CORRECTION] = 1 / (1 - pow(harness->options.beta1, t)),
        [SCALAR_BIAS_CORRECTION_SQ] = 1 / sqrt(1 - pow(harness->options.beta2, t)),
    };
    if (interleaved)
        require(runner_step_interleaved(harness->runner, scalars,
                                        harness->options.seed + harness->options.policy_seed + (uint64_t)harness->step),
                "step");
    else
        require(runner_step(harness->runner, scalars), "step");
    const double *loss = harness_data(harness, "loss");
    return loss ? *loss * scalars[SCALAR_LOSS_SCALE] : 0;
}

/* Itself or its master. */
static const struct tensor *find_home(const struct graph *graph, const struct tensor *parameter) {
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        bool of_it = tensor->kind == TENSOR_STATE && tensor->parameter == parameter;
        if (of_it && strcmp(tensor->role, "master") == 0) return tensor;
    }
    return parameter;
}

float *harness_weights(const struct harness *harness, const struct tensor *parameter) {
    const struct tensor *home = find_home(harness_graph(harness), parameter);
    int64_t bytes = shape_bytes(&home->shape);
    assert_int_equal(home->shape.dtype, DTYPE_F32);
    float *weights = mem_array((size_t)bytes, 1);
    assert_non_null(weights);
    require(runner_read(harness->runner, home, 0, bytes, weights), "weights");
    return weights;
}

void harness_finish(struct harness *harness) { require(runner_finish(harness->runner), "the last update"); }

uint64_t harness_fingerprint(struct harness *harness) {
    uint64_t mixed = 1469598103934665603u;
    const struct graph *graph = harness_graph(harness);
    harness_finish(harness);
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != TENSOR_PARAMETER && tensor->kind != TENSOR_STATE) continue;
        int64_t count = shape_bytes(&tensor->shape);
        unsigned char *bytes = mem_array((size_t)count, 1);
        assert_non_null(bytes);
        require(runner_read(harness->runner, tensor, 0, count, bytes), "weights");
        for (int64_t k = 0; k < count; k++)
            mixed = (mixed ^ bytes[k]) * 1099511628211u;
        mem_free(bytes);
    }
    return mixed;
}
