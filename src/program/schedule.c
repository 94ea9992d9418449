#include <string.h>

#include "program/passes.h"

/* The state of scheduling: which buffer holds which tensor right now. */
struct scheduler {
    struct program *program;
    const struct graph *graph;
    const struct workspace_table *workspace;
    int64_t slots;         /* grains in flight */
    int32_t *step_buffers; /* by tensor id: the one buffer of parameters, state, inputs, gradients, results; -1 */
    int32_t *pass_buffers; /* by slot and tensor id: the activation's buffer in the present section; -1 */
    int32_t *last_reader;  /* by tensor id of a storage: last node that reads it or columns of it; -1 */
    bool *zeroed;          /* by tensor id: accumulators that this step has zeroed */
};

static enum buffer_kind kind_of(const struct tensor *tensor) {
    switch (tensor->kind) {
    case TENSOR_ACTIVATION: return BUFFER_ACTIVATIONS;
    case TENSOR_INPUT: return BUFFER_INPUTS;
    case TENSOR_PARAMETER: return BUFFER_PARAMETERS;
    case TENSOR_GRADIENT: return BUFFER_GRADIENTS;
    case TENSOR_CACHE: return BUFFER_CACHE;
    case TENSOR_STATE: return BUFFER_OPTIMIZER;
    case TENSOR_RESULT: return BUFFER_RESULTS;
    }
    BUG("tensor kind %d", tensor->kind);
}

static enum status add_buffer(struct scheduler *scheduler, const struct tensor *tensor, enum buffer_kind kind,
                              int64_t bytes, int32_t *out) {
    struct program *program = scheduler->program;
    bool persistent =
        kind == BUFFER_PARAMETERS || kind == BUFFER_CACHE || kind == BUFFER_OPTIMIZER || kind == BUFFER_INPUTS;
    struct buffer buffer = {
        .id = (int)program->buffers.count,
        .tensor = tensor,
        .name = tensor ? tensor->name : "workspace",
        .kind = kind,
        .tier = TIER_DEVICE,
        .bytes = bytes,
        .offset = -1,
        .persistent = persistent,
    };
    TRY(vec_push(&program->buffers, buffer));
    *out = buffer.id;
    return STATUS_OK;
}

/* Persistent buffers come first, parameters and caches before all, so that every program of a model has them in the
 * same order. */
static enum status add_step_buffers(struct scheduler *scheduler, int64_t grains) {
    static const enum tensor_kind order[] = {TENSOR_PARAMETER, TENSOR_CACHE,    TENSOR_STATE,
                                             TENSOR_INPUT,     TENSOR_GRADIENT, TENSOR_RESULT};
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (size_t i = 0; i < scheduler->graph->tensors.count; i++) {
            const struct tensor *tensor = scheduler->graph->tensors.items[i];
            if (tensor->kind != order[k] || tensor->base) continue;
            int64_t bytes = shape_bytes(&tensor->shape) * (tensor->kind == TENSOR_INPUT ? grains : 1);
            TRY(add_buffer(scheduler, tensor, kind_of(tensor), bytes, &scheduler->step_buffers[i]));
        }
    return STATUS_OK;
}

static int32_t *pass_buffer(struct scheduler *scheduler, int64_t slot, const struct tensor *tensor) {
    return &scheduler->pass_buffers[slot * (int64_t)scheduler->graph->tensors.count + tensor->id];
}

/* The buffer that now holds `tensor` (a storage), -1 when none does. */
static int32_t current_buffer(struct scheduler *scheduler, int64_t slot, const struct tensor *tensor) {
    if (tensor->kind == TENSOR_ACTIVATION) return *pass_buffer(scheduler, slot, tensor);
    return scheduler->step_buffers[tensor->id];
}

static struct operand make_operand(struct scheduler *scheduler, const struct section *section, int64_t slot,
                                   struct tensor *tensor, enum access access) {
    struct tensor *storage = tensor_storage(tensor);
    int64_t element = dtype_bytes(tensor->shape.dtype), columns = shape_columns(&tensor->shape);
    struct operand operand = {
        .buffer = current_buffer(scheduler, slot, storage),
        .access = access,
        .offset = tensor_storage_offset(tensor),
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

static struct instruction new_instruction(const struct scheduler *scheduler, enum opcode opcode, int64_t slot) {
    struct instruction instruction = {
        .opcode = opcode,
        .section = (int)scheduler->program->sections.count - 1,
        .grain = slot,
    };
    for (int i = 0; i < OPERANDS_MAX; i++)
        instruction.operands[i].buffer = -1;
    return instruction;
}

static enum status zero_accumulators(struct scheduler *scheduler, const struct section *section,
                                     const struct node *node) {
    for (int i = 0; i < node->op->outputs; i++) {
        struct tensor *tensor = node->out[i];
        if (!tensor || !(node->op->updates >> i & 1)) continue;
        bool sums = tensor->kind == TENSOR_GRADIENT || tensor->kind == TENSOR_RESULT;
        if (!sums || scheduler->zeroed[tensor->id]) continue;
        scheduler->zeroed[tensor->id] = true;
        struct instruction zero = new_instruction(scheduler, OPCODE_ZERO, 0);
        zero.operands[0] = make_operand(scheduler, section, 0, tensor, ACCESS_WRITE);
        TRY(vec_push(&scheduler->program->instructions, zero));
    }
    return STATUS_OK;
}

/* The input whose buffer output 0 takes over, or NULL: nobody reads the input later, and both are whole activations (or
 * a gradient's accumulator that ends here). */
static const struct tensor *in_place_source(const struct scheduler *scheduler, const struct node *node) {
    if (node->op->in_place_input == 0) return NULL;
    int index = node->op->in_place_input - 1;
    const struct tensor *in = node->in[index], *out = node->out[0];
    if (!in || !out || in->base || out->base || in->kept || out->kept || out->kind != TENSOR_ACTIVATION) return NULL;
    if (in->kind != TENSOR_ACTIVATION && in->kind != TENSOR_GRADIENT) return NULL;
    if (shape_bytes(&in->shape) != shape_bytes(&out->shape) || scheduler->last_reader[in->id] != node->id) return NULL;
    for (int i = 0; i < node->op->inputs; i++)
        if (i != index && node->in[i] && tensor_storage(node->in[i]) == in) return NULL;
    return in;
}

static enum status make_outputs(struct scheduler *scheduler, int64_t slot, const struct node *node) {
    for (int i = 0; i < node->op->outputs; i++) {
        struct tensor *tensor = node->out[i] ? tensor_storage(node->out[i]) : NULL;
        if (!tensor || tensor->kind != TENSOR_ACTIVATION) continue;
        int32_t *buffer = pass_buffer(scheduler, slot, tensor);
        const struct tensor *source = i == 0 ? in_place_source(scheduler, node) : NULL;
        if (source)
            *buffer = current_buffer(scheduler, slot, source);
        else if (*buffer < 0)
            TRY(add_buffer(scheduler, tensor, BUFFER_ACTIVATIONS, shape_bytes(&tensor->shape), buffer));
    }
    return STATUS_OK;
}

static enum status schedule_node(struct scheduler *scheduler, const struct section *section, int64_t slot,
                                 const struct node *node) {
    TRY(zero_accumulators(scheduler, section, node));
    struct instruction instruction = new_instruction(scheduler, OPCODE_KERNEL, slot);
    instruction.node = node;
    for (int i = 0; i < node->op->inputs; i++)
        if (node->in[i]) instruction.operands[i] = make_operand(scheduler, section, slot, node->in[i], ACCESS_READ);
    TRY(make_outputs(scheduler, slot, node));
    for (int i = 0; i < node->op->outputs; i++) {
        if (!node->out[i]) continue;
        enum access access = node->op->updates >> i & 1 ? ACCESS_UPDATE : ACCESS_WRITE;
        instruction.operands[OP_INPUTS_MAX + i] = make_operand(scheduler, section, slot, node->out[i], access);
    }
    int64_t bytes = scheduler->workspace->bytes[node->id];
    if (bytes > 0) {
        struct operand *operand = &instruction.operands[OPERAND_WORKSPACE];
        *operand = (struct operand){.access = ACCESS_WRITE, .bytes = bytes};
        TRY(add_buffer(scheduler, NULL, BUFFER_WORKSPACE, bytes, &operand->buffer));
    }
    return vec_push(&scheduler->program->instructions, instruction);
}

static bool same_group(const struct node *a, const struct node *b) {
    return a->block == b->block && a->phase == b->phase;
}

/* All nodes of the update (or all others), group by group, grain by grain. */
static enum status schedule_nodes(struct scheduler *scheduler, const struct section *section, bool update) {
    const struct graph *graph = scheduler->graph;
    for (size_t begin = 0, end; begin < graph->nodes.count; begin = end) {
        const struct node *first = graph->nodes.items[begin];
        for (end = begin; end < graph->nodes.count && same_group(first, graph->nodes.items[end]);)
            end++;
        if ((first->phase == PHASE_UPDATE) != update) continue;
        for (int64_t slot = 0; slot < section->grains; slot++)
            for (size_t n = begin; n < end; n++)
                TRY(schedule_node(scheduler, section, slot, graph->nodes.items[n]));
    }
    return STATUS_OK;
}

static enum status schedule_section(struct scheduler *scheduler, struct section section, bool update) {
    if (section.repeat == 0 || section.grains == 0) return STATUS_OK;
    struct program *program = scheduler->program;
    section.first = (int32_t)program->instructions.count;
    TRY(vec_push(&program->sections, section));
    memset(scheduler->pass_buffers, -1, (size_t)scheduler->slots * scheduler->graph->tensors.count * sizeof(int32_t));
    TRY(schedule_nodes(scheduler, &section, update));
    int32_t count = (int32_t)program->instructions.count - section.first;
    if (count > 0)
        program->sections.items[program->sections.count - 1].count = count;
    else
        program->sections.count--;
    return STATUS_OK;
}

static enum status schedule_all(struct scheduler *scheduler, const struct plan *plan) {
    int64_t grains = recipe_grains(&plan->recipe), slots = plan->policy.grains_per_pass;
    int64_t middle = (grains - slots) / slots, rest = (grains - slots) % slots;
    const struct section sections[] = {
        {.name = "first pass", .repeat = 1, .first_grain = 0, .grains = slots},
        {.name = "middle passes", .repeat = middle, .first_grain = slots, .grains = slots},
        {.name = "last pass", .repeat = 1, .first_grain = slots + middle * slots, .grains = rest},
    };
    const struct section update = {.name = "update", .repeat = 1, .first_grain = -1, .grains = 1};
    TRY(add_step_buffers(scheduler, grains));
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        TRY(schedule_section(scheduler, sections[i], false));
    return schedule_section(scheduler, update, true);
}

static void find_last_readers(struct scheduler *scheduler) {
    const struct graph *graph = scheduler->graph;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        for (int i = 0; i < node->op->inputs; i++)
            if (node->in[i]) scheduler->last_reader[tensor_storage(node->in[i])->id] = node->id;
    }
}

static enum status start_scheduler(struct scheduler *scheduler) {
    size_t tensors = scheduler->graph->tensors.count + 1, slots = (size_t)scheduler->slots;
    scheduler->program = mem_array(1, sizeof *scheduler->program);
    scheduler->step_buffers = mem_array(tensors, sizeof *scheduler->step_buffers);
    scheduler->pass_buffers = mem_array(tensors * slots, sizeof *scheduler->pass_buffers);
    scheduler->last_reader = mem_array(tensors, sizeof *scheduler->last_reader);
    scheduler->zeroed = mem_array(tensors, sizeof *scheduler->zeroed);
    if (!scheduler->program || !scheduler->step_buffers || !scheduler->pass_buffers || !scheduler->last_reader ||
        !scheduler->zeroed)
        return STATUS_FAILED;
    memset(scheduler->step_buffers, -1, tensors * sizeof *scheduler->step_buffers);
    memset(scheduler->last_reader, -1, tensors * sizeof *scheduler->last_reader);
    *scheduler->program = (struct program){.graph = scheduler->graph, .streams = 1};
    find_last_readers(scheduler);
    return STATUS_OK;
}

enum status program_schedule(const struct graph *graph, const struct plan *plan,
                             const struct workspace_table *workspace, struct program **out) {
    BUG_IF(workspace->count != (int)graph->nodes.count, "a workspace table of another graph");
    struct scheduler scheduler = {.graph = graph, .workspace = workspace, .slots = plan->policy.grains_per_pass};
    enum status status = start_scheduler(&scheduler);
    if (status == STATUS_OK) status = schedule_all(&scheduler, plan);
    mem_free(scheduler.step_buffers);
    mem_free(scheduler.pass_buffers);
    mem_free(scheduler.last_reader);
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
