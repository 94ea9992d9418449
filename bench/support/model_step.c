#include "support/model_step.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "graph/differentiate.h"

static const double LEARNING_RATE = 1e-4;

/* GPT-2 124M. The Llama has its sizes, GPT-2's vocabulary and tied embeddings too, so that both have 124 M parameters
 * and the same head: they differ in architecture alone (three products of 2048 columns for two of 3072, and so on). */
static enum status create_model(const struct model_step_options *options, int64_t context, struct model **out) {
    struct model_config config;
    TRY(model_config_init(options->family, &config));
    config.vocab_size = options->vocab > 0 ? options->vocab : 50257;
    config.hidden = options->hidden > 0 ? options->hidden : 768;
    config.heads = options->heads > 0 ? options->heads : 12;
    config.layers = options->layers;
    config.ffn = strcmp(options->family, "llama") == 0 ? config.hidden * 8 / 3 : config.hidden * 4;
    config.context = context > 1024 ? context : 1024;
    config.tied = true;
    return model_create(&config, out);
}

static enum status build_graph(const struct model_step *step, struct graph **out) {
    const struct recipe *recipe = &step->plan.recipe;
    const struct optimizer_options optimizer = {recipe->beta1, recipe->beta2, recipe->epsilon, recipe->weight_decay,
                                                recipe->clip_norm};
    struct graph *graph;
    struct tensor *loss;
    TRY(model_build_graph(step->model, MODEL_LOSS, recipe->dtype, recipe->grain_sequences, recipe->sequence_length,
                          &graph, &loss));
    enum status status = graph_differentiate(graph, loss);
    if (status == STATUS_OK) status = ops_add_optimizer(graph, &optimizer);
    if (status == STATUS_OK)
        *out = graph;
    else
        graph_free(graph);
    return status;
}

/* A tensor whose home has no address gets its values through memory of our own. */
static enum status initialise_one(const struct model_step *step, const struct tensor *home, struct tensor *parameter) {
    int64_t bytes = shape_bytes(&home->shape);
    void *there = runner_data(step->runner, home), *own = there ? NULL : mem_array((size_t)bytes, 1);
    struct weight_target target = {.tensor = parameter, .data = there ? there : own, .dtype = home->shape.dtype};
    if (!target.data) return STATUS_FAILED;
    model_initialise_weights(step->model, step->plan.recipe.seed, &target, 1);
    enum status status = own ? runner_write(step->runner, home, 0, bytes, own) : STATUS_OK;
    mem_free(own);
    return status;
}

/* Every parameter and its master; equal values, since a tensor's values depend on the seed and its name. */
static enum status initialise_weights(const struct model_step *step) {
    const struct graph *graph = step->executable->graph;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        struct tensor *tensor = graph->tensors.items[i];
        bool master = tensor->kind == TENSOR_STATE && strcmp(tensor->role, "master") == 0;
        if (tensor->kind == TENSOR_PARAMETER || master)
            TRY(initialise_one(step, tensor, master ? tensor->parameter : tensor));
    }
    return STATUS_OK;
}

static int32_t *find_input(const struct model_step *step, const char *name) {
    const struct tensor *tensor = graph_find(step->executable->graph, name);
    return tensor ? runner_data(step->runner, tensor) : NULL;
}

static void fill_inputs(const struct model_step *step) {
    const struct recipe *recipe = &step->plan.recipe;
    uint64_t vocab = (uint64_t)step->model->config.vocab_size;
    int64_t all = recipe_grains(recipe) * recipe->grain_sequences * recipe->sequence_length;
    int32_t *tokens = find_input(step, "tokens"), *targets = find_input(step, "targets");
    int32_t *positions = find_input(step, "positions");
    for (int64_t i = 0; i < all; i++) {
        tokens[i] = (int32_t)(random_u64(recipe->seed, RANDOM_TEST, 0, (uint64_t)i) % vocab);
        targets[i] = i < model_step_tokens(step)
                         ? (int32_t)(random_u64(recipe->seed, RANDOM_TEST, 1, (uint64_t)i) % vocab)
                         : -100;
        if (positions) positions[i] = (int32_t)(i % recipe->sequence_length);
    }
}

static const struct backend *backend_of(const struct model_step_options *options) {
    return options->plan.backend ? options->plan.backend : &backend_cpu;
}

enum status model_step_compile(const struct model_step_options *options, struct model_step *out) {
    *out = (struct model_step){0};
    struct recipe *recipe = &out->plan.recipe;
    const struct backend *backend = backend_of(options);
    TRY(plan_options_resolve(&options->plan, NULL, backend, NULL, NULL, NULL, &out->plan));
    if (options->policy) out->plan.policy = *options->policy;
    TRY(plan_check(&out->plan));
    TRY(create_model(options, recipe->sequence_length, &out->model));
    TRY(model_set_adapter(out->model, recipe->lora, recipe->seed));
    TRY(model_set_frozen(out->model, recipe->freeze));
    backend->set_threads(recipe->threads);
    struct graph *graph;
    TRY(build_graph(out, &graph));
    return executable_create(backend, graph, &out->plan, &out->executable);
}

enum status model_step_open(const struct model_step_options *options, struct model_step *out) {
    const struct arena_settings settings = {
        .memory = backend_of(options)->memory, .folder = options->disk_folder, .channels = RUNNER_CHANNELS};
    TRY(model_step_compile(options, out));
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        TRY(arena_open(tier, out->executable->program->tier_bytes[tier], &settings, &out->arenas[tier]));
    TRY(runner_create(out->executable, out->arenas, &out->runner));
    TRY(initialise_weights(out));
    fill_inputs(out);
    return STATUS_OK;
}

void model_step_close(struct model_step *step) {
    runner_free(step->runner);
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        arena_close(&step->arenas[tier]);
    executable_free(step->executable);
    model_free(step->model);
    *step = (struct model_step){0};
}

enum status model_step_run(struct model_step *step, int64_t *ns) {
    const struct recipe *recipe = &step->plan.recipe;
    double t = (double)++step->steps;
    const double scalars[SCALAR_COUNT] = {
        [SCALAR_LOSS_SCALE] = 1 / (double)model_step_tokens(step),
        [SCALAR_LEARNING_RATE] = LEARNING_RATE,
        [SCALAR_BIAS_CORRECTION] = 1 / (1 - pow(recipe->beta1, t)),
        [SCALAR_BIAS_CORRECTION_SQ] = 1 / sqrt(1 - pow(recipe->beta2, t)),
    };
    int64_t start = clock_now_ns();
    TRY(runner_step(step->runner, scalars));
    *ns = clock_now_ns() - start;
    const double *loss = runner_data(step->runner, graph_find(step->executable->graph, "loss"));
    step->loss = *loss * scalars[SCALAR_LOSS_SCALE];
    return STATUS_OK;
}

int64_t model_step_tokens(const struct model_step *step) {
    return step->plan.recipe.batch * step->plan.recipe.sequence_length;
}

double model_step_model_flops(const struct model_step *step) {
    const struct model_config *config = &step->model->config;
    const struct graph *graph = step->executable->graph;
    double attention = 6.0 * (double)(config->layers * config->heads * config->head_dim) *
                       (double)(step->plan.recipe.sequence_length + 1);
    double products =
        4.0 * (double)model_matrix_parameter_count(graph) + 2.0 * (double)model_trained_matrix_count(graph);
    return (double)model_step_tokens(step) * (attention + products);
}

double model_step_program_flops(const struct model_step *step) {
    const struct program *program = step->executable->program;
    double flops = 0;
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (instruction->opcode != OPCODE_KERNEL) continue;
        struct op_cost cost;
        op_cost(instruction->node, &cost);
        flops += cost.flops * (double)program->sections.items[instruction->section].repeat;
    }
    return flops;
}
