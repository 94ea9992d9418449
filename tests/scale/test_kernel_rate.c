/* Kernel times by shape: the effects of tiles, tile waves, bytes and alignment. */
#include <math.h>

#include "machine/cluster.h"
#include "machine/kernel_cost.h"
#include "support/published_systems.h"
#include "support/scale_fit.h"
#include "support/unit.h"

static struct calibration calibration;

static struct gpu gpu_of(const char *name) {
    struct training job = {0};
    assert_int_equal(cluster_open(name, &job.cluster), STATUS_OK);
    calibration = calibration_default();
    calibration.kernel_s = 0;
    return published_gpu(&job, &calibration);
}

static void require_near(double actual, double expected, double part) {
    if (!(fabs(actual / expected - 1) <= part)) fail_msg("%.6g, not %.6g", actual, expected);
}

/* 108 multiprocessors and tiles of 256 x 128: 12 x 9 tiles take as long as one, and a column more twice that, if waves
 * count whole. */
static void tiles_are_counted_in_tile_waves(void **state) {
    (void)state;
    struct gpu gpu = gpu_of("a100-80x8");
    calibration.tile_wave_part = 1;
    double one = product_s(&gpu, 1, 3072, 1152, 8192), more = product_s(&gpu, 1, 3072, 1160, 8192);
    double multiplied = 2.0 * 256 * 128 * 8192 / (gpu.product_per_s / 108), written = 2.0 * 256 * 128 / (2039e9 / 108);
    require_near(one, multiplied + written, 0.001);
    assert_true(more > 1.2 * one);
    calibration.tile_wave_part = 0;
    require_near(product_s(&gpu, 1, 25600, 11648, 8192) / product_s(&gpu, 1, 25600, 11520, 8192), 91.0 / 90, 0.001);
}

static void a_large_product_is_at_the_gpu_s_rate_and_a_thin_one_at_the_memory_s(void **state) {
    (void)state;
    struct gpu gpu = gpu_of("h100x8");
    double n = 16384, flops = 2 * n * n * n;
    double large = product_s(&gpu, 1, 16384, 16384, 16384);
    assert_true(large > flops / gpu.product_per_s && large < 1.1 * flops / gpu.product_per_s);
    require_near(product_s(&gpu, 1, 16, 16384, 16384), 2 * (n * n + 2 * 16 * n) / gpu.bytes_per_s, 0.01);
}

/* Of a sum next to many terms only writing counts, twice as long in fp32 as in 16 bits; next to few all its bytes. */
static void a_sum_is_read_beside_a_long_product_and_written_after_it(void **state) {
    (void)state;
    struct gpu gpu = gpu_of("a100-80x8");
    double n = 8192;
    calibration.tile_wave_part = 0;
    double sum = product_sum_s(&gpu, 1, 8192, 8192, 8192, 4), plain = product_s(&gpu, 1, 8192, 8192, 8192);
    require_near(sum - plain, 2 * n * n / 2039e9, 0.001);
    require_near(product_sum_s(&gpu, 1, 8192, 8192, 8, 4), (2 * 2 * 8 * n + 2 * 4 * n * n) / gpu.bytes_per_s, 0.01);
}

/* Operands, and the result, of 4 bytes; rows of 4 elements are aligned. */
static void products_in_fp32_move_twice_the_bytes(void **state) {
    (void)state;
    struct gpu gpu = gpu_of("h100x8");
    struct cluster cluster;
    assert_int_equal(cluster_open("h100x8", &cluster), STATUS_OK);
    gpu_use_fp32(&gpu, &cluster.device.limits);
    require_near(product_s(&gpu, 100000, 64, 64, 8), 1e5 * 4 * (2 * 64 * 8 + 64 * 64) / gpu.bytes_per_s, 0.01);
    require_near(product_s(&gpu, 1, 4096, 4092, 4096), product_s(&gpu, 1, 4096, 4096, 4096), 0.01);
}

static void rows_that_are_not_aligned_cost_four_times(void **state) {
    (void)state;
    struct gpu gpu = gpu_of("a100-80x8");
    require_near(product_s(&gpu, 1, 8192, 8184 + 4, 8192) / product_s(&gpu, 1, 8192, 8192, 8192), 4, 0.01);
}

/* Of heads of 128; `traits` say which attention it is. */
static double attention_of(const struct gpu *gpu, int64_t sequence, unsigned traits, bool gradient) {
    struct attention_shape shape = {2, 16, sequence, sequence, 128};
    return published_attention_s(gpu, traits, &shape, gradient);
}

static void attention_grows_with_the_square_and_its_kinds_differ(void **state) {
    (void)state;
    struct gpu gpu = gpu_of("a100-80x8");
    double small = attention_of(&gpu, 8192, 0, false), older = attention_of(&gpu, 8192, FLASH1_ATTENTION, false);
    require_near(attention_of(&gpu, 16384, 0, false) / small, 4, 0.02);
    assert_true(older > small);
    assert_true(attention_of(&gpu, 8192, WRITES_SCORES, false) > older);
    assert_true(attention_of(&gpu, 8192, 0, true) > 2 * small);
}

static void cudnn_is_faster_than_flash_attention_from_hopper_on(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double times;
    } gpus[] = {{"a100-80x8", 1}, {"h100x8", 1.6}, {"b200x8", 1.6}};
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        struct gpu gpu = gpu_of(gpus[i].name);
        for (int gradient = 0; gradient < 2; gradient++) {
            double flash = attention_of(&gpu, 8192, 0, gradient);
            require_near(flash / attention_of(&gpu, 8192, CUDNN_ATTENTION, gradient), gpus[i].times, 0.001);
        }
    }
}

static void newer_gpus_are_faster(void **state) {
    (void)state;
    static const char *const names[] = {"v100x8", "a100-80x8", "h100x8", "b200x8"};
    double before = INFINITY;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct gpu gpu = gpu_of(names[i]);
        double seconds = product_s(&gpu, 1, 8192, 8192, 8192) + 1e9 / gpu.bytes_per_s;
        assert_true(seconds < before);
        before = seconds;
    }
}

static void every_calibrated_number_lies_within_its_range(void **state) {
    (void)state;
    struct calibration all = calibration_default(), start = calibration_start();
    for (int i = 0; i < CALIBRATION_COUNT; i++) {
        const struct calibration_range *range = &calibration_ranges[i];
        assert_non_null(range->name);
        assert_true(calibration_get(&all, i) >= range->min && calibration_get(&all, i) <= range->max);
        assert_true(calibration_get(&start, i) >= range->min && calibration_get(&start, i) <= range->max);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_are_counted_in_tile_waves),
        cmocka_unit_test(a_large_product_is_at_the_gpu_s_rate_and_a_thin_one_at_the_memory_s),
        cmocka_unit_test(a_sum_is_read_beside_a_long_product_and_written_after_it),
        cmocka_unit_test(products_in_fp32_move_twice_the_bytes),
        cmocka_unit_test(rows_that_are_not_aligned_cost_four_times),
        cmocka_unit_test(attention_grows_with_the_square_and_its_kinds_differ),
        cmocka_unit_test(cudnn_is_faster_than_flash_attention_from_hopper_on),
        cmocka_unit_test(newer_gpus_are_faster),
        cmocka_unit_test(every_calibrated_number_lies_within_its_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
