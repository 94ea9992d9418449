/* The memory of all ranks grows by their arenas' size and no more. A step allocates nothing, and memory does not
 * grow in a thousand steps. */
/* ctest: PROCESSORS 2 TIMEOUT 900 LABELS long */
/* ctest-again: mpich slow BALLAST_TEST_MPI=mpich */
#include <math.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/mem.h"
#include "plan/chunks.h"
#include "support/harness.h"
#include "support/mpi_job.h"
#include "support/outcome.h"
#include "support/unit.h"

/* Of /proc/self/smaps_rollup, in bytes: what several processes have mapped counts for each in part. */
static int64_t own_memory(void) {
    char line[256];
    long long bytes = 0, kibibytes;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Pss_Anon: %lld", &kibibytes) == 1 || sscanf(line, "Pss_Shmem: %lld", &kibibytes) == 1)
            bytes += kibibytes * 1024;
    if (file) fclose(file);
    return bytes;
}

static enum status sum_over_ranks(struct comm *comm, int64_t mine, int64_t *all) {
    struct comm_group group = comm_group_all(comm);
    int64_t each[64];
    TRY(comm_all_gather(comm, &group, &mine, sizeof mine, each));
    *all = 0;
    for (int rank = 0; rank < group.count; rank++)
        *all += each[rank];
    return STATUS_OK;
}

static const struct policy plain = {.micro_batches_per_wave = 1};
static const struct policy tiered = {
    .micro_batches_per_wave = 1, .buffers = 3, .lookahead = 1, .gradients = TIER_HOST, .optimizer = TIER_DISK};

static enum status step(struct harness *harness, int number) {
    struct step_numbers numbers;
    outcome_set_batch(harness, number);
    return engine_compute_step(&harness->engine, number, 1e-4, STATUS_OK, harness_count_targets(harness), &numbers);
}

/* Of all ranks, within 2% + 16 MiB a rank of the arenas. */
static enum status check_size(struct harness *harness, struct comm *comm, int64_t before) {
    int64_t arenas, grown;
    TRY(sum_over_ranks(comm, harness->engine.arenas[TIER_DEVICE].bytes + harness->engine.arenas[TIER_HOST].bytes,
                       &arenas));
    TRY(sum_over_ranks(comm, own_memory() - before, &grown));
    if (comm->rank == 0)
        printf("%d ranks: arenas %.1f MiB, memory grew by %.1f MiB\n", mesh_ranks(&comm->mesh), (double)arenas / 0x1p20,
               (double)grown / 0x1p20);
    double allowed = 0.02 * (double)arenas + mesh_ranks(&comm->mesh) * 16 * 0x1p20;
    if (fabs((double)(grown - arenas)) <= allowed) return STATUS_OK;
    return status_set(STATUS_FAILED, "arenas have %lld bytes, memory grew by %lld", (long long)arenas,
                      (long long)grown);
}

static enum status check_growth(struct harness *harness, struct comm *comm) {
    enum { STEPS = 1000, MAX = 1 << 20 };
    int64_t before = own_memory(), allocations = fault_count(FAULT_ALLOCATE);
    for (int i = 0; i < STEPS; i++)
        TRY(engine_repeat_step(&harness->engine));
    int64_t grown = own_memory() - before;
    allocations = fault_count(FAULT_ALLOCATE) - allocations;
    if (comm->rank == 0) printf("%lld bytes more after %d steps\n", (long long)grown, STEPS);
    if (allocations > 0) return status_set(STATUS_FAILED, "%lld allocations in steps", (long long)allocations);
    if (grown > MAX) return status_set(STATUS_FAILED, "grown by %lld bytes in %d steps", (long long)grown, STEPS);
    return STATUS_OK;
}

/* ---- Partitions ---- */

/* Bytes of this rank's persistent buffers of one kind. */
static int64_t persistent_bytes(const struct harness *harness, enum buffer_kind kind) {
    const struct program *program = harness->executable->program;
    int64_t bytes = 0;
    for (size_t i = 0; i < program->buffers.count; i++) {
        const struct buffer *buffer = &program->buffers.items[i];
        if (buffer->kind == kind && buffer->persistent && buffer->original < 0) bytes += buffer->bytes;
    }
    return bytes;
}

/* A shard has its part of all elements and, of each tensor and shard, at most some blocks more: these begin at whole
 * blocks. */
static enum status check_persistent(const struct harness *harness, enum buffer_kind kind, int width) {
    const struct graph *graph = harness_graph(harness);
    int64_t whole = 0, tensors = 0, bytes = persistent_bytes(harness, kind);
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        bool counts = tensor->kind == (kind == BUFFER_PARAMETERS ? TENSOR_PARAMETER : TENSOR_STATE);
        if (counts) whole += shape_bytes(&tensor->shape);
        tensors += counts;
    }
    int64_t min = whole / width, max = min + 2 * tensors * SHARD_BLOCK * (int64_t)sizeof(float);
    if (bytes >= min && bytes <= max) return STATUS_OK;
    return status_set(STATUS_FAILED, "%s: homes of %lld bytes, in %d shards of %lld in all", buffer_kind_name(kind),
                      (long long)bytes, width, (long long)whole);
}

static enum status check_partition(struct harness *harness, struct comm *comm, const struct partition *partition,
                                   int64_t before) {
    char name[PARTITION_BYTES];
    enum status status = check_persistent(harness, BUFFER_PARAMETERS, partition_width(partition->parameters));
    if (status == STATUS_OK)
        status = check_persistent(harness, BUFFER_OPTIMIZER, partition_width(partition->optimizer));
    if (comm->rank == 0) printf("%s: ", partition_print(partition, &comm->mesh, name));
    TRY(comm_agree(comm, status));
    return check_size(harness, comm, before);
}

static struct harness_options options_of(const struct model_config *config, const struct policy *policy,
                                         struct comm *comm) {
    return (struct harness_options){.config = config,
                                    .purpose = MODEL_LOSS,
                                    .dtype = DTYPE_F32,
                                    .batch = 4,
                                    .sequence_length = 16,
                                    .micro_batch_sequences = 1,
                                    .micro_batches_per_wave = 1,
                                    .policy = *policy,
                                    .lanes = {1, 4},
                                    .threads = 1,
                                    .clip_norm = 1,
                                    .comm = comm,
                                    .seed = 1};
}

static void make_config(int64_t hidden, int64_t layers, struct model_config *out) {
    assert_int_equal(model_config_init("llama", out), STATUS_OK);
    out->hidden = hidden;
    out->layers = layers;
    out->heads = hidden / 64;
    out->kv_heads = out->head_dim = out->ffn = 0;
    out->vocab_size = OUTCOME_VOCAB;
    out->context = 64;
}

/* `lanes` of `micro_batches` micro-batches each, one a wave. */
struct shape_of_step {
    int lanes, micro_batches;
};

static enum status train_in_shards(struct comm *comm, const struct partition *partition, const struct policy *policy,
                                   struct shape_of_step step_shape) {
    struct model_config config;
    struct harness harness;
    make_config(512, 2, &config);
    struct harness_options options = options_of(&config, policy, comm);
    options.partition = *partition;
    options.lanes = (struct lane_shape){1, step_shape.lanes};
    options.batch = step_shape.lanes * step_shape.micro_batches;
    int64_t before = own_memory();
    harness_open(&options, &harness);
    for (int i = 0; i < 2; i++)
        TRY(step(&harness, i));
    TRY(check_partition(&harness, comm, partition, before));
    harness_close(&harness);
    return STATUS_OK;
}

/* By every partition of the ranks, or every other one. */
static enum status train_all_partitions(struct comm *comm, const struct policy *policy) {
    struct partition *list;
    int count;
    TRY(partition_list(&comm->mesh, &list, &count));
    enum status status = STATUS_OK;
    for (int i = 0; i < count && status == STATUS_OK; i += (int)unit_sweep(2, 1))
        status = comm_agree(comm, train_in_shards(comm, &list[i], policy, (struct shape_of_step){4, 1}));
    mem_free(list);
    return status;
}

/* A lane's unreduced sum waits on a tier for the other waves of its round; gradients and states are in shards. */
static enum status train_with_unreduced(struct comm *comm, enum tier tier) {
    const struct partition zero2 = {1, mesh_ranks(&comm->mesh), mesh_ranks(&comm->mesh)};
    const struct policy policy = {.micro_batches_per_wave = 1, .lookahead = 1, .gradients = tier};
    return train_in_shards(comm, &zero2, &policy, (struct shape_of_step){mesh_ranks(&comm->mesh), 4});
}

static enum status rank_body(struct comm *comm, const char *const arguments[RANK_JOB_ARGUMENTS]) {
    bool large = strcmp(arguments[0], "large") == 0;
    const struct policy *policy = strcmp(arguments[1], "tiered") == 0 ? &tiered : &plain;
    if (strcmp(arguments[0], "unreduced") == 0)
        return train_with_unreduced(comm, strcmp(arguments[1], "disk") == 0 ? TIER_DISK : TIER_HOST);
    if (strcmp(arguments[0], "partitions") == 0) return train_all_partitions(comm, policy);
    struct model_config config;
    make_config(large ? 1024 : 64, large ? 3 : 2, &config);
    struct harness_options options = options_of(&config, policy, comm);
    struct harness harness;
    int64_t before = own_memory();
    harness_open(&options, &harness);
    for (int i = 0; i < 3; i++)
        TRY(step(&harness, i));
    TRY(comm_agree(comm, large ? check_size(&harness, comm, before) : check_growth(&harness, comm)));
    harness_close(&harness);
    return STATUS_OK;
}

static void expect_ok(struct rank_job job) {
    if (rank_job_run(&job) != STATUS_OK) fail_msg("%s", status_message());
}

static void memory_is_as_planned(void **state) {
    (void)state;
    expect_ok((struct rank_job){2, 1, false, {"large", "plain"}});
    expect_ok((struct rank_job){4, 2, false, {"large", "tiered"}});
    if (unit_sweep(0, 1)) expect_ok((struct rank_job){2, 2, true, {"large", "plain"}});
}

static void every_partition_takes_the_planned_memory(void **state) {
    (void)state;
    expect_ok((struct rank_job){4, 2, false, {"partitions", "plain"}});
    expect_ok((struct rank_job){2, 1, false, {"partitions", "tiered"}});
    if (unit_sweep(0, 1)) expect_ok((struct rank_job){4, 1, false, {"partitions", "tiered"}});
}

static void unreduced_sums_take_the_planned_memory(void **state) {
    (void)state;
    expect_ok((struct rank_job){2, 1, false, {"unreduced", "host"}});
    expect_ok((struct rank_job){2, 2, true, {"unreduced", "disk"}});
}

static void nothing_grows(void **state) {
    (void)state;
    expect_ok((struct rank_job){2, 1, false, {"small", "plain"}});
    expect_ok((struct rank_job){2, 2, true, {"small", "tiered"}});
}

int main(int count, char **argument) {
    rank_job_enter(count, argument, rank_body);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_as_planned),
        cmocka_unit_test(every_partition_takes_the_planned_memory),
        cmocka_unit_test(unreduced_sums_take_the_planned_memory),
        cmocka_unit_test(nothing_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
