/* A policy for a step that does not fit as it is: the first that fits of a list, from the one that costs least time. */
#include "plan/activations.h"
#include "train/setup_compile.h"

/* What streams beside the computing costs no time as long as the lower tier keeps up, and it does: an optimizer's state
 * is read and written once a step; what a layer keeps of a token comes to 64 x hidden bytes there and back, in bf16,
 * beside 72 x hidden^2 FLOPs, so that 1 GB/s is enough for 1.1 TFLOP/s at hidden 1024. Computing layers again takes a
 * third more time whatever the machine. So recomputing comes after moving, and waiting for what moves (no lookahead)
 * last. */
struct rung {
    bool recompute; /* layers, whose inputs alone are kept */
    bool optimizer, gradients, parameters;
    bool activations; /* what is kept of them waits elsewhere, too */
    int64_t lookahead;
};
static const struct rung rungs[] = {
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
    policy->buffers = rung->parameters ? 2 + rung->lookahead : 0;
    return choose_schedule(rung, away, blocks, policy);
}

static bool fits_below(const struct train_setup *setup, const struct train_setup *programs) {
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        if (setup_program_bytes(programs, tier) > setup->capacity_bytes[tier]) return false;
    return true;
}

static bool fits(const struct train_setup *setup, const struct train_setup *programs) {
    return setup_program_bytes(programs, TIER_DEVICE) <= setup->capacity_bytes[TIER_DEVICE] &&
           fits_below(setup, programs);
}

/* Compiles under the plan; the programs stay if they fit. */
static enum status try_plan(struct train_setup *setup, const struct plan *plan, bool *fitted) {
    struct train_setup made = {0};
    enum status status = setup_compile(setup, plan, &made);
    /* A block may need more buffers than usual. */
    *fitted = status == STATUS_OK && fits(setup, &made);
    int64_t bytes = setup_program_bytes(&made, TIER_DEVICE);
    if (status == STATUS_OK && bytes < setup->least_bytes && fits_below(setup, &made)) setup->least_bytes = bytes;
    if (*fitted) {
        setup_free_programs(setup);
        setup_take_programs(setup, &made);
        setup->plan = *plan;
    } else
        setup_free_programs(&made);
    return status == STATUS_BAD_INPUT ? STATUS_OK : status;
}

/* The more grains a pass has, the more seldom what is elsewhere comes and goes: as many as fit. */
static enum status try_rung(struct train_setup *setup, const struct rung *rung, enum tier away, int32_t blocks,
                            bool *fitted) {
    struct plan plan = setup->plan;
    bool streams = rung->gradients || rung->parameters;
    int64_t most = setup->plan.policy.grains_per_pass;
    if (streams && !setup->grains_fixed && setup->purpose == SETUP_TRAIN) most = recipe_grains(&plan.recipe);
    *fitted = false;
    for (int64_t grains = most; grains >= 1 && !*fitted; grains /= 2) {
        plan.policy.grains_per_pass = grains;
        TRY(apply_rung(rung, away, blocks, &plan.policy));
        TRY(try_plan(setup, &plan, fitted));
    }
    return STATUS_OK;
}

static bool moves(const struct rung *rung) {
    return rung->optimizer || rung->gradients || rung->parameters || rung->activations;
}

enum status setup_choose_policy(struct train_setup *setup) {
    bool fitted = fits(setup, setup);
    int32_t blocks = graph_count_blocks(setup->main->graph);
    for (size_t i = 0; i < RUNGS && !fitted; i++)
        for (enum tier away = TIER_HOST; away < TIER_COUNT && !fitted; away++) {
            if (moves(&rungs[i]) && setup->capacity_bytes[away] == 0) continue;
            TRY(try_rung(setup, &rungs[i], away, blocks, &fitted));
            if (!moves(&rungs[i])) break; /* the same with every tier */
        }
    return STATUS_OK;
}
