/* In a step with one micro-batch, the gradient of a tied embedding is added to the head's, in one accumulator. The
 * bits are those of two accumulators that are summed once per step. */
/* ctest: PROCESSORS 2 TIMEOUT 300 */
/* ctest-again: avx2 slow BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
#include <string.h>

#include "support/policy_subject.h"
#include "support/unit.h"

static bool is_of_table(const struct tensor *tensor) {
    return tensor->kind == TENSOR_GRADIENT && strstr(tensor->parameter->name, "wte") != NULL;
}

/* Of the table of words. */
static int count_accumulators(const struct policy_way *way) {
    struct model_config config;
    struct harness_options options = policy_options(policy_subject_named("gpt2 in fp32"), way, &config);
    struct harness harness;
    int count = 0;
    harness_open(&options, &harness);
    for (size_t i = 0; i < harness_graph(&harness)->tensors.count; i++)
        count += is_of_table(harness_graph(&harness)->tensors.items[i]);
    harness_close(&harness);
    return count;
}

/* A second lane, which has no micro-batch, leaves the sums as they are; but its uses are added up by lanes. */
static void one_accumulator_has_the_bits_of_two(void **state) {
    (void)state;
    static const char *const subjects[] = {"gpt2 in fp32", "another gpt2 in bf16"};
    struct policy_way joined = {.long_micro_batches = true}, apart = {.long_micro_batches = true, .lanes = {1, 2}};
    assert_int_equal(count_accumulators(&joined), 1);
    assert_int_equal(count_accumulators(&apart), 2);
    for (size_t s = 0; s < sizeof subjects / sizeof *subjects; s++) {
        struct outcome one = policy_train(policy_subject_named(subjects[s]), &joined);
        struct outcome two = policy_train(policy_subject_named(subjects[s]), &apart);
        outcome_require_equal(subjects[s], &two, &one);
    }
}

/* Under policies that move gradients between the two uses. */
static void it_moves_between_its_uses(void **state) {
    (void)state;
    const struct policy_subject *subject = policy_subject_named("gpt2 in fp32");
    struct policy_way way = {.long_micro_batches = true};
    struct outcome plain = policy_train(subject, &way);
    for (uint64_t seed = 1; seed <= unit_sweep(6, 200); seed++) {
        way.policy_seed = seed;
        way.policy_traits.tiers = seed % 2 ? TIERS_DISK : TIERS_DRAWN;
        struct outcome moved = policy_train(subject, &way);
        outcome_require_equal("moved", &plain, &moved);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_accumulator_has_the_bits_of_two),
                                       cmocka_unit_test(it_moves_between_its_uses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
