/* Steps of described jobs: properties of any numbers, and memory worked out by hand. */
#include <math.h>

#include "machine/cluster.h"
#include "search/scale/forecast.h"
#include "search/scale/training.h"
#include "support/fault_sweep.h"
#include "support/published_systems.h"
#include "support/scale_fit.h"
#include "support/unit.h"

/* A Llama of 7 billion on so many A100s, each with two micro-batches of one sequence of 4096. */
static struct training job_of(int64_t devices) {
    struct training job = {
        .model =
            {.hidden = 4096, .layers = 32, .heads = 32, .kv_heads = 32, .ffn = 11008, .vocab = 32000, .gated = true},
        .layout = {.tensor = 1,
                   .pipeline = 1,
                   .context = 1,
                   .data = devices,
                   .virtual_stages = 1,
                   .partition = {devices, devices, devices},
                   .recomputation = RECOMPUTE_FULL,
                   .micro_batch = 1,
                   .micro_batches = 2,
                   .sequence_length = 4096},
        .system = *training_system_find("torchtitan FSDP2"),
    };
    assert_int_equal(cluster_open("a100-80x8", &job.cluster), STATUS_OK);
    return job;
}

static struct forecast forecast_of(const struct training *job) {
    struct calibration calibration = calibration_default();
    struct forecast forecast;
    if (forecast_step(job, &calibration, &forecast) != STATUS_OK) fail_msg("%s", status_message());
    return forecast;
}

static void parameters_are_those_of_the_published_model(void **state) {
    (void)state;
    struct training job = job_of(8);
    assert_int_equal(transformer_parameters(&job.model), 6738415616);
    job.model.tied = true;
    assert_int_equal(transformer_parameters(&job.model), 6738415616 - 32000 * 4096);
}

/* Heads twice as wide: twice the products and attention of a layer that has no MLP to speak of. */
static void wider_heads_take_more(void **state) {
    (void)state;
    struct training job = job_of(8);
    job.model.ffn = 1;
    struct forecast narrow = forecast_of(&job);
    int64_t parameters = transformer_parameters(&job.model);
    job.model.head_size = 2 * job.model.hidden / job.model.heads;
    struct forecast wide = forecast_of(&job);
    assert_int_equal(transformer_parameters(&job.model) - parameters, (int64_t)128 * 4096 * 4096);
    assert_true(wide.step_s > 1.4 * narrow.step_s && wide.step_s < 2 * narrow.step_s);
    assert_true(wide.peak_bytes > narrow.peak_bytes);
}

static void step_time_is_between_its_flops_and_its_exposed_work(void **state) {
    (void)state;
    struct training job = job_of(64);
    struct forecast forecast = forecast_of(&job);
    double min = forecast.flops / 64 / job.cluster.device.limits.bf16_flops_per_s;
    assert_true(forecast.step_s > min && forecast.step_s < 4 * min);
    assert_true(forecast.busy_s <= forecast.step_s);
}

static void more_of_anything_takes_longer(void **state) {
    (void)state;
    struct training base = job_of(64), more = base;
    double seconds = forecast_of(&base).step_s;
    more.layout.micro_batches = 3;
    assert_true(forecast_of(&more).step_s > seconds);
    more = base, more.layout.sequence_length = 8192;
    assert_true(forecast_of(&more).step_s > 2 * seconds);
    more = base, more.model.layers = 33;
    assert_true(forecast_of(&more).step_s > seconds);
    more = base, system_set(&more.system, OVERLAPS_PARAMETERS, false);
    assert_true(forecast_of(&more).step_s > seconds);
    more = base, more.cluster.network.node_bytes_per_s /= 10;
    assert_true(forecast_of(&more).step_s > seconds);
    more = base, more.layout.recomputation = RECOMPUTE_NONE;
    assert_true(forecast_of(&more).step_s < seconds);
    assert_true(forecast_of(&more).peak_bytes > forecast_of(&base).peak_bytes);
}

/* Optimizer states over 8 in place of 1024 keep the hand-out of parameters in the node (arXiv 2311.00257, table IV). */
static void a_smaller_partition_is_faster_on_many_nodes_and_takes_more(void **state) {
    (void)state;
    struct training job = job_of(1024);
    job.system = *training_system_find("InternEvo");
    job.layout.partition = (struct partition_triple){1, 1, 1024};
    struct forecast all = forecast_of(&job);
    job.layout.partition.optimizer = 8;
    struct forecast node = forecast_of(&job);
    assert_true(node.step_s < all.step_s);
    assert_true(node.peak_bytes > all.peak_bytes);
}

static void interleaving_shortens_a_pipeline(void **state) {
    (void)state;
    struct training job = job_of(64);
    job.system = *training_system_find("Megatron-Core");
    job.layout.data = 8, job.layout.pipeline = 8, job.layout.micro_batches = 8;
    job.layout.partition = (struct partition_triple){1, 1, 8};
    double plain = forecast_of(&job).step_s;
    job.layout.virtual_stages = 4;
    assert_true(forecast_of(&job).step_s < 0.9 * plain);
}

static void states_of_a_rank_are_what_the_triple_leaves(void **state) {
    (void)state;
    struct training job = job_of(64);
    struct calibration calibration = calibration_default();
    struct job_costs costs;
    static const struct {
        struct partition_triple cut;
        double bytes; /* of a parameter */
    } cases[] = {
        {{1, 1, 1}, 16}, {{1, 1, 64}, 2 + 4 + 10.0 / 64}, {{64, 64, 64}, 16.0 / 64}, {{8, 8, 64}, 6.0 / 8 + 10.0 / 64}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job.layout.partition = cases[i].cut;
        job_costs_find(&job, &calibration, &costs);
        double parameters = (double)stage_parameters(&costs, 0);
        assert_true(fabs(rank_memory_of(&costs, 0).states / (parameters * cases[i].bytes) - 1) < 1e-9);
    }
}

static void a_thousand_devices_are_one_rank_a_stage(void **state) {
    (void)state;
    struct training small = job_of(8), large = job_of(1024);
    assert_int_equal(forecast_of(&small).instructions, forecast_of(&large).instructions);
}

/* All micro-batches simulated, none of them counted as another. */
static double whole_step_s(const struct training *job) {
    struct calibration calibration = calibration_default();
    struct job_costs costs;
    struct replay replay = {0};
    job_costs_find(job, &calibration, &costs);
    assert_int_equal(stage_program_make(&costs, &replay), STATUS_OK);
    assert_int_equal(replay_run(&replay), STATUS_OK);
    double end_s = replay.end_s;
    replay_free(&replay);
    return end_s;
}

static void rounds_that_are_counted_take_as_long_as_simulated_ones(void **state) {
    (void)state;
    for (int64_t stages = 1; stages <= 4; stages *= 2)
        for (int64_t chunks = 1; chunks <= 2; chunks++)
            for (int64_t micro_batches = 60; micro_batches <= 64; micro_batches++) {
                struct training job = job_of(64);
                job.layout.pipeline = stages;
                job.layout.data = 64 / stages;
                job.layout.partition = (struct partition_triple){1, 1, 64 / stages};
                job.layout.virtual_stages = chunks;
                job.layout.micro_batches = micro_batches;
                struct forecast forecast = forecast_of(&job);
                assert_true(fabs(forecast.step_s / whole_step_s(&job) - 1) < 1e-9);
                if (stages > 1) assert_true(forecast.instructions < 4 * stages * chunks * micro_batches);
            }
}

/* Three stages: eight layers are 3 + 3 + 2; seven, with the tables' two places, 2 + 3 + 2. */
static void tables_take_a_layer_s_place_where_that_makes_stages_even(void **state) {
    (void)state;
    static const int64_t expected[][4] = {{8, 3, 3, 2}, {7, 2, 3, 2}, {6, 2, 2, 2}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct training job = job_of(24);
        struct calibration calibration = calibration_default();
        struct job_costs costs;
        job.model.layers = expected[i][0];
        job.layout.pipeline = 3, job.layout.data = 8;
        job.layout.partition = (struct partition_triple){1, 1, 8};
        job_costs_find(&job, &calibration, &costs);
        for (int32_t stage = 0; stage < 3; stage++)
            assert_int_equal(stage_layers(&costs, stage, 0), expected[i][stage + 1]);
    }
}

/* Eight stages: 10 layers are two each until the rest must have one; 50 leave one to the last; 24 are even. */
static void stages_are_filled_one_after_the_other(void **state) {
    (void)state;
    static const int64_t expected[][9] = {
        {10, 2, 2, 1, 1, 1, 1, 1, 1}, {50, 7, 7, 7, 7, 7, 7, 7, 1}, {24, 3, 3, 3, 3, 3, 3, 3, 3}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct training job = job_of(64);
        struct calibration calibration = calibration_default();
        struct job_costs costs;
        system_set(&job.system, FILLS_STAGES, true);
        job.model.layers = expected[i][0];
        job.layout.pipeline = 8, job.layout.data = 8;
        job.layout.partition = (struct partition_triple){1, 1, 8};
        job_costs_find(&job, &calibration, &costs);
        for (int32_t stage = 0; stage < 8; stage++)
            assert_int_equal(stage_layers(&costs, stage, 0), expected[i][stage + 1]);
    }
}

static void sums_made_by_products_save_a_kernel(void **state) {
    (void)state;
    struct training job = job_of(8);
    job.layout.partition = (struct partition_triple){1, 1, 8};
    double apart = forecast_of(&job).step_s;
    system_set(&job.system, SUMS_BY_PRODUCT_OF_STAGES, true);
    assert_true(forecast_of(&job).step_s == apart);
    system_set(&job.system, SUMS_BY_PRODUCT, true);
    assert_true(forecast_of(&job).step_s < apart);
}

static void calls_for_pieces_are_as_many_as_ranks_and_collectives(void **state) {
    (void)state;
    struct training job = job_of(64);
    struct calibration calibration = calibration_default();
    struct job_costs costs;
    calibration.kernel_s = 1e-3;
    job_costs_find(&job, &calibration, &costs);
    job.system.gathers = 5;
    double gather = partition_gather(&costs, 2e8).seconds;
    double scatter = partition_scatter(&costs, 2e8).seconds;
    job.system.gather_calls = 3, job.system.scatter_calls = 2;
    assert_true(fabs(partition_gather(&costs, 2e8).seconds - gather - 3 * 64 * 5e-3) < 1e-9);
    assert_true(fabs(partition_scatter(&costs, 2e8).seconds - scatter - 2 * 64 * 5e-3) < 1e-9);
    job.layout.partition = (struct partition_triple){1, 1, 64};
    assert_true(partition_gather(&costs, 2e8).seconds == 0);
}

/* In a node: the backward's gathers stay there, and an eighth of the parameters is there twice. */
static void a_second_copy_keeps_the_backward_in_the_node(void **state) {
    (void)state;
    struct training job = job_of(64);
    struct forecast one = forecast_of(&job);
    job.layout.second_parameters = 8;
    struct forecast two = forecast_of(&job);
    assert_true(two.step_s < one.step_s);
    assert_true(llabs(two.peak_bytes - one.peak_bytes - 2 * transformer_parameters(&job.model) / 8) < 4096);
    job.layout.second_parameters = 5;
    assert_int_equal(training_check(&job), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "second copy"));
}

/* A layer of the 7B has 202 million. */
static void layers_that_are_not_kept_are_gathered_again(void **state) {
    (void)state;
    struct training job = job_of(64);
    system_set(&job.system, OVERLAPS_PARAMETERS, false);
    double kept = forecast_of(&job).step_s;
    job.system.kept_parameters = 300000000;
    assert_true(forecast_of(&job).step_s == kept);
    job.system.kept_parameters = 200000000;
    assert_true(forecast_of(&job).step_s > kept);
}

/* What a launch that blocks takes does not depend on the tokens: small micro-batches lose more by it. */
static void launches_that_block_cost_small_micro_batches_more(void **state) {
    (void)state;
    struct training job = job_of(8);
    job.layout.tensor = 8;
    job.layout.data = 1;
    job.layout.partition = (struct partition_triple){1, 1, 1};
    double lost[2];
    for (int i = 0; i < 2; i++) {
        job.layout.micro_batch = i == 0 ? 1 : 8;
        job.layout.micro_batches = i == 0 ? 8 : 1;
        system_set(&job.system, BLOCKS_LAUNCHES, false);
        double free_s = forecast_of(&job).step_s;
        system_set(&job.system, BLOCKS_LAUNCHES, true);
        lost[i] = forecast_of(&job).step_s - free_s;
    }
    assert_true(lost[0] > 7.99 * lost[1] && lost[1] > 0);
}

/* Mixtral 8x7B: two of eight experts a token. */
static struct training mixture_of(int64_t expert) {
    struct training job = job_of(64);
    job.model.kv_heads = 8, job.model.ffn = 14336;
    job.model.experts = 8, job.model.experts_a_token = 2;
    job.system = *training_system_find("Megatron-Core");
    job.layout.partition = (struct partition_triple){1, 1, 64};
    job.layout.expert = expert;
    return job;
}

static void experts_that_are_spread_take_less_memory_and_an_all_to_all(void **state) {
    (void)state;
    struct training whole = mixture_of(1), spread = mixture_of(8);
    struct calibration calibration = calibration_default();
    struct job_costs costs;
    assert_int_equal(transformer_parameters(&whole.model), 46702792704);
    job_costs_find(&spread, &calibration, &costs);
    int64_t experts = 32 * transformer_expert_parameters(&spread.model), all = transformer_parameters(&spread.model);
    assert_true(fabs((double)stage_parameters(&costs, 0) / (double)(all - experts + experts / 8) - 1) < 1e-4);
    /* Gradients are whole in either case; moments and masters are the same in all, over all ranks. */
    assert_true(fabs(stage_cut(&costs, 0, 64) * 64 / (double)all - 1) < 1e-4);
    assert_true(forecast_of(&spread).peak_bytes < forecast_of(&whole).peak_bytes / 3);
    /* Each way 2 x 4096 tokens' visits go to the experts' ranks, seven eighths of them to others, and come back. */
    double fast_s = costs.layers.layer.forward_s, bytes = 2.0 * 4096 * 2 * 4096 * 7 / 8;
    double link_s = bytes / costs.fabric.link_bytes_per_s;
    spread.cluster.network.link_bytes_per_s /= 10;
    job_costs_find(&spread, &calibration, &costs);
    assert_true(fabs((costs.layers.layer.forward_s - fast_s) / (2 * 9 * link_s) - 1) < 1e-6);
}

/* What a system overlaps of tensor parallelism's collectives costs it less (arXiv 2205.05198, section 4.2.2). */
static void overlapping_the_backward_of_tensor_parallelism_is_faster(void **state) {
    (void)state;
    for (int sequence = 0; sequence < 2; sequence++) {
        struct training job = job_of(8);
        job.layout.tensor = 8, job.layout.data = 1, job.layout.sequence = sequence;
        job.layout.partition = (struct partition_triple){1, 1, 1};
        system_set(&job.system, OVERLAPS_TENSOR_BACKWARD, false);
        double shown = forecast_of(&job).step_s;
        system_set(&job.system, OVERLAPS_TENSOR_BACKWARD, true);
        assert_true(forecast_of(&job).step_s < shown);
    }
}

static void what_contradicts_itself_is_refused_by_name(void **state) {
    (void)state;
    struct calibration calibration = calibration_default();
    struct forecast forecast;
    struct training job = job_of(8);
    const struct {
        const char *field;
        int64_t *value, wrong;
    } wrong[] = {{"tensor", &job.layout.tensor, 3},           {"pipeline", &job.layout.pipeline, 33},
                 {"micro-batch", &job.layout.micro_batch, 0}, {"partition", &job.layout.partition.optimizer, 3},
                 {"expert", &job.layout.expert, 2},           {"network", &job.cluster.network.devices, 0}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int64_t right = *wrong[i].value;
        *wrong[i].value = wrong[i].wrong;
        assert_int_equal(forecast_step(&job, &calibration, &forecast), STATUS_BAD_INPUT);
        if (!strstr(status_message(), wrong[i].field)) fail_msg("%s: %s", wrong[i].field, status_message());
        *wrong[i].value = right;
    }
}

/* Steps made with one number changed: the fit comes nearer to them. */
static void a_fit_finds_what_the_steps_were_made_with(void **state) {
    (void)state;
    struct calibration truth = calibration_default(), found = truth;
    struct training jobs[4];
    struct known_step steps[4];
    truth.product_ampere = 0.7;
    for (int i = 0; i < 4; i++) {
        struct forecast forecast;
        jobs[i] = job_of(8 << i);
        jobs[i].model.layers = 4 + 2 * i;
        assert_int_equal(forecast_step(&jobs[i], &truth, &forecast), STATUS_OK);
        steps[i] = (struct known_step){&jobs[i], forecast.step_s, (double)forecast.peak_bytes, 1};
    }
    double error;
    assert_int_equal(calibration_fit(steps, 4, 12, &found, &error), STATUS_OK);
    assert_true(error < 0.02);
    for (int i = 0; i < 4; i++) {
        struct forecast forecast;
        assert_int_equal(forecast_step(&jobs[i], &found, &forecast), STATUS_OK);
        assert_true(fabs(forecast.step_s / steps[i].step_s - 1) < 0.02);
    }
}

static enum status forecast_faulty(void *job) {
    struct calibration calibration = calibration_default();
    struct forecast forecast;
    return forecast_step(job, &calibration, &forecast);
}

static void every_allocation_fails_in_turn(void **state) {
    (void)state;
    struct training job = job_of(8);
    job.model.layers = 2;
    assert_true(fault_sweep(FAULT_ALLOCATE, false, forecast_faulty, &job) >= 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_those_of_the_published_model),
        cmocka_unit_test(wider_heads_take_more),
        cmocka_unit_test(step_time_is_between_its_flops_and_its_exposed_work),
        cmocka_unit_test(more_of_anything_takes_longer),
        cmocka_unit_test(a_smaller_partition_is_faster_on_many_nodes_and_takes_more),
        cmocka_unit_test(interleaving_shortens_a_pipeline),
        cmocka_unit_test(states_of_a_rank_are_what_the_triple_leaves),
        cmocka_unit_test(a_thousand_devices_are_one_rank_a_stage),
        cmocka_unit_test(rounds_that_are_counted_take_as_long_as_simulated_ones),
        cmocka_unit_test(tables_take_a_layer_s_place_where_that_makes_stages_even),
        cmocka_unit_test(stages_are_filled_one_after_the_other),
        cmocka_unit_test(sums_made_by_products_save_a_kernel),
        cmocka_unit_test(calls_for_pieces_are_as_many_as_ranks_and_collectives),
        cmocka_unit_test(a_second_copy_keeps_the_backward_in_the_node),
        cmocka_unit_test(layers_that_are_not_kept_are_gathered_again),
        cmocka_unit_test(launches_that_block_cost_small_micro_batches_more),
        cmocka_unit_test(experts_that_are_spread_take_less_memory_and_an_all_to_all),
        cmocka_unit_test(overlapping_the_backward_of_tensor_parallelism_is_faster),
        cmocka_unit_test(what_contradicts_itself_is_refused_by_name),
        cmocka_unit_test(a_fit_finds_what_the_steps_were_made_with),
        cmocka_unit_test(every_allocation_fails_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
