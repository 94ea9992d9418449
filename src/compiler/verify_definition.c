#include "compiler/verify_definition.h"

#include <string.h>

#include "ir/ops/ops.h"

value value_tree_sum(const struct lane_tree *tree, int node, bool rounds, const value *lanes, size_t stride) {
    const struct lane_node *own = &tree->node[node];
    if (own->left < 0) return lanes[(size_t)own->first * stride];
    value left = value_tree_sum(tree, own->left, rounds, lanes, stride);
    value right = value_tree_sum(tree, own->right, rounds, lanes, stride);
    if (rounds) left = value_round(left), right = value_round(right);
    return !left ? right : !right ? left : value_add(left, right);
}

int64_t definition_micro_batches(const struct definition *definition, int lane, int64_t round, int64_t *first) {
    int64_t lane_end = (lane + 1) * definition->in_lane, end;
    *first = lane * definition->in_lane + round * definition->in_share;
    end = *first + definition->in_share;
    if (end > lane_end) end = lane_end;
    if (end > definition->micro_batches) end = definition->micro_batches;
    return end > *first ? end - *first : 0;
}

static const struct tensor_cells *cells_of(const struct definition *definition, const struct tensor *tensor) {
    return &definition->cells->of[tensor->id];
}

/* ---- gradients ---- */

static void add_node(const struct definition *definition, const struct node *node, int64_t micro_batch, value *out) {
    for (int i = 0; i < node->op->outputs; i++) {
        if (!node->out[i] || node->out[i]->kind != TENSOR_GRADIENT) continue;
        const struct tensor_cells *own = cells_of(definition, node->out[i]);
        for (int64_t c = own->first; c < own->first + own->count; c++)
            out[c] = value_add_micro_batch(out[c], node, micro_batch);
    }
}

static void add_uses(const struct definition *definition, const struct node *node, value *out) {
    const struct tensor_cells *sum = cells_of(definition, node->out[0]);
    int64_t from = cells_of(definition, node->in[0])->first, use = cells_of(definition, node->in[1])->first;
    for (int64_t c = 0; c < sum->count; c++)
        out[sum->first + c] = value_add_use(out[from + c], out[use + c]);
}

static bool sums_uses(const struct node *node) {
    return node->phase == PHASE_FINISH && !node->op->collective && node->out[0] &&
           node->out[0]->kind == TENSOR_GRADIENT;
}

/* Every rank of the group has the same sum of its lanes and rounds, of its own part of the gradient. */
static enum status sum_over_group(const struct definition *definition, const struct node *node, value *out) {
    const struct collective_attributes *attributes = NODE_ATTRIBUTES(node, collective_attributes);
    struct lane_tree tree = {0};
    size_t ranks = (size_t)attributes->part.parts;
    value *leaves = mem_array(ranks, sizeof *leaves);
    enum status status = leaves ? lane_tree_create(1, (int)ranks, &tree) : STATUS_FAILED;
    const struct tensor_cells *own = cells_of(definition, node->out[0]);
    for (int64_t c = own->first; status == STATUS_OK && c < own->first + own->count; c++) {
        for (size_t r = 0; r < ranks; r++)
            leaves[r] = out[c];
        out[c] = value_tree_sum(&tree, 0, attributes->edges == DTYPE_BF16, leaves, 1);
    }
    lane_tree_free(&tree);
    mem_free(leaves);
    return status;
}

static enum status sum_over_groups(const struct definition *definition, value *out) {
    const struct graph *graph = definition->cells->graph;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        if (node->phase == PHASE_FINISH && node->op->collective && node->out[0]->kind == TENSOR_GRADIENT)
            TRY(sum_over_group(definition, node, out));
    }
    return STATUS_OK;
}

/* What a lane adds up in a round, by cell. */
static void add_lane(const struct definition *definition, int lane, int64_t round, int64_t step, value *out) {
    const struct graph *graph = definition->cells->graph;
    int64_t first, count = definition_micro_batches(definition, lane, round, &first);
    for (int64_t c = 0; c < definition->cells->count; c++)
        out[c] = value_zero(step, c);
    for (int64_t micro_batch = first; micro_batch < first + count; micro_batch++)
        for (size_t n = 0; n < graph->nodes.count; n++)
            if (graph->nodes.items[n]->phase == PHASE_BACKWARD)
                add_node(definition, graph->nodes.items[n], micro_batch, out);
    for (size_t n = 0; n < graph->nodes.count; n++)
        if (sums_uses(graph->nodes.items[n])) add_uses(definition, graph->nodes.items[n], out);
}

/* Lanes by the tree, rounds in order. */
static enum status add_up(const struct definition *definition, int64_t step, value *out) {
    size_t cells = (size_t)definition->cells->count, lanes = (size_t)definition->tree.lanes;
    value *by_lane = mem_array(lanes * cells + 1, sizeof *by_lane);
    if (!by_lane) return STATUS_FAILED;
    for (int64_t round = 0; round < definition->rounds; round++) {
        int64_t first;
        memset(by_lane, 0, lanes * cells * sizeof *by_lane);
        for (int lane = 0; lane < definition->tree.lanes; lane++)
            if (definition_micro_batches(definition, lane, round, &first) > 0)
                add_lane(definition, lane, round, step, by_lane + (size_t)lane * cells);
        for (size_t c = 0; c < cells; c++) {
            value sum = value_tree_sum(&definition->tree, 0, definition->edges_round, by_lane + c, cells);
            out[c] = round == 0 ? sum : value_add(out[c], sum);
        }
    }
    mem_free(by_lane);
    return STATUS_OK;
}

/* ---- updates ---- */

int definition_source(const struct node *update, int i) {
    return op_updates(update) >> i & 1 ? i : 1 + update_rule_moments(update_rule_of(update->op));
}

static void update(const struct definition *definition, const struct node *node, int64_t step) {
    const struct tensor_cells *gradient = cells_of(definition, node->in[0]);
    for (int i = 0; i < node->op->outputs; i++) {
        if (!node->out[i] || node->phase != PHASE_UPDATE || node->out[0]->kind != TENSOR_PARAMETER) continue;
        int from = definition_source(node, i);
        const struct tensor_cells *own = cells_of(definition, node->out[i]);
        const value *old = &definition->kept[step][cells_of(definition, node->out[from])->first];
        for (int64_t c = 0; c < own->count; c++) {
            value sum = definition->gradients[step][gradient->first + c];
            value *kept = &definition->kept[step + 1][own->first + c];
            *kept = from == i ? value_updated(old[c], sum) : value_rounded(old[c], sum);
        }
    }
}

static enum status define_step(struct definition *definition, int64_t step) {
    const struct graph *graph = definition->cells->graph;
    size_t cells = (size_t)definition->cells->count;
    TRY(add_up(definition, step, definition->gradients[step]));
    TRY(sum_over_groups(definition, definition->gradients[step]));
    memcpy(definition->kept[step + 1], definition->kept[step], cells * sizeof(value));
    for (size_t n = 0; n < graph->nodes.count; n++)
        update(definition, graph->nodes.items[n], step);
    return STATUS_OK;
}

enum status definition_create(const struct cells *cells, const struct recipe *recipe, struct definition *out) {
    int64_t in_lane = recipe_lane_micro_batches(recipe), in_share = recipe_share_micro_batches(recipe);
    *out = (struct definition){.cells = cells,
                               .micro_batches = recipe_micro_batches(recipe),
                               .in_lane = in_lane,
                               .in_share = in_share,
                               .rounds = (in_lane + in_share - 1) / in_share,
                               .edges_round = recipe->reduce_dtype == DTYPE_BF16};
    TRY(lane_tree_of_shape(&recipe->lanes, &out->tree));
    for (int i = 0; i <= DEFINITION_STEPS; i++) {
        out->kept[i] = mem_array((size_t)cells->count + 1, sizeof **out->kept);
        if (!out->kept[i]) return STATUS_FAILED;
        if (i == DEFINITION_STEPS) break;
        out->gradients[i] = mem_array((size_t)cells->count + 1, sizeof **out->gradients);
        if (!out->gradients[i]) return STATUS_FAILED;
    }
    for (int64_t c = 0; c < cells->count; c++)
        out->kept[0][c] = value_mix((value)c + 1, 'k');
    for (int64_t step = 0; step < DEFINITION_STEPS; step++)
        TRY(define_step(out, step));
    return STATUS_OK;
}

void definition_free(struct definition *definition) {
    for (int i = 0; i < DEFINITION_STEPS; i++)
        mem_free(definition->gradients[i]);
    for (int i = 0; i <= DEFINITION_STEPS; i++)
        mem_free(definition->kept[i]);
    lane_tree_free(&definition->tree);
}
