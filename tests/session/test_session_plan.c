/* The policy of a plan whose step does not fit as it is, and the message if no policy fits. */
#include <math.h>
#include <string.h>

#include "session/candidate.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

struct planned {
    struct session session;
    struct session_plan plan;
};

static void create(const char *folder, int64_t device_bytes, int64_t host_bytes, struct planned *out) {
    struct tiny_run run;
    tiny_run_make(folder, "llama", &run);
    SETTINGS_GIVE(&run.plan.memory, device_bytes, device_bytes);
    SETTINGS_GIVE(&run.plan.memory, host_bytes, host_bytes);
    expect_status(session_begin(run.model, PROGRAMS_TO_TRAIN, &run.plan, &run.options, &out->session, &out->plan),
                  STATUS_OK, NULL);
}

static void drop(struct planned *planned) {
    session_plan_free(&planned->plan);
    session_close(&planned->session);
}

enum { PLENTY = 64 << 20 };

static void nothing_moves_without_need(void **state) {
    struct planned planned;
    create(*state, PLENTY, PLENTY, &planned);
    assert_int_equal(planned.plan.chosen.policy.optimizer, TIER_DEVICE);
    assert_string_equal(planned.plan.chosen.policy.schedule, "");
    drop(&planned);
}

/* The device's bytes of a plan that stays there, in a device tier of so many. */
static int64_t stay(const char *folder, int64_t device_bytes, bool recomputes) {
    struct planned planned;
    create(folder, device_bytes, PLENTY, &planned);
    int64_t bytes = planned.plan.programs.tier_bytes[TIER_DEVICE];
    assert_int_equal(planned.plan.search.enumerated, 0);
    assert_int_equal(planned.plan.chosen.policy.selective_recompute, recomputes);
    drop(&planned);
    return bytes;
}

/* Light operators are recomputed before anything is moved or blocks are computed again. */
static void what_is_taken_is_the_fastest_found(void **state) {
    struct planned planned;
    struct step_summary prediction;
    int64_t plain = stay(*state, PLENTY, false), again = stay(*state, plain - 1, true);
    assert_true(again < plain);
    create(*state, again - 1, PLENTY, &planned);
    assert_true(planned.plan.programs.tier_bytes[TIER_DEVICE] < again);
    assert_true(planned.plan.search.pareto_front.count > 0);
    const struct trial *winner = &planned.plan.search.pareto_front.items[0];
    assert_memory_equal(&planned.plan.chosen.policy, &winner->policy, sizeof winner->policy);
    assert_int_equal(programs_main(&planned.plan.programs)->program->tier_bytes[TIER_DEVICE],
                     winner->tier_bytes[TIER_DEVICE]);
    expect_status(session_plan_predict(&planned.plan, &prediction), STATUS_OK, NULL);
    assert_true(prediction.step_s >= winner->step_s && prediction.step_s <= winner->step_s);
    drop(&planned);
}

static void the_reported_minimum_of_memory_is_enough(void **state) {
    struct planned planned;
    create(*state, 4096, PLENTY, &planned);
    int64_t min = planned.plan.min_bytes;
    assert_true(min < planned.plan.programs.tier_bytes[TIER_DEVICE]);
    drop(&planned);
    create(*state, min, PLENTY, &planned);
    assert_true(planned.plan.programs.tier_bytes[TIER_DEVICE] <= min); /* the fastest may take less than it has */
    expect_status(session_plan_check_memory(&planned.plan), STATUS_OK, NULL);
    drop(&planned);
    create(*state, min - 1, PLENTY, &planned);
    expect_status(session_plan_check_memory(&planned.plan), STATUS_NO_FIT, "no plan fits");
    drop(&planned);
}

/* The memory of a virtual machine may grow on demand: the hint says how much there is now. */
static void a_host_tier_that_is_too_small_names_the_memory(void **state) {
    struct planned planned;
    create(*state, 4096, PLENTY, &planned);
    planned.plan.programs.tier_bytes[TIER_HOST] = (int64_t)1 << 60;
    expect_status(session_plan_check_memory(&planned.plan), STATUS_NO_FIT, "the host tier needs");
    assert_non_null(strstr(status_hint_text(), "--host-memory SIZE (MemTotal is "));
    drop(&planned);
}

/* ---- tiles ---- */

/* A model whose MLPs are wide, with a micro-batch of 4096 tokens. */
static void plan_long_micro_batch(int64_t device_bytes, const char *cluster, struct planned *out) {
    struct plan_options options;
    struct model_config config;
    struct model *model;
    plan_options_init(&options);
    SETTINGS_GIVE(&options, dtype, DTYPE_F32);
    SETTINGS_GIVE(&options, batch, 1);
    SETTINGS_GIVE(&options, sequence_length, 4096);
    SETTINGS_GIVE(&options, threads, 2);
    SETTINGS_GIVE(&options.memory, device_bytes, device_bytes);
    if (cluster) SETTINGS_GIVE(&options, cluster_path, cluster);
    assert_int_equal(model_config_init("llama", &config), STATUS_OK);
    config.layers = 2;
    config.hidden = 8;
    config.heads = config.kv_heads = 1;
    config.head_dim = 8;
    config.ffn = 256;
    config.vocab_size = TINY_VOCAB;
    config.context = 4096;
    assert_int_equal(model_create(&config, &model), STATUS_OK);
    struct plan_request request;
    assert_int_equal(session_open_model(model, &options, NULL, &out->session), STATUS_OK);
    assert_int_equal(plan_request_make(&out->session, 1u << PROGRAM_STEP, &options, NULL, NULL, &request), STATUS_OK);
    expect_status(session_plan_make(&out->session, &request, &out->plan), STATUS_OK, NULL);
}

/* With memory enough there are none. What a step takes at least is less than without, and where there is no more, a
 * plan has tiles and fits. */
static void tiles_are_chosen_where_memory_is_short(void **state) {
    (void)state;
    struct planned planned;
    const int64_t mlp = 4096 * 256 * (int64_t)sizeof(float);
    plan_long_micro_batch(PLENTY * 4, NULL, &planned);
    assert_int_equal(planned.plan.chosen.policy.tile_tokens, 0);
    assert_int_equal(planned.plan.search.enumerated, 0);
    drop(&planned);
    plan_long_micro_batch(4096, NULL, &planned);
    int64_t min = planned.plan.min_bytes;
    drop(&planned);
    assert_true(min < 2 * mlp); /* backward of an MLP has more than that of all tokens at a time */
    plan_long_micro_batch(min, NULL, &planned);
    assert_true(planned.plan.chosen.policy.tile_tokens >= 1024 && planned.plan.chosen.policy.tile_tokens < 4096);
    expect_status(session_plan_check_memory(&planned.plan), STATUS_OK, NULL);
    drop(&planned);
}

/* A run that goes on has the policy that it had; where that does not fit any more, all is open again, tiles too. */
static void a_policy_of_more_memory_is_given_up(void **state) {
    (void)state;
    struct planned planned;
    struct plan_options nothing;
    struct session_plan again;
    plan_options_init(&nothing);
    plan_long_micro_batch(4096, NULL, &planned);
    int64_t min = planned.plan.min_bytes;
    drop(&planned);
    plan_long_micro_batch(PLENTY * 4, NULL, &planned);
    struct plan_request request = plan_request_decided(&planned.plan.chosen, &nothing, NULL);
    request.set = planned.plan.request.set;
    request.plan.policy.lookahead = 1;
    expect_status(session_plan_make(&planned.session, &request, &again), STATUS_OK, NULL);
    assert_int_equal(again.chosen.policy.lookahead, 1);
    session_plan_free(&again);
    planned.session.machine.capacity_bytes[TIER_DEVICE] = min;
    expect_status(session_plan_make(&planned.session, &request, &again), STATUS_OK, NULL);
    expect_status(session_plan_check_memory(&again), STATUS_OK, NULL);
    assert_true(again.chosen.policy.tile_tokens >= 1024);
    session_plan_free(&again);
    drop(&planned);
}

/* It would refuse them. */
static void a_gpu_that_is_described_gets_no_tiles(void **state) {
    (void)state;
    struct planned planned;
    plan_long_micro_batch(4096, "rtx4090x8", &planned);
    assert_int_equal(planned.plan.chosen.policy.tile_tokens, 0);
    drop(&planned);
}

/* Where NCCL runs the collectives, an option would be without effect; what a plan file says is not an option. */
static void flat_operations_of_devices_are_refused(void **state) {
    (void)state;
    struct plan_request request = {.collectives_fixed = true};
    struct plan_candidate candidate = {.request = &request, .requested.flat = true};
    struct rank_place *place = &candidate.plan.place;
    *place = (struct rank_place){.mesh = {1, 2}, .on_device = true};
    expect_status(candidate_check_collectives(&candidate), STATUS_BAD_INPUT, "--collectives flat");
    assert_non_null(strstr(status_hint_text(), "--gpu-collectives host"));
    request.collectives_fixed = false;
    assert_int_equal(candidate_check_collectives(&candidate), STATUS_OK);
    request.collectives_fixed = true;
    candidate.requested.flat = false;
    assert_int_equal(candidate_check_collectives(&candidate), STATUS_OK);
    candidate.requested.flat = true;
    place->on_device = false;
    assert_int_equal(candidate_check_collectives(&candidate), STATUS_OK);
    *place = (struct rank_place){.mesh = {1, 1}, .on_device = true};
    assert_int_equal(candidate_check_collectives(&candidate), STATUS_OK);
}

/* ---- pipelines ---- */

static void plan_stages(const char *folder, int64_t virtual_stages, int64_t device_bytes, struct planned *out) {
    struct tiny_run run;
    tiny_run_make(folder, "llama", &run);
    run.plan.planned = (struct mesh){1, 2};
    SETTINGS_GIVE(&run.plan, pipeline_parallel, 2);
    if (virtual_stages > 0) SETTINGS_GIVE(&run.plan, virtual_stages, virtual_stages);
    SETTINGS_GIVE(&run.plan.memory, device_bytes, device_bytes);
    expect_status(session_begin(run.model, PROGRAMS_TO_TRAIN, &run.plan, &run.options, &out->session, &out->plan),
                  STATUS_OK, NULL);
}

static double predict(struct planned *planned) {
    struct step_summary prediction;
    expect_status(session_plan_predict(&planned->plan, &prediction), STATUS_OK, NULL);
    return prediction.step_s;
}

/* All stages are in the prediction, and of the numbers of spans the fastest is taken. */
static void pipelines_are_cut_by_their_simulated_step(void **state) {
    struct planned planned;
    plan_stages(*state, 0, PLENTY, &planned);
    double chosen_s = predict(&planned), compute_s = 0;
    const struct stage_steps *stages = &planned.plan.stages;
    assert_true(planned.plan.chosen.policy.spans[0]);
    assert_int_equal(stages->count, 2);
    for (int stage = 0; stage < 2; stage++) {
        const struct program *program = stages->list[stage].program;
        assert_int_equal(rank_place_stage(&program->place), stage);
        assert_int_equal(stages->list[stage].tier_bytes[TIER_DEVICE], program->tier_bytes[TIER_DEVICE]);
        assert_true(stages->list[stage].compute_s > 0 && stages->list[stage].compute_s < chosen_s);
        compute_s += stages->list[stage].compute_s;
    }
    assert_true(fabs(stages->bubble - (1 - compute_s / (2 * chosen_s))) < 1e-9);
    for (int64_t virtual_stages = 1; virtual_stages <= 2; virtual_stages++) {
        struct planned requested;
        plan_stages(*state, virtual_stages, PLENTY, &requested);
        int spans = 1;
        for (const char *at = requested.plan.chosen.policy.spans; *at; at++)
            spans += *at == ' ';
        assert_int_equal(spans + 1, 2 * virtual_stages);
        drop(&requested);
    }
    drop(&planned);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_moves_without_need),
        cmocka_unit_test(what_is_taken_is_the_fastest_found),
        cmocka_unit_test(the_reported_minimum_of_memory_is_enough),
        cmocka_unit_test(a_host_tier_that_is_too_small_names_the_memory),
        cmocka_unit_test(tiles_are_chosen_where_memory_is_short),
        cmocka_unit_test(a_policy_of_more_memory_is_given_up),
        cmocka_unit_test(a_gpu_that_is_described_gets_no_tiles),
        cmocka_unit_test(flat_operations_of_devices_are_refused),
        cmocka_unit_test(pipelines_are_cut_by_their_simulated_step),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
