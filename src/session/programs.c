#include "session/programs.h"

#include "backend/backend.h"
#include "compiler/program.h"
#include "ir/differentiate.h"
#include "ir/ops/ops.h"
#include "ir/rewrite.h"
#include "plan/layout/shard_choice.h"
#include "plan/layout/tensor_layout.h"
#include "profile/described_device.h"

/* Whether each sum of a GEMM has the same bits in a GEMM of any size. Not on a GPU, connected or target: its library
 * chooses the order of summation by the size of the GEMM. */
static bool sums_alike(const struct backend *backend) {
    return !backend->pin_products && backend != &backend_described;
}

static enum status add_backward(struct graph *graph, struct tensor *loss, const struct plan *plan,
                                const struct backend *backend) {
    const struct recipe *recipe = &plan->recipe;
    struct optimizer_options optimizer = {
        .rule = recipe->optimizer,
        .beta1 = recipe->beta1,
        .beta2 = recipe->beta2,
        .epsilon = recipe->epsilon,
        .weight_decay = recipe->weight_decay,
        .clip_norm = recipe->clip_norm,
        .muon_momentum = recipe->muon_momentum,
        .moments = state_format_dtype(recipe->optimizer_dtype),
        .no_masters = recipe->master_weights == MASTER_WEIGHTS_NONE,
        .split_masters = recipe->master_weights == MASTER_WEIGHTS_SPLIT,
        .seed = recipe->seed,
        .group = {recipe_tensor_parallel(recipe), rank_place_tensor_rank(&plan->place)}};
    bool alone = rank_place_ranks(&plan->place) == 1 && lane_shape_lanes(&recipe->lanes) == 1;
    /* Depends only on the recipe, since it changes bits. */
    graph->single_micro_batch = recipe_micro_batches(recipe) == 1;
    graph->one_micro_batch = sums_alike(backend) && alone && recipe->batch == recipe->micro_batch_sequences;
    TRY(graph_differentiate(graph, loss));
    return ops_add_optimizer(graph, &optimizer);
}

const char programs_reference_output[] = "head";

static enum model_purpose purpose_of(enum program_use use, const struct recipe *recipe) {
    if (use == PROGRAM_LOGITS) return MODEL_LOGITS;
    if (use == PROGRAM_REFERENCE || recipe->loss == TRAINING_DPO) return MODEL_LOG_PROBABILITIES;
    return recipe_has_segments(recipe) ? MODEL_LOSS_SEGMENTED : MODEL_LOSS;
}

/* Replaces the whole graph by this rank's part of it under tensor parallelism. */
static enum status shard(const struct plan *plan, const struct shard_choices *choices, bool trains,
                         struct graph **graph, struct tensor **output) {
    struct graph *whole = *graph, *own = whole;
    TRY(layout_shard_graph(whole, choices, rank_place_tensor_rank(&plan->place), trains, *output, &own, output));
    graph_free(whole), *graph = own;
    return STATUS_OK;
}

static enum status shard_batch(const struct plan *plan, bool trains, struct graph **graph, struct tensor **output) {
    AUTO(shard_choices_free) struct shard_choices choices = {0};
    if (recipe_tensor_parallel(&plan->recipe) == 1) return STATUS_OK;
    TRY(tensor_layout_choose(plan, *graph, &choices));
    return shard(plan, &choices, trains, graph, output);
}

/* Adds the use of log-probabilities: they are kept, or the loss of their pairs is added. */
static enum status finish_log_probabilities(enum program_use use, const struct recipe *recipe, struct graph *graph,
                                            struct tensor **output) {
    if (use == PROGRAM_REFERENCE) {
        (*output)->kept = true;
        return STATUS_OK;
    }
    struct tensor *reference =
        graph_tensor(graph, TENSOR_INPUT, "reference", shape_make(DTYPE_F64, 2, graph->micro_batch_sequences, 1, 1));
    const struct preference_attributes attributes = {
        .beta = recipe->dpo_beta, .loss = recipe->dpo_loss, .label_smoothing = recipe->dpo_label_smoothing};
    *output = ops_preference_loss(graph, "preference", *output, graph_find(graph, "targets"), reference, attributes);
    return graph_status(graph);
}

/* Older compatible kernels counted padding. */
static enum status check_balance_version(const struct model *model, const struct recipe *recipe,
                                         const struct backend *backend) {
    if (recipe->kernels_version == backend->kernels_version) return STATUS_OK;
    const char *last = kernel_version_last(backend_of_isa(recipe->isa)->name, recipe->kernels_version);
    return status_set(STATUS_BAD_INPUT,
                      "recipe.kernels_version: %d counts padding in the load-balancing loss (output_router_logits of "
                      "%s/config.json); version %d does not" HINT
                      "use %s. With another loss `ballast resume RUN_DIR --allow-recipe-change` continues a run, and "
                      "`ballast plan MODEL_DIR -o FILE` makes a plan again",
                      recipe->kernels_version, model->folder ? model->folder : "", backend->kernels_version,
                      last ? last : "another Ballast");
}

/* DPO ignores the experts' balance loss. */
static enum status check_balance(const struct model *model, const struct recipe *recipe,
                                 const struct backend *backend) {
    const struct model_config *config = &model->config;
    if (!config->balances_experts || config->balance_coefficient == 0) return STATUS_OK;
    if (recipe->loss != TRAINING_DPO) return check_balance_version(model, recipe, backend);
    return status_set(STATUS_BAD_INPUT,
                      "%s/config.json: output_router_logits: the loss that balances experts cannot be added to that of "
                      "preferences" HINT "set output_router_logits to false there",
                      model->folder ? model->folder : "");
}

/* The caller frees the graph, also after a failure. */
static enum status build_whole_batch(const struct session *session, enum program_use use, const struct plan *plan,
                                     struct graph **graph, struct tensor **output) {
    const struct recipe *recipe = &plan->recipe;
    enum model_purpose purpose = purpose_of(use, recipe);
    TRY(check_balance(session->model, recipe, session->machine.backend));
    TRY(model_build_graph(session->model, purpose, recipe->dtype, recipe->micro_batch_sequences,
                          recipe->sequence_length, graph, output));
    return purpose == MODEL_LOG_PROBABILITIES ? finish_log_probabilities(use, recipe, *graph, output) : STATUS_OK;
}

bool programs_take_tiles(const struct machine *machine) { return sums_alike(machine->backend); }

static enum status tile_batch(const struct session *session, const struct plan *plan, struct graph *graph) {
    const struct backend *backend = session->machine.backend;
    if (plan->policy.tile_tokens == 0) return STATUS_OK;
    if (!programs_take_tiles(&session->machine))
        return status_set(STATUS_BAD_INPUT,
                          "plan: policy.tile_tokens: on %s the bits of a product depend on "
                          "how many tokens it has" HINT "the nearest legal value is 0",
                          backend->name);
    enum status status = graph_tile(graph, plan->policy.tile_tokens);
    return status == STATUS_BAD_INPUT ? status_prefix(status, "plan: policy.tile_tokens") : status;
}

static enum status build_batch(const struct session *session, enum program_use use, const struct plan *plan,
                               struct graph **out) {
    AUTO(graph_release) struct graph *graph = NULL;
    struct tensor *output;
    bool trains = use == PROGRAM_STEP;
    TRY(build_whole_batch(session, use, plan, &graph, &output));
    ops_mark_whole_updates(graph, plan->recipe.optimizer);
    TRY(shard_batch(plan, trains, &graph, &output));
    if (trains) TRY(add_backward(graph, output, plan, session->machine.backend));
    TRY(tile_batch(session, plan, graph));
    if (trains && plan->policy.selective_recompute) TRY(graph_selective_recompute(graph));
    *out = TAKE(graph);
    return STATUS_OK;
}

struct plan plan_of_texts(const struct plan *plan, int64_t sequences) {
    struct plan text = *plan;
    text.recipe.batch = text.recipe.micro_batch_sequences = sequences;
    text.recipe.loss = TRAINING_NEXT_TOKEN;
    text.policy.micro_batches_per_wave = 1;
    return text;
}

static bool is_of_texts(enum program_use use) { return PROGRAMS_TO_WRITE >> use & 1; }

/* The plan of one of the programs. */
static struct plan plan_of_use(enum program_use use, const struct plan *plan) {
    struct plan micro_batch = *plan;
    micro_batch.recipe.batch = plan->recipe.micro_batch_sequences;
    micro_batch.policy.micro_batches_per_wave = 1;
    if (use == PROGRAM_REFERENCE) return micro_batch;
    return is_of_texts(use) ? plan_of_texts(plan, use == PROGRAM_DECODE ? DECODE_TEXTS : 1) : *plan;
}

/* Texts use the partition of weights for batches. */
static enum status shard_texts(const struct session *session, const struct plan *plan, struct graph **graph,
                               struct tensor **logits) {
    AUTO(shard_choices_free) struct shard_choices choices = {0}, own = {0};
    AUTO(graph_release) struct graph *batch = NULL;
    struct tensor *loss;
    if (recipe_tensor_parallel(&plan->recipe) == 1) return STATUS_OK;
    TRY(build_whole_batch(session, PROGRAM_LOSS, plan, &batch, &loss));
    TRY(tensor_layout_choose(plan, batch, &choices));
    TRY(shard_choices_of_texts(batch, &choices, *graph, &own));
    return shard(plan, &own, false, graph, logits);
}

/* `plan` is that of batches. */
static enum status build_texts(const struct session *session, enum program_use use, const struct program_set *set,
                               const struct plan *plan, struct graph **out) {
    struct plan own = plan_of_use(use, plan);
    int64_t positions = own.recipe.sequence_length, chunk = positions < PREFILL_TOKENS ? positions : PREFILL_TOKENS;
    struct decode_shape shape = {.sequences = own.recipe.batch,
                                 .tokens = use == PROGRAM_DECODE ? 1 : chunk,
                                 .texts = set->texts,
                                 .positions = positions};
    AUTO(graph_release) struct graph *graph = NULL;
    struct tensor *logits;
    TRY(model_build_decode_graph(session->model, own.recipe.dtype, &shape, &graph, &logits));
    ops_mark_whole_updates(graph, plan->recipe.optimizer);
    TRY(shard_texts(session, plan, &graph, &logits));
    *out = TAKE(graph);
    return STATUS_OK;
}

enum status program_build_graph(const struct session *session, const struct program_set *set, enum program_use use,
                                const struct plan *plan, struct graph **out) {
    return is_of_texts(use) ? build_texts(session, use, set, plan, out) : build_batch(session, use, plan, out);
}

enum status programs_build_whole(const struct session *session, const struct program_set *set, const struct plan *plan,
                                 struct graph **out) {
    struct plan alone = *plan;
    enum program_use use = 0;
    while (!program_set_has(set, use))
        use++;
    alone.recipe.tensor_parallel = alone.place.tensor_parallel = 1;
    return program_build_graph(session, set, use, &alone, out);
}

/* The program whose weights another one of the set shares: the first of the set, or, if there are caches, the one that
 * fills them. */
static enum program_use resident_of(enum program_use use, enum program_use first) {
    return use == PROGRAM_DECODE ? PROGRAM_PREFILL : first;
}

/* Compiles one program next to those of the set that exist already. */
static enum status compile_one(const struct session *session, const struct program_set *set, enum program_use use,
                               const struct plan *plan, struct programs *made) {
    struct plan own = plan_of_use(use, plan);
    const struct executable *resident = made->of[resident_of(use, programs_main_use(made))];
    struct graph *graph;
    TRY(program_build_graph(session, set, use, plan, &graph));
    return executable_create(session->machine.backend, graph, &own, resident, &made->of[use]);
}

/* Adds the arenas that the programs share. */
static void add_bytes(const struct program *program, int64_t tier_bytes[TIER_COUNT]) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        if (program->tier_bytes[tier] > tier_bytes[tier]) tier_bytes[tier] = program->tier_bytes[tier];
}

void programs_sum_bytes(struct programs *programs) {
    memset(programs->tier_bytes, 0, sizeof programs->tier_bytes);
    for (int use = 0; use < PROGRAM_USES; use++)
        if (programs->of[use]) add_bytes(programs->of[use]->program, programs->tier_bytes);
}

static size_t count_operations(const struct programs *programs) {
    size_t count = 0;
    for (int use = 0; use < PROGRAM_USES; use++)
        if (programs->of[use]) count += programs->of[use]->program->collectives.count;
    return count;
}

enum status programs_compile(const struct session *session, const struct program_set *set, const struct plan *plan,
                             struct programs *out) {
    AUTO(programs_free) struct programs programs = {.of = {NULL}};
    session->machine.backend->set_threads(plan->threads);
    for (enum program_use use = 0; use < PROGRAM_USES; use++)
        if (program_set_has(set, use)) TRY(compile_one(session, set, use, plan, &programs));
    TRY(collectives_check_count(count_operations(&programs)));
    programs_sum_bytes(&programs);
    *out = TAKE(programs);
    return STATUS_OK;
}

static enum status recompile(const struct programs *programs, const struct plan *plan, struct recompiled *made) {
    enum program_use first = programs_main_use(programs);
    size_t operations = 0;
    for (enum program_use use = 0; use < PROGRAM_USES; use++) {
        struct plan own = plan_of_use(use, plan);
        if (!programs->of[use]) continue;
        const struct program *resident = made->of[resident_of(use, first)];
        if (!made->of[use]) TRY(executable_compile(programs->of[use], &own, resident, &made->of[use]));
        operations += made->of[use]->collectives.count;
        add_bytes(made->of[use], made->tier_bytes);
    }
    return collectives_check_count(operations);
}

enum status programs_recompile(const struct programs *programs, const struct plan *plan, struct program **main,
                               struct recompiled *out) {
    AUTO(recompiled_free) struct recompiled made = {0};
    if (main) made.of[programs_main_use(programs)] = TAKE(*main);
    TRY(recompile(programs, plan, &made));
    *out = TAKE(made);
    return STATUS_OK;
}

void recompiled_free(struct recompiled *recompiled) {
    for (int use = 0; use < PROGRAM_USES; use++)
        program_free(recompiled->of[use]);
    *recompiled = (struct recompiled){.of = {NULL}};
}

void programs_replace(struct programs *programs, struct recompiled *by) {
    for (int use = 0; use < PROGRAM_USES; use++)
        if (by->of[use]) executable_take(programs->of[use], by->of[use]);
    memcpy(programs->tier_bytes, by->tier_bytes, sizeof programs->tier_bytes);
    *by = (struct recompiled){.of = {NULL}};
}

enum status programs_prove(struct programs *programs) {
    for (int use = 0; use < PROGRAM_USES; use++)
        if (programs->of[use]) TRY(executable_prove(programs->of[use]));
    return STATUS_OK;
}

void programs_free(struct programs *programs) {
    for (int use = PROGRAM_USES - 1; use >= 0; use--)
        executable_free(programs->of[use]);
    *programs = (struct programs){.of = {NULL}};
}

enum program_use programs_main_use(const struct programs *programs) {
    enum program_use use = 0;
    while (use < PROGRAM_USES - 1 && !programs->of[use])
        use++;
    return use;
}

/* ---- a pipeline's stages ---- */

static enum status compile_stages(const struct executable *main, const struct plan *plan, struct stage_steps *steps) {
    const struct comm_group stages = rank_place_stage_group(&plan->place);
    for (int stage = 0; stage < steps->count; stage++) {
        struct plan own = *plan;
        own.place.rank = mesh_group_rank(&stages, stage);
        TRY(program_compile(main->graph, &own, &main->workspace, NULL, &steps->list[stage].program));
    }
    return STATUS_OK;
}

static enum status simulate_all(const struct executable *main, const struct costs *costs, struct stage_steps *steps) {
    size_t count = (size_t)steps->count;
    AUTO_FREE const struct program **programs = mem_array(count, sizeof *programs);
    AUTO_FREE struct timeline *timelines = mem_array(count, sizeof *timelines);
    if (!programs || !timelines) return STATUS_FAILED;
    for (size_t stage = 0; stage < count; stage++)
        programs[stage] = steps->list[stage].program ? steps->list[stage].program : main->program;
    TRY(simulate_stages(programs, steps->count, costs, timelines));
    for (size_t stage = 0; stage < count; stage++)
        steps->list[stage].timeline = timelines[stage];
    return STATUS_OK;
}

static double compute_seconds(const struct timeline *timeline) {
    struct timeline_stream streams[STREAM_ROLE_COUNT];
    timeline_summarise(timeline, streams);
    for (int s = 0; s < timeline->program->streams; s++)
        if (streams[s].role == STREAM_COMPUTE) return streams[s].busy_s;
    return 0;
}

static void summarise(struct stage_steps *steps) {
    double compute_s = 0;
    for (int stage = 0; stage < steps->count; stage++) {
        struct stage_step *step = &steps->list[stage];
        if (step->timeline.step_s > steps->step_s) steps->step_s = step->timeline.step_s;
        for (enum tier tier = 0; tier < TIER_COUNT; tier++)
            step->tier_bytes[tier] = step->timeline.program->tier_bytes[tier];
        compute_s += step->compute_s = compute_seconds(&step->timeline);
    }
    for (int stage = 0; stage < steps->count; stage++)
        steps->list[stage].timeline.step_s = steps->step_s;
    steps->bubble = steps->step_s > 0 ? 1 - compute_s / (steps->step_s * steps->count) : 0;
}

enum status stage_steps_make(const struct executable *main, const struct plan *plan, const struct costs *costs,
                             struct stage_steps *out) {
    int count = rank_place_pipeline_parallel(&plan->place);
    *out = (struct stage_steps){.count = count, .list = mem_array((size_t)count, sizeof *out->list)};
    if (!out->list) return STATUS_FAILED;
    if (count > 1) TRY(compile_stages(main, plan, out));
    TRY(simulate_all(main, costs, out));
    summarise(out);
    return STATUS_OK;
}

void stage_steps_free(struct stage_steps *steps) {
    for (int stage = 0; steps->list && stage < steps->count; stage++) {
        timeline_free(&steps->list[stage].timeline);
        program_free(steps->list[stage].program);
    }
    mem_free(steps->list);
    *steps = (struct stage_steps){0};
}

/* ---- the proof of all ranks' programs ---- */

/* The programs of all ranks, and the graphs of rank 0's tensor-parallel group, by their place in it: they have rank 0's
 * nodes, with other parts as operands. Element [0] of neither is owned. */
struct proof {
    const struct session *session;
    const struct program_set *set;
    const struct executable *step;
    struct graph *graphs[RANK_PROOF_MAX];
    struct program *programs[RANK_PROOF_MAX];
};

static enum status find_graph(struct proof *proof, const struct plan *own, const struct graph **out) {
    struct graph **graph = &proof->graphs[rank_place_tensor_rank(&own->place)];
    if (!*graph) TRY(program_build_graph(proof->session, proof->set, PROGRAM_STEP, own, graph));
    *out = *graph;
    if ((*graph)->nodes.count == proof->graphs[0]->nodes.count) return STATUS_OK;
    return status_set(STATUS_FAILED, "program: rank %d computes %zu operators, rank 0 %zu", own->place.rank,
                      (*graph)->nodes.count, proof->graphs[0]->nodes.count);
}

static enum status compile_others(struct proof *proof, const struct plan *plan, int ranks) {
    for (int rank = 1; rank < ranks; rank++) {
        const struct graph *graph;
        struct plan own = *plan;
        own.place.rank = rank;
        TRY(find_graph(proof, &own, &graph));
        TRY(program_compile(graph, &own, &proof->step->workspace, NULL, &proof->programs[rank]));
    }
    return STATUS_OK;
}

static void free_others(struct proof *proof) {
    for (int rank = 1; rank < RANK_PROOF_MAX; rank++) {
        program_free(proof->programs[rank]);
        graph_free(proof->graphs[rank]);
    }
}

enum status rank_proof_make(const struct session *session, const struct program_set *set, const struct executable *step,
                            const struct plan *plan) {
    int ranks = rank_place_ranks(&plan->place);
    AUTO(free_others) struct proof proof = {session, set, step, {step->graph}, {step->program}};
    if (!rank_proof_is_made(&plan->place)) return STATUS_OK;
    BUG_IF(plan->place.rank != 0, "rank %d proves the programs of all", plan->place.rank);
    TRY(compile_others(&proof, plan, ranks));
    return program_verify_ranks((const struct program *const *)proof.programs, ranks, &plan->recipe);
}
