/* Selective recomputation of norms and activation functions in backward gives the same bits, with and without tiles,
 * and does not keep their forward outputs. */
/* ctest: PROCESSORS 2 TIMEOUT 300 */
/* ctest-again: avx2 slow BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
#include <stdio.h>

#include "ir/rewrite.h"
#include "support/policy_subject.h"
#include "support/unit.h"

static const char *const subjects[] = {"gpt2 in fp32", "another gpt2 in bf16", "llama in fp32", "another phi3 in bf16",
                                       "qwen3 with adapters"};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

static struct outcome train(const struct policy_subject *subject, struct policy policy, bool long_micro_batches) {
    struct policy_way way = {.policy = &policy, .long_micro_batches = long_micro_batches};
    policy.micro_batches_per_wave = 1;
    return policy_train(subject, &way);
}

static void nothing_changes_a_bit(void **state) {
    (void)state;
    for (int s = 0; s < SUBJECTS; s++) {
        const struct policy_subject *subject = policy_subject_named(subjects[s]);
        struct outcome plain = train(subject, (struct policy){0}, false);
        struct outcome again = train(subject, (struct policy){.selective_recompute = true}, false);
        outcome_require_equal(subjects[s], &plain, &again);
    }
}

static void tiles_read_rows_of_what_is_recomputed(void **state) {
    (void)state;
    const struct policy_subject *subject = policy_subject_named("llama in fp32");
    struct outcome plain = train(subject, (struct policy){0}, true);
    struct outcome again =
        train(subject, (struct policy){.selective_recompute = true, .tile_tokens = POLICY_LONG_TOKENS / 2}, true);
    outcome_require_equal("in tiles", &plain, &again);
}

/* Whether backward reads what a light node of forward made. */
static bool reads_light(const struct node *node) {
    for (int i = 0; i < OP_INPUTS_MAX && node->phase == PHASE_BACKWARD; i++) {
        const struct tensor *in = node->in[i] ? tensor_storage(node->in[i]) : NULL;
        const struct node *producer = in ? in->producer : NULL;
        if (producer && producer->phase == PHASE_FORWARD && producer->op->light && producer->out[0] == in) return true;
    }
    return false;
}

static int count_reads(const struct graph *graph) {
    int count = 0;
    for (size_t n = 0; n < graph->nodes.count; n++)
        count += reads_light(graph->nodes.items[n]);
    return count;
}

/* Of the model's two layers the outputs of both norms and of the activation function are read in backward, where the
 * head reads that of the last norm. The last one stays: forward makes it for nothing else. */
static void forward_keeps_none_of_it(void **state) {
    (void)state;
    enum { LAYERS = 2 };
    struct model_config config;
    struct harness_options options =
        policy_options(policy_subject_named("gpt2 in fp32"), &(struct policy_way){0}, &config);
    config.layers = LAYERS;
    int64_t bytes[2];
    for (int again = 0; again < 2; again++) {
        struct harness harness;
        options.policy.selective_recompute = again;
        harness_open(&options, &harness);
        bytes[again] = harness.executable->program->tier_bytes[TIER_DEVICE];
        int reads = count_reads(harness_graph(&harness));
        print_message("selective recomputation %d: %d readers, %lld bytes\n", again, reads, (long long)bytes[again]);
        if (again)
            assert_int_equal(reads, 1);
        else
            assert_true(reads > 1 + 3 * LAYERS - 1);
        harness_close(&harness);
    }
    assert_true(bytes[1] < bytes[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_changes_a_bit),
                                       cmocka_unit_test(tiles_read_rows_of_what_is_recomputed),
                                       cmocka_unit_test(forward_keeps_none_of_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
