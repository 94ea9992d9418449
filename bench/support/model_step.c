#include "support/model_step.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"

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

const struct executable *model_step_executable(const struct model_step *step) {
    return programs_main(&step->plan.programs);
}

static int32_t *find_input(const struct model_step *step, const char *name) {
    const struct tensor *tensor = graph_find(engine_graph(&step->engine), name);
    return tensor ? runner_data(step->engine.main, tensor) : NULL;
}

static void fill_inputs(const struct model_step *step) {
    const struct recipe *recipe = &step->plan.chosen.recipe;
    uint64_t vocab = (uint64_t)step->session.model->config.vocab_size;
    int64_t all = recipe_micro_batches(recipe) * recipe->micro_batch_sequences * recipe->sequence_length;
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

/* The policy is as it is given, whatever memory there is. */
static enum status make_request(const struct model_step_options *options, const struct plan_options *given,
                                struct plan_request *out) {
    *out = (struct plan_request){.set = {.uses = PROGRAMS_TO_SIMULATE, .texts = 1},
                                 .recipe_fixed = true,
                                 .policy_fixed = true,
                                 .micro_batches_fixed = true};
    TRY(plan_options_resolve(given, NULL, given->backend, NULL, NULL, NULL, &out->plan));
    if (options->policy) out->plan.policy = *options->policy;
    return plan_check(&out->plan);
}

enum status model_step_compile(const struct model_step_options *options, struct model_step *out) {
    struct plan_options given = options->plan;
    struct plan_request request;
    struct model *model;
    const char *disk = options->disk_folder;
    *out = (struct model_step){.steps = 0};
    if (!SETTINGS_HAVE(&given, backend)) SETTINGS_GIVE(&given, backend, &backend_cpu);
    SETTINGS_GIVE(&given.memory, device_bytes, INT64_MAX / 4);
    SETTINGS_GIVE(&given.memory, host_bytes, INT64_MAX / 4);
    if (disk) memory_options_set_disk(&given.memory, disk);
    TRY(make_request(options, &given, &request));
    TRY(create_model(options, request.plan.recipe.sequence_length, &model));
    TRY(session_open_model(model, &given, NULL, &out->session));
    TRY(session_set_trained(&out->session, &request.plan.recipe));
    return session_plan_make(&out->session, &request, &out->plan);
}

enum status model_step_open(const struct model_step_options *options, struct model_step *out) {
    TRY(model_step_compile(options, out));
    TRY(engine_open(&out->plan, &out->engine));
    TRY(engine_initialise_weights(&out->engine, out->plan.chosen.recipe.seed));
    fill_inputs(out);
    return STATUS_OK;
}

void model_step_close(struct model_step *step) {
    engine_close(&step->engine);
    session_plan_free(&step->plan);
    session_close(&step->session);
    *step = (struct model_step){.steps = 0};
}

enum status model_step_run(struct model_step *step, int64_t *ns) {
    struct step_numbers numbers;
    int64_t start = clock_now_ns();
    TRY(engine_compute_step(&step->engine, step->steps++, LEARNING_RATE, STATUS_OK, model_step_tokens(step), &numbers));
    *ns = clock_now_ns() - start;
    step->loss = numbers.loss;
    return STATUS_OK;
}

int64_t model_step_tokens(const struct model_step *step) {
    return step->plan.chosen.recipe.batch * step->plan.chosen.recipe.sequence_length;
}

double model_step_model_flops(const struct model_step *step) {
    return (double)model_step_tokens(step) * step->plan.figures.flops_per_token;
}

double model_step_program_flops(const struct model_step *step) {
    const struct program *program = model_step_executable(step)->program;
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
