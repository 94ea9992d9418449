/* Choice of layouts: the Pareto front has no dominated layout, everything on it fits, and bounds exclude nothing
 * that belongs to it. */
#include "machine/cluster.h"
#include "search/scale/choose.h"
#include "search/scale/training.h"
#include "support/fault_sweep.h"
#include "support/scale_rows.h"
#include "support/unit.h"

/* A Llama of 13 billion on A100s. */
static struct choice_request request_of(int64_t devices) {
    struct choice_request request = {
        .model =
            {.hidden = 5120, .layers = 40, .heads = 40, .kv_heads = 40, .ffn = 13824, .vocab = 32000, .gated = true},
        .devices = devices,
        .batch = 256,
        .sequence_length = 2048};
    assert_int_equal(cluster_open("a100-80x8", &request.cluster), STATUS_OK);
    return request;
}

static struct choices choose(const struct choice_request *request) {
    struct calibration calibration = calibration_default();
    struct choices choices;
    if (choose_layouts(request, &calibration, &choices) != STATUS_OK) fail_msg("%s", status_message());
    return choices;
}

static void the_pareto_front_is_ever_faster_and_larger_and_fits(void **state) {
    (void)state;
    struct choice_request request = request_of(64);
    struct choices choices = choose(&request);
    assert_true(choices.list.count >= 3 && choices.simulated < choices.layouts);
    for (size_t i = 0; i < choices.list.count; i++) {
        const struct choice *one = &choices.list.items[i];
        assert_int_equal(layout_devices(&one->layout), 64);
        assert_int_equal(one->layout.data * one->layout.micro_batch * one->layout.micro_batches, 256);
        assert_true(one->forecast.peak_bytes <= request.cluster.device.tiers[0].capacity_bytes);
        if (i == 0) continue;
        assert_true(one->forecast.step_s < one[-1].forecast.step_s);
        assert_true(one->forecast.peak_bytes > one[-1].forecast.peak_bytes);
    }
    choices_free(&choices);
}

/* Layouts made by hand are never faster than the Pareto front at as many bytes. */
static void no_layout_by_hand_beats_the_pareto_front(void **state) {
    (void)state;
    struct choice_request request = request_of(64);
    struct choices choices = choose(&request);
    struct calibration calibration = calibration_default();
    for (int64_t tensor = 1; tensor <= 8; tensor *= 2)
        for (int64_t pipeline = 1; pipeline <= 8; pipeline *= 2)
            for (int64_t micro = 1; micro <= 4; micro *= 2) {
                int64_t data = 64 / tensor / pipeline;
                struct training job = {
                    .model = request.model, .cluster = request.cluster, .system = training_system_ballast};
                struct forecast forecast;
                job.layout = (struct layout){.tensor = tensor,
                                             .pipeline = pipeline,
                                             .context = 1,
                                             .data = data,
                                             .virtual_stages = 1,
                                             .sequence = tensor > 1,
                                             .partition = {1, 1, data},
                                             .recomputation = RECOMPUTE_FULL,
                                             .micro_batch = micro,
                                             .micro_batches = 256 / data / micro,
                                             .sequence_length = 2048};
                assert_int_equal(forecast_step(&job, &calibration, &forecast), STATUS_OK);
                bool beaten = forecast.peak_bytes > request.cluster.device.tiers[0].capacity_bytes;
                for (size_t i = 0; i < choices.list.count; i++)
                    beaten |= choices.list.items[i].forecast.step_s <= forecast.step_s &&
                              choices.list.items[i].forecast.peak_bytes <= forecast.peak_bytes;
                if (!beaten) fail_msg("tensor %d pipeline %d micro-batch %d", (int)tensor, (int)pipeline, (int)micro);
            }
    choices_free(&choices);
}

static void what_fits_nowhere_reports_its_memory(void **state) {
    (void)state;
    struct choice_request request = request_of(8);
    struct calibration calibration = calibration_default();
    struct choices choices;
    request.cluster.device.tiers[0].capacity_bytes = 1000000000;
    assert_int_equal(choose_layouts(&request, &calibration, &choices), STATUS_NO_FIT);
    assert_non_null(strstr(status_message(), "8 devices"));
    request = request_of(97);
    request.batch = 5;
    assert_int_equal(choose_layouts(&request, &calibration, &choices), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "batch"));
}

static void more_devices_are_faster_while_the_batch_lasts(void **state) {
    (void)state;
    struct choice_request request = request_of(8);
    struct calibration calibration = calibration_default();
    struct choice curve[CHOICE_CURVE_MAX];
    int count;
    assert_int_equal(choose_curve(&request, &calibration, 8, 256, curve, &count), STATUS_OK);
    assert_true(count >= 5);
    for (int i = 1; i < count; i++) {
        assert_true(curve[i].devices > curve[i - 1].devices);
        if (curve[i].devices == 2 * curve[i - 1].devices)
            assert_true(curve[i].forecast.step_s < curve[i - 1].forecast.step_s);
    }
}

static enum status choose_faulty(void *request) {
    struct calibration calibration = calibration_default();
    struct choices choices;
    TRY(choose_layouts(request, &calibration, &choices));
    choices_free(&choices);
    return STATUS_OK;
}

static void every_allocation_fails_in_turn(void **state) {
    (void)state;
    struct choice_request request = request_of(8);
    request.batch = 8;
    request.model.layers = 2;
    assert_true(fault_sweep(FAULT_ALLOCATE, false, choose_faulty, &request) > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pareto_front_is_ever_faster_and_larger_and_fits),
        cmocka_unit_test(no_layout_by_hand_beats_the_pareto_front),
        cmocka_unit_test(what_fits_nowhere_reports_its_memory),
        cmocka_unit_test(more_devices_are_faster_while_the_batch_lasts),
        cmocka_unit_test(every_allocation_fails_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
