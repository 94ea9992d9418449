/* Executes collective operators of a group of ranks. Losses and gradients of a graph that is sharded over 2 and 4
 * ranks match those of the whole graph on one. The bits are the same under every policy, through windows and
 * messages. */
/* ctest: PROCESSORS 2 TIMEOUT 900 LABELS long */
/* ctest-again: mpich slow BALLAST_TEST_MPI=mpich */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/random.h"
#include "runtime/runner.h"
#include "support/collective_graph.h"
#include "support/deferred_backend.h"
#include "support/mpi_job.h"
#include "support/random_policy.h"
#include "support/unit.h"

enum { MICRO_BATCHES = 4, SEED = 18, TOKENS = COLLECTIVE_SEQUENCES * COLLECTIVE_LENGTH };

/* This rank's: the CPU's, or a device whose memory has no addresses for it. */
static const struct backend *backend = &backend_cpu;

/* ---- one program ---- */

struct job {
    struct plan plan;
    struct group_part part;
    struct executable *executable;
    struct arena arenas[TIER_COUNT];
    struct runner *runner;
    int64_t first_micro_batch;
};

static enum status open_arenas(struct job *job, struct comm *comm) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        const struct rank_place *place = &job->plan.place;
        struct arena_settings settings = {.memory = backend->memory, .folder = "/tmp", .channels = RUNNER_CHANNELS};
        if (comm && place->in_place && tier == place->tier) settings.shared_by = comm;
        TRY(arena_open(tier, job->executable->program->tier_bytes[tier], &settings, &job->arenas[tier]));
    }
    return STATUS_OK;
}

/* By the parameter's name and the element's number in the whole, so that all graphs have the same. */
static float weight_at(const struct tensor *parameter, int64_t element) {
    uint32_t name = 0;
    for (const char *c = parameter->name; *c; c++)
        name = name * 31 + (unsigned char)*c;
    double uniform = random_uniform(SEED, RANDOM_TEST, name, (uint64_t)element);
    bool norm = parameter->shape.rank == 1;
    return (float)(norm ? 0.5 + uniform : uniform - 0.5);
}

static void round_to(enum dtype dtype, float value, void *to, int64_t index) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (dtype == DTYPE_F32)
        ((float *)to)[index] = value;
    else
        ((uint16_t *)to)[index] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static enum status set_weights(struct job *job) {
    const struct graph *graph = job->executable->graph;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        bool master = tensor->kind == TENSOR_STATE && strcmp(tensor->role, "master") == 0;
        if (tensor->kind != TENSOR_PARAMETER && !master) continue;
        const struct tensor *parameter = master ? tensor->parameter : tensor;
        int64_t first, elements, size = dtype_bytes(tensor->shape.dtype);
        (void)runner_local_shard(job->runner, tensor, &first, &elements);
        void *values = mem_array((size_t)elements + 1, (size_t)size);
        if (!values) return STATUS_FAILED;
        for (int64_t e = 0, run; e < elements; e++)
            round_to(tensor->shape.dtype, weight_at(parameter, tensor_part_find(parameter, first + e, &run)), values,
                     e);
        enum status status = runner_write(job->runner, tensor, first * size, elements * size, values);
        mem_free(values);
        TRY(status);
    }
    return STATUS_OK;
}

static int32_t token_at(int64_t index) {
    return (int32_t)(random_u64(SEED, RANDOM_TEST, 1, (uint64_t)index) % COLLECTIVE_VOCABULARY);
}

static void set_inputs(struct job *job, int64_t micro_batches) {
    const struct graph *graph = job->executable->graph;
    int32_t *tokens = runner_data(job->runner, graph_find(graph, "tokens"));
    int32_t *targets = runner_data(job->runner, graph_find(graph, "targets"));
    for (int64_t i = 0; i < micro_batches * TOKENS; i++) {
        tokens[i] = token_at(job->first_micro_batch * TOKENS + i);
        targets[i] = token_at(job->first_micro_batch * TOKENS + i + 1);
    }
}

/* comm NULL: the whole graph, on one rank. */
static enum status job_open(const struct plan *plan, enum dtype dtype, struct group_part part, struct comm *comm,
                            struct job *job) {
    struct graph *graph = collective_graph_build(dtype, part);
    int64_t micro_batches = MICRO_BATCHES / rank_place_data(&plan->place);
    *job = (struct job){
        .plan = *plan, .part = part, .first_micro_batch = micro_batches * rank_place_data_rank(&plan->place)};
    backend->set_threads(plan->threads);
    TRY(executable_create(backend, graph, plan, NULL, &job->executable));
    TRY(executable_prove(job->executable));
    TRY(open_arenas(job, comm));
    TRY(runner_create(job->executable, job->arenas, comm, &job->runner));
    TRY(set_weights(job));
    set_inputs(job, micro_batches);
    return STATUS_OK;
}

static void job_close(struct job *job) {
    runner_free(job->runner);
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        arena_close(&job->arenas[tier]);
    executable_free(job->executable);
}

/* No weight moves, so that every step has the same gradients. */
static enum status job_step(struct job *job) {
    const double scalars[SCALAR_COUNT] = {[SCALAR_LOSS_SCALE] = 1.0 / (MICRO_BATCHES * TOKENS),
                                          [SCALAR_BIAS_CORRECTION] = 1,
                                          [SCALAR_BIAS_CORRECTION_SQ] = 1,
                                          [SCALAR_STEP] = 1};
    TRY(runner_step(job->runner, scalars));
    return runner_finish(job->runner);
}

static const struct tensor *average_of(const struct graph *graph, const char *parameter) {
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind == TENSOR_STATE && strcmp(tensor->role, "exp_avg") == 0 &&
            strcmp(tensor->parameter->name, parameter) == 0)
            return tensor;
    }
    return NULL;
}

/* The gradient of a parameter times 1 - beta1 after one step: the elements that this rank has. In fresh memory. */
static float *read_average(const struct job *job, const char *parameter, int64_t *first, int64_t *elements) {
    const struct tensor *tensor = average_of(job->executable->graph, parameter);
    (void)runner_local_shard(job->runner, tensor, first, elements);
    float *values = mem_array((size_t)*elements + 1, sizeof *values);
    int64_t bytes = *elements * (int64_t)sizeof *values;
    if (values && runner_read(job->runner, tensor, *first * (int64_t)sizeof *values, bytes, values) != STATUS_OK)
        fail_msg("%s", status_message());
    return values;
}

/* ---- against one rank ---- */

static enum status compare(const char *what, double found, double expected, double scale, double tolerance) {
    if (fabs(found - expected) <= tolerance * scale) return STATUS_OK;
    return status_set(STATUS_FAILED, "%s: %.9g, on one rank %.9g, of at most %.9g", what, found, expected, scale);
}

static enum status compare_gradient(const struct job *job, const struct job *whole, const char *name,
                                    double tolerance) {
    int64_t first, elements, all_first, all_elements, run;
    float *own = read_average(job, name, &first, &elements);
    float *all = read_average(whole, name, &all_first, &all_elements);
    const struct tensor *parameter = graph_find(job->executable->graph, name);
    double largest = 0;
    enum status status = own && all ? STATUS_OK : STATUS_FAILED;
    for (int64_t e = 0; e < all_elements; e++)
        largest = fmax(largest, fabs((double)all[e]));
    for (int64_t e = 0; e < elements && status == STATUS_OK; e++)
        status = compare(name, (double)own[e], (double)all[tensor_part_find(parameter, first + e, &run)], largest,
                         tolerance);
    if (status == STATUS_OK && !(largest > 1e-6))
        status = status_set(STATUS_FAILED, "%s: gradients of %g at most", name, largest);
    mem_free(own);
    mem_free(all);
    return status;
}

/* Of all gradients, and what they are multiplied by. */
static enum status compare_norms(const struct job *job, const struct job *whole, double tolerance) {
    const double *own = runner_data(job->runner, graph_find(job->executable->graph, "clip"));
    const double *all = runner_data(whole->runner, graph_find(whole->executable->graph, "clip"));
    if (!(all[0] > COLLECTIVE_CLIP)) return status_set(STATUS_FAILED, "gradients of norm %g are not clipped", all[0]);
    TRY(compare("norm", own[0], all[0], all[0], tolerance));
    return compare("clip factor", own[1], all[1], all[1], tolerance);
}

static enum status compare_losses(const struct job *job, const struct job *whole, double tolerance) {
    const double *own = runner_data(job->runner, graph_find(job->executable->graph, "loss"));
    const double *all = runner_data(whole->runner, graph_find(whole->executable->graph, "loss"));
    double expected = all[rank_place_data_rank(&job->plan.place)];
    return compare("loss", own[0], expected, fabs(expected), tolerance);
}

static enum status compare_with_whole(const struct job *job, enum dtype dtype) {
    const double tolerance = dtype == DTYPE_F32 ? 1e-5 : 4e-2;
    const struct rank_place alone = {.rank = 0};
    struct plan plan = job->plan;
    struct job whole;
    plan.place = alone;
    plan.recipe.tensor_parallel = 1;
    plan.policy = (struct policy){.micro_batches_per_wave = 1};
    TRY(job_open(&plan, dtype, (struct group_part){.parts = 1}, NULL, &whole));
    TRY(job_step(&whole));
    TRY(compare_losses(job, &whole, tolerance));
    TRY(compare_norms(job, &whole, tolerance));
    const struct graph *graph = whole.executable->graph;
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (graph->tensors.items[i]->kind == TENSOR_PARAMETER)
            TRY(compare_gradient(job, &whole, graph->tensors.items[i]->name, tolerance));
    job_close(&whole);
    return STATUS_OK;
}

/* ---- under other policies ---- */

static const struct policy policies[] = {
    {.micro_batches_per_wave = 1},
    {.micro_batches_per_wave = 1, .flat = true},
    {.micro_batches_per_wave = 2},
    {.micro_batches_per_wave = 1, .schedule = "f0-5 b5-4 f3 b3 f1-2 b2 f1 b1-0"},
    {.micro_batches_per_wave = 2, .schedule = "f0-5 h1-3 b5-0"},
    {.micro_batches_per_wave = 1, .schedule = "f0-5 d1-2 b5 f4 b4-0"},
    {.micro_batches_per_wave = 1, .buffers = 3, .lookahead = 1, .gradients = TIER_HOST, .optimizer = TIER_DISK},
};
enum { POLICIES = sizeof policies / sizeof *policies, RANDOM_POLICIES = 6 };

/* The fixed ones, then random ones with every partition of the data ranks in turn. */
static struct policy policy_of(const struct job *plain, int index) {
    static const struct partition partitions[] = {{1, 1, 1}, {1, 1, 2}, {1, 2, 2}, {2, 2, 2}};
    if (index < POLICIES) return policies[index];
    const struct rank_place *place = &plain->plan.place;
    const struct graph *graph = plain->executable->graph;
    int64_t micro_batches = MICRO_BATCHES / rank_place_data(place);
    struct policy policy = random_policy(graph, micro_batches, NULL, (uint64_t)(SEED + index));
    if (rank_place_data(place) == 2) policy_cut(graph, &partitions[index % 4], &policy);
    return policy;
}

/* Every element that both have is the same, to the bit. */
static enum status compare_bits(const struct job *job, const struct job *other, int policy) {
    const struct graph *graph = job->executable->graph;
    const double *own = runner_data(job->runner, graph_find(graph, "loss"));
    const double *loss = runner_data(other->runner, graph_find(other->executable->graph, "loss"));
    if (memcmp(own, loss, sizeof *own) != 0)
        return status_set(STATUS_FAILED, "policy %d: loss %.17g, by the plain one %.17g", policy, *loss, *own);
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        int64_t first, elements, other_first, other_elements;
        if (tensor->kind != TENSOR_PARAMETER) continue;
        float *a = read_average(job, tensor->name, &first, &elements);
        float *b = read_average(other, tensor->name, &other_first, &other_elements);
        bool same = a && b && memcmp(a + other_first, b, (size_t)other_elements * sizeof *b) == 0;
        mem_free(a);
        mem_free(b);
        if (!same) return status_set(STATUS_FAILED, "policy %d: other bits of %s", policy, tensor->name);
    }
    return STATUS_OK;
}

/* What every rank has all of has the same bits on all of them: else they would drift apart. */
static enum status compare_replicas(const struct job *job, struct comm *comm) {
    const struct graph *graph = job->executable->graph;
    const struct comm_group group = rank_place_tensor_group(&job->plan.place);
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        int64_t first, elements;
        if (tensor->kind != TENSOR_PARAMETER || tensor->part) continue;
        float *own = read_average(job, tensor->name, &first, &elements);
        float *all = mem_array((size_t)(elements * group.count), sizeof *all);
        TRY(own && all ? STATUS_OK : STATUS_FAILED);
        TRY(comm_all_gather(comm, &group, own, (size_t)elements * sizeof *own, all));
        for (int r = 0; r < group.count; r++)
            if (memcmp(all + r * elements, own, (size_t)elements * sizeof *own) != 0)
                return status_set(STATUS_FAILED, "%s: other bits on rank %d of the group", tensor->name, r);
        mem_free(own);
        mem_free(all);
    }
    return STATUS_OK;
}

/* Steps have all their memory from the start. */
static enum status check_steps(struct job *job) {
    int64_t allocations = fault_count(FAULT_ALLOCATE);
    for (int i = 0; i < 3; i++)
        TRY(job_step(job));
    allocations = fault_count(FAULT_ALLOCATE) - allocations;
    return allocations == 0 ? STATUS_OK
                            : status_set(STATUS_FAILED, "%lld allocations in steps", (long long)allocations);
}

static enum status run_policy(const struct job *plain, enum dtype dtype, struct comm *comm, int index,
                              const struct policy *policy, bool in_place) {
    struct plan plan = plain->plan;
    struct job job;
    plan.policy = *policy;
    plan.place.in_place &= in_place;
    TRY(job_open(&plan, dtype, plain->part, comm, &job));
    TRY(job_step(&job));
    TRY(compare_bits(plain, &job, index));
    job_close(&job);
    return STATUS_OK;
}

static enum status run_all(struct comm *comm, int tensor, enum dtype dtype, bool device) {
    const struct rank_place place = {.mesh = comm->mesh,
                                     .rank = comm->rank,
                                     .tensor_parallel = tensor,
                                     .in_place = !device && comm->mesh.per_node > 1 && comm->shares_memory,
                                     .message_bytes = comm->message_bytes,
                                     .tier = device ? TIER_HOST : TIER_DEVICE};
    const struct group_part part = {.parts = tensor, .position = rank_place_tensor_rank(&place)};
    struct graph *graph = collective_graph_build(dtype, part);
    const struct plan plan = collective_plan(graph, &place, MICRO_BATCHES);
    graph_free(graph);
    struct job plain;
    TRY(job_open(&plan, dtype, part, comm, &plain));
    TRY(job_step(&plain));
    TRY(comm_agree(comm, compare_with_whole(&plain, dtype)));
    TRY(comm_agree(comm, compare_replicas(&plain, comm)));
    for (int p = 0; p < POLICIES + RANDOM_POLICIES; p++) {
        const struct policy policy = policy_of(&plain, p);
        TRY(comm_agree(comm, run_policy(&plain, dtype, comm, p, &policy, p % 2 == 0)));
    }
    if (!device) TRY(comm_agree(comm, check_steps(&plain))); /* the device of tests allocates for its queues */
    job_close(&plain);
    return STATUS_OK;
}

static enum status rank_body(struct comm *comm, const char *const arguments[RANK_JOB_ARGUMENTS]) {
    bool device = strcmp(arguments[2], "device") == 0;
    if (device) backend = deferred_begin((uint64_t)comm->rank);
    enum status status = run_all(comm, atoi(arguments[0]), dtype_find(arguments[1]), device);
    if (device) deferred_end();
    return status;
}

/* ---- the tests ---- */

static void expect_ok(struct rank_job job) {
    if (rank_job_run(&job) != STATUS_OK) fail_msg("%s", status_message());
}

static void two_ranks_have_one_ranks_gradients(void **state) {
    (void)state;
    expect_ok((struct rank_job){2, 1, false, {"2", "fp32"}});
    expect_ok((struct rank_job){2, 2, true, {"2", "bf16"}});
}

static void four_ranks_have_one_ranks_gradients(void **state) {
    (void)state;
    expect_ok((struct rank_job){4, 1, false, {"4", "fp32"}});
    expect_ok((struct rank_job){4, 2, false, {"4", "bf16"}});
}

static void groups_stand_beside_data_ranks(void **state) {
    (void)state;
    expect_ok((struct rank_job){4, 2, false, {"2", "fp32"}});
    expect_ok((struct rank_job){4, 1, true, {"2", "bf16"}});
}

/* What ranks communicate goes by way of the host's memory. */
static void devices_have_one_ranks_gradients(void **state) {
    (void)state;
    expect_ok((struct rank_job){2, 1, false, {"2", "fp32", "device"}});
    if (unit_sweep(0, 1)) expect_ok((struct rank_job){4, 1, false, {"2", "bf16", "device"}});
}

int main(int count, char **argument) {
    rank_job_enter(count, argument, rank_body);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_have_one_ranks_gradients),
        cmocka_unit_test(four_ranks_have_one_ranks_gradients),
        cmocka_unit_test(groups_stand_beside_data_ranks),
        cmocka_unit_test(devices_have_one_ranks_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
