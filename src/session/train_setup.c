#include "session/train_setup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/file.h"
#include "base/size.h"
#include "cluster/cluster.h"
#include "graph/differentiate.h"
#include "ops/ops.h"
#include "session/setup_compile.h"

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

/* One grain of so many sequences, whatever batch the plan is for. */
static struct plan plan_of_texts(const struct plan *plan, int64_t sequences) {
    struct plan text = *plan;
    text.recipe.batch = text.recipe.grain_sequences = sequences;
    text.policy.grains_per_pass = 1;
    return text;
}

static enum status compile_texts(const struct train_setup *setup, int64_t sequences, int64_t tokens,
                                 const struct plan *plan, const struct executable *resident, struct executable **out) {
    struct decode_shape shape = {
        .sequences = sequences, .tokens = tokens, .texts = setup->texts, .positions = plan->recipe.sequence_length};
    struct plan text = plan_of_texts(plan, sequences);
    struct graph *graph;
    struct tensor *logits;
    TRY(model_build_decode_graph(setup->model, plan->recipe.dtype, &shape, &graph, &logits));
    return executable_create_beside(setup->backend, graph, &text, resident, out);
}

static enum model_purpose loss_of(const struct plan *plan) {
    bool apart = plan->recipe.document_attention == DOCUMENT_ATTENTION_WITHIN;
    return apart ? MODEL_LOSS_SEGMENTED : MODEL_LOSS;
}

static enum status compile_training(const struct train_setup *setup, const struct plan *plan, struct train_setup *out) {
    bool training = setup->purpose == SETUP_TRAIN;
    enum model_purpose loss = loss_of(plan);
    TRY(compile_one(setup, loss, training, plan, NULL, &out->main));
    return training ? compile_one(setup, loss, false, plan, out->main, &out->validation) : STATUS_OK;
}

/* Two programs with the same caches. */
static enum status compile_generation(const struct train_setup *setup, const struct plan *plan,
                                      struct train_setup *out) {
    int64_t positions = plan->recipe.sequence_length;
    int64_t chunk = positions < PREFILL_TOKENS ? positions : PREFILL_TOKENS;
    TRY(compile_texts(setup, 1, chunk, plan, out->main, &out->prefill));
    if (!out->main) out->main = out->prefill;
    return compile_texts(setup, DECODE_TEXTS, 1, plan, out->prefill, &out->decode);
}

enum status setup_compile(const struct train_setup *setup, const struct plan *plan, struct train_setup *out) {
    setup->backend->set_threads(plan->recipe.threads);
    bool text = setup->purpose == SETUP_GENERATE;
    if (!text) TRY(compile_training(setup, plan, out));
    return text || setup->samples ? compile_generation(setup, plan, out) : STATUS_OK;
}

void setup_free_programs(struct train_setup *setup) {
    executable_free(setup->decode);
    if (setup->prefill != setup->main) executable_free(setup->prefill);
    executable_free(setup->validation);
    executable_free(setup->main);
    setup->decode = setup->prefill = setup->validation = setup->main = NULL;
}

int64_t setup_program_bytes(const struct train_setup *setup, enum tier tier) {
    const struct executable *const all[] = {setup->main, setup->validation, setup->prefill, setup->decode};
    int64_t most = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] && all[i]->program->tier_bytes[tier] > most) most = all[i]->program->tier_bytes[tier];
    return most;
}

void setup_take_programs(struct train_setup *to, struct train_setup *from) {
    to->main = from->main;
    to->validation = from->validation;
    to->prefill = from->prefill;
    to->decode = from->decode;
    from->decode = from->prefill = from->validation = from->main = NULL;
}

/* What is free in the folder, but for a part that others may need. */
static enum status measure_disk(const char *folder, int64_t *bytes) {
    struct statvfs found;
    int error = statvfs(folder, &found) != 0 ? errno : file_is_folder(folder) ? 0 : ENOTDIR;
    if (error) {
        enum status status = status_set(STATUS_BAD_INPUT, "disk: %s: %s", folder, strerror(error));
        return status_hint(status, "--disk takes a folder that exists: DIR or DIR:SIZE");
    }
    *bytes = (int64_t)((1 - CLUSTER_RESERVE_FRACTION) * (double)found.f_bavail * (double)found.f_frsize);
    return STATUS_OK;
}

static enum status find_capacity(struct train_setup *setup) {
    const struct memory_options *memory = &setup->limits;
    const bool one = !setup->backend->memory; /* both tiers are memory of the process */
    int64_t machine[TIER_COUNT] = {[TIER_DEVICE] = memory->device_bytes, [TIER_HOST] = memory->host_bytes};
    if (memory->device_bytes == 0 || (!one && memory->host_bytes == 0)) TRY(setup->backend->capacity(machine));
    setup->capacity_bytes[TIER_DEVICE] = memory->device_bytes > 0 ? memory->device_bytes : machine[TIER_DEVICE];
    setup->capacity_bytes[TIER_HOST] = one || memory->host_bytes > 0 ? memory->host_bytes : machine[TIER_HOST];
    /* Without a size of its own the device leaves room for the host in the same memory. */
    if (one && memory->device_bytes == 0) setup->capacity_bytes[TIER_DEVICE] -= memory->host_bytes;
    if (setup->capacity_bytes[TIER_DEVICE] < 0) {
        char there[SIZE_TEXT];
        return status_set(STATUS_BAD_INPUT, "host-memory: leaves nothing for the device tier of the %s that there are",
                          size_print(machine[TIER_DEVICE], there));
    }
    setup->capacity_bytes[TIER_DISK] = memory->disk_bytes;
    int64_t free_bytes = 0;
    if (memory->disk_bytes > 0 && !memory->disk_folder[0])
        return status_set(STATUS_BAD_INPUT, "disk: names no folder before its size");
    if (memory->disk_folder[0]) TRY(measure_disk(memory->disk_folder, &free_bytes));
    if (memory->disk_folder[0] && memory->disk_bytes == 0) setup->capacity_bytes[TIER_DISK] = free_bytes;
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

/* A policy can be wrong for this model alone: the file that holds it is named. */
static enum status compile_given(struct train_setup *setup, const char *plan_path) {
    enum status status = setup_compile(setup, &setup->plan, setup);
    if (status != STATUS_BAD_INPUT || !plan_path) return status;
    char hint[256];
    snprintf(hint, sizeof hint, "%s", status_hint_text());
    status = status_prefix(status, "%s", plan_path);
    return hint[0] ? status_hint(status, "%s", hint) : status;
}

static enum status describe(struct train_setup *setup) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        setup->program_bytes[tier] = setup_program_bytes(setup, tier);
        TRY(program_report_memory(setup->main->program, tier, &setup->memory[tier]));
    }
    count_flops(setup);
    struct recipe *recipe = &setup->plan.recipe;
    const struct backend *backend = setup->backend;
    return backend->list_products ? backend->list_products(&recipe->products) : STATUS_OK;
}

static enum status finish(struct train_setup *setup, const struct plan_options *options) {
    setup->limits = options->memory;
    setup->grains_fixed = options->grains_per_pass > 0;
    if (options->cluster_path) TRY(cluster_read(options->cluster_path, &setup->cluster));
    TRY(find_capacity(setup));
    TRY(set_trained(setup));
    TRY(compile_given(setup, options->plan_path));
    if (!setup->policy_fixed) TRY(setup_choose_policy(setup));
    return describe(setup);
}

/* For texts the batch is how many have caches, whatever a plan file says of a training step's. */
static struct plan_options take_texts(struct train_setup *setup, const struct plan_options *options) {
    struct plan_options rest = *options;
    setup->texts = 1;
    if (setup->purpose != SETUP_GENERATE) return rest;
    if (options->batch > 0) setup->texts = options->batch;
    rest.batch = rest.grain_sequences = rest.grains_per_pass = 0;
    return rest;
}

static enum status resolve(struct train_setup *setup, const struct plan_options *asked,
                           const struct train_options *training) {
    const struct plan_options taken = take_texts(setup, asked), *options = &taken;
    int64_t context = setup->model->config.context;
    struct plan base;
    setup->recipe_fixed = setup->policy_fixed = options->plan_path != NULL;
    if (options->plan_path) TRY(plan_read(options->plan_path, &base));
    setup->backend = plan_options_backend(options, options->plan_path ? &base.recipe : NULL);
    TRY(plan_options_resolve(options, training, setup->backend, &setup->model->config,
                             options->plan_path ? &base : NULL, options->plan_path, &setup->plan));
    if (setup->purpose == SETUP_GENERATE) {
        setup->plan = plan_of_texts(&setup->plan, 1);
        /* A plan made for training may be longer than the context; a length that was asked for is refused below. */
        bool given = options->sequence_length > 0;
        if (!given && setup->plan.recipe.sequence_length > context) setup->plan.recipe.sequence_length = context;
    }
    return STATUS_OK;
}

enum status train_setup_create(const char *model_folder, enum setup_purpose purpose, const struct plan_options *options,
                               const struct train_options *training, struct train_setup *out) {
    struct train_setup setup = {.purpose = purpose};
    setup.samples = purpose == SETUP_TRAIN && training && training->sample_every > 0;
    enum status status =
        options->outline ? model_open_outline(model_folder, &setup.model) : model_open(model_folder, &setup.model);
    if (status == STATUS_OK) status = resolve(&setup, options, training);
    if (status == STATUS_OK) status = finish(&setup, options);
    if (status != STATUS_OK)
        train_setup_free(&setup);
    else
        *out = setup;
    return status;
}

enum status train_setup_create_planned(const char *model_folder, const struct plan *plan,
                                       const struct plan_options *options, const struct train_options *training,
                                       struct train_setup *out) {
    struct train_setup setup = {.purpose = SETUP_TRAIN,
                                .backend = plan_options_backend(options, &plan->recipe),
                                .plan = *plan,
                                .texts = 1,
                                .samples = training->sample_every > 0,
                                .recipe_fixed = true};
    enum status status = model_open(model_folder, &setup.model);
    if (status == STATUS_OK) status = finish(&setup, options);
    if (status != STATUS_OK)
        train_setup_free(&setup);
    else
        *out = setup;
    return status;
}

static enum status compile_step(const struct plan *plan, const char *plan_name, const char *model_folder,
                                struct train_setup *setup) {
    struct plan_options nothing_given;
    plan_options_init(&nothing_given);
    TRY(plan_options_resolve(&nothing_given, NULL, setup->backend, NULL, plan, plan_name, &setup->plan));
    TRY(model_open_outline(model_folder, &setup->model));
    TRY(set_trained(setup));
    setup->backend->set_threads(setup->plan.recipe.threads);
    TRY(compile_one(setup, loss_of(&setup->plan), true, &setup->plan, NULL, &setup->main));
    return describe(setup);
}

enum status train_setup_create_step(const char *model_folder, const struct plan *plan, const char *plan_name,
                                    struct train_setup *out) {
    struct train_setup setup = {.purpose = SETUP_TRAIN,
                                .backend = backend_of_isa(plan->recipe.isa),
                                .recipe_fixed = true,
                                .policy_fixed = true};
    enum status status = compile_step(plan, plan_name, model_folder, &setup);
    if (status != STATUS_OK)
        train_setup_free(&setup);
    else
        *out = setup;
    return status;
}

void train_setup_free(struct train_setup *setup) {
    costs_free(&setup->costs);
    search_result_free(&setup->search);
    setup_free_programs(setup);
    model_free(setup->model);
    *setup = (struct train_setup){0};
}
