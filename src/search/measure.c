#include "search/measure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool search_fits(const struct search_input *input, const struct candidate *candidate) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        if (candidate->tier_bytes[tier] > input->capacity_bytes[tier]) return false;
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

/* By stage: one rank of each. */
static enum status compile_stages(const struct search_input *input, struct plan *plan, struct program **programs) {
    const struct comm_group stages = rank_place_stage_group(&input->place);
    for (int stage = 0; stage < stages.count; stage++) {
        if (stages.count > 1) plan->place.rank = mesh_group_rank(&stages, stage);
        TRY(program_compile_unproved(input->graph, plan, input->workspace, &programs[stage]));
    }
    return STATUS_OK;
}

static void take_bytes(struct program *const *programs, int count, struct candidate *candidate) {
    memset(candidate->tier_bytes, 0, sizeof candidate->tier_bytes);
    for (int stage = 0; stage < count; stage++)
        for (enum tier tier = 0; tier < TIER_COUNT; tier++)
            if (programs[stage]->tier_bytes[tier] > candidate->tier_bytes[tier])
                candidate->tier_bytes[tier] = programs[stage]->tier_bytes[tier];
}

static enum status time_stages(const struct search_input *input, struct program *const *programs, int count,
                               struct candidate *candidate) {
    struct timeline *timelines = mem_array((size_t)count, sizeof *timelines);
    if (!timelines) return STATUS_FAILED;
    enum status status = simulate_stages((const struct program *const *)programs, count, input->costs, timelines);
    for (int stage = 0; stage < count && status == STATUS_OK; stage++) {
        candidate->step_s = fmax(candidate->step_s, timelines[stage].step_s);
        candidate->sum_s = fmax(candidate->sum_s, sum_seconds(programs[stage], input->costs));
        timeline_free(&timelines[stage]);
    }
    mem_free(timelines);
    return status;
}

enum status policy_measure(const struct search_input *input, struct candidate *candidate) {
    struct plan plan = {.recipe = *input->recipe, .policy = candidate->policy, .place = input->place};
    int count = rank_place_stages(&plan.place);
    struct program **programs = mem_array((size_t)count, sizeof *programs);
    if (!programs) return STATUS_FAILED;
    if (input->spans) snprintf(plan.policy.spans, sizeof plan.policy.spans, "%s", input->spans);
    candidate->step_s = candidate->sum_s = 0;
    enum status status = compile_stages(input, &plan, programs);
    candidate->compiled = status == STATUS_OK;
    if (status == STATUS_OK) take_bytes(programs, count, candidate);
    if (status == STATUS_OK && search_fits(input, candidate)) status = time_stages(input, programs, count, candidate);
    for (int stage = 0; stage < count; stage++)
        program_free(programs[stage]);
    mem_free(programs);
    return status;
}
