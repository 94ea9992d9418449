#include "compiler/verify/verify.h"

#include "compiler/program.h"
#include "plan/chunks.h"

struct rank_state {
    const struct program *program;
    struct cell_values values;
    struct cell_list places, others, sources; /* of the instruction at hand */
    int first_lane, lanes;
    size_t at;   /* section */
    int64_t run; /* of it */
    int32_t next;
    int32_t index; /* the instruction at hand; -1: the step is over */
};

struct sums {
    struct scratch memory;
    struct cells cells;
    struct definition definition;
    int ranks;
    struct rank_state *states;
    bool *deferred; /* by tensor id of a parameter: its update is left to the next step */
    value *leaves;  /* by position in a group */
    int64_t step;
};

static const struct instruction *at_hand(const struct rank_state *state) {
    return &state->program->instructions.items[state->index];
}

static enum status fault(const struct rank_state *state, const char *what, const char *name) {
    const struct instruction *instruction = at_hand(state);
    return status_set(STATUS_FAILED, "program: rank %d: instruction %d (%s): %s%s", state->program->place.rank,
                      state->index, instruction->node ? instruction->node->name : "sums", what, name);
}

/* ---- kernels ---- */

/* Whether the list is the cells [begin, end) of the tensor, in elements of its parameter, and no other. */
static bool is_run(const struct sums *sums, const struct cell_list *list, const struct tensor *tensor, int64_t begin,
                   int64_t end) {
    const struct tensor_cells *own = &sums->cells.of[tensor->id];
    size_t next = 0;
    for (int32_t c = 0; c < own->count; c++) {
        if (own->borders[c] < begin || own->borders[c] >= end) continue;
        if (next >= list->places.count || list->places.items[next++].cell != own->first + c) return false;
    }
    return next == list->places.count;
}

static int64_t elements_of(const struct tensor *tensor) {
    return shape_elements(&(tensor->kind == TENSOR_PARAMETER ? tensor : tensor->parameter)->shape);
}

/* The cells of the operand, which is all of the tensor, or the instruction's run of it. */
static enum status list_operand(const struct sums *sums, struct rank_state *state, int k, const struct tensor *tensor,
                                struct cell_list *out) {
    const struct instruction *instruction = at_hand(state);
    int64_t begin = instruction->first_element, end = begin + instruction->elements;
    if (instruction->elements == 0) begin = 0, end = elements_of(tensor);
    TRY(cell_values_list_operand(&state->values, &instruction->operands[k], out));
    return is_run(sums, out, tensor, begin, end)
               ? STATUS_OK
               : fault(state, "works at another place than its run of ", tensor->name);
}

/* Views are of tensors that are there as a whole. */
static enum status check_parameter(const struct sums *sums, struct rank_state *state, int k) {
    const struct tensor *tensor = tensor_storage(at_hand(state)->node->in[k]);
    const value *kept = sums->definition.kept[sums->step];
    struct cell_list *list = &state->places;
    struct tensor_run run;
    const struct buffer *buffer = &state->program->buffers.items[at_hand(state)->operands[k].buffer];
    if (!buffer_find(buffer, tensor, &run)) return fault(state, "reads a buffer that has not ", tensor->name);
    int64_t bytes = run.elements * dtype_bytes(tensor->shape.dtype);
    TRY(cell_values_list(&state->values, buffer->id, run.offset, run.offset + bytes, list));
    if (!is_run(sums, list, tensor, 0, elements_of(tensor))) return fault(state, "reads a part of ", tensor->name);
    for (size_t i = 0; i < list->places.count; i++)
        if (*list->places.items[i].value != kept[list->places.items[i].cell])
            return fault(state, "reads what is not the latest of ", tensor->name);
    return STATUS_OK;
}

static int64_t micro_batch_of(const struct sums *sums, const struct rank_state *state) {
    const struct instruction *instruction = at_hand(state);
    const struct section *section = &state->program->sections.items[instruction->section];
    return state->first_lane * sums->definition.in_lane + section->first_micro_batch +
           state->run * section->micro_batches + instruction->micro_batch;
}

/* The slot of a share among the rank's: rounds in order, and in each its lanes that have micro-batches, or one that has
 * none.
 */
static int64_t slot_of(const struct definition *definition, const struct rank_state *state, int lane, int64_t round) {
    int64_t slot = 0, first;
    for (int64_t r = 0; r < round; r++) {
        int64_t lanes = 0;
        for (int l = state->first_lane; l < state->first_lane + state->lanes; l++)
            lanes += definition_micro_batches(definition, l, r, &first) > 0;
        slot += lanes > 0 ? lanes : 1;
    }
    return slot + lane - state->first_lane;
}

static enum status check_loss(const struct sums *sums, const struct rank_state *state, int i) {
    const struct definition *definition = &sums->definition;
    const struct tensor *tensor = at_hand(state)->node->out[i];
    int64_t micro_batch = micro_batch_of(sums, state), lane = micro_batch / definition->in_lane;
    int64_t slot = slot_of(definition, state, (int)lane, micro_batch % definition->in_lane / definition->in_share);
    bool own = at_hand(state)->operands[OP_INPUTS_MAX + i].offset == slot * shape_bytes(&tensor->shape);
    return own ? STATUS_OK : fault(state, "adds to another share's ", tensor->name);
}

/* Forward and backward. */
static enum status wave_micro_batch(const struct sums *sums, struct rank_state *state) {
    const struct node *node = at_hand(state)->node;
    for (int k = 0; k < node->op->inputs; k++)
        if (node->in[k] && tensor_storage(node->in[k])->kind == TENSOR_PARAMETER) TRY(check_parameter(sums, state, k));
    for (int i = 0; i < node->op->outputs && node->phase == PHASE_BACKWARD; i++) {
        const struct tensor *tensor = node->out[i];
        struct cell_list *list = &state->places;
        if (tensor && tensor->kind == TENSOR_RESULT) TRY(check_loss(sums, state, i));
        if (!tensor || tensor->kind != TENSOR_GRADIENT) continue;
        TRY(list_operand(sums, state, OP_INPUTS_MAX + i, tensor, list));
        for (size_t c = 0; c < list->places.count; c++) {
            value *sum = list->places.items[c].value;
            if (*sum == 0) return fault(state, "adds to what is no sum: ", tensor->name);
            *sum = value_add_micro_batch(*sum, node, micro_batch_of(sums, state));
        }
    }
    return STATUS_OK;
}

static enum status add_uses(const struct sums *sums, struct rank_state *state) {
    const struct node *node = at_hand(state)->node;
    TRY(list_operand(sums, state, 0, node->in[0], &state->places));
    TRY(list_operand(sums, state, 1, node->in[1], &state->sources));
    TRY(list_operand(sums, state, OP_INPUTS_MAX, node->out[0], &state->others));
    for (size_t c = 0; c < state->sources.places.count; c++)
        *state->others.places.items[c].value =
            value_add_use(*state->places.places.items[c].value, *state->sources.places.items[c].value);
    return STATUS_OK;
}

/* Checks a gradient or its sums of squares. A deferred update reads those of the step before. */
static enum status check_gradient(const struct sums *sums, struct rank_state *state, const struct tensor *tensor) {
    bool squares = tensor->kind == TENSOR_RESULT;
    const struct tensor *gradient = squares ? tensor->producer->in[0] : tensor;
    const value *expected = sums->definition.gradients[sums->step - at_hand(state)->deferred];
    int64_t first = sums->cells.of[gradient->id].first - sums->cells.of[tensor->id].first;
    TRY(list_operand(sums, state, 0, tensor, &state->places));
    for (size_t c = 0; c < state->places.places.count; c++) {
        const struct cell_place *place = &state->places.places.items[c];
        value sum = expected[first + place->cell];
        if (*place->value == (squares ? value_squares(sum) : sum)) continue;
        return fault(state,
                     squares ? "reads what is not the norm of the recipe's sum: "
                             : "reads what is not the recipe's sum of ",
                     tensor->name);
    }
    return STATUS_OK;
}

static enum status write_squares(const struct sums *sums, struct rank_state *state) {
    TRY(list_operand(sums, state, OP_INPUTS_MAX, at_hand(state)->node->out[0], &state->others));
    for (size_t c = 0; c < state->others.places.count; c++)
        *state->others.places.items[c].value = value_squares(*state->places.places.items[c].value);
    return STATUS_OK;
}

/* A parameter comes before its master: that is still the old one. */
static enum status write_updated(const struct sums *sums, struct rank_state *state, int i) {
    const struct node *node = at_hand(state)->node;
    int from = definition_source(node, i);
    TRY(list_operand(sums, state, OP_INPUTS_MAX + from, node->out[from], &state->sources));
    TRY(list_operand(sums, state, OP_INPUTS_MAX + i, node->out[i], &state->others));
    for (size_t c = 0; c < state->others.places.count; c++) {
        value gradient = *state->places.places.items[c].value, old = *state->sources.places.items[c].value;
        *state->others.places.items[c].value = from == i ? value_updated(old, gradient) : value_rounded(old, gradient);
    }
    return STATUS_OK;
}

/* After its gradient was checked: outputs that are followed are made of it. */
static enum status write_outputs(const struct sums *sums, struct rank_state *state) {
    const struct node *node = at_hand(state)->node;
    for (int i = 0; i < node->op->outputs; i++) {
        if (!node->out[i] || sums->cells.of[node->out[i]->id].first < 0) continue;
        TRY(node->phase == PHASE_FINISH ? write_squares(sums, state) : write_updated(sums, state, i));
    }
    return STATUS_OK;
}

static enum status execute_kernel(const struct sums *sums, struct rank_state *state) {
    const struct node *node = at_hand(state)->node;
    const struct tensor *first = node->in[0];
    if (node->phase <= PHASE_BACKWARD) return wave_micro_batch(sums, state);
    if (node->phase == PHASE_FINISH && node->out[0]->kind == TENSOR_GRADIENT) return add_uses(sums, state);
    if (first && first->kind == TENSOR_RESULT && first->parameter) return check_gradient(sums, state, first);
    if (!first || first->kind != TENSOR_GRADIENT) return STATUS_OK;
    TRY(check_gradient(sums, state, first));
    return write_outputs(sums, state);
}

/* ---- bytes that are moved ---- */

/* Sets the output to zeros; or rounds it, at an edge of the lanes' tree that has none next to it. */
static enum status change_cells(const struct sums *sums, struct rank_state *state) {
    bool zero = at_hand(state)->opcode == OPCODE_ZERO;
    TRY(cell_values_list_operand(&state->values, &at_hand(state)->operands[OP_INPUTS_MAX], &state->places));
    for (size_t c = 0; c < state->places.places.count; c++) {
        const struct cell_place *place = &state->places.places.items[c];
        *place->value = zero ? value_zero(sums->step, place->cell) : value_round(*place->value);
    }
    return STATUS_OK;
}

/* Whether two lists are of the same cells, each as far from the first byte. */
static bool are_alike(const struct cell_list *a, int64_t first_byte, const struct cell_list *b, int64_t other_byte) {
    if (a->places.count != b->places.count) return false;
    for (size_t c = 0; c < a->places.count; c++)
        if (a->places.items[c].cell != b->places.items[c].cell ||
            a->places.items[c].byte - first_byte != b->places.items[c].byte - other_byte)
            return false;
    return true;
}

static value moved_value(enum opcode opcode, value own, value moved) {
    if (opcode == OPCODE_ADD_BF16) return value_add(value_round(own), value_round(moved));
    return opcode == OPCODE_ADD ? value_add(own, moved) : moved;
}

/* The cells of an operand go to, or are added to, as many bytes from `byte` on of a buffer of the same rank or of
 * another. `what` says of that rank that they are other cells. */
static enum status move_cells(struct rank_state *from, const struct operand *moved, struct rank_state *to,
                              int32_t buffer, int64_t byte, const char *what) {
    TRY(cell_values_list_operand(&from->values, moved, &from->places));
    TRY(cell_values_list(&to->values, buffer, byte, byte + moved->bytes, &to->others));
    if (!are_alike(&from->places, moved->offset, &to->others, byte)) return fault(to, what, "");
    for (size_t c = 0; c < to->others.places.count; c++) {
        value *own = to->others.places.items[c].value;
        *own = moved_value(at_hand(to)->opcode, *own, *from->places.places.items[c].value);
    }
    return STATUS_OK;
}

static enum status execute_move(const struct sums *sums, struct rank_state *state) {
    const struct operand *from = &at_hand(state)->operands[0], *to = &at_hand(state)->operands[OP_INPUTS_MAX];
    if (at_hand(state)->opcode == OPCODE_ZERO || from->buffer < 0) return change_cells(sums, state);
    return move_cells(state, from, state, to->buffer, to->offset, "moves data to another place than its own");
}

/* Executes one rank up to its next operation with others, or to the end of the step. */
static enum status run(const struct sums *sums, struct rank_state *state) {
    const struct program *program = state->program;
    for (; state->at < program->sections.count; state->at++, state->run = 0) {
        const struct section *section = &program->sections.items[state->at];
        for (; state->run < section->repeat; state->run++, state->next = 0)
            while (state->next < section->count) {
                state->index = section->first + state->next++;
                const struct instruction *instruction = at_hand(state);
                if (opcode_is_collective(instruction->opcode)) return STATUS_OK;
                if (instruction->deferred && sums->step == 0) continue;
                TRY(instruction->opcode == OPCODE_KERNEL ? execute_kernel(sums, state) : execute_move(sums, state));
            }
    }
    state->index = -1;
    return STATUS_OK;
}

/* ---- operations between ranks ---- */

static const struct program_collective *operation_of(const struct rank_state *state) {
    return &state->program->collectives.items[at_hand(state)->collective];
}

static bool is_in(const struct comm_range *range, int64_t byte) { return byte >= range->begin && byte < range->end; }

static struct rank_state *member(const struct sums *sums, const struct comm_group *group, int position) {
    return &sums->states[mesh_group_rank(group, position)];
}

static void reduce_cell(const struct sums *sums, const struct comm_group *group, const struct lane_tree *tree,
                        size_t cell) {
    for (int i = 0; i < group->count; i++) {
        const struct rank_state *state = member(sums, group, i);
        const struct program_collective *operation = operation_of(state);
        bool empty = operation->empty && operation->empty[i];
        sums->leaves[i] = empty ? 0 : *state->places.places.items[cell].value;
    }
    bool rounds = operation_of(member(sums, group, 0))->round_bf16;
    value sum = value_tree_sum(tree, 0, rounds, sums->leaves, 1);
    for (int i = 0; i < group->count; i++) {
        struct rank_state *state = member(sums, group, i);
        const struct cell_place *place = &state->places.places.items[cell];
        struct comm_range own = collectives_own_block(state->program, operation_of(state));
        int64_t byte = place->byte - at_hand(state)->operands[OP_INPUTS_MAX].offset;
        bool kept = at_hand(state)->opcode == OPCODE_ALL_REDUCE || is_in(&own, byte);
        *place->value = kept ? sum : 0;
    }
}

/* The tree of the operation's sums: above lanes that of the recipe, of an operator that of its group. */
static enum status make_tree(const struct rank_state *state, struct lane_tree *out) {
    struct comm_spec spec;
    if (at_hand(state)->node) return lane_tree_create(1, operation_of(state)->group.count, out);
    return collectives_spec(state->program, at_hand(state)->collective, out, &spec);
}

/* Reduces gradients. Sums over activations have no cells. */
static enum status reduce(const struct sums *sums, const struct comm_group *group) {
    const struct rank_state *first = member(sums, group, 0);
    int64_t first_byte = at_hand(first)->operands[OP_INPUTS_MAX].offset;
    AUTO(lane_tree_free) struct lane_tree tree = {0};
    for (int i = 0; i < group->count; i++) {
        struct rank_state *state = member(sums, group, i);
        const struct operand *data = &at_hand(state)->operands[OP_INPUTS_MAX];
        TRY(cell_values_list_operand(&state->values, data, &state->places));
        if (!are_alike(&state->places, data->offset, &first->places, first_byte))
            return fault(state, "sums other gradients than the first of its group", "");
    }
    enum status status = make_tree(first, &tree);
    for (size_t c = 0; status == STATUS_OK && c < first->places.places.count; c++)
        reduce_cell(sums, group, &tree, c);
    return status;
}

/* The block that `from` has goes to its place on `to`. */
static enum status gather_block(struct rank_state *from, struct rank_state *to) {
    const struct operand *mine = &at_hand(from)->operands[0], *out = &at_hand(to)->operands[OP_INPUTS_MAX];
    struct comm_range block = collectives_own_block(from->program, operation_of(from));
    int64_t place = out->offset + block.begin;
    if (block.begin == block.end) return STATUS_OK;
    if (mine->buffer < 0 || mine->bytes != block.end - block.begin) return fault(from, "has not its block", "");
    if (from == to && mine->buffer == out->buffer && mine->offset != place)
        return fault(from, "has its block in another place", "");
    return move_cells(from, mine, to, out->buffer, place, "gathers data to another place than its own");
}

static enum status gather(const struct sums *sums, const struct comm_group *group) {
    for (int i = 0; i < group->count; i++)
        for (int j = 0; j < group->count; j++)
            TRY(gather_block(&sums->states[mesh_group_rank(group, i)], &sums->states[mesh_group_rank(group, j)]));
    return STATUS_OK;
}

/* The root's data goes to the same place on the other ranks. */
static enum status broadcast(const struct sums *sums, const struct comm_group *group) {
    struct rank_state *root = &sums->states[mesh_group_rank(group, operation_of(&sums->states[group->first])->root)];
    const struct operand *sent = &at_hand(root)->operands[0];
    for (int i = 0; i < group->count; i++) {
        struct rank_state *to = &sums->states[mesh_group_rank(group, i)];
        const struct operand *out = &at_hand(to)->operands[OP_INPUTS_MAX];
        if (to != root)
            TRY(move_cells(root, sent, to, out->buffer, out->offset, "receives data in another place than its own"));
    }
    return STATUS_OK;
}

/* Collectives of activations have no cells. */
static enum status run_collective(const struct sums *sums, const struct instruction *instruction,
                                  const struct comm_group *group) {
    bool sum = instruction->opcode == OPCODE_ALL_REDUCE || instruction->opcode == OPCODE_REDUCE_SCATTER;
    if (instruction->opcode == OPCODE_BROADCAST) return broadcast(sums, group);
    if (sum) return reduce(sums, group);
    return instruction->node ? STATUS_OK : gather(sums, group);
}

/* The operations of a turn (ranks.c), each group's once. */
static enum status make_operations(void *payload, const int32_t *operations) {
    struct sums *sums = payload;
    for (int r = 0; r < sums->ranks; r++)
        if (operations[r] >= 0) TRY(run(sums, &sums->states[r]));
    for (int r = 0; r < sums->ranks; r++) {
        const struct rank_state *state = &sums->states[r];
        if (operations[r] < 0 || operation_of(state)->group.first != r) continue;
        if (at_hand(state)->deferred && sums->step == 0) continue;
        struct comm_group group = operation_of(state)->group;
        TRY(run_collective(sums, at_hand(state), &group));
    }
    return STATUS_OK;
}

/* ---- steps ---- */

/* Parameters and states as the step leaves them. `held`: by cell, ranks that have it. */
static enum status check_kept(const struct sums *sums, struct rank_state *state, const struct buffer *buffer,
                              int *held) {
    TRY(cell_values_list(&state->values, buffer->id, 0, buffer->bytes, &state->places));
    for (size_t c = 0; c < state->places.places.count; c++) {
        const struct cell_place *place = &state->places.places.items[c];
        const struct tensor *tensor = place->tensor;
        if (tensor->kind != TENSOR_PARAMETER && tensor->kind != TENSOR_STATE) continue;
        const struct tensor *parameter = tensor->kind == TENSOR_STATE ? tensor->parameter : tensor;
        int64_t done = sums->step + 1 - sums->deferred[parameter->id];
        held[place->cell]++;
        if (*place->value != sums->definition.kept[done][place->cell])
            return status_set(STATUS_FAILED, "program: rank %d: step %lld leaves %s as it should not be",
                              state->program->place.rank, (long long)sums->step, tensor->name);
    }
    return STATUS_OK;
}

/* Checks the ranks at one place of the tensor axis. */
static enum status check_held(const struct sums *sums, const int *held) {
    const struct graph *graph = sums->cells.graph;
    for (size_t t = 0; t < graph->tensors.count; t++) {
        const struct tensor *tensor = graph->tensors.items[t];
        const struct tensor_cells *own = &sums->cells.of[t];
        bool kept = own->first >= 0 && (tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_STATE);
        for (int32_t c = 0; kept && c < own->count; c++)
            if (held[own->first + c] == 0)
                return status_set(STATUS_FAILED, "program: no rank has elements %lld to %lld of %s",
                                  (long long)own->borders[c], (long long)own->borders[c + 1], tensor->name);
    }
    return STATUS_OK;
}

static enum status check_rank_end(const struct sums *sums, struct rank_state *state, int *held) {
    const struct program *program = state->program;
    for (size_t b = 0; b < program->buffers.count; b++)
        if (program->buffers.items[b].persistent) TRY(check_kept(sums, state, &program->buffers.items[b], held));
    return STATUS_OK;
}

static enum status check_end(const struct sums *sums, int *held) {
    int tensor = rank_place_tensor_parallel(&sums->states[0].program->place);
    for (int t = 0; t < tensor; t++) {
        memset(held, 0, (size_t)sums->cells.count * sizeof *held);
        for (int r = t; r < sums->ranks; r += tensor)
            TRY(check_rank_end(sums, &sums->states[r], held));
        TRY(check_held(sums, held));
    }
    return STATUS_OK;
}

static enum status run_step(struct sums *sums, const struct program *const *programs) {
    for (int r = 0; r < sums->ranks; r++)
        sums->states[r].at = 0, sums->states[r].run = 0, sums->states[r].next = 0;
    TRY(program_verify_matching(programs, sums->ranks, make_operations, sums));
    for (int r = 0; r < sums->ranks; r++)
        TRY(run(sums, &sums->states[r]));
    int *held = scratch_alloc(&sums->memory, (size_t)sums->cells.count + 1, sizeof *held);
    return held ? check_end(sums, held) : STATUS_FAILED;
}

/* ---- setting up ---- */

/* Parameters and states are there from the beginning. */
static enum status fill(struct sums *sums, struct rank_state *state) {
    const struct program *program = state->program;
    for (size_t b = 0; b < program->buffers.count; b++) {
        if (!program->buffers.items[b].persistent) continue;
        TRY(cell_values_list(&state->values, (int32_t)b, 0, program->buffers.items[b].bytes, &state->places));
        for (size_t c = 0; c < state->places.places.count; c++) {
            const struct cell_place *place = &state->places.places.items[c];
            bool kept = place->tensor->kind == TENSOR_PARAMETER || place->tensor->kind == TENSOR_STATE;
            if (kept) *place->value = sums->definition.kept[0][place->cell];
        }
    }
    return STATUS_OK;
}

static enum status begin_rank(struct sums *sums, int rank, const struct program *program, const int *subtree) {
    struct rank_state *state = &sums->states[rank];
    const struct lane_node *node = &sums->definition.tree.node[subtree[rank_place_data_rank(&program->place)]];
    *state = (struct rank_state){.program = program, .first_lane = node->first, .lanes = node->lanes};
    TRY(cell_values_create(program, &sums->cells, &state->values));
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        const struct tensor *updated = instruction->node ? instruction->node->out[0] : NULL;
        if (instruction->deferred && updated && updated->kind == TENSOR_PARAMETER) sums->deferred[updated->id] = true;
    }
    return fill(sums, state);
}

static enum status begin(struct sums *sums, const struct program *const *programs, const struct recipe *recipe) {
    size_t ranks = (size_t)sums->ranks;
    TRY(cells_create(programs, sums->ranks, &sums->cells));
    TRY(definition_create(&sums->cells, recipe, &sums->definition));
    sums->states = scratch_alloc(&sums->memory, ranks, sizeof *sums->states);
    sums->leaves = scratch_alloc(&sums->memory, ranks, sizeof *sums->leaves);
    sums->deferred = scratch_alloc(&sums->memory, programs[0]->graph->tensors.count + 1, sizeof *sums->deferred);
    int *subtree = scratch_alloc(&sums->memory, ranks, sizeof *subtree);
    if (!sums->states || !sums->leaves || !sums->deferred || !subtree) return STATUS_FAILED;
    TRY(lane_tree_cut(&sums->definition.tree, rank_place_data(&programs[0]->place), subtree));
    for (int r = 0; r < sums->ranks; r++)
        TRY(begin_rank(sums, r, programs[r], subtree));
    return STATUS_OK;
}

enum status program_verify_sums(const struct program *const *programs, int ranks, const struct recipe *recipe) {
    struct sums sums = {.ranks = ranks};
    enum status status = begin(&sums, programs, recipe);
    for (sums.step = 0; sums.step < DEFINITION_STEPS && status == STATUS_OK; sums.step++)
        status = run_step(&sums, programs);
    for (int r = 0; sums.states && r < ranks; r++) {
        scratch_free(&sums.states[r].values.memory);
        vec_free(&sums.states[r].places.places);
        vec_free(&sums.states[r].others.places);
        vec_free(&sums.states[r].sources.places);
    }
    scratch_free(&sums.memory);
    definition_free(&sums.definition);
    cells_free(&sums.cells);
    return status;
}
