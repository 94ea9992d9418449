/* Two simulations with the same costs agree within 5%: a step that is compiled and simulated instruction by
 * instruction (`ballast plan --ranks N --cluster X`), and the same layout simulated by pipeline stages (`--devices
 * N`). */
#include <math.h>
#include <string.h>

#include "base/terminal.h"
#include "machine/cluster.h"
#include "profile/described_device.h"
#include "search/scale/forecast.h"
#include "search/scale/training.h"
#include "session/plan.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static const double TOLERANCE = 0.05;

struct subject {
    const char *model, *cluster;
    struct mesh mesh;
    int64_t batch, sequence_length, micro_batch;
    int64_t tensor, stages;
    bool sequence;
    const char *partition;
};

/* On each kind of GPU, one of each kind of layout. */
static const struct subject subjects[] = {
    {"gpt2", "h100x8", {1, 8}, 64, 1024, 8, 1, 1, false, "ddp"},
    {"gpt2", "a100-80x8", {1, 8}, 64, 1024, 4, 1, 1, false, "zero1"},
    {"qwen3-0.6b", "a100-80x8", {2, 8}, 64, 4096, 2, 1, 1, false, "zero1"},
    {"qwen3-0.6b", "rtx4090x8", {1, 8}, 32, 2048, 1, 1, 1, false, "zero2"},
    {"qwen3-0.6b", "h100x8", {1, 8}, 32, 4096, 2, 1, 1, false, "zero3"},
    {"llama-3.1-8b", "h100x8", {4, 8}, 64, 4096, 2, 1, 1, false, "zero3"},
    {"llama-3.1-8b", "h100x8", {1, 8}, 4, 4096, 1, 8, 1, false, "ddp"},
    {"llama-3.1-8b", "h100x8", {1, 8}, 4, 4096, 1, 8, 1, true, "ddp"},
    {"llama-3.1-8b", "h100x8", {2, 8}, 32, 4096, 1, 1, 8, false, "ddp"},
};

static void open_plan(const struct subject *subject, struct session *session, struct session_plan *plan) {
    struct plan_options options;
    struct train_options training;
    struct cluster cluster;
    const struct backend *backend;
    plan_options_init(&options);
    train_options_init(&training);
    options.outline = true;
    options.planned = subject->mesh;
    expect_status(cluster_open(subject->cluster, &cluster), STATUS_OK, NULL);
    expect_status(described_device_find(subject->cluster, &cluster, &backend_cpu, &backend), STATUS_OK, NULL);
    SETTINGS_GIVE(&options, cluster_path, subject->cluster);
    SETTINGS_GIVE(&options, backend, backend);
    SETTINGS_GIVE(&options, dtype, DTYPE_BF16);
    SETTINGS_GIVE(&options, threads, 1);
    SETTINGS_GIVE(&options, batch, subject->batch);
    SETTINGS_GIVE(&options, sequence_length, subject->sequence_length);
    SETTINGS_GIVE(&options, micro_batch_sequences, subject->micro_batch);
    SETTINGS_GIVE(&options, micro_batches_per_wave, 1);
    SETTINGS_GIVE(&options, tensor_parallel, (int)subject->tensor);
    SETTINGS_GIVE(&options, sequence_parallel, subject->sequence);
    SETTINGS_GIVE(&options, pipeline_parallel, subject->stages);
    SETTINGS_GIVE(&options, partition, subject->partition);
    if (subject->stages > 1) SETTINGS_GIVE(&options, virtual_stages, 1);
    /* Where parameters are cut, search/scale adds gradients up in each micro-batch. */
    if (strcmp(subject->partition, "zero3") == 0) SETTINGS_GIVE(&options, round_micro_batches, 1);
    expect_status(session_begin(subject->model, PROGRAMS_TO_TRAIN, &options, &training, session, plan), STATUS_OK,
                  NULL);
}

static struct layout layout_of(const struct subject *subject, const struct plan *plan) {
    const struct partition *cut = &plan->policy.partition;
    int64_t data = rank_place_data(&plan->place);
    assert_string_equal(plan->policy.schedule, ""); /* no block is recomputed */
    return (struct layout){.tensor = subject->tensor,
                           .pipeline = subject->stages,
                           .context = 1,
                           .data = data,
                           .virtual_stages = 1,
                           .sequence = subject->sequence,
                           .partition = {partition_width(cut->parameters), partition_width(cut->gradients),
                                         partition_width(cut->optimizer)},
                           .recomputation = plan->policy.selective_recompute ? RECOMPUTE_NORMS : RECOMPUTE_NONE,
                           .micro_batch = subject->micro_batch,
                           .micro_batches = subject->batch / data / subject->micro_batch,
                           .sequence_length = subject->sequence_length};
}

static struct transformer transformer_of(const struct model_config *config) {
    return (struct transformer){.hidden = config->hidden,
                                .layers = config->layers,
                                .heads = config->heads,
                                .kv_heads = config->kv_heads,
                                .ffn = config->ffn,
                                .vocab = config->vocab_size,
                                .gated = !config->family->plain_mlp,
                                .tied = config->tied,
                                .head_size = config->head_dim};
}

static void check(const struct subject *subject) {
    struct calibration calibration = calibration_default();
    struct session session;
    struct session_plan plan;
    struct step_summary step;
    struct forecast forecast;
    open_plan(subject, &session, &plan);
    expect_status(session_plan_measure(&plan), STATUS_OK, NULL);
    expect_status(session_plan_predict(&plan, &step), STATUS_OK, NULL);
    struct training job = {.model = transformer_of(&session.model->config),
                           .cluster = session.machine.cluster,
                           .layout = layout_of(subject, &plan.chosen),
                           .system = training_system_ballast};
    expect_status(forecast_step(&job, &calibration, &forecast), STATUS_OK, NULL);
    double apart = forecast.step_s / step.step_s - 1;
    print_message("%s on %s, %dx%d ranks, tensor %d%s, stages %d, %s: %.4f s, by stages %.4f s (%+.1f%%)\n",
                  subject->model, subject->cluster, subject->mesh.nodes, subject->mesh.per_node, (int)subject->tensor,
                  subject->sequence ? " by positions" : "", (int)subject->stages, subject->partition, step.step_s,
                  forecast.step_s, 100 * apart);
    if (!(fabs(apart) <= TOLERANCE)) fail_msg("the two simulations are %.1f%% apart", 100 * fabs(apart));
    session_plan_free(&plan);
    session_close(&session);
}

static void both_simulations_take_the_same_time(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        check(&subjects[i]);
}

int main(void) {
    log_set_quiet(true);
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_simulations_take_the_same_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
