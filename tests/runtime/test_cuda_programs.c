/* Complete programs of CUDA kernels without a device, compiled for the CPU (tests/cuda_emulator), on streams that
 * execute later. Losses equal the CPU's within rounding. No policy changes a bit, including policies that update on
 * the CPU. */
/* ctest: PROCESSORS 2 TIMEOUT 900 LABELS long */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/cuda_kernels.h"
#include "support/deferred_backend.h"
#include "support/policy_subject.h"
#include "support/unit.h"

#ifdef BALLAST_CUDA_EMULATED

/* Of the quick run, next to every 17th: experts, one that all tokens take next to them, and their balance; whole
 * matrices. */
static const char experts[] = "another qwen2_moe in bf16", matrices[] = "llama in bf16 by Muon with split masters";

/* Experts in fewer bits have no kernels. */
static bool is_run(size_t s) {
    const struct policy_subject *subject = &policy_subjects[s];
    if (policy_subject_has_experts(subject) && subject->quantize_base != WEIGHT_PLAIN) return false;
    return s % unit_sweep(17, 1) == 0 || strcmp(subject->name, experts) == 0 || strcmp(subject->name, matrices) == 0;
}

static struct outcome train(const struct policy_subject *subject, uint64_t seed) {
    struct policy_way way = {.backend = deferred_begin_with(seed, cuda_kernel_create), .policy_seed = seed};
    struct outcome outcome = policy_train(subject, &way);
    assert_true(seed != 0 || (deferred_launches() > 0 && deferred_batched() > 0));
    deferred_end();
    return outcome;
}

static void programs_give_the_bits_of_the_processor(void **state) {
    (void)state;
    uint64_t each = unit_sweep(1, 6);
    for (size_t s = 0; s < policy_subject_count; s++) {
        const struct policy_subject *subject = &policy_subjects[s];
        if (!is_run(s)) continue;
        struct outcome cpu = policy_train(subject, &(struct policy_way){.backend = &backend_cpu});
        struct outcome plain = train(subject, 0);
        double bound = subject->dtype == DTYPE_BF16 ? 5e-3 : 1e-5;
        for (int step = 0; step < OUTCOME_STEPS; step++)
            if (!(fabs(plain.losses[step] / cpu.losses[step] - 1) <= bound))
                fail_msg("%s: step %d: loss %.9g, the CPU's is %.9g", subject->name, step, plain.losses[step],
                         cpu.losses[step]);
        for (uint64_t i = 1; i <= each; i++) {
            char what[128];
            snprintf(what, sizeof what, "%s: policy of seed %d", subject->name, (int)(9000 + 100 * s + i));
            struct outcome other = train(subject, 9000 + 100 * s + i);
            outcome_require_equal(what, &plain, &other);
        }
    }
}

#else

static void programs_give_the_bits_of_the_processor(void **state) {
    (void)state;
    unit_skip("this build has no CUDA backend; needs the CUDA toolkit, 12 or later, and a C++ compiler");
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(programs_give_the_bits_of_the_processor)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
