#include "session/plan_request.h"

/* With those that samples are written by. */
static struct program_set training_set(const struct train_options *training) {
    bool samples = training && training->sample_every > 0;
    return (struct program_set){.uses = PROGRAMS_TO_TRAIN | (samples ? (unsigned)PROGRAMS_TO_WRITE : 0), .texts = 1};
}

/* To train on pairs the model's own log-probabilities are computed first. */
static void add_reference(struct plan_request *request) {
    bool trains = program_set_has(&request->set, PROGRAM_STEP) && program_set_has(&request->set, PROGRAM_LOSS);
    if (trains && request->plan.recipe.loss == TRAINING_DPO) request->set.uses |= PROGRAMS_TO_REFER;
}

static struct program_set set_of(unsigned uses, const struct plan_options *options,
                                 const struct train_options *training) {
    if (uses == PROGRAMS_TO_TRAIN) return training_set(training);
    struct program_set set = {.uses = uses, .texts = 1};
    if (program_set_only_writes(&set) && SETTINGS_HAVE(options, batch)) set.texts = options->batch;
    return set;
}

/* The batch of texts is how many have caches, whatever a plan file says of a training step's. */
static enum status resolve_texts(const struct session *session, const struct plan_options *options,
                                 const struct train_options *training, const struct plan *base, struct plan *out) {
    struct plan_options rest = *options;
    const struct model_config *config = &session->model->config;
    struct plan plan;
    SETTINGS_DROP(&rest, batch);
    SETTINGS_DROP(&rest, micro_batch_sequences);
    SETTINGS_DROP(&rest, micro_batches_per_wave);
    TRY(plan_options_resolve(&rest, training, session->machine.backend, config, base, options->plan_path, &plan));
    *out = plan_of_texts(&plan, 1);
    /* A plan made for training may be longer than the context; a length that was asked for is refused later. */
    bool given = SETTINGS_HAVE(options, sequence_length);
    if (!given && out->recipe.sequence_length > config->context) out->recipe.sequence_length = config->context;
    return STATUS_OK;
}

/* What a model's files have in fewer bits is frozen, and stays in them. */
static enum status check_stored_base(const struct model *model, const struct plan_options *options,
                                     const struct recipe *recipe) {
    const struct model_config *config = &model->config;
    if (model->base_is_stored && SETTINGS_HAVE(options, quantize_base) && options->quantize_base == WEIGHT_PLAIN)
        return status_set(STATUS_BAD_INPUT, "quantize-base: none, but the model's files have weights in %s",
                          weight_format_name(config->base_format));
    if (config->base_format == WEIGHT_PLAIN || config->adapter.rank > 0 || recipe->lora[0]) return STATUS_OK;
    return status_hint(status_set(STATUS_BAD_INPUT, "the model's weights are stored in %s, which are not trained",
                                  weight_format_name(config->base_format)),
                       "--lora trains adapters on them");
}

static enum status make_settled(const struct session *session, unsigned uses, const struct plan_options *options,
                                const struct train_options *training, const struct plan *base,
                                struct plan_request *out) {
    struct plan_request request = {.set = set_of(uses, options, training),
                                   .origin = options->plan_path,
                                   .recipe_fixed = base != NULL,
                                   .policy_fixed = base != NULL && !SETTINGS_HAVE(options, partition)};
    bool trains = program_set_has(&request.set, PROGRAM_STEP);
    struct plan_options own = *options;
    own.adds_losses_alone = !trains;
    if (program_set_only_writes(&request.set))
        TRY(resolve_texts(session, options, training, base, &request.plan));
    else
        TRY(plan_options_resolve(&own, training, session->machine.backend, &session->model->config, base,
                                 options->plan_path, &request.plan));
    /* Not of a plan whose partition is of other ranks, or which an option changes. */
    if (base && partition_cuts(&base->policy.partition) &&
        !partition_equal(&base->policy.partition, &request.plan.policy.partition))
        request.policy_fixed = false;
    request.objective = options->by_sum ? OBJECTIVE_SUM : OBJECTIVE_STEP;
    request.partition_fixed = SETTINGS_HAVE(options, partition);
    request.virtual_stages = options->virtual_stages;
    request.collectives_fixed = SETTINGS_HAVE(options, flat);
    request.micro_batches_fixed = !trains || SETTINGS_HAVE(options, micro_batches_per_wave);
    request.micro_batch_fixed = !trains || SETTINGS_HAVE(options, micro_batch_sequences);
    /* Where nothing is trained, a model is as it is. */
    if (!trains) request.plan.recipe.lora[0] = request.plan.recipe.freeze[0] = '\0';
    if (!trains) request.plan.recipe.quantize_base = WEIGHT_PLAIN;
    if (trains) TRY(check_stored_base(session->model, options, &request.plan.recipe));
    add_reference(&request);
    *out = request;
    return STATUS_OK;
}

/* What a request is made of. */
struct inputs {
    const struct session *session;
    unsigned uses;
    const struct train_options *training;
};

static enum status resolve_shape(void *context, const struct plan_options *options, struct plan *out) {
    const struct inputs *inputs = context;
    struct plan_request request;
    TRY(make_settled(inputs->session, inputs->uses, options, inputs->training, NULL, &request));
    *out = request.plan;
    return STATUS_OK;
}

static int ranks_of(const struct session *session, const struct plan_options *options) {
    return options->planned.nodes > 0 ? mesh_ranks(&options->planned) : session_ranks(session);
}

static enum status refuse_open_shapes(void) {
    return status_hint(
        status_set(STATUS_BAD_INPUT,
                   "auto: --tensor-parallel and --pipeline-parallel are chosen for training steps alone"),
        "give them as numbers, or leave them out");
}

static const struct plan *first_open(const struct rank_shapes *shapes) {
    for (size_t i = 0; i < shapes->list.count; i++)
        if (shapes->list.items[i].outcome == SHAPE_OPEN) return shapes->list.items[i].plan;
    return NULL;
}

/* The plan asked for is that of the first shape that can be: what is refused of others is no fault of the request. */
static enum status make_open(struct inputs *inputs, const struct plan_options *options, struct plan_request *out) {
    const struct program_set set = set_of(inputs->uses, options, inputs->training);
    const struct shape_resolver resolver = {inputs, resolve_shape};
    struct plan_options own = *options;
    struct rank_shapes shapes;
    if (!program_set_has(&set, PROGRAM_STEP)) return refuse_open_shapes();
    enum status status = rank_shapes_list(options, ranks_of(inputs->session, options), 0, &resolver, &shapes);
    if (status == STATUS_OK) {
        const struct plan *first = first_open(&shapes);
        SETTINGS_GIVE(&own, tensor_parallel, recipe_tensor_parallel(&first->recipe));
        SETTINGS_GIVE(&own, pipeline_parallel, rank_place_pipeline_parallel(&first->place));
        status = make_settled(inputs->session, inputs->uses, &own, inputs->training, NULL, out);
    }
    if (status == STATUS_OK)
        out->shapes = shapes;
    else
        rank_shapes_free(&shapes);
    return status;
}

enum status plan_request_make(const struct session *session, unsigned uses, const struct plan_options *options,
                              const struct train_options *training, const struct plan *base, struct plan_request *out) {
    struct inputs inputs = {session, uses, training};
    if (rank_shapes_are_open(options) && !base) return make_open(&inputs, options, out);
    return make_settled(session, uses, options, training, base, out);
}

/* A decided recipe: stages alone are open. Its policy is for the stages that it had. */
static enum status resolve_stages(void *context, const struct plan_options *options, struct plan *out) {
    const struct plan *decided = context;
    *out = *decided;
    out->place.pipeline_parallel = (int)options->pipeline_parallel;
    if (rank_place_pipeline_parallel(&out->place) != rank_place_pipeline_parallel(&decided->place))
        out->policy =
            (struct policy){.micro_batches_per_wave = setting_table[SETTING_micro_batches_per_wave].int_value};
    return plan_check(out);
}

enum status plan_request_add_stages(const struct session *session, const struct plan_options *options,
                                    struct plan_request *request) {
    struct plan decided = request->plan;
    const struct shape_resolver resolver = {&decided, resolve_stages};
    if (!rank_shapes_are_open(options)) return STATUS_OK;
    return rank_shapes_list(options, ranks_of(session, options), recipe_tensor_parallel(&decided.recipe), &resolver,
                            &request->shapes);
}

struct plan_request plan_request_decided(const struct plan *plan, const struct plan_options *options,
                                         const struct train_options *training) {
    struct plan_request request = {.set = training_set(training),
                                   .plan = *plan,
                                   .recipe_fixed = true,
                                   .partition_fixed = SETTINGS_HAVE(options, partition),
                                   .virtual_stages = options->virtual_stages,
                                   .collectives_fixed = SETTINGS_HAVE(options, flat),
                                   .micro_batches_fixed = SETTINGS_HAVE(options, micro_batches_per_wave)};
    add_reference(&request);
    return request;
}

enum status plan_request_step(const struct session *session, const struct plan *plan, const char *origin,
                              struct plan_request *out) {
    struct plan_options nothing_given;
    plan_options_init(&nothing_given);
    nothing_given.planned = plan->place.mesh;
    *out = (struct plan_request){.set = {.uses = PROGRAMS_TO_SIMULATE, .texts = 1},
                                 .origin = origin,
                                 .recipe_fixed = true,
                                 .policy_fixed = true,
                                 .micro_batches_fixed = true};
    return plan_options_resolve(&nothing_given, NULL, session->machine.backend, NULL, plan, origin, &out->plan);
}
