#include "compiler/program.h"

#include "collective/schedule.h"
#include "compiler/schedule.h"
#include "ir/ops/ops.h"
#include "plan/lane_shares.h"

enum status collectives_spec(const struct program *program, int32_t collective, struct lane_tree *tree,
                             struct comm_spec *out) {
    const struct program_collective *operation = &program->collectives.items[collective];
    struct lane_tree lanes;
    enum status status = STATUS_OK;
    bool reduces = operation->kind == COMM_ALL_REDUCE || operation->kind == COMM_REDUCE_SCATTER;
    bool sums = reduces && !operation->node; /* of lanes; others by halves of the group */
    *tree = (struct lane_tree){0};
    if (sums) TRY(lane_tree_of_shape(&program->lanes, &lanes));
    if (sums) status = lane_tree_top(&lanes, rank_place_data(&program->place), tree);
    if (sums) lane_tree_free(&lanes);
    *out = (struct comm_spec){.kind = operation->kind,
                              .mine = operation->apart ? operation : NULL,
                              .group = operation->group,
                              .bytes = operation->bytes,
                              .block_bytes = operation->block_bytes,
                              .root = operation->root,
                              .owner = operation->owner,
                              .in_place = program->place.in_place,
                              .on_device = program->place.on_device,
                              .round_bf16 = operation->round_bf16,
                              .round_sum = operation->round_sum,
                              .flat = program->flat && !program->place.on_device,
                              .tree = sums ? tree : NULL,
                              .empty = operation->empty};
    return status;
}

static bool same_values(const void *a, const void *b, size_t bytes) {
    return a == b || (a && b && memcmp(a, b, bytes) == 0);
}

/* Whether two operations of one rank have the same schedule. */
static bool same_schedule(const struct program *program, const struct program_collective *a,
                          const struct program_collective *b) {
    size_t count = (size_t)a->group.count, ranks = (size_t)rank_place_data(&program->place);
    return a->kind == b->kind && !a->node == !b->node && a->round_bf16 == b->round_bf16 &&
           a->round_sum == b->round_sum && a->bytes == b->bytes && a->block_bytes == b->block_bytes &&
           a->apart == b->apart && a->root == b->root && memcmp(&a->group, &b->group, sizeof a->group) == 0 &&
           same_values(a->owner, b->owner, count * sizeof *a->owner) &&
           same_values(a->empty, b->empty, ranks * sizeof *a->empty);
}

/* Schedules of many ranks take long to make, and a model's layers have the same operations. */
static bool find_measured(const struct program *program, struct program_collective *operation) {
    for (size_t c = program->collectives.count - 1; c-- > 0;) {
        const struct program_collective *other = &program->collectives.items[c];
        if (!same_schedule(program, other, operation)) continue;
        operation->traffic = other->traffic;
        operation->staging_bytes = other->staging_bytes;
        return true;
    }
    return false;
}

/* The last operation of the list. */
static enum status measure(struct program *program) {
    int32_t collective = (int32_t)program->collectives.count - 1;
    struct lane_tree tree;
    struct comm_spec spec;
    struct comm_schedule schedule;
    if (find_measured(program, &program->collectives.items[collective])) return STATUS_OK;
    enum status status = collectives_spec(program, collective, &tree, &spec);
    if (status == STATUS_OK)
        status = comm_schedule_create(&program->place.mesh, program->place.rank,
                                      rank_place_message_bytes(&program->place), &spec, &schedule);
    lane_tree_free(&tree);
    TRY(status);
    program->collectives.items[collective].traffic = schedule.traffic;
    program->collectives.items[collective].staging_bytes = schedule.staging_bytes;
    comm_schedule_free(&schedule);
    return STATUS_OK;
}

static enum status find_empty(struct program *program, const struct recipe *recipe, int64_t round, const bool **out) {
    int ranks = rank_place_data(&program->place);
    bool *empty = scratch_alloc(&program->memory, (size_t)ranks, sizeof *empty), any = false;
    if (!empty) return STATUS_FAILED;
    TRY(lane_shares_find_empty(recipe, &program->place, round, empty));
    for (int rank = 0; rank < ranks; rank++)
        any |= empty[rank];
    *out = any ? empty : NULL;
    return STATUS_OK;
}

enum status collectives_all_reduce(struct program *program, const struct recipe *recipe, int64_t round, int64_t bytes,
                                   struct program_collective *out) {
    *out = (struct program_collective){.kind = COMM_ALL_REDUCE,
                                       .group = rank_place_data_group(&program->place),
                                       .bytes = bytes,
                                       .round_bf16 = recipe->reduce_dtype == DTYPE_BF16};
    return find_empty(program, recipe, round, &out->empty);
}

static enum status find_owners(struct program *program, const struct shard_cut *cut, int coarse, int fine,
                               const int **out) {
    int *owners = scratch_alloc(&program->memory, (size_t)(fine / coarse), sizeof *owners);
    if (!owners) return STATUS_FAILED;
    shard_owners(&cut->partition, cut->ranks, rank_place_data_rank(&program->place), coarse, fine, owners);
    *out = owners;
    return STATUS_OK;
}

enum status collectives_reduce_scatter(struct program *program, const struct recipe *recipe, int64_t round,
                                       const struct shard_cut *cut, struct program_collective *out) {
    *out = (struct program_collective){.kind = COMM_REDUCE_SCATTER,
                                       .group = rank_place_data_group(&program->place),
                                       .bytes = cut->elements * (int64_t)sizeof(float),
                                       .round_bf16 = recipe->reduce_dtype == DTYPE_BF16,
                                       .block_bytes = shard_piece_elements(cut) * (int64_t)sizeof(float)};
    TRY(find_owners(program, cut, 1, cut->ranks, &out->owner));
    return find_empty(program, recipe, round, &out->empty);
}

enum status collectives_all_gather(struct program *program, const struct shard_cut *cut, int coarse, int fine,
                                   int64_t block_bytes, struct program_collective *out) {
    struct shard_range range = shard_range_of(cut, coarse, rank_place_data_rank(&program->place));
    *out = (struct program_collective){.kind = COMM_ALL_GATHER,
                                       .group = shard_group_of(&program->place, coarse, fine),
                                       .bytes = (range.end - range.begin) / SHARD_BLOCK * block_bytes,
                                       .block_bytes = shard_elements(cut, fine) / SHARD_BLOCK * block_bytes};
    return find_owners(program, cut, coarse, fine, &out->owner);
}

/* The whole tensor group, or one of the axes that it divides into. */
static enum status find_node_group(const struct program *program, const struct node *node, struct comm_group *out) {
    const struct group_part *part = &NODE_ATTRIBUTES(node, collective_attributes)->part;
    int tensor = rank_place_tensor_parallel(&program->place), stride = part->stride > 0 ? (int)part->stride : 1;
    bool axis = part->stride > 0 && part->parts > 0 && tensor % (part->parts * stride) == 0;
    if (axis || part->parts == tensor) {
        *out = rank_place_tensor_axis(&program->place, (int)part->parts, stride);
        if (part->position == mesh_group_position(out, program->place.rank)) return STATUS_OK;
    }
    return status_set(STATUS_BAD_INPUT, "%s: made for rank %lld of %lld, in a plan for rank %d of %d", node->name,
                      (long long)part->position, (long long)part->parts, rank_place_tensor_rank(&program->place),
                      tensor);
}

enum status collectives_of_node(const struct program *program, const struct node *node, int64_t bytes,
                                struct program_collective *out) {
    static const enum comm_kind kinds[] = {[OP_COLLECTIVE_ALL_REDUCE] = COMM_ALL_REDUCE,
                                           [OP_COLLECTIVE_REDUCE_SCATTER] = COMM_REDUCE_SCATTER,
                                           [OP_COLLECTIVE_ALL_GATHER] = COMM_ALL_GATHER,
                                           [OP_COLLECTIVE_ALL_TO_ALL] = COMM_ALL_TO_ALL};
    const struct collective_attributes *attributes = NODE_ATTRIBUTES(node, collective_attributes);
    struct comm_group group;
    enum comm_kind kind = kinds[node->op->collective];
    bool blocks = kind == COMM_REDUCE_SCATTER || kind == COMM_ALL_GATHER;
    TRY(find_node_group(program, node, &group));
    *out = (struct program_collective){.kind = kind,
                                       .node = node,
                                       .group = group,
                                       .bytes = bytes,
                                       .block_bytes = blocks ? bytes / group.count : 0,
                                       .round_bf16 = attributes->edges == DTYPE_BF16,
                                       .round_sum = kind == COMM_ALL_REDUCE && attributes->edges == DTYPE_BF16,
                                       .apart = kind == COMM_ALL_GATHER};
    return STATUS_OK;
}

enum status collectives_of_graph(struct program *program, const struct graph *graph) {
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        struct program_collective operation;
        if (!node->op->collective || node->phase > PHASE_BACKWARD) continue;
        int64_t in = shape_bytes(&node->in[0]->shape), out = shape_bytes(&node->out[0]->shape);
        TRY(collectives_of_node(program, node, in > out ? in : out, &operation));
        TRY(vec_push(&program->collectives, operation));
        TRY(measure(program));
    }
    return STATUS_OK;
}

struct comm_range collectives_own_block(const struct program *program, const struct program_collective *operation) {
    int position = mesh_group_position(&operation->group, program->place.rank), block = 0;
    if (operation->block_bytes == 0)
        return comm_block(operation->kind, operation->bytes, operation->group.count, position);
    while (operation->owner && operation->owner[block] != position)
        block++;
    if (!operation->owner) block = position;
    int64_t begin = block * operation->block_bytes, end = begin + operation->block_bytes, max = operation->bytes;
    return (struct comm_range){begin < max ? begin : max, end < max ? end : max};
}

enum status collectives_check_count(size_t count) {
    if (count <= COMM_OPERATIONS_MAX) return STATUS_OK;
    return status_hint(
        status_set(STATUS_NO_FIT, "more than %d sends and collectives, the limit of a program", COMM_OPERATIONS_MAX),
        COLLECTIVES_FEWER);
}

enum status collectives_add(struct program *program, const struct program_collective *operation,
                            struct instruction *instruction) {
    instruction->collective = (int32_t)program->collectives.count;
    TRY(collectives_check_count(program->collectives.count + 1));
    TRY(vec_push(&program->collectives, *operation));
    TRY(measure(program));
    int64_t staging_bytes = program->collectives.items[instruction->collective].staging_bytes;
    if (staging_bytes == 0) return STATUS_OK;
    struct operand *operand = &instruction->operands[OPERAND_WORKSPACE];
    *operand = (struct operand){.access = ACCESS_WRITE, .bytes = staging_bytes};
    struct buffer staging = {
        .name = "staging", .kind = BUFFER_WORKSPACE, .tier = instruction->tier, .bytes = staging_bytes};
    return program_add_buffer(program, staging, &operand->buffer);
}

struct comm_traffic collectives_traffic(const struct program *program) {
    struct comm_traffic sum = {.read = 0};
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (!opcode_is_collective(instruction->opcode)) continue;
        const struct comm_traffic *one = &program->collectives.items[instruction->collective].traffic;
        int64_t times = program->sections.items[instruction->section].repeat;
        for (int axis = 0; axis < MESH_AXES; axis++) {
            sum.sent[axis] += times * one->sent[axis];
            sum.received[axis] += times * one->received[axis];
        }
        sum.read += times * one->read;
    }
    return sum;
}
