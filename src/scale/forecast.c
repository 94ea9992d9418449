#include "scale/forecast.h"

#include <math.h>

#include "scale/rank_memory.h"

static double waiting_factor(const struct training *job, const struct calibration *calibration) {
    double nodes = (double)layout_devices(&job->layout) / (double)job->cluster.network.devices;
    return nodes > 1 ? 1 + calibration->spread * log2(nodes) : 1;
}

static double model_flops(const struct training *job) {
    const struct layout *layout = &job->layout;
    double sequences = (double)(layout->data * layout->micro_batch * layout->micro_batches);
    return sequences * (double)layout->sequence_length * transformer_token_flops(&job->model, layout->sequence_length);
}

enum status forecast_step(const struct training *job, const struct calibration *calibration, struct forecast *out) {
    struct job_costs costs;
    TRY(training_check(job));
    job_costs_find(job, calibration, &costs);
    struct replay replay = {0};
    enum status status;
    TRY_GOTO(status, stage_program_make(&costs, &replay), done);
    TRY_GOTO(status, replay_run(&replay), done);
    *out = (struct forecast){.step_s = replay.end_s * waiting_factor(job, calibration),
                             .flops = model_flops(job),
                             .busy_s = replay.busy_s,
                             .exposed_s = fmax(0, replay.end_s - replay.busy_s),
                             .peak_bytes = (int64_t)fmin(rank_memory_most(&costs).total, 9e18),
                             .instructions = (int64_t)replay.instructions.count};
done:
    replay_free(&replay);
    return status;
}
