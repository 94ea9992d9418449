/* Ranks that share tensors train as one rank does: ten steps of every family on 2 and 4 ranks, beside data ranks and
 * partitions, under policies that recompute and move. */
/* ctest: PROCESSORS 2 TIMEOUT 900 LABELS long */
#include <math.h>
#include <stdio.h>

#include "base/random.h"
#include "support/harness.h"
#include "support/model_cases.h"
#include "support/mpi_job.h"
#include "support/shared_model.h"
#include "support/unit.h"

enum { BATCH = 4, LENGTH = 12, STEPS = 10, SEED = 5 };

struct numbers {
    double loss[STEPS], norm[STEPS];
};

static void train(const struct harness_options *options, struct numbers *out) {
    struct harness harness;
    int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
    harness_open(options, &harness);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < BATCH * LENGTH; i++) {
            tokens[i] = (int32_t)(random_u64(SEED, RANDOM_TEST, (uint32_t)step, (uint64_t)i) % 211);
            targets[i] = i % 7 ? (tokens[i] * 3 + 1) % 211 : -1;
        }
        harness_set_inputs(&harness, tokens, targets);
        out->loss[step] = harness_step(&harness, 1e-3, false);
        out->norm[step] = *(const double *)harness_data(&harness, "clip");
    }
    harness_finish(&harness);
    harness_close(&harness);
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-5 * fabs(b); }

static enum status compare(const struct comm *comm, const char *name, const struct numbers *found,
                           const struct numbers *expected) {
    for (int step = 0; step < STEPS; step++)
        if (!near(found->loss[step], expected->loss[step]) || !near(found->norm[step], expected->norm[step]))
            return status_set(
                STATUS_FAILED, "rank %d: %s, step %d: loss %.12g and norm %.12g, one rank has %.12g, %.12g", comm->rank,
                name, step, found->loss[step], found->norm[step], expected->loss[step], expected->norm[step]);
    return STATUS_OK;
}

/* What of a job changes no sum: each has a turn. */
static const struct variant {
    uint64_t policy_seed;
    struct partition partition;
} variants[] = {{0, {1, 1, 1}}, {3, {1, 1, 1}}, {11, {1, 1, 1}}, {0, {2, 2, 2}}, {0, {1, 2, 2}}};

static enum status train_case(struct comm *comm, const char *name, int tensor, size_t variant_count) {
    struct model_config config = shared_model_config(name, &shared_sizes_usual);
    struct harness_options options = {.config = &config,
                                      .dtype = DTYPE_F32,
                                      .batch = BATCH,
                                      .sequence_length = LENGTH,
                                      .grain_sequences = 1,
                                      .grains_per_pass = 1,
                                      .threads = 1,
                                      .lanes = {1, mesh_ranks(&comm->mesh) / tensor},
                                      .clip_norm = 1,
                                      .weight_decay = 0.1,
                                      .seed = SEED};
    struct numbers expected, found;
    train(&options, &expected);
    options.comm = comm;
    options.tensor = tensor;
    for (size_t v = 0; v < variant_count; v++) {
        options.policy_seed = variants[v].policy_seed;
        options.partition = variants[v].partition;
        train(&options, &found);
        TRY(compare(comm, name, &found, &expected));
    }
    return STATUS_OK;
}

/* words: how many ranks share a tensor, and "all" families or "one" under every variant. */
static enum status body(struct comm *comm, const char *const words[RANK_JOB_WORDS]) {
    static const char *const cases[] = {DENSE_MODEL_CASES}, *const some[] = {"llama", "gpt2", "qwen3", "gemma2"};
    int tensor = atoi(words[0]);
    bool all = strcmp(words[1], "all") == 0, partitions = mesh_ranks(&comm->mesh) > tensor;
    size_t count = all ? sizeof cases / sizeof *cases : sizeof some / sizeof *some;
    size_t each = all ? unit_sweep(tensor > 2 ? 7 : 2, 1) : 1;
    for (size_t i = 0; i < count; i += each)
        TRY(train_case(comm, all ? cases[i] : some[i], tensor, all ? 1 : partitions ? 5 : 3));
    return STATUS_OK;
}

static void expect_job(int ranks, const char *tensor, const char *what, bool messages) {
    struct rank_job job = {.ranks = ranks, .messages = messages, .words = {tensor, what}};
    if (rank_job_run(&job) != STATUS_OK) fail_msg("%d ranks: %s", ranks, status_message());
}

static void every_family_trains_on_two_ranks(void **state) {
    (void)state;
    expect_job(2, "2", "all", false);
}

static void families_train_on_four_ranks(void **state) {
    (void)state;
    expect_job(4, "4", "all", false);
}

static void policies_and_messages_change_nothing_that_counts(void **state) {
    (void)state;
    expect_job(2, "2", "some", true);
}

static void data_ranks_and_partitions_stand_beside(void **state) {
    (void)state;
    expect_job(4, "2", "some", false);
}

int main(int count, char **argument) {
    rank_job_enter(count, argument, body);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_trains_on_two_ranks),
        cmocka_unit_test(families_train_on_four_ranks),
        cmocka_unit_test(policies_and_messages_change_nothing_that_counts),
        cmocka_unit_test(data_ranks_and_partitions_stand_beside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
