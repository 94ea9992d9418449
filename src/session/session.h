/* To train, evaluate, generate or simulate, open a session and make its plan. To compute, open an engine for the plan.
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
 * Each borrows the previous one, which must not move while it is in use. A process may have several sessions in
 * sequence, each with several plans. One engine computes at a time.
 *
 * Files, in the order to read them:
 * - session: this file; backend, tiers, the share of each rank
 * - options: the options of a run, and the recipe they make
 * - programs: compiled programs; the proof that ranks' programs fit together; simulation of a pipeline's stages
 * - machine_costs: costs of operators and tiers
 * - plan_request: a complete request; the files below read no options
 * - plan: the plan, or why none fits and which would
 * - candidate: bounds, fills in, compiles and simulates one candidate
 * - choose: the policy of one candidate; the loop over candidates
 * - plan_document: plan.json, and the gain of each part of a plan
 * - layout_report: how operators are or could be partitioned
 * - engine, engine_hash: arenas and steps; where a value stopped being finite; hashes of weights
 * - states: weights and optimizer states, from and to files and another engine
 * - step_collectives: collectives around a step
 * - model_tokenizer: a model's tokenizer */
#pragma once

#include "backend/backend.h"
#include "comm/comm.h"
#include "machine/cluster.h"
#include "model/model.h"
#include "plan/plan.h"
#include "profile/measurement.h"
#include "runtime/store/arena.h"
#include "session/options.h"

/* The machine as a session uses it: the backend, the capacity of each tier, and the source of rates. */

struct machine {
    const struct backend *backend;
    struct memory_options limits;        /* as given */
    int64_t capacity_bytes[TIER_COUNT];  /* limits of arenas: the option, or the measured memory; 0: no such tier */
    bool has_cluster;                    /* a cluster file describes the machine; otherwise it is measured when
                                          * needed */
    struct cluster cluster;              /* of the cluster file */
    enum disk_engine_choice disk_engine; /* how the disk tier is read and written; 0: the best available */
    struct mesh mesh;                    /* of the connected ranks; 1x1: one */
    struct contention contention;        /* the ranks on this host */
    int sharers;                         /* ranks that share this host's memory; 0: one */
    struct cluster_rates between;        /* connected ranks: links, and slowdowns of and by messages; otherwise 0 */
    bool plans_devices;                  /* collectives of planned ranks use device memory */
    bool disk_buffered;                  /* false; through the page cache (runtime/store/arena.h) */
};

/* Needs no freeing. `decided`: a plan's or a checkpoint's recipe, which sets the kind of device if the options name
 * none; NULL: there is none. BAD_INPUT naming the option or the cluster file. */
enum status machine_open(const struct plan_options *options, const struct recipe *decided, struct machine *out);
/* Bytes that arenas may use in the directory: the free bytes minus a reserve for others. BAD_INPUT if it is no
 * directory. */
enum status machine_measure_disk(const char *folder, int64_t *bytes);

/* Current capacity of the device tier's arena, not counting the `open_bytes` that open arenas take of the process's
 * memory. It is the given limit, else the available memory divided equally among the sharers, whose arenas have the
 * same size. A device with its own memory keeps its capacity. Allocates nothing. */
enum status machine_follow_memory(const struct machine *machine, int64_t open_bytes, int64_t *device_bytes);

/* ---- shares of the ranks ----
 *
 * Divides a machine's memory and disk among several ranks. */

/* Collective. Gathers `bytes` from each rank, in fresh memory by rank. In, *status is this rank's status; out, it is
 * the first failure by rank. NULL on failure. */
void *ranks_gather(struct comm *comm, const void *mine, size_t bytes, enum status *status);
/* Collective: the minimum over all ranks. */
enum status rank_budget_min(struct comm *comm, int64_t *bytes);
/* Like rank_budget_share, for planned ranks, `per_node` on a machine like this one. A device with its own memory
 * belongs to one rank. */
void rank_budget_plan(int per_node, struct machine *machine);

/* Ranks that share cores, or have their own: the threads of each, and where they measure concurrently. */

/* Collective. Number of ranks that may run on this process's cores, including itself, for plan_options.core_sharers. 1
 * if the launcher bound each rank to its own cores. */
enum status rank_cores_count_sharers(struct comm *comm, int *out);

/* Collective, for rank 0. The ranks on this host, to measure that many concurrently, with their cores if the launcher
 * bound them to different ones. Only one rank, with a note, if no rank may use another's cores. */
enum status rank_cores_find_contention(struct comm *comm, struct contention *out);

/* How collectives between GPUs move device memory: directly, or via the host. */

/* Like backend_find, with that choice if `device` is NULL. */
enum status rank_devices_find(const struct comm *comm, const char *device, const struct backend **out);

struct session {
    struct model *model; /* owned */
    struct machine machine;
    struct comm *comm; /* the ranks that compute together; never NULL */
    bool owns_comm;    /* the options have none: one rank, opened here */
};

/* Opens the model (without weights if `options` ask for an outline) and the machine (machine_open). BAD_INPUT naming
 * file and field. The caller closes with session_close. Collective with several ranks (options->comm), as are the calls
 * below. */
enum status session_open(const char *model_folder, const struct plan_options *options, const struct recipe *decided,
                         struct session *out);
/* Opens a session with an open model, which it takes over, also on failure. */
enum status session_open_model(struct model *model, const struct plan_options *options, const struct recipe *decided,
                               struct session *out);
void session_close(struct session *session);

static inline int session_ranks(const struct session *session) { return mesh_ranks(&session->comm->mesh); }
/* This rank's place in its own mesh, with the machine's memory. In any other mesh, the first rank's place on machines
 * like this one whose ranks share memory. */
struct rank_place session_place(const struct session *session, const struct mesh *mesh);

/* Sets which weights a step trains: gives the model the recipe's adapters and frozen weights, and the recipe their
 * canonical spelling. Call it before making the session's plans; it applies to all of them. BAD_INPUT if the model has
 * no such weights. */
enum status session_set_trained(struct session *session, struct recipe *recipe);
