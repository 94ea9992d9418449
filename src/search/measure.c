#include "search/search.h"

#include <math.h>

#include "compiler/program.h"

bool search_fits(const struct search_input *input, const struct trial *trial) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        if (trial->tier_bytes[tier] > input->capacity_bytes[tier]) return false;
    return true;
}

/* Of all instructions of a step, one after the other. */
static double sum_seconds(const struct program *program, const struct costs *costs) {
    double sum = 0;
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        double repeat = (double)program->sections.items[instruction->section].repeat;
        sum += repeat * costs_of(costs, program, instruction).seconds;
    }
    return sum;
}

/* False where a stage takes more than another may. */
static bool take_bytes(const struct search_input *input, int64_t enough_bytes, const struct program *program,
                       struct trial *trial) {
    bool enough = true;
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        int64_t bytes = program->tier_bytes[tier], max = input->capacity_bytes[tier];
        if (bytes > trial->tier_bytes[tier]) trial->tier_bytes[tier] = bytes;
        enough &= bytes <= max || (tier == TIER_DEVICE && bytes <= enough_bytes);
    }
    return enough;
}

/* NO_FIT where the programs next to it leave no space for so many operations between ranks. */
static enum status check_operations(const struct search_input *input, const struct program *program,
                                    int64_t micro_batches) {
    int64_t beside = input->operations_beside * micro_batches / rank_place_pipeline_parallel(&input->place);
    return collectives_check_count(program->collectives.count + (size_t)beside);
}

/* By stage: one rank of each. */
static enum status compile_stages(const struct search_input *input, int64_t enough_bytes, struct plan *plan,
                                  struct program **programs, struct trial *trial) {
    const struct comm_group stages = rank_place_stage_group(&input->place);
    memset(trial->tier_bytes, 0, sizeof trial->tier_bytes);
    for (int stage = 0; stage < stages.count; stage++) {
        if (stages.count > 1) plan->place.rank = mesh_group_rank(&stages, stage);
        TRY(program_compile_placed(input->graph, plan, input->workspace, &programs[stage]));
        TRY(check_operations(input, programs[stage], plan->policy.micro_batches_per_wave));
        if (!take_bytes(input, enough_bytes, programs[stage], trial)) break;
    }
    return STATUS_OK;
}

static enum status synchronise_stages(struct program *const *programs, int count) {
    for (int stage = 0; stage < count; stage++)
        TRY(program_synchronise(programs[stage]));
    return STATUS_OK;
}

static enum status time_stages(const struct search_input *input, struct program *const *programs, int count,
                               struct trial *trial) {
    TRY(synchronise_stages(programs, count));
    struct timeline *timelines = mem_array((size_t)count, sizeof *timelines);
    if (!timelines) return STATUS_FAILED;
    enum status status = simulate_stages((const struct program *const *)programs, count, input->costs, timelines);
    for (int stage = 0; stage < count && status == STATUS_OK; stage++) {
        trial->step_s = fmax(trial->step_s, timelines[stage].step_s);
        trial->sum_s = fmax(trial->sum_s, sum_seconds(programs[stage], input->costs));
        timeline_free(&timelines[stage]);
    }
    mem_free(timelines);
    return status;
}

enum status policy_measure(const struct search_input *input, int64_t enough_bytes, struct trial *trial,
                           struct program **out) {
    struct plan plan = {.recipe = *input->recipe, .policy = trial->policy, .place = input->place};
    int count = rank_place_pipeline_parallel(&plan.place);
    struct program **programs = mem_array((size_t)count, sizeof *programs);
    if (out) *out = NULL;
    if (!programs) return STATUS_FAILED;
    if (input->spans) snprintf(plan.policy.spans, sizeof plan.policy.spans, "%s", input->spans);
    trial->step_s = trial->sum_s = 0;
    enum status status = compile_stages(input, enough_bytes, &plan, programs, trial);
    trial->compiled = status == STATUS_OK;
    if (status == STATUS_OK && search_fits(input, trial)) status = time_stages(input, programs, count, trial);
    if (out && count == 1 && status == STATUS_OK && trial->step_s > 0) *out = programs[0], programs[0] = NULL;
    for (int stage = 0; stage < count; stage++)
        program_free(programs[stage]);
    mem_free(programs);
    return status;
}
