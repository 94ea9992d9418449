/* The table of CUDA's kernels: it needs no device to be asked. */
#include <stdio.h>

#include "support/op_instance.h"
#include "support/unit.h"

#ifdef BALLAST_CUDA

#include "backend/backend.h"

/* Those of experts and of preferences, which run on the CPU alone: a plan that needs them says so. */
static bool runs_on_the_cpu_alone(const struct op *op) {
    static const struct op *const ops[] = {&op_route,
                                           &op_route_grad,
                                           &op_dispatch,
                                           &op_dispatch_grad,
                                           &op_combine,
                                           &op_combine_grad,
                                           &op_token_gate,
                                           &op_token_gate_grad,
                                           &op_expert_mlp,
                                           &op_expert_mlp_grad,
                                           &op_expert_load,
                                           &op_expert_load_grad,
                                           &op_balanced_loss,
                                           &op_balanced_loss_grad,
                                           &op_count_slots,
                                           &op_head_log_probability,
                                           &op_head_log_probability_grad,
                                           &op_preference_loss,
                                           &op_preference_loss_grad,
                                           &op_muon};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (ops[i] == op) return true;
    return false;
}

static void every_operator_but_few_has_a_kernel(void **state) {
    (void)state;
    for (int i = 0; i < op_table_count; i++)
        if (backend_has_kernel(&backend_cuda, op_table[i]) == runs_on_the_cpu_alone(op_table[i]))
            fail_msg("%s: a kernel where none is expected, or none", op_table[i]->name);
}

static void an_unknown_operator_has_none(void **state) {
    (void)state;
    struct op unknown = {.name = "unknown"};
    assert_false(backend_has_kernel(&backend_cuda, &unknown));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_but_few_has_a_kernel),
        cmocka_unit_test(an_unknown_operator_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void) {
    printf("skipped: this build has no CUDA backend; needs the CUDA toolkit, 12 or later\n");
    return TEST_SKIPPED;
}

#endif
