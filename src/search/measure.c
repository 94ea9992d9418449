#include "search/measure.h"

#include <stdio.h>
#include <string.h>

#include "search/step_cut.h"

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

/* One stage alone, as if what others send were there. */
static enum status measure_stage(const struct search_input *input, const struct plan *plan,
                                 struct candidate *candidate) {
    struct program *program;
    struct timeline timeline;
    TRY(program_compile_unproved(input->graph, plan, input->workspace, &program));
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        if (program->tier_bytes[tier] > candidate->tier_bytes[tier])
            candidate->tier_bytes[tier] = program->tier_bytes[tier];
    enum status status = STATUS_OK;
    if (search_fits(input, candidate)) status = simulate(program, input->costs, &timeline);
    if (search_fits(input, candidate) && status == STATUS_OK) {
        double sum_s = sum_seconds(program, input->costs);
        if (timeline.step_s > candidate->step_s) candidate->step_s = timeline.step_s;
        if (sum_s > candidate->sum_s) candidate->sum_s = sum_s;
        timeline_free(&timeline);
    }
    program_free(program);
    return status;
}

/* `step_s`: of the longest stage by itself. */
static enum status pipeline_step_s(const struct search_input *input, const struct policy *policy, double *step_s) {
    struct step_cut cut;
    enum status status = step_cut_create(input->graph, input->recipe, &input->place, &cut);
    int64_t passes = status == STATUS_OK ? step_cut_passes(&cut, policy->grains_per_pass) : 0;
    step_cut_free(&cut);
    *step_s *= 1 + pipeline_wait_part(rank_place_stages(&input->place), passes);
    return status;
}

enum status policy_measure(const struct search_input *input, struct candidate *candidate) {
    struct plan plan = {.recipe = *input->recipe, .policy = candidate->policy, .place = input->place};
    int stages = rank_place_stages(&plan.place), between = rank_place_ranks(&plan.place) / stages;
    if (input->spans) snprintf(plan.policy.spans, sizeof plan.policy.spans, "%s", input->spans);
    memset(candidate->tier_bytes, 0, sizeof candidate->tier_bytes);
    candidate->step_s = candidate->sum_s = 0;
    for (int stage = 0; stage < stages; stage++) {
        plan.place.rank = (input->place.rank + stage * between) % (stages * between);
        TRY(measure_stage(input, &plan, candidate));
    }
    candidate->compiled = true;
    if (!search_fits(input, candidate)) candidate->step_s = candidate->sum_s = 0;
    if (stages == 1 || candidate->step_s <= 0) return STATUS_OK;
    return pipeline_step_s(input, &candidate->policy, &candidate->step_s);
}
