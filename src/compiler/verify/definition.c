#include "compiler/verify/verify.h"

#include "ir/ops/ops.h"
#include "plan/chunks.h"

static const struct tensor *parameter_of(const struct tensor *tensor) {
    return tensor->kind == TENSOR_PARAMETER ? tensor : tensor->parameter;
}

static bool is_followed(const struct tensor *tensor) {
    bool kind = tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_GRADIENT || tensor->kind == TENSOR_STATE ||
                (tensor->kind == TENSOR_RESULT && tensor->parameter);
    return kind && !tensor->base;
}

/* A buffer's tensors: those of its pack, or its only one, for which `single` has space. */
static const struct pack_member *members_of(const struct buffer *buffer, struct pack_member *single, int32_t *count) {
    *count = buffer->pack ? buffer->pack->count : buffer->tensor ? 1 : 0;
    if (buffer->pack) return buffer->pack->members;
    if (buffer->tensor)
        *single = (struct pack_member){.tensor = buffer->tensor, .elements = shape_elements(&buffer->tensor->shape)};
    return single;
}

/* ---- borders ---- */

struct borders {
    VEC(int64_t) list;
};

static enum status add_border(struct borders *of, const struct pack_member *member, int64_t element) {
    const struct tensor *parameter = parameter_of(member->tensor);
    int64_t at = element * tensor_elements_per(member->tensor), all = shape_elements(&parameter->shape);
    return at > 0 && at < all ? vec_push(&of[parameter->id].list, at) : STATUS_OK;
}

/* A byte of a buffer, in all members that have it inside. */
static enum status add_byte(const struct buffer *buffer, int64_t byte, struct borders *of) {
    struct pack_member single;
    int32_t count;
    const struct pack_member *members = members_of(buffer, &single, &count);
    for (int32_t m = 0; m < count; m++) {
        int64_t size = dtype_bytes(members[m].tensor->shape.dtype), from = byte - members[m].offset;
        if (!is_followed(members[m].tensor) || from <= 0 || from >= members[m].elements * size) continue;
        TRY(add_border(of, &members[m], members[m].first + from / size));
    }
    return STATUS_OK;
}

static enum status add_blocks(const struct program *program, const struct instruction *instruction,
                              struct borders *of) {
    const struct program_collective *operation = &program->collectives.items[instruction->collective];
    const struct operand *data = &instruction->operands[OP_INPUTS_MAX];
    if (operation->block_bytes <= 0) return STATUS_OK;
    for (int64_t at = operation->block_bytes; at < operation->bytes; at += operation->block_bytes)
        TRY(add_byte(&program->buffers.items[data->buffer], data->offset + at, of));
    return STATUS_OK;
}

static enum status add_program(const struct program *program, struct borders *of) {
    for (size_t b = 0; b < program->buffers.count; b++) {
        struct pack_member single;
        int32_t count;
        const struct pack_member *members = members_of(&program->buffers.items[b], &single, &count);
        for (int32_t m = 0; m < count; m++) {
            if (!is_followed(members[m].tensor) || members[m].elements == 0) continue;
            TRY(add_border(of, &members[m], members[m].first));
            TRY(add_border(of, &members[m], members[m].first + members[m].elements));
        }
    }
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        for (int k = 0; k < OPERAND_WORKSPACE; k++) {
            const struct operand *operand = &instruction->operands[k];
            if (operand->buffer < 0 || operand->row_bytes > 0) continue;
            TRY(add_byte(&program->buffers.items[operand->buffer], operand->offset, of));
            TRY(add_byte(&program->buffers.items[operand->buffer], operand->offset + operand->bytes, of));
        }
        if (opcode_is_collective(instruction->opcode)) TRY(add_blocks(program, instruction, of));
    }
    return STATUS_OK;
}

ORDER_BY(compare_borders, int64_t, *item)

/* Ascending, each once, with the first and the last. */
static enum status settle(struct borders *of, const struct tensor *parameter) {
    TRY(vec_push(&of->list, 0));
    TRY(vec_push(&of->list, shape_elements(&parameter->shape)));
    qsort(of->list.items, of->list.count, sizeof *of->list.items, compare_borders);
    size_t kept = 0;
    for (size_t i = 0; i < of->list.count; i++)
        if (kept == 0 || of->list.items[kept - 1] != of->list.items[i]) of->list.items[kept++] = of->list.items[i];
    of->list.count = kept;
    return STATUS_OK;
}

static enum status number_cells(struct cells *cells, struct borders *of) {
    for (size_t t = 0; t < cells->graph->tensors.count; t++) {
        const struct tensor *tensor = cells->graph->tensors.items[t];
        struct tensor_cells *own = &cells->of[t];
        own->first = -1;
        if (tensor->kind == TENSOR_PARAMETER && is_followed(tensor)) TRY(settle(&of[t], tensor));
        if (!is_followed(tensor)) continue;
        struct borders *borders = &of[parameter_of(tensor)->id];
        own->first = cells->count;
        own->count = (int32_t)borders->list.count - 1;
        own->borders = borders->list.items;
        cells->count += own->count;
    }
    return STATUS_OK;
}

/* A parameter's list is the cells' from now on; other tensors share it. */
static void drop_borders(struct borders *of, const struct graph *graph, bool all) {
    for (size_t t = 0; of && t < graph->tensors.count; t++)
        if (all || !is_followed(graph->tensors.items[t])) vec_free(&of[t].list);
    mem_free(of);
}

enum status cells_create(const struct program *const *programs, int ranks, struct cells *out) {
    const struct graph *graph = programs[0]->graph;
    struct borders *of = mem_array(graph->tensors.count + 1, sizeof *of);
    *out = (struct cells){.graph = graph, .of = mem_array(graph->tensors.count + 1, sizeof *out->of)};
    enum status status = of && out->of ? STATUS_OK : STATUS_FAILED;
    for (int r = 0; r < ranks && status == STATUS_OK; r++)
        status = add_program(programs[r], of);
    if (status == STATUS_OK) status = number_cells(out, of);
    if (status != STATUS_OK) {
        mem_free(out->of);
        out->of = NULL;
    }
    drop_borders(of, graph, status != STATUS_OK);
    return status;
}

void cells_free(struct cells *cells) {
    for (size_t t = 0; cells->of && t < cells->graph->tensors.count; t++)
        if (cells->graph->tensors.items[t]->kind == TENSOR_PARAMETER) mem_free((void *)(uintptr_t)cells->of[t].borders);
    mem_free(cells->of);
    cells->of = NULL;
}

/* ---- values ---- */

/* The cells [*first, *end) of a tensor that a member has whole: those of its run. */
static void cells_of_member(const struct cells *cells, const struct pack_member *member, int32_t *first, int32_t *end) {
    const struct tensor_cells *own = &cells->of[member->tensor->id];
    int64_t per = tensor_elements_per(member->tensor);
    int64_t begin = member->first * per, stop = (member->first + member->elements) * per;
    for (*first = 0; *first < own->count && own->borders[*first] < begin;)
        ++*first;
    for (*end = *first; *end < own->count && own->borders[*end] < stop && member->elements > 0;)
        ++*end;
}

static bool follows(const struct cells *cells, const struct pack_member *member) {
    return cells->of[member->tensor->id].first >= 0;
}

static int64_t count_values(const struct cells *cells, const struct buffer *buffer) {
    struct pack_member single;
    int32_t count, first, end;
    int64_t sum = 0;
    const struct pack_member *members = members_of(buffer, &single, &count);
    for (int32_t m = 0; m < count; m++) {
        if (!follows(cells, &members[m])) continue;
        cells_of_member(cells, &members[m], &first, &end);
        sum += end - first;
    }
    return sum;
}

enum status cell_values_create(const struct program *program, const struct cells *cells, struct cell_values *out) {
    *out = (struct cell_values){.program = program, .cells = cells};
    TRY(scratch_items(&out->memory, &out->of, program->buffers.count + 1));
    for (size_t b = 0; b < program->buffers.count; b++) {
        int64_t count = count_values(cells, &program->buffers.items[b]);
        if (count > 0) TRY(scratch_items(&out->memory, &out->of[b], (size_t)count));
    }
    return STATUS_OK;
}

enum status cell_values_list(const struct cell_values *values, int32_t buffer, int64_t begin, int64_t end,
                             struct cell_list *out) {
    const struct cells *cells = values->cells;
    struct pack_member single;
    int32_t count, first, stop;
    value *at = values->of[buffer];
    const struct pack_member *members = members_of(&values->program->buffers.items[buffer], &single, &count);
    out->places.count = 0;
    for (int32_t m = 0; m < count && at; m++) {
        const struct pack_member *member = &members[m];
        if (!follows(cells, member)) continue;
        const struct tensor_cells *own = &cells->of[member->tensor->id];
        int64_t per = tensor_elements_per(member->tensor), size = dtype_bytes(member->tensor->shape.dtype);
        cells_of_member(cells, member, &first, &stop);
        for (int32_t c = first; c < stop; c++, at++) {
            int64_t byte = member->offset + (own->borders[c] / per - member->first) * size;
            if (byte < begin || byte >= end) continue;
            TRY(vec_push(&out->places, (struct cell_place){member->tensor, own->first + c, byte, at}));
        }
    }
    return STATUS_OK;
}

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
    AUTO(lane_tree_free) struct lane_tree tree = {0};
    size_t ranks = (size_t)attributes->part.parts;
    AUTO_FREE value *leaves = mem_array(ranks, sizeof *leaves);
    TRY(leaves ? lane_tree_create(1, (int)ranks, &tree) : STATUS_FAILED);
    const struct tensor_cells *own = cells_of(definition, node->out[0]);
    for (int64_t c = own->first; c < own->first + own->count; c++) {
        for (size_t r = 0; r < ranks; r++)
            leaves[r] = out[c];
        out[c] = value_tree_sum(&tree, 0, attributes->edges == DTYPE_BF16, leaves, 1);
    }
    return STATUS_OK;
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

/* Adds a lane's sum over a round, by cell. */
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
    for (int i = 0; i <= DEFINITION_STEPS; i++)
        TRY(scratch_items(&out->memory, &out->kept[i], (size_t)cells->count + 1));
    for (int i = 0; i < DEFINITION_STEPS; i++)
        TRY(scratch_items(&out->memory, &out->gradients[i], (size_t)cells->count + 1));
    for (int64_t c = 0; c < cells->count; c++)
        out->kept[0][c] = value_mix((value)c + 1, 'k');
    for (int64_t step = 0; step < DEFINITION_STEPS; step++)
        TRY(define_step(out, step));
    return STATUS_OK;
}

void definition_free(struct definition *definition) {
    scratch_free(&definition->memory);
    lane_tree_free(&definition->tree);
}
