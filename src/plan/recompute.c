#include "plan/recompute.h"

#include <stdbool.h>

#include "base/mem.h"

static const char *recompute_operation_name(enum recompute_operation operation) {
    static const char *const names[] = {"forward_none", "forward_checkpoint", "forward_all", "backward"};
    return names[operation];
}

/* What is in memory between two steps. */
struct walk {
    const struct chain *chain;
    bool *alone;  /* [count + 1]: x_i by itself */
    bool *saved;  /* [count + 1]: what block i-1 saved, x_i in it */
    int gradient; /* the gradient of x_i is there; backward of block i-1 is next */
    int64_t held; /* the sizes of all these */
    struct recompute_cost cost;
};

static bool is_there(const struct walk *walk, int value) { return walk->alone[value] || walk->saved[value]; }

static void hold(struct walk *walk, int64_t size, int64_t temporary) {
    walk->held += size;
    if (walk->held + temporary > walk->cost.peak) walk->cost.peak = walk->held + temporary;
}

static void forget_alone(struct walk *walk, int value) {
    if (walk->alone[value]) walk->held -= chain_value(walk->chain, value);
    walk->alone[value] = false;
}

static const char *walk_forward(struct walk *walk, enum recompute_operation operation, int i) {
    const struct chain_block *block = &walk->chain->blocks[i];
    if (i >= walk->gradient) return "its backward is done";
    if (!is_there(walk, i)) return "its input is not there";
    if (is_there(walk, i + 1)) return "its output is there already";
    bool all = operation == FORWARD_ALL;
    hold(walk, all ? block->saved : block->output, block->forward_temporary);
    *(all ? &walk->saved[i + 1] : &walk->alone[i + 1]) = true;
    if (operation == FORWARD_NONE) forget_alone(walk, i);
    walk->cost.time += block->forward_time;
    return NULL;
}

static const char *walk_backward(struct walk *walk, int i) {
    const struct chain_block *block = &walk->chain->blocks[i];
    if (i + 1 != walk->gradient) return "the gradient of its output is not there";
    if (!is_there(walk, i)) return "its input is not there";
    if (!walk->saved[i + 1]) return "what it saves is not there";
    hold(walk, chain_value(walk->chain, i), block->backward_temporary);
    walk->held -= block->saved + block->output;
    walk->saved[i + 1] = false;
    forget_alone(walk, i);
    walk->gradient = i;
    walk->cost.time += block->backward_time;
    return NULL;
}

static enum status walk_all(struct walk *walk, const struct recompute_schedule *schedule) {
    for (size_t k = 0; k < schedule->count; k++) {
        const struct recompute_step *step = &schedule->items[k];
        const char *fault = step->block < 0 || step->block >= walk->chain->count ? "there is no such stage"
                            : step->operation == BACKWARD                        ? walk_backward(walk, step->block)
                                                          : walk_forward(walk, step->operation, step->block);
        if (fault)
            return status_set(STATUS_BAD_INPUT, "step %zu: %s of stage %d: %s", k,
                              recompute_operation_name(step->operation), step->block, fault);
    }
    if (walk->gradient == 0) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "step %zu: the schedule ends before backward of stage %d", schedule->count,
                      walk->gradient - 1);
}

enum status recompute_simulate(const struct chain *chain, const struct recompute_schedule *schedule,
                               struct recompute_cost *out) {
    TRY(chain_check(chain));
    size_t values = (size_t)chain->count + 1;
    bool *there = mem_array(2 * values, sizeof *there);
    if (!there) return STATUS_FAILED;
    struct walk walk = {.chain = chain, .alone = there, .saved = there + values, .gradient = chain->count};
    walk.alone[0] = true;
    hold(&walk, chain->input + chain_value(chain, chain->count), 0);
    enum status status = walk_all(&walk, schedule);
    if (status == STATUS_OK) *out = walk.cost;
    mem_free(there);
    return status;
}
