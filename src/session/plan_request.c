#include "session/plan_request.h"

/* Adds the programs that generate samples. */
static struct program_set training_set(const struct train_options *training) {
    bool samples = training && training->sample_every > 0;
    return (struct program_set){.uses = PROGRAMS_TO_TRAIN | (samples ? (unsigned)PROGRAMS_TO_WRITE : 0), .texts = 1};
}

/* To train on pairs, the model's own log-probabilities are computed first. */
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

/* The batch of texts is the number that have caches, whatever a plan file says about training steps. */
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
    /* A plan made for training may be longer than the context. A requested length is rejected later. */
    bool given = SETTINGS_HAVE(options, sequence_length);
    if (!given && out->recipe.sequence_length > config->context) out->recipe.sequence_length = config->context;
    return STATUS_OK;
}

/* Weights that the model's files hold quantized are frozen and stay quantized. */
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
    /* Drop the partition of another number of ranks, or one that an option changes. */
    if (base && partition_cuts(&base->policy.partition) &&
        !partition_equal(&base->policy.partition, &request.plan.policy.partition))
        request.policy_fixed = false;
    request.objective = options->by_sum ? OBJECTIVE_SUM : OBJECTIVE_STEP;
    request.partition_fixed = SETTINGS_HAVE(options, partition);
    request.virtual_stages = options->virtual_stages;
    request.collectives_fixed = SETTINGS_HAVE(options, collectives);
    request.micro_batches_fixed = !trains || SETTINGS_HAVE(options, micro_batches_per_wave);
    request.micro_batch_fixed = !trains || SETTINGS_HAVE(options, micro_batch_sequences);
    /* Without training, a model stays as it is. */
    if (!trains) request.plan.recipe.lora[0] = request.plan.recipe.freeze[0] = '\0';
    if (!trains) request.plan.recipe.quantize_base = WEIGHT_PLAIN;
    if (trains) TRY(check_stored_base(session->model, options, &request.plan.recipe));
    add_reference(&request);
    *out = request;
    return STATUS_OK;
}

/* Sources of a request. */
struct inputs {
    const struct session *session;
    unsigned uses;
    const struct train_options *training;
    const struct plan *decided; /* a plan whose recipe is decided: only its stages are open; NULL: there is none */
};

/* A decided policy applies to its own number of stages. */
static enum status change_stages(const struct plan *decided, int64_t stages, struct plan *out) {
    *out = *decided;
    out->place.pipeline_parallel = (int)stages;
    if (rank_place_pipeline_parallel(&out->place) != rank_place_pipeline_parallel(&decided->place))
        out->policy =
            (struct policy){.micro_batches_per_wave = setting_table[SETTING_micro_batches_per_wave].int_value};
    return plan_check(out);
}

/* The plan of options that give the rank layout. */
static enum status plan_of_shape(const struct inputs *inputs, const struct plan_options *options, struct plan *out) {
    struct plan_request request;
    if (inputs->decided) return change_stages(inputs->decided, options->pipeline_parallel, out);
    TRY(make_settled(inputs->session, inputs->uses, options, inputs->training, NULL, &request));
    *out = request.plan;
    return STATUS_OK;
}

/* ---- rank layouts ---- */

static bool is_auto(const struct plan_options *options, enum setting_id id, int64_t value) {
    return options->given.of[id] && value == 0;
}

static bool tensor_is_open(const struct plan_options *options) {
    return is_auto(options, SETTING_tensor_parallel, options->tensor_parallel);
}

static bool stages_are_open(const struct plan_options *options) {
    return is_auto(options, SETTING_pipeline_parallel, options->pipeline_parallel);
}

static bool shapes_are_open(const struct plan_options *options) {
    return tensor_is_open(options) || stages_are_open(options);
}

void rank_shape_refuse(struct rank_shape *shape) {
    shape->outcome = SHAPE_REFUSED;
    snprintf(shape->reason, sizeof shape->reason, "%s", status_message());
    status_clear();
}

/* The axes of one rank layout. How tensors are cut is an axis only if it is not settled. */
struct axes {
    int tensor, stages;
    bool cut_open, sequence;
    enum tensor_layout layout;
};

static struct plan_options options_of(const struct plan_options *options, const struct axes *axes) {
    struct plan_options own = *options;
    if (tensor_is_open(options)) SETTINGS_GIVE(&own, tensor_parallel, axes->tensor);
    if (stages_are_open(options)) SETTINGS_GIVE(&own, pipeline_parallel, axes->stages);
    if (!axes->cut_open) return own;
    SETTINGS_GIVE(&own, sequence_parallel, axes->sequence);
    SETTINGS_GIVE(&own, layout, axes->layout);
    return own;
}

/* Adds also a layout whose plan is refused; its axes are known then, too. */
static enum status add_shape(const struct plan_options *options, const struct axes *axes, const struct inputs *inputs,
                             struct rank_shapes *out) {
    struct plan_options own = options_of(options, axes);
    AUTO_FREE struct plan *plan = mem_array(1, sizeof *plan);
    struct rank_shape shape = {.plan = plan, .solver_memory = 1};
    if (!plan) return STATUS_FAILED;
    enum status status = plan_of_shape(inputs, &own, plan);
    if (status == STATUS_BAD_INPUT) {
        rank_shape_refuse(&shape);
        plan->recipe.tensor_parallel = plan->place.tensor_parallel = axes->tensor;
        plan->place.pipeline_parallel = axes->stages;
        plan->recipe.sequence_parallel = axes->sequence;
        plan->recipe.layout = axes->layout;
        status = STATUS_OK;
    }
    TRY(status);
    TRY(vec_push(&out->list, shape));
    plan = NULL; /* the list owns it now */
    return STATUS_OK;
}

/* Fails with the message of the first layout, which a user who asks for it would get. */
static enum status refuse_all(const struct plan_options *options, const struct rank_shape *first,
                              const struct inputs *inputs) {
    const struct axes axes = {.tensor = first->plan->recipe.tensor_parallel,
                              .stages = first->plan->place.pipeline_parallel};
    struct plan_options own = options_of(options, &axes);
    struct plan plan;
    return plan_of_shape(inputs, &own, &plan);
}

/* Adds the ways to partition tensors among so many ranks: those that the options give, else all. They are the same
 * without tensor parallelism. */
static enum status add_cuts(const struct plan_options *options, struct axes axes, bool decided,
                            const struct inputs *inputs, struct rank_shapes *out) {
    static const struct axes cuts[] = {{.layout = TENSOR_LAYOUT_MEGATRON},
                                       {.layout = TENSOR_LAYOUT_MEGATRON, .sequence = true},
                                       {.layout = TENSOR_LAYOUT_SOLVER}};
    bool given = SETTINGS_HAVE(options, sequence_parallel) || SETTINGS_HAVE(options, layout);
    axes.sequence = options->sequence_parallel, axes.layout = options->layout;
    axes.cut_open = tensor_is_open(options) && !decided && !given && axes.tensor > 1;
    if (!axes.cut_open) return add_shape(options, &axes, inputs, out);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        axes.sequence = cuts[i].sequence, axes.layout = cuts[i].layout;
        TRY(add_shape(options, &axes, inputs, out));
    }
    return STATUS_OK;
}

static const struct plan *first_open(const struct rank_shapes *shapes) {
    for (size_t i = 0; i < shapes->list.count; i++)
        if (shapes->list.items[i].outcome == SHAPE_OPEN) return shapes->list.items[i].plan;
    return NULL;
}

/* Lists all rank layouts that the options leave open. The partition of tensors is open if the tensor parallelism is,
 * and neither `sequence_parallel` nor `layout` is given. A refused layout has its message. BAD_INPUT with the first
 * message if all are refused. `tensor`: the decided tensor parallelism; 0: any. The caller frees, also after a
 * failure. */
static enum status list_shapes(const struct plan_options *options, int tensor, const struct inputs *inputs,
                               struct rank_shapes *out) {
    int ranks = options->planned.nodes > 0 ? mesh_ranks(&options->planned) : session_ranks(inputs->session);
    *out = (struct rank_shapes){0};
    int fixed = tensor_is_open(options)                   ? tensor
                : SETTINGS_HAVE(options, tensor_parallel) ? (int)options->tensor_parallel
                                                          : tensor;
    int64_t stages_fixed = stages_are_open(options)                    ? 0
                           : SETTINGS_HAVE(options, pipeline_parallel) ? options->pipeline_parallel
                                                                       : 1;
    for (int t = 1; t <= ranks; t++)
        for (int s = 1; ranks % t == 0 && s <= ranks / t; s++) {
            bool requested = (fixed == 0 || t == fixed) && (stages_fixed == 0 || s == stages_fixed);
            if (!requested || ranks / t % s != 0) continue;
            TRY(add_cuts(options, (struct axes){.tensor = t, .stages = s}, tensor > 0, inputs, out));
        }
    if (first_open(out)) return STATUS_OK;
    if (out->list.count > 0) return refuse_all(options, &out->list.items[0], inputs);
    return status_set(STATUS_BAD_INPUT, "%d ranks do not divide by what --tensor-parallel or --pipeline-parallel says",
                      ranks);
}

static enum status refuse_open_shapes(void) {
    return status_set(STATUS_BAD_INPUT,
                      "auto: --tensor-parallel and --pipeline-parallel are chosen for training steps alone" HINT
                      "give them as numbers, or leave them out");
}

/* The request's plan is that of the first valid layout: errors of the other layouts are not errors of the request. */
static enum status make_open(const struct inputs *inputs, const struct plan_options *options,
                             struct plan_request *out) {
    const struct program_set set = set_of(inputs->uses, options, inputs->training);
    struct plan_options own = *options;
    AUTO(rank_shapes_free) struct rank_shapes shapes = {0};
    if (!program_set_has(&set, PROGRAM_STEP)) return refuse_open_shapes();
    TRY(list_shapes(options, 0, inputs, &shapes));
    const struct plan *first = first_open(&shapes);
    SETTINGS_GIVE(&own, tensor_parallel, recipe_tensor_parallel(&first->recipe));
    SETTINGS_GIVE(&own, pipeline_parallel, rank_place_pipeline_parallel(&first->place));
    TRY(make_settled(inputs->session, inputs->uses, &own, inputs->training, NULL, out));
    out->shapes = TAKE(shapes);
    return STATUS_OK;
}

enum status plan_request_make(const struct session *session, unsigned uses, const struct plan_options *options,
                              const struct train_options *training, const struct plan *base, struct plan_request *out) {
    const struct inputs inputs = {session, uses, training, NULL};
    if (shapes_are_open(options) && !base) return make_open(&inputs, options, out);
    return make_settled(session, uses, options, training, base, out);
}

enum status plan_request_add_stages(const struct session *session, const struct plan_options *options,
                                    struct plan_request *request) {
    const struct plan decided = request->plan;
    const struct inputs inputs = {.session = session, .decided = &decided};
    if (!shapes_are_open(options)) return STATUS_OK;
    return list_shapes(options, recipe_tensor_parallel(&decided.recipe), &inputs, &request->shapes);
}

struct plan_request plan_request_decided(const struct plan *plan, const struct plan_options *options,
                                         const struct train_options *training) {
    struct plan_request request = {.set = training_set(training),
                                   .plan = *plan,
                                   .recipe_fixed = true,
                                   .partition_fixed = SETTINGS_HAVE(options, partition),
                                   .virtual_stages = options->virtual_stages,
                                   .collectives_fixed = SETTINGS_HAVE(options, collectives),
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

/* ---- shapes ---- */

bool rank_shape_is_of(const struct rank_shape *shape, const struct plan *plan) {
    const struct recipe *recipe = &shape->plan->recipe;
    return recipe_tensor_parallel(recipe) == recipe_tensor_parallel(&plan->recipe) &&
           rank_place_pipeline_parallel(&shape->plan->place) == rank_place_pipeline_parallel(&plan->place) &&
           recipe->sequence_parallel == plan->recipe.sequence_parallel && recipe->layout == plan->recipe.layout &&
           recipe->strategies == plan->recipe.strategies; /* equal strategies share one text */
}

enum status rank_shapes_repeat(struct rank_shapes *shapes, size_t at) {
    AUTO_FREE struct plan *plan = mem_array(1, sizeof *plan);
    if (!plan) return STATUS_FAILED;
    struct rank_shape shape = shapes->list.items[at];
    *plan = *shape.plan;
    shape.plan = plan;
    TRY(vec_push(&shapes->list, shape));
    plan = NULL; /* the list owns it now */
    struct rank_shape *behind = &shapes->list.items[at + 1];
    memmove(behind + 1, behind, (shapes->list.count - at - 2) * sizeof *behind);
    *behind = shape;
    return STATUS_OK;
}

void rank_shapes_free(struct rank_shapes *shapes) {
    for (size_t i = 0; i < shapes->list.count; i++)
        mem_free(shapes->list.items[i].plan);
    vec_free(&shapes->list);
}
