#include "session/stage_steps.h"

#include "base/mem.h"

static enum status compile_stages(const struct executable *main, const struct plan *plan, struct stage_steps *steps) {
    const struct comm_group stages = rank_place_stage_group(&plan->place);
    enum status status = STATUS_OK;
    for (int stage = 0; stage < steps->count && status == STATUS_OK; stage++) {
        struct plan own = *plan;
        own.place.rank = mesh_group_rank(&stages, stage);
        status = program_compile(main->graph, &own, &main->workspace, NULL, &steps->list[stage].program);
    }
    return status;
}

static enum status simulate_all(const struct executable *main, const struct costs *costs, struct stage_steps *steps) {
    size_t count = (size_t)steps->count;
    const struct program **programs = mem_array(count, sizeof *programs);
    struct timeline *timelines = mem_array(count, sizeof *timelines);
    enum status status = programs && timelines ? STATUS_OK : STATUS_FAILED;
    for (size_t stage = 0; stage < count && status == STATUS_OK; stage++)
        programs[stage] = steps->list[stage].program ? steps->list[stage].program : main->program;
    if (status == STATUS_OK) status = simulate_stages(programs, steps->count, costs, timelines);
    for (size_t stage = 0; stage < count && status == STATUS_OK; stage++)
        steps->list[stage].timeline = timelines[stage];
    mem_free(programs);
    mem_free(timelines);
    return status;
}

static double compute_seconds(const struct timeline *timeline) {
    struct timeline_stream streams[STREAM_ROLE_COUNT];
    timeline_summarise(timeline, streams);
    for (int s = 0; s < timeline->program->streams; s++)
        if (streams[s].role == STREAM_COMPUTE) return streams[s].busy_s;
    return 0;
}

static void summarise(struct stage_steps *steps) {
    double compute_s = 0;
    for (int stage = 0; stage < steps->count; stage++) {
        struct stage_step *step = &steps->list[stage];
        if (step->timeline.step_s > steps->step_s) steps->step_s = step->timeline.step_s;
        for (enum tier tier = 0; tier < TIER_COUNT; tier++)
            step->tier_bytes[tier] = step->timeline.program->tier_bytes[tier];
        compute_s += step->compute_s = compute_seconds(&step->timeline);
    }
    for (int stage = 0; stage < steps->count; stage++)
        steps->list[stage].timeline.step_s = steps->step_s;
    steps->bubble = steps->step_s > 0 ? 1 - compute_s / (steps->step_s * steps->count) : 0;
}

enum status stage_steps_make(const struct executable *main, const struct plan *plan, const struct costs *costs,
                             struct stage_steps *out) {
    int count = rank_place_pipeline_parallel(&plan->place);
    *out = (struct stage_steps){.count = count, .list = mem_array((size_t)count, sizeof *out->list)};
    if (!out->list) return STATUS_FAILED;
    if (count > 1) TRY(compile_stages(main, plan, out));
    TRY(simulate_all(main, costs, out));
    summarise(out);
    return STATUS_OK;
}

void stage_steps_free(struct stage_steps *steps) {
    for (int stage = 0; steps->list && stage < steps->count; stage++) {
        timeline_free(&steps->list[stage].timeline);
        program_free(steps->list[stage].program);
    }
    mem_free(steps->list);
    *steps = (struct stage_steps){0};
}
