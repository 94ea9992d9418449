/* Every strategy of every operator that ranks execute, forward and backward, on 2 and 4 ranks along one axis and on
 * 4 as a mesh of two axes. Results are within 1e-5 of one rank's. The list of operator cases and their loops drive
 * the test (tests/support/op_cases.h). */
#include <math.h>
#include <stdio.h>

#include "ir/differentiate.h"
#include "plan/layout/shard_choice.h"
#include "support/graph_ranks.h"
#include "support/op_cases.h"
#include "support/op_table.h"
#include "support/unit.h"

enum { SEED = 11 };
static const struct op_sizes sizes = {.sequences = 4,
                                      .length = 16,
                                      .columns = 24,
                                      .inner = 32,
                                      .heads = 8,
                                      .kv_heads = 4,
                                      .head_dim = 8,
                                      .window = 0,
                                      .vocab = 37};
/* Attention's kernels have tiles of up to 128 positions, which parts of these begin and end within. So many more than
 * there are parts are cut in runs, since they do not divide into two for each. */
enum { ATTENTION_LENGTH = 264 };
static const struct device_rates rates = {1e12, 1e11, 1};

/* A case's graph of one rank, whose inputs come through a node of their own, so that each has a gradient of its own. */
struct subject {
    const struct op_case *of;
    struct graph *graph;
    struct node *node;
};

static bool is_leaf(const struct tensor *tensor) {
    return tensor && tensor->kind == TENSOR_ACTIVATION && !tensor->producer && !tensor->base && !tensor->value;
}

/* What a loss depends on must be trained. */
static struct tensor *add_before(struct graph *graph, const struct op *op, struct tensor *leaf) {
    const char *name = graph_format(graph, "%s.before", leaf->name);
    if (!op->differentiate_loss) return ops_scale(graph, name, leaf, 0.5);
    struct tensor *bias = graph_parameter(graph, name, 1, shape_columns(&leaf->shape), 1);
    return ops_add_bias(graph, name, leaf, bias, NULL);
}

/* Nodes from `first` on come before the others. */
static void move_to_front(struct graph *graph, size_t first) {
    size_t count = graph->nodes.count;
    struct node **moved = mem_array(count, sizeof(struct node *));
    assert_non_null(moved);
    for (size_t i = 0; i < count; i++)
        moved[i] = graph->nodes.items[(i + first) % count];
    for (size_t i = 0; i < count; i++)
        graph->nodes.items[i] = moved[i], moved[i]->id = (int)i;
    mem_free(moved);
}

static struct op_sizes sizes_of(const struct op_case *op_case, int64_t more) {
    struct op_sizes own = sizes;
    own.window = op_case->sizes.window;
    if (op_case->op->work == OP_WORK_ATTENTION) own.sequences = 2, own.length = ATTENTION_LENGTH;
    own.length += more;
    return own;
}

static struct subject make_subject(const struct op_case *op_case, int64_t more_positions) {
    struct op_sizes own = sizes_of(op_case, more_positions);
    struct subject subject = {op_case, op_case_build(op_case, DTYPE_F32, &own), NULL};
    assert_non_null(subject.graph);
    size_t count = subject.graph->nodes.count;
    subject.node = subject.graph->nodes.items[count - 1];
    for (int k = 0; k < OP_INPUTS_MAX; k++)
        if (is_leaf(subject.node->in[k]))
            subject.node->in[k] = add_before(subject.graph, op_case->op, subject.node->in[k]);
    assert_int_equal(graph_status(subject.graph), STATUS_OK);
    move_to_front(subject.graph, count);
    return subject;
}

/* Whether ranks keep parts of sums from one node to the next: only whole models show what comes of it
 * (test_shard_graph.c). */
static bool is_kept_apart(const struct node *node) {
    struct op_loops loops;
    return op_loops_of(node, 0, &loops) && loops.apart != 0;
}

/* Not what is a part already. */
static bool is_subject(const struct op_case *op_case) {
    struct graph *graph = op_case_build(op_case, DTYPE_F32, &sizes);
    assert_non_null(graph);
    struct op_loops loops;
    const struct node *node = graph->nodes.items[graph->nodes.count - 1];
    bool known = op_loops_of(node, 0, &loops) && !is_kept_apart(node);
    graph_free(graph);
    return known && !(op_case->flags & (CASE_VIEWS | CASE_PART));
}

/* ---- ranks ---- */

static void differentiate(struct graph *graph, struct tensor *last) {
    bool loss = last->producer && last->producer->op->differentiate_loss;
    enum status status = loss ? graph_differentiate(graph, last) : graph_differentiate_part(graph);
    if (status != STATUS_OK) fail_msg("%s", status_message());
}

static void make_ranks(const struct subject *subject, const struct device_mesh *mesh, const struct strategy *strategy,
                       struct graph_ranks *out, struct tensor *last[GRAPH_RANKS_MAX]) {
    static const struct strategy none = {.index = {OP_INDEX_NONE, OP_INDEX_NONE, OP_INDEX_NONE}};
    const struct strategy **taken = mem_array(subject->graph->nodes.count, sizeof *taken);
    struct shard_choices choices;
    assert_non_null(taken);
    for (size_t n = 0; n < subject->graph->nodes.count; n++)
        taken[n] = subject->graph->nodes.items[n] == subject->node ? strategy : &none;
    assert_int_equal(shard_choices_of_strategies(subject->graph, mesh, taken, &choices), STATUS_OK);
    for (out->ranks = 0; out->ranks < (int)choices.parts; out->ranks++) {
        int r = out->ranks;
        if (layout_shard_graph(subject->graph, &choices, r, true, subject->node->out[0], &out->graphs[r], &last[r]) !=
            STATUS_OK)
            fail_msg("%s: %s", subject->of->name, status_message());
        differentiate(out->graphs[r], last[r]);
    }
    shard_choices_free(&choices);
    mem_free(taken);
}

/* A number of one place of one tensor. */
static float drawn(int64_t at, int salt) {
    uint64_t x = ((uint64_t)at * 2 + 1) * 0x9e3779b97f4a7c15u + (uint64_t)salt * 0xbf58476d1ce4e5b9u + SEED;
    x ^= x >> 31, x *= 0x94d049bb133111ebu, x ^= x >> 29;
    return (float)((double)(x >> 11) * 0x1p-53 - 0.5);
}

/* Inputs by their names, and the gradient that is given alike on all. */
static void fill(struct graph_ranks *ranks) {
    graph_ranks_fill(ranks, SEED, (int)sizes.vocab);
    for (int r = 0; r < ranks->ranks; r++)
        for (size_t i = 0; i < ranks->graphs[r]->tensors.count; i++) {
            const struct tensor *tensor = ranks->graphs[r]->tensors.items[i];
            bool given = tensor->kind == TENSOR_ACTIVATION && !tensor->producer && !tensor->base && tensor->value;
            for (int64_t at = 0; at < shape_elements(&tensor->shape) && (given || is_leaf(tensor)); at++)
                ((float *)ranks->data[r][i])[at] = drawn(at, given ? 0 : tensor->name[0]);
        }
}

/* ---- comparing ---- */

struct compared {
    const char *name;
    char layout[LAYOUT_TEXT];
    double worst;
};

static void compare_values(struct compared *compared, const char *what, const double *values, const float *expected,
                           int64_t count) {
    double max = 1e-30, apart = 0;
    for (int64_t i = 0; i < count; i++) {
        max = fmax(max, fabs((double)expected[i]));
        double gap = fabs(values[i] - (double)expected[i]);
        apart = gap <= apart ? apart : gap;
    }
    if (apart / max > compared->worst) compared->worst = apart / max;
    if (!(apart <= 1e-5 * max))
        fail_msg("%s, %s: %s is %g of %g away from one rank's", compared->name, compared->layout, what, apart, max);
}

static void compare_whole(struct compared *compared, const char *what, const struct graph_ranks *one,
                          const struct tensor *of, const struct graph_ranks *ranks, int rank,
                          const struct tensor *own) {
    int64_t count = shape_elements(&of->shape);
    double *values = mem_array((size_t)count, sizeof *values);
    assert_non_null(values);
    assert_true(shape_equal(&of->shape, &own->shape));
    for (int64_t i = 0; i < count; i++)
        values[i] = (double)graph_ranks_values(ranks, rank, own)[i];
    compare_values(compared, what, values, graph_ranks_values(one, 0, of), count);
    mem_free(values);
}

static const struct tensor *tensor_named(const struct graph *graph, enum tensor_kind kind, const char *name) {
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (graph->tensors.items[i]->kind == kind && strcmp(graph->tensors.items[i]->name, name) == 0)
            return graph->tensors.items[i];
    fail_msg("a rank has no %s", name);
    return NULL;
}

/* Whether the rank's part of a gradient's sum is one that no rank before it has: a whole parameter may have the same
 * parts along the other axis. */
static bool is_own_part(const struct tensor *parameter, int rank) {
    return parameter->part || group_axis_counts(parameter->gradient_parts, rank);
}

/* Parts where they belong; sums of what each rank has. */
static void compare_parameter(struct compared *compared, const struct graph_ranks *one, const struct tensor *of,
                              const struct graph_ranks *ranks) {
    int64_t count = shape_elements(&of->shape), run, known = 0, copies = 1;
    double *values = mem_array((size_t)count, sizeof *values);
    assert_non_null(values);
    for (int r = 0; r < ranks->ranks; r++) {
        const struct tensor *own = tensor_named(ranks->graphs[r], TENSOR_GRADIENT, of->name);
        const struct tensor *parameter = own->parameter;
        const float *from = graph_ranks_values(ranks, r, own);
        for (int64_t at = 0; at < shape_elements(&own->shape); at++) {
            int64_t whole = tensor_part_find(parameter, at, &run);
            if (whole == TENSOR_NOWHERE) continue;
            if (parameter->gradient_parts.parts == 0)
                values[whole] = (double)from[at];
            else if (is_own_part(parameter, r))
                values[whole] += (double)from[at];
            known += parameter->part != NULL;
        }
        copies = parameter->part ? parameter->part->copies : 1;
    }
    assert_true(known == 0 || known == count * copies);
    compare_values(compared, of->name, values, graph_ranks_values(one, 0, of), count);
    mem_free(values);
}

static void compare_loss(struct compared *compared, const struct graph_ranks *one, const struct graph_ranks *ranks) {
    double loss = 0;
    const struct tensor *of = graph_find(one->graphs[0], "loss");
    for (int r = 0; r < ranks->ranks; r++) {
        const struct tensor *own = graph_find(ranks->graphs[r], "loss");
        double value = *(const double *)ranks->data[r][own->id];
        loss = group_axis_counts(own->result_parts, r) ? loss + value : loss;
    }
    float expected = (float)*(const double *)one->data[0][of->id];
    compare_values(compared, "loss", &loss, &expected, 1);
}

/* The gradient of an input is what its own node gives it. */
static void compare_gradients(struct compared *compared, const struct graph_ranks *one,
                              const struct graph_ranks *ranks) {
    const struct graph *graph = one->graphs[0];
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind == TENSOR_GRADIENT) compare_parameter(compared, one, tensor, ranks);
        if (tensor->kind != TENSOR_ACTIVATION || !tensor->value || !is_leaf(tensor->value)) continue;
        for (int r = 0; r < ranks->ranks; r++)
            compare_whole(compared, tensor->name, one, tensor, ranks, r,
                          tensor_named(ranks->graphs[r], TENSOR_ACTIVATION, tensor->name));
    }
}

static void run(struct graph_ranks *ranks) {
    const double scalars[SCALAR_COUNT] = {[SCALAR_LOSS_SCALE] = 1.0 / 64};
    graph_ranks_open(ranks);
    fill(ranks);
    graph_ranks_run(ranks, PHASE_BACKWARD, scalars);
}

static struct graph *copy_differentiated(const struct subject *subject, struct tensor **last) {
    struct graph *graph = graph_copy(subject->graph);
    assert_non_null(graph);
    *last = graph->nodes.items[subject->node->id]->out[0];
    differentiate(graph, *last);
    return graph;
}

static void execute(const struct subject *subject, const struct device_mesh *mesh, const struct strategy *strategy,
                    struct compared *compared) {
    struct tensor *last, *own[GRAPH_RANKS_MAX];
    struct graph_ranks one = {.ranks = 1, .graphs = {copy_differentiated(subject, &last)}}, ranks;
    make_ranks(subject, mesh, strategy, &ranks, own);
    run(&one), run(&ranks);
    if (last->kind == TENSOR_RESULT)
        compare_loss(compared, &one, &ranks);
    else
        for (int r = 0; r < ranks.ranks; r++)
            compare_whole(compared, "its result", &one, last, &ranks, r, own[r]);
    compare_gradients(compared, &one, &ranks);
    graph_ranks_close(&one), graph_ranks_close(&ranks);
}

/* ---- all of them ---- */

/* "n+": by features, positions cut outside; "s/n": by sequences along one axis, by features along the other. */
static void print_strategy(const struct node *node, const struct strategy *strategy, const struct device_mesh *mesh,
                           char text[LAYOUT_TEXT]) {
    struct op_loops loops;
    int used = 0;
    bool known = op_loops_of(node, strategy->way, &loops);
    for (int axis = 0; axis < mesh->axes; axis++) {
        int index = strategy->index[axis];
        char letter = known && index != OP_INDEX_NONE ? loops.indices[index].letter : '.';
        used += snprintf(text + used, (size_t)(LAYOUT_TEXT - used), "%s%c%s%s", axis > 0 ? "/" : "", letter,
                         strategy->positions[axis] ? "+" : "", strategy->passes[axis] ? "*" : "");
    }
}

static bool takes_any(const struct strategy *strategy) {
    for (int axis = 0; axis < DEVICE_MESH_AXES_MAX; axis++)
        if (strategy->index[axis] != OP_INDEX_NONE) return true;
    return false;
}

/* What an operator's rows say there is, and whether some case had it executed. */
struct seen {
    char layout[LAYOUT_TEXT];
    bool executed;
    const char *why_not;
};
struct tally {
    VEC(struct seen) seen;
    int executed, cases;
};

static void tally_add(struct tally *tally, const char *layout, const char *why_not) {
    bool executed = why_not == NULL;
    struct seen seen = {.executed = executed, .why_not = why_not};
    snprintf(seen.layout, sizeof seen.layout, "%s", layout);
    tally->executed += executed;
    for (size_t i = 0; i < tally->seen.count; i++)
        if (strcmp(tally->seen.items[i].layout, layout) == 0) {
            tally->seen.items[i].executed |= executed;
            return;
        }
    assert_int_equal(vec_push(&tally->seen, seen), STATUS_OK);
}

static void execute_all(const struct op_case *op_case, const struct device_mesh *mesh, int64_t more_positions,
                        struct tally *tally) {
    struct subject subject = make_subject(op_case, more_positions);
    struct symbolic_profile profile;
    struct strategies found;
    int id = subject.node->id;
    assert_int_equal(symbolic_profile_forward(subject.graph, &profile), STATUS_OK);
    assert_int_equal(strategies_make(subject.node, &profile.nodes[id], mesh, &rates, &found), STATUS_OK);
    for (size_t i = 0; i < found.kept.count; i++) {
        struct compared compared = {.name = op_case->name};
        const struct strategy *one = &found.kept.items[i];
        const char *why_not = strategy_why_not(subject.node, one, mesh);
        print_strategy(subject.node, one, mesh, compared.layout);
        if (!why_not) execute(&subject, mesh, one, &compared);
        if (takes_any(one)) tally_add(tally, compared.layout, why_not);
    }
    strategies_free(&found);
    symbolic_profile_free(&profile);
    graph_free(subject.graph);
}

/* What is left out has one of these: its numbers are those of what is gathered; or the axes the other way round are
 * executed; or it is the other order of positions. */
static bool may_be_left_out(const struct seen *seen) {
    bool two = strchr(seen->layout, '/') != NULL;
    return strchr(seen->layout, '*') || (two && strchr(seen->layout, '+')) ||
           (two && strchr(seen->layout, 'z') && strchr(seen->layout, 't'));
}

static void check_tally(const char *name, const struct tally *tally) {
    print_message("%s: %d strategies in %d cases\n", name, tally->executed, tally->cases);
    if (tally->executed == 0) fail_msg("no strategy of %s is executed", name);
    for (size_t i = 0; i < tally->seen.count; i++)
        if (!tally->seen.items[i].executed && !may_be_left_out(&tally->seen.items[i]))
            fail_msg("%s: %s is never executed: %s", name, tally->seen.items[i].layout, tally->seen.items[i].why_not);
}

static void execute_on_meshes(const struct op_case *op_case, struct tally *tally) {
    static const struct device_mesh meshes[] = {
        {.axes = 1, .sizes = {2}, .latency_s = {1e-6}, .s_per_byte = {1e-10}},
        {.axes = 1, .sizes = {4}, .latency_s = {1e-6}, .s_per_byte = {1e-10}},
        {.axes = 2, .sizes = {2, 2}, .latency_s = {1e-6, 1e-6}, .s_per_byte = {1e-10, 1e-10}},
    };
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        int64_t parts = device_mesh_devices(&meshes[m], device_mesh_all_axes(&meshes[m]));
        for (int64_t more = 0; more <= parts; more += parts)
            execute_all(op_case, &meshes[m], more, tally);
    }
}

static void every_strategy_of_every_operator_gives_one_ranks_numbers(void **state) {
    (void)state;
    int all = 0;
    print_message("seed %d\n", SEED);
    for (int o = 0; o < op_table_count; o++) {
        struct tally tally = {.executed = 0};
        for (int i = 0; i < op_case_count; i++) {
            if (op_cases[i].op != op_table[o] || !is_subject(&op_cases[i])) continue;
            execute_on_meshes(&op_cases[i], &tally);
            tally.cases++;
        }
        if (tally.cases > 0) check_tally(op_table[o]->name, &tally);
        all += tally.executed;
        vec_free(&tally.seen);
    }
    assert_true(all > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_strategy_of_every_operator_gives_one_ranks_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
