/* A piece of work of each activity; rates and slowdowns are measured by repeating it. */
#pragma once

#include "machine/rates.h"
#include "profile/cache.h"
#include "profile/operator_bench.h"
#include "runtime/store/arena.h"

enum { RATE_WORK_CHANNELS = 2 };
/* Bytes of the disk that works use; the disk of a rate_machine has at least these. */
#define RATE_WORK_DISK_BYTES ((int64_t)32 << 20)

/* Shared by all works: the disk tier's file, where there is a directory for it. */
struct rate_machine {
    const struct backend *backend;
    int threads;
    struct arena disk;    /* empty without a directory */
    int64_t piece_bytes;  /* of copies: a divisor of RATE_WORK_DISK_BYTES and of block_bytes */
    int64_t block_bytes;  /* the largest copy; works of copies in memory go over so much */
    int64_t kernel_bytes; /* the most that a kernel's operands and their copies take, about; 0: as they need it */
    struct allowance *allowance;
};
/* An arena of the machine's backend; not for the disk. */
enum status rate_arena_open(const struct rate_machine *machine, enum tier tier, int64_t bytes, struct arena *out);
/* Sizes works so that two of each activity take about memory_bytes together. At least PROFILE_MEMORY_BYTES_MIN are
 * taken; PROFILE_MEMORY_BYTES are enough for all. */
struct rate_machine rate_machine_make(const struct backend *backend, int threads, int64_t memory_bytes);

struct rate_work {
    const struct rate_machine *machine;
    enum activity activity;
    struct graph *graph;          /* kernels: of one node */
    struct bench_memory memory;   /* kernels: operands */
    struct operator_bench kernel; /* kernels */
    struct arena device, host;    /* copies: the two ends; one end of copies with the disk */
    struct work_clock clock;      /* copies: their stream */
    struct copy_staging staging;  /* the disk's, where the device has memory of its own */
    int channel;                  /* of the disk; copies in memory: 0 for those to the device, 1 for those from it */
    int64_t at;                   /* where the next piece begins */
};

/* `channel`, below RATE_WORK_CHANNELS, is different for concurrent works. Close in any case. */
enum status rate_work_open(const struct rate_machine *machine, enum activity activity, int channel,
                           struct rate_work *out);
void rate_work_close(struct rate_work *work);
/* Does one piece, and returns when it is done: a kernel, or a copy of the machine's piece_bytes; some milliseconds. A
 * device's pieces in memory are larger, as its micro-batches are, so that asking for them is little compared with them:
 * about half a millisecond. FAILED when disk or device does. */
enum status rate_work_run(struct rate_work *work);

/* The node of a linear layer without bias, on `rows` positions of one sequence; NULL after a failure of the graph. */
struct node *rate_product_node(struct graph *graph, int64_t rows, int64_t inputs, int64_t outputs);

/* How much each activity slows down each other one. */

/* Fills rates->slowdown for a machine without concurrent streams: all are 1. */
void slowdown_none(struct cluster_rates *rates);
/* Measurements that slowdown_measure takes of the machine's allowance. */
int slowdown_races(const bool present[ACTIVITY_COUNT]);

/* Fills rates->slowdown and raises rates->noise, for the activities that are `present`; with others it is 1. Each pair
 * works for up to 7 ms in two threads, as the runner's workers do: each with compute threads of its own, and the
 * second at work half of the time. With t the time of a piece and f the part of the time that the other was at work,
 *     slowdown = 1 + (t_beside / t_alone - 1) / f.
 * Two concurrent copies in memory have opposite directions, to and from the device, as in programs. Pairs of reads or
 * of writes of the disk do not occur in programs. Exceeds the machine's time allowance only until each pair has been
 * measured once. */
enum status slowdown_measure(const struct rate_machine *machine, const bool present[ACTIVITY_COUNT],
                             struct cluster_rates *rates);
