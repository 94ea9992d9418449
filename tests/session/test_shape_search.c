/* The search over shapes of ranks is as good as each shape by itself, and as compiling and simulating all policies
 * of all shapes. Devices are described, so nothing is measured. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/terminal.h"
#include "profile/described_device.h"
#include "search/search.h"
#include "search/space.h"
#include "session/candidate.h"
#include "session/plan.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

/* A model and a machine that nobody has. */
struct subject {
    char model[512], cluster[512];
    struct plan_options options;
    struct train_options training;
};

struct planned {
    struct session session;
    struct session_plan plan;
};

static uint64_t draw(uint64_t *state, uint64_t below) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

/* The preset's file with other numbers: devices slow enough for small models to be work. */
static void write_cluster(const char *path, double flops_per_s, double link_bytes_per_s, double hop_s) {
    json_t *object;
    expect_status(json_read_object(BALLAST_SOURCE "/clusters/h100x8.json", 1 << 20, &object), STATUS_OK, NULL);
    json_t *device = json_array_get(json_object_get(object, "devices"), 0), *limits = json_object_get(device, "limits");
    json_t *network = json_object_get(object, "network");
    json_object_set_new(limits, "bf16_flops_per_s", json_real(flops_per_s));
    json_object_set_new(limits, "fp32_flops_per_s", json_real(flops_per_s));
    json_object_set_new(network, "link_bytes_per_s", json_real(link_bytes_per_s));
    json_object_set_new(network, "node_bytes_per_s", json_real(link_bytes_per_s / 4));
    json_object_set_new(network, "hop_s", json_real(hop_s));
    expect_status(json_write(path, object), STATUS_OK, NULL);
    json_decref(object);
}

static void write_model(const char *folder, int layers, int heads, int hidden, int vocabulary) {
    char path[600], text[600];
    (void)mkdir(folder, 0700);
    snprintf(path, sizeof path, "%s/config.json", folder);
    snprintf(text, sizeof text,
             "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": %d, \"n_embd\": %d, "
             "\"n_head\": %d, \"n_positions\": 64, \"n_ctx\": 64, \"vocab_size\": %d, \"layer_norm_epsilon\": 1e-5, "
             "\"activation_function\": \"gelu_new\", \"resid_pdrop\": 0.0, \"embd_pdrop\": 0.0, \"attn_pdrop\": 0.0}",
             layers, hidden, heads, vocabulary);
    json_t *object = json_loads(text, 0, NULL);
    assert_non_null(object);
    expect_status(json_write(path, object), STATUS_OK, NULL);
    json_decref(object);
}

static void subject_make(const char *folder, struct subject *out) {
    *out = (struct subject){.model = ""};
    snprintf(out->model, sizeof out->model, "%s/model", folder);
    snprintf(out->cluster, sizeof out->cluster, "%s/cluster.json", folder);
    plan_options_init(&out->options);
    train_options_init(&out->training);
    out->options.outline = true;
}

static void describe(struct subject *subject, double flops_per_s, double link_bytes_per_s, double hop_s) {
    struct cluster cluster;
    write_cluster(subject->cluster, flops_per_s, link_bytes_per_s, hop_s);
    expect_status(cluster_read(subject->cluster, &cluster), STATUS_OK, NULL);
    SETTINGS_GIVE(&subject->options, cluster_path, subject->cluster);
    const struct backend *backend;
    expect_status(described_device_find(subject->cluster, &cluster, &backend_cpu, &backend), STATUS_OK, NULL);
    SETTINGS_GIVE(&subject->options, backend, backend);
    SETTINGS_GIVE(&subject->options, dtype, DTYPE_BF16);
    SETTINGS_GIVE(&subject->options, threads, 1);
}

/* How ranks cut the tensors that they share. */
enum cut { CUT_MEGATRON, CUT_SEQUENCE, CUT_SOLVER, CUTS, CUT_OPEN };

/* 0: open. */
static enum status plan_shape(const struct subject *subject, int64_t tensor, int64_t stages, enum cut cut,
                              struct planned *out) {
    struct plan_options options = subject->options;
    if (cut != CUT_OPEN) {
        SETTINGS_GIVE(&options, sequence_parallel, cut == CUT_SEQUENCE);
        SETTINGS_GIVE(&options, layout, cut == CUT_SOLVER ? TENSOR_LAYOUT_SOLVER : TENSOR_LAYOUT_MEGATRON);
    }
    SETTINGS_GIVE(&options, tensor_parallel, (int)tensor);
    SETTINGS_GIVE(&options, pipeline_parallel, stages);
    return session_begin(subject->model, PROGRAMS_TO_TRAIN, &options, &subject->training, &out->session, &out->plan);
}

static void drop(struct planned *planned) {
    session_plan_free(&planned->plan);
    session_close(&planned->session);
}

static const struct rank_shape *chosen_shape(const struct session_plan *plan) {
    for (size_t i = 0; i < plan->shapes.list.count; i++) {
        const struct rank_shape *shape = &plan->shapes.list.items[i];
        if (rank_shape_is_of(shape, &plan->chosen)) return shape;
    }
    fail_msg("the plan has none of its shapes");
    return NULL;
}

/* ---- brute force ---- */

static double best_of_classes(const struct search_input *input, struct space *space) {
    struct candidate_list candidates;
    double best_s = INFINITY;
    for (size_t f = 0; f < space->policy_classes.count; f++) {
        const struct policy_class *policy_class = &space->policy_classes.items[f];
        space_candidates(space, policy_class, &candidates);
        for (int m = 0; m < candidates.count; m++) {
            struct trial trial = {.bound_s = 0};
            space_policy(space, policy_class, &candidates.items[m], &trial.policy);
            expect_status(policy_measure(input, 0, &trial, NULL), STATUS_OK, NULL);
            if (trial.step_s > 0) best_s = fmin(best_s, trial.step_s);
        }
    }
    return best_s;
}

static double best_of_input(const struct search_input *input) {
    struct space space;
    assert_int_equal(space_create(input, &space), STATUS_OK);
    for (int32_t c = 0; c < (int32_t)space.placements.count; c++)
        assert_int_equal(space_list_placement(&space, c), STATUS_OK);
    double best_s = best_of_classes(input, &space);
    space_free(&space);
    return best_s;
}

/* Every policy of every legal partition, for a plan's shape. */
static double best_of_shape(struct session_plan *plan) {
    const struct executable *step = plan->programs.of[PROGRAM_STEP];
    expect_status(session_plan_measure(plan), STATUS_OK, NULL);
    struct search_input input = {.graph = step->graph,
                                 .workspace = &step->workspace,
                                 .costs = &plan->costs,
                                 .recipe = &plan->chosen.recipe,
                                 .place = plan->chosen.place,
                                 .spans = plan->chosen.policy.spans,
                                 .micro_batches_per_wave = 1};
    memcpy(input.capacity_bytes, plan->session->machine.capacity_bytes, sizeof input.capacity_bytes);
    const struct mesh data = rank_place_data_mesh(&input.place);
    struct partition *list = NULL;
    assert_int_equal(partition_list(&data, &list, &input.partition_count), STATUS_OK);
    double best_s = INFINITY;
    for (int i = 0; i < input.partition_count; i++) {
        struct plan own = plan->chosen;
        struct search_input one = input;
        own.policy.partition = list[i];
        if (plan_check(&own) != STATUS_OK) continue;
        one.partitions = &list[i];
        one.partition_count = 1;
        best_s = fmin(best_s, best_of_input(&one));
    }
    mem_free(list);
    return best_s;
}

/* ---- cases ---- */

/* What every shape takes by itself, the best that its own search finds and the best that there is. */
struct alone {
    double searched_s, best_s;
    int planned[CUTS];
};

static void try_one(const struct subject *subject, int tensor, int stages, enum cut cut, bool brute,
                    struct alone *alone) {
    struct planned planned;
    struct trial measured;
    enum status status = plan_shape(subject, tensor, stages, cut, &planned);
    if (status == STATUS_BAD_INPUT) return;
    expect_status(status, STATUS_OK, NULL);
    expect_status(session_plan_measure(&planned.plan), STATUS_OK, NULL);
    struct plan_candidate evaluated =
        candidate_begin(planned.plan.session, &planned.plan.request, &planned.plan.chosen);
    evaluated.programs = planned.plan.programs;
    evaluated.costs = planned.plan.costs;
    expect_status(candidate_simulate(&evaluated, &measured), STATUS_OK, NULL);
    if (measured.step_s > 0) alone->searched_s = fmin(alone->searched_s, measured.step_s);
    if (brute) alone->best_s = fmin(alone->best_s, best_of_shape(&planned.plan));
    alone->planned[cut]++;
    drop(&planned);
}

static struct alone try_each(const struct subject *subject, int ranks, bool brute) {
    struct alone alone = {INFINITY, INFINITY, {0}};
    for (int tensor = 1; tensor <= ranks; tensor++)
        for (int stages = 1; stages <= ranks; stages++)
            for (enum cut cut = 0; cut < (tensor > 1 ? CUTS : CUT_SEQUENCE); cut++)
                if (ranks % (tensor * stages) == 0) try_one(subject, tensor, stages, cut, brute, &alone);
    return alone;
}

/* Parts of what ranks take that have whole tensors, all blocks and all states. */
static void limit_memory(struct subject *subject, double device, double host) {
    struct planned whole;
    SETTINGS_GIVE(&subject->options, partition, "ddp");
    expect_status(plan_shape(subject, 1, 1, CUT_OPEN, &whole), STATUS_OK, NULL);
    double bytes = (double)whole.plan.programs.tier_bytes[TIER_DEVICE];
    drop(&whole);
    SETTINGS_DROP(&subject->options, partition);
    SETTINGS_GIVE(&subject->options.memory, device_bytes, (int64_t)(device * bytes));
    if (host > 0) SETTINGS_GIVE(&subject->options.memory, host_bytes, (int64_t)(host * bytes));
}

/* Machines from slow to fast links, memory from little to plenty. */
static void subject_draw(const char *folder, uint64_t seed, bool small, struct subject *out) {
    static const struct mesh meshes[] = {{1, 2}, {2, 1}, {1, 4}, {2, 2}};
    uint64_t state = seed;
    subject_make(folder, out);
    (void)draw(&state, 2);
    write_model(out->model, small ? 1 : 2, 4, 16 << draw(&state, 2), 61);
    describe(out, 1e9 * (double)(1 + draw(&state, 20)), 1e7 * pow(10, (double)draw(&state, 4)),
             1e-7 * pow(10, (double)draw(&state, 3)));
    SETTINGS_GIVE(&out->options, batch, 1 << draw(&state, 3));
    SETTINGS_GIVE(&out->options, sequence_length, 16);
    SETTINGS_GIVE(&out->options, micro_batch_sequences, 1);
    out->options.planned = meshes[draw(&state, small ? 2 : 4)];
    limit_memory(out, (small ? 1.0 : 0.8) + 0.1 * (double)draw(&state, 6), small ? 0 : 0.5 * (double)draw(&state, 3));
    if (small) SETTINGS_GIVE(&out->options, micro_batches_per_wave, 1);
}

static struct alone check_seed(const char *folder, uint64_t seed, bool brute) {
    struct subject subject;
    struct planned joint;
    subject_draw(folder, seed, brute, &subject);
    struct mesh mesh = subject.options.planned;
    struct alone alone = try_each(&subject, mesh_ranks(&mesh), brute);
    expect_status(plan_shape(&subject, 0, 0, CUT_OPEN, &joint), STATUS_OK, NULL);
    const struct rank_shape *chosen = chosen_shape(&joint.plan);
    double step_s = chosen->outcome == SHAPE_PLANNED ? chosen->step_s : INFINITY;
    print_message("seed %llu, %dx%d ranks: tensor %d%s%s, stages %d, %g s; alone %g s, all %g s\n",
                  (unsigned long long)seed, mesh.nodes, mesh.per_node,
                  recipe_tensor_parallel(&joint.plan.chosen.recipe),
                  joint.plan.chosen.recipe.sequence_parallel ? " by positions" : "",
                  joint.plan.chosen.recipe.layout == TENSOR_LAYOUT_SOLVER ? " by the solver" : "",
                  rank_place_pipeline_parallel(&joint.plan.chosen.place), step_s, alone.searched_s, alone.best_s);
    assert_true(step_s <= alone.searched_s);
    /* A step that fits as it is is not searched for a better policy, and a search that ran out of tries proves nothing.
     */
    double tolerance = joint.plan.search.proved ? 1e-9 : 1e-2;
    double min_s = joint.plan.shapes.min_s;
    assert_true(min_s <= step_s && min_s <= alone.best_s * (1 + 1e-9));
    print_message("  by bounds at least %g s\n", min_s);
    /* Policies near the best one (search/proposals.h), which may be faster, are not among all. */
    if (brute) assert_true(isinf(alone.best_s) ? isinf(step_s) : step_s <= alone.best_s * (1 + tolerance));
    drop(&joint);
    return alone;
}

/* Shapes of every cut are among those. */
static void no_shape_alone_is_better(void **state) {
    int planned[CUTS] = {0};
    for (uint64_t seed = 1; seed <= unit_sweep(4, 60); seed++) {
        struct alone alone = check_seed(*state, seed, false);
        for (enum cut cut = 0; cut < CUTS; cut++)
            planned[cut] += alone.planned[cut];
    }
    for (enum cut cut = 0; cut < CUTS; cut++)
        assert_true(planned[cut] > 0);
}

static void trying_all_policies_of_all_shapes_finds_none_better(void **state) {
    for (uint64_t seed = 101; seed <= 100 + unit_sweep(3, 20); seed++)
        check_seed(*state, seed, true);
}

/* ---- models and ranks that fit badly ---- */

static void expect_message(enum status status, const char *what) {
    bool reported = status == STATUS_OK || status == STATUS_BAD_INPUT || status == STATUS_NO_FIT;
    if (!reported || (status != STATUS_OK && !status_message()[0])) fail_msg("%s: %s", what, status_message());
    if (status != STATUS_OK) print_message("%s: %s\n", what, status_message());
}

static void check_odd(const char *folder, struct mesh mesh, int heads, int hidden, int vocabulary, int64_t batch,
                      int64_t length) {
    struct subject subject;
    struct planned planned;
    char what[128];
    subject_make(folder, &subject);
    write_model(subject.model, 1, heads, hidden, vocabulary);
    describe(&subject, 1e10, 1e9, 1e-6);
    SETTINGS_GIVE(&subject.options, batch, batch);
    SETTINGS_GIVE(&subject.options, sequence_length, length);
    subject.options.planned = mesh;
    snprintf(what, sizeof what, "%dx%d ranks, %d heads, hidden %d, vocabulary %d, batch %d", mesh.nodes, mesh.per_node,
             heads, hidden, vocabulary, (int)batch);
    enum status status = plan_shape(&subject, 0, 0, CUT_OPEN, &planned);
    expect_message(status, what);
    if (status != STATUS_OK) return;
    expect_message(session_plan_check_memory(&planned.plan), what);
    for (size_t i = 0; i < planned.plan.shapes.list.count; i++) {
        const struct rank_shape *shape = &planned.plan.shapes.list.items[i];
        assert_true(shape->outcome != SHAPE_OPEN);
        assert_true(shape->outcome != SHAPE_REFUSED || shape->reason[0]);
    }
    drop(&planned);
}

static void odd_models_and_ranks_get_a_plan_or_a_reason(void **state) {
    static const struct mesh meshes[] = {{1, 1}, {1, 2}, {1, 3}, {1, 8}, {2, 4}};
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        check_odd(*state, meshes[m], 12, 48, 61, 8, 8);
        check_odd(*state, meshes[m], 12, 48, 127, 1, 8);
        check_odd(*state, meshes[m], 1, 2, 2, 1, 1);
        check_odd(*state, meshes[m], 3, 21, 1, 2, 3);
    }
}

static void twelve_heads_are_not_cut_in_eight(void **state) {
    struct subject subject;
    struct planned planned;
    subject_make(*state, &subject);
    write_model(subject.model, 2, 12, 48, 61);
    describe(&subject, 1e10, 1e9, 1e-6);
    SETTINGS_GIVE(&subject.options, sequence_length, 8);
    subject.options.planned = (struct mesh){1, 8};
    expect_status(plan_shape(&subject, 0, 0, CUT_OPEN, &planned), STATUS_OK, NULL);
    /* The solver need not cut heads. */
    const struct rank_shape *last = &planned.plan.shapes.list.items[planned.plan.shapes.list.count - CUTS];
    assert_int_equal(recipe_tensor_parallel(&last->plan->recipe), 8);
    assert_int_equal(last->outcome, SHAPE_REFUSED);
    assert_non_null(strstr(last->reason, "12 heads"));
    drop(&planned);
}

int main(void) {
    log_set_quiet(true);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_shape_alone_is_better),
        cmocka_unit_test(odd_models_and_ranks_get_a_plan_or_a_reason),
        cmocka_unit_test(twelve_heads_are_not_cut_in_eight),
        cmocka_unit_test(trying_all_policies_of_all_shapes_finds_none_better),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
