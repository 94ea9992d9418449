/* The measurement runs the backend's own kernel and releases all its resources. Does not check the rate. */
#include <math.h>
#include <string.h>

#include "base/fault.h"
#include "profile/profile.h"
#include "support/fault_sweep.h"
#include "support/unit.h"

/* A backend that counts what is asked of it. */
static struct {
    int created, released, run;
    double flops_a_run;
} seen;

static const char *counting_isa(void) { return "counting"; }
static void counting_threads(int threads) { (void)threads; }
static enum status counting_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct tensor *const operands[3] = {kernel->node->in[0], kernel->node->in[1], kernel->node->out[0]};
    char *const bytes[3] = {call->in[0], call->in[1], call->out[0]};
    for (int i = 0; i < 3; i++) {
        assert_non_null(bytes[i]);
        assert_int_equal((uintptr_t)bytes[i] % 64, 0);
        bytes[i][shape_bytes(&operands[i]->shape) - 1] = 1; /* the sanitizers' build sees a short buffer */
    }
    ((char *)call->workspace)[kernel->workspace_bytes - 1] = 1;
    seen.run++;
    return STATUS_OK;
}
static void counting_release(struct kernel *kernel) {
    seen.released++;
    mem_free(kernel);
}
static enum status counting_create(const struct node *node, struct kernel **out) {
    struct kernel *kernel = mem_array(1, sizeof *kernel);
    if (!kernel) return STATUS_FAILED;
    *kernel = (struct kernel){.run = counting_run, .release = counting_release, .node = node, .workspace_bytes = 1000};
    struct op_cost cost;
    op_cost(node, &cost);
    seen.flops_a_run = cost.flops;
    seen.created++;
    *out = kernel;
    return STATUS_OK;
}
static void counting_zero(void *to, int64_t bytes, void *stream) {
    (void)stream;
    memset(to, 0, (size_t)bytes);
}

static enum status counting_check(void) { return STATUS_OK; }
static int64_t counting_cache_bytes(void) { return 0; }

static kernel_maker *counting_maker(const struct op *op) {
    (void)op;
    return counting_create;
}

static kernel_maker *no_maker(const struct op *op) {
    (void)op;
    return NULL;
}

static const struct backend counting = {.name = "counting",
                                        .check = counting_check,
                                        .isa = counting_isa,
                                        .set_threads = counting_threads,
                                        .cache_bytes = counting_cache_bytes,
                                        .maker = counting_maker,
                                        .zero = counting_zero};

static enum status measure(void *payload) {
    struct measurement gflop = {.seconds = -1};
    enum status status = profile_measure_matrix_rate(&counting, *(enum dtype *)payload, &gflop);
    if (status == STATUS_OK && !(isfinite(gflop.seconds) && gflop.seconds > 0))
        return status_set(STATUS_FAILED, "%g s", gflop.seconds);
    return status;
}

static void kernels_run_in_whole_buffers(void **state) {
    (void)state;
    for (enum dtype dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
        seen.created = seen.released = seen.run = 0;
        assert_int_equal(measure(&dtype), STATUS_OK);
        assert_true(seen.run > 2 * seen.created);
        assert_int_equal(seen.created, seen.released);
        assert_true(seen.flops_a_run > 1e9);
    }
}

static void a_backend_without_products_is_refused(void **state) {
    (void)state;
    struct backend without = counting;
    struct measurement gflop;
    without.maker = no_maker;
    assert_int_equal(profile_measure_matrix_rate(&without, DTYPE_F32, &gflop), STATUS_BAD_INPUT);
    assert_string_equal(status_message(), "product: the counting backend has no kernel for the operator linear");
    assert_non_null(strstr(status_hint_text(), "--device cpu has one"));
}

static void each_allocation_may_fail(void **state) {
    (void)state;
    enum dtype dtype = DTYPE_F32;
    assert_true(fault_sweep(FAULT_ALLOCATE, true, measure, &dtype) > 3);
    assert_int_equal(seen.created, seen.released);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_run_in_whole_buffers),
        cmocka_unit_test(a_backend_without_products_is_refused),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
