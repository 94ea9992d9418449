#include "plan/layout/joint_solution.h"

#include <math.h>

#include "plan/recompute.h"

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Inputs of a solution. Node numbers are those of the step's graph (profile.graph). */
struct making {
    const struct shard_program *program;
    const int *choice;
    int64_t *bytes; /* [values] on a device */
    int64_t *live;  /* [nodes of the step] */
    struct chain *chain;
    struct scratch memory;
};

/* Parameters, what is gathered, values: in that order behind the graph's nodes. */
static int64_t memory_of(const struct making *making, size_t part, size_t index) {
    size_t at = part * making->program->graph->nodes.count + index;
    return making->program->program.nodes[at].memory[making->choice[at]];
}

enum { PART_STATES = 1, PART_GATHERED = 2, PART_VALUES = 3 };

static const struct node *owner_of(const struct node *node) { return node->of ? node->of : node; }

static void add_values(const struct making *making) {
    const struct symbolic_profile *profile = &making->program->profile;
    size_t nodes = profile->graph->nodes.count;
    for (size_t i = 0; i < profile->values.count; i++) {
        const struct value_profile *value = &profile->values.items[i];
        making->bytes[i] = memory_of(making, PART_VALUES, i);
        chain_add_value(making->chain, value, making->bytes[i]);
        for (int32_t n = value->first; n <= value->last; n++)
            making->live[n] += making->bytes[i];
    }
    for (size_t n = 0; n < nodes; n++)
        making->live[n] += memory_of(making, PART_GATHERED, (size_t)owner_of(profile->graph->nodes.items[n])->id);
}

/* --- times --- */

/* The forward pass's fraction of a node's work in both directions: by FLOPs, or by bytes if there are none. */
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

/* Conversions belong to the block that reads the converted tensor. */
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

static enum status fill(struct making *making, struct shard_chain *out) {
    TRY(scratch_items(&making->memory, &making->bytes, making->program->profile.values.count));
    TRY(scratch_items(&making->memory, &making->live, making->program->profile.graph->nodes.count));
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
    enum status status = fill(&making, out);
    scratch_free(&making.memory);
    return status;
}

void shard_chain_free(struct shard_chain *chain) { chain_free(&chain->chain); }

#define LIMIT_RATIO 1.3
enum { SLOTS = 500, CHECKPOINTED_MAX = 12 };
/* Partial choices of each solution but the first two, which need not be proven: there are some twenty. */
enum { SWEEP_NODES = 1 << 16 };

/* --- the second phase --- */

static enum status keep_all(int blocks, struct recompute_schedule *out) {
    for (int i = 0; i < blocks; i++)
        TRY(vec_push(out, (struct recompute_step){FORWARD_ALL, i}));
    for (int i = blocks; i-- > 0;)
        TRY(vec_push(out, (struct recompute_step){BACKWARD, i}));
    return STATUS_OK;
}

/* If everything fits, keeping all activations is fastest. Otherwise uses Rotor, in slots. */
static enum status find_schedule(const struct chain *chain, int64_t bytes, struct recompute_schedule *out) {
    struct recompute_cost cost;
    AUTO(chain_free) struct chain slots = {0};
    TRY(keep_all(chain->count, out));
    TRY(recompute_simulate(chain, out, &cost));
    if (cost.peak <= bytes) return STATUS_OK;
    vec_free(out);
    if (bytes < 1) return status_set(STATUS_NO_FIT, "parameters and optimizer states leave no memory for activations");
    TRY(chain_discretise(chain, bytes, SLOTS, &slots));
    return rotor_solve(&slots, SLOTS, out, &cost);
}

enum status joint_checkpoints(const struct shard_program *program, const int *choice, int64_t device_bytes,
                              struct recompute_schedule *schedule, double *seconds, int64_t *peak_bytes) {
    AUTO(shard_chain_free) struct shard_chain chain = {0};
    struct recompute_cost cost;
    *schedule = (struct recompute_schedule){0};
    TRY(shard_chain_make(program, choice, &chain));
    TRY(find_schedule(&chain.chain, device_bytes - chain.state_bytes, schedule));
    TRY(recompute_simulate(&chain.chain, schedule, &cost));
    *seconds = cost.time, *peak_bytes = cost.peak + chain.state_bytes;
    return STATUS_OK;
}

/* --- both --- */

struct sweep {
    const struct shard_program *program;
    int64_t device_bytes, node_limit;
    struct joint_solution *best;
    int64_t fastest_peak; /* of the fastest strategies with all kept */
    int *tried;           /* the choices tried last */
};

static bool is_tried(const struct sweep *sweep, const struct intra_op_solution *solution) {
    size_t bytes = (size_t)sweep->program->program.node_count * sizeof *solution->choice;
    if (sweep->best->limits > 0 && memcmp(sweep->tried, solution->choice, bytes) == 0) return true;
    memcpy(sweep->tried, solution->choice, bytes);
    return false;
}

/* Keeps the solution and its schedule if it is faster. */
static enum status try_solution(struct sweep *sweep, struct intra_op_solution *solution, double *seconds) {
    struct recompute_schedule schedule;
    int64_t peak;
    *seconds = INFINITY;
    enum status status =
        joint_checkpoints(sweep->program, solution->choice, sweep->device_bytes, &schedule, seconds, &peak);
    if (status == STATUS_OK && *seconds < sweep->best->seconds) {
        struct joint_solution *best = sweep->best;
        intra_op_solution_free(&best->strategies);
        vec_free(&best->schedule);
        best->strategies = *solution, best->schedule = schedule;
        best->seconds = *seconds, best->peak_bytes = peak;
        *solution = (struct intra_op_solution){0}, schedule = (struct recompute_schedule){0};
    }
    vec_free(&schedule);
    return status == STATUS_NO_FIT ? STATUS_OK : status;
}

/* Under one limit. One that is `rough` is given up early. */
static enum status solve_limit(struct sweep *sweep, int64_t limit, bool rough, struct intra_op_program *program,
                               double *seconds, int64_t *peak) {
    struct intra_op_solution solution = {0};
    program->memory_limit = limit;
    *seconds = INFINITY;
    int64_t nodes = rough && sweep->node_limit == 0 ? SWEEP_NODES : sweep->node_limit;
    enum status status = intra_op_solve(program, nodes, &solution);
    if (status == STATUS_FAILED && rough && solution.given_up) status = STATUS_NO_FIT;
    if (status == STATUS_OK) {
        *peak = solution.peak;
        if (!is_tried(sweep, &solution)) status = try_solution(sweep, &solution, seconds);
        sweep->best->limits++;
    }
    intra_op_solution_free(&solution);
    return status == STATUS_NO_FIT ? STATUS_OK : status;
}

/* With all kept, limits go up from the device's to the peak of the fastest strategies, which are solved first. */
static enum status solve_kept(struct sweep *sweep) {
    struct intra_op_program program = sweep->program->program;
    int64_t peak = 0;
    double seconds;
    TRY(solve_limit(sweep, INTRA_OP_NO_LIMIT, false, &program, &sweep->best->checkpoints_s, &sweep->fastest_peak));
    if (sweep->best->limits == 0) return status_set(STATUS_NO_FIT, "all choices meet a pair that is forbidden");
    double limit = (double)sweep->device_bytes;
    for (int i = 0; limit < (double)sweep->fastest_peak; i++, limit *= LIMIT_RATIO) {
        TRY(solve_limit(sweep, (int64_t)limit, i > 0, &program, &seconds, &peak));
        if (i == 0) sweep->best->kept_s = seconds;
    }
    if (sweep->fastest_peak <= sweep->device_bytes) sweep->best->kept_s = sweep->best->checkpoints_s;
    return STATUS_OK;
}

/* With all blocks recomputed, from the device's limit down, each limit below the last solution's peak: the remaining
 * memory can keep some activations. */
static enum status solve_checkpointed(struct sweep *sweep) {
    struct intra_op_program program = sweep->program->program;
    program.moments = sweep->program->checkpointed;
    int64_t limit = sweep->device_bytes;
    for (int i = 0; i < CHECKPOINTED_MAX && limit > 0; i++) {
        int64_t peak = -1;
        double seconds;
        TRY(solve_limit(sweep, limit, i > 0, &program, &seconds, &peak));
        limit = peak - 1;
    }
    return STATUS_OK;
}

enum status joint_solve(const struct shard_program *program, int64_t device_bytes, int64_t node_limit,
                        struct joint_solution *out) {
    *out = (struct joint_solution){.seconds = INFINITY, .kept_s = INFINITY, .checkpoints_s = INFINITY};
    struct sweep sweep = {.program = program, .device_bytes = device_bytes, .node_limit = node_limit, .best = out};
    if (device_bytes < 1) return status_set(STATUS_BAD_INPUT, "a device of %lld bytes", (long long)device_bytes);
    sweep.tried = mem_array((size_t)program->program.node_count, sizeof *sweep.tried);
    enum status status = sweep.tried ? solve_kept(&sweep) : STATUS_FAILED;
    if (status == STATUS_OK && device_bytes < sweep.fastest_peak) status = solve_checkpointed(&sweep);
    mem_free(sweep.tried);
    if (status != STATUS_OK || isfinite(out->seconds)) return status;
    return status_set(STATUS_NO_FIT, "no strategies fit a device of %lld bytes, whatever is computed again",
                      (long long)device_bytes);
}

void joint_solution_free(struct joint_solution *solution) {
    intra_op_solution_free(&solution->strategies);
    vec_free(&solution->schedule);
}
