/* Computes: holds the arenas of a plan's programs, with weights and optimizer state, and a runner for each program. It
 * makes training steps and evaluates the loss of batches; src/generate generates text with it. */
#pragma once

#include "comm/comm.h"
#include "data/dataset.h"
#include "ir/ops/ops.h"
#include "plan/lane_shares.h"
#include "plan/layout/pipeline.h"
#include "plan/plan.h"
#include "runtime/runner.h"
#include "session/plan.h"

/* Values that ranks share around a step: target counts, losses of their shares, and stop requests or failures. They
 * travel in one collective, created before the first step, so a step allocates nothing.
 *
 * All calls except the one that closes are collective: each rank makes the same calls in the same order. */

struct step_collectives {
    struct comm *comm;
    const struct recipe *recipe; /* borrowed */
    struct rank_place place;
    struct lane_tree tree; /* of the recipe's lanes */
    struct comm_operation *gather;
    char *entries; /* one per rank, `entry_bytes` apart */
    void *staging;
    int64_t entry_bytes, slots;
    int64_t *places;              /* by rank and slot: round * lanes + lane, -1 if the slot holds no share */
    int figures;                  /* values per loss: the loss, then the program's other sums */
    double *by;                   /* one value of the losses, by round and lane */
    struct group_axis loss_parts; /* tensor-parallel ranks along it have parts of their losses */
};

/* Opens for a plan whose ranks hold the lanes, and losses of so many figures. 0 figures: the plan has no training step
 * and may be any. The caller closes, also after a failure. */
enum status step_collectives_open(struct comm *comm, const struct plan *plan, int figures,
                                  struct step_collectives *out);
void step_collectives_close(struct step_collectives *collectives);

/* Returns the first status by rank that is not OK. A stop (status_is_stop) has no message yet; an error has its rank's
 * message. */
enum status step_collectives_agree(struct step_collectives *collectives, enum status mine);
/* Agrees likewise, and finds the minimum of all ranks' values. */
enum status step_collectives_min(struct step_collectives *collectives, enum status mine, int64_t value, int64_t *min);
/* Agrees likewise, and sums the counted targets of all data ranks. */
enum status step_collectives_targets(struct step_collectives *collectives, enum status mine, int64_t targets,
                                     int64_t *all);
/* The figures of the step's loss, each reduced in the gradients' order: lanes by the tree, rounds in sequence. `mine`:
 * by share of this rank, with the figures of each share contiguous. */
enum status step_collectives_loss(struct step_collectives *collectives, const double *mine, double *all);

/* Slots that the experts of each layer had in a step: tokens routed to them. */

struct expert_counts {
    int64_t layers, experts;       /* 0: the step counts none */
    double *of;                    /* [layers, experts], of the last collect: summed over all ranks */
    const struct tensor **results; /* by layer: the tensor that its node adds to, for each share of the step */
    double *every;                 /* ranks' counts, one after the other */
};

/* Opens for the layers of a training step's graph whose router has a gradient. The caller closes, also after a
 * failure. */
enum status expert_counts_open(const struct graph *graph, const struct comm *comm, struct expert_counts *out);
void expert_counts_close(struct expert_counts *counts);
/* Fills in `of` for the last step, of which this rank computed so many shares. `counts_once`: whether this rank's
 * counts represent the ranks that compute the same rows. Collective. */
enum status expert_counts_collect(struct expert_counts *counts, const struct runner *runner, struct comm *comm,
                                  int64_t shares, bool counts_once);

/* Minimum and maximum slots of an expert over all layers, relative to a perfectly balanced layer. */
struct expert_spread {
    double min, max;
};
struct expert_spread expert_counts_spread(const struct expert_counts *counts);

struct engine {
    const struct session_plan *plan; /* borrowed, programs and all */
    struct arena arenas[TIER_COUNT];
    struct runner *runners[PROGRAM_USES];   /* NULL: the plan has no such program */
    struct runner *main;                    /* the runner of the main program; weights are read and written through
                                             * it */
    struct byte_store state_store;          /* weights and state without an address, by tensor */
    struct step_collectives collectives;    /* with the other ranks */
    struct micro_batch_range micro_batches; /* this rank's micro-batches of a step */
    struct stage_spans spans;               /* layers of each stage */
    struct expert_counts expert_counts;     /* of a step, set by engine_count_experts */
    int64_t shares;                         /* this rank's shares of a step that have micro-batches; they come first */
    double scalars[SCALAR_COUNT];           /* of the last training step */
    bool partially_updated; /* a step or its updates failed halfway: weights and state belong to no step */
};

/* Calls every kernel of a plan's programs once before arenas are allocated. A GPU's libraries load kernel code and
 * local memory at the first call, and their size is not known before. Kernels run on zeros in separate memory. Then
 * compares the plan's device tier with the free device memory. Does nothing on a backend whose code takes no device
 * memory. NO_FIT names the --device-memory that fits. FAILED if a kernel fails. */
enum status warm_up(const struct session_plan *plan);

/* Opens the arenas. The caller calls engine_close, also after a later failure. Collective: all ranks of the session
 * open their engines and make steps together. */
enum status engine_open(const struct session_plan *plan, struct engine *out);
void engine_close(struct engine *engine);

/* Reads the model's weights into the arena. fp32 masters are read first, split ones as two halves; parameters are then
 * rounded from them. Moments are zero. */
enum status engine_load_weights(struct engine *engine);
/* Opens an engine with the model's weights, if the plan fits (session_plan_check_memory). Collective, like
 * engine_open. */
enum status engine_open_loaded(const struct session_plan *plan, struct engine *out);
/* Sets the weights to the family's initial values for this seed, for a model without weight files. */
enum status engine_initialise_weights(struct engine *engine, uint64_t seed);
/* Reads the optimizer's state over the initial state of engine_load_weights. BAD_INPUT if a tensor is missing,
 * unexpected or of another shape. */
enum status engine_load_state(struct engine *engine, const char *path);
/* Lists parameters or state tensors (`kind`), with this rank's part of each and its place in the arena. `hashes`, by
 * tensor id, receives hashes of the written bytes; may be NULL. The caller frees the array. */
enum status engine_list_tensors(const struct engine *engine, enum tensor_kind kind, uint64_t *hashes,
                                struct weight_target **out, int *count);

/* Number of neighboring data ranks that together hold the tensors of this kind, each some runs of them (plan/ranks.h).
 * 1: each rank holds all tensors of its stage. The same on all ranks. */
int engine_width(const struct engine *engine, enum tensor_kind kind);
/* Whether ranks hold only a part of the tensors of this kind: because of sharding (engine_width), tensor parallelism or
 * pipeline stages (plan/layout/pipeline.h). */
bool engine_is_cut(const struct engine *engine, enum tensor_kind kind);
/* An equal part of the run for each of the ranks that hold it together. */
struct safetensors_run engine_share(const struct engine *engine, struct safetensors_run all);
/* The run of a tensor that this rank writes, for a kind that is cut. Each element is written by one rank that holds
 * it. */
struct safetensors_run engine_written_run(const struct engine *engine, const struct tensor *tensor);

/* Hashes all parameters and optimizer state, on the calling thread's OpenMP threads. The hash depends only on the bits,
 * not on tiers or the number of ranks. It is the XXH3 of the tensors' own hashes, by tensor id. Collective if anything
 * is cut. FAILED without memory. */
enum status engine_hash(const struct engine *engine, uint64_t *hash);
/* Fills in hashes of tensors, by id, that are 0, except for tensors in `skip` (NULL: none). Kinds that are not cut are
 * hashed locally; kinds that are cut are collective. */
enum status engine_hash_whole(const struct engine *engine, const bool *skip, uint64_t *hashes);
enum status engine_hash_cut(const struct engine *engine, const bool *skip, uint64_t *hashes);
/* engine_hash if the hashes of all tensors are known. The same on tensor-parallel ranks as on one. FAILED without
 * memory. */
enum status engine_join_hashes(const struct engine *engine, const uint64_t *hashes, uint64_t *hash);
/* Whether engine_hash is available. Tensor-parallel ranks know only the hashes of the bytes they write. */
bool engine_can_hash(const struct engine *engine);
/* Applies the updates that the last step deferred (runner_finish). Call it before reading weights or state and before a
 * step of another program. Collective. */
enum status engine_settle(struct engine *engine);

/* DPO: reward margin of the chosen sequences. */
static inline double preference_margin(const double figures[PREFERENCE_FIGURES]) {
    return figures[PREFERENCE_CHOSEN] - figures[PREFERENCE_REJECTED];
}

struct step_numbers {
    double loss;                           /* mean over unmasked tokens, or over pairs */
    double grad_norm;                      /* before clipping */
    double preference[PREFERENCE_FIGURES]; /* DPO: means over pairs, including the loss; otherwise all 0 */
};
/* Makes one training step, numbered from 0, on the inputs of PROGRAM_STEP: this rank's rows, of which `targets` count.
 * `filled`: whether the inputs are there; a failure on one rank fails all. */
enum status engine_compute_step(struct engine *engine, int64_t step, double learning_rate, enum status filled,
                                int64_t targets, struct step_numbers *out);
/* Makes a step with batch `step` of the data. Allocates nothing, except to tokenize rows that are not tokenized yet. */
enum status engine_step(struct engine *engine, const struct dataset *dataset, int64_t step, double learning_rate,
                        struct step_numbers *out);
/* Fills in engine->expert_counts for the last step. Collective. */
enum status engine_count_experts(struct engine *engine);
/* Repeats the last step, including its inputs. Updates change nothing if the gradient norm is not finite. */
enum status engine_repeat_step(struct engine *engine);
/* Sums of a loss program: the loss and, for pairs, the other values of enum preference_figure. */
enum { LOSS_FIGURES_MAX = PREFERENCE_FIGURES };
/* Adds validation batch `batch` to the sums: of the loss's figures, and of the counted targets (dataset_fill_rows). The
 * validation split must be settled, and the plan must have PROGRAM_LOSS. No update may be pending (engine_settle).
 * Ranks that share a batch count it once. */
enum status engine_add_loss(struct engine *engine, const struct dataset *dataset, int64_t batch,
                            double figures[LOSS_FIGURES_MAX], int64_t *targets);
/* This rank's index among the ranks that each have their own batch, and their number. A tensor-parallel group or a
 * pipeline counts as one. */
struct engine_turn {
    int64_t place, places;
};
struct engine_turn engine_turn_of(const struct engine *engine);
/* Runs the loss program on a rank that has no batch while others do. If weights are cut, ranks gather them from each
 * other. This rank then runs over a batch without targets. */
enum status engine_join_loss(struct engine *engine);
/* The log-probabilities of micro-batch `micro_batch` of all the data's sequences (dataset_fill_sequences), each summed
 * over its targets in token order. 0 past the last sequence. The plan has PROGRAM_REFERENCE. If weights are cut, the
 * call is collective; ranks without a micro-batch pass one past the last. */
enum status engine_log_probabilities(struct engine *engine, const struct dataset *dataset, int64_t micro_batch,
                                     double *sums);

/* The data of a tensor of a program, by name. BUG if there is none. */
void *engine_data(const struct engine *engine, enum program_use use, const char *name);

/* The graph of the main program. Its tensor ids identify weights and state. */
static inline const struct graph *engine_graph(const struct engine *engine) {
    return programs_main(&engine->plan->programs)->graph;
}

/* Whether an engine keeps the tensor from step to step. */
static inline bool engine_keeps(const struct tensor *tensor) {
    return tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_STATE;
}

static inline struct comm *engine_comm(const struct engine *engine) { return engine->plan->session->comm; }
static inline struct model *engine_model(const struct engine *engine) { return engine->plan->session->model; }

/* Resident bytes of the device tier's arena, as the system counts them. */
int64_t engine_resident_bytes(const struct engine *engine);

/* BAD_INPUT "ORIGIN: TENSOR (a weight) …" if a loaded weight or optimizer state of this rank is not finite. Examines
 * those that checkpoints hold. */
enum status engine_require_finite(const struct engine *engine, const char *origin);
/* Collective. Repeats the last step and returns "TENSOR (micro-batch G)": the first place, in execution order, with a
 * non-finite value. The caller frees it; NULL if there is none. `weight`: whether it is a weight that was not finite
 * before the step computed anything. */
char *engine_find_nonfinite(struct engine *engine, bool *weight);

/* ---- hashes across ranks (engine_hash.c) ----
 *
 * Hashes of objects, such as tensors, whose bytes lie in runs on several ranks. A hash's state travels from rank to
 * rank along the runs, so it covers all bytes in order. Many hashes are in flight at a time. */

/* Bytes [begin, end) of an object that a rank holds. */
struct hash_run {
    int64_t begin, end;
    const void *key; /* in the rank's store */
};

struct hash_relay {
    struct comm *comm;
    struct comm_group group;     /* the ranks that together hold all objects, each byte on one of them */
    const struct hash_run *mine; /* by index; may be empty */
    size_t count;                /* the same on all ranks of `comm` */
    struct byte_store store;     /* of this rank's runs */
};
/* Collective over all ranks. hashes[i] becomes the XXH3 of object i, on all ranks. FAILED without memory, or if this
 * rank's bytes cannot be read. Other ranks do not learn of that failure: they get a wrong hash. */
enum status hash_relay_run(const struct hash_relay *relay, uint64_t *hashes);

/* Copies weights and optimizer states between two engines of the same model: one engine stores them here, the other
 * reads them, on any tiers. The bytes are the same. Each rank keeps its own states. If the other engine's partition may
 * differ, all ranks write one file in a shared directory. */

struct kept_states {
    struct arena arena;
    const struct comm *comm;
    char *path; /* of the file with all ranks' states; NULL: the states are in the arena */
};

/* Bytes that the engine's states take here. */
int64_t kept_states_bytes(const struct engine *engine);
/* Copies states between two steps, after engine_settle: into memory (TIER_HOST), or into an unnamed file in `folder`
 * (TIER_DISK). FAILED without space. BAD_INPUT if `folder` is no directory. Collective; all ranks fail alike. The
 * caller frees, also after a failure. */
enum status kept_states_take(const struct engine *engine, enum tier tier, const char *folder, struct kept_states *out);
/* Copies the states of all ranks into one file in `folder`, which they share. Collective; all ranks fail alike. */
enum status kept_states_take_together(const struct engine *engine, const char *folder, struct kept_states *out);
/* Copies states to an engine of the same recipe. Unless they were taken together, each rank's partition must match.
 * Collective; all ranks fail alike. */
enum status kept_states_give(const struct kept_states *kept, const struct engine *engine);
void kept_states_free(struct kept_states *kept);
