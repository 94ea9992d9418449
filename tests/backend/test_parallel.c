/* Parallel loops: each task runs once, on a thread with a place, however long tasks take. */
/* ctest: PROCESSORS 2 */
/* ctest-again: awake OMP_WAIT_POLICY=active GOMP_SPINCOUNT=1000 */
#include <omp.h>
#include <stdatomic.h>
#include <time.h>

#include "backend/cpu/parallel.h"
#include "support/unit.h"

enum { COUNT_MAX = 300, THREADS_MAX = 5 };

struct seen {
    int64_t count, block;
    int threads;
    _Atomic int times[COUNT_MAX]; /* that an index was worked on */
    _Atomic int tasks, wrong;
    _Atomic int64_t last; /* task */
    bool uneven;
};

static void pause_a_while(void) { nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); }

static void see_range(const void *context, int64_t begin, int64_t end) {
    struct seen *seen = *(struct seen *const *)context;
    bool whole = begin % seen->block == 0 && (end == begin + seen->block || end == seen->count);
    if (!whole || begin >= end || end > seen->count) seen->wrong++;
    for (int64_t i = begin; i < end && i < COUNT_MAX; i++)
        seen->times[i]++;
    seen->tasks++;
    if (seen->uneven && begin == 0) pause_a_while();
}

static void see_task(const void *context, int64_t task, int thread) {
    struct seen *seen = *(struct seen *const *)context;
    if (task < 0 || task >= seen->count || thread < 0 || thread >= seen->threads) {
        seen->wrong++;
        return;
    }
    seen->times[task]++;
    if (seen->threads == 1 && task != seen->last - 1) seen->wrong++;
    seen->last = task;
    seen->tasks++;
    if (seen->uneven && task == seen->count - 1) pause_a_while();
}

static void check(const struct seen *seen, int tasks) {
    assert_int_equal(seen->wrong, 0);
    assert_int_equal(seen->tasks, tasks);
    for (int i = 0; i < COUNT_MAX; i++)
        assert_int_equal(seen->times[i], i < seen->count);
}

static const int64_t counts[] = {0, 1, 2, 3, 7, 64, COUNT_MAX}, blocks[] = {1, 2, 5, 1000};

static void each_range_once(void **state) {
    (void)state;
    for (int threads = 1; threads <= THREADS_MAX; threads++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
                struct seen seen = {.count = counts[c], .block = blocks[b], .uneven = b == 1}, *at = &seen;
                omp_set_num_threads(threads);
                parallel_for(seen.count, seen.block, see_range, &at);
                check(&seen, (int)((seen.count + seen.block - 1) / seen.block));
            }
}

static void each_task_once(void **state) {
    (void)state;
    for (int threads = 1; threads <= THREADS_MAX; threads++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            struct seen seen = {.count = counts[c], .threads = threads, .last = counts[c], .uneven = c % 2};
            struct seen *at = &seen;
            parallel_tasks(seen.count, threads, see_task, &at);
            check(&seen, (int)seen.count);
        }
}

/* More threads than a loop has shares. */
static void many_threads(void **state) {
    (void)state;
    struct seen seen = {.count = COUNT_MAX, .block = 1}, *at = &seen;
    omp_set_num_threads(70);
    parallel_for(seen.count, seen.block, see_range, &at);
    check(&seen, COUNT_MAX);
}

/* The first range of a thread that is held up leaves its others to the rest. */
static void held_up(const void *context, int64_t begin, int64_t end) {
    (void)end;
    struct seen *seen = *(struct seen *const *)context;
    seen->tasks++;
    if (begin > 0) return;
    for (int i = 0; i < 50000 && seen->tasks < seen->count; i++)
        pause_a_while();
    seen->last = seen->tasks;
}

static void a_slow_thread_is_helped(void **state) {
    (void)state;
    struct seen seen = {.count = 100, .block = 1}, *at = &seen;
    omp_set_num_threads(2);
    parallel_for(seen.count, seen.block, held_up, &at);
    assert_int_equal(seen.last, 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_range_once),
        cmocka_unit_test(each_task_once),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(a_slow_thread_is_helped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
