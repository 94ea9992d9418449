/* Descriptions of policies, and of differences between two policies. */
#include <string.h>

#include "report/console/plan_table.h"
#include "support/unit.h"

static const struct policy disk = {.micro_batches_per_wave = 2,
                                   .persistent_chunks = 3,
                                   .gradients = TIER_DISK,
                                   .optimizer = TIER_DISK,
                                   .schedule = "f0-5 d0-1 b5 f4 b4 f3 b3 b2-0"};

static void policies_have_text(void **state) {
    (void)state;
    char text[POLICY_TEXT_BYTES];
    const struct policy plain = {.micro_batches_per_wave = 1};
    assert_string_equal(policy_text(&plain, 6, text), "1 micro-batch per wave; all on the device");
    assert_string_equal(
        policy_text(&disk, 6, text),
        "2 micro-batches per wave; gradients and optimizer state on the disk; the first 3 chunks stay on the "
        "device; activations of 2 of 6 blocks on the disk; recomputes 2 blocks");
    const struct policy tiles = {.micro_batches_per_wave = 1, .tile_tokens = 2048};
    assert_string_equal(policy_text(&tiles, 6, text), "1 micro-batch per wave; MLPs in tiles of 2048 tokens");
    const struct policy again = {.micro_batches_per_wave = 1, .selective_recompute = true};
    assert_string_equal(policy_text(&again, 6, text),
                        "1 micro-batch per wave; all on the device; recomputes norms and activation functions");
    struct policy ahead = disk;
    ahead.update_ahead = 1;
    assert_non_null(strstr(policy_text(&ahead, 6, text), "; updates one block ahead"));
    const struct policy cut = {.micro_batches_per_wave = 1, .partition = {1, 4, 4}, .flat = true};
    assert_string_equal(policy_text(&cut, 6, text),
                        "1 micro-batch per wave; 1|4|4 shards of parameters, gradients and optimizer state; flat "
                        "collectives");
}

static void expect_difference(struct policy policy, const char *expected) {
    char text[POLICY_TEXT_BYTES];
    assert_string_equal(policy_difference_text(&policy, &disk, 6, text), expected);
}

/* What is the same is not said, what is not there is said to be missing, and something always is. */
static void differences_have_text(void **state) {
    (void)state;
    struct policy other = disk;
    other.micro_batches_per_wave = 1;
    expect_difference(other, "1 micro-batch per wave");
    other = disk;
    other.schedule[0] = '\0';
    expect_difference(other, "no activations on the disk; no recomputed blocks");
    other = disk;
    other.gradients = TIER_HOST;
    other.persistent_chunks = 0;
    expect_difference(other, "gradients on the host; optimizer state on the disk; no chunk stays on the device");
    other = disk;
    strcpy(other.schedule, "f0-5 d0-1 b5-4 f3 b3 f2 b2 b1-0");
    expect_difference(other, "the same number of other blocks");
    other = disk;
    other.partition.optimizer = 2;
    expect_difference(other, "1|1|2 shards of parameters, gradients and optimizer state");
    other = disk;
    other.selective_recompute = true;
    expect_difference(other, "recomputes norms and activation functions");
    other = disk;
    other.chunk_bytes = 4096;
    expect_difference(other, "chunks of another size");
    expect_difference((struct policy){.micro_batches_per_wave = 2},
                      "no states on the disk; no chunk stays on the device; no activations on the disk; no "
                      "recomputed blocks");
}

/* The longest there can be is whole. */
static void every_description_fits(void **state) {
    (void)state;
    char text[POLICY_TEXT_BYTES];
    struct policy much = {.micro_batches_per_wave = 1000000,
                          .persistent_chunks = 1000000,
                          .lookahead = 1,
                          .parameters = TIER_HOST,
                          .gradients = TIER_DISK,
                          .optimizer = TIER_DISK,
                          .update = TIER_HOST,
                          .partition = {1 << 16, 1 << 16, 1 << 16},
                          .flat = true,
                          .schedule = "f0-5 h0 d1 b5 f4 b4 f3 b3 b2-0"};
    policy_text(&much, 6, text);
    assert_string_equal(text + strlen(text) - 16, "flat collectives");
    assert_true(strlen(text) < sizeof text - 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(policies_have_text), cmocka_unit_test(differences_have_text),
                                       cmocka_unit_test(every_description_fits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
