/* Every kernel is called once before arenas are allocated. The memory that the device then has left is the limit. */
#include "session/engine.h"

#include <string.h>

#include "support/deferred_backend.h"
#include "support/policy_subject.h"
#include "support/unit.h"

static const struct policy_subject llama = {.name = "llama", .family = "llama", .dtype = DTYPE_BF16};

/* An engine is open, so the programs are compiled; warm_up needs no more of it than its plan. */
static void open_llama(struct harness *harness) {
    struct model_config config;
    struct policy_way way = {.backend = deferred_begin(2)};
    struct harness_options options = policy_options(&llama, &way, &config);
    harness_open(&options, harness);
}

static void close_llama(struct harness *harness) {
    harness_close(harness);
    deferred_end();
}

static int64_t count_kernels(const struct executable *executable) {
    int64_t count = 0;
    for (size_t i = 0; i < executable->graph->nodes.count; i++)
        count += executable->kernels[i] != NULL;
    return count;
}

static void every_kernel_is_called(void **state) {
    struct harness harness;
    (void)state;
    open_llama(&harness);
    int64_t before = deferred_items(), kernels = count_kernels(harness.executable);
    assert_true(kernels > 50);
    assert_int_equal(warm_up(&harness.plan), STATUS_OK);
    assert_int_equal(deferred_items() - before, 2 * kernels); /* zeros, then the kernel */
    close_llama(&harness);
}

static void the_device_has_space_for_the_plan(void **state) {
    struct harness harness;
    (void)state;
    open_llama(&harness);
    int64_t needed = harness.plan.programs.tier_bytes[TIER_DEVICE];
    deferred_leave_bytes(needed);
    assert_int_equal(warm_up(&harness.plan), STATUS_OK);
    deferred_leave_bytes(needed - 1);
    assert_int_equal(warm_up(&harness.plan), STATUS_NO_FIT);
    assert_non_null(strstr(status_message(), "next to the code of all kernels"));
    assert_non_null(strstr(status_hint_text(), "--device-memory "));
    close_llama(&harness);
}

static void refused_kernels_are_reported(void **state) {
    struct harness harness;
    (void)state;
    open_llama(&harness);
    int64_t kernels = count_kernels(harness.executable);
    for (int64_t at = 0; at < kernels; at += 1 + kernels / 9) {
        deferred_refuse_after(at);
        assert_int_equal(warm_up(&harness.plan), STATUS_FAILED);
        assert_non_null(strstr(status_message(), "a kernel is refused, as planted"));
        deferred_refuse_after(-1);
    }
    assert_int_equal(warm_up(&harness.plan), STATUS_OK);
    close_llama(&harness);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_kernel_is_called),
                                       cmocka_unit_test(the_device_has_space_for_the_plan),
                                       cmocka_unit_test(refused_kernels_are_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
