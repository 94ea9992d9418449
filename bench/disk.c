/* Measures the rates of the disk tier with each engine, compared with a plain loop of direct pread or pwrite calls in
 * the same run.
 *
 *     build/bench/disk DIR [MIB]     uses one file of MIB (512) in DIR per engine
 *
 * For each transfer size, the engines take turns in rounds, and the report shows the best round of each, because the
 * rates of shared disks vary from second to second. "both" reads one half and writes the other, each on its own thread;
 * its rate counts both. Every file is first written from end to end, as a run's first step writes its arena: first
 * writes into reserved space are slower. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/terminal.h"
#include "machine/cluster.h"
#include "runtime/store/disk.h"
#include "runtime/store/store.h"

enum { ROUNDS = 3, MIB = 1 << 20 };

enum way { WAY_PLAIN, WAY_URING, WAY_THREADS, WAYS };
static const char *const way_names[WAYS] = {"plain loop", "io_uring", "threads"};
enum task { TASK_READ, TASK_WRITE, TASK_BOTH, TASK_BESIDE, TASKS };
static const char *const task_names[TASKS] = {"read", "write", "both", "beside"};

struct subject {
    enum way way;
    bool absent;
    struct disk_file plain;
    struct arena arena;
};

/* A walk over [begin, end) in transfers of one size. */
struct walk {
    struct subject *subject;
    bool write;
    int64_t begin, end, transfer;
    char *data;
    enum status status;
};

static enum status move_plain(const struct disk_file *file, const struct walk *walk, int64_t at, int64_t bytes) {
    for (int64_t done = 0; done < bytes;) {
        size_t left = (size_t)(bytes - done);
        ssize_t moved = walk->write ? pwrite(file->descriptor, walk->data + done, left, at + done)
                                    : pread(file->descriptor, walk->data + done, left, at + done);
        if (moved <= 0) return status_set(STATUS_FAILED, "plain loop: %s", strerror(errno));
        done += moved;
    }
    return STATUS_OK;
}

static void *run_walk(void *argument) {
    struct walk *walk = argument;
    struct subject *subject = walk->subject;
    for (int64_t at = walk->begin; at < walk->end && walk->status == STATUS_OK; at += walk->transfer) {
        int64_t bytes = walk->end - at < walk->transfer ? walk->end - at : walk->transfer;
        if (subject->way == WAY_PLAIN)
            walk->status = move_plain(&subject->plain, walk, at, bytes);
        else if (walk->write)
            walk->status = arena_write(&subject->arena, at, walk->data, bytes, walk->write);
        else
            walk->status = arena_read(&subject->arena, at, walk->data, bytes, walk->write);
    }
    if (walk->status != STATUS_OK) fprintf(stderr, "%s\n", status_message());
    return NULL;
}

/* ---- arithmetic ---- */

enum { BUSY_MAX = 256, LANES = 64, ROUND = 4096 };

struct busy {
    int count;
    int64_t begin_ns;
    atomic_bool stopping;
    struct busy_thread {
        struct busy *busy;
        pthread_t thread;
        int64_t rounds;
        float sum;
    } threads[BUSY_MAX];
};

static void *compute(void *argument) {
    struct busy_thread *own = argument;
    float lanes[LANES];
    for (int i = 0; i < LANES; i++)
        lanes[i] = (float)i;
    for (; !atomic_load_explicit(&own->busy->stopping, memory_order_relaxed); own->rounds++)
        for (int round = 0; round < ROUND; round++)
            for (int i = 0; i < LANES; i++)
                lanes[i] = lanes[i] * 0.999F + 0.5F;
    for (int i = 0; i < LANES; i++)
        own->sum += lanes[i];
    return NULL;
}

static bool busy_start(struct busy *busy) {
    *busy = (struct busy){.begin_ns = clock_now_ns()};
    int cores = cluster_count_cores(&(int){0});
    while (busy->count < cores && busy->count < BUSY_MAX) {
        struct busy_thread *own = &busy->threads[busy->count];
        own->busy = busy;
        if (pthread_create(&own->thread, NULL, compute, own) != 0) return false;
        busy->count++;
    }
    return true;
}

/* Returns rounds per second. */
static double busy_stop(struct busy *busy) {
    atomic_store(&busy->stopping, true);
    double seconds = (double)(clock_now_ns() - busy->begin_ns) * 1e-9, rounds = 0;
    for (int t = 0; t < busy->count; t++) {
        pthread_join(busy->threads[t].thread, NULL);
        rounds += (double)busy->threads[t].rounds;
    }
    return rounds / seconds;
}

static double measure_arithmetic(void) {
    struct busy busy;
    bool good = busy_start(&busy);
    usleep(300 * 1000);
    double rate = busy_stop(&busy);
    return good ? rate : 0;
}

/* ---- transfers ---- */

/* Returns bytes per second, or 0 after an error. `data` holds one transfer for each direction. */
static double measure(struct subject *subject, enum task task, int64_t bytes, int64_t transfer, char *data) {
    int64_t half = bytes / 2 / MIB * MIB, start = clock_now_ns();
    struct walk walk = {
        .subject = subject, .write = task != TASK_READ, .end = bytes, .transfer = transfer, .data = data};
    struct walk other = {
        .subject = subject, .begin = half, .end = bytes, .transfer = transfer, .data = data + transfer};
    if (task >= TASK_BOTH) {
        pthread_t thread;
        walk.end = half;
        if (pthread_create(&thread, NULL, run_walk, &other) != 0) return 0;
        run_walk(&walk);
        pthread_join(thread, NULL);
    } else {
        run_walk(&walk);
    }
    bool good = walk.status == STATUS_OK && other.status == STATUS_OK;
    return good ? (double)bytes / (double)(clock_now_ns() - start) * 1e9 : 0;
}

/* Measures with concurrent arithmetic. *left is the remaining rate of the arithmetic. */
static double measure_beside(struct subject *subject, int64_t bytes, int64_t transfer, char *data, double *left) {
    struct busy busy;
    bool good = busy_start(&busy);
    double rate = measure(subject, TASK_BESIDE, bytes, transfer, data);
    *left = busy_stop(&busy);
    return good ? rate : 0;
}

static enum status open_subject(enum way way, const char *folder, int64_t bytes, struct subject *out) {
    *out = (struct subject){.way = way};
    if (way == WAY_PLAIN) return disk_file_open(folder, bytes, false, &out->plain);
    const struct arena_settings settings = {
        .folder = folder, .channels = 2, .engine = way == WAY_URING ? DISK_ENGINE_URING : DISK_ENGINE_THREADS};
    return arena_open(TIER_DISK, bytes, &settings, &out->arena);
}

static void close_subject(struct subject *subject) {
    if (subject->way == WAY_PLAIN)
        close(subject->plain.descriptor);
    else
        arena_close(&subject->arena);
}

static bool measure_size(struct subject *subjects, int64_t bytes, int64_t transfer, char *data, double arithmetic) {
    double best[WAYS][TASKS] = {0}, left[WAYS] = {0}, still;
    for (int round = 0; round < ROUNDS; round++)
        for (enum task task = 0; task < TASKS; task++)
            for (enum way way = 0; way < WAYS; way++) {
                if (subjects[way].absent) continue;
                double rate = task == TASK_BESIDE ? measure_beside(&subjects[way], bytes, transfer, data, &still)
                                                  : measure(&subjects[way], task, bytes, transfer, data);
                if (rate == 0) return false;
                if (rate <= best[way][task]) continue;
                best[way][task] = rate;
                if (task == TASK_BESIDE) left[way] = still / arithmetic;
            }
    for (enum task task = 0; task < TASKS; task++) {
        printf("%3lld MiB  %-6s", (long long)(transfer / MIB), task_names[task]);
        for (enum way way = 0; way < WAYS; way++) {
            printf("  %s %6.0f MB/s (%.2f)", way_names[way], best[way][task] * 1e-6,
                   best[way][task] / best[WAY_PLAIN][task]);
            if (task == TASK_BESIDE) printf(" %.2f left", left[way]);
        }
        printf("\n");
        fflush(stdout);
    }
    return true;
}

static int run(struct subject *subjects, int64_t bytes) {
    const int64_t largest = 64 * (int64_t)MIB;
    char *data = mmap(NULL, (size_t)(2 * largest), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return 1;
    (void)madvise(data, (size_t)(2 * largest), MADV_HUGEPAGE); /* as arenas do */
    memset(data, 0x5a, (size_t)(2 * largest));
    for (enum way way = 0; way < WAYS; way++) {
        if (subjects[way].absent) continue;
        double rate = measure(&subjects[way], TASK_WRITE, bytes, 16 * MIB, data);
        if (rate == 0) return 1;
        printf("first write, %-10s  %6.0f MB/s\n", way_names[way], rate * 1e-6);
    }
    double arithmetic = measure_arithmetic();
    for (int64_t transfer = MIB; transfer <= largest; transfer *= 4)
        if (!measure_size(subjects, bytes, transfer, data, arithmetic)) return 1;
    munmap(data, (size_t)(2 * largest));
    return 0;
}

int main(int argc, char **argv) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    int64_t mib = argc > 2 ? atoll(argv[2]) : 512;
    if (argc < 2 || argc > 3 || mib < 2 || mib > 2048) {
        fprintf(stderr, "usage: %s DIR [MIB]      MIB: 2 to 2048\n", argv[0]);
        return 2;
    }
    struct subject subjects[WAYS];
    for (enum way way = 0; way < WAYS; way++) {
        enum status status = open_subject(way, argv[1], mib * MIB, &subjects[way]);
        subjects[way].absent = status != STATUS_OK;
        if (status == STATUS_OK) continue;
        fprintf(stderr, "%s: %s\n", way_names[way], status_message());
        if (way != WAY_URING) return 1;
    }
    printf("files of %lld MiB; the plain loop is %s\n", (long long)mib,
           subjects[WAY_PLAIN].plain.direct ? "direct" : "buffered");
    int result = run(subjects, mib * MIB);
    for (enum way way = 0; way < WAYS; way++)
        if (!subjects[way].absent) close_subject(&subjects[way]);
    return result;
}
