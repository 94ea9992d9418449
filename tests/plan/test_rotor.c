/* Rotor against the minimum over all memory-persistent schedules, which is found without Rotor's recurrence. */
#include "plan/recompute.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "support/fault_sweep.h"
#include "support/unit.h"

enum { BLOCKS_MAX = 5 };

/* A state of the search: which values are kept, which blocks' saved sets, which gradient is there, and the value that
 * the last forward left and nobody has kept (count: none). */
struct state {
    unsigned kept, saved;
    int gradient, tip;
};
enum { STATES_MAX = (1 << (2 * BLOCKS_MAX)) * (BLOCKS_MAX + 1) * (BLOCKS_MAX + 1) };

/* Relaxes a queue of states until none gets better; times are whole numbers, so it ends. */
struct search {
    const struct chain *chain;
    int64_t slots;
    bool published;          /* forward of all must also fit next to the gradient of its own output */
    double time[STATES_MAX]; /* least time in which a state is reached */
    bool queued[STATES_MAX];
    struct state queue[STATES_MAX];
    size_t head, waiting;
};

static size_t state_index(const struct search *search, struct state state) {
    size_t count = (size_t)search->chain->count, index = (size_t)state.kept << count | state.saved;
    return (index * (count + 1) + (size_t)state.gradient) * (count + 1) + (size_t)state.tip;
}

static void reach(struct search *search, struct state state, double time) {
    size_t index = state_index(search, state);
    if (time >= search->time[index]) return;
    search->time[index] = time;
    if (search->queued[index]) return;
    search->queued[index] = true;
    search->queue[(search->head + search->waiting++) % STATES_MAX] = state;
}

static int64_t state_memory(const struct chain *chain, struct state state) {
    int64_t sum = chain_value(chain, state.gradient);
    if (state.tip < chain->count) sum += chain_value(chain, state.tip);
    for (int i = 0; i < chain->count; i++) {
        if (state.kept >> i & 1) sum += chain_value(chain, i);
        if (state.saved >> i & 1) sum += chain->blocks[i].saved;
    }
    return sum;
}

static void try_forward(struct search *search, struct state state, double time, int i) {
    const struct chain *chain = search->chain;
    const struct chain_block *block = &chain->blocks[i];
    int none = chain->count;
    bool held = state.kept >> i & 1 || (i > 0 && state.saved >> (i - 1) & 1);
    if (held ? state.tip != none : state.tip != i) return;
    int64_t memory = state_memory(chain, state) + block->forward_temporary, all = memory;
    if (search->published) {
        int64_t own = memory - chain_value(chain, state.gradient) + block->output;
        all = own > all ? own : all;
    }
    unsigned with_input = held ? state.kept : state.kept | 1u << i;
    time += block->forward_time;
    if (i + 1 < chain->count && memory + block->output <= search->slots) {
        reach(search, (struct state){state.kept, state.saved, state.gradient, i + 1}, time);
        reach(search, (struct state){with_input, state.saved, state.gradient, i + 1}, time);
    }
    if (!(state.saved >> i & 1) && all + block->saved <= search->slots)
        reach(search, (struct state){with_input, state.saved | 1u << i, state.gradient, none}, time);
}

static void try_backward(struct search *search, struct state state, double time) {
    const struct chain *chain = search->chain;
    int i = state.gradient - 1;
    bool input = state.kept >> i & 1 || (i > 0 && state.saved >> (i - 1) & 1);
    int64_t memory = state_memory(chain, state) + chain_value(chain, i) + chain->blocks[i].backward_temporary;
    if (state.tip != chain->count || !input || !(state.saved >> i & 1) || memory > search->slots) return;
    reach(search, (struct state){state.kept & ~(1u << i), state.saved & ~(1u << i), i, chain->count},
          time + chain->blocks[i].backward_time);
}

static void expand(struct search *search, struct state state) {
    double time = search->time[state_index(search, state)];
    int none = search->chain->count;
    if (state.tip < none) {
        reach(search, (struct state){state.kept, state.saved, state.gradient, none}, time);
        reach(search, (struct state){state.kept | 1u << state.tip, state.saved, state.gradient, none}, time);
    }
    for (int i = 0; i < state.gradient; i++)
        try_forward(search, state, time, i);
    if (state.gradient > 0) try_backward(search, state, time);
}

/* Infinite where nothing fits. */
static double min_time(struct search *search, const struct chain *chain, int64_t slots, bool published) {
    search->chain = chain, search->slots = slots, search->published = published;
    search->head = search->waiting = 0;
    for (size_t i = 0; i < STATES_MAX; i++)
        search->time[i] = INFINITY, search->queued[i] = false;
    struct state start = {.kept = 1, .gradient = chain->count, .tip = chain->count};
    if (state_memory(chain, start) <= slots) reach(search, start, 0);
    double min = INFINITY;
    while (search->waiting > 0) {
        struct state state = search->queue[search->head];
        search->head = (search->head + 1) % STATES_MAX, search->waiting--;
        search->queued[state_index(search, state)] = false;
        double time = search->time[state_index(search, state)];
        if (state.gradient == 0 && time < min) min = time;
        expand(search, state);
    }
    return min;
}

static double solved_time(const struct chain *chain, int64_t slots) {
    struct recompute_schedule schedule = {0};
    struct recompute_cost cost;
    enum status status = rotor_solve(chain, slots, &schedule, &cost);
    if (status == STATUS_NO_FIT) return INFINITY;
    assert_int_equal(status, STATUS_OK);
    struct recompute_cost walked;
    assert_int_equal(recompute_simulate(chain, &schedule, &walked), STATUS_OK);
    assert_true(walked.peak <= slots);
    assert_true(walked.time == cost.time && walked.peak == cost.peak);
    vec_free(&schedule);
    return cost.time;
}

static int64_t draw(uint64_t seed, uint64_t *counter, int64_t min, int64_t max) {
    return min + (int64_t)(random_u64(seed, RANDOM_TEST, 0, (*counter)++) % (uint64_t)(max - min + 1));
}

/* A saved set holds the output. Odd seeds have forward temporaries up to `max_temporary`, even ones none larger than
 * what backward needs, so that the published limit of one block is not stricter than memory is. */
static struct chain random_chain(uint64_t seed, int64_t max_temporary) {
    struct chain chain;
    uint64_t counter = 0;
    assert_int_equal(chain_create((int)draw(seed, &counter, 1, BLOCKS_MAX), &chain), STATUS_OK);
    chain.input = draw(seed, &counter, 0, 6);
    for (int i = 0; i < chain.count; i++) {
        struct chain_block *block = &chain.blocks[i];
        block->forward_time = (double)draw(seed, &counter, 0, 9);
        block->backward_time = (double)draw(seed, &counter, 0, 15);
        block->output = draw(seed, &counter, 0, 6);
        block->saved = block->output + draw(seed, &counter, 0, 8);
        block->backward_temporary = draw(seed, &counter, 0, 4);
        int64_t backward = chain_value(&chain, i) + block->backward_temporary;
        block->forward_temporary = draw(seed, &counter, 0, seed % 2 ? max_temporary : backward);
    }
    return chain;
}

static int64_t ample_slots(const struct chain *chain) {
    int64_t sum = 2 * chain->input;
    for (int i = 0; i < chain->count; i++)
        sum += chain->blocks[i].output + chain->blocks[i].saved + chain->blocks[i].forward_temporary +
               chain->blocks[i].backward_temporary;
    return sum;
}

static struct search *new_search(void) {
    struct search *search = mem_array(1, sizeof *search);
    assert_non_null(search);
    return search;
}

static void nothing_is_faster_by_brute_force(void **state) {
    (void)state;
    struct search *search = new_search();
    int solved = 0;
    for (uint64_t seed = 0; seed < unit_sweep(300, 20000); seed++) {
        struct chain chain = random_chain(seed, 12);
        int64_t max = ample_slots(&chain), step = 1 + max / 12;
        for (int64_t slots = (int64_t)(seed % (uint64_t)step); slots <= max; slots += step) {
            double expected = min_time(search, &chain, slots, seed % 2 == 1), got = solved_time(&chain, slots);
            if (expected != got)
                fail_msg("seed %llu, %lld slots: solved %g, least %g", (unsigned long long)seed, (long long)slots, got,
                         expected);
            solved += got < INFINITY;
        }
        chain_free(&chain);
    }
    mem_free(search);
    print_message("seeds from 0; %d chains and budgets with a schedule\n", solved);
    assert_true(solved > 1000);
}

static struct chain uniform_chain(int count) {
    struct chain chain;
    assert_int_equal(chain_create(count + 1, &chain), STATUS_OK);
    chain.input = 1;
    for (int i = 0; i < count; i++)
        chain.blocks[i] = (struct chain_block){.forward_time = 1, .backward_time = 2, .output = 1, .saved = 2};
    return chain; /* the last block, the loss, takes nothing */
}

static void the_example_is_solved(void **state) {
    (void)state;
    static const double times[] = {18, 15, 14, 14, 13, 12};
    struct chain chain = uniform_chain(4);
    assert_true(isinf(solved_time(&chain, 5)));
    for (int i = 0; i < 6; i++)
        assert_true(solved_time(&chain, 6 + i) == times[i]);
    assert_true(solved_time(&chain, INT64_MAX) == 12);
    assert_true(isinf(solved_time(&chain, INT64_MIN)));
    chain_free(&chain);
}

/* Forward of all next to a gradient larger than that of its own output: by the published limits keeping all fits in 16
 * slots, where it takes 18. */
static void large_later_gradients_fit(void **state) {
    (void)state;
    struct chain_block blocks[] = {
        {.forward_time = 1, .backward_time = 1, .output = 1, .saved = 4, .forward_temporary = 8},
        {.forward_time = 9, .backward_time = 1, .output = 5, .saved = 5},
    };
    struct chain chain = {.input = 1, .count = 2, .blocks = blocks};
    assert_true(isinf(solved_time(&chain, 14)));
    assert_true(solved_time(&chain, 15) == 13); /* block 0 runs forward twice */
    assert_true(solved_time(&chain, 17) == 13);
    assert_true(solved_time(&chain, 18) == 12);
}

/* One table gives what several would; `chain` has no schedule in the first. */
static void expect_each(const struct chain *chain) {
    const int64_t slots[] = {chain->input, 90, 140, 200, 320};
    enum { COUNT = sizeof slots / sizeof *slots };
    struct recompute_schedule schedules[COUNT];
    struct recompute_cost costs[COUNT];
    assert_int_equal(rotor_solve_each(chain, slots, COUNT, schedules, costs), STATUS_OK);
    assert_int_equal(schedules[0].count, 0);
    for (int i = 1; i < COUNT; i++) {
        double time = solved_time(chain, slots[i]);
        assert_true(schedules[i].count > 0 ? costs[i].time == time && costs[i].peak <= slots[i] : isinf(time));
    }
    assert_true(schedules[COUNT - 1].count > 0);
    for (int i = 0; i < COUNT; i++)
        vec_free(&schedules[i]);
}

static void long_chains_are_solved(void **state) {
    (void)state;
    struct chain chain;
    assert_int_equal(chain_create(40, &chain), STATUS_OK);
    uint64_t counter = 0;
    chain.input = 3;
    for (int i = 0; i < chain.count; i++) {
        int64_t output = draw(7, &counter, 1, 6);
        chain.blocks[i] = (struct chain_block){.forward_time = 0.1 * (double)draw(7, &counter, 1, 9),
                                               .backward_time = 0.3,
                                               .output = output,
                                               .saved = draw(7, &counter, 0, 12),
                                               .forward_temporary = draw(7, &counter, 0, 9),
                                               .backward_temporary = draw(7, &counter, 0, 9)};
    }
    expect_each(&chain);
    double before = INFINITY;
    for (int64_t slots = 20; slots < 320; slots += 12) {
        double time = solved_time(&chain, slots);
        assert_true(time <= before + 1e-9 || isinf(before));
        before = time;
    }
    assert_true(before < INFINITY);
    chain_free(&chain);
}

static void refuse(const struct chain *chain, int64_t slots, const char *expected) {
    struct recompute_schedule schedule;
    struct recompute_cost cost;
    assert_int_equal(rotor_solve(chain, slots, &schedule, &cost), STATUS_BAD_INPUT);
    if (!strstr(status_message(), expected)) fail_msg("expected '%s' in '%s'", expected, status_message());
}

static void bad_chains_are_refused(void **state) {
    (void)state;
    struct chain chain = uniform_chain(2);
    chain.blocks[1].saved = -1;
    refuse(&chain, 9, "stage 1: saved");
    chain.blocks[1].saved = CHAIN_SIZE_MAX + 1;
    refuse(&chain, 9, "stage 1: saved");
    chain.blocks[1].saved = CHAIN_SIZE_MAX;
    refuse(&chain, INT64_MAX, "table");
    chain.blocks[1].saved = 2;
    chain.blocks[0].forward_time = NAN;
    refuse(&chain, 9, "stage 0: forward_time");
    chain.blocks[0].forward_time = INFINITY;
    refuse(&chain, 9, "stage 0: forward_time");
    chain_free(&chain);
    assert_int_equal(chain_create(0, &chain), STATUS_BAD_INPUT);
    assert_int_equal(chain_create(CHAIN_BLOCKS_MAX + 1, &chain), STATUS_BAD_INPUT);
}

static enum status solve_and_free(void *payload) {
    struct recompute_schedule schedule;
    struct recompute_cost cost;
    struct chain slots;
    TRY(chain_discretise(payload, 3200, 32, &slots));
    enum status status = rotor_solve(&slots, 32, &schedule, &cost);
    if (status == STATUS_OK) vec_free(&schedule);
    chain_free(&slots);
    return status;
}

static void faults_are_reported(void **state) {
    (void)state;
    struct chain chain = uniform_chain(8);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, solve_and_free, &chain) > 4);
    chain_free(&chain);
}

static void slots_cover_bytes(void **state) {
    (void)state;
    struct chain chain = uniform_chain(1), slots;
    chain.input = 101;
    chain.blocks[0].output = 100;
    chain.blocks[0].saved = 1;
    chain.blocks[0].forward_temporary = CHAIN_SIZE_MAX;
    chain.blocks[0].backward_temporary = 0;
    assert_int_equal(chain_discretise(&chain, 50000, 500, &slots), STATUS_OK);
    assert_int_equal(slots.input, 2);
    assert_int_equal(slots.blocks[0].output, 1);
    assert_int_equal(slots.blocks[0].saved, 1);
    assert_int_equal(slots.blocks[0].forward_temporary, (CHAIN_SIZE_MAX + 99) / 100);
    assert_int_equal(slots.blocks[0].backward_temporary, 0);
    assert_true(slots.blocks[0].backward_time == 2);
    chain_free(&slots);
    assert_int_equal(chain_discretise(&chain, 0, 500, &slots), STATUS_BAD_INPUT);
    assert_int_equal(chain_discretise(&chain, 10, 0, &slots), STATUS_BAD_INPUT);
    assert_int_equal(chain_discretise(&chain, 10, 11, &slots), STATUS_BAD_INPUT);
    chain_free(&chain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_faster_by_brute_force),
        cmocka_unit_test(the_example_is_solved),
        cmocka_unit_test(large_later_gradients_fit),
        cmocka_unit_test(long_chains_are_solved),
        cmocka_unit_test(bad_chains_are_refused),
        cmocka_unit_test(faults_are_reported),
        cmocka_unit_test(slots_cover_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
