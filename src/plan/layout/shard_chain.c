#include "plan/layout/shard_chain.h"

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* What making it needs. Node numbers are those of the step's graph (profile.graph). */
struct making {
    const struct shard_program *program;
    const int *choice;
    int64_t *bytes; /* [values] on a device */
    int64_t *live;  /* [nodes of the step] */
    struct chain *chain;
};

static const struct intra_op_node *node_of(const struct making *making, size_t index) {
    return &making->program->program.nodes[index];
}

/* Parameters, what is gathered, values: in that order behind the graph's nodes. */
static int64_t memory_of(const struct making *making, size_t part, size_t index) {
    size_t at = part * making->program->graph->nodes.count + index;
    return node_of(making, at)->memory[making->choice[at]];
}
enum { PART_STATES = 1, PART_GATHERED = 2, PART_VALUES = 3 };

static const struct node *owner_of(const struct node *node) { return node->of ? node->of : node; }

static void count_live(const struct making *making) {
    const struct symbolic_profile *profile = &making->program->profile;
    size_t nodes = profile->graph->nodes.count;
    for (size_t i = 0; i < profile->values.count; i++) {
        const struct value_profile *value = &profile->values.items[i];
        making->bytes[i] = memory_of(making, PART_VALUES, i);
        for (int32_t n = value->first; n <= value->last; n++)
            making->live[n] += making->bytes[i];
    }
    for (size_t n = 0; n < nodes; n++)
        making->live[n] += memory_of(making, PART_GATHERED, (size_t)owner_of(profile->graph->nodes.items[n])->id);
}

static void add_values(const struct making *making) {
    const struct symbolic_profile *profile = &making->program->profile;
    for (size_t i = 0; i < profile->values.count; i++) {
        const struct value_profile *value = &profile->values.items[i];
        struct chain_block *chain_block = &making->chain->blocks[value->tensor->block];
        if (value->leaves_block) chain_block->output += making->bytes[i];
        if (value->leaves_block || value->saved) chain_block->saved += making->bytes[i];
    }
}

/* --- times --- */

/* Of work both ways, the part that is forward's: by FLOPs, or by bytes where there are none. */
static double forward_part(const struct node_profile *profile) {
    double flops = profile->forward.flops + profile->backward.flops;
    double bytes = profile->forward.bytes + profile->backward.bytes;
    if (flops > 0) return profile->forward.flops / flops;
    return bytes > 0 ? profile->forward.bytes / bytes : 0;
}

static void add_node_times(const struct making *making) {
    const struct graph *graph = making->program->graph;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct strategy *one = shard_program_strategy(making->program, (int)i, making->choice[i]);
        struct chain_block *chain_block = &making->chain->blocks[graph->nodes.items[i]->block];
        double part = forward_part(&making->program->profile.nodes[i]);
        chain_block->forward_time += one->compute_s * part + one->forward_s;
        chain_block->backward_time += one->compute_s * (1 - part) + one->backward_s;
    }
}

/* Conversions belong to the block that reads what is converted. */
static void add_edge_times(const struct making *making) {
    const struct shard_program *program = making->program;
    for (int e = 0; e < program->program.edge_count; e++) {
        struct step_price price = shard_program_edge_price(program, e, making->choice);
        int block = program->graph->nodes.items[program->program.edges[e].to]->block;
        making->chain->blocks[block].forward_time += price.forward;
        making->chain->blocks[block].backward_time += price.backward;
    }
}

/* --- temporaries --- */

/* Nodes of one direction of a block. */
struct block_pass {
    int32_t first, last;
    int64_t before, peak;
};

static void extend(const struct making *making, const struct node *node, struct block_pass *block_pass) {
    if (block_pass->first < 0) block_pass->first = node->id;
    block_pass->last = node->id;
    block_pass->peak = larger(block_pass->peak, making->live[node->id]);
}

static void count_before(const struct making *making, struct block_pass *block_pass) {
    const struct symbolic_profile *profile = &making->program->profile;
    for (size_t i = 0; i < profile->values.count; i++) {
        const struct value_profile *value = &profile->values.items[i];
        if (value->first < block_pass->first && value->last >= block_pass->first)
            block_pass->before += making->bytes[i];
    }
}

/* The last block's backward follows its forward: both are one. */
static void add_block_temporaries(const struct making *making, int block) {
    const struct graph *step = making->program->profile.graph;
    struct chain_block *chain_block = &making->chain->blocks[block];
    struct block_pass forward = {.first = -1}, backward = {.first = -1};
    bool last = block + 1 == making->chain->count;
    for (size_t n = 0; n < step->nodes.count; n++) {
        const struct node *node = step->nodes.items[n];
        if (node->block == block) extend(making, node, node->phase == PHASE_FORWARD && !last ? &forward : &backward);
    }
    if (forward.first >= 0) count_before(making, &forward);
    if (backward.first >= 0) count_before(making, &backward);
    int64_t made = last ? chain_block->saved : 0;
    chain_block->forward_temporary = larger(forward.peak - forward.before - chain_block->saved, 0);
    chain_block->backward_temporary =
        larger(backward.peak - backward.before - made - chain_value(making->chain, block), 0);
}

static enum status fill(const struct making *making, struct shard_chain *out) {
    count_live(making);
    add_values(making);
    add_node_times(making);
    add_edge_times(making);
    for (int block = 0; block < making->chain->count; block++)
        add_block_temporaries(making, block);
    for (size_t i = 0; i < making->program->graph->nodes.count; i++)
        out->state_bytes += memory_of(making, PART_STATES, i);
    return chain_check(making->chain);
}

enum status shard_chain_make(const struct shard_program *program, const int *choice, struct shard_chain *out) {
    *out = (struct shard_chain){0};
    TRY(chain_create(graph_count_blocks(program->graph), &out->chain));
    struct making making = {.program = program, .choice = choice, .chain = &out->chain};
    making.bytes = mem_array(program->profile.values.count, sizeof *making.bytes);
    making.live = mem_array(program->profile.graph->nodes.count, sizeof *making.live);
    enum status status = making.bytes && making.live ? fill(&making, out) : STATUS_FAILED;
    mem_free(making.bytes);
    mem_free(making.live);
    return status;
}

void shard_chain_free(struct shard_chain *chain) { chain_free(&chain->chain); }
