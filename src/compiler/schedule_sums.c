/* Sums of lanes and ranks, and collectives of shards. */
#include "compiler/schedule.h"

static const struct partition *partition_of(const struct scheduler *scheduler) {
    return &scheduler->plan->policy.partition;
}

static enum status push(struct scheduler *scheduler, const struct instruction *instruction) {
    return vec_push(&scheduler->program->instructions, *instruction);
}

struct instruction scheduler_collective(const struct scheduler *scheduler, enum opcode opcode,
                                        const struct execution *execution) {
    struct instruction instruction = scheduler_instruction(scheduler, opcode, execution);
    instruction.node = execution->node;
    instruction.tier = scheduler->program->place.tier;
    instruction.stream = STREAM_COMM;
    return instruction;
}

/* ---- all-gather ---- */

/* Shards of width `fine` become one of width `coarse`, in its place in the buffer. */
struct shard_gather {
    const struct shard_cut *cut;
    int coarse, fine;
    int32_t buffer;
    int64_t offset;      /* of the coarse shard in it */
    int64_t block_bytes; /* the bytes of SHARD_BLOCK elements */
};

static enum status schedule_all_gather(struct scheduler *scheduler, const struct execution *execution,
                                       const struct shard_gather *shard_gather) {
    struct program_collective operation;
    struct program *program = scheduler->program;
    TRY(collectives_all_gather(program, shard_gather->cut, shard_gather->coarse, shard_gather->fine,
                               shard_gather->block_bytes, &operation));
    if (operation.bytes == 0 || operation.group.count == 1) return STATUS_OK;
    struct instruction gather = scheduler_collective(scheduler, OPCODE_ALL_GATHER, execution);
    struct comm_range own = collectives_own_block(program, &operation);
    gather.operands[OP_INPUTS_MAX] = (struct operand){.buffer = shard_gather->buffer,
                                                      .access = ACCESS_WRITE,
                                                      .offset = shard_gather->offset,
                                                      .bytes = operation.bytes};
    if (own.begin < own.end)
        gather.operands[0] = (struct operand){.buffer = shard_gather->buffer,
                                              .access = ACCESS_READ,
                                              .offset = shard_gather->offset + own.begin,
                                              .bytes = own.end - own.begin};
    TRY(collectives_add(program, &operation, &gather));
    return push(scheduler, &gather);
}

/* ---- sums ---- */

static struct operand head_of(const struct scheduler *scheduler, int32_t pack, int level, enum access access) {
    const struct lane_share *share = scheduler->share;
    int own = scheduler_level(scheduler, level);
    return (struct operand){.buffer = step_buffers_pack(&scheduler->buffers, pack, share->round, own),
                            .access = access,
                            .bytes = scheduler->buffers.gradients.items[pack].summed_bytes};
}

static enum status schedule_add(struct scheduler *scheduler, const struct execution *execution, int32_t pack,
                                const struct lane_sum_step *step) {
    enum opcode opcode = step->rounds ? OPCODE_ADD_BF16 : OPCODE_ADD;
    struct instruction add = scheduler_instruction(scheduler, opcode, execution);
    if (step->kind == LANE_SUM_ADD) add.operands[0] = head_of(scheduler, pack, step->from, ACCESS_READ);
    add.operands[OP_INPUTS_MAX] = head_of(scheduler, pack, step->to, ACCESS_UPDATE);
    return push(scheduler, &add);
}

/* A rank without addends overwrites its buffer. */
static struct operand sum_of(const struct scheduler *scheduler, int32_t pack, const struct lane_sum_step *step) {
    return head_of(scheduler, pack, step->to, scheduler->share->micro_batches > 0 ? ACCESS_UPDATE : ACCESS_WRITE);
}

static enum status schedule_all_reduce(struct scheduler *scheduler, const struct execution *execution, int32_t pack,
                                       const struct lane_sum_step *step) {
    struct program *program = scheduler->program;
    struct program_collective operation;
    struct instruction reduce = scheduler_collective(scheduler, OPCODE_ALL_REDUCE, execution);
    struct operand *data = &reduce.operands[OP_INPUTS_MAX];
    *data = sum_of(scheduler, pack, step);
    /* Behind the front may be accumulators that nobody writes here, and buffers are copied as a whole. */
    bool all = data->bytes == program->buffers.items[data->buffer].bytes;
    if (data->access == ACCESS_WRITE && !all) TRY(schedule_zero(scheduler, execution, data->buffer, reduce.tier));
    TRY(collectives_all_reduce(program, &scheduler->plan->recipe, scheduler->share->round, data->bytes, &operation));
    TRY(collectives_add(program, &operation, &reduce));
    return push(scheduler, &reduce);
}

/* The rank's part of a sum is taken out of the whole, which is then done with; that of a later round is added. */
static enum status schedule_take(struct scheduler *scheduler, const struct execution *execution,
                                 const struct chunk_buffers *chunk, int32_t whole) {
    const struct program *program = scheduler->program;
    bool first = scheduler->share->round == 0;
    struct shard_range range =
        shard_range_of(&chunk->cut, partition_of(scheduler)->gradients, rank_place_data_rank(&program->place));
    int64_t bytes = (range.end - range.begin) * (int64_t)sizeof(float);
    if (bytes == 0) return STATUS_OK;
    struct instruction take = scheduler_collective(scheduler, first ? OPCODE_TAKE : OPCODE_ADD, execution);
    /* The last shards are shorter than their space, and buffers are copied as a whole. */
    if (first && bytes < program->buffers.items[chunk->sums].bytes)
        TRY(schedule_zero(scheduler, execution, chunk->sums, take.tier));
    take.operands[0] = (struct operand){
        .buffer = whole, .access = ACCESS_READ, .offset = range.begin * (int64_t)sizeof(float), .bytes = bytes};
    take.operands[OP_INPUTS_MAX] =
        (struct operand){.buffer = chunk->sums, .access = first ? ACCESS_WRITE : ACCESS_UPDATE, .bytes = bytes};
    return push(scheduler, &take);
}

/* Each rank gets its piece of the sum over all ranks. Then ranks that hold a shard of gradients together get the
 * shard. */
static enum status schedule_reduce_scatter(struct scheduler *scheduler, const struct execution *execution, int32_t pack,
                                           const struct lane_sum_step *step) {
    struct program *program = scheduler->program;
    const struct chunk_buffers *chunk = &scheduler->buffers.of[scheduler->buffers.gradients.items[pack].chunk];
    int width = partition_of(scheduler)->gradients;
    struct program_collective operation;
    struct instruction scatter = scheduler_collective(scheduler, OPCODE_REDUCE_SCATTER, execution);
    struct operand *data = &scatter.operands[OP_INPUTS_MAX];
    *data = sum_of(scheduler, pack, step);
    TRY(collectives_reduce_scatter(program, &scheduler->plan->recipe, scheduler->share->round, &chunk->cut,
                                   &operation));
    TRY(collectives_add(program, &operation, &scatter));
    TRY(push(scheduler, &scatter));
    struct shard_range range = shard_range_of(&chunk->cut, width, rank_place_data_rank(&program->place));
    const struct shard_gather shard_gather = {.cut = &chunk->cut,
                                              .coarse = width,
                                              .fine = chunk->cut.ranks,
                                              .buffer = data->buffer,
                                              .offset = range.begin * (int64_t)sizeof(float),
                                              .block_bytes = SHARD_BLOCK * (int64_t)sizeof(float)};
    TRY(schedule_all_gather(scheduler, execution, &shard_gather));
    return schedule_take(scheduler, execution, chunk, data->buffer);
}

/* The share's steps up to its reduction, or behind it, of one pack. Gradients that are cut have their total apart. */
static enum status schedule_pack_sums(struct scheduler *scheduler, const struct execution *execution, int32_t pack) {
    const struct lane_share *share = scheduler->share;
    bool behind = false, cut = step_buffers_cut_gradients(&scheduler->buffers);
    for (int32_t s = share->first_sum; s < share->first_sum + share->sums; s++) {
        const struct lane_sum_step *step = &scheduler->shares.steps.items[s];
        bool now = behind == (execution->kind == EXECUTION_TOTALS);
        if (now && step->kind != LANE_SUM_REDUCE && !(behind && cut))
            TRY(schedule_add(scheduler, execution, pack, step));
        if (now && step->kind == LANE_SUM_REDUCE)
            TRY(cut ? schedule_reduce_scatter(scheduler, execution, pack, step)
                    : schedule_all_reduce(scheduler, execution, pack, step));
        behind |= step->kind == LANE_SUM_REDUCE;
    }
    return STATUS_OK;
}

static enum status schedule_block_sums(struct scheduler *scheduler, const struct execution *execution) {
    for (int32_t pack = 0; pack < (int32_t)scheduler->buffers.gradients.count; pack++)
        if (scheduler->buffers.gradients.items[pack].completed_by == execution->block)
            TRY(schedule_pack_sums(scheduler, execution, pack));
    return STATUS_OK;
}

/* ---- norms and updated parameters ---- */

/* A rank may have no sums of squares of a chunk with few blocks, or of a chunk whose parameters are dealt whole. */
static bool has_no_gradient(const struct scheduler *scheduler, int32_t chunk) {
    const struct chunk *dealt = &scheduler->chunks.chunks.items[chunk];
    const struct shard_range range =
        shard_range_of(&scheduler->buffers.of[chunk].cut, partition_of(scheduler)->gradients,
                       rank_place_data_rank(&scheduler->plan->place));
    for (int32_t i = dealt->first; i < dealt->first + dealt->count; i++) {
        const struct tensor *parameter = scheduler->chunks.parameters.items[i];
        int64_t begin = scheduler->chunks.first_element[parameter->id];
        if (begin < range.end && begin + shape_elements(&parameter->shape) > range.begin) return false;
    }
    return true;
}

/* Every rank gets the sums of squares of all, and adds them in the order of one rank. */
static enum status schedule_block_norms(struct scheduler *scheduler, const struct execution *execution) {
    for (int32_t pack = 0; pack < (int32_t)scheduler->buffers.gradients.count; pack++) {
        const struct gradient_pack_place *place = &scheduler->buffers.gradients.items[pack];
        const struct chunk_buffers *chunk = &scheduler->buffers.of[place->chunk];
        if (place->completed_by != execution->block || chunk->norms < 0) continue;
        const struct shard_gather shard_gather = {.cut = &chunk->cut,
                                                  .coarse = 1,
                                                  .fine = partition_of(scheduler)->gradients,
                                                  .buffer = chunk->norms,
                                                  .block_bytes = sizeof(double)};
        if (has_no_gradient(scheduler, place->chunk))
            TRY(schedule_zero(scheduler, execution, chunk->norms, TIER_DEVICE));
        TRY(schedule_all_gather(scheduler, execution, &shard_gather));
    }
    return STATUS_OK;
}

static enum status schedule_updated(struct scheduler *scheduler, const struct execution *execution) {
    const struct chunk_buffers *chunk = &scheduler->buffers.of[execution->chunk];
    const struct pack *pack = scheduler->program->buffers.items[chunk->parameters].pack;
    const struct shard_gather shard_gather = {.cut = &chunk->cut,
                                              .coarse = partition_width(partition_of(scheduler)->parameters),
                                              .fine = partition_of(scheduler)->optimizer,
                                              .buffer = chunk->parameters,
                                              .block_bytes =
                                                  SHARD_BLOCK * dtype_bytes(pack->members[0].tensor->shape.dtype)};
    return schedule_all_gather(scheduler, execution, &shard_gather);
}

enum status schedule_sums(struct scheduler *scheduler, const struct execution *execution) {
    switch (execution->kind) {
    case EXECUTION_NORMS: return schedule_block_norms(scheduler, execution);
    case EXECUTION_UPDATED: return schedule_updated(scheduler, execution);
    default: return schedule_block_sums(scheduler, execution);
    }
}
