#include "search/scale/forecast.h"

#include <math.h>

#include "search/scale/rank_memory.h"

static double model_flops(const struct training *job) {
    const struct layout *layout = &job->layout;
    double sequences = (double)(layout->data * layout->micro_batch * layout->micro_batches);
    return sequences * (double)layout->sequence_length * transformer_token_flops(&job->model, layout->sequence_length);
}

/* Of a step of so many micro-batches. */
struct simulated_step {
    double step_s, busy_s;
    int64_t instructions;
};

static enum status replay_micro_batches(const struct training *job, const struct calibration *calibration,
                                        int64_t micro_batches, struct replay *replay) {
    struct training shorter = *job;
    struct job_costs costs;
    shorter.layout.micro_batches = micro_batches;
    job_costs_find(&shorter, calibration, &costs);
    TRY(stage_program_make(&costs, replay));
    return replay_run(replay);
}

static enum status simulate(const struct training *job, const struct calibration *calibration, int64_t micro_batches,
                            struct simulated_step *out) {
    struct replay replay = {0};
    enum status status = replay_micro_batches(job, calibration, micro_batches, &replay);
    *out = (struct simulated_step){replay.end_s, replay.busy_s, (int64_t)replay.instructions.count};
    replay_free(&replay);
    return status;
}

enum status forecast_timeline(const struct training *job, const struct calibration *calibration, int64_t micro_batches,
                              struct replay *replay) {
    int64_t stages = job->layout.pipeline, fewest = micro_batches > stages ? micro_batches / stages * stages : stages;
    TRY(training_check(job));
    return replay_micro_batches(job, calibration,
                                fewest < job->layout.micro_batches ? fewest : job->layout.micro_batches, replay);
}

/* Once a pipeline is filled, each round of as many micro-batches as it has stages takes as long as the one before. So
 * of many rounds a few are simulated, and the others counted as the last of these. */
static enum status simulate_rounds(const struct training *job, const struct calibration *calibration,
                                   struct simulated_step *out) {
    int64_t all = job->layout.micro_batches, round = job->layout.pipeline;
    int64_t few = 3 * round + all % round;
    struct simulated_step before;
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
    struct simulated_step simulated_step;
    TRY(training_check(job));
    TRY(simulate_rounds(job, calibration, &simulated_step));
    job_costs_find(job, calibration, &costs);
    *out = (struct forecast){.step_s = simulated_step.step_s,
                             .flops = model_flops(job),
                             .busy_s = simulated_step.busy_s,
                             .exposed_s = fmax(0, simulated_step.step_s - simulated_step.busy_s),
                             .peak_bytes = (int64_t)fmin(rank_memory_max(&costs).total, 9e18),
                             .instructions = simulated_step.instructions};
    return STATUS_OK;
}
