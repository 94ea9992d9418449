/* Lists of strategies: section 5. Each upstream strategy for one of Ballast's operators must be among ours, with the
 * same layouts of result and operands. Ours include more (inner and vocabulary sharding of embeddings, positions). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "ir/ops/ops.h"
#include "plan/layout/strategy.h"
#include "support/case_results.h"

enum { NAME_BYTES = 96, SIZE = 64 };

/* A graph of one node of the operator, all sizes SIZE, rows in one dimension. */
static struct graph *make_graph(const char *key) {
    struct graph *graph = graph_create(DTYPE_F32, 1, SIZE);
    if (!graph) return NULL;
    struct tensor *x = graph_tensor(graph, TENSOR_ACTIVATION, "x", shape_make(DTYPE_F32, 3, 1, SIZE, SIZE));
    struct tensor *weight = graph_parameter(graph, "weight", 2, SIZE, SIZE);
    struct tensor *vector = graph_parameter(graph, "vector", 1, SIZE, 1);
    struct tensor *tokens = graph_tensor(graph, TENSOR_INPUT, "tokens", shape_make(DTYPE_I32, 2, 1, SIZE, 1));
    if (strncmp(key, "linear", 6) == 0)
        ops_linear(graph, "node", x, weight, NULL, NULL, (struct linear_attributes){.weight_is_kn = true});
    else if (strncmp(key, "embedding", 9) == 0)
        ops_embedding(graph, "node", tokens, weight);
    else
        ops_layer_norm(graph, "node", x, vector, NULL, 1e-5);
    return graph;
}

static bool knows(const char *key) {
    return strncmp(key, "linear", 6) == 0 || strncmp(key, "embedding", 9) == 0 || strncmp(key, "layernorm", 9) == 0;
}

/* Without the dimension of sequences, which has one. */
static void print_operand(const struct strategy *strategy, const struct node *node, int operand,
                          char text[LAYOUT_TEXT]) {
    const struct tensor *tensor = operand < OP_INPUTS_MAX ? node->in[operand] : node->out[operand - OP_INPUTS_MAX];
    struct layout layout = strategy->operand[operand];
    int skipped = tensor->kind == TENSOR_PARAMETER ? 0 : 1;
    for (int axis = 0; axis < DEVICE_MESH_AXES_MAX; axis++)
        if (layout.dimension[axis] != LAYOUT_REPLICATED) layout.dimension[axis] -= (int8_t)skipped;
    layout_print(&layout, tensor->shape.rank - skipped, text);
}

/* "S0R=S0S1xS1R" */
static void print_strategy(const struct strategy *strategy, const struct node *node, char text[3 * LAYOUT_TEXT + 2]) {
    char result[LAYOUT_TEXT], first[LAYOUT_TEXT], second[LAYOUT_TEXT];
    print_operand(strategy, node, OP_INPUTS_MAX, result);
    print_operand(strategy, node, 0, first);
    print_operand(strategy, node, 1, second);
    snprintf(text, 3 * LAYOUT_TEXT + 2, "%s=%sx%s", result, first, second);
}

/* The letters and digits of "[S0, R] = [S0, R] x [R] (_0,_1)": "S0R=S0RxR". */
static void squeeze(const char *name, char out[NAME_BYTES]) {
    size_t used = 0;
    for (const char *at = name; *at != '\0' && *at != '_' && *at != '(' && used + 1 < NAME_BYTES; at++)
        if (isalnum((unsigned char)*at) || *at == '=') out[used++] = *at;
    out[used] = '\0';
}

static void check_name(const char *name, const struct node *node, const struct strategies *made,
                       struct case_result *result) {
    char wanted[NAME_BYTES], text[3 * LAYOUT_TEXT + 2];
    squeeze(name, wanted);
    result->answered = true;
    for (size_t i = 0; i < made->kept.count; i++) {
        print_strategy(&made->kept.items[i], node, text);
        if (strcmp(text, wanted) == 0) return;
    }
    case_fail(result, "there is no strategy %s", name);
}

/* Strings, or lists of strings by name. */
static enum status check_names(const json_t *listed, const struct node *node, const struct strategies *made,
                               struct case_result *result) {
    const char *key;
    json_t *value;
    if (json_is_string(listed)) {
        check_name(json_string_value(listed), node, made, result);
        return STATUS_OK;
    }
    if (json_is_object(listed)) {
        json_object_foreach((json_t *)listed, key, value) TRY(check_names(value, node, made, result));
        return STATUS_OK;
    }
    if (!json_is_array(listed)) return status_set(STATUS_BAD_INPUT, "%s: must hold strings", result->place);
    for (size_t i = 0; i < json_array_size(listed); i++) {
        if (json_is_object(json_array_get(listed, i)))
            return status_set(STATUS_BAD_INPUT, "%s: must hold strings", result->place);
        TRY(check_names(json_array_get(listed, i), node, made, result));
    }
    return STATUS_OK;
}

/* "…_mesh1x4"; two axes of two where the key has none. */
static struct device_mesh mesh_of(const char *key) {
    struct device_mesh mesh = {.axes = 2, .sizes = {2, 2}};
    const char *at = strstr(key, "mesh");
    long long rows, columns;
    if (at && sscanf(at, "mesh%lldx%lld", &rows, &columns) == 2) mesh.sizes[0] = rows, mesh.sizes[1] = columns;
    return mesh;
}

static json_t *names_to_json(const struct strategies *made, const struct node *node) {
    json_t *array = json_array();
    char text[3 * LAYOUT_TEXT + 2];
    for (size_t i = 0; i < made->kept.count; i++) {
        print_strategy(&made->kept.items[i], node, text);
        (void)json_array_append_new(array, json_string(text));
    }
    return array;
}

static enum status add(const char *name, const char *key, const json_t *listed, int index, struct case_results *out) {
    const struct device_rates rates = {1, 1, 1};
    struct case_result result = {.section = name, .index = index};
    struct device_mesh mesh = mesh_of(key);
    struct strategies made = {0};
    struct graph *graph = make_graph(key);
    snprintf(result.place, sizeof result.place, "%.64s", key);
    struct symbolic_profile profile = {0};
    enum status status = graph ? graph_status(graph) : STATUS_FAILED;
    if (status == STATUS_OK) status = symbolic_profile_forward(graph, &profile);
    if (status == STATUS_OK) status = strategies_make(graph->nodes.items[0], &profile.nodes[0], &mesh, &rates, &made);
    if (status == STATUS_OK) status = check_names(listed, graph->nodes.items[0], &made, &result);
    if (status == STATUS_OK) {
        result.objective = (double)made.kept.count;
        result.more = json_pack("{s:o}", "strategies", names_to_json(&made, graph->nodes.items[0]));
        status = case_results_add(out, &result);
    }
    strategies_free(&made);
    symbolic_profile_free(&profile);
    graph_free(graph);
    return status;
}

enum status solve_strategy_cases(const char *name, const json_t *section, struct case_results *out) {
    const char *key;
    json_t *value;
    int index = 0;
    json_object_foreach((json_t *)section, key, value) {
        size_t length = strlen(key);
        if (strcmp(key, "source") == 0 || (length > 5 && strcmp(key + length - 5, "_note") == 0)) continue;
        if (knows(key))
            TRY(case_named(name, add(name, key, value, index++, out)));
        else
            case_skip(out, name, key, "Ballast's models have no such operator");
    }
    return STATUS_OK;
}
