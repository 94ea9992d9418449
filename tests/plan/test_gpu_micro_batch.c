/* The tokens of a micro-batch on a GPU depend only on the model and the GPU. */
#include "plan/recipe.h"
#include "support/unit.h"

static const int64_t GIB = (int64_t)1 << 30;

static void the_micro_batch_follows_the_model(void **state) {
    (void)state;
    assert_int_equal(gpu_micro_batch_tokens(132, 80 * GIB, 12, 768),
                     16384); /* GPT-2 124M: 384 tiles in 3 tile waves of 132 */
    assert_int_equal(gpu_micro_batch_tokens(132, 80 * GIB, 16, 2048), 8192); /* Llama 3.2 1B: 512 in 4 */
    assert_int_equal(gpu_micro_batch_tokens(132, 80 * GIB, 32, 4096),
                     4096); /* Llama 3 8B: more would not leave space */
}

static void the_micro_batch_follows_the_gpu(void **state) {
    (void)state;
    assert_int_equal(gpu_micro_batch_tokens(114, 80 * GIB, 16, 2048), 16384); /* H100 PCIe: 1024 in 9 tile waves */
    assert_int_equal(gpu_micro_batch_tokens(132, 24 * GIB, 16, 2048), 4096);
    assert_int_equal(gpu_micro_batch_tokens(132, 8 * GIB, 12, 768), 4096);
    assert_int_equal(gpu_micro_batch_tokens(132, 1 * GIB, 12, 768), GPU_MICRO_BATCH_MIN);
}

/* More memory never makes a micro-batch smaller, and all are powers of two between the least and the most. */
static void micro_batches_grow_with_memory(void **state) {
    (void)state;
    for (int64_t width = 64; width <= 16384; width *= 2)
        for (int64_t layers = 1; layers <= 128; layers *= 2)
            for (int64_t gib = 1, before = 0; gib <= 1024; gib *= 2) {
                int64_t tokens = gpu_micro_batch_tokens(132, gib * GIB, layers, width);
                assert_true(tokens >= GPU_MICRO_BATCH_MIN && tokens <= GPU_MICRO_BATCH_MAX &&
                            (tokens & (tokens - 1)) == 0);
                assert_true(tokens >= before);
                before = tokens;
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_micro_batch_follows_the_model),
        cmocka_unit_test(the_micro_batch_follows_the_gpu),
        cmocka_unit_test(micro_batches_grow_with_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
