/* Replay of instructions, against cases worked out by hand. */
#include <math.h>

#include "base/random.h"
#include "plan/layout/pipeline.h"
#include "search/scale/replay.h"
#include "support/fault_sweep.h"
#include "support/unit.h"

static void require_s(double actual, double expected) {
    if (!(fabs(actual - expected) <= 1e-9 * (1 + fabs(expected)))) fail_msg("%.12g s, not %.12g", actual, expected);
}

static int32_t add(struct replay *replay, int32_t stage, enum replay_queue queue, double seconds, int32_t after,
                   double late) {
    int32_t index;
    struct replay_instruction one = {
        .stage = stage, .queue = queue, .seconds = seconds, .waits = {replay_wait(after, late), replay_no_wait()}};
    assert_int_equal(replay_add(replay, one, &index), STATUS_OK);
    if (stage >= replay->stages) replay->stages = stage + 1;
    return index;
}

static void run(struct replay *replay) { assert_int_equal(replay_run(replay), STATUS_OK); }

static void queues_keep_their_order_and_run_beside_each_other(void **state) {
    (void)state;
    struct replay replay = {0};
    add(&replay, 0, REPLAY_KERNELS, 3, REPLAY_NONE, 0);
    int32_t gather = add(&replay, 0, REPLAY_COLLECTIVES, 5, REPLAY_NONE, 0);
    int32_t last = add(&replay, 0, REPLAY_KERNELS, 2, gather, 0);
    run(&replay);
    require_s(replay.instructions.items[last].start_s, 5);
    require_s(replay.end_s, 7);
    require_s(replay.busy_s, 5);
    replay_free(&replay);
}

/* For 4 s a collective halves the pace of a kernel of 5 s: 2 of them are done then, 3 remain. */
static void a_collective_slows_kernels_while_it_lasts(void **state) {
    (void)state;
    struct replay replay = {0};
    int32_t kernel = add(&replay, 0, REPLAY_KERNELS, 5, REPLAY_NONE, 0);
    int32_t collective = add(&replay, 0, REPLAY_COLLECTIVES, 4, REPLAY_NONE, 0);
    replay.instructions.items[collective].slows = 1;
    run(&replay);
    require_s(replay.instructions.items[collective].end_s, 4);
    require_s(replay.instructions.items[kernel].end_s, 7);
    replay_free(&replay);
}

/* Of some months, a double's last digit is more than any slack of a fixed length. */
static void long_times_end(void **state) {
    (void)state;
    struct replay replay = {0};
    double kernels = 0;
    for (int i = 0; i < 100; i++) {
        double seconds = 1e7 / (3 + i);
        int32_t collective = add(&replay, 0, REPLAY_COLLECTIVES, seconds / 7, REPLAY_NONE, 0);
        replay.instructions.items[collective].slows = 0.37;
        add(&replay, 0, REPLAY_KERNELS, seconds, REPLAY_NONE, 0);
        kernels += seconds;
    }
    run(&replay);
    require_s(replay.busy_s, kernels);
    require_s(replay.end_s, kernels + kernels / 7 * (1 - 1 / 1.37));
    replay_free(&replay);
}

static void another_stage_waits_for_an_end_and_the_way(void **state) {
    (void)state;
    struct replay replay = {0};
    int32_t first = add(&replay, 1, REPLAY_KERNELS, 2, REPLAY_NONE, 0);
    int32_t second = add(&replay, 0, REPLAY_KERNELS, 1, first, 0.5);
    run(&replay);
    require_s(replay.instructions.items[second].start_s, 2.5);
    require_s(replay.end_s, 3.5);
    replay_free(&replay);
}

/* All passes of a pipeline, joined as its order says. */
static double pipeline_s(struct pipeline_shape pipeline, double forward_s, double backward_s) {
    struct replay replay = {0};
    int64_t count = pipeline_step_count(&pipeline);
    struct pipeline_step order[1024];
    int32_t index[2][32][8][64];
    assert_true(count <= 1024 && pipeline.stages <= 32 && pipeline.chunks <= 8 && pipeline.waves <= 64);
    for (int32_t stage = 0; stage < pipeline.stages; stage++) {
        pipeline_order(&pipeline, stage, order);
        for (int64_t i = 0; i < count; i++)
            index[order[i].backward][stage][order[i].chunk][order[i].wave] =
                add(&replay, stage, REPLAY_KERNELS, order[i].backward ? backward_s : forward_s, REPLAY_NONE, 0);
    }
    for (int32_t stage = 0; stage < pipeline.stages; stage++)
        for (int32_t chunk = 0; chunk < pipeline.chunks; chunk++)
            for (int32_t micro = 0; micro < pipeline.waves; micro++) {
                int32_t part = chunk * pipeline.stages + stage, last = pipeline.stages * pipeline.chunks - 1;
                int32_t before = (part - 1) % pipeline.stages, after = (part + 1) % pipeline.stages;
                if (part > 0)
                    replay.instructions.items[index[0][stage][chunk][micro]].waits[0] =
                        replay_wait(index[0][before][(part - 1) / pipeline.stages][micro], 0);
                if (part < last)
                    replay.instructions.items[index[1][stage][chunk][micro]].waits[0] =
                        replay_wait(index[1][after][(part + 1) / pipeline.stages][micro], 0);
            }
    run(&replay);
    double end = replay.end_s;
    replay_free(&replay);
    return end;
}

/* arXiv 2104.04473, section 2.2: M micro-batches take M + stages - 1 passes; interleaving divides what is added. */
static void a_pipeline_takes_the_time_of_its_paper(void **state) {
    (void)state;
    require_s(pipeline_s((struct pipeline_shape){1, 1, 7}, 1, 2), 21);
    require_s(pipeline_s((struct pipeline_shape){4, 1, 8}, 1, 2), 33);
    require_s(pipeline_s((struct pipeline_shape){8, 1, 3}, 2, 3), 50);
    require_s(pipeline_s((struct pipeline_shape){4, 2, 8}, 1, 2), 2 * 24 + 3 * 3);
    require_s(pipeline_s((struct pipeline_shape){4, 4, 16}, 1, 1), 4 * 32 + 3 * 2);
}

static void every_pass_comes_once_and_forward_first(void **state) {
    (void)state;
    static const struct pipeline_shape pipelines[] = {{1, 1, 5}, {4, 1, 2}, {4, 3, 8}, {2, 5, 6}, {8, 2, 8}};
    for (size_t p = 0; p < sizeof pipelines / sizeof *pipelines; p++)
        for (int32_t stage = 0; stage < pipelines[p].stages; stage++) {
            struct pipeline_step order[1024];
            int seen[8][64] = {{0}};
            int64_t held = 0, max = 0;
            pipeline_order(&pipelines[p], stage, order);
            for (int64_t i = 0; i < pipeline_step_count(&pipelines[p]); i++) {
                int *passes = &seen[order[i].chunk][order[i].wave];
                assert_int_equal(*passes, order[i].backward ? 1 : 0);
                ++*passes;
                held += order[i].backward ? -1 : 1;
                if (held > max) max = held;
            }
            assert_int_equal(held, 0);
            assert_int_equal(max, pipeline_held(&pipelines[p], stage));
        }
}

static void interleaving_needs_whole_groups(void **state) {
    (void)state;
    assert_int_equal(pipeline_chunks(4, 3, 8), 3);
    assert_int_equal(pipeline_chunks(4, 3, 6), 1);
    assert_int_equal(pipeline_chunks(1, 3, 8), 1);
}

static enum status replay_two(void *unused) {
    (void)unused;
    struct replay replay = {.stages = 2};
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < 40 && status == STATUS_OK; i++)
        status = replay_add(
            &replay, (struct replay_instruction){.stage = i % 2, .seconds = 1, .waits = {{i - 1, 0}, {-1, 0}}}, NULL);
    if (status == STATUS_OK) status = replay_run(&replay);
    replay_free(&replay);
    return status;
}

static void every_allocation_fails_in_turn(void **state) {
    (void)state;
    assert_true(fault_sweep(FAULT_ALLOCATE, false, replay_two, NULL) >= 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queues_keep_their_order_and_run_beside_each_other),
        cmocka_unit_test(a_collective_slows_kernels_while_it_lasts),
        cmocka_unit_test(long_times_end),
        cmocka_unit_test(another_stage_waits_for_an_end_and_the_way),
        cmocka_unit_test(a_pipeline_takes_the_time_of_its_paper),
        cmocka_unit_test(every_pass_comes_once_and_forward_first),
        cmocka_unit_test(interleaving_needs_whole_groups),
        cmocka_unit_test(every_allocation_fails_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
