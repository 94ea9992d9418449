/* Graphs of the ranks of a group, executed in turn in one process: loss, norm and clipped gradients equal those of
 * one rank's graph, for all families. */
#include <math.h>
#include <string.h>

#include "ir/differentiate.h"
#include "model/model.h"
#include "plan/layout/shard_choice.h"
#include "support/graph_ranks.h"
#include "support/model_cases.h"
#include "support/shared_model.h"
#include "support/unit.h"

enum { SEQUENCES = 2, LENGTH = 12, SEED = 7 };

static struct graph *forward_of(const struct model *model, struct tensor **loss) {
    struct graph *graph;
    if (model_build_graph(model, MODEL_LOSS_SEGMENTED, DTYPE_F32, SEQUENCES, LENGTH, &graph, loss) != STATUS_OK)
        fail_msg("%s", status_message());
    return graph;
}

/* ---- strategies at random ---- */

struct drawing {
    const struct graph *graph;
    struct device_mesh mesh;
    struct parameter_use *uses; /* by tensor id, */
    bool *used;                 /* of those that were drawn for an earlier node */
    uint64_t state;
    int letters[128]; /* how often an index of the letter was taken */
};

static uint64_t draw(struct drawing *drawing, uint64_t count) {
    drawing->state = drawing->state * 6364136223846793005u + 1442695040888963407u;
    return (drawing->state >> 33) % count;
}

static bool uses_fit(const struct drawing *drawing, const struct node *node, const struct strategy *strategy) {
    for (int k = 0; k < OP_INPUTS_MAX; k++) {
        if (!node->in[k] || node->in[k]->kind != TENSOR_PARAMETER || !drawing->used[node->in[k]->id]) continue;
        struct parameter_use use = strategy_parameter_use(node, strategy, k), *before = &drawing->uses[node->in[k]->id];
        if (!parameter_use_equal(&use, before)) return false;
    }
    return true;
}

/* Heads of views of packed columns, which parts of the whole's columns may cut through. */
static bool views_fit(const struct drawing *drawing, const struct node *node, const struct strategy *strategy) {
    const struct graph *graph = drawing->graph;
    const struct tensor *out = node->out[0];
    int64_t parts = layout_parts(&strategy->operand[OP_INPUTS_MAX], &drawing->mesh, out->shape.rank - 1);
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (graph->tensors.items[i]->base == out && shape_columns(&graph->tensors.items[i]->shape) % parts != 0)
            return false;
    return true;
}

static void note_uses(struct drawing *drawing, const struct node *node, const struct strategy *strategy) {
    struct op_loops loops;
    for (int axis = 0; axis < drawing->mesh.axes && op_loops_of(node, strategy->way, &loops); axis++)
        if (strategy->index[axis] != OP_INDEX_NONE)
            drawing->letters[(int)loops.indices[strategy->index[axis]].letter]++;
    for (int k = 0; k < OP_INPUTS_MAX; k++) {
        if (!node->in[k] || node->in[k]->kind != TENSOR_PARAMETER) continue;
        drawing->used[node->in[k]->id] = true;
        drawing->uses[node->in[k]->id] = strategy_parameter_use(node, strategy, k);
    }
}

/* False where none takes its parameters as an earlier node does. */
static bool draw_strategy(struct drawing *drawing, const struct node *node, const struct node_profile *profile,
                          struct strategy *out) {
    static const struct device_rates rates = {1e12, 1e11, 1};
    struct strategies found;
    size_t fit = 0;
    assert_int_equal(strategies_make(node, profile, &drawing->mesh, &rates, &found), STATUS_OK);
    strategies_keep_executable(node, &drawing->mesh, &found);
    for (size_t i = 0; i < found.kept.count; i++)
        if (uses_fit(drawing, node, &found.kept.items[i]) && views_fit(drawing, node, &found.kept.items[i]))
            found.kept.items[fit++] = found.kept.items[i];
    if (fit > 0) *out = found.kept.items[draw(drawing, fit)];
    if (fit > 0) note_uses(drawing, node, out);
    strategies_free(&found);
    return fit > 0;
}

/* Of all nodes, anew from the first until they go together. */
static void draw_strategies(struct drawing *drawing, const struct symbolic_profile *profile, struct strategy *out) {
    const struct graph *graph = drawing->graph;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        if (n == 0) memset(drawing->used, 0, graph->tensors.count * sizeof *drawing->used);
        if (!draw_strategy(drawing, graph->nodes.items[n], &profile->nodes[n], &out[n])) n = SIZE_MAX;
    }
}

static enum status draw_choices(struct drawing *drawing, struct shard_choices *out) {
    size_t count = drawing->graph->nodes.count;
    struct symbolic_profile profile;
    struct strategy *taken = mem_array(count, sizeof *taken);
    const struct strategy **pointers = mem_array(count, sizeof *pointers);
    drawing->uses = mem_array(drawing->graph->tensors.count, sizeof *drawing->uses);
    drawing->used = mem_array(drawing->graph->tensors.count, sizeof *drawing->used);
    assert_true(taken && pointers && drawing->uses && drawing->used);
    assert_int_equal(symbolic_profile_forward(drawing->graph, &profile), STATUS_OK);
    draw_strategies(drawing, &profile, taken);
    for (size_t n = 0; n < count; n++)
        pointers[n] = &taken[n];
    enum status status = shard_choices_of_strategies(drawing->graph, &drawing->mesh, pointers, out);
    symbolic_profile_free(&profile);
    mem_free(taken), mem_free(pointers), mem_free(drawing->uses), mem_free(drawing->used);
    return status;
}

/* ---- graphs of ranks ---- */

static enum status add_backward(struct graph *graph, struct tensor *loss, int parts, int position) {
    struct optimizer_options options = {.beta1 = 0.9,
                                        .beta2 = 0.95,
                                        .epsilon = 1e-8,
                                        .clip_norm = 0.5,
                                        .moments = DTYPE_F32,
                                        .group = {parts, position}};
    TRY(graph_differentiate(graph, loss));
    return ops_add_optimizer(graph, &options);
}

static enum status make_ranks(const struct model *model, int parts, bool sequence, struct drawing *drawing,
                              struct graph_ranks *out) {
    struct tensor *loss, *own;
    struct graph *whole = forward_of(model, &loss);
    struct shard_choices choices;
    if (drawing) drawing->graph = whole;
    enum status status =
        drawing ? draw_choices(drawing, &choices) : shard_choices_make(whole, parts, sequence, &choices);
    out->ranks = 0;
    for (; out->ranks < parts && status == STATUS_OK; out->ranks++) {
        struct graph **graph = &out->graphs[out->ranks];
        status = layout_shard_graph(whole, &choices, out->ranks, true, loss, graph, &own);
        if (status == STATUS_OK) status = add_backward(*graph, own, parts, out->ranks);
    }
    shard_choices_free(&choices);
    graph_free(whole);
    return status;
}

/* AdamW's first moment of the first step: a tenth of the clipped gradient. */
static bool is_moment(const struct tensor *tensor) {
    return tensor->kind == TENSOR_STATE && strcmp(tensor->role, "exp_avg") == 0;
}

static const struct tensor *find_moment(const struct graph *graph, const char *name) {
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (is_moment(graph->tensors.items[i]) && strcmp(graph->tensors.items[i]->name, name) == 0)
            return graph->tensors.items[i];
    return NULL;
}

static void expect_near(const char *name, double value, double expected, double scale) {
    if (!(fabs(value - expected) <= 1e-5 * scale)) fail_msg("%s: %.9g, one rank has %.9g", name, value, expected);
}

static double largest(const float *values, int64_t count) {
    double max = 0;
    for (int64_t i = 0; i < count; i++)
        max = fmax(max, fabs((double)values[i]));
    return max;
}

/* Each rank's part against the whole. */
static void compare_moment(const struct graph_ranks *one, const struct graph_ranks *ranks, const struct tensor *of) {
    const float *expected = graph_ranks_values(one, 0, of);
    double scale = fmax(largest(expected, shape_elements(&of->shape)), 1e-5);
    for (int r = 0; r < ranks->ranks; r++) {
        const struct tensor *own = find_moment(ranks->graphs[r], of->name);
        if (!own) fail_msg("rank %d has no %s", r, of->name);
        int64_t run;
        for (int64_t at = 0; at < shape_elements(&own->shape); at++) {
            int64_t whole = tensor_part_find(own, at, &run);
            double is = (double)graph_ranks_values(ranks, r, own)[at];
            expect_near(of->name, is, whole == TENSOR_NOWHERE ? 0 : (double)expected[whole], scale);
        }
    }
}

static void compare_result(const struct graph_ranks *one, const struct graph_ranks *ranks, const char *name) {
    double expected = *(const double *)one->data[0][graph_find(one->graphs[0], name)->id], sum = 0;
    struct group_axis parts = graph_find(ranks->graphs[0], name)->result_parts;
    for (int r = 0; r < ranks->ranks; r++) {
        double value = *(const double *)ranks->data[r][graph_find(ranks->graphs[r], name)->id];
        if (parts.parts == 0) expect_near(name, value, expected, fabs(expected));
        if (group_axis_counts(parts, r)) sum += value;
    }
    expect_near(name, sum, expected, fabs(expected));
}

static int64_t count_elements(const struct graph *graph) {
    int64_t elements = 0;
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (graph->tensors.items[i]->kind == TENSOR_PARAMETER)
            elements += shape_elements(&graph->tensors.items[i]->shape);
    return elements;
}

static void compare(const struct model *model, int parts, bool sequence, struct drawing *drawing) {
    struct tensor *loss;
    struct graph_ranks one = {.ranks = 1, .graphs = {forward_of(model, &loss)}}, ranks;
    double scalars[SCALAR_COUNT] = {[SCALAR_LOSS_SCALE] = 1.0 / (SEQUENCES * LENGTH), [SCALAR_LEARNING_RATE] = 1e-3};
    assert_int_equal(add_backward(one.graphs[0], loss, 1, 0), STATUS_OK);
    if (make_ranks(model, parts, sequence, drawing, &ranks) != STATUS_OK) fail_msg("%s", status_message());
    assert_true(drawing || count_elements(ranks.graphs[0]) < count_elements(one.graphs[0]));
    graph_ranks_open(&one), graph_ranks_open(&ranks);
    graph_ranks_fill(&one, SEED, (int)model->config.vocab_size);
    graph_ranks_fill(&ranks, SEED, (int)model->config.vocab_size);
    graph_ranks_run(&one, PHASE_UPDATE, scalars), graph_ranks_run(&ranks, PHASE_UPDATE, scalars);
    compare_result(&one, &ranks, "loss");
    compare_result(&one, &ranks, "clip");
    for (size_t i = 0; i < one.graphs[0]->tensors.count; i++)
        if (is_moment(one.graphs[0]->tensors.items[i])) compare_moment(&one, &ranks, one.graphs[0]->tensors.items[i]);
    graph_ranks_close(&one), graph_ranks_close(&ranks);
}

static void every_family_has_one_ranks_gradients(void **state) {
    (void)state;
    static const char *const cases[] = {DENSE_MODEL_CASES};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!unit_part(cases[i])) continue;
        struct model *model = shared_model_make(cases[i], &shared_sizes_usual);
        print_message("%s\n", cases[i]);
        for (int sequence = 0; sequence < 2; sequence++)
            compare(model, 2, sequence, NULL), compare(model, 4, sequence, NULL);
        model_free(model);
    }
}

/* 2, 4, and 2 x 2 ranks. */
static struct device_mesh mesh_of_seed(uint64_t seed) {
    static const struct device_mesh meshes[] = {
        {.axes = 2, .sizes = {2, 2}, .latency_s = {1e-6, 1e-6}, .s_per_byte = {1e-10, 1e-10}},
        {.axes = 1, .sizes = {2}},
        {.axes = 1, .sizes = {4}},
    };
    return meshes[seed % (sizeof meshes / sizeof *meshes)];
}

/* Whatever each node does, conversions between them put it right. */
static void strategies_at_random_have_one_ranks_gradients(void **state) {
    (void)state;
    static const char *const cases[] = {DENSE_MODEL_CASES};
    int letters[128] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += unit_sweep(2, 1)) {
        struct model *model = shared_model_make(cases[i], &shared_sizes_usual);
        for (uint64_t seed = 1; seed <= unit_sweep(3, 10); seed++) {
            struct drawing drawing = {.mesh = mesh_of_seed(seed), .state = seed * 977 + i};
            print_message("%s, seed %d\n", cases[i], (int)seed);
            compare(model, (int)device_mesh_devices(&drawing.mesh, device_mesh_all_axes(&drawing.mesh)), false,
                    &drawing);
            for (int l = 0; l < 128; l++)
                letters[l] += drawing.letters[l];
        }
        model_free(model);
    }
    for (const char *l = "sthgknc"; *l; l++)
        if (letters[(int)*l] < 3) fail_msg("'%c' was drawn %d times", *l, letters[(int)*l]);
}

/* Each rank has parts of all experts. */
static void experts_have_one_ranks_gradients(void **state) {
    (void)state;
    static const char *const cases[] = {EXPERT_MODEL_CASES};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!unit_part(cases[i])) continue;
        struct model *model = shared_model_make(cases[i], &shared_sizes_usual);
        print_message("%s\n", cases[i]);
        for (int sequence = 0; sequence < 2; sequence++)
            compare(model, 2, sequence, NULL), compare(model, 4, sequence, NULL);
        model_free(model);
    }
}

static void set_adapter(struct model *model, const char *text) {
    if (model_set_adapter(model, text, SEED) != STATUS_OK) fail_msg("%s", status_message());
}

static void adapters_follow_their_products(void **state) {
    (void)state;
    static const char *const cases[] = {"llama", "phi3", "gpt2"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model *model = shared_model_make(cases[i], &shared_sizes_usual);
        set_adapter(model, "4,8,all-linear");
        compare(model, 4, false, NULL);
        compare(model, 2, true, NULL);
        compare(model, 8, false, NULL); /* more ranks than the adapters' features */
        model_free(model);
    }
}

static bool same_cut(const struct tensor_cut *a, const struct tensor_cut *b) {
    return a->dimension == b->dimension && a->part == b->part && a->parts == b->parts &&
           a->segments.count == b->segments.count &&
           memcmp(a->segments.size, b->segments.size, (size_t)a->segments.count * sizeof *a->segments.size) == 0;
}

static bool same_part(const struct tensor *a, const struct tensor *b) {
    if (!a->part || !b->part) return a->part == b->part;
    for (int c = 0; c < a->part->count && c < b->part->count; c++)
        if (!same_cut(&a->part->cuts[c], &b->part->cuts[c])) return false;
    return a->part->count == b->part->count;
}

static struct graph *rank_graph(const struct model *model, int parts, bool sequence) {
    struct shard_choices choices;
    struct tensor *loss, *own;
    struct graph *whole = forward_of(model, &loss), *graph;
    if (shard_choices_make(whole, parts, sequence, &choices) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(layout_shard_graph(whole, &choices, parts - 1, true, loss, &graph, &own), STATUS_OK);
    shard_choices_free(&choices);
    graph_free(whole);
    return graph;
}

/* How many are cut. */
static int compare_parts(const struct graph *full, const struct graph *adapted) {
    int cut = 0;
    for (size_t i = 0; i < full->tensors.count; i++) {
        const struct tensor *weight = full->tensors.items[i];
        if (weight->kind != TENSOR_PARAMETER || weight->base) continue;
        const struct tensor *frozen = graph_find(adapted, weight->name);
        if (!frozen) fail_msg("no %s next to adapters", weight->name);
        if (!same_part(weight, frozen))
            fail_msg("%s: %s where all weights are trained, %s next to adapters", weight->name,
                     weight->part ? "cut" : "whole", frozen->part ? "cut otherwise" : "whole");
        cut += weight->part != NULL;
    }
    return cut;
}

/* Whether the ranks divide the adapters' features or not. */
static void weights_beside_adapters_are_cut_as_trained_ones(void **state) {
    (void)state;
    static const char *const cases[] = {DENSE_MODEL_CASES}, *const adapters[] = {"4,8,all-linear", "3,6,all-linear"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int way = 0; way < 8; way++) {
            struct shared_sizes sizes = shared_sizes_usual;
            if (way / 4 % 2) sizes.kv_heads = 1;
            int parts = way % 2 ? 4 : 2;
            struct model *model = shared_model_make(cases[i], &sizes);
            struct graph *full = rank_graph(model, parts, way / 2 % 2);
            for (int a = 0; a < 2; a++) {
                struct model *with = shared_model_make(cases[i], &sizes);
                print_message("%s, %s, %d ranks\n", cases[i], adapters[a], parts);
                set_adapter(with, adapters[a]);
                struct graph *adapted = rank_graph(with, parts, way / 2 % 2);
                assert_true(compare_parts(full, adapted) > 0);
                graph_free(adapted);
                model_free(with);
            }
            graph_free(full);
            model_free(model);
        }
}

/* One head, or two, for more ranks than that; two for three ranks, of which one reads both. */
static void ranks_may_be_more_than_key_value_heads(void **state) {
    (void)state;
    static const char *const cases[] = {"llama", "phi3", "qwen3", "gemma2", "qwen2", "granite", "smollm3", "olmo2"};
    static const struct {
        int64_t heads, kv_heads;
        int ranks;
    } ways[] = {{8, 1, 2}, {8, 1, 4}, {8, 2, 4}, {8, 2, 8}, {6, 2, 3}, {12, 3, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            struct shared_sizes sizes = shared_sizes_usual;
            sizes.heads = ways[w].heads, sizes.kv_heads = ways[w].kv_heads;
            struct model *model = shared_model_make(cases[i], &sizes);
            print_message("%s, %d of %d heads on %d ranks\n", cases[i], (int)sizes.kv_heads, (int)sizes.heads,
                          ways[w].ranks);
            for (int sequence = 0; sequence < (LENGTH % ways[w].ranks == 0 ? 2 : 1); sequence++)
                compare(model, ways[w].ranks, sequence, NULL);
            if (i == 0) set_adapter(model, "4,8,all-linear"), compare(model, ways[w].ranks, false, NULL);
            model_free(model);
        }
}

/* Keys and values of one head, of two layers: their products are cut, and gathered. */
static void products_of_few_heads_are_cut(void **state) {
    (void)state;
    static const char *const cases[] = {"llama", "phi3"};
    for (size_t i = 0; i < 2; i++) {
        struct shared_sizes sizes = shared_sizes_usual;
        sizes.kv_heads = 1;
        struct model *model = shared_model_make(cases[i], &sizes);
        struct graph_ranks ranks;
        assert_int_equal(make_ranks(model, 2, false, NULL, &ranks), STATUS_OK);
        for (size_t t = 0; t < ranks.graphs[1]->tensors.count; t++) {
            const struct tensor *tensor = ranks.graphs[1]->tensors.items[t];
            if (tensor->kind != TENSOR_PARAMETER || !strstr(tensor->name, "_proj")) continue;
            if (!tensor->part) fail_msg("%s: %s is whole", cases[i], tensor->name);
        }
        for (int r = 0; r < ranks.ranks; r++)
            graph_free(ranks.graphs[r]);
        model_free(model);
    }
}

static void an_embedding_of_another_width_is_cut_with_its_projection(void **state) {
    (void)state;
    struct shared_sizes sizes = shared_sizes_usual;
    sizes.embedding_width = 24;
    struct model *model = shared_model_make("opt", &sizes);
    compare(model, 4, false, NULL);
    compare(model, 4, true, NULL);
    model_free(model);
}

static int count_nodes(const struct graph *graph, enum op_collective collective, enum phase phase) {
    int count = 0;
    for (size_t n = 0; n < graph->nodes.count; n++)
        count += graph->nodes.items[n]->op->collective == collective && graph->nodes.items[n]->phase == phase;
    return count;
}

static bool is_position_table(const struct tensor *tensor) { return strstr(tensor->name, "wpe") != NULL; }

/* Megatron-LM's: two sums a layer in forward, as many in backward; one of what is looked up, and one of the head's
 * gradient; statistics of the loss; and every matrix cut but the table of positions. */
static void a_layer_has_two_sums_each_way(void **state) {
    (void)state;
    static const char *const cases[] = {"llama", "gpt2", "phi3", "qwen2"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model *model = shared_model_make(cases[i], &shared_sizes_usual);
        struct graph_ranks ranks;
        assert_int_equal(make_ranks(model, 2, false, NULL, &ranks), STATUS_OK);
        const struct graph *graph = ranks.graphs[1];
        assert_int_equal(count_nodes(graph, OP_COLLECTIVE_ALL_REDUCE, PHASE_FORWARD), 2 * model->config.layers + 1);
        assert_int_equal(count_nodes(graph, OP_COLLECTIVE_ALL_REDUCE, PHASE_BACKWARD), 2 * model->config.layers + 1);
        assert_int_equal(count_nodes(graph, OP_COLLECTIVE_ALL_GATHER, PHASE_FORWARD), 1);
        for (size_t t = 0; t < graph->tensors.count; t++) {
            const struct tensor *tensor = graph->tensors.items[t];
            if (tensor->kind != TENSOR_PARAMETER || tensor->shape.rank != 2 || is_position_table(tensor)) continue;
            assert_non_null(tensor->part);
            assert_int_equal(tensor->part->cuts[0].part, 1);
        }
        for (int r = 0; r < 2; r++)
            graph_free(ranks.graphs[r]);
        model_free(model);
    }
}

/* Five rows on four ranks: two, two, one, none. */
static void ranks_without_rows_of_the_vocabulary_change_nothing(void **state) {
    (void)state;
    static const char *const cases[] = {"llama_tied", "gemma2", "gpt2", "opt"};
    struct shared_sizes sizes = shared_sizes_usual;
    sizes.vocab = 5;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model *model = shared_model_make(cases[i], &sizes);
        compare(model, 4, false, NULL);
        compare(model, 4, true, NULL);
        model_free(model);
    }
}

static void expect_refused(const char *fixture, const struct shared_sizes *sizes, int parts, bool sequence,
                           const char *message) {
    struct model *model = shared_model_make(fixture, sizes);
    struct graph_ranks ranks;
    assert_int_equal(make_ranks(model, parts, sequence, NULL, &ranks), STATUS_BAD_INPUT);
    assert_string_equal(status_message(), message);
    model_free(model);
}

static void what_does_not_divide_is_refused(void **state) {
    (void)state;
    expect_refused("llama", &(struct shared_sizes){12, 12, 48, 211, 0}, 8, false,
                   "tensor-parallel: layer.0.rope.q: 12 heads are not divisible by 8 ranks");
    expect_refused("llama", &(struct shared_sizes){12, 4, 48, 211, 0}, 8, false,
                   "tensor-parallel: layer.0.rope.q: 12 heads are not divisible by 8 ranks");
    expect_refused("llama", &(struct shared_sizes){8, 8, 50, 211, 0}, 4, false,
                   "tensor-parallel: layer.0.mlp.gate_proj: 50 features are not divisible by 4 ranks");
    expect_refused("llama", &(struct shared_sizes){8, 8, 48, 211, 0}, 8, true,
                   "sequence-parallel: 12 tokens are not divisible by 8 tensor-parallel ranks");
    expect_refused("gpt_oss", &(struct shared_sizes){8, 8, 50, 211, 0}, 4, false,
                   "tensor-parallel: layer.0.mlp.experts.0: 50 features are not divisible by 4 ranks");
}

/* 96 features are three blocks, 192 are six. */
static void blocks_that_ranks_would_cut_are_refused(void **state) {
    (void)state;
    static const struct {
        int64_t ffn;
        const char *hint;
    } cases[] = {{96, "its blocks stay whole with --tensor-parallel 3; "},
                 {192, "its blocks stay whole with --tensor-parallel 2, 3, 6; "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct shared_sizes sizes = {4, 4, cases[i].ffn, 211, 0};
        struct model_config config = shared_model_config("gpt_oss", &sizes);
        struct model *model;
        struct graph_ranks ranks;
        config.head_dim = 32, config.hidden = config.embedding_width = 128;
        assert_int_equal(model_create(&config, &model), STATUS_OK);
        model->config.base_format = WEIGHT_MXFP4; /* as files have it */
        assert_int_equal(make_ranks(model, 4, false, NULL, &ranks), STATUS_BAD_INPUT);
        assert_string_equal(status_message(),
                            "tensor-parallel: model.layers.0.mlp.experts.0.down_proj: blocks of 32 numbers of "
                            "mxfp4 would lie across the parts of ranks");
        assert_memory_equal(status_hint_text(), cases[i].hint, strlen(cases[i].hint));
        model_free(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_has_one_ranks_gradients),
        cmocka_unit_test(strategies_at_random_have_one_ranks_gradients),
        cmocka_unit_test(experts_have_one_ranks_gradients),
        cmocka_unit_test(adapters_follow_their_products),
        cmocka_unit_test(weights_beside_adapters_are_cut_as_trained_ones),
        cmocka_unit_test(ranks_may_be_more_than_key_value_heads),
        cmocka_unit_test(products_of_few_heads_are_cut),
        cmocka_unit_test(an_embedding_of_another_width_is_cut_with_its_projection),
        cmocka_unit_test(a_layer_has_two_sums_each_way),
        cmocka_unit_test(ranks_without_rows_of_the_vocabulary_change_nothing),
        cmocka_unit_test(what_does_not_divide_is_refused),
        cmocka_unit_test(blocks_that_ranks_would_cut_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
