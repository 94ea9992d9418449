/* What goes from stage to stage of a pipeline: activations and their gradients, what stages share of parameters, and
 * results. */
#include "compiler/scheduler.h"

static struct comm_group stages_of(const struct scheduler *scheduler) {
    return rank_place_stage_group(&scheduler->program->place);
}

/* `operand` is of the rank's own buffer, which the group's root reads and the others write, all of it or a part. */
static enum status schedule_broadcast(struct scheduler *scheduler, const struct execution *execution,
                                      const struct program_collective *operation, struct operand operand) {
    struct program *program = scheduler->program;
    struct instruction message = scheduler_collective(scheduler, OPCODE_BROADCAST, execution);
    bool sends = mesh_group_position(&operation->group, program->place.rank) == operation->root;
    bool whole = operand.bytes == program->buffers.items[operand.buffer].bytes;
    operand.access = sends ? ACCESS_READ : whole ? ACCESS_WRITE : ACCESS_UPDATE;
    message.operands[sends ? 0 : OP_INPUTS_MAX] = operand;
    TRY(collectives_add(program, operation, &message));
    return vec_push(&program->instructions, message);
}

/* ---- from one stage to another ---- */

/* This rank's bytes of the value, for which an activation that is received gets a buffer. Of a parameter those that it
 * keeps: the two ranks have the same place among the data ranks, and so the same shards. */
static enum status find_bytes(struct scheduler *scheduler, const struct execution *execution, struct operand *out) {
    struct tensor *tensor = execution->value->tensor;
    struct step_buffers *buffers = &scheduler->buffers;
    bool receives = execution->kind == EXECUTION_RECEIVE;
    *out = (struct operand){.bytes = shape_bytes(&tensor->shape)};
    if (tensor->kind == TENSOR_PARAMETER) {
        const struct tensor_place *place = &buffers->update_places[tensor->id];
        *out = (struct operand){.buffer = place->buffer,
                                .offset = place->run.offset,
                                .bytes = place->run.elements * dtype_bytes(tensor->shape.dtype)};
        return STATUS_OK;
    }
    if (tensor->kind == TENSOR_GRADIENT) {
        const struct lane_share *share = scheduler->share;
        out->buffer = step_buffers_of(buffers, tensor, share->round, scheduler_level(scheduler, share->level));
        out->offset = buffers->offsets[tensor->id];
        return receives ? schedule_zero_sums(scheduler, execution, out->buffer) : STATUS_OK;
    }
    int32_t *buffer = instances_at(&scheduler->activations, execution->slot, tensor);
    if (receives) TRY(program_add_tensor_buffer(scheduler->program, tensor, 1, TIER_DEVICE, buffer));
    BUG_IF(*buffer < 0, "%s is sent before it is made", tensor->name);
    out->buffer = *buffer;
    return STATUS_OK;
}

static enum status schedule_value(struct scheduler *scheduler, const struct execution *execution) {
    const struct program *program = scheduler->program;
    const struct pipeline_value *value = execution->value;
    const struct tensor *tensor = value->tensor;
    const struct section *section = &program->sections.items[program->sections.count - 1];
    bool micro_batches = tensor->kind == TENSOR_ACTIVATION;
    struct operand operand;
    struct comm_group stages = stages_of(scheduler);
    int from = mesh_group_rank(&stages, (int)(value->span % scheduler->source.spans.stages));
    int to = mesh_group_rank(&stages, value->to);
    TRY(find_bytes(scheduler, execution, &operand));
    if (operand.bytes == 0) return STATUS_OK;
    const struct program_collective operation =
        collectives_broadcast(mesh_group_pair(from, to), from > to, operand.bytes, tensor,
                              micro_batches ? section->first_micro_batch + execution->slot : 0);
    return schedule_broadcast(scheduler, execution, &operation, operand);
}

/* ---- results ---- */

/* Bytes of a result's buffer that one stage makes. */
struct part {
    const struct tensor *tensor;
    int stage;
    int64_t begin, end;
};

static struct part part_of(const struct scheduler *scheduler, const struct node *node, struct tensor *tensor) {
    struct tensor *storage = tensor_storage(tensor);
    int stage = stage_of_node(&scheduler->source.spans, node);
    int64_t bytes = scheduler->program->buffers.items[scheduler->buffers.buffers[storage->id]].bytes;
    if (!tensor->base) return (struct part){storage, stage, 0, bytes};
    int64_t begin = tensor_storage_offset(tensor);
    return (struct part){storage, stage, begin, begin + shape_bytes(&tensor->shape)};
}

static bool is_of_stage(const struct scheduler *scheduler, const struct node *node, const struct tensor *tensor) {
    bool result = tensor && tensor->kind == TENSOR_RESULT && !tensor->parameter;
    return result && stage_of_node(&scheduler->source.spans, node) != STAGE_SPANS_ALL;
}

static enum status schedule_part(struct scheduler *scheduler, const struct execution *execution,
                                 const struct part *part) {
    const struct program_collective operation =
        collectives_broadcast(stages_of(scheduler), part->stage, part->end - part->begin, part->tensor, 0);
    TRY(schedule_zero_once(scheduler, execution, part->tensor));
    const struct operand operand = {.buffer = scheduler->buffers.buffers[part->tensor->id],
                                    .offset = part->begin,
                                    .bytes = part->end - part->begin};
    return schedule_broadcast(scheduler, execution, &operation, operand);
}

static bool continues(const struct part *part, const struct part *next) {
    return next->tensor == part->tensor && next->stage == part->stage && next->begin == part->end;
}

/* Sums of losses as a whole; norms as the runs of parameters that a stage has. */
static enum status schedule_results(struct scheduler *scheduler, const struct execution *execution) {
    struct part part = {.tensor = NULL};
    for (size_t n = 0; n < scheduler->graph->nodes.count; n++) {
        const struct node *node = scheduler->graph->nodes.items[n];
        for (int i = 0; i < node->op->outputs; i++) {
            if (!node->out[i] || !is_of_stage(scheduler, node, tensor_storage(node->out[i]))) continue;
            struct part next = part_of(scheduler, node, node->out[i]);
            bool more = part.tensor && continues(&part, &next);
            if (part.tensor && !more) TRY(schedule_part(scheduler, execution, &part));
            if (more)
                part.end = next.end;
            else
                part = next;
        }
    }
    return part.tensor ? schedule_part(scheduler, execution, &part) : STATUS_OK;
}

enum status schedule_message(struct scheduler *scheduler, const struct execution *execution) {
    if (execution->elsewhere) return STATUS_OK;
    return execution->kind == EXECUTION_RESULTS ? schedule_results(scheduler, execution)
                                                : schedule_value(scheduler, execution);
}
