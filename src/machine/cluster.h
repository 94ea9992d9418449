/* The machine as data: devices, their rates, the capacity of each tier, and the network between devices. Read and
 * written as JSON, so that plans can be made for other machines. Devices are alike: one is described.
 *
 * Files, in the order to read them:
 *   collective_cost: seconds of collectives on described links;
 *   links: bandwidth and latency between ranks, measured or described;
 *   rates: memory tiers, and a machine's rates;
 *   cluster: this file; all of it as JSON, and machines by name;
 *   kernel_cost: seconds of kernels on a described GPU, by shape and by operator;
 *   measure: this machine's cores, memory and limits. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "machine/rates.h"

/* Version 1 had no rates, version 2 no links; both are still read. */
enum { CLUSTER_VERSION = 3, CLUSTER_NAME_BYTES = 96, CLUSTER_ISA_BYTES = 64, CLUSTER_TIERS_MAX = 3 };

struct cluster_tier {
    char name[16];          /* "device", "host" or "disk" */
    int64_t capacity_bytes; /* how much arenas may take */
};

/* A data sheet's limits of a device that is not here, in place of measurements (machine/kernel_cost.h). */
struct cluster_limits {
    double bf16_flops_per_s; /* dense GEMMs; 0: no limits are known, and all else is 0 */
    double fp32_flops_per_s; /* GEMMs in fp32, not TF32 */
    double memory_bytes_per_s;
    double host_bytes_per_s; /* memory of the host next to it */
    int64_t multiprocessors;
    double product_part; /* of bf16_flops_per_s, what the best shape of a GEMM reaches by others' measurements; 0:
                            not known */
    double watts;        /* the most that a GPU may take; 0: not known */
};

struct cluster_device {
    char kind[16];                 /* "cpu" */
    char name[CLUSTER_NAME_BYTES]; /* the processor's own name */
    char isa[CLUSTER_ISA_BYTES];   /* instruction set that the backend picked; "" when it was not asked */
    int cores;                     /* physical cores that this process may use: cluster_count_cores */
    int hardware_threads;          /* of those cores */
    int64_t page_bytes;            /* of memory */
    bool bf16_matrix;              /* has instructions for GEMMs of bf16 matrices (AVX512-BF16 or AMX) */
    double fp32_flops_per_s;       /* measured rate of GEMMs; 0: not measured */
    double bf16_flops_per_s;
    struct cluster_tier tiers[CLUSTER_TIERS_MAX];
    int tier_count;
    struct cluster_limits limits;
};

struct cluster {
    struct cluster_device device;
    struct cluster_network network;
    struct cluster_rates rates; /* valid where `measured` is set */
};

/* The source of a device capacity, in bytes: capacity = min(available memory, headroom of the process's cgroups) -
 * process - reserve. `process` (CLUSTER_PROCESS_BYTES) is Ballast's memory besides its arenas. `reserve` is 5% of the
 * total, for other processes. */
struct cluster_memory {
    int64_t total_bytes;     /* of the machine: MemTotal */
    int64_t available_bytes; /* MemAvailable: free, or reclaimable by the kernel */
    int64_t
        cgroup_headroom_bytes; /* least limit less present use, over the process's cgroup and those above; -1: none */
    int64_t process_bytes, reserve_bytes;
    int64_t capacity_bytes; /* at least 0 */
};
#define CLUSTER_PROCESS_BYTES ((int64_t)64 << 20)
#define CLUSTER_RESERVE_FRACTION 0.05

/* Measures this machine, apart from the isa, which the backend knows, and from the rates, which src/profile measures.
 * Capacities are 0 where /proc does not tell. */
enum status cluster_measure(struct cluster *out);
/* Only the memory. FAILED where /proc does not tell. */
enum status cluster_measure_memory(struct cluster_memory *out);
/* The same with `root` before all paths: "" for this machine, a directory in tests. */
enum status cluster_measure_memory_at(const char *root, struct cluster_memory *out);
/* The same without failure: all 0 where /proc does not tell. */
void cluster_find_memory(struct cluster_memory *out);
/* The least of memory available and headroom of the cgroups. */
int64_t cluster_memory_headroom(const struct cluster_memory *memory);
/* How much more memory so many processes would need for a capacity of so many bytes each; 0: there is enough. */
int64_t cluster_memory_missing(const struct cluster_memory *memory, int processes, int64_t capacity_bytes);
/* Only the cores: those within the process's affinity and cgroup, at most its cgroup's quota of processor time (rounded
 * down, at least 1). 1 where the system does not tell. */
int cluster_count_cores(int *hardware_threads);

/* Only the largest cache of one of those cores: its L3, else its L2 (large processors have several L3). 0 where the
 * system does not tell. Takes milliseconds. */
int64_t cluster_cache_bytes(void);

/* By data sheet (machine/collective_cost.h): links, and by how much collectives slow kernels. The cluster has a
 * network. */
void cluster_describe_links(const struct cluster *cluster, struct cluster_rates *out);

/* {"version", "devices": [{"kind", "name", "isa", "cores", …, "tiers": [{"name", "capacity_bytes"}], "limits": {…}}],
 * "network": {…}, "rates": {…}, "links": {…}}. rates (rates.h) and links between ranks (links.h) are null if they were
 * not measured. limits and network are null if they are not described. NULL when out of memory. */
json_t *cluster_to_json(const struct cluster *cluster);
/* BAD_INPUT naming file and field; `file` stands for the path. */
enum status cluster_from_json(const char *file, const json_t *object, struct cluster *out);
enum status cluster_read(const char *path, struct cluster *out);

/* Machines by name: the files of clusters/, built in, so that a plan can be made for one wherever Ballast runs. */

struct cluster_preset {
    const char *name;          /* "h100x8": of clusters/h100x8.json */
    const unsigned char *text; /* that file, every figure with its source under "sources" */
    size_t bytes;
};
extern const struct cluster_preset cluster_presets[]; /* generated by make_cluster_presets.cmake */
extern const int cluster_preset_count;

/* By its name; NULL: there is none. */
const struct cluster_preset *cluster_preset_find(const char *name);
/* The preset's document, which the caller drops. */
enum status cluster_preset_document(const struct cluster_preset *preset, json_t **out);
/* The cluster of a file or, where `name` is that of a preset and no file's, of the preset. BAD_INPUT naming the nearest
 * preset where it is neither. */
enum status cluster_open(const char *name, struct cluster *out);

/* Small text files that the kernel generates when they are read: /proc and /sys. Their size is not known in advance. */

/* Limits of the process's control groups, cgroup v1 and v2: memory and processor time. */

struct cgroup_limits {
    int64_t memory_headroom_bytes; /* least of (limit - present use) over the process's cgroup and all above it that are
                                  visible; page cache of files is not counted as use; -1: no limit */
    double processors;             /* least quota of processor time, in processors; 0: no limit */
};

/* `root` goes before /proc and the mount points: "" for this machine, a directory in tests. Unreadable files count as
 * no limit. */
void cgroup_read(const char *root, struct cgroup_limits *out);
