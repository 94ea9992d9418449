/* A policy for a step that does not fit as it is: the first that fits of a list, from the one that costs least time. */
#include "plan/activations.h"
#include "plan/chunks.h"
#include "train/setup_compile.h"

/* What streams beside the computing costs no time as long as the lower tier keeps up: an optimizer's state is read and
 * written once a step; what a layer keeps of a token comes to 64 x hidden bytes there and back, in bf16, beside
 * 72 x hidden^2 FLOPs, so that 1 GB/s is enough for 1.1 TFLOP/s at hidden 1024. Computing layers again takes a third
 * more time whatever the machine. So recomputing comes after moving, and waiting for what moves (no lookahead) last. */
struct rung {
    bool recompute; /* layers, whose inputs alone are kept */
    bool optimizer, gradients, parameters;
    bool activations; /* what is kept of them waits elsewhere, too */
    int64_t lookahead;
};
static const struct rung rungs[] = {
    {.lookahead = 0}, /* everything on the device: for a policy that was made for another machine */
    {.optimizer = true, .lookahead = 1},
    {.optimizer = true, .activations = true, .lookahead = 1},
    {.optimizer = true, .gradients = true, .activations = true, .lookahead = 1},
    {.optimizer = true, .gradients = true, .parameters = true, .activations = true, .lookahead = 1},
    {.recompute = true},
    {.recompute = true, .optimizer = true, .lookahead = 1},
    {.recompute = true, .optimizer = true, .gradients = true, .lookahead = 1},
    {.recompute = true, .optimizer = true, .gradients = true, .parameters = true, .activations = true, .lookahead = 1},
    {.recompute = true, .optimizer = true, .gradients = true, .parameters = true, .activations = true},
};
enum { RUNGS = sizeof rungs / sizeof *rungs };

static enum status choose_schedule(const struct rung *rung, enum tier away, int32_t blocks, struct policy *policy) {
    struct stage_list stages = {0};
    policy->schedule[0] = '\0';
    if (!rung->recompute && !rung->activations) return STATUS_OK;
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < blocks && status == STATUS_OK; i++)
        status = vec_push(&stages.list, (struct stage){.action = STAGE_FORWARD, .block = i});
    for (int32_t i = 0; i < blocks - 1 && rung->activations && status == STATUS_OK; i++)
        status = vec_push(&stages.list, (struct stage){STAGE_MOVE, i, away});
    for (int32_t i = blocks; i-- > 0 && status == STATUS_OK;) {
        /* The embedding is no work; the head's backward comes at once. */
        if (rung->recompute && i > 0 && i < blocks - 1)
            status = vec_push(&stages.list, (struct stage){.action = STAGE_FORWARD, .block = i});
        if (status == STATUS_OK) status = vec_push(&stages.list, (struct stage){.action = STAGE_BACKWARD, .block = i});
    }
    if (status == STATUS_OK) status = activations_print(&stages, policy->schedule, sizeof policy->schedule);
    stage_list_free(&stages);
    return status;
}

static enum status apply_rung(const struct rung *rung, enum tier away, int32_t blocks, struct policy *policy) {
    *policy = (struct policy){.grains_per_pass = policy->grains_per_pass, .lookahead = rung->lookahead};
    policy->optimizer = rung->optimizer ? away : TIER_DEVICE;
    policy->gradients = rung->gradients ? away : TIER_DEVICE;
    policy->parameters = rung->parameters ? away : TIER_DEVICE;
    policy->update = rung->optimizer && away == TIER_HOST ? TIER_HOST : TIER_DEVICE;
    return choose_schedule(rung, away, blocks, policy);
}

/* Whether the tiers below the device hold the programs. */
static bool fits_below(const struct train_setup *setup, const struct train_setup *programs) {
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        if (setup_program_bytes(programs, tier) > setup->capacity_bytes[tier]) return false;
    return true;
}

/* Parameters that are elsewhere need a place for each chunk of a block, and `lookahead` more to be on their way. */
static enum status choose_buffers(const struct graph *graph, struct policy *policy) {
    struct chunk_list chunks;
    int64_t bytes, least = 0;
    if (policy->parameters == TIER_DEVICE) return STATUS_OK;
    TRY(chunks_choose_bytes(graph, &bytes));
    enum status status = chunks_pack(graph, bytes, &chunks);
    if (status == STATUS_OK) status = chunks_most_in_a_block(graph, &chunks, 0, &least);
    chunks_free(&chunks);
    policy->buffers = least + 1 + policy->lookahead;
    return status;
}

/* Compiles under the plan; the programs stay if they fit. */
static enum status try_plan(struct train_setup *setup, const struct plan *plan, bool *fitted) {
    struct train_setup made = {0};
    enum status status = setup_compile(setup, plan, &made);
    bool below = status == STATUS_OK && fits_below(setup, &made);
    int64_t bytes = status == STATUS_OK ? setup_program_bytes(&made, TIER_DEVICE) : INT64_MAX;
    *fitted = below && bytes <= setup->capacity_bytes[TIER_DEVICE];
    if (below && bytes < setup->least_bytes) setup->least_bytes = bytes;
    if (*fitted) {
        setup_free_programs(setup);
        setup_take_programs(setup, &made);
        setup->plan = *plan;
    } else
        setup_free_programs(&made);
    return status;
}

/* The more grains a pass has, the more seldom what is elsewhere comes and goes: as many as fit, within reason, since
 * the program itself grows with them. */
enum { GRAINS_MOST = 32 };

static enum status try_rung(struct train_setup *setup, const struct rung *rung, enum tier away, bool *fitted) {
    struct plan plan = setup->plan;
    int32_t blocks = graph_count_blocks(setup->main->graph);
    bool streams = rung->gradients || rung->parameters;
    int64_t most = recipe_grains(&plan.recipe);
    if (!streams || setup->grains_fixed || setup->purpose != SETUP_TRAIN) most = plan.policy.grains_per_pass;
    if (most > GRAINS_MOST && !setup->grains_fixed) most = GRAINS_MOST;
    if (!setup->grains_fixed) plan.policy.grains_per_pass = 1;
    *fitted = false;
    for (bool more = true; more;) {
        bool fits_too;
        TRY(apply_rung(rung, away, blocks, &plan.policy));
        TRY(choose_buffers(setup->main->graph, &plan.policy));
        TRY(try_plan(setup, &plan, &fits_too));
        *fitted |= fits_too;
        int64_t next = 2 * plan.policy.grains_per_pass < most ? 2 * plan.policy.grains_per_pass : most;
        more = fits_too && next > plan.policy.grains_per_pass;
        plan.policy.grains_per_pass = next;
    }
    return STATUS_OK;
}

static bool moves(const struct rung *rung) {
    return rung->optimizer || rung->gradients || rung->parameters || rung->activations;
}

enum status setup_choose_policy(struct train_setup *setup) {
    setup->least_bytes = setup_program_bytes(setup, TIER_DEVICE);
    bool fitted = fits_below(setup, setup) && setup->least_bytes <= setup->capacity_bytes[TIER_DEVICE];
    for (size_t i = 0; i < RUNGS && !fitted; i++)
        for (enum tier away = TIER_HOST; away < TIER_COUNT && !fitted; away++) {
            if (moves(&rungs[i]) && setup->capacity_bytes[away] == 0) continue;
            TRY(try_rung(setup, &rungs[i], away, &fitted));
            if (!moves(&rungs[i])) break; /* the same with every tier */
        }
    return STATUS_OK;
}
