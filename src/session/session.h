/* To train, evaluate, generate or simulate, open a session and make its plan; to compute, open an engine for it.
 *
 *     struct session session;         a model on a machine; no weight is read
 *     struct session_plan plan;       recipe, policy, compiled programs, the memory they take
 *     struct engine engine;           memory for them: weights, optimizer state, a step
 *
 *     session_open(directory, &options, NULL, &session);
 *     session_plan_make(&session, &request, &plan);         // plan.h does both in one call
 *     engine_open(&plan, &engine);
 *     ...
 *     engine_close(&engine), session_plan_free(&plan), session_close(&session);
 *
 * Each borrows the one before it, which must stay where it is for as long. A process may have one session after the
 * other, also with several plans each; at a time one engine computes.
 *
 * Files, in the order to read them: session (this; backend, tiers, the share of each rank); options (what is asked for,
 * and the recipe of it); programs (what is compiled; the proof that ranks' programs fit together; a pipeline's stages,
 * simulated); machine_costs (what operators and tiers cost); plan_request (a complete request: nothing below reads
 * options); plan (the plan, or why none fits and what would); candidate (bounds, fills in, compiles and simulates one
 * candidate); choose (the policy of one; the loop over candidates); plan_document (plan.json, and what each part of a
 * plan gains); layout_report (how operators are or could be partitioned); engine, engine_hash (arenas and steps, where
 * a value stopped being finite; hashes of weights); states (weights and optimizer states, from and to files and another
 * engine); step_collectives (what ranks tell each other around a step); model_tokenizer (a model's tokenizer). */
#pragma once

#include "backend/backend.h"
#include "comm/comm.h"
#include "machine/cluster.h"
#include "model/model.h"
#include "plan/plan.h"
#include "profile/measurement.h"
#include "runtime/store/arena.h"
#include "session/options.h"

/* The machine as a session uses it: which backend computes, how much each tier may hold, and where rates come from. */

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

/* Collective. What all ranks have, each `bytes`, in fresh memory by rank. *status: how this rank's came about; then the
 * first failure by rank, and NULL with one. */
void *ranks_gather(struct comm *comm, const void *mine, size_t bytes, enum status *status);
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

struct session {
    struct model *model; /* owned */
    struct machine machine;
    struct comm *comm; /* the ranks that compute together; never NULL */
    bool owns_comm;    /* the options have none: it is of one rank, and opened here */
};

/* Opens the model (where `options` say that an outline is enough, without weights) and the machine (machine_open).
 * BAD_INPUT naming file and field. The caller closes with session_close. With several ranks (options->comm) all of them
 * call it, here and below. */
enum status session_open(const char *model_folder, const struct plan_options *options, const struct recipe *decided,
                         struct session *out);
/* The same with a model that is there, which the session takes over, also on failure. */
enum status session_open_model(struct model *model, const struct plan_options *options, const struct recipe *decided,
                               struct session *out);
void session_close(struct session *session);

static inline int session_ranks(const struct session *session) { return mesh_ranks(&session->comm->mesh); }
/* This rank's place in its own mesh, as the machine's memory has it; in any other the first rank's, on machines like
 * this one whose ranks share memory. */
struct rank_place session_place(const struct session *session, const struct mesh *mesh);

/* Sets which weights a step trains: the model gets the recipe's adapters and frozen weights, and the recipe their
 * canonical spelling. Call it before the session's plans are made; it holds for all of them. BAD_INPUT where the model
 * has no such weights. */
enum status session_set_trained(struct session *session, struct recipe *recipe);
