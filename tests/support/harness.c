#include "support/harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/program.h"
#include "plan/recipe.h"
#include "session/candidate.h"
#include "support/deferred_backend.h"
#include "support/interleave.h"
#include "support/small_graph.h"
#include "support/unit.h"

static void require(enum status status, const char *what) {
    if (status != STATUS_OK) fail_msg("%s: status %d: %s", what, status, status_message());
}

/* The process keeps its one deferred device until it exits. */
static const struct backend *deferred_backend(void) {
    enum { SEED = 1 };
    static const struct backend *backend;
    if (!backend) backend = deferred_begin(SEED);
    return backend;
}

const struct backend *harness_default_backend(void) {
    const char *device = getenv("BALLAST_TEST_BACKEND");
    const struct backend *backend = &backend_cpu;
    if (device && strcmp(device, "deferred") == 0) return deferred_backend();
    if (!device || backend_find(device, &backend) == STATUS_OK) return backend;
    unit_skip_all("%s; needs a GPU that this build can use", status_message());
}

static struct plan_request request_of(const struct harness_options *options) {
    struct plan_request request = {
        .plan = {.recipe = {.dtype = options->dtype,
                            .batch = options->batch,
                            .sequence_length = options->sequence_length,
                            .micro_batch_sequences = options->micro_batch_sequences,
                            .lanes = options->lanes,
                            .round_micro_batches = options->round_micro_batches,
                            .tensor_parallel = options->tensor,
                            .sequence_parallel = options->sequence,
                            .layout =
                                options->layout_rates.flops_per_s > 0 ? TENSOR_LAYOUT_SOLVER : TENSOR_LAYOUT_MEGATRON,
                            .layout_rates = options->layout_rates,
                            .reduce_dtype = options->reduce_dtype,
                            .seed = options->seed,
                            .beta1 = options->beta1,
                            .beta2 = options->beta2,
                            .epsilon = options->epsilon,
                            .weight_decay = options->weight_decay,
                            .clip_norm = options->clip_norm},
                 .policy = options->policy,
                 .threads = options->threads},
        .set = {.texts = 1},
        .policy_fixed = true,
    };
    struct recipe *recipe = &request.plan.recipe;
    recipe->kernels_version = options->backend->kernels_version;
    if (options->purpose == MODEL_LOSS_SEGMENTED) recipe->document_attention = DOCUMENT_ATTENTION_WITHIN;
    if (options->strategies) require(recipe_lines_keep(options->strategies, &recipe->strategies), "strategies");
    recipe->loss = options->loss;
    recipe->dpo_beta = options->dpo_beta;
    recipe->optimizer = options->optimizer;
    if (options->optimizer == UPDATE_MUON)
        recipe->muon_momentum = options->muon_momentum > 0 ? options->muon_momentum : 0.95;
    recipe->optimizer_dtype = options->optimizer_dtype;
    recipe->master_weights = options->master_weights;
    recipe->quantize_base = options->quantize_base;
    snprintf(recipe->lora, sizeof recipe->lora, "%s", options->lora ? options->lora : "");
    snprintf(recipe->freeze, sizeof recipe->freeze, "%s", options->freeze ? options->freeze : "");
    request.plan.policy.micro_batches_per_wave = options->micro_batches_per_wave;
    if (options->comm) request.plan.place.mesh = options->comm->mesh;
    request.plan.place.pipeline_parallel = options->stages;
    request.plan.place.tensor_parallel = options->tensor;
    enum program_use main = options->purpose == MODEL_LOGITS ? PROGRAM_LOGITS
                            : options->forward_only          ? PROGRAM_LOSS
                                                             : PROGRAM_STEP;
    request.set.uses = 1u << main | (options->evaluates ? 1u << PROGRAM_LOSS : 0);
    return request;
}

static void use_streams(struct executable *executable, const struct plan *plan, int streams, uint64_t seed) {
    struct graph *graph = executable->graph;
    program_free(executable->program);
    executable->program = NULL;
    require(program_schedule(graph, plan, &executable->workspace, &executable->program), "schedule");
    require(program_gather(executable->program, &plan->policy), "gather");
    require(program_move(executable->program, &plan->policy), "move");
    small_scatter(executable->program, streams, seed);
    require(program_place(executable->program), "place");
    require(program_synchronise(executable->program), "synchronise");
    require(program_verify(executable->program), "verify");
}

static void set_defaults(struct harness_options *options) {
    if (options->threads == 0) options->threads = 2;
    if (options->beta1 <= 0) options->beta1 = 0.9, options->beta2 = 0.95, options->epsilon = 1e-6;
    if (!options->backend) options->backend = harness_default_backend();
    if (!options->disk) options->disk = "/tmp";
}

static void open_session(struct harness *harness) {
    const struct harness_options *options = &harness->options;
    struct plan_options plan;
    struct model *model;
    if (options->adapter)
        require(model_open_adapter(options->adapter, options->folder, &model), options->adapter);
    else if (options->folder)
        require(model_open(options->folder, &model), options->folder);
    else
        require(model_create(options->config, &model), "model");
    plan_options_init(&plan);
    SETTINGS_GIVE(&plan, backend, options->backend);
    SETTINGS_GIVE(&plan.memory, device_bytes, INT64_MAX / 4);
    SETTINGS_GIVE(&plan.memory, host_bytes, INT64_MAX / 4);
    memory_options_set_disk(&plan.memory, options->disk);
    plan.comm = options->comm;
    require(session_open_model(model, &plan, NULL, &harness->session), "session");
    harness->session.machine.disk_engine = options->engine;
    harness->session.machine.disk_buffered = options->buffered;
}

static void choose_policy(struct harness *harness, struct plan_request *request) {
    struct plan *plan = &request->plan;
    struct graph *graph;
    enum program_use main = 0;
    while (!program_set_has(&request->set, main))
        main++;
    require(program_build_graph(&harness->session, &request->set, main, plan, &graph), "graph");
    if (harness->options.policy_seed != 0)
        plan->policy = random_policy_with(graph, recipe_share_micro_batches(&plan->recipe), NULL,
                                          harness->options.policy_seed, &harness->options.policy_traits);
    if (partition_cuts(&harness->options.partition)) policy_cut(graph, &harness->options.partition, &plan->policy);
    plan->policy.flat = harness->options.flat;
    graph_free(graph);
}

static void compile(struct harness *harness) {
    struct harness_options *options = &harness->options;
    struct plan_request request = request_of(options);
    require(session_set_trained(&harness->session, &request.plan.recipe), "what is trained");
    bool leads = harness->session.comm->rank == 0,
         chosen = options->policy_seed != 0 || partition_cuts(&options->partition);
    if (leads) require(plan_fill_in_strategies(&harness->session, &request.plan), "strategies");
    if (leads && chosen) choose_policy(harness, &request);
    if (options->spans) snprintf(request.plan.policy.spans, sizeof request.plan.policy.spans, "%s", options->spans);
    enum status compiled = session_plan_make(&harness->session, &request, &harness->plan);
    if (compiled == STATUS_OK) options->policy = harness->plan.chosen.policy;
    if (compiled != STATUS_OK) print_policy(&request.plan.policy, options->policy_seed);
    require(compiled, "compile");
    struct programs *programs = &harness->plan.programs;
    struct executable *main = programs->of[programs_main_use(programs)];
    if (options->streams > 1) use_streams(main, &request.plan, options->streams, options->seed + options->stream_seed);
    programs_sum_bytes(programs);
    harness->executable = main;
}

void harness_open(const struct harness_options *options, struct harness *out) {
    *out = (struct harness){.options = *options};
    set_defaults(&out->options);
    open_session(out);
    compile(out);
    if (options->before_arena) options->before_arena(options->payload);
    require(engine_open(&out->plan, &out->engine), "engine");
    out->runner = out->engine.main;
    require(options->folder ? engine_load_weights(&out->engine)
                            : engine_initialise_weights(&out->engine, options->seed),
            "weights");
}

void harness_close(struct harness *harness) {
    engine_close(&harness->engine);
    session_plan_free(&harness->plan);
    session_close(&harness->session);
}

const struct graph *harness_graph(const struct harness *harness) { return engine_graph(&harness->engine); }

void *harness_data(const struct harness *harness, const char *name) {
    const struct tensor *tensor = graph_find(harness_graph(harness), name);
    return tensor ? runner_data(harness->runner, tensor) : NULL;
}

const float *harness_logits(const struct harness *harness) {
    return engine_data(&harness->engine, PROGRAM_LOGITS, "logits");
}

static int32_t *input_of(const struct executable *executable, const struct runner *runner, const char *name) {
    const struct tensor *tensor = graph_find(executable->graph, name);
    return tensor ? runner_data(runner, tensor) : NULL;
}

/* Of a batch, the micro-batches that the program's inputs hold. */
static struct micro_batch_range micro_batches_of(const struct harness *harness, const struct runner *runner) {
    const struct harness_options *options = &harness->options;
    int64_t all = (options->batch + options->micro_batch_sequences - 1) / options->micro_batch_sequences;
    bool step = runner == harness->engine.runners[PROGRAM_STEP];
    return step ? harness->engine.micro_batches : (struct micro_batch_range){0, all};
}

static void set_inputs(const struct harness *harness, const struct executable *executable, const struct runner *runner,
                       const int32_t *tokens, const int32_t *targets) {
    const struct harness_options *options = &harness->options;
    struct micro_batch_range micro_batches = micro_batches_of(harness, runner);
    int64_t length = options->sequence_length, in_micro_batch = options->micro_batch_sequences * length;
    int64_t first = micro_batches.first * in_micro_batch, unpadded = options->batch * length;
    int32_t *to_tokens = input_of(executable, runner, "tokens"), *to_targets = input_of(executable, runner, "targets");
    int32_t *positions = input_of(executable, runner, "positions");
    for (int64_t i = 0; i < micro_batches.count * in_micro_batch; i++) {
        to_tokens[i] = first + i < unpadded ? tokens[first + i] : 0;
        if (to_targets) to_targets[i] = first + i < unpadded ? targets[first + i] : TARGET_PADDING;
        if (positions) positions[i] = (int32_t)(i % length);
    }
}

void harness_set_inputs(struct harness *harness, const int32_t *tokens, const int32_t *targets) {
    set_inputs(harness, harness->executable, harness->runner, tokens, targets);
}

void harness_set_references(struct harness *harness, const double *references) {
    const struct harness_options *options = &harness->options;
    struct micro_batch_range micro_batches = micro_batches_of(harness, harness->runner);
    int64_t first = micro_batches.first * options->micro_batch_sequences,
            count = micro_batches.count * options->micro_batch_sequences;
    double *to = harness_data(harness, "reference");
    for (int64_t i = 0; i < count; i++)
        to[i] = first + i < options->batch ? references[first + i] : 0;
}

static int64_t count_unmasked(const int32_t *targets, int64_t count) {
    int64_t unmasked = 0;
    for (int64_t i = 0; targets && i < count; i++)
        unmasked += targets[i] >= 0;
    return unmasked;
}

/* Those of this rank's rows that are there. */
static int64_t count_pairs(const struct harness *harness) {
    struct micro_batch_range micro_batches = micro_batches_of(harness, harness->runner);
    int64_t first = micro_batches.first * harness->options.micro_batch_sequences,
            end = first + micro_batches.count * harness->options.micro_batch_sequences;
    return first >= harness->options.batch
               ? 0
               : ((end < harness->options.batch ? end : harness->options.batch) - first) / 2;
}

int64_t harness_count_targets(const struct harness *harness) {
    if (harness->options.loss == TRAINING_DPO) return count_pairs(harness);
    int64_t micro_batches = micro_batches_of(harness, harness->runner).count, length = harness->options.sequence_length;
    return count_unmasked(harness_data(harness, "targets"),
                          micro_batches * harness->options.micro_batch_sequences * length);
}

double harness_evaluate(struct harness *harness, const int32_t *tokens, const int32_t *targets) {
    double scalars[SCALAR_COUNT] = {[SCALAR_LOSS_SCALE] = 1};
    harness_finish(harness);
    struct runner *runner = harness->engine.runners[PROGRAM_LOSS];
    set_inputs(harness, harness->plan.programs.of[PROGRAM_LOSS], runner, tokens, targets);
    require(runner_step(runner, scalars), "evaluation");
    const double *loss = engine_data(&harness->engine, PROGRAM_LOSS, "loss");
    return *loss / (double)count_unmasked(targets, harness->options.batch * harness->options.sequence_length);
}

double harness_step(struct harness *harness, double learning_rate, bool interleaved) {
    int64_t unmasked;
    require(
        step_collectives_targets(&harness->engine.collectives, STATUS_OK, harness_count_targets(harness), &unmasked),
        "targets");
    harness->step++;
    double t = (double)harness->step;
    double scalars[SCALAR_COUNT] = {
        [SCALAR_LOSS_SCALE] = unmasked > 0 ? 1.0 / (double)unmasked : 0,
        [SCALAR_LEARNING_RATE] = learning_rate,
        [SCALAR_STEP] = t,
        [SCALAR_BIAS_CORRECTION] = 1 / (1 - pow(harness->options.beta1, t)),
        [SCALAR_BIAS_CORRECTION_SQ] = 1 / sqrt(1 - pow(harness->options.beta2, t)),
    };
    if (interleaved)
        require(runner_step_interleaved(harness->runner, scalars,
                                        harness->options.seed + harness->options.policy_seed + (uint64_t)harness->step),
                "step");
    else
        require(runner_step(harness->runner, scalars), "step");
    const double *losses = harness_data(harness, "loss");
    if (!losses) return 0;
    harness->figures[0] = *losses;
    if (harness->engine.runners[PROGRAM_STEP])
        require(step_collectives_loss(&harness->engine.collectives, losses, harness->figures), "loss");
    return harness->figures[0] * scalars[SCALAR_LOSS_SCALE];
}

/* Itself or its master. */
static const struct tensor *find_stored(const struct graph *graph, const struct tensor *parameter) {
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        bool of_it = tensor->kind == TENSOR_STATE && tensor->parameter == parameter;
        if (of_it && strcmp(tensor->role, "master") == 0) return tensor;
    }
    return parameter;
}

float *harness_weights(const struct harness *harness, const struct tensor *parameter) {
    const struct tensor *stored_as = find_stored(harness_graph(harness), parameter);
    int64_t bytes = shape_bytes(&stored_as->shape);
    assert_int_equal(stored_as->shape.dtype, DTYPE_F32);
    float *weights = mem_array((size_t)bytes, 1);
    assert_non_null(weights);
    require(runner_read(harness->runner, stored_as, 0, bytes, weights), "weights");
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
