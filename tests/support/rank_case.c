#include "support/rank_case.h"

#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "collective/lane_tree.h"
#include "collective/schedule.h"
#include "compiler/program.h"
#include "support/outcome.h"
#include "support/policy_subject.h"
#include "support/unit.h"

/* ---- What is drawn ---- */

static const struct lane_shape lanes_of[] = {{1, 8}, {2, 4}, {1, 3}};
static const struct rank_job jobs[] = {{2, 1, false, {""}}, {2, 2, true, {""}}, {3, 1, true, {""}}, {4, 1, true, {""}},
                                       {4, 2, false, {""}}, {8, 2, true, {""}}, {8, 4, false, {""}}};
static const char *const mpis[] = {"openmpi", "mpich"};
enum { LANES = 3, BATCHES = 3, ROUNDS = 3, REDUCES = 2, CLIPS = 2, TIERS = 4, SCHEDULES = 4, MPIS = 2 };
enum { JOBS = sizeof jobs / sizeof *jobs };
static const int stages_of[] = {1, 2, 4};
static const char *const interleaved_spans[] = {"", "2 4 6", "1 2 3 4 5 6 7"};
enum { STAGES = sizeof stages_of / sizeof *stages_of };
static const char *const partitions[] = {"ddp", "zero1", "zero2", "zero3", "hpz", "other", "other"};
enum { PARTITIONS = sizeof partitions / sizeof *partitions };

int rank_axis_values(enum rank_axis axis) {
    static const int counts[RANK_AXES] = {
        [RANK_AXIS_lanes] = LANES,        [RANK_AXIS_batch] = BATCHES,        [RANK_AXIS_round] = ROUNDS,
        [RANK_AXIS_reduce] = REDUCES,     [RANK_AXIS_clip] = CLIPS,           [RANK_AXIS_tiers] = TIERS,
        [RANK_AXIS_schedule] = SCHEDULES, [RANK_AXIS_partition] = PARTITIONS, [RANK_AXIS_job] = JOBS,
        [RANK_AXIS_mpi] = MPIS,           [RANK_AXIS_stages] = STAGES};
    return axis == RANK_AXIS_subject ? (int)policy_subject_count : counts[axis];
}

static int draw(uint64_t seed, uint64_t number, enum rank_axis axis) {
    return (int)(random_u64(seed, RANDOM_TEST, (uint32_t)axis, number) % (uint64_t)rank_axis_values(axis));
}

struct rank_case rank_case_random(uint64_t seed, uint64_t number) {
    struct rank_case spec = {.seed = 1 + seed * 1000 + number};
    for (enum rank_axis axis = 0; axis < RANK_AXES; axis++)
        spec.value[axis] = draw(seed, number, axis);
    while (!rank_case_is_legal(&spec))
        spec.value[RANK_AXIS_job] = (spec.value[RANK_AXIS_job] + 1) % JOBS;
    return spec;
}

/* ---- Training ---- */

static const struct policy_subject *subject_of(const struct rank_case *spec) {
    return &policy_subjects[spec->value[RANK_AXIS_subject]];
}

bool rank_case_holds(const struct rank_case *spec, int ranks) {
    struct lane_tree tree;
    int stages = stages_of[spec->value[RANK_AXIS_stages]];
    assert_int_equal(lane_tree_of_shape(&lanes_of[spec->value[RANK_AXIS_lanes]], &tree), STATUS_OK);
    bool holds = ranks % stages == 0 && lane_tree_holds(&tree, ranks / stages);
    lane_tree_free(&tree);
    return holds;
}

bool rank_case_is_legal(const struct rank_case *spec) { return rank_case_holds(spec, rank_case_job(spec).ranks); }

struct rank_job rank_case_job(const struct rank_case *spec) {
    return jobs[spec->value[RANK_AXIS_job]];
}

int rank_case_mpi_value(const char *mpi) {
    for (int i = 0; i < MPIS; i++)
        if (strcmp(mpis[i], mpi) == 0) return i;
    fail_msg("%s is no MPI of the cases", mpi);
    return 0;
}

void rank_case_print(const struct rank_case *spec, char name[RANK_CASE_NAME_BYTES]) {
    static const char *const batches[] = {"full micro-batches", "a short last micro-batch",
                                          "fewer micro-batches than lanes"};
    static const char *const tiers[] = {"device", "host", "disk", "drawn tiers"};
    static const char *const schedules[] = {"kept", "computed again", "moved", "drawn schedule"};
    char lanes[LANE_SHAPE_BYTES];
    snprintf(name, RANK_CASE_NAME_BYTES, "%s, lanes %s, %s, round %d, %s sums, %s, %s, %s, %s, %d stages (seed %llu)",
             subject_of(spec)->name, lane_shape_print(&lanes_of[spec->value[RANK_AXIS_lanes]], lanes),
             batches[spec->value[RANK_AXIS_batch]], spec->value[RANK_AXIS_round],
             spec->value[RANK_AXIS_reduce] ? "bf16" : "fp32", spec->value[RANK_AXIS_clip] ? "clipped" : "not clipped",
             tiers[spec->value[RANK_AXIS_tiers]], schedules[spec->value[RANK_AXIS_schedule]],
             partitions[spec->value[RANK_AXIS_partition]], stages_of[spec->value[RANK_AXIS_stages]],
             (unsigned long long)spec->seed);
}

/* The same on all ranks. */
static struct partition partition_of(const struct rank_case *spec, const struct mesh *mesh) {
    const char *name = partitions[spec->value[RANK_AXIS_partition]];
    struct partition partition, *list;
    int count;
    if (strcmp(name, "other") != 0) {
        assert_int_equal(partition_parse(name, mesh, &partition), STATUS_OK);
        return partition;
    }
    assert_int_equal(partition_list(mesh, &list, &count), STATUS_OK);
    partition = list[random_u64(spec->seed, RANDOM_TEST, RANK_AXES, 0) % (uint64_t)count];
    mem_free(list);
    return partition;
}

static struct harness_options options_of(const struct rank_case *spec, struct comm *comm, struct model_config *config) {
    enum { MICRO_BATCH = 2 };
    struct lane_shape lanes = lanes_of[spec->value[RANK_AXIS_lanes]];
    int64_t count = lanes.nodes * lanes.per_node,
            batches[] = {3 * count * MICRO_BATCH, (2 * count - 1) * MICRO_BATCH - 1, 4};
    int64_t brief_batches[] = {count * MICRO_BATCH, count * MICRO_BATCH - 1, 4},
            *of = spec->brief ? brief_batches : batches;
    struct policy_way way = {.lanes = lanes,
                             .round_micro_batches = spec->value[RANK_AXIS_round],
                             .reduce_dtype = spec->value[RANK_AXIS_reduce] ? DTYPE_BF16 : DTYPE_F32,
                             .clip_norm = spec->value[RANK_AXIS_clip] ? POLICY_SUBJECT_CLIP_NORM : -1,
                             .batch = of[spec->value[RANK_AXIS_batch]],
                             .threads = 1,
                             .comm = comm};
    static const struct policy_traits tiers[] = {
        {.tiers = TIERS_DEVICE}, {.tiers = TIERS_HOST}, {.tiers = TIERS_DISK}, {.tiers = TIERS_DRAWN}};
    static const struct policy_traits schedules[] = {{.schedule = ACTIVATIONS_KEPT},
                                                     {.schedule = ACTIVATIONS_RECOMPUTED},
                                                     {.schedule = ACTIVATIONS_MOVED},
                                                     {.schedule = ACTIVATIONS_DRAWN}};
    way.policy_traits = (struct policy_traits){.tiers = tiers[spec->value[RANK_AXIS_tiers]].tiers,
                                               .schedule = schedules[spec->value[RANK_AXIS_schedule]].schedule};
    way.policy_seed = spec->seed;
    if (comm) way.stages = stages_of[spec->value[RANK_AXIS_stages]];
    if (comm && spec->seed & 2) way.spans = interleaved_spans[spec->value[RANK_AXIS_stages]];
    const struct rank_place place = {.mesh = comm ? comm->mesh : (struct mesh){1, 1},
                                     .rank = comm ? comm->rank : 0,
                                     .pipeline_parallel = way.stages};
    const struct mesh data = rank_place_data_mesh(&place);
    struct partition partition = partition_of(spec, &data);
    way.partition = &partition;
    way.flat = comm && spec->seed & 1;
    struct harness_options options = policy_options(subject_of(spec), &way, config);
    if (spec->brief) config->layers = 2;
    return options;
}

static struct comm_traffic add_traffic(struct comm_traffic a, struct comm_traffic b, int64_t times) {
    for (int axis = 0; axis < MESH_AXES; axis++) {
        a.sent[axis] += times * b.sent[axis];
        a.received[axis] += times * b.received[axis];
    }
    a.read += times * b.read;
    return a;
}

/* What all ranks together move in an all-reduce of B bytes: B for each rank but one, once summed, and then half as much
 * where sums are rounded and sent, and once gathered. Flat, P - m of them go between nodes of m ranks; else n - 1. */
static int64_t formula_bytes(const struct program *program, const struct program_collective *operation) {
    int64_t nodes = program->place.mesh.nodes, per_node = program->place.mesh.per_node, bytes = operation->bytes;
    int64_t all = nodes * per_node - 1, across = program->flat ? (nodes - 1) * per_node : nodes - 1;
    int64_t sent = operation->round_bf16 ? bytes / 2 : bytes, read = program->place.in_place ? bytes : sent;
    return across * (sent + bytes) + (all - across) * (read + bytes);
}

static enum status expect_traffic(struct comm *comm, const struct program *program, struct comm_traffic before,
                                  struct comm_traffic after) {
    struct comm_traffic own = add_traffic(after, before, -1), planned = collectives_traffic(program);
    struct comm_group all = comm_group_all(comm);
    struct comm_traffic each[64];
    int64_t moved = 0, formula = 0;
    bool full = true;
    for (size_t i = 0; i < program->collectives.count; i++) {
        const struct program_collective *operation = &program->collectives.items[i];
        formula += formula_bytes(program, operation);
        full &= !operation->empty && operation->kind == COMM_ALL_REDUCE;
    }
    if (memcmp(&own, &planned, sizeof own) != 0)
        return status_set(STATUS_FAILED, "rank %d sent %lld and read %lld bytes in a step; planned: %lld and %lld",
                          comm->rank, (long long)(own.sent[0] + own.sent[1]), (long long)own.read,
                          (long long)(planned.sent[0] + planned.sent[1]), (long long)planned.read);
    TRY(comm_all_gather(comm, &all, &own, sizeof own, each));
    for (int rank = 0; rank < all.count; rank++)
        moved += each[rank].sent[0] + each[rank].sent[1] + each[rank].read;
    if (!full || moved == formula) return STATUS_OK;
    return status_set(STATUS_FAILED, "%lld bytes are moved in a step; the formula has %lld", (long long)moved,
                      (long long)formula);
}

/* As engine_compute_step, which the first steps call, with a look at the bytes around the program alone. The step
 * before leaves its updates, which have collectives of parameters. */
static enum status check_traffic(struct harness *harness, struct comm *comm) {
    struct comm_traffic before, after;
    TRY(engine_repeat_step(&harness->engine));
    comm_read_traffic(comm, &before);
    TRY(engine_repeat_step(&harness->engine));
    comm_read_traffic(comm, &after);
    return expect_traffic(comm, harness->executable->program, before, after);
}

enum { BRIEF_STEPS = 2 };

enum status rank_case_train(const struct rank_case *spec, const struct backend *backend, struct comm *comm,
                            struct rank_result *out) {
    struct model_config config;
    struct harness_options options = options_of(spec, comm, &config);
    struct harness harness;
    options.backend = backend;
    struct step_numbers numbers;
    memset(out, 0, sizeof *out);
    harness_open(&options, &harness);
    out->on_device = harness.executable->program->place.on_device;
    for (int step = 0; step < (spec->brief ? BRIEF_STEPS : RANK_CASE_STEPS); step++) {
        outcome_set_batch(&harness, step);
        TRY(engine_compute_step(&harness.engine, step, 1e-3 / (1 + step), STATUS_OK, harness_count_targets(&harness),
                                &numbers));
        out->losses[step] = numbers.loss;
        out->norms[step] = numbers.grad_norm;
    }
    harness_finish(&harness);
    enum status status = engine_hash(&harness.engine, &out->weights);
    if (comm && status == STATUS_OK) status = check_traffic(&harness, comm);
    harness_close(&harness);
    return status;
}
