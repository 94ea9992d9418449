#include "train/train_setup.h"

#include "cluster/cluster.h"
#include "graph/differentiate.h"
#include "ops/ops.h"
#include "train/generate.h"
#include "train/setup_compile.h"

static enum status add_backward(struct graph *graph, struct tensor *loss, const struct recipe *recipe) {
    struct optimizer_options optimizer = {recipe->beta1, recipe->beta2, recipe->epsilon, recipe->weight_decay,
                                          recipe->clip_norm};
    TRY(graph_differentiate(graph, loss));
    return ops_add_optimizer(graph, &optimizer);
}

static enum status compile_one(const struct train_setup *setup, enum model_purpose purpose, bool training,
                               const struct plan *plan, const struct executable *resident, struct executable **out) {
    const struct recipe *recipe = &plan->recipe;
    struct graph *graph;
    struct tensor *output;
    TRY(model_build_graph(setup->model, purpose, recipe->dtype, recipe->grain_sequences, recipe->sequence_length,
                          &graph, &output));
    enum status status = training ? add_backward(graph, output, recipe) : STATUS_OK;
    if (status != STATUS_OK) {
        graph_free(graph);
        return status;
    }
    return executable_create_beside(setup->backend, graph, plan, resident, out);
}

enum status setup_compile(const struct train_setup *setup, const struct plan *plan, struct executable **main,
                          struct executable **validation) {
    bool training = setup->purpose == SETUP_TRAIN;
    bool apart = plan->recipe.document_attention == DOCUMENT_ATTENTION_WITHIN;
    enum model_purpose loss = apart ? MODEL_LOSS_SEGMENTED : MODEL_LOSS;
    enum model_purpose purpose = setup->purpose == SETUP_GENERATE ? MODEL_LOGITS : loss;
    setup->backend->set_threads(plan->recipe.threads);
    struct executable *first, *second = NULL;
    TRY(compile_one(setup, purpose, training, plan, NULL, &first));
    enum status status = training ? compile_one(setup, loss, false, plan, first, &second) : STATUS_OK;
    if (status != STATUS_OK) {
        executable_free(first);
        return status;
    }
    *main = first;
    *validation = second;
    return STATUS_OK;
}

int64_t setup_program_bytes(const struct executable *main, const struct executable *validation, enum tier tier) {
    int64_t bytes = main->program->tier_bytes[tier];
    if (validation && validation->program->tier_bytes[tier] > bytes) bytes = validation->program->tier_bytes[tier];
    return bytes;
}

static enum status find_capacity(int64_t device_memory_bytes, struct train_setup *setup) {
    struct cluster_memory memory = {.capacity_bytes = device_memory_bytes};
    if (device_memory_bytes == 0) TRY(cluster_measure_memory(&memory));
    setup->capacity_bytes[TIER_DEVICE] = memory.capacity_bytes;
    return STATUS_OK;
}

/* The canonical spelling of what is trained goes into the plan. Where nothing is trained, a model is as it is. */
static enum status set_trained(struct train_setup *setup) {
    struct recipe *recipe = &setup->plan.recipe;
    if (setup->purpose != SETUP_TRAIN) {
        recipe->lora[0] = recipe->freeze[0] = '\0';
        return STATUS_OK;
    }
    TRY(model_set_adapter(setup->model, recipe->lora, recipe->seed));
    const struct adapter *adapter = &setup->model->config.adapter;
    if (adapter->rank > 0) adapter_print(adapter, recipe->lora);
    return model_set_frozen(setup->model, recipe->freeze);
}

static void count_flops(struct train_setup *setup) {
    const struct model_config *config = &setup->model->config;
    const struct graph *graph = setup->main->graph;
    setup->parameters = model_parameter_count(graph);
    setup->matrix_parameters = model_matrix_parameter_count(graph);
    setup->trained_parameters = model_trained_count(graph);
    double attention =
        (double)(config->layers * config->heads * config->head_dim) * (double)(setup->plan.recipe.sequence_length + 1);
    double forward = 2 * ((double)setup->matrix_parameters + attention);
    double backward = 4 * attention + 2 * (double)(setup->matrix_parameters + model_trained_matrix_count(graph));
    setup->flops_per_token = setup->purpose == SETUP_TRAIN ? forward + backward : forward;
}

static enum status finish(struct train_setup *setup, int64_t device_memory_bytes) {
    TRY(find_capacity(device_memory_bytes, setup));
    TRY(set_trained(setup));
    TRY(setup_compile(setup, &setup->plan, &setup->main, &setup->validation));
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        setup->program_bytes[tier] = setup_program_bytes(setup->main, setup->validation, tier);
        TRY(program_report_memory(setup->main->program, tier, &setup->memory[tier]));
    }
    count_flops(setup);
    return STATUS_OK;
}

/* One sequence at a time, of at most the plan's length, whatever batch the plan is for. */
static void fit_generation(struct plan *plan, int64_t context) {
    plan->recipe.batch = plan->recipe.grain_sequences = plan->policy.grains_per_pass = 1;
    if (plan->recipe.sequence_length > context) plan->recipe.sequence_length = context;
}

static enum status resolve(struct train_setup *setup, const struct plan_options *options,
                           const struct train_options *training) {
    int64_t context = setup->model->config.context;
    int64_t most = setup->purpose == SETUP_GENERATE ? (int64_t)GENERATE_DEFAULT_WINDOW : PLAN_DEFAULT_SEQUENCE;
    struct plan base;
    setup->recipe_fixed = options->plan_path != NULL;
    if (options->plan_path) TRY(plan_read(options->plan_path, &base));
    TRY(plan_options_resolve(options, training, setup->backend, context < most ? context : most,
                             options->plan_path ? &base : NULL, options->plan_path, &setup->plan));
    if (setup->purpose == SETUP_GENERATE) fit_generation(&setup->plan, context);
    return STATUS_OK;
}

enum status train_setup_create(const char *model_folder, enum setup_purpose purpose, const struct plan_options *options,
                               const struct train_options *training, struct train_setup *out) {
    struct train_setup setup = {.purpose = purpose, .backend = &backend_cpu};
    enum status status = model_open(model_folder, &setup.model);
    if (status == STATUS_OK) status = resolve(&setup, options, training);
    if (status == STATUS_OK) status = finish(&setup, options->device_memory_bytes);
    if (status != STATUS_OK)
        train_setup_free(&setup);
    else
        *out = setup;
    return status;
}

enum status train_setup_create_planned(const char *model_folder, enum setup_purpose purpose, const struct plan *plan,
                                       int64_t device_memory_bytes, struct train_setup *out) {
    struct train_setup setup = {.purpose = purpose, .backend = &backend_cpu, .plan = *plan, .recipe_fixed = true};
    enum status status = model_open(model_folder, &setup.model);
    if (status == STATUS_OK) status = finish(&setup, device_memory_bytes);
    if (status != STATUS_OK)
        train_setup_free(&setup);
    else
        *out = setup;
    return status;
}

void train_setup_free(struct train_setup *setup) {
    executable_free(setup->validation);
    executable_free(setup->main);
    model_free(setup->model);
    *setup = (struct train_setup){0};
}
