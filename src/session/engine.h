/* What computes: the arenas of a plan's programs, with weights and optimizer state in them, and a runner for each
 * program. A training step, the loss of a batch; src/generate writes texts with it. */
#pragma once

#include "comm/comm.h"
#include "data/dataset.h"
#include "ir/ops/ops.h"
#include "plan/lane_shares.h"
#include "plan/layout/pipeline.h"
#include "plan/plan.h"
#include "runtime/runner.h"
#include "session/plan.h"

/* What ranks tell each other around a step: how many targets their rows have, the losses of their shares, and whether
 * one was asked to stop or failed. One operation, which is there before the first step: a step allocates nothing.
 *
 * All calls but opening's counterpart are collective: each rank makes the same ones in the same order. */

struct step_collectives {
    struct comm *comm;
    const struct recipe *recipe; /* borrowed */
    struct rank_place place;
    struct lane_tree tree; /* of the recipe's lanes */
    struct comm_operation *gather;
    char *entries; /* one of each rank, `entry_bytes` apart */
    void *staging;
    int64_t entry_bytes, slots;
    int64_t *places;              /* by rank and slot: round * lanes + lane, -1 where the slot holds no share */
    int figures;                  /* that a loss has: itself, then what else its program sums up */
    double *by;                   /* one figure of the losses, by round and lane */
    struct group_axis loss_parts; /* of ranks that share tensors, those along it have parts of their losses */
};

/* For a plan whose ranks hold the lanes, and losses of so many figures; 0: for one without a training step, which may
 * be any. The caller closes, also after a failure. */
enum status step_collectives_open(struct comm *comm, const struct plan *plan, int figures,
                                  struct step_collectives *out);
void step_collectives_close(struct step_collectives *collectives);

/* The first status by rank that is not OK. A stop (status_is_stop) has no message yet; an error has that of its rank.
 */
enum status step_collectives_agree(struct step_collectives *collectives, enum status mine);
/* The same, and the least of all ranks' values. */
enum status step_collectives_min(struct step_collectives *collectives, enum status mine, int64_t value, int64_t *min);
/* The same, and the sum over all data ranks of the targets that count. */
enum status step_collectives_targets(struct step_collectives *collectives, enum status mine, int64_t targets,
                                     int64_t *all);
/* The figures of the step's loss, each added as gradients are: lanes by the tree, rounds in order. `mine`: by share of
 * this rank, the figures of each side by side. */
enum status step_collectives_loss(struct step_collectives *collectives, const double *mine, double *all);

/* How many slots the experts of each layer had in a step: tokens that were routed to them. */

struct expert_counts {
    int64_t layers, experts;       /* 0: the step counts none */
    double *of;                    /* [layers, experts], of the last collect: over all ranks */
    const struct tensor **results; /* by layer: what its node adds to, for each share of the step */
    double *every;                 /* ranks' counts, one after the other */
};

/* Of the layers of a training step's graph whose router has a gradient. The caller closes, also after a failure. */
enum status expert_counts_open(const struct graph *graph, const struct comm *comm, struct expert_counts *out);
void expert_counts_close(struct expert_counts *counts);
/* Fills in `of` for the last step, of which this rank computed so many shares. `counts_once`: of ranks that compute the
 * same rows, whether this one speaks for them. Collective. */
enum status expert_counts_collect(struct expert_counts *counts, const struct runner *runner, struct comm *comm,
                                  int64_t shares, bool counts_once);

/* The least and the most slots of an expert, over all layers, as parts of what each of the layer's would have if all
 * had the same number. */
struct expert_spread {
    double min, max;
};
struct expert_spread expert_counts_spread(const struct expert_counts *counts);

struct engine {
    const struct session_plan *plan; /* borrowed, programs and all */
    struct arena arenas[TIER_COUNT];
    struct runner *runners[PROGRAM_USES];   /* NULL: the plan has no such program */
    struct runner *main;                    /* of them, the main program's: through it weights are read and written */
    struct byte_store state_store;          /* of weights and state that have no address, by tensor */
    struct step_collectives collectives;    /* with the other ranks */
    struct micro_batch_range micro_batches; /* of a step: this rank's */
    struct stage_spans spans;               /* which stage has what */
    struct expert_counts expert_counts;     /* of a step, by engine_count_experts */
    int64_t shares;                         /* of a step: this rank's that have micro-batches, which are its first */
    double scalars[SCALAR_COUNT];           /* of the last training step */
    bool partially_updated; /* a step or its updates failed halfway: weights and state belong to no step */
};

/* Calls every kernel of a plan's programs once, before arenas are taken: a GPU's libraries load the code of a kernel
 * and its local memory at the first call, out of memory that nobody could know before. The calls are on zeros in memory
 * of its own; then it compares the plan's device tier with what the device has left. Does nothing on a backend whose
 * code takes no device memory. NO_FIT, with the --device-memory that fits; FAILED where a kernel fails. */
enum status warm_up(const struct session_plan *plan);

/* Opens the arenas. The caller calls engine_close, also after a failure of what follows. All ranks of the session open
 * theirs together, and make steps together. */
enum status engine_open(const struct session_plan *plan, struct engine *out);
void engine_close(struct engine *engine);

/* Reads the model's weights into the arena: fp32 masters first where there are such, then the parameters as their
 * rounding; masters in two halves as such. Moments are zero. */
enum status engine_load_weights(struct engine *engine);
/* An engine with the model's weights, where the plan fits (session_plan_check_memory). Collective, as engine_open. */
enum status engine_open_loaded(const struct session_plan *plan, struct engine *out);
/* The same for a model that no file has: the family's initial values for this seed. */
enum status engine_initialise_weights(struct engine *engine, uint64_t seed);
/* Reads the optimizer's state over what engine_load_weights left. BAD_INPUT when a tensor is missing, unexpected or of
 * another shape. */
enum status engine_load_state(struct engine *engine, const char *path);
/* Parameters, or state tensors (`kind`), with what this rank has of each and its place in the arena. `hashes`, by
 * tensor id, takes what is written of them; it may be NULL. The caller frees the array. */
enum status engine_list_tensors(const struct engine *engine, enum tensor_kind kind, uint64_t *hashes,
                                struct weight_target **out, int *count);

/* How many neighbouring data ranks have the tensors of this kind together, each some runs of them (plan/ranks.h).
 * 1: each of a stage has all. The same on all ranks. */
int engine_width(const struct engine *engine, enum tensor_kind kind);
/* Whether ranks have but a part of tensors of this kind: by that, because they share each tensor, or because they have
 * those of a stage (plan/layout/pipeline.h). */
bool engine_is_cut(const struct engine *engine, enum tensor_kind kind);
/* Of what all ranks have: an equal part for each. */
struct safetensors_run engine_share(const struct engine *engine, struct safetensors_run all);
/* What this rank writes of a tensor whose kind is cut: each element is written by one rank that has it. */
struct safetensors_run engine_written_run(const struct engine *engine, const struct tensor *tensor);

/* A hash of all parameters and optimizer state, on the calling thread's OpenMP threads: the same for the same bits,
 * wherever they live and on any number of ranks. It is the XXH3 of each tensor's own, by the tensor's id. Collective
 * where something is cut. FAILED without memory. */
enum status engine_hash(const struct engine *engine, uint64_t *hash);
/* Fills in the hashes of tensors, by id, that are 0, but not those of tensors in `skip` (NULL: of none): of kinds that
 * are not cut, which each rank has to itself, and of those that are, which is collective. */
enum status engine_hash_whole(const struct engine *engine, const bool *skip, uint64_t *hashes);
enum status engine_hash_cut(const struct engine *engine, const bool *skip, uint64_t *hashes);
/* engine_hash, where all tensors' hashes are known. The same on ranks that share tensors as on one. FAILED without
 * memory. */
enum status engine_join_hashes(const struct engine *engine, const uint64_t *hashes, uint64_t *hash);
/* Whether engine_hash can be had: ranks that share tensors know the hashes of what they write alone. */
bool engine_can_hash(const struct engine *engine);
/* Does the updates that the last step deferred (runner_finish). Call it before weights or state are read and before a
 * step of another program; all ranks together. */
enum status engine_settle(struct engine *engine);

/* Of pairs: how much more their chosen sequences are rewarded. */
static inline double preference_margin(const double figures[PREFERENCE_FIGURES]) {
    return figures[PREFERENCE_CHOSEN] - figures[PREFERENCE_REJECTED];
}

struct step_numbers {
    double loss;                           /* mean over unmasked tokens, or over pairs */
    double grad_norm;                      /* before clipping */
    double preference[PREFERENCE_FIGURES]; /* of pairs: means over them, the loss among them; else all 0 */
};
/* One training step, numbered from 0, on the inputs of PROGRAM_STEP: this rank's rows, of which `targets` count.
 * `filled` says whether the inputs are there; a failure on one rank fails all. */
enum status engine_compute_step(struct engine *engine, int64_t step, double learning_rate, enum status filled,
                                int64_t targets, struct step_numbers *out);
/* The same with batch `step` of the data. Allocates nothing, but for what it takes to
 * tokenize rows that are not there yet. */
enum status engine_step(struct engine *engine, const struct dataset *dataset, int64_t step, double learning_rate,
                        struct step_numbers *out);
/* Fills in engine->expert_counts for the last step. Collective. */
enum status engine_count_experts(struct engine *engine);
/* The last step once more, inputs and all: updates change nothing where the gradient norm is not finite. */
enum status engine_repeat_step(struct engine *engine);
/* What a program of a loss sums up: the loss, and of pairs what enum preference_figure has behind it. */
enum { LOSS_FIGURES_MAX = PREFERENCE_FIGURES };
/* Adds batch `batch` of the validation split, which is settled, to the sums: of the loss's figures, and of what counts
 * (dataset_fill_rows). The plan has PROGRAM_LOSS, and no update
 * is left (engine_settle). Of ranks that have the same batch, what one of them adds counts once. */
enum status engine_add_loss(struct engine *engine, const struct dataset *dataset, int64_t batch,
                            double figures[LOSS_FIGURES_MAX], int64_t *targets);
/* This rank's place among those that each have a batch of their own (of ranks that share tensors or are stages of one
 * pipeline, one), and how many there are. */
struct engine_turn {
    int64_t place, places;
};
struct engine_turn engine_turn_of(const struct engine *engine);
/* For a rank that has no batch while others do. Where weights are cut, ranks gather them from each other, and this one
 * goes through the program too, over a batch without targets. */
enum status engine_join_loss(struct engine *engine);
/* The log-probabilities of micro-batch `micro_batch` of all the data's sequences (dataset_fill_sequences), each summed
 * over its targets in token order; 0 behind the last. The plan has PROGRAM_REFERENCE. Where weights are cut all ranks
 * call it together, those without a micro-batch with one behind the last. */
enum status engine_log_probabilities(struct engine *engine, const struct dataset *dataset, int64_t micro_batch,
                                     double *sums);

/* The data of a tensor of a program, by name; BUG when there is none. */
void *engine_data(const struct engine *engine, enum program_use use, const char *name);

/* The graph of the main program, by whose tensors weights and state are known. */
static inline const struct graph *engine_graph(const struct engine *engine) {
    return programs_main(&engine->plan->programs)->graph;
}

/* Whether an engine keeps it from step to step. */
static inline bool engine_keeps(const struct tensor *tensor) {
    return tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_STATE;
}

static inline struct comm *engine_comm(const struct engine *engine) { return engine->plan->session->comm; }
static inline struct model *engine_model(const struct engine *engine) { return engine->plan->session->model; }

/* Bytes of the device tier's arena that are in memory now, as the system counts them. */
int64_t engine_resident_bytes(const struct engine *engine);

/* BAD_INPUT "ORIGIN: TENSOR (a weight) …" when a weight or optimizer state that checkpoints hold, and this rank has, is
 * not finite; for what was just loaded. */
enum status engine_require_finite(const struct engine *engine, const char *origin);
/* Collective. Repeats the last step and returns "TENSOR (micro-batch G)": the first place, in the order of execution,
 * where a value is not finite. In fresh memory, or NULL. `weight` tells whether it is a weight, before the step
 * computed anything. */
char *engine_find_nonfinite(struct engine *engine, bool *weight);

/* ---- hashes across ranks (engine_hash.c) ----
 *
 * Hashes of things whose bytes lie in runs on several ranks, such as a tensor's: a hash's state goes from rank to rank
 * along the runs, so it is that of all bytes in their order. Many hashes are on their way at a time. */

/* Bytes [begin, end) of a thing that a rank has. */
struct hash_run {
    int64_t begin, end;
    const void *key; /* in the rank's store */
};

struct hash_relay {
    struct comm *comm;
    struct comm_group group;     /* the ranks that have all together, each byte one of them */
    const struct hash_run *mine; /* by number; may be empty */
    size_t count;                /* the same on all ranks of `comm` */
    struct byte_store store;     /* of this rank's runs */
};
/* Collective over all ranks. hashes[i] becomes the XXH3 of thing i, on all ranks. FAILED without memory, or where this
 * rank's bytes cannot be read, which others do not learn: they have a wrong hash then. */
enum status hash_relay_run(const struct hash_relay *relay, uint64_t *hashes);

/* Weights and optimizer states between two engines of the same model: one leaves them here, the other takes them up,
 * wherever its policy has them. The bytes are the same. Each of several ranks keeps its own or, if the partition of the
 * other engine may differ, all of them write one file in a directory that all of them reach. */

struct kept_states {
    struct arena arena;
    const struct comm *comm;
    char *path; /* of the file with all ranks' states; NULL: they are in the arena */
};

/* Bytes that the engine's states take here. */
int64_t kept_states_bytes(const struct engine *engine);
/* Copies them in between two steps, after engine_settle: into memory (TIER_HOST), or into a file without a name in
 * `folder` (TIER_DISK). FAILED where there is no space; BAD_INPUT where the directory is none. Collective; all ranks
 * fail alike. The caller frees, then too. */
enum status kept_states_take(const struct engine *engine, enum tier tier, const char *folder, struct kept_states *out);
/* The same of all ranks, which have `folder` in common, in a file there. Collective; all ranks fail alike. */
enum status kept_states_take_together(const struct engine *engine, const char *folder, struct kept_states *out);
/* Copies them to an engine of the same recipe and, unless they were taken together, of a partition by which each rank
 * has the same of them. Collective; all ranks fail alike. */
enum status kept_states_give(const struct kept_states *kept, const struct engine *engine);
void kept_states_free(struct kept_states *kept);
