#include "program/verify_sums.h"

#include <inttypes.h>
#include <string.h>

#include "program/collectives.h"

enum { STEPS = 2 };

/* 0: nothing. */
typedef uint64_t value;

static value mix(value a, value b) {
    value x = (a ^ b >> 32) * 0x9e3779b97f4a7c15u + b;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9u;
    return (x ^ x >> 29) | 1;
}

static value rounded(value sum) { return mix(sum, 'r'); }
static value add_values(value left, value right) { return mix(mix(left, '+'), right); }
static value add_use(value sum, value use) { return mix(mix(sum, 'u'), use); }
static value add_grain(value sum, const struct node *node, int64_t grain) {
    return mix(mix(sum, (value)node->id + 1), (value)grain + 1);
}
static value zeros(int64_t step) { return mix((value)step + 1, 'z'); }

/* The recipe's numbers, from their definition. */
struct definition {
    const struct graph *graph;
    struct lane_tree tree;
    int64_t grains, in_lane, in_share, rounds;
    bool edges_round; /* of the tree, to bf16 */
};

struct rank_state {
    const struct program *program;
    int first_lane, lanes;
    value **of;  /* by buffer of gradients: by member of its pack */
    size_t at;   /* section */
    int64_t run; /* of it */
    int32_t next;
};

struct sums {
    struct definition definition;
    int ranks;
    struct rank_state *states;
    value *expected[STEPS]; /* by tensor id */
    int64_t step;
};

/* ---- what is expected ---- */

static int64_t grains_in(const struct definition *definition, int lane, int64_t round, int64_t *first) {
    int64_t lane_end = (lane + 1) * definition->in_lane, end;
    *first = lane * definition->in_lane + round * definition->in_share;
    end = *first + definition->in_share;
    if (end > lane_end) end = lane_end;
    if (end > definition->grains) end = definition->grains;
    return end > *first ? end - *first : 0;
}

/* What a lane adds up in a round, by tensor id. */
static void lane_values(const struct definition *definition, int lane, int64_t round, int64_t step, value *out) {
    const struct graph *graph = definition->graph;
    int64_t first, count = grains_in(definition, lane, round, &first);
    for (size_t t = 0; t < graph->tensors.count; t++)
        out[t] = zeros(step);
    for (int64_t grain = first; grain < first + count; grain++)
        for (size_t n = 0; n < graph->nodes.count; n++) {
            const struct node *node = graph->nodes.items[n];
            for (int i = 0; i < node->op->outputs && node->phase == PHASE_BACKWARD; i++)
                if (node->out[i] && node->out[i]->kind == TENSOR_GRADIENT)
                    out[node->out[i]->id] = add_grain(out[node->out[i]->id], node, grain);
        }
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        bool sum = node->phase == PHASE_FINISH && node->out[0] && node->out[0]->kind == TENSOR_GRADIENT;
        if (sum) out[node->out[0]->id] = add_use(out[node->in[0]->id], out[node->in[1]->id]);
    }
}

static value node_value(const struct lane_tree *tree, int index, bool edges_round, const value *by_lane,
                        size_t stride) {
    const struct lane_node *node = &tree->node[index];
    if (node->left < 0) return by_lane[(size_t)node->first * stride];
    value left = node_value(tree, node->left, edges_round, by_lane, stride);
    value right = node_value(tree, node->right, edges_round, by_lane, stride);
    if (edges_round) left = left ? rounded(left) : 0, right = right ? rounded(right) : 0;
    return !left ? right : !right ? left : add_values(left, right);
}

static enum status expect(struct sums *sums, int64_t step, value *out) {
    const struct definition *definition = &sums->definition;
    size_t tensors = definition->graph->tensors.count;
    value *by_lane = mem_array((size_t)definition->tree.lanes * tensors, sizeof *by_lane);
    if (!by_lane) return STATUS_FAILED;
    for (int64_t round = 0; round < definition->rounds; round++) {
        int64_t first;
        memset(by_lane, 0, (size_t)definition->tree.lanes * tensors * sizeof *by_lane);
        for (int lane = 0; lane < definition->tree.lanes; lane++)
            if (grains_in(definition, lane, round, &first) > 0)
                lane_values(definition, lane, round, step, by_lane + (size_t)lane * tensors);
        for (size_t t = 0; t < tensors; t++) {
            value sum = node_value(&definition->tree, 0, definition->edges_round, by_lane + t, tensors);
            out[t] = round == 0 ? sum : add_values(out[t], sum);
        }
    }
    mem_free(by_lane);
    return STATUS_OK;
}

/* The slot of a share among the rank's: rounds in order, and in each its lanes that have grains, or one that has none.
 */
static int64_t slot_of(const struct definition *definition, const struct rank_state *state, int lane, int64_t round) {
    int64_t slot = 0, first;
    for (int64_t r = 0; r < round; r++) {
        int64_t lanes = 0;
        for (int l = state->first_lane; l < state->first_lane + state->lanes; l++)
            lanes += grains_in(definition, l, r, &first) > 0;
        slot += lanes > 0 ? lanes : 1;
    }
    return slot + lane - state->first_lane;
}

/* ---- what is computed ---- */

static enum status fault(const struct rank_state *state, int32_t index, const char *what, const char *name) {
    const struct instruction *instruction = &state->program->instructions.items[index];
    return status_set(STATUS_FAILED, "program: rank %d: instruction %d (%s): %s%s", state->program->place.rank, index,
                      instruction->node ? instruction->node->name : "sums", what, name);
}

/* The value of a gradient in a buffer. */
static value *value_at(const struct rank_state *state, int32_t buffer, const struct tensor *tensor) {
    const struct pack *pack = state->program->buffers.items[buffer].pack;
    for (int32_t m = 0; pack && m < pack->count; m++)
        if (pack->members[m].tensor == tensor) return &state->of[buffer][m];
    return NULL;
}

static int64_t grain_of(const struct sums *sums, const struct rank_state *state,
                        const struct instruction *instruction) {
    const struct section *section = &state->program->sections.items[instruction->section];
    return state->first_lane * sums->definition.in_lane + section->first_grain + state->run * section->grains +
           instruction->grain;
}

static enum status check_loss(const struct sums *sums, const struct rank_state *state, int32_t index, int i) {
    const struct instruction *instruction = &state->program->instructions.items[index];
    const struct definition *definition = &sums->definition;
    const struct tensor *tensor = instruction->node->out[i];
    int64_t grain = grain_of(sums, state, instruction), lane = grain / definition->in_lane;
    int64_t slot = slot_of(definition, state, (int)lane, grain % definition->in_lane / definition->in_share);
    bool own = instruction->operands[OP_INPUTS_MAX + i].offset == slot * shape_bytes(&tensor->shape);
    return own ? STATUS_OK : fault(state, index, "adds to another share's ", tensor->name);
}

static enum status add_gradients(const struct sums *sums, const struct rank_state *state, int32_t index) {
    const struct instruction *instruction = &state->program->instructions.items[index];
    const struct node *node = instruction->node;
    for (int i = 0; i < node->op->outputs; i++) {
        const struct tensor *tensor = node->out[i];
        if (tensor && tensor->kind == TENSOR_RESULT) TRY(check_loss(sums, state, index, i));
        if (!tensor || tensor->kind != TENSOR_GRADIENT) continue;
        value *sum = value_at(state, instruction->operands[OP_INPUTS_MAX + i].buffer, tensor);
        if (!sum || *sum == 0) return fault(state, index, "adds to what is no sum: ", tensor->name);
        *sum = add_grain(*sum, node, grain_of(sums, state, instruction));
    }
    return STATUS_OK;
}

static enum status add_uses(const struct rank_state *state, int32_t index) {
    const struct instruction *instruction = &state->program->instructions.items[index];
    const struct node *node = instruction->node;
    const value *sum = value_at(state, instruction->operands[0].buffer, node->in[0]);
    const value *use = value_at(state, instruction->operands[1].buffer, node->in[1]);
    value *out = value_at(state, instruction->operands[OP_INPUTS_MAX].buffer, node->out[0]);
    if (!sum || !use || !out) return fault(state, index, "adds what is no sum: ", node->out[0]->name);
    *out = add_use(*sum, *use);
    return STATUS_OK;
}

/* Gradients that a deferred update reads are those of the step before. */
static enum status check_finished(const struct sums *sums, const struct rank_state *state, int32_t index) {
    const struct instruction *instruction = &state->program->instructions.items[index];
    const struct node *node = instruction->node;
    const value *expected = sums->expected[sums->step - instruction->deferred];
    for (int i = 0; i < node->op->inputs; i++) {
        const struct tensor *tensor = node->in[i];
        if (!tensor || tensor->kind != TENSOR_GRADIENT) continue;
        const value *sum = value_at(state, instruction->operands[i].buffer, tensor);
        if (!sum || *sum != expected[tensor->id])
            return fault(state, index, "reads what is not the recipe's sum of ", tensor->name);
    }
    return STATUS_OK;
}

static enum status execute_kernel(const struct sums *sums, const struct rank_state *state, int32_t index) {
    const struct node *node = state->program->instructions.items[index].node;
    if (node->phase == PHASE_BACKWARD) return add_gradients(sums, state, index);
    bool uses = node->phase == PHASE_FINISH && node->out[0] && node->out[0]->kind == TENSOR_GRADIENT;
    if (uses) return add_uses(state, index);
    return node->phase > PHASE_BACKWARD ? check_finished(sums, state, index) : STATUS_OK;
}

/* Zeros, copies and sums of whole packs, or of their fronts. */
static void execute_pack(const struct sums *sums, const struct rank_state *state,
                         const struct instruction *instruction) {
    const struct operand *from = &instruction->operands[0], *to = &instruction->operands[OP_INPUTS_MAX];
    const struct buffer *buffer = &state->program->buffers.items[to->buffer];
    value *target = state->of[to->buffer];
    for (int32_t m = 0; target && m < buffer->pack->count; m++) {
        if (buffer->pack->members[m].offset >= to->bytes) break;
        if (instruction->opcode == OPCODE_ZERO) target[m] = zeros(sums->step);
        if (instruction->opcode == OPCODE_COPY) target[m] = state->of[from->buffer][m];
        if (instruction->opcode == OPCODE_ADD) target[m] = add_values(target[m], state->of[from->buffer][m]);
        if (instruction->opcode != OPCODE_ADD_BF16) continue;
        target[m] = rounded(target[m]);
        if (from->buffer >= 0) target[m] = add_values(target[m], rounded(state->of[from->buffer][m]));
    }
}

/* Executes one rank up to its next operation with the others, or to the end of the step (*index is then -1). */
static enum status run(const struct sums *sums, struct rank_state *state, int32_t *index) {
    const struct program *program = state->program;
    for (; state->at < program->sections.count; state->at++, state->run = 0) {
        const struct section *section = &program->sections.items[state->at];
        for (; state->run < section->repeat; state->run++, state->next = 0)
            while (state->next < section->count) {
                *index = section->first + state->next++;
                const struct instruction *instruction = &program->instructions.items[*index];
                if (instruction->deferred && sums->step == 0) continue;
                if (instruction->opcode == OPCODE_ALL_REDUCE) return STATUS_OK;
                if (instruction->opcode == OPCODE_KERNEL)
                    TRY(execute_kernel(sums, state, *index));
                else
                    execute_pack(sums, state, instruction);
            }
    }
    *index = -1;
    return STATUS_OK;
}

static bool is_empty(const struct program_collective *collective, int rank) {
    return collective->empty && collective->empty[rank];
}

/* The sum of one member of the packs over all ranks. */
static value reduce_member(const struct sums *sums, const struct lane_tree *tree, const int32_t *indices,
                           int32_t member, value *leaves) {
    for (int r = 0; r < sums->ranks; r++) {
        const struct program *program = sums->states[r].program;
        const struct instruction *instruction = &program->instructions.items[indices[r]];
        const struct program_collective *collective = &program->collectives.items[instruction->collective];
        value mine = sums->states[r].of[instruction->operands[OP_INPUTS_MAX].buffer][member];
        leaves[r] = is_empty(collective, r) ? 0 : mine;
    }
    const struct program *first = sums->states[0].program;
    bool rounds = first->collectives.items[first->instructions.items[indices[0]].collective].round_bf16;
    return node_value(tree, 0, rounds, leaves, 1);
}

static enum status reduce(const struct sums *sums, const int32_t *indices, value *leaves) {
    const struct rank_state *first = &sums->states[0];
    const struct instruction *instruction = &first->program->instructions.items[indices[0]];
    const struct operand *data = &instruction->operands[OP_INPUTS_MAX];
    const struct pack *pack = first->program->buffers.items[data->buffer].pack;
    struct lane_tree tree;
    struct comm_spec spec;
    for (int r = 0; r < sums->ranks; r++) {
        const struct program *program = sums->states[r].program;
        int32_t buffer = program->instructions.items[indices[r]].operands[OP_INPUTS_MAX].buffer;
        const struct pack *theirs = program->buffers.items[buffer].pack;
        bool same = pack && theirs && theirs->count == pack->count;
        for (int32_t m = 0; same && m < pack->count; m++)
            same = theirs->members[m].tensor->id == pack->members[m].tensor->id;
        if (!same) return fault(&sums->states[r], indices[r], "sums other gradients than rank 0", "");
    }
    enum status status = collectives_spec(first->program, instruction->collective, &tree, &spec);
    for (int32_t m = 0; status == STATUS_OK && m < pack->count && pack->members[m].offset < data->bytes; m++) {
        value sum = reduce_member(sums, &tree, indices, m, leaves);
        for (int r = 0; r < sums->ranks; r++) {
            const struct instruction *own = &sums->states[r].program->instructions.items[indices[r]];
            sums->states[r].of[own->operands[OP_INPUTS_MAX].buffer][m] = sum;
        }
    }
    lane_tree_free(&tree);
    return status;
}

static enum status run_step(struct sums *sums, int32_t *indices, value *leaves) {
    for (int r = 0; r < sums->ranks; r++)
        sums->states[r].at = 0, sums->states[r].run = 0, sums->states[r].next = 0;
    for (;;) {
        int waiting = 0;
        for (int r = 0; r < sums->ranks; r++) {
            TRY(run(sums, &sums->states[r], &indices[r]));
            waiting += indices[r] >= 0;
        }
        if (waiting == 0) return STATUS_OK;
        if (waiting < sums->ranks)
            return status_set(STATUS_FAILED, "program: %d of %d ranks wait for an operation", waiting, sums->ranks);
        TRY(reduce(sums, indices, leaves));
    }
}

/* ---- setting up ---- */

static enum status begin_rank(struct sums *sums, int rank, const struct program *program, const int *subtree) {
    struct rank_state *state = &sums->states[rank];
    const struct lane_node *node = &sums->definition.tree.node[subtree[rank]];
    *state = (struct rank_state){.program = program, .first_lane = node->first, .lanes = node->lanes};
    state->of = mem_array(program->buffers.count, sizeof *state->of);
    if (!state->of) return STATUS_FAILED;
    for (size_t b = 0; b < program->buffers.count; b++) {
        const struct buffer *buffer = &program->buffers.items[b];
        if (buffer->kind != BUFFER_GRADIENTS) continue;
        state->of[b] = mem_array((size_t)buffer->pack->count, sizeof **state->of);
        if (!state->of[b]) return STATUS_FAILED;
    }
    return STATUS_OK;
}

static enum status begin(struct sums *sums, const struct program *const *programs, const struct recipe *recipe) {
    struct definition *definition = &sums->definition;
    int64_t in_lane = recipe_lane_grains(recipe), in_share = recipe_share_grains(recipe);
    definition->graph = programs[0]->graph;
    definition->grains = recipe_grains(recipe);
    definition->in_lane = in_lane;
    definition->in_share = in_share;
    definition->rounds = (in_lane + in_share - 1) / in_share;
    definition->edges_round = recipe->reduce_dtype == DTYPE_BF16;
    TRY(lane_tree_of_shape(&recipe->lanes, &definition->tree));
    sums->states = mem_array((size_t)sums->ranks, sizeof *sums->states);
    int *subtree = mem_array((size_t)sums->ranks, sizeof *subtree);
    enum status status = sums->states && subtree ? STATUS_OK : STATUS_FAILED;
    if (status == STATUS_OK) status = lane_tree_cut(&definition->tree, sums->ranks, subtree);
    for (int r = 0; r < sums->ranks && status == STATUS_OK; r++)
        status = begin_rank(sums, r, programs[r], subtree);
    mem_free(subtree);
    return status;
}

static enum status verify(struct sums *sums) {
    int32_t *indices = mem_array((size_t)sums->ranks, sizeof *indices);
    value *leaves = mem_array((size_t)sums->ranks, sizeof *leaves);
    enum status status = indices && leaves ? STATUS_OK : STATUS_FAILED;
    for (sums->step = 0; sums->step < STEPS && status == STATUS_OK; sums->step++) {
        value *expected = mem_array(sums->definition.graph->tensors.count + 1, sizeof *expected);
        sums->expected[sums->step] = expected;
        status = expected ? expect(sums, sums->step, expected) : STATUS_FAILED;
        if (status == STATUS_OK) status = run_step(sums, indices, leaves);
    }
    mem_free(indices);
    mem_free(leaves);
    return status;
}

enum status program_verify_sums(const struct program *const *programs, int ranks, const struct recipe *recipe) {
    struct sums sums = {.ranks = ranks};
    enum status status = begin(&sums, programs, recipe);
    if (status == STATUS_OK) status = verify(&sums);
    for (int r = 0; sums.states && r < ranks; r++) {
        struct rank_state *state = &sums.states[r];
        for (size_t b = 0; state->of && b < state->program->buffers.count; b++)
            mem_free(state->of[b]);
        mem_free(state->of);
    }
    mem_free(sums.states);
    for (int step = 0; step < STEPS; step++)
        mem_free(sums.expected[step]);
    lane_tree_free(&sums.definition.tree);
    return status;
}
