/* Partitions of model states never change the bits, and every parameter moves: all legal partitions for one family,
 * in jobs of 2, 4 and 8 ranks on 1, 2 and 4 nodes. BALLAST_TEST_MPI names the MPI. */
/* ctest: PROCESSORS 2 TIMEOUT 1800 LABELS long */
/* ctest-again: mpich slow BALLAST_TEST_MPI=mpich */
/* link: -Wl,--wrap=executable_prove */
#include <stdio.h>

#include "compiler/program.h"
#include "support/harness.h"
#include "support/moved.h"
#include "support/mpi_job.h"
#include "support/policy_subject.h"
#include "support/rank_references.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { STEPS = 10, SEED = 17 };

/* What is trained, and for how many steps. */
struct subject {
    struct policy_subject of;
    bool tied;
    int steps;
};
static const struct subject subjects[] = {
    {{.name = "llama", .family = "llama", .dtype = DTYPE_BF16}, false, STEPS},
    {{.name = "tied llama", .family = "llama", .dtype = DTYPE_F32}, true, 3},
    {{.name = "llama with frozen layers", .family = "llama", .dtype = DTYPE_BF16, .freeze = "*.0.*"}, false, 3},
    {{.name = "llama with adapters", .family = "llama", .dtype = DTYPE_F32, .lora = "2,4,all-linear"}, false, 3},
    {{.name = "llama with adapters on nf4",
      .family = "llama",
      .dtype = DTYPE_BF16,
      .lora = "2,4,all-linear",
      .quantize_base = WEIGHT_NF4},
     false,
     3},
    {{.name = "tied llama by Muon",
      .family = "llama",
      .dtype = DTYPE_BF16,
      .optimizer = UPDATE_MUON,
      .optimizer_dtype = STATE_INT8},
     true,
     5},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

/* ---- A planted fault ---- */

static bool skips; /* this rank leaves a part of its shard as it is */

enum status __real_executable_prove(struct executable *executable);
enum status __wrap_executable_prove(struct executable *executable);

/* Of the last update half of the elements. The program has been proved by then. */
enum status __wrap_executable_prove(struct executable *executable) {
    TRY(__real_executable_prove(executable));
    struct instruction *last = NULL;
    for (size_t i = 0; skips && i < executable->program->instructions.count; i++) {
        struct instruction *instruction = &executable->program->instructions.items[i];
        const struct node *node = instruction->node;
        if (node && node->phase == PHASE_UPDATE && node->out[0]->kind == TENSOR_PARAMETER) last = instruction;
    }
    if (last && last->elements == 0) last->elements = shape_elements(&last->node->out[0]->shape);
    if (last) last->elements /= 2;
    return STATUS_OK;
}

/* ---- A rank ---- */

struct result {
    double losses[STEPS], norms[STEPS];
    uint64_t weights;
    struct moved moved;
};

/* A run, of all ranks. Interleaved: streams' instructions in a random order, and buffers that are done with are
 * overwritten. */
struct run {
    const struct subject *subject;
    struct partition partition;
    bool flat, interleaved;
};

static enum status train(const struct run *run, struct comm *comm, struct result *out) {
    struct model_config config;
    struct harness harness;
    struct moved_start start;
    const struct policy_way way = {.lanes = {1, 8},
                                   .batch = 31,
                                   .round_micro_batches = 1,
                                   .threads = 1,
                                   .comm = comm,
                                   .partition = &run->partition,
                                   .flat = run->flat};
    struct harness_options options = policy_options(&run->subject->of, &way, &config);
    config.hidden = 48, config.heads = 3, config.head_dim = 16, config.ffn = 200, config.layers = 2;
    config.tied = run->subject->tied;
    memset(out, 0, sizeof *out);
    harness_open(&options, &harness);
    moved_begin(&harness, &start);
    for (int step = 0; step < run->subject->steps; step++) {
        outcome_set_batch(&harness, step);
        out->losses[step] = harness_step(&harness, 1e-3 / (1 + step), run->interleaved);
        out->norms[step] = ((const double *)harness_data(&harness, "clip"))[0];
    }
    harness_finish(&harness);
    enum status status = moved_end(&harness, &start, &out->moved);
    if (status == STATUS_OK) status = engine_hash(&harness.engine, &out->weights);
    harness_close(&harness);
    return status;
}

static enum status compare_moved(const char *name, const struct moved *one, const struct moved *mine) {
    for (int i = 0; i < one->count; i++)
        if (one->moved[i] != mine->moved[i])
            return status_set(STATUS_FAILED, "%s: parameter %d: %lld elements moved, on one rank %lld", name, i,
                              (long long)mine->moved[i], (long long)one->moved[i]);
    return STATUS_OK;
}

static enum status compare(struct comm *comm, const struct run *run, const struct result *one,
                           const struct result *mine) {
    char triple[PARTITION_BYTES], name[PARTITION_BYTES + 64];
    partition_print(&run->partition, &comm->mesh, triple);
    snprintf(name, sizeof name, "%s, %s, %s", run->subject->of.name, triple, run->flat ? "flat" : "hierarchical");
    TRY(compare_moved(name, &one->moved, &mine->moved));
    for (int step = 0; step < run->subject->steps; step++)
        if (memcmp(&mine->losses[step], &one->losses[step], sizeof(double)) != 0 ||
            memcmp(&mine->norms[step], &one->norms[step], sizeof(double)) != 0)
            return status_set(STATUS_FAILED, "%s: step %d: loss %.17g, norm %.17g; one rank has %.17g, %.17g", name,
                              step + 1, mine->losses[step], mine->norms[step], one->losses[step], one->norms[step]);
    if (mine->weights == one->weights) return STATUS_OK;
    return status_set(STATUS_FAILED, "%s: the weights differ from one rank's", name);
}

/* The i-th partition. In make test flat or hierarchical, with the first subject and another one; in make check both,
 * with all. */
static enum status train_partition(struct comm *comm, int i, const struct partition *partition,
                                   const struct result *ones) {
    bool all = unit_sweep(0, 1);
    for (int subject = 0; subject < SUBJECTS; subject++) {
        if (!all && subject > 0 && subject != 1 + i % (SUBJECTS - 1)) continue;
        for (int flat = 0; flat < 2; flat++) {
            const struct run run = {&subjects[subject], *partition, flat, flat};
            struct result mine;
            if ((!all || subject > 0) && flat != ((i + subject) & 1)) continue;
            enum status status = train(&run, comm, &mine);
            TRY(comm_agree(comm, status == STATUS_OK ? compare(comm, &run, &ones[subject], &mine) : status));
        }
    }
    return STATUS_OK;
}

static void read_references(const char *path, struct result ones[SUBJECTS]) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(ones, SUBJECTS * sizeof *ones, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

static enum status train_partitions(struct comm *comm, const char *path) {
    struct result ones[SUBJECTS];
    struct partition *list;
    int count;
    read_references(path, ones);
    TRY(partition_list(&comm->mesh, &list, &count));
    enum status status = STATUS_OK;
    for (int i = 0; i < count && status == STATUS_OK; i++)
        status = train_partition(comm, i, &list[i], ones);
    if (comm->rank == 0) printf("%d partitions on %d x %d ranks\n", count, comm->mesh.nodes, comm->mesh.per_node);
    mem_free(list);
    return status;
}

/* A subject by one partition, in which the last rank skips a part of its shard. */
static enum status train_with_skip(struct comm *comm, const char *path, int subject, int parameters) {
    struct result ones[SUBJECTS], mine;
    int ranks = mesh_ranks(&comm->mesh);
    const struct run run = {&subjects[subject], {parameters, ranks, ranks}, false, false};
    read_references(path, ones);
    skips = comm->rank == ranks - 1;
    enum status status = train(&run, comm, &mine);
    return comm_agree(comm, status == STATUS_OK ? compare(comm, &run, &ones[subject], &mine) : status);
}

static enum status rank_body(struct comm *comm, const char *const arguments[RANK_JOB_ARGUMENTS]) {
    if (arguments[1][0] == 's') return train_with_skip(comm, arguments[0], atoi(arguments[2]), arguments[1][1] - '0');
    if (strcmp(arguments[1], "cases") == 0) return rank_references_train(arguments[0], comm, NULL, false);
    return train_partitions(comm, arguments[0]);
}

/* On one rank every element of what is trained moves, and nothing of what is frozen. */
static void require_moved(const struct subject *subject, const struct moved *moved) {
    int trained = 0;
    for (int i = 0; i < moved->count; i++) {
        int64_t expected = moved->trained[i] ? moved->elements[i] : 0;
        if (moved->moved[i] != expected)
            fail_msg("%s: parameter %d: %lld of %lld elements moved", subject->of.name, i, (long long)moved->moved[i],
                     (long long)moved->elements[i]);
        trained += moved->trained[i];
    }
    bool frozen = subject->of.lora || subject->of.freeze;
    assert_true(trained > 0 && (trained < moved->count) == frozen);
}

static const char *write_references(const char *folder) {
    const char *path = temp_path(folder, "ones");
    struct result ones[SUBJECTS];
    for (int i = 0; i < SUBJECTS; i++) {
        assert_int_equal(train(&(struct run){&subjects[i], {1, 1, 1}, false, false}, NULL, &ones[i]), STATUS_OK);
        require_moved(&subjects[i], &ones[i].moved);
    }
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(ones, sizeof ones, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    return path;
}

static void all_partitions_have_one_ranks_bits(void **state) {
    static const struct rank_job jobs[] = {{2, 1, false, {""}}, {2, 2, true, {""}}, {4, 1, false, {""}},
                                           {4, 2, false, {""}}, {4, 4, true, {""}}, {8, 1, false, {""}},
                                           {8, 2, true, {""}},  {8, 4, false, {""}}};
    const char *path = write_references(*state);
    size_t count = unit_sweep(3, sizeof jobs / sizeof *jobs);
    for (size_t i = 0; i < count; i++) {
        struct rank_job job = count > 3 ? jobs[i] : jobs[i < 2 ? i : 3];
        job.arguments[0] = path;
        if (rank_job_run(&job) != STATUS_OK) fail_msg("%s", status_message());
    }
}

/* The bug class of a shard that nobody updates: what no rank moved is told, not only another loss. */
static void skipped_elements_are_found(void **state) {
    static const char *const cases[][2] = {{"s1", "1"}, {"s2", "1"}, {"s1", "3"}}; /* tied, tied, adapters */
    const char *path = write_references(*state);
    for (size_t i = 0; i < unit_sweep(2, 3); i++) {
        struct rank_job job = {2, 1, false, {path, cases[i][0], cases[i][1]}};
        assert_int_equal(rank_job_run(&job), STATUS_FAILED);
        if (!strstr(status_message(), "elements moved, on one rank")) fail_msg("%s", status_message());
    }
}

/* Random partitions under random policies, tiers and schedules, on lanes that ranks may hold unequally. */
static void random_plans_have_one_ranks_bits(void **state) {
    enum { MAX = 240 };
    static const struct rank_job jobs[] = {{2, 1, true, {""}}, {4, 2, false, {""}}, {3, 1, false, {""}}};
    size_t count = unit_sweep(4, MAX);
    struct rank_case cases[MAX];
    print_message("seed %d\n", SEED);
    for (uint64_t i = 0; i < count; i++) {
        cases[i] = rank_case_random(SEED, i);
        cases[i].value[RANK_AXIS_lanes] = i % 6 == 1 ? 2 : i % 2; /* the third are 3 lanes, on 2 and 3 ranks */
        cases[i].value[RANK_AXIS_partition] = rank_axis_values(RANK_AXIS_partition) - 1;
        cases[i].value[RANK_AXIS_stages] = i % 4 == 3;
    }
    const char *path = rank_references_write(*state, cases, count, NULL);
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        struct rank_job job = jobs[i];
        job.arguments[0] = path;
        job.arguments[1] = "cases";
        if (rank_job_run(&job) != STATUS_OK) fail_msg("%s", status_message());
    }
}

int main(int count, char **argument) {
    rank_job_enter(count, argument, rank_body);
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_partitions_have_one_ranks_bits),
                                       cmocka_unit_test(skipped_elements_are_found),
                                       cmocka_unit_test(random_plans_have_one_ranks_bits)};
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
