#include "scale/stage_program.h"

void job_costs_find(const struct training *job, const struct calibration *calibration, struct job_costs *out) {
    const struct layout *layout = &job->layout;
    *out =
        (struct job_costs){.job = job,
                           .card = card_describe(&job->cluster.device, calibration),
                           .fabric = fabric_describe(
                               &job->cluster, (struct fabric_parts){calibration->link_part, calibration->network_part,
                                                                    calibration->link_latency, calibration->hop_latency,
                                                                    calibration->congestion})};
    out->pipeline = (struct pipeline_shape){
        (int32_t)layout->pipeline, pipeline_chunks(layout->pipeline, layout->virtual_stages, layout->micro_batches),
        (int32_t)layout->micro_batches};
    layer_costs_find(job, &out->card, &out->fabric, &out->layers);
}

int64_t stage_layers(const struct job_costs *costs, int32_t stage, int32_t chunk) {
    int64_t parts = (int64_t)costs->pipeline.stages * costs->pipeline.chunks, layers = costs->job->model.layers;
    int64_t part = (int64_t)chunk * costs->pipeline.stages + stage;
    return layers / parts + (part < layers % parts);
}

static bool is_first(int32_t stage, int32_t chunk) { return stage == 0 && chunk == 0; }
static bool is_last(const struct job_costs *costs, int32_t stage, int32_t chunk) {
    return stage == costs->pipeline.stages - 1 && chunk == costs->pipeline.chunks - 1;
}

static double layer_share(const struct job_costs *costs) {
    return (double)transformer_layer_parameters(&costs->job->model) / (double)costs->job->layout.tensor;
}

static double table_share(const struct job_costs *costs) {
    return (double)transformer_table_parameters(&costs->job->model) / (double)costs->job->layout.tensor;
}

/* Tables on the stage: the embedding on the first, the head on the last, one for both where they are the same. */
static int tables_of(const struct job_costs *costs, int32_t stage) {
    int first = stage == 0, last = stage == costs->pipeline.stages - 1;
    return first && last && costs->job->model.tied ? 1 : first + last;
}

int64_t stage_parameters(const struct job_costs *costs, int32_t stage) {
    double all = tables_of(costs, stage) * table_share(costs);
    for (int32_t chunk = 0; chunk < costs->pipeline.chunks; chunk++)
        all += (double)stage_layers(costs, stage, chunk) * layer_share(costs);
    return (int64_t)all;
}

/* A stage while its instructions are made. */
struct maker {
    const struct job_costs *costs;
    struct replay *replay;
    int32_t *first, *last; /* kernels of each pass, by pass_index: its first and last instruction */
    int32_t stage;
    int32_t kernel, before;                  /* the latest kernel of the stage, and the one before it */
    int32_t collective;                      /* the latest collective */
    int32_t gathered;                        /* the gather of the pass's next layer; REPLAY_NONE: none is under way */
    struct exchange gather, scatter, reduce; /* of one layer */
    struct exchange table;                   /* gather of the embedding or the head */
    double gradient_s;                       /* of a layer's gradients in memory, after a backward */
};

static size_t pass_index(const struct job_costs *costs, int32_t stage, const struct pipeline_step *step) {
    size_t part = (size_t)stage * (size_t)costs->pipeline.chunks + (size_t)step->chunk;
    return (part * (size_t)costs->pipeline.micro_batches + (size_t)step->micro_batch) * 2 + step->backward;
}

static enum status add_kernel(struct maker *maker, double seconds, int32_t gather) {
    struct replay_instruction one = {.stage = maker->stage,
                                     .queue = REPLAY_KERNELS,
                                     .seconds = seconds,
                                     .waits = {replay_no_wait(), replay_wait(gather, 0)}};
    maker->before = maker->kernel;
    return replay_add(maker->replay, one, &maker->kernel);
}

static enum status add_collective(struct maker *maker, struct exchange exchange, int32_t after) {
    struct replay_instruction one = {.stage = maker->stage,
                                     .queue = REPLAY_COLLECTIVES,
                                     .seconds = exchange.seconds,
                                     .slows = exchange.link_part * maker->costs->card.calibration->collective_slowdown,
                                     .waits = {replay_wait(after, 0), replay_no_wait()}};
    return replay_add(maker->replay, one, &maker->collective);
}

/* Ahead of the layer that needs it: beside the layer before, or after it where the system does not overlap. */
static enum status add_gather(struct maker *maker, struct exchange exchange) {
    bool overlaps = maker->costs->job->system.overlaps_parameters;
    TRY(add_collective(maker, exchange, overlaps ? maker->before : maker->kernel));
    maker->gathered = maker->collective;
    return STATUS_OK;
}

/* What blocks a stage that hands its result on: systems here send before they go on. */
static double hand_on_s(const struct maker *maker, int32_t from, int32_t to) {
    const struct training *job = maker->costs->job;
    const struct layout *layout = &job->layout;
    double bytes =
        2.0 * (double)(layout->micro_batch * layout->sequence_length / layout->context) * (double)job->model.hidden;
    int64_t devices = layout->tensor * layout->context * layout->data, edge = from > to ? from : to;
    bool across = from - to > 1 || to - from > 1 || edge * devices % job->cluster.network.devices == 0;
    if (job->system.cuts_sends) bytes /= (double)layout->tensor;
    return send_s(&maker->costs->fabric, bytes, across);
}

/* Seconds for which the pass's end is held up by sending; 0 where the next is on the same stage or there is none. */
static double sending_s(const struct maker *maker, const struct pipeline_step *step) {
    const struct job_costs *costs = maker->costs;
    int32_t stages = costs->pipeline.stages, to = maker->stage + (step->backward ? -1 : 1);
    if (stages == 1) return 0;
    if (step->backward ? is_first(maker->stage, step->chunk) : is_last(costs, maker->stage, step->chunk)) return 0;
    return hand_on_s(maker, maker->stage, (to + stages) % stages);
}

static double ends_s(const struct maker *maker, const struct pipeline_step *step) {
    const struct layer_costs *layers = &maker->costs->layers;
    double seconds = sending_s(maker, step);
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

/* Layer by layer with the partition's collectives: each gather ahead of its layer, gradients after theirs. */
static enum status add_layer(struct maker *maker, const struct pipeline_step *step, double seconds, bool more,
                             bool reduces) {
    bool cut = maker->costs->job->layout.partition.parameters > 1;
    bool ahead = maker->costs->job->system.overlaps_parameters;
    TRY(add_kernel(maker, seconds, maker->gathered));
    maker->gathered = REPLAY_NONE;
    int32_t kernel = maker->kernel;
    if (cut && more && ahead) TRY(add_gather(maker, maker->gather));
    if (cut && step->backward) TRY(add_collective(maker, maker->scatter, kernel));
    if (reduces) TRY(add_collective(maker, maker->reduce, kernel));
    if (cut && more && !ahead) TRY(add_gather(maker, maker->gather));
    return STATUS_OK;
}

static enum status add_layers(struct maker *maker, const struct pipeline_step *step, bool reduces) {
    int64_t layers = stage_layers(maker->costs, maker->stage, step->chunk);
    bool cut = maker->costs->job->layout.partition.parameters > 1;
    double ends = ends_s(maker, step);
    int tables = is_first(maker->stage, step->chunk) || is_last(maker->costs, maker->stage, step->chunk);
    if (cut && tables && !step->backward) TRY(add_gather(maker, maker->table));
    if (cut) TRY(add_gather(maker, maker->gather));
    if (ends > 0 && step->backward) TRY(add_kernel(maker, ends, REPLAY_NONE));
    for (int64_t layer = 0; layer < layers; layer++)
        TRY(add_layer(maker, step, layer_s(maker, step->backward), layer + 1 < layers, reduces));
    if (ends > 0 && !step->backward) TRY(add_kernel(maker, ends, REPLAY_NONE));
    return STATUS_OK;
}

static enum status add_pass(struct maker *maker, const struct pipeline_step *step) {
    const struct job_costs *costs = maker->costs;
    const struct training *job = costs->job;
    bool final = step->backward && step->micro_batch == costs->pipeline.micro_batches - 1;
    bool reduces = final && job->system.overlaps_gradients && maker->reduce.seconds > 0;
    bool cut = job->layout.partition.parameters > 1;
    size_t index = pass_index(costs, maker->stage, step);
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

/* Gradients that were not exchanged on the way, then the update of what the rank owns, then the new parameters. */
static enum status add_update(struct maker *maker) {
    const struct job_costs *costs = maker->costs;
    const struct training *job = costs->job;
    const struct calibration *calibration = costs->card.calibration;
    double parameters = (double)stage_parameters(costs, maker->stage);
    double tables = tables_of(costs, maker->stage) * table_share(costs);
    double rest = job->system.overlaps_gradients ? tables : parameters;
    double cut = (double)job->layout.partition.optimizer;
    struct exchange hand_out = exchange_update(job, &costs->fabric, parameters, calibration->broadcast_s);
    TRY(add_collective(maker, exchange_reduce(job, &costs->fabric, rest), maker->kernel));
    TRY(add_kernel(maker, costs->layers.parameter_s * parameters / cut + calibration->step_s, maker->collective));
    if (job->system.overlaps_update) return STATUS_OK;
    return add_collective(maker, hand_out, maker->kernel);
}

/* New parameters that come beside the first forward: the step begins with them, and the first pass's end waits. */
static enum status add_late_update(struct maker *maker) {
    const struct job_costs *costs = maker->costs;
    const struct training *job = costs->job;
    double parameters = (double)stage_parameters(costs, maker->stage);
    struct exchange hand_out = exchange_update(job, &costs->fabric, parameters, costs->card.calibration->broadcast_s);
    if (!job->system.overlaps_update || hand_out.seconds <= 0) return STATUS_OK;
    return add_collective(maker, hand_out, REPLAY_NONE);
}

static enum status make_stage(struct maker *maker, struct pipeline_step *steps) {
    const struct job_costs *costs = maker->costs;
    int64_t count = pipeline_step_count(&costs->pipeline);
    maker->kernel = maker->before = maker->collective = maker->gathered = REPLAY_NONE;
    pipeline_order(&costs->pipeline, maker->stage, steps);
    TRY(add_late_update(maker));
    for (int64_t i = 0; i < count; i++)
        TRY(add_pass(maker, &steps[i]));
    return add_update(maker);
}

/* The pass of the stage before (after, for a backward) that this one's input comes from; false: it begins here. */
static bool find_source(const struct job_costs *costs, int32_t stage, struct pipeline_step step, size_t *out) {
    int32_t stages = costs->pipeline.stages, from = stage + (step.backward ? 1 : -1);
    if (step.backward ? is_last(costs, stage, step.chunk) : is_first(stage, step.chunk)) return false;
    if (from < 0 || from >= stages) step.chunk += step.backward ? 1 : -1;
    *out = pass_index(costs, (from + stages) % stages, &step);
    return true;
}

static void join_stages(const struct maker *maker) {
    const struct job_costs *costs = maker->costs;
    for (int32_t stage = 0; stage < costs->pipeline.stages; stage++)
        for (int32_t chunk = 0; chunk < costs->pipeline.chunks; chunk++)
            for (int32_t micro = 0; micro < costs->pipeline.micro_batches; micro++)
                for (int backward = 0; backward < 2; backward++) {
                    struct pipeline_step step = {chunk, micro, backward};
                    size_t source;
                    if (!find_source(costs, stage, step, &source)) continue;
                    int32_t first = maker->first[pass_index(costs, stage, &step)];
                    maker->replay->instructions.items[first].waits[0] = replay_wait(maker->last[source], 0);
                }
}

/* Bytes moved for a parameter's gradient after a backward: turned to the type in which it is scattered, or added to the
 * sum of the micro-batches before. */
static double gradient_traffic(const struct training *job) {
    double bytes = (double)job->system.gradient_bytes;
    if (job->layout.partition.parameters > 1) return bytes > 2 ? 2 + bytes : 0;
    return job->layout.micro_batches > 1 ? 2 + 2 * bytes : 0;
}

static void find_exchanges(struct maker *maker) {
    const struct training *job = maker->costs->job;
    const struct fabric *fabric = &maker->costs->fabric;
    double layer = layer_share(maker->costs), traffic = gradient_traffic(job);
    maker->gradient_s = traffic > 0 ? streaming_s(&maker->costs->card, traffic * layer) : 0;
    maker->gather = exchange_gather(job, fabric, layer);
    maker->scatter = exchange_scatter(job, fabric, layer);
    maker->reduce = exchange_reduce(job, fabric, layer);
    maker->table = exchange_gather(job, fabric, table_share(maker->costs));
}

enum status stage_program_make(const struct job_costs *costs, struct replay *out) {
    size_t steps = (size_t)pipeline_step_count(&costs->pipeline), passes = steps * (size_t)costs->pipeline.stages;
    struct pipeline_step *order = mem_array(steps, sizeof *order);
    struct maker maker = {.costs = costs, .replay = out};
    maker.first = order ? mem_array(passes, sizeof *maker.first) : NULL;
    maker.last = maker.first ? mem_array(passes, sizeof *maker.last) : NULL;
    enum status status = maker.last ? STATUS_OK : STATUS_FAILED;
    find_exchanges(&maker);
    out->stages = costs->pipeline.stages;
    for (maker.stage = 0; maker.stage < costs->pipeline.stages && status == STATUS_OK; maker.stage++)
        status = make_stage(&maker, order);
    if (status == STATUS_OK) join_stages(&maker);
    mem_free(order);
    mem_free(maker.first);
    mem_free(maker.last);
    return status;
}
