/* The machine as data: devices, what they compute, and how much memory each tier holds. Read and written as JSON, so
 * that plans can be made for machines that are elsewhere.
 *
 * In this version a cluster is one node with one device: the processor. */
#ifndef BALLAST_CLUSTER_CLUSTER_H
#define BALLAST_CLUSTER_CLUSTER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "cluster/rates.h"

/* Version 1 had no rates; it is still read. */
enum { CLUSTER_VERSION = 2, CLUSTER_NAME_BYTES = 96, CLUSTER_ISA_BYTES = 64, CLUSTER_TIERS_MAX = 3 };

struct cluster_tier {
    char name[16];          /* "device", "host" or "disk" */
    int64_t capacity_bytes; /* what arenas may take there */
};

/* What a data sheet says that a device does at most: of one that is elsewhere, in place of measurements
 * (profile/roofline.h). */
struct cluster_limits {
    double bf16_flops_per_s; /* dense products; 0: no limits are given, and the rest is 0 too */
    double fp32_flops_per_s; /* products in fp32, not TF32 */
    double memory_bytes_per_s;
    double host_bytes_per_s; /* memory of the host beside it */
    int64_t multiprocessors;
};

struct cluster_device {
    char kind[16];                 /* "cpu" */
    char name[CLUSTER_NAME_BYTES]; /* what the processor calls itself */
    char isa[CLUSTER_ISA_BYTES];   /* instruction set that the backend picked; "" when nobody asked */
    int cores;                     /* physical cores that this process may use: cluster_count_cores */
    int hardware_threads;          /* of those cores */
    int64_t page_bytes;            /* of memory */
    bool bf16_matrix;              /* has instructions for products of bf16 matrices (AVX512-BF16 or AMX) */
    double fp32_flops_per_s;       /* measured rate of matrix products; 0: not measured */
    double bf16_flops_per_s;
    struct cluster_tier tiers[CLUSTER_TIERS_MAX];
    int tier_count;
    struct cluster_limits limits;
};

struct cluster {
    struct cluster_device device;
    struct cluster_rates rates; /* `measured` says whether they are there */
};

/* Where a device capacity comes from. The process may take
 *     capacity = (least of memory available and room in its cgroups) - process - reserve
 * where `process` (CLUSTER_PROCESS_BYTES) stands for what Ballast takes beside its arenas, and `reserve` (5% of what is
 * there) is left for others. All in bytes. */
struct cluster_memory {
    int64_t total_bytes;       /* of the machine: MemTotal */
    int64_t available_bytes;   /* MemAvailable: free, or the kernel's to give back */
    int64_t cgroup_room_bytes; /* least limit less present use, over the process's cgroup and those above; -1: none */
    int64_t process_bytes, reserve_bytes;
    int64_t capacity_bytes; /* at least 0 */
};
#define CLUSTER_PROCESS_BYTES ((int64_t)64 << 20)
#define CLUSTER_RESERVE_FRACTION 0.05

/* Measures this machine (a capacity of 0 where /proc does not tell): all but the isa, which is the backend's to say,
 * and what src/profile measures. */
enum status cluster_measure(struct cluster *out);
/* Only the memory. FAILED where /proc does not tell. */
enum status cluster_measure_memory(struct cluster_memory *out);
/* The same for who can do without: all zero where /proc does not tell. */
void cluster_find_memory(struct cluster_memory *out);
/* How much more memory there would have to be for a capacity of so many bytes; 0: there is enough. */
int64_t cluster_memory_missing(const struct cluster_memory *memory, int64_t capacity_bytes);
/* Only the cores: those within the process's affinity and cgroup, at most its cgroup's quota of processor time (rounded
 * down, at least 1). 1 where the system does not tell. */
int cluster_count_cores(int *hardware_threads);

/* Only the largest cache above one of those cores (a processor has several of them where they are many): its L3, else
 * its L2. 0 where the system does not tell. Takes milliseconds. */
int64_t cluster_cache_bytes(void);

/* {"version", "devices": [{"kind", "name", "isa", "cores", …, "tiers": [{"name", "capacity_bytes"}], "limits": {…}}],
 * "rates": {…}}; the rates (rates_json.h) are null where they were not measured, so are limits where there are none.
 * NULL when out of memory. */
json_t *cluster_to_json(const struct cluster *cluster);
/* BAD_INPUT naming file and field; `file` stands for the path. */
enum status cluster_from_json(const char *file, const json_t *object, struct cluster *out);
enum status cluster_read(const char *path, struct cluster *out);

#endif
