/* Scheduling: sections, instructions and buffers of a program, and the live ranges of these. */
#include <stdlib.h>
#include <string.h>

#include "plan/movement.h"
#include "program/instances.h"
#include "program/passes.h"

/* The state of scheduling: which buffer holds which tensor at present. */
struct scheduler {
    struct program *program;
    const struct graph *graph;
    const struct plan *plan;
    const struct workspace_table *workspace;
    struct chunk_list chunks;
    struct execution_source source;
    int64_t slots;                /* grains in flight */
    int32_t *step_buffers;        /* by tensor id: the buffer of parameters, state, inputs, gradients, results; -1 */
    int64_t *step_offsets;        /* by tensor id: where in it */
    struct instances activations; /* numbered by their buffers */
    bool *zeroed;                 /* by buffer id of step buffers: this step has zeroed it */
};

static enum buffer_kind kind_of(enum tensor_kind kind) {
    switch (kind) {
    case TENSOR_ACTIVATION: return BUFFER_ACTIVATIONS;
    case TENSOR_INPUT: return BUFFER_INPUTS;
    case TENSOR_PARAMETER: return BUFFER_PARAMETERS;
    case TENSOR_GRADIENT: return BUFFER_GRADIENTS;
    case TENSOR_CACHE: return BUFFER_CACHE;
    case TENSOR_STATE: return BUFFER_OPTIMIZER;
    case TENSOR_RESULT: return BUFFER_RESULTS;
    }
    BUG("tensor kind %d", kind);
}

static enum status add_buffer(struct scheduler *scheduler, struct buffer buffer, int32_t *out) {
    struct program *program = scheduler->program;
    *out = buffer.id = (int)program->buffers.count;
    buffer.offset = buffer.home = -1;
    return vec_push(&program->buffers, buffer);
}

static enum status add_tensor_buffer(struct scheduler *scheduler, const struct tensor *tensor, int64_t count,
                                     enum tier tier, int32_t *out) {
    bool persistent = tensor->kind == TENSOR_CACHE || tensor->kind == TENSOR_INPUT;
    struct buffer buffer = {.tensor = tensor,
                            .name = tensor->name,
                            .kind = kind_of(tensor->kind),
                            .tier = tier,
                            .bytes = shape_bytes(&tensor->shape) * count,
                            .persistent = persistent};
    return add_buffer(scheduler, buffer, out);
}

static enum status add_single_buffers(struct scheduler *scheduler, enum tensor_kind kind, int64_t count) {
    for (size_t i = 0; i < scheduler->graph->tensors.count; i++) {
        const struct tensor *tensor = scheduler->graph->tensors.items[i];
        if (tensor->kind != kind || tensor->base) continue;
        TRY(add_tensor_buffer(scheduler, tensor, count, TIER_DEVICE, &scheduler->step_buffers[i]));
    }
    return STATUS_OK;
}

static const char *pack_name(struct scheduler *scheduler, enum tensor_kind kind, int32_t chunk, int block) {
    struct scratch *memory = &scheduler->program->memory;
    const char *name = buffer_kind_name(kind_of(kind));
    if (kind != TENSOR_GRADIENT) return scratch_format(memory, "%s of chunk %d", name, chunk);
    return scratch_format(memory, "%s of chunk %d in block %d", name, chunk, block);
}

static enum tier home_of(const struct scheduler *scheduler, enum tensor_kind kind, int32_t chunk) {
    const struct policy *policy = &scheduler->plan->policy;
    if (kind == TENSOR_PARAMETER) return policy_home(policy, chunk, policy->parameters);
    return policy_home(policy, chunk, kind == TENSOR_GRADIENT ? policy->gradients : policy->optimizer);
}

/* Tensors of a kind by the part of a chunk that they belong to, and by id. */
struct packed {
    struct chunk_part part;
    int id;
};

static struct pack *make_pack(struct scheduler *scheduler, const struct packed *list, size_t count, int64_t *bytes) {
    struct scratch *memory = &scheduler->program->memory;
    struct pack *pack = scratch_alloc(memory, 1, sizeof *pack);
    if (pack) pack->members = scratch_alloc(memory, count, sizeof *pack->members);
    if (!pack || !pack->members) return NULL;
    *bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const struct tensor *tensor = scheduler->graph->tensors.items[list[i].id];
        pack->members[pack->count++] = (struct pack_member){tensor, *bytes};
        scheduler->step_offsets[tensor->id] = *bytes;
        *bytes += buffer_aligned_bytes(shape_bytes(&tensor->shape));
    }
    return pack;
}

static enum status add_pack(struct scheduler *scheduler, enum tensor_kind kind, const struct packed *list,
                            size_t count) {
    int32_t chunk = list->part.chunk, buffer;
    int64_t bytes;
    const struct pack *pack = make_pack(scheduler, list, count, &bytes);
    const char *name = pack_name(scheduler, kind, chunk, list->part.block);
    if (!pack || !name) return STATUS_FAILED;
    /* Gradients of a deferred update outlast the step that made them. */
    bool persistent = kind != TENSOR_GRADIENT || policy_defers_update(&scheduler->plan->policy, chunk);
    struct buffer packed = {.pack = pack,
                            .name = name,
                            .kind = kind_of(kind),
                            .tier = home_of(scheduler, kind, chunk),
                            .bytes = bytes,
                            .persistent = persistent};
    TRY(add_buffer(scheduler, packed, &buffer));
    for (size_t i = 0; i < count; i++)
        scheduler->step_buffers[list[i].id] = buffer;
    return STATUS_OK;
}

static int compare_packed(const void *a, const void *b) {
    const struct packed *x = a, *y = b;
    if (x->part.chunk != y->part.chunk) return x->part.chunk < y->part.chunk ? -1 : 1;
    if (x->part.block != y->part.block) return x->part.block < y->part.block ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static void list_packed(const struct scheduler *scheduler, enum tensor_kind kind, struct packed *list, size_t *count) {
    const struct graph *graph = scheduler->graph;
    *count = 0;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != kind || tensor->base) continue;
        list[(*count)++] = (struct packed){chunks_part_of(&scheduler->chunks, tensor), tensor->id};
    }
    if (*count > 0) qsort(list, *count, sizeof *list, compare_packed);
}

static enum status add_packs(struct scheduler *scheduler, enum tensor_kind kind) {
    struct packed *list = mem_array(scheduler->graph->tensors.count, sizeof *list);
    if (!list) return STATUS_FAILED;
    size_t count;
    list_packed(scheduler, kind, list, &count);
    enum status status = STATUS_OK;
    for (size_t i = 0, end; i < count && status == STATUS_OK; i = end) {
        for (end = i;
             end < count && list[end].part.chunk == list[i].part.chunk && list[end].part.block == list[i].part.block;)
            end++;
        status = add_pack(scheduler, kind, &list[i], end - i);
    }
    mem_free(list);
    return status;
}

/* Persistent buffers come first, parameters and caches before all, so that every program of a model has them in the
 * same order. */
static enum status add_step_buffers(struct scheduler *scheduler, int64_t grains) {
    TRY(add_packs(scheduler, TENSOR_PARAMETER));
    TRY(add_single_buffers(scheduler, TENSOR_CACHE, 1));
    TRY(add_packs(scheduler, TENSOR_STATE));
    TRY(add_single_buffers(scheduler, TENSOR_INPUT, grains));
    TRY(add_packs(scheduler, TENSOR_GRADIENT));
    TRY(add_single_buffers(scheduler, TENSOR_RESULT, 1));
    /* Deferred updates read the clip factor of the step before. */
    for (size_t i = 0; i < scheduler->program->buffers.count && scheduler->program->defers; i++) {
        struct buffer *buffer = &scheduler->program->buffers.items[i];
        buffer->persistent |= buffer->kind == BUFFER_RESULTS;
    }
    return STATUS_OK;
}

/* The buffer that now holds `tensor` (a storage), -1 when none does. */
static int32_t current_buffer(struct scheduler *scheduler, int64_t slot, const struct tensor *tensor) {
    if (tensor->kind == TENSOR_ACTIVATION) return *instances_at(&scheduler->activations, slot, tensor);
    return scheduler->step_buffers[tensor->id];
}

static struct operand make_operand(struct scheduler *scheduler, const struct section *section, int64_t slot,
                                   struct tensor *tensor, enum access access) {
    struct tensor *storage = tensor_storage(tensor);
    int64_t element = dtype_bytes(tensor->shape.dtype), columns = shape_columns(&tensor->shape);
    struct operand operand = {
        .buffer = current_buffer(scheduler, slot, storage),
        .access = access,
        .offset = scheduler->step_offsets[storage->id] + tensor_storage_offset(tensor),
        .bytes = shape_bytes(&tensor->shape),
    };
    BUG_IF(operand.buffer < 0, "%s is used before it is made", tensor->name);
    if (tensor->base) {
        operand.row_bytes = columns * element;
        operand.row_stride = tensor_row_stride(tensor) * element;
        operand.bytes = (shape_rows(&tensor->shape) - 1) * operand.row_stride + operand.row_bytes;
    }
    if (tensor->kind == TENSOR_INPUT) {
        operand.offset += (section->first_grain + slot) * shape_bytes(&storage->shape);
        operand.stride = section->grains * shape_bytes(&storage->shape);
    }
    return operand;
}

static struct instruction new_instruction(const struct scheduler *scheduler, enum opcode opcode,
                                          const struct execution *execution) {
    struct instruction instruction = {
        .opcode = opcode,
        .section = (int)scheduler->program->sections.count - 1,
        .group = execution->group,
        .deferred = execution->deferred,
        .tier = execution->deferred ? scheduler->plan->policy.update : TIER_DEVICE,
        .grain = execution->slot,
    };
    for (int i = 0; i < OPERANDS_MAX; i++)
        instruction.operands[i].buffer = -1;
    return instruction;
}

/* Sums are zeroed before their first use in a step, whole buffers at a time. */
static enum status zero_accumulators(struct scheduler *scheduler, const struct execution *execution) {
    const struct node *node = execution->node;
    for (int i = 0; i < node->op->outputs; i++) {
        const struct tensor *tensor = node->out[i];
        if (!tensor || !(node->op->updates >> i & 1)) continue;
        bool sums = tensor->kind == TENSOR_GRADIENT || tensor->kind == TENSOR_RESULT;
        int32_t buffer = sums ? scheduler->step_buffers[tensor->id] : -1;
        if (!sums || scheduler->zeroed[buffer]) continue;
        scheduler->zeroed[buffer] = true;
        struct instruction zero = new_instruction(scheduler, OPCODE_ZERO, execution);
        zero.grain = 0;
        zero.operands[OP_INPUTS_MAX] = (struct operand){
            .buffer = buffer, .access = ACCESS_WRITE, .bytes = scheduler->program->buffers.items[buffer].bytes};
        TRY(vec_push(&scheduler->program->instructions, zero));
    }
    return STATUS_OK;
}

static enum status make_outputs(struct scheduler *scheduler, const struct execution *execution) {
    const struct node *node = execution->node;
    for (int i = 0; i < node->op->outputs; i++) {
        int32_t *buffer = instances_of_output(&scheduler->activations, execution, i);
        if (!buffer || *buffer >= 0) continue;
        const struct tensor *tensor = tensor_storage(node->out[i]);
        enum tier home = instances_home(&scheduler->activations, execution, tensor);
        TRY(add_tensor_buffer(scheduler, tensor, 1, home, buffer));
    }
    return STATUS_OK;
}

static enum status schedule_execution(struct scheduler *scheduler, const struct section *section,
                                      const struct execution *execution) {
    const struct node *node = execution->node;
    TRY(zero_accumulators(scheduler, execution));
    struct instruction instruction = new_instruction(scheduler, OPCODE_KERNEL, execution);
    instruction.node = node;
    for (int i = 0; i < node->op->inputs; i++)
        if (node->in[i])
            instruction.operands[i] = make_operand(scheduler, section, execution->slot, node->in[i], ACCESS_READ);
    TRY(make_outputs(scheduler, execution));
    for (int i = 0; i < node->op->outputs; i++) {
        if (!node->out[i]) continue;
        enum access access = node->op->updates >> i & 1 ? ACCESS_UPDATE : ACCESS_WRITE;
        instruction.operands[OP_INPUTS_MAX + i] =
            make_operand(scheduler, section, execution->slot, node->out[i], access);
    }
    int64_t bytes = scheduler->workspace->bytes[node->id];
    if (bytes > 0) {
        struct operand *operand = &instruction.operands[OPERAND_WORKSPACE];
        *operand = (struct operand){.access = ACCESS_WRITE, .bytes = bytes};
        struct buffer workspace = {
            .name = "workspace", .kind = BUFFER_WORKSPACE, .tier = instruction.tier, .bytes = bytes};
        TRY(add_buffer(scheduler, workspace, &operand->buffer));
    }
    return vec_push(&scheduler->program->instructions, instruction);
}

static enum status schedule_executions(struct scheduler *scheduler, const struct section *section,
                                       const struct execution_list *executions) {
    int32_t group = -1;
    for (size_t i = 0; i < executions->list.count; i++) {
        const struct execution *execution = &executions->list.items[i];
        if (execution->group != group)
            instances_begin_group(&scheduler->activations, execution, executions->list.count - i);
        group = execution->group;
        TRY(schedule_execution(scheduler, section, execution));
    }
    return STATUS_OK;
}

static enum status schedule_section(struct scheduler *scheduler, struct section section,
                                    struct execution_list *executions) {
    struct program *program = scheduler->program;
    section.first = (int32_t)program->instructions.count;
    TRY(vec_push(&program->sections, section));
    instances_clear(&scheduler->activations);
    TRY(schedule_executions(scheduler, &section, executions));
    int32_t count = (int32_t)program->instructions.count - section.first;
    if (count > 0)
        program->sections.items[program->sections.count - 1].count = count;
    else
        program->sections.count--;
    executions->list.count = 0;
    return STATUS_OK;
}

static enum status schedule_pass(struct scheduler *scheduler, struct section section, bool first, bool last,
                                 struct execution_list *executions) {
    if (section.repeat == 0) return STATUS_OK;
    TRY(executions_of_pass(&scheduler->source, section.grains, first, last, executions));
    return schedule_section(scheduler, section, executions);
}

/* A first pass, as many middle ones as need be, and a last pass, which may be smaller. */
static enum status schedule_sections(struct scheduler *scheduler, struct execution_list *executions) {
    int64_t grains = recipe_grains(&scheduler->plan->recipe);
    struct pass_split passes = movement_split_passes(grains, scheduler->slots);
    const struct section first = {.name = "first pass", .repeat = 1, .first_grain = 0, .grains = passes.grains};
    const struct section middle = {.name = "middle passes",
                                   .repeat = passes.count > 2 ? passes.count - 2 : 0,
                                   .first_grain = passes.grains,
                                   .grains = passes.grains};
    const struct section last = {.name = "last pass",
                                 .repeat = passes.count > 1,
                                 .first_grain = grains - passes.last_grains,
                                 .grains = passes.last_grains};
    const struct section update = {.name = "update", .repeat = 1, .first_grain = -1, .grains = 1};
    TRY(schedule_pass(scheduler, first, true, passes.count == 1, executions));
    TRY(schedule_pass(scheduler, middle, false, false, executions));
    TRY(schedule_pass(scheduler, last, false, true, executions));
    TRY(executions_of_update(&scheduler->source, executions));
    return schedule_section(scheduler, update, executions);
}

static enum status pack_chunks(struct scheduler *scheduler) {
    int64_t bytes = scheduler->plan->policy.chunk_bytes;
    if (bytes == 0) TRY(chunks_choose_bytes(scheduler->graph, &bytes));
    TRY(chunks_pack(scheduler->graph, bytes, &scheduler->chunks));
    /* A plan made for training serves graphs with fewer parameters too: those of the model without its adapters. */
    if (!graph_has_backward(scheduler->graph)) return STATUS_OK;
    return plan_check_range("policy.persistent_chunks", scheduler->plan->policy.persistent_chunks, 0,
                            (int64_t)scheduler->chunks.chunks.count, "at most all chunks stay on the device");
}

static bool has_deferred(const struct scheduler *scheduler) {
    const int32_t *first = scheduler->source.updates.first + 1;
    for (int32_t chunk = 0; chunk < (int32_t)scheduler->chunks.chunks.count; chunk++)
        if (first[chunk] < first[chunk + 1] && policy_defers_update(&scheduler->plan->policy, chunk)) return true;
    return false;
}

static enum status start_scheduler(struct scheduler *scheduler) {
    const struct graph *graph = scheduler->graph;
    size_t tensors = graph->tensors.count + 1;
    scheduler->program = mem_array(1, sizeof *scheduler->program);
    if (!scheduler->program) return STATUS_FAILED;
    *scheduler->program = (struct program){.graph = graph, .streams = 1, .alignment = BUFFER_ALIGNMENT};
    TRY(pack_chunks(scheduler));
    TRY(execution_source_create(graph, &scheduler->plan->policy, &scheduler->chunks, &scheduler->source));
    scheduler->program->defers = has_deferred(scheduler);
    scheduler->step_buffers = mem_array(tensors, sizeof *scheduler->step_buffers);
    scheduler->step_offsets = mem_array(tensors, sizeof *scheduler->step_offsets);
    scheduler->zeroed = mem_array(tensors, sizeof *scheduler->zeroed);
    if (!scheduler->step_buffers || !scheduler->step_offsets || !scheduler->zeroed) return STATUS_FAILED;
    memset(scheduler->step_buffers, -1, tensors * sizeof *scheduler->step_buffers);
    return instances_create(graph, &scheduler->source.stages, scheduler->slots, &scheduler->activations);
}

static enum status schedule_all(struct scheduler *scheduler) {
    struct execution_list executions = {0};
    TRY(start_scheduler(scheduler));
    TRY(add_step_buffers(scheduler, recipe_grains(&scheduler->plan->recipe)));
    enum status status = schedule_sections(scheduler, &executions);
    vec_free(&executions.list);
    return status;
}

enum status program_schedule(const struct graph *graph, const struct plan *plan,
                             const struct workspace_table *workspace, struct program **out) {
    BUG_IF(workspace->count != (int)graph->nodes.count, "a workspace table of another graph");
    struct scheduler scheduler = {
        .graph = graph, .plan = plan, .workspace = workspace, .slots = plan->policy.grains_per_pass};
    enum status status = schedule_all(&scheduler);
    chunks_free(&scheduler.chunks);
    execution_source_free(&scheduler.source);
    mem_free(scheduler.step_buffers);
    mem_free(scheduler.step_offsets);
    instances_free(&scheduler.activations);
    mem_free(scheduler.zeroed);
    if (status != STATUS_OK) {
        program_free(scheduler.program);
        return status;
    }
    program_set_lifetimes(scheduler.program);
    *out = scheduler.program;
    return STATUS_OK;
}

static void touch(struct program *program, const struct operand *operand, int32_t position) {
    struct buffer *buffer = &program->buffers.items[operand->buffer];
    if (buffer->first < 0) buffer->first = position;
    buffer->last = position;
}

void program_set_lifetimes(struct program *program) {
    int32_t end = (int32_t)program->instructions.count - 1;
    for (size_t i = 0; i < program->buffers.count; i++)
        program->buffers.items[i].first = -1;
    for (int32_t position = 0; position <= end; position++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            const struct operand *operand = &program->instructions.items[position].operands[k];
            if (operand->buffer >= 0) touch(program, operand, position);
        }
    for (size_t i = 0; i < program->buffers.count; i++) {
        struct buffer *buffer = &program->buffers.items[i];
        if (buffer->first < 0) buffer->first = buffer->last = 0; /* an input that this purpose does not read */
        bool kept = buffer->kind == BUFFER_RESULTS || (buffer->tensor && buffer->tensor->kept);
        if (buffer->persistent) buffer->first = 0;
        if (buffer->persistent || kept) buffer->last = end;
        for (size_t s = 0; s < program->sections.count; s++) {
            const struct section *section = &program->sections.items[s];
            int32_t last = section->first + section->count - 1;
            bool enters = buffer->first < section->first && buffer->last >= section->first;
            if (section->repeat > 1 && enters && buffer->last < last) buffer->last = last;
        }
    }
}
