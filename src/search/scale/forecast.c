#include "search/scale/forecast.h"

#include <math.h>

enum { BYTES = 2 };

/* Bytes that a layer keeps for its backward without recomputation: inputs of norms and GEMMs, inputs of the activation,
 * and scores if they are written. By arXiv 2205.05198, equations 1 and 2, without dropout's masks. */
static double layer_bytes(const struct training *job) {
    const struct transformer *model = &job->model;
    const struct layout *layout = &job->layout;
    double tokens = (double)(layout->micro_batch * layout->sequence_length / layout->context);
    double across = (double)layout->tensor, cut = layout->sequence ? across : 1;
    double queries = (double)transformer_query_width(model);
    double keys = queries + 2 * (double)(model->kv_heads * transformer_head_size(model));
    double whole = 4 * (double)model->hidden / cut;
    double experts_per_token = model->experts > 0 ? (double)model->experts_a_token : 1;
    double parts = (queries + keys + experts_per_token * (model->gated ? 3 : 2) * (double)model->ffn) / across;
    /* Tokens sent to experts, and their results. */
    if (model->experts > 0) whole += 2 * experts_per_token * (double)model->hidden / cut;
    double bytes = BYTES * tokens * (whole + parts);
    bool scores = system_has(&job->system, WRITES_SCORES) && layout->recomputation != RECOMPUTE_ATTENTION;
    if (scores) bytes += 5 * tokens * (double)layout->sequence_length * (double)model->heads / across;
    return bytes;
}

static double input_bytes(const struct training *job) {
    const struct layout *layout = &job->layout;
    double cut = layout->sequence ? (double)layout->tensor : 1;
    return BYTES * (double)(layout->micro_batch * layout->sequence_length / layout->context) *
           (double)job->model.hidden / cut;
}

/* Results of norms and of the activation function. */
static double norms_bytes(const struct training *job) {
    const struct layout *layout = &job->layout;
    double tokens = (double)(layout->micro_batch * layout->sequence_length / layout->context);
    double across = (double)layout->tensor, cut = layout->sequence ? across : 1;
    return BYTES * tokens * (2 * (double)job->model.hidden / cut + (double)job->model.ffn / across);
}

/* Bytes of a layer kept from its forward to its backward. */
static double kept_bytes(const struct training *job) {
    switch (job->layout.recomputation) {
    case RECOMPUTE_FULL: return input_bytes(job);
    case RECOMPUTE_HALF: return (layer_bytes(job) + input_bytes(job)) / 2;
    case RECOMPUTE_NORMS: return layer_bytes(job) - norms_bytes(job);
    default: return layer_bytes(job);
    }
}

static double logits_bytes(const struct job_costs *costs, int32_t stage) {
    const struct training *job = costs->job;
    if (stage != costs->pipeline.stages - 1) return 0;
    double tokens = (double)(job->layout.micro_batch * job->layout.sequence_length / job->layout.context);
    return tokens * (double)job->model.vocab / (double)job->layout.tensor *
           (system_has(&job->system, FP32_LOSS) ? 10 : 4);
}

static double state_bytes(const struct job_costs *costs, int32_t stage) {
    const struct training *job = costs->job;
    const struct partition_triple *cut = &job->layout.partition;
    double gradient = (double)job->system.gradient_bytes;
    double rest = (double)job->system.state_bytes - BYTES - gradient;
    if (cut->parameters == 1) rest += (double)job->system.update_bytes;
    double pass = (double)job->system.pass_bytes;
    int64_t second = job->layout.second_parameters;
    double copy = second > 0 ? BYTES * stage_cut(costs, stage, second) : 0;
    return copy + (BYTES + pass) * stage_cut(costs, stage, cut->parameters) +
           gradient * stage_cut(costs, stage, cut->gradients) + rest * stage_cut(costs, stage, cut->optimizer);
}

struct rank_memory rank_memory_of(const struct job_costs *costs, int32_t stage) {
    const struct training *job = costs->job;
    const struct layout *layout = &job->layout;
    double passes = (double)pipeline_held(&costs->pipeline, stage), layers = (double)stage_layers(costs, stage, 0);
    double layer = layer_parameters(costs);
    double gathered = layout->partition.parameters > 1 ? layer * (2 * BYTES + (double)job->system.gradient_bytes) : 0;
    double output = layout->pipeline > 1 ? input_bytes(job) : 0; /* of a stage: kept until its gradient arrives */
    struct rank_memory memory = {.states = state_bytes(costs, stage),
                                 .activations = passes * (layers * kept_bytes(job) + output)};
    memory.working = (double)job->system.buffer_bytes + gathered + logits_bytes(costs, stage) +
                     (layout->recomputation == RECOMPUTE_NONE ? 1 : 2) * layer_bytes(job);
    memory.total = memory.states + memory.activations + memory.working + costs->gpu.calibration->runtime_bytes;
    return memory;
}

struct rank_memory rank_memory_max(const struct job_costs *costs) {
    struct rank_memory max = {0};
    for (int32_t stage = 0; stage < costs->pipeline.stages; stage++) {
        struct rank_memory memory = rank_memory_of(costs, stage);
        if (memory.total > max.total) max = memory;
    }
    return max;
}

static double time_between_s(const struct failures *failures, int64_t nodes) {
    return failures->node_mtbf_s / (double)nodes;
}

double failures_best_interval_s(const struct failures *failures, int64_t nodes) {
    double between = time_between_s(failures, nodes), checkpoint = failures->checkpoint_s / between;
    double min = 0, max = 1;
    for (int i = 0; i < 60; i++) {
        double middle = (min + max) / 2;
        if (log1p(-middle) + middle + checkpoint > 0)
            min = middle;
        else
            max = middle;
    }
    return max * between;
}

double failures_useful_part(const struct failures *failures, int64_t nodes, double interval_s) {
    double between = time_between_s(failures, nodes);
    double attempt = expm1((interval_s + failures->checkpoint_s) / between);
    return interval_s / (between * exp(failures->restart_s / between) * attempt);
}

static double model_flops(const struct training *job) {
    const struct layout *layout = &job->layout;
    double sequences = (double)(layout->data * layout->micro_batch * layout->micro_batches);
    return sequences * (double)layout->sequence_length * transformer_token_flops(&job->model, layout->sequence_length);
}

static enum status replay_micro_batches(const struct training *job, const struct calibration *calibration,
                                        int64_t micro_batches, struct replay *replay) {
    struct training shorter = *job;
    struct job_costs costs;
    shorter.layout.micro_batches = micro_batches;
    job_costs_find(&shorter, calibration, &costs);
    TRY(stage_program_make(&costs, replay));
    return replay_run(replay);
}

/* Simulates a step of so many micro-batches: its seconds and instructions. */
static enum status simulate(const struct training *job, const struct calibration *calibration, int64_t micro_batches,
                            struct forecast *out) {
    AUTO(replay_free) struct replay replay = {0};
    enum status status = replay_micro_batches(job, calibration, micro_batches, &replay);
    *out = (struct forecast){
        .step_s = replay.end_s, .busy_s = replay.busy_s, .instructions = (int64_t)replay.instructions.count};
    return status;
}

enum status forecast_timeline(const struct training *job, const struct calibration *calibration, int64_t micro_batches,
                              struct replay *replay) {
    int64_t stages = job->layout.pipeline, fewest = micro_batches > stages ? micro_batches / stages * stages : stages;
    TRY(training_check(job));
    return replay_micro_batches(job, calibration,
                                fewest < job->layout.micro_batches ? fewest : job->layout.micro_batches, replay);
}

/* Once a pipeline is filled, each round of as many micro-batches as stages takes equally long. So only some of many
 * rounds are simulated, and the others are counted like the last of these. */
static enum status simulate_rounds(const struct training *job, const struct calibration *calibration,
                                   struct forecast *out) {
    int64_t all = job->layout.micro_batches, round = job->layout.pipeline;
    int64_t few = 3 * round + all % round;
    struct forecast before;
    if (all <= 2 * few + round) return simulate(job, calibration, all, out);
    TRY(simulate(job, calibration, few, &before));
    TRY(simulate(job, calibration, few + round, out));
    double rounds = (double)((all - few) / round - 1);
    out->step_s += rounds * (out->step_s - before.step_s);
    out->busy_s += rounds * (out->busy_s - before.busy_s);
    out->instructions += before.instructions;
    return STATUS_OK;
}

enum status forecast_step(const struct training *job, const struct calibration *calibration, struct forecast *out) {
    struct job_costs costs;
    struct forecast made;
    TRY(training_check(job));
    TRY(simulate_rounds(job, calibration, &made));
    job_costs_find(job, calibration, &costs);
    made.flops = model_flops(job);
    made.peak_bytes = (int64_t)fmin(rank_memory_max(&costs).total, 9e18);
    *out = made;
    return STATUS_OK;
}
