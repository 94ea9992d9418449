/* The machine as a session uses it: which backend computes, how much each tier may hold, and where rates come from. */
#pragma once

#include "backend/backend.h"
#include "comm/comm.h"
#include "machine/cluster.h"
#include "profile/contention.h"
#include "runtime/store/arena.h"
#include "session/train_options.h"

struct machine {
    const struct backend *backend;
    struct memory_options limits;        /* as they were asked for */
    int64_t capacity_bytes[TIER_COUNT];  /* what arenas may take: the limit, or what there is; 0: no such tier */
    bool has_cluster;                    /* a cluster file says what the machine is; else it is measured when needed */
    struct cluster cluster;              /* of that file */
    enum disk_engine_choice disk_engine; /* how the disk tier is read and written: 0: the best there is */
    struct mesh mesh;                    /* of the ranks that are here; 1x1: one */
    struct contention contention;        /* those of them on this host */
    int sharers;                         /* how many of them have a share of this host's memory; 0: one */
    struct cluster_rates between;        /* ranks that are here: links, and slowdowns of and by messages; else 0 */
    bool plans_devices;                  /* collectives of planned ranks work on the memory of their devices */
    bool disk_buffered;                  /* false; through the page cache (runtime/store/arena.h) */
};

/* Nothing in it needs to be freed. `decided`: a plan's or a checkpoint's recipe, whose kind of device is taken where
 * the options name none; NULL: there is none. BAD_INPUT naming the option or the cluster file. */
enum status machine_open(const struct plan_options *options, const struct recipe *decided, struct machine *out);
/* What arenas may take in the directory: the free bytes, less a reserve for others. BAD_INPUT where it is no directory.
 */
enum status machine_measure_disk(const char *folder, int64_t *bytes);

/* What the device tier's arena may take now, where the arenas that are open take `open_bytes` of the process's memory,
 * as if they did not: the limit that was given, else what there is, of which each sharer has the same part (and arenas
 * of the same size). A device with memory of its own keeps what it had.
 * Allocates nothing. */
enum status machine_follow_memory(const struct machine *machine, int64_t open_bytes, int64_t *device_bytes);

/* ---- what ranks mean to the machine ----
 *
 * What each of several ranks may take of a machine's memory and disk. */

/* Collective. Divides measured capacities among the ranks on this host, after each rank's CLUSTER_PROCESS_BYTES.
 * Capacities from options, and those of connected devices (rank_devices_open), are a rank's already. Then all ranks get
 * the least capacity of any rank, since all make the same plan. Does nothing on one rank. */
enum status rank_budget_share(struct comm *comm, struct machine *machine);
/* Collective: the least that one of them has. */
enum status rank_budget_min(struct comm *comm, int64_t *bytes);
/* As rank_budget_share, for ranks that are only planned for, `per_node` on a machine like this one. A device with
 * memory of its own is one rank's. */
void rank_budget_plan(int per_node, struct machine *machine);

/* Ranks on the same cores, or on cores of their own: how many threads each starts, and where all of them measure. */

/* Collective. How many ranks may run on cores of this process's, itself included, for plan_options.core_sharers: 1
 * where the launcher bound each rank to cores of its own. */
enum status rank_cores_count_sharers(struct comm *comm, int *out);

/* Collective. The ranks on this host, to measure as many at once, for rank 0: with their cores where the launcher bound
 * them to different ones. Alone, with a note, where it lets no rank use another's. */
enum status rank_cores_find_contention(struct comm *comm, struct contention *out);

/* How collectives between GPUs move what is in their memory: from one to the other, or by way of the host. */

/* As backend_find, with that choice where `device` is NULL. */
enum status rank_devices_find(const struct comm *comm, const char *device, const struct backend **out);

/* Collective, before anything is planned. Connects the devices of the ranks (comm_device_open), unless the options say
 * that the host is to be used, and measures anew what is left of the device's memory. Where they cannot be connected
 * (no NCCL, two ranks on one GPU) the host is used, and rank 0 notes why; but BAD_INPUT where they were to be. Does
 * nothing on one rank, and where devices have no memory of their own. */
enum status rank_devices_open(struct comm *comm, const struct plan_options *options, struct machine *machine);
