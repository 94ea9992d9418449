/* Pipeline stages never change the bits of losses, norms, weights and optimizer states. Jobs of 2, 4 and 8 ranks
 * with even and random cuts, virtual stages and random policies, alone and with partitioned data parallelism, are
 * compared with one rank. BALLAST_TEST_MPI names the MPI. */
/* ctest: PROCESSORS 2 TIMEOUT 1800 LABELS long */
/* ctest-again: mpich slow BALLAST_TEST_MPI=mpich */
#include <stdio.h>
#include <stdlib.h>

#include "support/harness.h"
#include "support/mpi_job.h"
#include "support/policy_subject.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { STEPS = 5, SEED = 23 };

struct result {
    double losses[STEPS], norms[STEPS];
    uint64_t weights;
};

/* What a run has next to its stages. */
struct variant {
    const char *family;
    bool tied; /* the embedding is the head too, and both their stages have it */
    const char *spans;
    bool interleaved; /* streams' instructions in a random order, and buffers that are done with are overwritten */
    uint64_t policy_seed;
    struct lane_shape lanes;
    int64_t round_micro_batches;
    enum weight_format base; /* frozen, with adapters on all its layers */
};
static const struct variant variants[] = {
    {"llama", false, "", false, 0, {1, 1}, 0, WEIGHT_PLAIN},
    {"llama", false, "1 2 3", true, 0, {1, 2}, 0, WEIGHT_PLAIN},
    {"llama", false, "1 3 4", false, 11, {1, 4}, 1, WEIGHT_PLAIN},
    {"llama", true, "", true, 12, {1, 2}, 1, WEIGHT_PLAIN},
    {"qwen2", false, "2 3 5", false, 0, {1, 1}, 0, WEIGHT_PLAIN},
    {"gpt2", true, "", false, 13, {1, 4}, 0, WEIGHT_PLAIN},
    {"gemma3_text", true, "1 3 5", true, 0, {1, 2}, 1, WEIGHT_PLAIN},
    {"llama", false, "1 3 4", false, 14, {1, 4}, 1, WEIGHT_NF4},
    {"qwen2", true, "", true, 15, {1, 2}, 0, WEIGHT_INT8},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

static enum status train(const struct variant *variant, struct comm *comm, int stages,
                         const struct partition *partition, struct result *out) {
    struct model_config config;
    struct harness harness;
    const struct policy_way way = {.lanes = variant->lanes,
                                   .batch = 19,
                                   .round_micro_batches = variant->round_micro_batches,
                                   .policy_seed = variant->policy_seed,
                                   .threads = 1,
                                   .comm = comm,
                                   .stages = stages,
                                   .spans = stages > 1 ? variant->spans : NULL,
                                   .partition = partition};
    const struct policy_subject subject = {.family = variant->family,
                                           .dtype = DTYPE_BF16,
                                           .lora = variant->base != WEIGHT_PLAIN ? "2,6,all-linear" : NULL,
                                           .quantize_base = variant->base,
                                           .name = variant->family};
    struct harness_options options = policy_options(&subject, &way, &config);
    config.hidden = 48, config.heads = 3, config.head_dim = 16, config.ffn = 200, config.layers = 4;
    config.tied = variant->tied;
    harness_open(&options, &harness);
    for (int step = 0; step < STEPS; step++) {
        outcome_set_batch(&harness, step);
        out->losses[step] = harness_step(&harness, 1e-3 / (1 + step), variant->interleaved);
        out->norms[step] = ((const double *)harness_data(&harness, "clip"))[0];
    }
    harness_finish(&harness);
    enum status status = engine_hash(&harness.engine, &out->weights);
    harness_close(&harness);
    return status;
}

static enum status compare(const char *name, const struct result *one, const struct result *mine) {
    for (int step = 0; step < STEPS; step++)
        if (memcmp(&mine->losses[step], &one->losses[step], sizeof(double)) != 0 ||
            memcmp(&mine->norms[step], &one->norms[step], sizeof(double)) != 0)
            return status_set(STATUS_FAILED, "%s: step %d: loss %.17g, norm %.17g; one rank has %.17g, %.17g", name,
                              step + 1, mine->losses[step], mine->norms[step], one->losses[step], one->norms[step]);
    if (mine->weights == one->weights) return STATUS_OK;
    return status_set(STATUS_FAILED, "%s: the weights differ from one rank's", name);
}

/* Interleaved spans are for 2 and 4 stages. */
static bool fits(const struct variant *variant, int stages, int data) {
    return data <= variant->lanes.per_node && (!variant->spans[0] || 4 % stages == 0);
}

static enum status train_variant(struct comm *comm, int stages, const struct variant *variant,
                                 const struct partition *partition, const struct result *one) {
    char name[128], triple[PARTITION_BYTES];
    int ranks = mesh_ranks(&comm->mesh);
    struct result mine;
    snprintf(name, sizeof name, "%s, spans '%s', %d stages of %d ranks, %s", variant->family, variant->spans, stages,
             ranks, partition_print(partition, &(struct mesh){1, ranks / stages}, triple));
    enum status status = train(variant, comm, stages, partition, &mine);
    return comm_agree(comm, status == STATUS_OK ? compare(name, one, &mine) : status);
}

/* Each with a partition of the data ranks, in make check with all of them. */
static enum status train_variants(struct comm *comm, int stages, const struct result *ones) {
    const struct rank_place place = {.mesh = comm->mesh, .rank = comm->rank, .pipeline_parallel = stages};
    const struct mesh shared = rank_place_data_mesh(&place);
    struct partition *list;
    int count;
    TRY(partition_list(&shared, &list, &count));
    enum status status = STATUS_OK;
    for (int v = 0; v < VARIANTS && status == STATUS_OK; v++)
        for (int p = 0; p < count && status == STATUS_OK; p++)
            if (fits(&variants[v], stages, mesh_ranks(&shared)) && (unit_sweep(0, 1) || p == v % count))
                status = train_variant(comm, stages, &variants[v], &list[p], &ones[v]);
    mem_free(list);
    return status;
}

static enum status rank_body(struct comm *comm, const char *const arguments[RANK_JOB_ARGUMENTS]) {
    struct result ones[VARIANTS];
    FILE *file = fopen(arguments[0], "rb");
    assert_non_null(file);
    assert_int_equal(fread(ones, sizeof ones, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    return train_variants(comm, atoi(arguments[1]), ones);
}

static void stages_have_one_ranks_bits(void **state) {
    static const struct rank_job jobs[] = {{4, 1, false, {"", "2"}}, {2, 2, true, {"", "2"}}, {4, 1, false, {"", "4"}},
                                           {2, 1, false, {"", "2"}}, {4, 2, true, {"", "4"}}, {4, 2, true, {"", "2"}},
                                           {8, 2, false, {"", "4"}}, {8, 2, false, {"", "2"}}};
    const char *path = temp_path(*state, "one");
    struct result ones[VARIANTS];
    for (size_t v = 0; v < VARIANTS; v++)
        assert_int_equal(train(&variants[v], NULL, 1, NULL, &ones[v]), STATUS_OK);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(ones, sizeof ones, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    size_t count = unit_sweep(3, sizeof jobs / sizeof *jobs);
    for (size_t i = 0; i < count; i++) {
        struct rank_job job = jobs[i];
        job.arguments[0] = path;
        if (rank_job_run(&job) != STATUS_OK) fail_msg("%s", status_message());
    }
}

int main(int count, char **argument) {
    rank_job_enter(count, argument, rank_body);
    const struct CMUnitTest tests[] = {cmocka_unit_test(stages_have_one_ranks_bits)};
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
