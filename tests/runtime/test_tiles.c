/* MLPs that process a micro-batch's tokens in tiles: the same bits under any policy, in less memory, and chosen if
 * memory is short. */
/* ctest: PROCESSORS 2 TIMEOUT 600 */
/* ctest-again: avx2 slow BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
#include <stdio.h>
#include <string.h>

#include "ir/rewrite.h"
#include "support/policy_subject.h"
#include "support/unit.h"

/* The sequences of a micro-batch, their tokens and those of a tile; micro-batches of a step. */
struct tokens {
    int64_t sequences, length, tile, micro_batches;
};
static const struct tokens shapes[] = {{32, 64, 1024, 2}, {48, 64, 2048, 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes, POLICIES = 2 };

static const char *const subjects[] = {"llama in fp32", "another phi3 in bf16", "another gpt2 in bf16",
                                       "qwen3 with adapters"};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

/* `config` is theirs as long as they are used. */
static struct harness_options options_of(const char *subject, const struct tokens *tokens,
                                         struct model_config *config) {
    struct harness_options options = policy_options(policy_subject_named(subject), &(struct policy_way){0}, config);
    config->layers = 2;
    config->context = 4096;
    options.sequence_length = tokens->length;
    options.micro_batch_sequences = tokens->sequences;
    options.batch = tokens->micro_batches * tokens->sequences;
    return options;
}

static void tiles_change_no_bit(void **state) {
    (void)state;
    uint64_t each = unit_sweep(1, 50);
    for (int s = 0; s < SUBJECTS; s++) {
        const struct tokens *tokens = &shapes[s % SHAPES];
        struct model_config config;
        struct harness_options options = options_of(subjects[s], tokens, &config);
        struct outcome plain = outcome_train(&options, false);
        options.policy.tile_tokens = tokens->tile;
        struct outcome tiled = outcome_train(&options, false);
        outcome_require_equal(subjects[s], &plain, &tiled);
        for (uint64_t i = 1; i <= each; i++) {
            char what[128];
            options.policy_seed = 100 * (uint64_t)(s + 1) + i;
            options.policy_traits = (struct policy_traits){.tile_tokens = tokens->tile};
            struct outcome other = outcome_train(&options, i % 2 == 0);
            snprintf(what, sizeof what, "%s: policy of seed %llu", subjects[s],
                     (unsigned long long)options.policy_seed);
            assert_int_equal(other.policy.tile_tokens, tokens->tile);
            outcome_require_equal(what, &plain, &other);
        }
    }
}

static int64_t largest_activation(const struct program *program) {
    int64_t max = 0;
    for (size_t i = 0; i < program->buffers.count; i++)
        if (program->buffers.items[i].kind == BUFFER_ACTIVATIONS && program->buffers.items[i].bytes > max)
            max = program->buffers.items[i].bytes;
    return max;
}

/* No buffer has an MLP's width for all tokens, and the whole takes less. */
static void only_a_tile_is_wide(void **state) {
    (void)state;
    const struct tokens tokens = {1, 4096, 1024, 1};
    struct model_config config;
    struct harness_options options = options_of("llama in fp32", &tokens, &config);
    config.ffn = 300;
    int64_t bytes[2], wide = tokens.length * config.ffn * (int64_t)sizeof(float);
    for (int t = 0; t < 2; t++) {
        struct harness harness;
        options.policy.tile_tokens = t ? tokens.tile : 0;
        harness_open(&options, &harness);
        const struct program *program = harness.executable->program;
        bytes[t] = program->tier_bytes[TIER_DEVICE];
        if (t)
            assert_true(largest_activation(program) < wide / 2);
        else
            assert_int_equal(largest_activation(program), wide);
        harness_close(&harness);
    }
    print_message("%lld bytes in tiles, %lld without\n", (long long)bytes[1], (long long)bytes[0]);
    assert_true(bytes[1] < bytes[0] - 3 * wide);
}

static void refuse(int64_t tile, int64_t length, const char *message) {
    struct graph *graph = graph_create(DTYPE_F32, 1, length);
    assert_non_null(graph);
    assert_int_equal(graph_tile(graph, tile), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), message));
    graph_free(graph);
}

static void tiles_are_whole_runs(void **state) {
    (void)state;
    refuse(1000, 4096, "1000 of a micro-batch's 4096 tokens");
    refuse(1024, 4000, "1024 of a micro-batch's 4000 tokens");
    struct policy policy = {.micro_batches_per_wave = 1, .tile_tokens = 100};
    assert_int_equal(policy_check(&policy, 1), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "policy.tile_tokens: 100"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiles_change_no_bit), cmocka_unit_test(only_a_tile_is_wide),
                                       cmocka_unit_test(tiles_are_whole_runs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
