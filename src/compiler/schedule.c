/* Scheduling: creates the sections of a program, with their instructions and buffers. */
#include "compiler/schedule.h"

#include "compiler/program.h"
#include "plan/plan.h"

/* Schedules messages between pipeline stages: activations and their gradients, shared parameters, and results. */

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

/* This rank's bytes of the value. A received activation gets a buffer for them. For a parameter they are the bytes that
 * the rank keeps: both ranks have the same place among the data ranks, and so the same shards. */
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
        return receives ? schedule_zero_first(scheduler, execution, out->buffer, true) : STATUS_OK;
    }
    int32_t *buffer = instances_at(&scheduler->activations, execution->slot, tensor);
    if (receives) TRY(program_add_tensor_buffer(scheduler->program, tensor, 1, TIER_DEVICE, buffer));
    BUG_IF(*buffer < 0, "%s is sent before it is made", tensor->name);
    out->buffer = *buffer;
    return STATUS_OK;
}

static enum status schedule_value(struct scheduler *scheduler, const struct execution *execution) {
    const struct pipeline_value *value = execution->value;
    const struct tensor *tensor = value->tensor;
    bool micro_batches = tensor->kind == TENSOR_ACTIVATION;
    struct operand operand;
    struct comm_group stages = stages_of(scheduler);
    int from = mesh_group_rank(&stages, (int)(value->span % scheduler->source.spans.stages));
    int to = mesh_group_rank(&stages, value->to);
    TRY(find_bytes(scheduler, execution, &operand));
    if (operand.bytes == 0) return STATUS_OK;
    const struct program_collective operation =
        collectives_broadcast(mesh_group_pair(from, to), from > to, operand.bytes, tensor,
                              micro_batches ? scheduler_section(scheduler)->first_micro_batch + execution->slot : 0);
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
    const struct operand operand = {.buffer = scheduler->buffers.buffers[part->tensor->id],
                                    .offset = part->begin,
                                    .bytes = part->end - part->begin};
    TRY(schedule_zero_first(scheduler, execution, operand.buffer, false));
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

/* Schedules one message between stages. */
static enum status schedule_message(struct scheduler *scheduler, const struct execution *execution) {
    if (execution->elsewhere) return STATUS_OK;
    return execution->kind == EXECUTION_RESULTS ? schedule_results(scheduler, execution)
                                                : schedule_value(scheduler, execution);
}

static enum status schedule_executions(struct scheduler *scheduler) {
    int32_t group = -1;
    struct program *program = scheduler->program;
    size_t count = scheduler->executions.list.count;
    /* Space for the transfers that are inserted later, too: growing by and by would copy the list several times. */
    TRY(vec_reserve(&program->instructions, program->instructions.count + count + count / 8));
    for (size_t i = 0; i < count; i++) {
        const struct execution *execution = &scheduler->executions.list.items[i];
        if (execution->group != group) instances_begin_group(&scheduler->activations, execution, count - i);
        group = execution->group;
        if (execution->kind == EXECUTION_NODE)
            TRY(schedule_node(scheduler, execution));
        else
            TRY(execution->kind >= EXECUTION_SEND ? schedule_message(scheduler, execution)
                                                  : schedule_sums(scheduler, execution));
    }
    return STATUS_OK;
}

/* ---- sections ---- */

/* `first_micro_batch` -1: it holds no wave. */
static struct section make_section(const char *name, int64_t repeat, int64_t first_micro_batch, int64_t micro_batches) {
    return (struct section){
        .name = name, .repeat = repeat, .first_micro_batch = first_micro_batch, .micro_batches = micro_batches};
}

static enum status schedule_section(struct scheduler *scheduler, struct section section) {
    struct program *program = scheduler->program;
    section.first = (int32_t)program->instructions.count;
    section.share = scheduler_share_number(scheduler);
    TRY(vec_push(&program->sections, section));
    instances_clear(&scheduler->activations);
    TRY(schedule_executions(scheduler));
    int32_t count = (int32_t)program->instructions.count - section.first;
    if (count > 0)
        program->sections.items[program->sections.count - 1].count = count;
    else
        program->sections.count--;
    scheduler->executions.list.count = 0;
    return STATUS_OK;
}

static bool has_no_wave(const struct program *program) { return program->sections.count == 0; }

/* "first wave", or among several shares "first wave, lane 2, round 1". */
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

/* A wave; or `waves` of a pipeline, whose activations are there at the same time (0: no pipeline). */
static enum status schedule_wave(struct scheduler *scheduler, struct section section, struct wave_part part,
                                 int64_t waves) {
    const struct lane_share *last = &scheduler->shares.list.items[scheduler->shares.list.count - 1];
    part.opens_step &= has_no_wave(scheduler->program);
    part.closes_step = part.closes_share && scheduler->share == last;
    TRY(name_section(scheduler, &section));
    TRY(waves > 0 ? executions_of_pipeline(&scheduler->source, &part, scheduler->slots, (int32_t)waves,
                                           &scheduler->executions)
                  : executions_of_wave(&scheduler->source, &part, &scheduler->executions));
    return schedule_section(scheduler, section);
}

/* The same waves one after the other: a section that is repeated, or where ranks have different ones a section each,
 * since the gathers of all are the same operations. */
static enum status schedule_repeated(struct scheduler *scheduler, struct section section, struct wave_part part) {
    int64_t waves = section.repeat;
    if (!scheduler->unrolled) return waves > 0 ? schedule_wave(scheduler, section, part, 0) : STATUS_OK;
    section.repeat = 1;
    for (int64_t wave = 0; wave < waves; wave++) {
        struct section own = section;
        if (section.first_micro_batch >= 0) own.first_micro_batch += wave * section.micro_batches;
        TRY(schedule_wave(scheduler, own, part, 0));
    }
    return STATUS_OK;
}

/* A first wave, as many middle ones as need be, and a last wave, which may be smaller. */
static enum status schedule_waves(struct scheduler *scheduler) {
    const struct lane_share *share = scheduler->share;
    struct wave_split waves = movement_split_waves(share->micro_batches, scheduler->slots);
    int64_t begin = share->first_micro_batch, end = begin + share->micro_batches;
    int64_t first_micro_batches = waves.count > 1 ? waves.micro_batches : waves.last_micro_batches;
    const struct section first = make_section("first wave", 1, begin, first_micro_batches);
    const struct section middle = make_section("middle waves", waves.count > 2 ? waves.count - 2 : 0,
                                               begin + waves.micro_batches, waves.micro_batches);
    const struct section last = make_section("last wave", 1, end - waves.last_micro_batches, waves.last_micro_batches);
    const struct wave_part first_part = {
        .slots = first.micro_batches, .opens_step = true, .closes_share = waves.count == 1};
    const struct wave_part last_part = {.slots = last.micro_batches, .closes_share = true};
    TRY(schedule_wave(scheduler, first, first_part, 0));
    TRY(schedule_repeated(scheduler, middle, (struct wave_part){.slots = middle.micro_batches}));
    return waves.count > 1 ? schedule_wave(scheduler, last, last_part, 0) : STATUS_OK;
}

/* The rank has no micro-batches in the round; it only receives the others' sums. */
static enum status schedule_empty(struct scheduler *scheduler) {
    const struct wave_part part = {.slots = 0, .opens_step = true, .closes_share = true};
    return schedule_wave(scheduler, make_section("sums", 1, -1, 1), part, 0);
}

/* ---- waves of other ranks ---- */

static int64_t count_waves(const struct lane_shares *shares, int64_t round, int64_t slots) {
    int64_t waves = 0;
    for (size_t i = 0; i < shares->list.count; i++)
        if (shares->list.items[i].round == round)
            waves += movement_split_waves(shares->list.items[i].micro_batches, slots).count;
    return waves;
}

static int64_t count_waves_elsewhere(const struct scheduler *scheduler, int64_t round) {
    return count_waves(&scheduler->max, round, scheduler->slots) -
           count_waves(&scheduler->shares, round, scheduler->slots);
}

/* If parameters are cut, all ranks take part in the gathers of all waves. A rank with fewer waves than others begins a
 * round with theirs. The last wave of the round, which has its sums, is the rank's own if it has any. */
static enum status schedule_elsewhere_waves(struct scheduler *scheduler) {
    const struct lane_share *share = scheduler->share;
    if (!step_buffers_cut_parameters(&scheduler->buffers)) return STATUS_OK;
    if (share > scheduler->shares.list.items && share[-1].round == share->round) return STATUS_OK;
    int64_t waves = count_waves_elsewhere(scheduler, share->round);
    if (share->micro_batches == 0) waves--; /* its sums are in the last one */
    struct section section = make_section("other ranks' waves", 1, -1, 1);
    if (waves > 0 && has_no_wave(scheduler->program)) {
        TRY(schedule_wave(scheduler, section, (struct wave_part){.opens_step = true}, 0));
        waves--;
    }
    section.repeat = waves;
    return schedule_repeated(scheduler, section, (struct wave_part){.slots = 0});
}

static enum status schedule_unstaged(struct scheduler *scheduler) {
    TRY(schedule_elsewhere_waves(scheduler));
    return scheduler->share->micro_batches == 0 ? schedule_empty(scheduler) : schedule_waves(scheduler);
}

/* ---- pipelines ---- */

/* The shares of a round in a list. */
struct round_shares {
    const struct lane_share *first;
    int64_t count;
};

static struct round_shares shares_of_round(const struct lane_shares *shares, int64_t round) {
    struct round_shares found = {.first = shares->list.items};
    while (found.first->round < round)
        found.first++;
    while (found.first + found.count < shares->list.items + shares->list.count &&
           found.first[found.count].round == round)
        found.count++;
    return found;
}

static int64_t count_share_waves(const struct scheduler *scheduler, const struct lane_share *share) {
    return movement_split_waves(share->micro_batches, scheduler->slots).count;
}

/* All data ranks of a stage go through the same waves, since they have collectives of shards in them. The first one has
 * the most shares in a round, and where others have micro-batches in it too, all of its shares have the most of these.
 * So the others begin a round with whole shares of it, and each of their own with waves of it. */
static enum status schedule_pipelines_elsewhere(struct scheduler *scheduler, const struct round_shares *max,
                                                int64_t count) {
    for (int64_t i = 0; i < count; i++)
        TRY(schedule_wave(scheduler, make_section("other ranks' waves", 1, -1, 1),
                          (struct wave_part){.opens_step = true}, count_share_waves(scheduler, &max->first[i])));
    return STATUS_OK;
}

static enum status schedule_staged(struct scheduler *scheduler) {
    const struct lane_share *share = scheduler->share;
    struct round_shares own = shares_of_round(&scheduler->shares, share->round);
    struct round_shares max = shares_of_round(&scheduler->max, share->round);
    int64_t before = max.count - own.count;
    int64_t waves = count_share_waves(scheduler, &max.first[before + (share - own.first)]);
    struct section section = make_section("pipeline", 1, share->first_micro_batch, share->micro_batches);
    if (share->micro_batches == 0) section = make_section("sums", 1, -1, 1);
    const struct wave_part part = {.slots = share->micro_batches, .opens_step = true, .closes_share = true};
    if (share == own.first) TRY(schedule_pipelines_elsewhere(scheduler, &max, before));
    return schedule_wave(scheduler, section, part, waves);
}

/* ---- a step ---- */

static enum status schedule_sections(struct scheduler *scheduler) {
    for (size_t i = 0; i < scheduler->shares.list.count; i++) {
        scheduler->share = &scheduler->shares.list.items[i];
        TRY(scheduler->source.spans.stages > 1 ? schedule_staged(scheduler) : schedule_unstaged(scheduler));
    }
    TRY(executions_of_update(&scheduler->source, &scheduler->executions));
    return schedule_section(scheduler, make_section("update", 1, -1, 1));
}

/* ---- setting up ---- */

static enum status pack_chunks(struct scheduler *scheduler) {
    TRY(chunks_of_policy(scheduler->graph, &scheduler->plan->policy, &scheduler->chunks));
    TRY(chunks_deal(&scheduler->chunks, &scheduler->plan->policy.partition, rank_place_data(&scheduler->plan->place)));
    /* A plan made for training serves graphs with fewer parameters too: those of the model without its adapters. */
    if (!graph_has_backward(scheduler->graph)) return STATUS_OK;
    return plan_check_range("policy.persistent_chunks", scheduler->plan->policy.persistent_chunks, 0,
                            (int64_t)scheduler->chunks.chunks.count, "at most all chunks stay on the device");
}

static bool has_deferred(const struct scheduler *scheduler) {
    const int32_t *first = scheduler->source.updates.first + 1;
    for (int32_t chunk = 0; chunk < (int32_t)scheduler->chunks.chunks.count; chunk++)
        if (first[chunk] < first[chunk + 1] && execution_defers_update(&scheduler->source, chunk)) return true;
    return false;
}

enum status program_cut(const struct graph *graph, const struct recipe *recipe, const struct rank_place *place,
                        struct lane_shares *out) {
    if (graph_has_backward(graph)) return lane_shares_create(recipe, place, out);
    struct recipe whole = *recipe;
    whole.lanes = (struct lane_shape){1, 1};
    whole.round_micro_batches = 0;
    return lane_shares_create(&whole, &(struct rank_place){.rank = 0}, out);
}

static enum status cut_step(struct scheduler *scheduler) {
    const struct plan *plan = scheduler->plan;
    /* Shards are gathered by whatever reads parameters, and tensor and pipeline parallelism have collectives. */
    bool together = partition_cuts(&plan->policy.partition) || rank_place_tensor_parallel(&plan->place) > 1;
    bool staged = rank_place_pipeline_parallel(&plan->place) > 1;
    if (graph_has_backward(scheduler->graph) || together || staged) {
        scheduler->program->place = plan->place;
        scheduler->program->lanes = plan->recipe.lanes;
        scheduler->program->flat = plan->policy.flat;
    }
    bool equal = true;
    if (graph_has_backward(scheduler->graph) && partition_width(plan->policy.partition.parameters) > 1)
        TRY(lane_shares_find_equal(&plan->recipe, &plan->place, &equal));
    scheduler->unrolled = !equal;
    struct rank_place first = plan->place;
    first.rank = 0;
    TRY(program_cut(scheduler->graph, &plan->recipe, &first, &scheduler->max));
    return program_cut(scheduler->graph, &plan->recipe, &plan->place, &scheduler->shares);
}

static enum status make_source(struct scheduler *scheduler) {
    const struct policy *policy = &scheduler->plan->policy;
    bool sums = scheduler->shares.steps.count > 0;
    const struct rank_place *place = &scheduler->program->place;
    TRY(execution_source_create_stage(scheduler->graph, policy, &scheduler->chunks, sums,
                                      rank_place_pipeline_parallel(place), rank_place_stage(place),
                                      &scheduler->source));
    if (rank_place_data(&scheduler->program->place) > 1)
        scheduler->source.delay = policy->lookahead > 1 ? (int32_t)policy->lookahead : 1;
    scheduler->program->defers = has_deferred(scheduler);
    return STATUS_OK;
}

/* Levels of gradients' buffers, by which rounds have them apart where gradients are cut. */
static int count_levels(struct scheduler *scheduler) {
    const struct lane_shares *shares = &scheduler->shares;
    if (partition_width(scheduler->plan->policy.partition.gradients) == 1) return shares->levels;
    int levels = 1;
    for (size_t i = 0; i < shares->list.count; i++) {
        int own = shares->list.items[i].level - (shares->list.items[i].round > 0) + 1;
        if (own > levels) levels = own;
    }
    return levels;
}

static enum status make_buffers(struct scheduler *scheduler) {
    const struct lane_shares *shares = &scheduler->shares;
    bool cut = partition_width(scheduler->plan->policy.partition.gradients) > 1;
    bool staged = scheduler->source.spans.stages > 1;
    scheduler->buffers = (struct step_buffers){.program = scheduler->program,
                                               .graph = scheduler->graph,
                                               .plan = scheduler->plan,
                                               .chunks = &scheduler->chunks,
                                               .completed_by = scheduler->source.completed_by,
                                               .sums = scheduler->source.sums,
                                               .early = scheduler->source.early,
                                               .pipeline = staged ? &scheduler->source.pipeline : NULL,
                                               .stage = scheduler->source.stage,
                                               .levels = count_levels(scheduler),
                                               .rounds = cut && shares->rounds > 0 ? shares->rounds : 1,
                                               .micro_batches = shares->micro_batches > 0 ? shares->micro_batches
                                                                                          : 1, /* none are read */
                                               .shares = (int64_t)shares->list.count};
    TRY(step_buffers_create(&scheduler->buffers));
    return mem_items(&scheduler->zeroed, scheduler->program->buffers.count);
}

/* Slots of a section: a wave's micro-batches, or all that a pipeline has in flight and its waves
 * (executions_of_pipeline). */
static int64_t count_slots(const struct scheduler *scheduler) {
    int64_t max = 0;
    for (size_t i = 0; i < scheduler->max.list.count; i++)
        if (scheduler->max.list.items[i].micro_batches > max) max = scheduler->max.list.items[i].micro_batches;
    bool staged = scheduler->source.spans.stages > 1;
    return staged ? max + movement_split_waves(max, scheduler->slots).count : scheduler->slots;
}

static enum status schedule_all(struct scheduler *scheduler) {
    const struct graph *graph = scheduler->graph;
    TRY(mem_items(&scheduler->program, 1));
    *scheduler->program = (struct program){.graph = graph, .streams = 1, .alignment = BUFFER_ALIGNMENT};
    TRY(pack_chunks(scheduler));
    TRY(cut_step(scheduler));
    TRY(make_source(scheduler));
    TRY(make_buffers(scheduler));
    TRY(instances_create(graph, &scheduler->source.activations, count_slots(scheduler), &scheduler->activations));
    return schedule_sections(scheduler);
}

enum status program_schedule(const struct graph *graph, const struct plan *plan,
                             const struct workspace_table *workspace, struct program **out) {
    BUG_IF(workspace->count != (int)graph->nodes.count, "a workspace table of another graph");
    struct scheduler scheduler = {
        .graph = graph, .plan = plan, .workspace = workspace, .slots = plan->policy.micro_batches_per_wave};
    enum status status = schedule_all(&scheduler);
    chunks_free(&scheduler.chunks);
    execution_source_free(&scheduler.source);
    lane_shares_free(&scheduler.shares);
    lane_shares_free(&scheduler.max);
    step_buffers_free(&scheduler.buffers);
    instances_free(&scheduler.activations);
    mem_free(scheduler.zeroed);
    vec_free(&scheduler.executions.list);
    if (status != STATUS_OK) {
        program_free(scheduler.program);
        return status;
    }
    *out = scheduler.program;
    return STATUS_OK;
}
