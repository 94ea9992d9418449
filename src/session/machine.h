/* The machine as a session uses it: which backend computes, how much each tier may hold, and where rates come from. */
#ifndef BALLAST_SESSION_MACHINE_H
#define BALLAST_SESSION_MACHINE_H

#include "backend/backend.h"
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
/* Measures again what arenas may take of device and host, where no limits are given. */
enum status machine_measure_memory(struct machine *machine);

/* What the device tier's arena may take now, where the arenas that are open take `open_bytes` of the process's memory,
 * as if they did not: the limit that was given, else what there is, of which each sharer has the same part (and arenas
 * of the same size). A device with memory of its own keeps what it had.
 * Allocates nothing. */
enum status machine_follow_memory(const struct machine *machine, int64_t open_bytes, int64_t *device_bytes);

#endif
