/* Model states partitioned among ranks never change the bits: all legal partitions of one family, by jobs of 2, 4 and 8
 * ranks on 1, 2 and 4 nodes. BALLAST_TEST_MPI says which MPI. */
/* ctest: PROCESSORS 2 TIMEOUT 1800 LABELS long */
/* ctest-again: mpich slow BALLAST_TEST_MPI=mpich */
#include <stdio.h>

#include "support/harness.h"
#include "support/policy_subject.h"
#include "support/mpi_job.h"
#include "support/rank_references.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { STEPS = 10, SEED = 17 };

struct result {
    double losses[STEPS], norms[STEPS];
    uint64_t weights;
};

/* `interleaved`: streams' instructions in a random order, and buffers that are done with are overwritten. */
static enum status train(const struct partition *partition, bool flat, bool interleaved, struct comm *comm,
                         struct result *out) {
    struct model_config config;
    struct harness harness;
    const struct policy_way way = {.lanes = {1, 8},
                                   .batch = 31,
                                   .round_grains = 1,
                                   .threads = 1,
                                   .comm = comm,
                                   .partition = partition,
                                   .flat = flat};
    const struct policy_subject subject = {.family = "llama", .dtype = DTYPE_BF16, .name = "llama"};
    struct harness_options options = policy_options(&subject, &way, &config);
    config.hidden = 48, config.heads = 3, config.head_dim = 16, config.ffn = 200, config.layers = 2;
    harness_open(&options, &harness);
    for (int step = 0; step < STEPS; step++) {
        outcome_set_batch(&harness, step);
        out->losses[step] = harness_step(&harness, 1e-3 / (1 + step), interleaved);
        out->norms[step] = ((const double *)harness_data(&harness, "clip"))[0];
    }
    harness_finish(&harness);
    enum status status = engine_hash(&harness.engine, &out->weights);
    harness_close(&harness);
    return status;
}

static enum status compare(struct comm *comm, const struct partition *partition, const struct result *one,
                           const struct result *mine) {
    char name[PARTITION_BYTES];
    partition_print(partition, &comm->mesh, name);
    for (int step = 0; step < STEPS; step++)
        if (memcmp(&mine->losses[step], &one->losses[step], sizeof(double)) != 0 ||
            memcmp(&mine->norms[step], &one->norms[step], sizeof(double)) != 0)
            return status_set(STATUS_FAILED, "%s: step %d: loss %.17g, norm %.17g; one rank has %.17g, %.17g", name,
                              step + 1, mine->losses[step], mine->norms[step], one->losses[step], one->norms[step]);
    if (mine->weights == one->weights) return STATUS_OK;
    return status_set(STATUS_FAILED, "%s: the weights differ from one rank's", name);
}

static enum status train_partitions(struct comm *comm, const char *path) {
    struct result one;
    struct partition *list;
    int count;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(&one, sizeof one, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    TRY(partition_list(&comm->mesh, &list, &count));
    enum status status = STATUS_OK;
    int ways = (int)unit_sweep(1, 2); /* each partition in both, or in the one and the other by turns */
    for (int i = 0; i < ways * count && status == STATUS_OK; i++) {
        const struct partition *partition = &list[i / ways];
        struct result mine;
        status = train(partition, i & 1, i & 1, comm, &mine);
        status = comm_agree(comm, status == STATUS_OK ? compare(comm, partition, &one, &mine) : status);
    }
    if (comm->rank == 0) printf("%d partitions on %d x %d ranks\n", count, comm->mesh.nodes, comm->mesh.per_node);
    mem_free(list);
    return status;
}

static enum status rank_body(struct comm *comm, const char *const words[RANK_JOB_WORDS]) {
    if (strcmp(words[1], "cases") == 0) return rank_references_train(words[0], comm, NULL);
    return train_partitions(comm, words[0]);
}

static void all_partitions_have_one_ranks_bits(void **state) {
    static const struct rank_job jobs[] = {{2, 1, false, {""}}, {2, 2, true, {""}}, {4, 1, false, {""}},
                                           {4, 2, false, {""}}, {4, 4, true, {""}}, {8, 1, false, {""}},
                                           {8, 2, true, {""}},  {8, 4, false, {""}}};
    const char *path = temp_path(*state, "one");
    struct result one;
    assert_int_equal(train(&(struct partition){1, 1, 1}, false, false, NULL, &one), STATUS_OK);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(&one, sizeof one, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    size_t count = unit_sweep(3, sizeof jobs / sizeof *jobs);
    for (size_t i = 0; i < count; i++) {
        struct rank_job job = count > 3 ? jobs[i] : jobs[i < 2 ? i : 3];
        job.words[0] = path;
        if (rank_job_run(&job) != STATUS_OK) fail_msg("%s", status_message());
    }
}

/* Random partitions under random policies, on lanes that ranks may hold unequally. */
static void random_plans_have_one_ranks_bits(void **state) {
    size_t count = unit_sweep(4, 100);
    struct rank_case cases[100];
    print_message("seed %d\n", SEED);
    for (uint64_t i = 0; i < count; i++) {
        cases[i] = rank_case_random(SEED, i);
        cases[i].value[RANK_AXIS_lanes] = (int)i % 3; /* two ranks hold three lanes unequally */
        cases[i].value[RANK_AXIS_policy] = rank_axis_values(RANK_AXIS_policy) - 1;
        cases[i].value[RANK_AXIS_partition] = rank_axis_values(RANK_AXIS_partition) - 1;
    }
    const char *path = rank_references_write(*state, cases, count);
    static const struct rank_job jobs[] = {{2, 1, true, {""}}, {3, 1, false, {""}}, {4, 2, false, {""}}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        struct rank_job job = jobs[i];
        job.words[0] = path;
        job.words[1] = "cases";
        if (rank_job_run(&job) != STATUS_OK) fail_msg("%s", status_message());
    }
}

int main(int count, char **argument) {
    rank_job_enter(count, argument, rank_body);
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_partitions_have_one_ranks_bits),
                                       cmocka_unit_test(random_plans_have_one_ranks_bits)};
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
