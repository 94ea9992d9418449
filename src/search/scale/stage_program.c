#include "search/scale/stage_program.h"

#include <math.h>

void job_costs_find(const struct training *job, const struct calibration *calibration, struct job_costs *out) {
    const struct layout *layout = &job->layout;
    *out = (struct job_costs){.job = job,
                              .gpu = job->system.ways->gpu(job, calibration),
                              .fabric = fabric_describe(&job->cluster, calibration->congestion)};
    out->pipeline = (struct pipeline_shape){
        (int32_t)layout->pipeline, pipeline_chunks(layout->pipeline, layout->virtual_stages, layout->micro_batches),
        (int32_t)layout->micro_batches};
    layer_costs_find(out);
}

int64_t stage_layers(const struct job_costs *costs, int32_t stage, int32_t chunk) {
    int64_t parts = (int64_t)costs->pipeline.stages * costs->pipeline.chunks;
    if (parts == 1) return costs->job->model.layers;
    return costs->job->system.ways->part_layers(costs, parts, (int64_t)chunk * costs->pipeline.stages + stage);
}

static bool is_first(int32_t stage, int32_t chunk) { return stage == 0 && chunk == 0; }
static bool is_last(const struct job_costs *costs, int32_t stage, int32_t chunk) {
    return stage == costs->pipeline.stages - 1 && chunk == costs->pipeline.chunks - 1;
}

/* A rank's parameters of a layer's experts. */
static double expert_share(const struct job_costs *costs) {
    double ranks = (double)(costs->job->layout.tensor * layout_expert_ranks(&costs->job->layout));
    return (double)transformer_expert_parameters(&costs->job->model) / ranks;
}

double layer_parameters(const struct job_costs *costs) {
    const struct transformer *model = &costs->job->model;
    double dense = (double)(transformer_layer_parameters(model) - transformer_expert_parameters(model));
    return dense / (double)costs->job->layout.tensor + expert_share(costs);
}

static double table_share(const struct job_costs *costs) {
    return (double)transformer_table_parameters(&costs->job->model) / (double)costs->job->layout.tensor;
}

/* Tables on the stage: the embedding on the first, the head on the last, one for both if they are tied. */
static int tables_of(const struct job_costs *costs, int32_t stage) {
    int first = stage == 0, last = stage == costs->pipeline.stages - 1;
    return first && last && costs->job->model.tied ? 1 : first + last;
}

int64_t stage_parameters(const struct job_costs *costs, int32_t stage) {
    double all = tables_of(costs, stage) * table_share(costs);
    for (int32_t chunk = 0; chunk < costs->pipeline.chunks; chunk++)
        all += (double)stage_layers(costs, stage, chunk) * layer_parameters(costs);
    return (int64_t)all;
}

static int64_t stage_expert_parameters(const struct job_costs *costs, int32_t stage) {
    double all = 0;
    for (int32_t chunk = 0; chunk < costs->pipeline.chunks; chunk++)
        all += (double)stage_layers(costs, stage, chunk) * expert_share(costs);
    return (int64_t)all;
}

/* How finely a state of experts is cut: their group is a part of the ranks over which other states are cut. */
static double expert_cut(const struct job_costs *costs, int64_t cut) {
    int64_t ranks = layout_expert_ranks(&costs->job->layout);
    return cut > ranks ? (double)cut / (double)ranks : 1;
}

double stage_cut(const struct job_costs *costs, int32_t stage, int64_t cut) {
    double experts = (double)stage_expert_parameters(costs, stage);
    double dense = (double)stage_parameters(costs, stage) - experts;
    return dense / (double)cut + experts / expert_cut(costs, cut);
}

/* State while a stage's instructions are made. */
struct maker {
    const struct job_costs *costs;
    struct replay *replay;
    int32_t *first, *last; /* kernels of each pass, by pass_index: its first and last instruction */
    int32_t stage;
    int32_t kernel, before; /* the latest kernel of the stage, and the one before it */
    enum replay_kind kind;  /* of the kernels being added */
    int32_t collective;     /* the latest collective */
    int32_t reduced;        /* Ballast: the gradient sum that the next layer's sum waits for; REPLAY_NONE: none */
    int32_t gathered;       /* the gather of the pass's next layer; REPLAY_NONE: none in flight */
    struct collective_load gather, again, scatter, reduce; /* of one layer; `again`: the gather for its backward */
    struct collective_load table, table_scatter;           /* of the embedding or the head */
    double gradient_s;                                     /* memory traffic of a layer's gradients, after a backward */
};

static size_t pass_index(const struct job_costs *costs, int32_t stage, const struct pipeline_step *step) {
    size_t part = (size_t)stage * (size_t)costs->pipeline.chunks + (size_t)step->chunk;
    return (part * (size_t)costs->pipeline.waves + (size_t)step->wave) * 2 + step->backward;
}

static enum status add_kernel(struct maker *maker, double seconds, int32_t gather) {
    struct replay_instruction one = {.stage = maker->stage,
                                     .queue = REPLAY_KERNELS,
                                     .kind = maker->kind,
                                     .seconds = seconds,
                                     .waits = {replay_no_wait(), replay_wait(gather, 0)}};
    maker->before = maker->kernel;
    return replay_add(maker->replay, one, &maker->kernel);
}

static enum status add_collective(struct maker *maker, enum replay_kind kind, struct collective_load load,
                                  int32_t after) {
    struct replay_instruction one = {.stage = maker->stage,
                                     .queue = REPLAY_COLLECTIVES,
                                     .kind = kind,
                                     .seconds = load.seconds,
                                     .slows = load.link_part * maker->costs->gpu.calibration->collective_slowdown,
                                     .waits = {replay_wait(after, 0), replay_no_wait()}};
    return replay_add(maker->replay, one, &maker->collective);
}

/* Ballast has one queue for all collectives, so a tensor group's wait for an earlier gather. */
static bool gathers_ahead(const struct maker *maker) {
    const struct training *job = maker->costs->job;
    return system_has(&job->system, OVERLAPS_PARAMETERS) &&
           !(system_has(&job->system, OWN_KERNELS) && job->layout.tensor > 1);
}

/* Adds a gather before the layer that needs it: overlapped with the layer before, or after that layer if the system
 * does not overlap. */
static enum status add_gather(struct maker *maker, struct collective_load load) {
    TRY(add_collective(maker, REPLAY_GATHER, load, gathers_ahead(maker) ? maker->before : maker->kernel));
    maker->gathered = maker->collective;
    return STATUS_OK;
}

/* Time that a stage is blocked by sending its result: systems here send before they continue. */
static double hand_on_s(const struct maker *maker, int32_t from, int32_t to) {
    const struct training *job = maker->costs->job;
    const struct layout *layout = &job->layout;
    double bytes =
        2.0 * (double)(layout->micro_batch * layout->sequence_length / layout->context) * (double)job->model.hidden;
    int64_t devices = layout->tensor * layout->context * layout->data, edge = from > to ? from : to;
    bool across = from - to > 1 || to - from > 1 || edge * devices % job->cluster.network.devices == 0;
    if (!system_has(&job->system, CUTS_SENDS)) return send_s(&maker->costs->fabric, bytes, across);
    /* Activations that are not cut along the sequence are gathered on the other side (arXiv 2104.04473, section
     * 4.1). */
    double gather =
        layout->sequence ? 0 : collective_s(&maker->costs->fabric, COMM_ALL_GATHER, bytes, tensor_group(job));
    return send_s(&maker->costs->fabric, bytes / (double)layout->tensor, across) + gather;
}

/* Seconds by which sending delays the pass's end; 0 if the next pass is on the same stage or there is none. */
static double sending_s(const struct maker *maker, const struct pipeline_step *step) {
    const struct job_costs *costs = maker->costs;
    int32_t stages = costs->pipeline.stages, to = maker->stage + (step->backward ? -1 : 1);
    if (stages == 1) return 0;
    if (step->backward ? is_first(maker->stage, step->chunk) : is_last(costs, maker->stage, step->chunk)) return 0;
    return hand_on_s(maker, maker->stage, (to + stages) % stages);
}

static double ends_s(const struct maker *maker, const struct pipeline_step *step) {
    const struct layer_costs *layers = &maker->costs->layers;
    double seconds = system_has(&maker->costs->job->system, OWN_KERNELS) ? 0 : sending_s(maker, step);
    if (is_first(maker->stage, step->chunk))
        seconds += step->backward ? layers->embedding.backward_s : layers->embedding.forward_s;
    if (is_last(maker->costs, maker->stage, step->chunk))
        seconds += step->backward ? layers->head.backward_s : layers->head.forward_s;
    return seconds;
}

static double layer_s(const struct maker *maker, bool backward) {
    const struct pass_cost *layer = &maker->costs->layers.layer;
    return backward ? layer->again_s + layer->backward_s + maker->gradient_s : layer->forward_s;
}

/* All layers of the pass in one kernel. */
static enum status add_whole(struct maker *maker, const struct pipeline_step *step) {
    double layers = (double)stage_layers(maker->costs, maker->stage, step->chunk);
    return add_kernel(maker, layers * layer_s(maker, step->backward) + ends_s(maker, step), REPLAY_NONE);
}

/* If ranks keep gradient shards, Ballast has memory for one layer's complete gradients, so the next layer's wait.
 * Collectives end in order, so kernels wait for the later one of this and of a gather. */
static enum status add_reduction(struct maker *maker, struct collective_load load, int32_t after) {
    const struct training *job = maker->costs->job;
    TRY(add_collective(maker, REPLAY_REDUCE, load, after));
    if (system_has(&job->system, OWN_KERNELS) && job->layout.partition.gradients > 1)
        maker->reduced = maker->collective;
    return STATUS_OK;
}

/* Layer by layer with the partition's collectives: each gather before its layer, gradients after theirs. */
static enum status add_layer(struct maker *maker, const struct pipeline_step *step, double seconds, bool more,
                             bool reduces) {
    bool cut = maker->costs->job->layout.partition.parameters > 1;
    bool ahead = gathers_ahead(maker);
    TRY(add_kernel(maker, seconds, maker->reduced > maker->gathered ? maker->reduced : maker->gathered));
    maker->gathered = maker->reduced = REPLAY_NONE;
    int32_t kernel = maker->kernel;
    struct collective_load gather = step->backward ? maker->again : maker->gather;
    if (cut && more && ahead) TRY(add_gather(maker, gather));
    if (cut && step->backward) TRY(add_reduction(maker, maker->scatter, kernel));
    if (reduces) TRY(add_reduction(maker, maker->reduce, kernel));
    if (cut && more && !ahead) TRY(add_gather(maker, gather));
    return STATUS_OK;
}

static enum status add_layers(struct maker *maker, const struct pipeline_step *step, bool reduces) {
    int64_t layers = stage_layers(maker->costs, maker->stage, step->chunk);
    bool cut = maker->costs->job->layout.partition.parameters > 1;
    double ends = ends_s(maker, step);
    int tables = is_first(maker->stage, step->chunk) || is_last(maker->costs, maker->stage, step->chunk);
    if (cut && tables && !step->backward) TRY(add_gather(maker, maker->table));
    if (cut) TRY(add_gather(maker, step->backward ? maker->again : maker->gather));
    if (ends > 0 && step->backward) TRY(add_kernel(maker, ends, REPLAY_NONE));
    bool scatters = cut && step->backward && system_has(&maker->costs->job->system, OWN_KERNELS);
    if (scatters && is_last(maker->costs, maker->stage, step->chunk))
        TRY(add_reduction(maker, maker->table_scatter, maker->kernel));
    for (int64_t layer = 0; layer < layers; layer++)
        TRY(add_layer(maker, step, layer_s(maker, step->backward), layer + 1 < layers, reduces));
    if (ends > 0 && !step->backward) TRY(add_kernel(maker, ends, REPLAY_NONE));
    if (scatters && is_first(maker->stage, step->chunk)) TRY(add_reduction(maker, maker->table_scatter, maker->kernel));
    return STATUS_OK;
}

static enum status add_pass(struct maker *maker, const struct pipeline_step *step) {
    const struct job_costs *costs = maker->costs;
    const struct training *job = costs->job;
    bool final = step->backward && step->wave == costs->pipeline.waves - 1;
    bool reduces = final && system_has(&job->system, OVERLAPS_GRADIENTS) && maker->reduce.seconds > 0;
    bool cut = job->layout.partition.parameters > 1;
    size_t index = pass_index(costs, maker->stage, step);
    maker->kind = step->backward ? REPLAY_BACKWARD : REPLAY_FORWARD;
    int32_t before = (int32_t)maker->replay->instructions.count;
    TRY(cut || reduces ? add_layers(maker, step, reduces) : add_whole(maker, step));
    for (int32_t i = before; i < (int32_t)maker->replay->instructions.count; i++) {
        if (maker->replay->instructions.items[i].queue != REPLAY_KERNELS) continue;
        maker->first[index] = i;
        break;
    }
    maker->last[index] = maker->kernel;
    return STATUS_OK;
}

static struct collective_load both(struct collective_load one, struct collective_load other) {
    return (struct collective_load){one.seconds + other.seconds,
                                    one.link_part > other.link_part ? one.link_part : other.link_part};
}

/* Fewer ranks hold experts' weights, so these have their own reductions. */
static struct collective_load reduce_of(const struct job_costs *costs, double dense, double experts) {
    struct collective_load one = partition_reduce(costs, dense, false);
    return experts > 0 ? both(one, partition_reduce(costs, experts, true)) : one;
}

static struct collective_load hand_out_of(const struct job_costs *costs, int32_t stage) {
    double experts = (double)stage_expert_parameters(costs, stage);
    struct collective_load one = partition_update(costs, (double)stage_parameters(costs, stage) - experts, false);
    return experts > 0 ? both(one, partition_update(costs, experts, true)) : one;
}

/* Update kernels of a layer's weights and biases, and of the tables: one each for the squares of its gradient, for
 * their sum, and for the update. If ranks have shards, for each shard. */
static double update_kernels(const struct job_costs *costs, int32_t stage) {
    bool gated = costs->job->model.gated, cut = costs->job->layout.partition.optimizer > 1;
    double layers = 0, tensors = gated ? 9 : 12;
    for (int32_t chunk = 0; chunk < costs->pipeline.chunks; chunk++)
        layers += (double)stage_layers(costs, stage, chunk);
    return layers * (cut ? 4 + tensors : 3 * tensors) + 3 * (double)(tables_of(costs, stage) + 1);
}

static double own_update_s(const struct job_costs *costs, int32_t stage) {
    double gradients = (double)stage_parameters(costs, stage);
    return update_kernels(costs, stage) * costs->gpu.kernel_s + gradients * costs->layers.gradient_zero_s;
}

/* Reduces the remaining gradients, updates the rank's own parameters, then distributes them. */
static enum status add_update(struct maker *maker) {
    const struct job_costs *costs = maker->costs;
    const struct training *job = costs->job;
    double parameters = (double)stage_parameters(costs, maker->stage);
    double tables = tables_of(costs, maker->stage) * table_share(costs);
    double experts = (double)stage_expert_parameters(costs, maker->stage);
    struct collective_load rest = system_has(&job->system, OVERLAPS_GRADIENTS)
                                      ? reduce_of(costs, tables, 0)
                                      : reduce_of(costs, parameters - experts, experts);
    double update_s = costs->layers.parameter_s * stage_cut(costs, maker->stage, job->layout.partition.optimizer);
    maker->kind = REPLAY_UPDATE;
    TRY(add_collective(maker, REPLAY_REDUCE, rest, maker->kernel));
    update_s +=
        system_has(&job->system, OWN_KERNELS) ? own_update_s(costs, maker->stage) : costs->gpu.calibration->step_s;
    TRY(add_kernel(maker, update_s, maker->collective));
    if (system_has(&job->system, OVERLAPS_UPDATE)) return STATUS_OK;
    return add_collective(maker, REPLAY_HAND_OUT, hand_out_of(costs, maker->stage), maker->kernel);
}

/* Distributes new parameters during the first forward: the step begins with them, and the first pass's end waits. */
static enum status add_late_update(struct maker *maker) {
    const struct job_costs *costs = maker->costs;
    struct collective_load hand_out = hand_out_of(costs, maker->stage);
    if (!system_has(&costs->job->system, OVERLAPS_UPDATE) || hand_out.seconds <= 0) return STATUS_OK;
    return add_collective(maker, REPLAY_HAND_OUT, hand_out, REPLAY_NONE);
}

static enum status make_stage(struct maker *maker, struct pipeline_step *steps) {
    const struct job_costs *costs = maker->costs;
    int64_t count = pipeline_step_count(&costs->pipeline);
    maker->kernel = maker->before = maker->collective = maker->gathered = maker->reduced = REPLAY_NONE;
    pipeline_order(&costs->pipeline, maker->stage, steps);
    TRY(add_late_update(maker));
    for (int64_t i = 0; i < count; i++)
        TRY(add_pass(maker, &steps[i]));
    return add_update(maker);
}

/* The pass of the stage before (after, for a backward) that makes this one's input; false: it begins here. */
static bool find_source(const struct job_costs *costs, int32_t stage, struct pipeline_step step, size_t *out) {
    int32_t stages = costs->pipeline.stages, from = stage + (step.backward ? 1 : -1);
    if (step.backward ? is_last(costs, stage, step.chunk) : is_first(stage, step.chunk)) return false;
    if (from < 0 || from >= stages) step.chunk += step.backward ? 1 : -1;
    *out = pass_index(costs, (from + stages) % stages, &step);
    return true;
}

/* For Ballast, whose messages overlap: time from the end of the pass to the arrival of its result. */
static double arrives_s(const struct maker *maker, int32_t stage, const struct pipeline_step *step) {
    int32_t stages = maker->costs->pipeline.stages, from = (stage + (step->backward ? 1 : stages - 1)) % stages;
    if (!system_has(&maker->costs->job->system, OWN_KERNELS) || stages == 1) return 0;
    return hand_on_s(maker, from, stage) + collective_start_s(maker->costs->job);
}

static void join_stages(const struct maker *maker) {
    const struct job_costs *costs = maker->costs;
    for (int32_t stage = 0; stage < costs->pipeline.stages; stage++)
        for (int32_t chunk = 0; chunk < costs->pipeline.chunks; chunk++)
            for (int32_t micro = 0; micro < costs->pipeline.waves; micro++)
                for (int backward = 0; backward < 2; backward++) {
                    struct pipeline_step step = {chunk, micro, backward};
                    size_t source;
                    if (!find_source(costs, stage, step, &source)) continue;
                    int32_t first = maker->first[pass_index(costs, stage, &step)];
                    maker->replay->instructions.items[first].waits[0] =
                        replay_wait(maker->last[source], arrives_s(maker, stage, &step));
                }
}

static bool gathers_twice(const struct training *job, double layer) {
    int64_t kept = job->system.kept_parameters;
    return kept > 0 && layer > (double)kept && job->layout.recomputation == RECOMPUTE_FULL;
}

static void find_collectives(struct maker *maker) {
    const struct training *job = maker->costs->job;
    double layer = layer_parameters(maker->costs);
    maker->gradient_s = job->system.ways->gradient_s(maker->costs, layer);
    maker->gather = partition_gather(maker->costs, layer);
    maker->again = partition_gather_again(maker->costs, layer);
    if (gathers_twice(job, layer)) maker->again.seconds *= 2;
    maker->scatter = partition_scatter(maker->costs, layer);
    maker->reduce = reduce_of(maker->costs, layer - expert_share(maker->costs), expert_share(maker->costs));
    maker->table = partition_gather(maker->costs, table_share(maker->costs));
    maker->table_scatter = partition_scatter(maker->costs, table_share(maker->costs));
}

enum status stage_program_make(const struct job_costs *costs, struct replay *out) {
    size_t steps = (size_t)pipeline_step_count(&costs->pipeline), passes = steps * (size_t)costs->pipeline.stages;
    struct pipeline_step *order = mem_array(steps, sizeof *order);
    struct maker maker = {.costs = costs, .replay = out};
    maker.first = order ? mem_array(passes, sizeof *maker.first) : NULL;
    maker.last = maker.first ? mem_array(passes, sizeof *maker.last) : NULL;
    enum status status = maker.last ? STATUS_OK : STATUS_FAILED;
    find_collectives(&maker);
    out->stages = costs->pipeline.stages;
    for (maker.stage = 0; maker.stage < costs->pipeline.stages && status == STATUS_OK; maker.stage++)
        status = make_stage(&maker, order);
    if (status == STATUS_OK) join_stages(&maker);
    mem_free(order);
    mem_free(maker.first);
    mem_free(maker.last);
    return status;
}
