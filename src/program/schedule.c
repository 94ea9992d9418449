/* Scheduling: sections, instructions and buffers of a program, and the live ranges of these. */
#include <string.h>

#include "collective/comm_schedule.h"
#include "plan/movement.h"
#include "program/collectives.h"
#include "program/instances.h"
#include "program/passes.h"
#include "program/step_buffers.h"

/* The state of scheduling: which buffer holds which tensor at present. */
struct scheduler {
    struct program *program;
    const struct graph *graph;
    const struct plan *plan;
    const struct workspace_table *workspace;
    struct chunk_list chunks;
    struct execution_source source;
    int64_t slots; /* grains in flight */
    struct lane_shares shares;
    const struct lane_share *share; /* the present one */
    struct step_buffers buffers;
    struct instances activations; /* numbered by their buffers */
    int64_t *zeroed;              /* by buffer id of step buffers: 1 + the latest share that zeroed it */
};

/* The level of the sums that a node works on: finished gradients are those of level 0. */
static int level_of(const struct scheduler *scheduler, const struct node *node) {
    bool of_share = node->phase <= PHASE_BACKWARD || execution_adds_uses(node);
    return of_share ? scheduler->share->level : 0;
}

/* The buffer that now holds `tensor` (a storage), -1 when none does. */
static int32_t current_buffer(struct scheduler *scheduler, const struct execution *execution,
                              const struct tensor *tensor) {
    if (tensor->kind == TENSOR_ACTIVATION) return *instances_at(&scheduler->activations, execution->slot, tensor);
    return step_buffers_of(&scheduler->buffers, tensor, level_of(scheduler, execution->node));
}

static int64_t share_number(const struct scheduler *scheduler) {
    return scheduler->share - scheduler->shares.list.items;
}

static struct operand make_operand(struct scheduler *scheduler, const struct section *section,
                                   const struct execution *execution, struct tensor *tensor, enum access access) {
    struct tensor *storage = tensor_storage(tensor);
    int64_t element = dtype_bytes(tensor->shape.dtype), columns = shape_columns(&tensor->shape);
    struct operand operand = {
        .buffer = current_buffer(scheduler, execution, storage),
        .access = access,
        .offset = scheduler->buffers.offsets[storage->id] + tensor_storage_offset(tensor),
        .bytes = shape_bytes(&tensor->shape),
    };
    BUG_IF(operand.buffer < 0, "%s is used before it is made", tensor->name);
    if (tensor->base) {
        operand.row_bytes = columns * element;
        operand.row_stride = tensor_row_stride(tensor) * element;
        operand.bytes = (shape_rows(&tensor->shape) - 1) * operand.row_stride + operand.row_bytes;
    }
    if (tensor->kind == TENSOR_INPUT) {
        operand.offset += (section->first_grain + execution->slot) * shape_bytes(&storage->shape);
        operand.stride = section->grains * shape_bytes(&storage->shape);
    }
    if (step_buffers_sums_by_share(execution->node, tensor)) operand.offset += section->share * operand.bytes;
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

static enum status schedule_zero(struct scheduler *scheduler, const struct execution *execution, int32_t buffer,
                                 enum tier tier) {
    struct instruction zero = new_instruction(scheduler, OPCODE_ZERO, execution);
    zero.grain = 0;
    zero.tier = tier;
    zero.operands[OP_INPUTS_MAX] = (struct operand){
        .buffer = buffer, .access = ACCESS_WRITE, .bytes = scheduler->program->buffers.items[buffer].bytes};
    return vec_push(&scheduler->program->instructions, zero);
}

/* Sums are zeroed before their first use in a share, results' before that in a step, whole buffers at a time. */
static enum status zero_accumulators(struct scheduler *scheduler, const struct execution *execution) {
    const struct node *node = execution->node;
    for (int i = 0; i < node->op->outputs; i++) {
        const struct tensor *tensor = node->out[i];
        if (!tensor || !(node->op->updates >> i & 1)) continue;
        bool of_share = tensor->kind == TENSOR_GRADIENT && node->phase <= PHASE_BACKWARD;
        bool sums = of_share || tensor->kind == TENSOR_RESULT;
        int32_t buffer = sums ? current_buffer(scheduler, execution, tensor) : -1;
        if (!sums || scheduler->zeroed[buffer] > (of_share ? share_number(scheduler) : 0)) continue;
        scheduler->zeroed[buffer] = share_number(scheduler) + 1;
        TRY(schedule_zero(scheduler, execution, buffer, TIER_DEVICE));
    }
    return STATUS_OK;
}

/* ---- sums of lanes and ranks ---- */

static struct operand front_of(const struct scheduler *scheduler, int32_t pack, int level, enum access access) {
    return (struct operand){.buffer = step_buffers_pack(&scheduler->buffers, pack, level),
                            .access = access,
                            .bytes = scheduler->buffers.gradients.items[pack].summed_bytes};
}

static enum status schedule_add(struct scheduler *scheduler, const struct execution *execution, int32_t pack,
                                const struct lane_sum_step *step) {
    struct instruction add = new_instruction(scheduler, step->rounds ? OPCODE_ADD_BF16 : OPCODE_ADD, execution);
    if (step->kind == LANE_SUM_ADD) add.operands[0] = front_of(scheduler, pack, step->from, ACCESS_READ);
    add.operands[OP_INPUTS_MAX] = front_of(scheduler, pack, step->to, ACCESS_UPDATE);
    return vec_push(&scheduler->program->instructions, add);
}

static enum status schedule_reduce(struct scheduler *scheduler, const struct execution *execution, int32_t pack,
                                   const struct lane_sum_step *step) {
    struct program *program = scheduler->program;
    struct instruction reduce = new_instruction(scheduler, OPCODE_ALL_REDUCE, execution);
    enum access access = scheduler->share->grains > 0 ? ACCESS_UPDATE : ACCESS_WRITE;
    int64_t staging_bytes;
    reduce.tier = program->place.tier;
    /* Behind the front may be accumulators that nobody writes here, and buffers are copied as a whole. */
    int32_t sum = step_buffers_pack(&scheduler->buffers, pack, step->to);
    bool all = scheduler->buffers.gradients.items[pack].summed_bytes == program->buffers.items[sum].bytes;
    if (access == ACCESS_WRITE && !all) TRY(schedule_zero(scheduler, execution, sum, reduce.tier));
    reduce.collective = (int32_t)program->collectives.count;
    reduce.operands[OP_INPUTS_MAX] = front_of(scheduler, pack, step->to, access);
    TRY(collectives_add_reduction(program, &scheduler->plan->recipe, scheduler->share->round,
                                  reduce.operands[OP_INPUTS_MAX].bytes, &staging_bytes));
    if (staging_bytes > 0) {
        struct operand *operand = &reduce.operands[OPERAND_WORKSPACE];
        *operand = (struct operand){.access = ACCESS_WRITE, .bytes = staging_bytes};
        struct buffer staging = {
            .name = "staging", .kind = BUFFER_WORKSPACE, .tier = reduce.tier, .bytes = staging_bytes};
        TRY(program_add_buffer(program, staging, &operand->buffer));
    }
    return vec_push(&program->instructions, reduce);
}

/* The share's steps up to its reduction, or behind it, of one pack. */
static enum status schedule_pack_sums(struct scheduler *scheduler, const struct execution *execution, int32_t pack) {
    const struct lane_share *share = scheduler->share;
    bool behind = false;
    for (int32_t s = share->first_sum; s < share->first_sum + share->sums; s++) {
        const struct lane_sum_step *step = &scheduler->shares.steps.items[s];
        bool now = behind == (execution->kind == EXECUTION_TOTALS);
        if (now && step->kind == LANE_SUM_REDUCE) TRY(schedule_reduce(scheduler, execution, pack, step));
        if (now && step->kind != LANE_SUM_REDUCE) TRY(schedule_add(scheduler, execution, pack, step));
        behind |= step->kind == LANE_SUM_REDUCE;
    }
    return STATUS_OK;
}

static enum status schedule_sums(struct scheduler *scheduler, const struct execution *execution) {
    for (int32_t pack = 0; pack < (int32_t)scheduler->buffers.gradients.count; pack++)
        if (scheduler->buffers.gradients.items[pack].completed_by == execution->block)
            TRY(schedule_pack_sums(scheduler, execution, pack));
    return STATUS_OK;
}

/* ---- nodes ---- */

static enum status make_outputs(struct scheduler *scheduler, const struct execution *execution) {
    const struct node *node = execution->node;
    for (int i = 0; i < node->op->outputs; i++) {
        int32_t *buffer = instances_of_output(&scheduler->activations, execution, i);
        if (!buffer || *buffer >= 0) continue;
        const struct tensor *tensor = tensor_storage(node->out[i]);
        enum tier home = instances_home(&scheduler->activations, execution, tensor);
        TRY(program_add_tensor_buffer(scheduler->program, tensor, 1, home, buffer));
    }
    return STATUS_OK;
}

static enum status schedule_node(struct scheduler *scheduler, const struct section *section,
                                 const struct execution *execution) {
    const struct node *node = execution->node;
    TRY(zero_accumulators(scheduler, execution));
    struct instruction instruction = new_instruction(scheduler, OPCODE_KERNEL, execution);
    instruction.node = node;
    for (int i = 0; i < node->op->inputs; i++)
        if (node->in[i])
            instruction.operands[i] = make_operand(scheduler, section, execution, node->in[i], ACCESS_READ);
    TRY(make_outputs(scheduler, execution));
    for (int i = 0; i < node->op->outputs; i++) {
        if (!node->out[i]) continue;
        enum access access = node->op->updates >> i & 1 ? ACCESS_UPDATE : ACCESS_WRITE;
        instruction.operands[OP_INPUTS_MAX + i] = make_operand(scheduler, section, execution, node->out[i], access);
    }
    int64_t bytes = scheduler->workspace->bytes[node->id];
    if (bytes > 0) {
        struct operand *operand = &instruction.operands[OPERAND_WORKSPACE];
        *operand = (struct operand){.access = ACCESS_WRITE, .bytes = bytes};
        struct buffer workspace = {
            .name = "workspace", .kind = BUFFER_WORKSPACE, .tier = instruction.tier, .bytes = bytes};
        TRY(program_add_buffer(scheduler->program, workspace, &operand->buffer));
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
        TRY(execution->kind == EXECUTION_NODE ? schedule_node(scheduler, section, execution)
                                              : schedule_sums(scheduler, execution));
    }
    return STATUS_OK;
}

/* ---- sections ---- */

static enum status schedule_section(struct scheduler *scheduler, struct section section,
                                    struct execution_list *executions) {
    struct program *program = scheduler->program;
    section.first = (int32_t)program->instructions.count;
    section.share = share_number(scheduler);
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

/* "first pass", or among several shares "first pass, lane 2, round 1". */
static enum status name_section(struct scheduler *scheduler, struct section *section) {
    struct scratch *memory = &scheduler->program->memory;
    const struct lane_share *share = scheduler->share;
    if (scheduler->shares.list.count == 1) return STATUS_OK;
    if (scheduler->shares.rounds == 1 && share->lane >= 0)
        section->name = scratch_format(memory, "%s, lane %d", section->name, share->lane);
    else if (share->lane >= 0)
        section->name =
            scratch_format(memory, "%s, lane %d, round %lld", section->name, share->lane, (long long)share->round);
    return section->name ? STATUS_OK : STATUS_FAILED;
}

static enum status schedule_pass(struct scheduler *scheduler, struct section section, struct pass_part part,
                                 struct execution_list *executions) {
    if (section.repeat == 0) return STATUS_OK;
    const struct lane_share *last = &scheduler->shares.list.items[scheduler->shares.list.count - 1];
    part.opens_step &= share_number(scheduler) == 0;
    part.closes_step = part.closes_share && scheduler->share == last;
    TRY(name_section(scheduler, &section));
    TRY(executions_of_pass(&scheduler->source, &part, executions));
    return schedule_section(scheduler, section, executions);
}

/* A first pass, as many middle ones as need be, and a last pass, which may be smaller. */
static enum status schedule_passes(struct scheduler *scheduler, struct execution_list *executions) {
    const struct lane_share *share = scheduler->share;
    struct pass_split passes = movement_split_passes(share->grains, scheduler->slots);
    int64_t front = share->first_grain, end = front + share->grains;
    int64_t first_grains = passes.count > 1 ? passes.grains : passes.last_grains;
    const struct section first = {.name = "first pass", .repeat = 1, .first_grain = front, .grains = first_grains};
    const struct section middle = {.name = "middle passes",
                                   .repeat = passes.count > 2 ? passes.count - 2 : 0,
                                   .first_grain = front + passes.grains,
                                   .grains = passes.grains};
    const struct section last = {.name = "last pass",
                                 .repeat = passes.count > 1,
                                 .first_grain = end - passes.last_grains,
                                 .grains = passes.last_grains};
    const struct pass_part first_part = {first.grains, .opens_step = true, .closes_share = passes.count == 1};
    const struct pass_part last_part = {last.grains, .closes_share = true};
    TRY(schedule_pass(scheduler, first, first_part, executions));
    TRY(schedule_pass(scheduler, middle, (struct pass_part){.slots = middle.grains}, executions));
    return schedule_pass(scheduler, last, last_part, executions);
}

/* The rank has no grains in the round, and only what the others have summed. */
static enum status schedule_empty(struct scheduler *scheduler, struct execution_list *executions) {
    const struct section sums = {.name = "sums", .repeat = 1, .first_grain = -1, .grains = 1};
    const struct pass_part part = {.slots = 0, .opens_step = true, .closes_share = true};
    return schedule_pass(scheduler, sums, part, executions);
}

static enum status schedule_sections(struct scheduler *scheduler, struct execution_list *executions) {
    for (size_t i = 0; i < scheduler->shares.list.count; i++) {
        scheduler->share = &scheduler->shares.list.items[i];
        TRY(scheduler->share->grains > 0 ? schedule_passes(scheduler, executions)
                                         : schedule_empty(scheduler, executions));
    }
    const struct section update = {.name = "update", .repeat = 1, .first_grain = -1, .grains = 1};
    TRY(executions_of_update(&scheduler->source, executions));
    return schedule_section(scheduler, update, executions);
}

/* ---- setting up ---- */

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

enum status program_cut(const struct graph *graph, const struct recipe *recipe, const struct rank_place *place,
                        struct lane_shares *out) {
    if (graph_has_backward(graph)) return lane_shares_create(recipe, place, out);
    struct recipe whole = *recipe;
    whole.lanes = (struct lane_shape){1, 1};
    whole.round_grains = 0;
    return lane_shares_create(&whole, &(struct rank_place){.rank = 0}, out);
}

static enum status cut_step(struct scheduler *scheduler) {
    const struct plan *plan = scheduler->plan;
    if (graph_has_backward(scheduler->graph)) {
        scheduler->program->place = plan->place;
        scheduler->program->lanes = plan->recipe.lanes;
    }
    return program_cut(scheduler->graph, &plan->recipe, &plan->place, &scheduler->shares);
}

static enum status make_source(struct scheduler *scheduler) {
    const struct policy *policy = &scheduler->plan->policy;
    bool sums = scheduler->shares.steps.count > 0;
    TRY(execution_source_create(scheduler->graph, policy, &scheduler->chunks, sums, &scheduler->source));
    if (rank_place_ranks(&scheduler->program->place) > 1)
        scheduler->source.delay = policy->lookahead > 1 ? (int32_t)policy->lookahead : 1;
    scheduler->program->defers = has_deferred(scheduler);
    return STATUS_OK;
}

static enum status make_buffers(struct scheduler *scheduler) {
    const struct lane_shares *shares = &scheduler->shares;
    scheduler->buffers = (struct step_buffers){.program = scheduler->program,
                                               .graph = scheduler->graph,
                                               .plan = scheduler->plan,
                                               .chunks = &scheduler->chunks,
                                               .completed_by = scheduler->source.completed_by,
                                               .sums = scheduler->source.sums,
                                               .levels = shares->levels,
                                               .grains = shares->grains > 0 ? shares->grains : 1, /* none are read */
                                               .shares = (int64_t)shares->list.count};
    TRY(step_buffers_create(&scheduler->buffers));
    scheduler->zeroed = mem_array(scheduler->program->buffers.count, sizeof *scheduler->zeroed);
    return scheduler->zeroed ? STATUS_OK : STATUS_FAILED;
}

static enum status schedule_all(struct scheduler *scheduler) {
    const struct graph *graph = scheduler->graph;
    struct execution_list executions = {0};
    scheduler->program = mem_array(1, sizeof *scheduler->program);
    if (!scheduler->program) return STATUS_FAILED;
    *scheduler->program = (struct program){.graph = graph, .streams = 1, .alignment = BUFFER_ALIGNMENT};
    TRY(pack_chunks(scheduler));
    TRY(cut_step(scheduler));
    TRY(make_source(scheduler));
    TRY(make_buffers(scheduler));
    TRY(instances_create(graph, &scheduler->source.stages, scheduler->slots, &scheduler->activations));
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
    lane_shares_free(&scheduler.shares);
    step_buffers_free(&scheduler.buffers);
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
