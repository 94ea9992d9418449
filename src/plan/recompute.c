#include "plan/recompute.h"

#include <math.h>

#include "ir/symbolic_profile.h"

#define ROTOR_TABLE_BYTES_MAX ((size_t)256 << 20) /* 360 blocks in 500 slots, or 100 in 6600 */

enum status chain_create(int count, struct chain *out) {
    if (count < 1 || count > CHAIN_BLOCKS_MAX)
        return status_set(STATUS_BAD_INPUT, "a chain of %d stages: must be 1 to %d", count, CHAIN_BLOCKS_MAX);
    *out = (struct chain){.count = count};
    return mem_items(&out->blocks, (size_t)count);
}

void chain_free(struct chain *chain) {
    mem_free(chain->blocks);
    *chain = (struct chain){0};
}

void chain_add_value(struct chain *chain, const struct value_profile *value, int64_t bytes) {
    struct chain_block *block = &chain->blocks[value->tensor->block];
    if (value->leaves_block) block->output += bytes;
    if (value->leaves_block || value->saved) block->saved += bytes;
}

static enum status check_size(int block, const char *field, int64_t size) {
    if (size >= 0 && size <= CHAIN_SIZE_MAX) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "stage %d: %s: %lld is outside 0 to %lld", block, field, (long long)size,
                      (long long)CHAIN_SIZE_MAX);
}

static enum status check_time(int block, const char *field, double time) {
    if (time >= 0 && time <= CHAIN_TIME_MAX) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "stage %d: %s: %g is outside 0 to %g", block, field, time, CHAIN_TIME_MAX);
}

enum status chain_check(const struct chain *chain) {
    if (chain->count < 1 || chain->count > CHAIN_BLOCKS_MAX)
        return status_set(STATUS_BAD_INPUT, "a chain of %d stages: must be 1 to %d", chain->count, CHAIN_BLOCKS_MAX);
    TRY(check_size(0, "input", chain->input));
    for (int i = 0; i < chain->count; i++) {
        const struct chain_block *block = &chain->blocks[i];
        TRY(check_time(i, "forward_time", block->forward_time));
        TRY(check_time(i, "backward_time", block->backward_time));
        TRY(check_size(i, "output", block->output));
        TRY(check_size(i, "saved", block->saved));
        TRY(check_size(i, "forward_temporary", block->forward_temporary));
        TRY(check_size(i, "backward_temporary", block->backward_temporary));
    }
    return STATUS_OK;
}

struct slot_size {
    int64_t budget_bytes, slots;
};

static int64_t slots_of(const struct slot_size *size, int64_t bytes) {
    __int128 scaled = (__int128)bytes * size->slots;
    return (int64_t)((scaled + size->budget_bytes - 1) / size->budget_bytes);
}

enum status chain_discretise(const struct chain *chain, int64_t budget_bytes, int64_t slots, struct chain *out) {
    TRY(chain_check(chain));
    if (budget_bytes < 1 || slots < 1 || slots > budget_bytes)
        return status_set(STATUS_BAD_INPUT, "%lld slots of a budget of %lld bytes: must be at least one byte each",
                          (long long)slots, (long long)budget_bytes);
    const struct slot_size size = {budget_bytes, slots};
    TRY(chain_create(chain->count, out));
    memcpy(out->blocks, chain->blocks, (size_t)chain->count * sizeof *chain->blocks);
    out->input = slots_of(&size, chain->input);
    for (int i = 0; i < chain->count; i++) {
        struct chain_block *block = &out->blocks[i];
        block->output = slots_of(&size, block->output);
        block->saved = slots_of(&size, block->saved);
        block->forward_temporary = slots_of(&size, block->forward_temporary);
        block->backward_temporary = slots_of(&size, block->backward_temporary);
    }
    return STATUS_OK;
}

static const char *recompute_operation_name(enum recompute_operation operation) {
    static const char *const names[] = {"forward_none", "forward_checkpoint", "forward_all", "backward"};
    return names[operation];
}

/* Memory contents between two steps. */
struct walk {
    const struct chain *chain;
    bool *alone;  /* [count + 1]: x_i by itself */
    bool *saved;  /* [count + 1]: the saved set of block i-1, x_i in it */
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
    AUTO_FREE bool *there = mem_array(2 * values, sizeof *there);
    if (!there) return STATUS_FAILED;
    struct walk walk = {.chain = chain, .alone = there, .saved = there + values, .gradient = chain->count};
    walk.alone[0] = true;
    hold(&walk, chain->input + chain_value(chain, chain->count), 0);
    TRY(walk_all(&walk, schedule));
    *out = walk.cost;
    return STATUS_OK;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* C(i,l,m) for all i <= l and m from 0 to `max`. */
struct table {
    const struct chain *chain;
    int64_t max; /* slots besides x_0 */
    double *times;
};

static double *table_row(const struct table *table, int i, int l) {
    size_t row = (size_t)l * ((size_t)l + 1) / 2 + (size_t)i;
    return table->times + row * (size_t)(table->max + 1);
}

/* Memory in which every block keeps all, so that more slots change nothing. */
static int64_t ample_memory(const struct chain *chain) {
    int64_t sum = chain->input, temporary = 0;
    for (int i = 0; i < chain->count; i++) {
        const struct chain_block *block = &chain->blocks[i];
        sum += block->saved + block->output;
        temporary = larger(temporary, larger(block->forward_temporary, block->backward_temporary));
    }
    return sum + temporary;
}

static enum status table_create(const struct chain *chain, int64_t max, struct table *out) {
    size_t pairs = (size_t)chain->count * ((size_t)chain->count + 1) / 2, items, bytes;
    if (!mem_multiply(pairs, (size_t)max + 1, &items) || !mem_multiply(items, sizeof(double), &bytes) ||
        bytes > ROTOR_TABLE_BYTES_MAX) {
        (void)status_set(STATUS_BAD_INPUT, "%d stages in %lld slots: the solver's table would be larger than %zu bytes",
                         chain->count, (long long)max, ROTOR_TABLE_BYTES_MAX);
        return status_hint(STATUS_BAD_INPUT, "make the slots larger; 500 of them are customary");
    }
    *out = (struct table){.chain = chain, .max = max};
    return mem_items(&out->times, items);
}

/* Least m for the forward of block i with nothing in memory but its input and the gradient of x_{l+1}. */
static int64_t forward_min(const struct chain *chain, int i, int l) {
    return chain->blocks[l].output + chain->blocks[i].output + chain->blocks[i].forward_temporary;
}

static int64_t keep_all_min(const struct chain *chain, int i, int l) {
    return chain->blocks[l].output + chain->blocks[i].saved + chain->blocks[i].forward_temporary;
}

static void fill_block(const struct table *table, int i) {
    const struct chain_block *block = &table->chain->blocks[i];
    int64_t backward = chain_value(table->chain, i) + block->output + block->saved + block->backward_temporary;
    int64_t min = larger(keep_all_min(table->chain, i, i), backward);
    double *times = table_row(table, i, i);
    for (int64_t m = 0; m <= table->max; m++)
        times[m] = m < min ? INFINITY : block->forward_time + block->backward_time;
}

/* The two choices of C(i,l,m): keep all of block i, or make x_j a checkpoint that `forward` time leads to. */
static double keep_time(const struct table *table, int i, int l, int64_t m) {
    const struct chain *chain = table->chain;
    if (m < keep_all_min(chain, i, l)) return INFINITY;
    return table_row(table, i, i)[m] + table_row(table, i + 1, l)[m - chain->blocks[i].saved];
}

/* The less of `times` and the sum, slot by slot: where the solver spends its time. Without `omp simd` -O2 would leave
 * the loop scalar. */
WIDE_VECTORS static void take_less(double forward, const double *restrict later, const double *restrict earlier,
                                   int64_t count, double *restrict times) {
#pragma omp simd
    for (int64_t k = 0; k < count; k++) {
        double time = forward + later[k] + earlier[k];
        times[k] = time < times[k] ? time : times[k];
    }
}

static void take_checkpoint(const struct table *table, int i, int l, int j, int64_t min, double forward) {
    int64_t value = chain_value(table->chain, j), from = larger(min, value);
    if (from > table->max) return;
    take_less(forward, table_row(table, j, l) + (from - value), table_row(table, i, j - 1) + from,
              table->max - from + 1, table_row(table, i, l) + from);
}

static void fill_segment(const struct table *table, int i, int l) {
    const struct chain *chain = table->chain;
    int64_t min = forward_min(chain, i, l);
    for (int j = i + 1; j < l; j++)
        min = larger(min, chain_value(chain, j) + forward_min(chain, j, l));
    double *times = table_row(table, i, l), forward = 0;
    for (int64_t m = 0; m <= table->max; m++)
        times[m] = m < min ? INFINITY : keep_time(table, i, l, m);
    for (int j = i + 1; j <= l; j++) {
        forward += chain->blocks[j - 1].forward_time;
        take_checkpoint(table, i, l, j, min, forward);
    }
}

static void table_fill(const struct table *table) {
    for (int l = 0; l < table->chain->count; l++) {
        fill_block(table, l);
        for (int i = l - 1; i >= 0; i--)
            fill_segment(table, i, l);
    }
}

/* The checkpoint of the fastest choice of C(i,l,m), or i where block i keeps all. */
static int best_checkpoint(const struct table *table, int i, int l, int64_t m) {
    const struct chain *chain = table->chain;
    double min = keep_time(table, i, l, m), forward = 0;
    int best = i;
    for (int j = i + 1; j <= l; j++) {
        forward += chain->blocks[j - 1].forward_time;
        int64_t value = chain_value(chain, j);
        double time =
            value > m ? INFINITY : forward + table_row(table, j, l)[m - value] + table_row(table, i, j - 1)[m];
        if (time < min) min = time, best = j;
    }
    return best;
}

static enum status add_step(struct recompute_schedule *schedule, enum recompute_operation operation, int block) {
    return vec_push(schedule, (struct recompute_step){operation, block});
}

static enum status write_segment(const struct table *table, int i, int l, int64_t m, struct recompute_schedule *out) {
    int j = i == l ? i : best_checkpoint(table, i, l, m);
    if (j == i) {
        TRY(add_step(out, FORWARD_ALL, i));
        if (i < l) TRY(write_segment(table, i + 1, l, m - table->chain->blocks[i].saved, out));
        return add_step(out, BACKWARD, i);
    }
    TRY(add_step(out, FORWARD_CHECKPOINT, i));
    for (int k = i + 1; k < j; k++)
        TRY(add_step(out, FORWARD_NONE, k));
    TRY(write_segment(table, j, l, m - chain_value(table->chain, j), out));
    return write_segment(table, i, j - 1, m, out);
}

/* Reads the schedule for `slots`, at most the number that the table was made for. Empty if there is none. */
static enum status read_table(const struct table *table, int64_t slots, struct recompute_schedule *schedule,
                              struct recompute_cost *cost) {
    const struct chain *chain = table->chain;
    int64_t beside = slots - chain->input, m = beside < table->max ? beside : table->max;
    if (m < 0 || isinf(table_row(table, 0, chain->count - 1)[m])) return STATUS_OK;
    TRY(write_segment(table, 0, chain->count - 1, m, schedule));
    TRY(recompute_simulate(chain, schedule, cost));
    BUG_IF(cost->peak > slots, "a schedule for %lld slots takes %lld", (long long)slots, (long long)cost->peak);
    return STATUS_OK;
}

enum status rotor_solve_each(const struct chain *chain, const int64_t *slots, int count, struct recompute_schedule *out,
                             struct recompute_cost *costs) {
    for (int i = 0; i < count; i++) {
        out[i] = (struct recompute_schedule){0};
        costs[i] = (struct recompute_cost){0};
    }
    TRY(chain_check(chain));
    int64_t ample = ample_memory(chain), max = count > 0 ? slots[count - 1] - chain->input : -1;
    struct table table;
    if (max < 0) return STATUS_OK;
    TRY(table_create(chain, max < ample ? max : ample, &table));
    table_fill(&table);
    enum status status = STATUS_OK;
    for (int i = 0; i < count && status == STATUS_OK; i++)
        status = read_table(&table, slots[i], &out[i], &costs[i]);
    mem_free(table.times);
    return status;
}

enum status rotor_solve(const struct chain *chain, int64_t slots, struct recompute_schedule *out,
                        struct recompute_cost *cost) {
    TRY(chain_check(chain));
    if (slots < chain->input)
        return status_set(STATUS_NO_FIT, "the input alone takes %lld of %lld slots", (long long)chain->input,
                          (long long)slots);
    struct recompute_schedule schedule;
    struct recompute_cost found;
    enum status status = rotor_solve_each(chain, &slots, 1, &schedule, &found);
    if (status == STATUS_OK && schedule.count == 0)
        status = status_set(STATUS_NO_FIT, "no order of computing %d stages again fits in %lld slots", chain->count,
                            (long long)slots);
    if (status == STATUS_OK)
        *out = schedule, *cost = found;
    else
        vec_free(&schedule);
    return status;
}
