#include "backend/cpu/parallel.h"

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <strings.h>

#include "base/clock.h"

enum { LINE_BYTES = 64, SHARES_MAX = 64 };
/* How long a thread waits awake for the others: about as long as their last tasks take, and no longer than this. */
enum { WAIT_TASKS = 2, WAIT_MAX_NS = 2000000 };

/* Tasks that are still to be taken: next, next + 1, … up to end. */
struct share {
    _Alignas(LINE_BYTES) _Atomic int64_t next;
    int64_t end;
};

struct loop {
    parallel_task *body;
    const void *context;
    int shares;
    struct share share[SHARES_MAX];
    _Alignas(LINE_BYTES) _Atomic int64_t left; /* tasks of threads that are not done */
};

static void deal(struct loop *loop, int64_t tasks) {
    for (int i = 0; i < loop->shares; i++) {
        loop->share[i].next = tasks * i / loop->shares;
        loop->share[i].end = tasks * (i + 1) / loop->shares;
    }
    loop->left = tasks;
}

/* Its own share first, then what is left of others'. Returns how many tasks it did. */
static int64_t take_tasks(struct loop *loop, int thread) {
    int64_t done = 0;
    for (int i = 0; i < loop->shares; i++) {
        struct share *share = &loop->share[(thread + i) % loop->shares];
        int64_t task;
        while ((task = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed)) < share->end) {
            loop->body(loop->context, task, thread);
            done++;
        }
    }
    return done;
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool sleeps_at_once;
static void read_policy(void) {
    const char *policy = getenv("OMP_WAIT_POLICY");
    sleeps_at_once = policy && strcasecmp(policy, "passive") == 0;
}

/* A thread that falls asleep at the end of a loop takes some 50 us to wake in a virtual machine, a third of a norm's
 * time. OpenMP's own wait is as long for all loops, and shorter than the last tasks of a GEMM (cli/program.c). */
static void wait_awake(const struct loop *loop, int64_t max_ns) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_policy);
    if (sleeps_at_once) return;
    int64_t until = clock_now_ns() + (max_ns < WAIT_MAX_NS ? max_ns : WAIT_MAX_NS);
    while (atomic_load_explicit(&loop->left, memory_order_relaxed) > 0 && clock_now_ns() < until)
        relax();
}

static void work(struct loop *loop) {
    int64_t begin = clock_now_ns(), done = take_tasks(loop, omp_get_thread_num());
    if (done == 0) return;
    int64_t task_ns = (clock_now_ns() - begin) / done;
    if (atomic_fetch_sub_explicit(&loop->left, done, memory_order_relaxed) > done)
        wait_awake(loop, WAIT_TASKS * task_ns);
}

struct blocks {
    int64_t count, block;
    parallel_body *body;
    const void *context;
};

static void block_task(const void *context, int64_t task, int thread) {
    (void)thread;
    const struct blocks *blocks = context;
    int64_t begin = task * blocks->block, end = begin + blocks->block;
    blocks->body(blocks->context, begin, end < blocks->count ? end : blocks->count);
}

/* A loop that needs no second thread does not enter a parallel region, which costs more than a small loop. */
void parallel_for(int64_t count, int64_t block, parallel_body *body, const void *context) {
    const struct blocks blocks = {count, block, body, context};
    int64_t tasks = (count + block - 1) / block;
    int threads = omp_get_max_threads();
    if (tasks <= 1 || threads == 1) {
        for (int64_t i = 0; i < tasks; i++)
            block_task(&blocks, i, 0);
        return;
    }
    struct loop loop;
    loop.body = block_task, loop.context = &blocks;
    loop.shares = threads < SHARES_MAX ? threads : SHARES_MAX;
    deal(&loop, tasks);
#pragma omp parallel
    work(&loop);
}

struct reversed {
    parallel_task *body;
    const void *context;
    int64_t last;
};

static void reversed_task(const void *context, int64_t task, int thread) {
    const struct reversed *reversed = context;
    reversed->body(reversed->context, reversed->last - task, thread);
}

void parallel_tasks(int64_t count, int threads, parallel_task *body, const void *context) {
    const struct reversed reversed = {body, context, count - 1};
    if (count <= 1 || threads == 1) {
        for (int64_t i = 0; i < count; i++)
            reversed_task(&reversed, i, 0);
        return;
    }
    struct loop loop;
    loop.body = reversed_task, loop.context = &reversed, loop.shares = 1;
    deal(&loop, count);
#pragma omp parallel num_threads(threads)
    work(&loop);
}

int parallel_threads(void) { return omp_get_max_threads(); }

enum { BLOCK_ELEMENTS = 1 << 14 };

int64_t parallel_rows(int64_t columns) { return columns >= BLOCK_ELEMENTS ? 1 : BLOCK_ELEMENTS / columns; }

/* Ranges are wide, since memory is fast only for long pieces of a row (bias_grad of 3072 columns was 2.3 times as fast
 * in halves as in ranges of 256), but narrow enough that the sums stay in the first cache. */
enum { COLUMNS_MIN = 64, COLUMNS_MAX = 4096 };

int64_t parallel_columns(int64_t columns) {
    int64_t pieces = (columns + COLUMNS_MIN - 1) / COLUMNS_MIN, threads = parallel_threads();
    int64_t share = (pieces + threads - 1) / threads * COLUMNS_MIN;
    return share < COLUMNS_MAX ? share : COLUMNS_MAX;
}
