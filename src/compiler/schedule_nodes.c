/* Kernels and the operators between ranks: their operands, and the zeros before sums. */
#include "compiler/program.h"
#include "compiler/schedule.h"

struct instruction scheduler_instruction(const struct scheduler *scheduler, enum opcode opcode,
                                         const struct execution *execution) {
    struct instruction instruction = {
        .opcode = opcode,
        .section = (int)scheduler->program->sections.count - 1,
        .group = execution->group,
        .stream = execution->aside ? STREAM_UPDATE : STREAM_COMPUTE,
        .deferred = execution->deferred,
        .tier = execution->aside ? scheduler->plan->policy.update : TIER_DEVICE,
        .micro_batch = execution->slot,
    };
    for (int i = 0; i < OPERANDS_MAX; i++)
        instruction.operands[i].buffer = -1;
    return instruction;
}

/* ---- operands ---- */

/* Forward and backward have whole parameters and their share's sums; later nodes what the rank has at the step's end.
 */
static bool uses_update_places(const struct node *node) {
    return node->phase > PHASE_BACKWARD && !execution_adds_uses(node);
}

/* The place of a tensor that owns its bytes: elements from the first on. The buffer is -1 when none holds it now. */
static struct tensor_place place_of(struct scheduler *scheduler, const struct execution *execution,
                                    const struct tensor *tensor) {
    struct tensor_place place = {.run = {.elements = shape_elements(&tensor->shape)}};
    if (tensor->kind == TENSOR_ACTIVATION) {
        place.buffer = *instances_at(&scheduler->activations, execution->slot, tensor);
        return place;
    }
    if (uses_update_places(execution->node)) return scheduler->buffers.update_places[tensor->id];
    const struct lane_share *share = scheduler->share;
    int level = scheduler_level(scheduler, share->level);
    place.buffer = step_buffers_of(&scheduler->buffers, tensor, share->round, level);
    place.run.offset = scheduler->buffers.offsets[tensor->id];
    return place;
}

/* The elements of input 0 that the node is executed on: all, or those of this rank's shard. */
static struct shard_range run_of(const struct scheduler *scheduler, const struct node *node) {
    struct shard_range all = {0, node->in[0] ? shape_elements(&node->in[0]->shape) : 0};
    bool cut = step_buffers_cut(&scheduler->buffers) && op_is_divided(node->op) && uses_update_places(node);
    if (!cut) return all;
    const struct tensor *parameter = node->in[0]->parameter;
    const struct partition *partition = &scheduler->plan->policy.partition;
    int width = partition_width(node->phase == PHASE_UPDATE ? partition->optimizer : partition->gradients);
    const struct shard_cut *chunk = &scheduler->buffers.of[scheduler->chunks.chunk_of[parameter->id]].cut;
    struct shard_range range = shard_range_of(chunk, width, rank_place_data_rank(&scheduler->plan->place));
    int64_t at = scheduler->chunks.first_element[parameter->id];
    struct shard_range run = {range.begin > at ? range.begin - at : 0, range.end - at};
    if (run.end > all.end) run.end = all.end;
    if (run.begin >= run.end) return (struct shard_range){0, 0};
    BUG_IF(node->op->by_parameter && run.end - run.begin < all.end, "%s: a shard cuts its parameter", node->name);
    return run;
}

static void cut_operand(const struct tensor *tensor, const struct tensor_run *place, const struct shard_range *run,
                        struct operand *operand) {
    int64_t element = dtype_bytes(tensor->shape.dtype), first = run->begin / tensor_elements_per(tensor);
    operand->offset = place->offset + (first - place->first) * element;
    operand->bytes = tensor_elements_for(tensor, run->end - run->begin) * element;
}

static struct operand make_operand(struct scheduler *scheduler, const struct execution *execution,
                                   struct tensor *tensor, enum access access) {
    const struct section *section = scheduler_section(scheduler);
    struct tensor *storage = tensor_storage(tensor);
    struct tensor_place place = place_of(scheduler, execution, storage);
    int64_t element = dtype_bytes(tensor->shape.dtype), columns = shape_columns(&tensor->shape);
    struct operand operand = {
        .buffer = place.buffer,
        .access = access,
        .offset = place.run.offset + tensor_storage_offset(tensor),
        .bytes = shape_bytes(&tensor->shape),
    };
    BUG_IF(operand.buffer < 0, "%s is used before it is made", tensor->name);
    if (tensor_has_gaps(tensor)) {
        operand.row_bytes = columns * element;
        operand.row_stride = tensor_row_stride(tensor) * element;
        operand.bytes = (shape_rows(&tensor->shape) - 1) * operand.row_stride + operand.row_bytes;
    }
    if (tensor->kind == TENSOR_INPUT) {
        operand.offset += (section->first_micro_batch + execution->slot) * shape_bytes(&storage->shape);
        operand.stride = section->micro_batches * shape_bytes(&storage->shape);
    }
    if (step_buffers_sums_by_share(execution->node, tensor)) operand.offset += section->share * operand.bytes;
    struct shard_range run = run_of(scheduler, execution->node);
    bool cut = execution->node->op->by_elements && run.end - run.begin < shape_elements(&execution->node->in[0]->shape);
    if (cut && (tensor->parameter || tensor->kind == TENSOR_PARAMETER)) cut_operand(tensor, &place.run, &run, &operand);
    return operand;
}

/* ---- zeros ---- */

enum status schedule_zero(struct scheduler *scheduler, const struct execution *execution, int32_t buffer,
                          enum tier tier) {
    struct instruction zero = scheduler_instruction(scheduler, OPCODE_ZERO, execution);
    zero.micro_batch = 0;
    zero.tier = tier;
    zero.operands[OP_INPUTS_MAX] = (struct operand){
        .buffer = buffer, .access = ACCESS_WRITE, .bytes = scheduler->program->buffers.items[buffer].bytes};
    return vec_push(&scheduler->program->instructions, zero);
}

enum status schedule_zero_first(struct scheduler *scheduler, const struct execution *execution, int32_t buffer,
                                bool of_share) {
    int64_t share = scheduler_share_number(scheduler);
    if (scheduler->zeroed[buffer] > (of_share ? share : 0)) return STATUS_OK;
    scheduler->zeroed[buffer] = share + 1;
    return schedule_zero(scheduler, execution, buffer, TIER_DEVICE);
}

/* A rank makes some of the norms and sums of squares for collectives: of norms others add to the buffer, and of
 * sums copies between tiers are of whole buffers. */
static bool is_made_in_part(const struct scheduler *scheduler, const struct tensor *tensor) {
    if (tensor->kind != TENSOR_RESULT) return false;
    if (!tensor->parameter) return scheduler->source.spans.stages > 1 && tensor->base;
    /* Between parameters that are dealt whole there are blocks of none. */
    bool gaps = scheduler->chunks.chunks.items[scheduler->chunks.chunk_of[tensor->parameter->id]].whole;
    return (gaps || scheduler->program->place.tier != TIER_DEVICE) && step_buffers_cut_gradients(&scheduler->buffers);
}

/* Sums are zeroed before their first use in a share, results' before that in a step, whole buffers at a time. */
static enum status zero_accumulators(struct scheduler *scheduler, const struct execution *execution) {
    const struct node *node = execution->node;
    for (int i = 0; i < node->op->outputs; i++) {
        const struct tensor *tensor = node->out[i];
        if (!tensor || !((op_updates(node) >> i & 1) || is_made_in_part(scheduler, tensor))) continue;
        bool of_share = tensor->kind == TENSOR_GRADIENT && node->phase <= PHASE_BACKWARD;
        if (!of_share && tensor->kind != TENSOR_RESULT) continue;
        int32_t buffer = place_of(scheduler, execution, tensor_storage(node->out[i])).buffer;
        TRY(schedule_zero_first(scheduler, execution, buffer, of_share));
    }
    return STATUS_OK;
}

/* ---- nodes ---- */

static enum status make_outputs(struct scheduler *scheduler, const struct execution *execution) {
    const struct node *node = execution->node;
    for (int i = 0; i < node->op->outputs; i++) {
        int32_t *buffer = instances_of_output(&scheduler->activations, execution, i);
        if (!buffer || *buffer >= 0) continue;
        const struct tensor *tensor = tensor_storage(node->out[i]);
        enum tier home_tier = instances_home_tier(&scheduler->activations, execution, tensor);
        TRY(program_add_tensor_buffer(scheduler->program, tensor, 1, home_tier, buffer));
    }
    return STATUS_OK;
}

/* For nodes that other ranks compute: this rank's shards of the parameters that they read, or its own shards that they
 * write. */
static enum status schedule_elsewhere(struct scheduler *scheduler, const struct execution *execution) {
    const struct node *node = execution->node;
    struct instruction instruction = scheduler_instruction(scheduler, OPCODE_ELSEWHERE, execution);
    bool any = false;
    for (int i = 0; i < OPERANDS_MAX - 1; i++) {
        bool in = i < OP_INPUTS_MAX;
        const struct tensor *tensor = in ? node->in[i] : node->out[i - OP_INPUTS_MAX];
        if (!tensor || tensor->kind != TENSOR_PARAMETER) continue;
        int32_t buffer = place_of(scheduler, execution, tensor).buffer;
        instruction.operands[i] = (struct operand){.buffer = buffer, .access = in ? ACCESS_READ : ACCESS_UPDATE};
        any = true;
    }
    if (!any || !step_buffers_cut_parameters(&scheduler->buffers)) return STATUS_OK;
    return vec_push(&scheduler->program->instructions, instruction);
}

static enum status add_workspace(struct scheduler *scheduler, struct instruction *instruction) {
    const struct workspace_table *table = scheduler->workspace;
    bool on_host = instruction->tier == TIER_HOST && table->host_bytes;
    int64_t bytes = (on_host ? table->host_bytes : table->bytes)[instruction->node->id];
    if (bytes == 0) return STATUS_OK;
    struct operand *operand = &instruction->operands[OPERAND_WORKSPACE];
    *operand = (struct operand){.access = ACCESS_WRITE, .bytes = bytes};
    struct buffer workspace = {
        .name = "workspace", .kind = BUFFER_WORKSPACE, .tier = instruction->tier, .bytes = bytes};
    return program_add_buffer(scheduler->program, workspace, &operand->buffer);
}

static void set_run(struct instruction *instruction, const struct shard_range *run) {
    const struct tensor *in = instruction->node->in[0];
    if (in && run->end - run->begin < shape_elements(&in->shape))
        instruction->first_element = run->begin, instruction->elements = run->end - run->begin;
}

static enum status schedule_kernel(struct scheduler *scheduler, const struct execution *execution,
                                   const struct shard_range *run) {
    const struct node *node = execution->node;
    TRY(zero_accumulators(scheduler, execution));
    struct instruction instruction = scheduler_instruction(scheduler, OPCODE_KERNEL, execution);
    instruction.node = node;
    set_run(&instruction, run);
    for (int i = 0; i < node->op->inputs; i++)
        if (node->in[i]) instruction.operands[i] = make_operand(scheduler, execution, node->in[i], ACCESS_READ);
    TRY(make_outputs(scheduler, execution));
    for (int i = 0; i < node->op->outputs; i++) {
        if (!node->out[i]) continue;
        enum access access = op_updates(node) >> i & 1 ? ACCESS_UPDATE : ACCESS_WRITE;
        instruction.operands[OP_INPUTS_MAX + i] = make_operand(scheduler, execution, node->out[i], access);
    }
    TRY(add_workspace(scheduler, &instruction));
    return vec_push(&scheduler->program->instructions, instruction);
}

/* ---- operators that are operations between ranks ---- */

static const enum opcode opcodes[] = {[OP_COLLECTIVE_ALL_REDUCE] = OPCODE_ALL_REDUCE,
                                      [OP_COLLECTIVE_REDUCE_SCATTER] = OPCODE_REDUCE_SCATTER,
                                      [OP_COLLECTIVE_ALL_GATHER] = OPCODE_ALL_GATHER,
                                      [OP_COLLECTIVE_ALL_TO_ALL] = OPCODE_ALL_TO_ALL};

/* This rank's part of a sum that is scattered in place of the input. */
static enum status schedule_own_part(struct scheduler *scheduler, const struct execution *execution,
                                     const struct program_collective *operation, const struct operand *data,
                                     const struct operand *out) {
    struct instruction take = scheduler_collective(scheduler, OPCODE_TAKE, execution);
    struct comm_range own = collectives_own_block(scheduler->program, operation);
    take.operands[0] = (struct operand){.buffer = data->buffer,
                                        .access = ACCESS_READ,
                                        .offset = data->offset + own.begin,
                                        .bytes = own.end - own.begin};
    take.operands[OP_INPUTS_MAX] = *out;
    return vec_push(&scheduler->program->instructions, take);
}

static enum status schedule_collective(struct scheduler *scheduler, const struct execution *execution,
                                       const struct shard_range *run) {
    const struct node *node = execution->node;
    struct program_collective operation;
    struct instruction instruction = scheduler_collective(scheduler, opcodes[node->op->collective], execution);
    bool scatters = instruction.opcode == OPCODE_REDUCE_SCATTER, updates = op_updates(node) & 1;
    BUG_IF(instruction.opcode == OPCODE_ALL_REDUCE && !execution->takes_over && !updates, "%s: not in place",
           node->name);
    set_run(&instruction, run);
    struct operand in = make_operand(scheduler, execution, node->in[0], ACCESS_READ);
    TRY(make_outputs(scheduler, execution));
    struct operand out = make_operand(scheduler, execution, node->out[0], ACCESS_WRITE);
    if (scatters || updates) in.access = ACCESS_UPDATE;
    TRY(collectives_of_node(scheduler->program, node, in.bytes > out.bytes ? in.bytes : out.bytes, &operation));
    instruction.operands[OP_INPUTS_MAX] = scatters || updates ? in : out;
    if (!scatters && !updates) instruction.operands[0] = in;
    TRY(collectives_add(scheduler->program, &operation, &instruction));
    TRY(vec_push(&scheduler->program->instructions, instruction));
    return scatters ? schedule_own_part(scheduler, execution, &operation, &in, &out) : STATUS_OK;
}

enum status schedule_node(struct scheduler *scheduler, const struct execution *execution) {
    struct shard_range run = run_of(scheduler, execution->node);
    bool here = !execution->elsewhere && (run.begin < run.end || !op_is_divided(execution->node->op));
    if (!here) return schedule_elsewhere(scheduler, execution);
    return execution->node->op->collective ? schedule_collective(scheduler, execution, &run)
                                           : schedule_kernel(scheduler, execution, &run);
}
