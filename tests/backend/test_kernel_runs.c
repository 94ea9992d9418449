/* Elementwise operators (squared_sums, adamw) on runs of a tensor's elements, as in shards on several ranks. The
 * bits are those of the whole tensor, whatever the runs. */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
/* ctest-again: cuda BALLAST_TEST_BACKEND=cuda */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "support/op_instance.h"
#include "support/op_table.h"
#include "support/unit.h"

enum { SEED = 1811, ROUNDS = 12 };

static struct op_instance create(const struct op_case *op_case, enum dtype dtype) {
    struct op_instance instance;
    if (op_instance_create(op_case_build(op_case, dtype, &op_case->sizes), &instance) != STATUS_OK)
        fail_msg("%s: %s", op_case->name, status_message());
    op_instance_fill(&instance, SEED);
    return instance;
}

/* Cuts a tensor at multiples of GRADIENT_NORM_BLOCK, each with probability 1 / `rarity`; returns the number of runs. */
static int draw_cuts(int64_t elements, uint64_t rarity, uint32_t round, int64_t cuts[KERNELS_TOGETHER]) {
    int count = 1;
    cuts[0] = 0;
    for (int64_t at = GRADIENT_NORM_BLOCK; at < elements && count < KERNELS_TOGETHER; at += GRADIENT_NORM_BLOCK)
        if (random_u64(SEED, RANDOM_TEST, round, (uint64_t)at) % rarity == 0) cuts[count++] = at;
    return count;
}

static void expect_equal(const struct op_instance *whole, const struct op_instance *cut, int runs, bool together) {
    const char *name = whole->node->op->name, *overrun = op_instance_overrun(cut);
    if (overrun) fail_msg("%s in %d runs wrote outside %s", name, runs, overrun);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) {
        const struct tensor *output = whole->node->out[i];
        if (!output) continue;
        const struct tensor *other = cut->node->out[i];
        if (memcmp(whole->data[output->id], cut->data[other->id], (size_t)shape_bytes(&output->shape)) != 0)
            fail_msg("%s in %d runs%s: %s is not that of the whole", name, runs, together ? " together" : "",
                     output->name);
    }
}

static void check_case(const struct op_case *op_case, enum dtype dtype, bool together) {
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct op_instance whole = create(op_case, dtype), cut = create(op_case, dtype);
        int64_t cuts[KERNELS_TOGETHER];
        int runs = draw_cuts(shape_elements(&whole.node->in[0]->shape), 1 + round, round, cuts);
        assert_true(round > 0 || runs > 16 || op_case->sizes.vocab < 300);
        bool can = !together || op_instance_runs_together(&cut, 0);
        op_instance_run_all(&whole);
        if (can) {
            op_instance_run_cut(&cut, 0, cuts, runs, together);
            expect_equal(&whole, &cut, runs, together);
        }
        op_instance_free(&whole);
        op_instance_free(&cut);
        if (!can) return;
    }
}

static int check_runs(const struct op *op, enum dtype dtype) {
    int cases = 0;
    for (int i = 0; i < op_case_count; i++) {
        if (op_cases[i].op != op) continue;
        check_case(&op_cases[i], dtype, false);
        check_case(&op_cases[i], dtype, true);
        cases++;
    }
    return cases;
}

static void sums_of_squares_in_runs_are_those_of_the_whole(void **state) {
    (void)state;
    print_message("seed %d\n", SEED);
    assert_int_equal(check_runs(&op_squared_sums, DTYPE_F32), 1);
}

static void updates_in_runs_are_those_of_the_whole(void **state) {
    (void)state;
    static const struct op *const updates[] = {&op_adamw, &op_lion, &op_sgd};
    for (size_t i = 0; i < sizeof updates / sizeof *updates; i++)
        assert_true(check_runs(updates[i], DTYPE_F32) > 0 && check_runs(updates[i], DTYPE_BF16) > 1);
}

/* Of other counts, in one call: a device has several parameters in one launch. */
static void cuda_calls_runs_together(void **state) {
    (void)state;
    for (int i = 0; i < op_case_count; i++) {
        const struct op *op = op_cases[i].op;
        bool updates = update_rule_of(op) != UPDATE_RULE_COUNT && op->by_elements;
        if (op != &op_squared_sums && op != &op_squared_norm && !updates) continue;
        struct op_instance instance = create(&op_cases[i], DTYPE_F32);
        assert_int_equal(op_instance_runs_together(&instance, 0), op_instance_on_cuda());
        op_instance_free(&instance);
    }
}

/* Every operator whose nodes may be cut among ranks is here. */
static void only_these_operators_are_divided(void **state) {
    (void)state;
    for (int i = 0; i < op_table_count; i++)
        assert_int_equal(op_is_divided(op_table[i]),
                         update_rule_of(op_table[i]) != UPDATE_RULE_COUNT || op_table[i] == &op_squared_sums);
}

int main(void) {
    const char *why;
    if (!op_instance_can_run(&why)) unit_skip_all("%s", why);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_squares_in_runs_are_those_of_the_whole),
        cmocka_unit_test(updates_in_runs_are_those_of_the_whole),
        cmocka_unit_test(cuda_calls_runs_together),
        cmocka_unit_test(only_these_operators_are_divided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
