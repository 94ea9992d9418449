/* A plan: the decisions about a training run, as data. The recipe fixes the bits of the result; the policy and the
 * number of threads never change them.
 *
 * Files, in the order to read them:
 *   plan: this file; the recipe, checks, JSON;
 *   policy: the policy's checks and JSON;
 *   settings, setting_list: the user's settings, and their table;
 *   recipe: a recipe's checks, JSON and lines, and the micro-batch for a GPU;
 *   ranks: one rank among all; model states partitioned among ranks;
 *   lane_shares: a step cut into lanes and rounds;
 *   chunks: parameters in chunks, and the elements of a chunk that each rank has;
 *   activations: activation schedules as text;
 *   recompute: recomputation schedules, their cost, and the fastest in given memory. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "collective/lane_tree.h"
#include "ir/ops/ops.h"
#include "ir/tensor.h"
#include "machine/rates.h"
#include "plan/ranks.h"

enum {
    PLAN_VERSION = 2,
    RECIPE_NAME_BYTES = 64,
    RECIPE_TEXT_BYTES = 1024,
    POLICY_SCHEDULE_BYTES = 16384,
    POLICY_SPANS_BYTES = 1024
};

/* Whether attention within a sequence crosses the borders of documents. */
enum document_attention {
    DOCUMENT_ATTENTION_ACROSS, /* a sequence is attended to as a whole */
    DOCUMENT_ATTENTION_WITHIN, /* each document by itself: the graph has the input "segments", positions begin anew */
    DOCUMENT_ATTENTION_COUNT
};

/* How supervised examples share the rows of a batch. */
enum example_packing {
    EXAMPLE_PACKING_OFF, /* one example a row */
    EXAMPLE_PACKING_ON,  /* several, each a segment of its own with positions from 0. Validation holds out examples */
    EXAMPLE_PACKING_ROWS_HELD, /* the packing of Ballast 0.1.0: validation holds out rows. In files alone */
    EXAMPLE_PACKING_COUNT
};

/* Training objective: next-token cross-entropy, or DPO on preference pairs (ir/ops/ops.h: preference_loss). */
enum training_loss { TRAINING_NEXT_TOKEN, TRAINING_DPO };

/* Storage format of the optimizer's moments; int8: codes and scales of blocks (ir/ops/ops.h). */
#define STATE_FORMAT_LIST(X) X(FP32, F32) X(BF16, BF16) X(INT8, U8)
enum state_format {
#define STATE_FORMAT_ENUM(name, dtype) STATE_##name,
    STATE_FORMAT_LIST(STATE_FORMAT_ENUM) STATE_FORMAT_COUNT
#undef STATE_FORMAT_ENUM
};
enum dtype state_format_dtype(enum state_format format);

/* Data kept next to a bf16 parameter: an fp32 master, which the parameter rounds; the master's lower 16 bits, the
 * parameter being the upper ones (base/half.h); or nothing. */
enum master_weights { MASTER_WEIGHTS_FP32, MASTER_WEIGHTS_SPLIT, MASTER_WEIGHTS_NONE };

/* How tensor parallelism assigns parts of tensors to ranks: Megatron-LM's assignment (plan/layout/shard_choice.h), or
 * the cheapest strategies (plan/layout/strategy.h). */
enum tensor_layout { TENSOR_LAYOUT_MEGATRON, TENSOR_LAYOUT_SOLVER, TENSOR_LAYOUT_COUNT };
const char *tensor_layout_name(enum tensor_layout layout);
/* Rates for the solver's costs: one rank's work, and messages among tensor-parallel ranks. */
struct layout_rates {
    double flops_per_s, bytes_per_s, latency_s, link_bytes_per_s;
    double device_bytes; /* that a rank has; 0: enough */
};

struct recipe {
    enum dtype dtype;              /* of parameters and activations */
    int64_t batch;                 /* sequences a step, over all ranks */
    int64_t sequence_length;       /* tokens of a sequence */
    int64_t micro_batch_sequences; /* sequences on which each kernel is called; parameter gradients add up micro-batch
                                      by micro-batch */
    struct lane_shape lanes;     /* a step's micro-batches go to lanes in contiguous runs, each added up by itself, and
                                    lanes are     added by their tree (plan/lane_shares.h) */
    int64_t round_micro_batches; /* lanes are added after this many micro-batches of every lane; 0: after all */
    /* bf16: a sum of lanes is rounded before it is added to another (collective/lane_tree.h), and travels so */
    enum dtype reduce_dtype;
    int tensor_parallel; /* ranks that share each tensor (plan/layout/shard_graph.c): they cut the sums of its GEMMs; 0
                            is
                            1 */
    bool sequence_parallel; /* shard whole activations between GEMMs along positions */
    enum tensor_layout layout;
    struct layout_rates layout_rates; /* of the solver; all 0: not known yet */
    /* The solver's choice for each node (plan/recipe.h, plan/layout/tensor_layout.h), recorded so that all ranks,
     * programs and resumed runs use the same. NULL: not known yet. */
    const char *strategies;
    uint64_t seed;
    enum update_rule optimizer;
    double beta1, beta2, epsilon, weight_decay; /* of the optimizer (ir/ops/ops.h) */
    double muon_momentum;                       /* of UPDATE_MUON; 0 of others */
    double clip_norm;                           /* limit of the gradients' global norm; 0: none */
    enum document_attention document_attention;
    enum example_packing packing;
    bool packing_auto; /* plan files alone: packing is off until the data of a run decide */
    enum training_loss loss;
    double dpo_beta; /* of TRAINING_DPO, as the following fields (ir/ops/ops.h); 0 for other objectives */
    enum pair_loss dpo_loss;
    double dpo_label_smoothing;
    enum state_format optimizer_dtype;
    enum master_weights master_weights; /* of bf16 parameters; those in fp32 need none */
    enum weight_format quantize_base;   /* of the matrices that adapters stand next to (model_set_base_format) */
    char lora[RECIPE_TEXT_BYTES];       /* adapters, as model_set_adapter takes them; "": none */
    char freeze[RECIPE_TEXT_BYTES];     /* frozen parameters, as model_set_frozen takes them; "": none */
    char isa[RECIPE_NAME_BYTES];        /* the backend's instruction set */
    /* The algorithm that a device's library chose for each GEMM (plan/recipe.h: a text that is kept there),
     * filled in when kernels are made; NULL: none, as on a CPU, which has one algorithm for each. */
    const char *products;
    int kernels_version; /* the backend's when the plan was made */
};

/* All zero but for the micro-batches: the plain policy, where everything stays on the device. */
struct policy {
    int64_t micro_batches_per_wave; /* micro-batches whose activations are in memory at once; 1 to those of the largest
                                       share */
    int64_t chunk_bytes;       /* most parameters in a chunk, in the compute dtype (plan/chunks.h); 0: chosen there */
    int64_t persistent_chunks; /* the first of them stay on the device, with their gradients and optimizer state */
    int64_t
        buffers; /* how many of the other chunks fit in device memory at a time; needed if parameters are elsewhere */
    int64_t lookahead; /* groups (one block's forward or backward, all micro-batches) by which fetches precede the first
                          use and stores follow the last (plan/plan.h) */
    int64_t update_ahead; /* blocks by which deferred updates precede the point that `lookahead` requires */
    enum tier parameters, gradients, optimizer; /* home tier of the other chunks' states between uses */
    enum tier update;                           /* where the other chunks are updated: device or host */
    struct partition partition;                 /* of model states among ranks; all 0: each rank has all of them */
    int64_t tile_tokens;      /* of a micro-batch, on which a block's MLP works at a time (ir/rewrite.h); 0: on all */
    bool selective_recompute; /* recompute norms and activation functions in backward instead of keeping their outputs
                               * (ir/rewrite.h) */
    bool flat; /* operations between ranks send each block straight to where it belongs, not node by node */
    /* Blocks at which spans after the first begin, "4 8" (plan/layout/pipeline.h); "": chosen. Of one stage: "". */
    char spans[POLICY_SPANS_BYTES];
    char schedule[POLICY_SCHEDULE_BYTES]; /* of activations (plan/activations.h); "": all are kept */
};

/* Whether the policy only sets the partition and selective recomputation: chunks, schedule and tiers are those of the
 * plain policy. */
bool policy_is_plain(const struct policy *policy);
/* Whether nothing moves between tiers and nothing is recomputed but light operators (selective_recompute). Model states
 * may be partitioned. */
bool policy_stays(const struct policy *policy);
/* Whether a chunk is updated during the next step's forward instead of at this step's end: optimizer state that is not
 * on the device passes through it then, hidden behind compute. */
static inline bool policy_defers_update(const struct policy *policy, int64_t chunk) {
    return policy->optimizer != TIER_DEVICE && chunk >= policy->persistent_chunks;
}

/* The home tier of a chunk's states of one kind, whose home tier is `of_kind` for chunks that do not stay. */
static inline enum tier policy_home_tier(const struct policy *policy, int64_t chunk, enum tier of_kind) {
    return chunk < policy->persistent_chunks ? TIER_DEVICE : of_kind;
}

/* A step of the recipe by this policy, as one of its ranks computes it. A plan's file stores the mesh and the stages of
 * `place` as the policy's "ranks" and "stages". */
struct plan {
    struct recipe recipe;
    struct policy policy;
    struct rank_place place;
    int threads; /* compute threads: the machine's matter, not the result's */
};

/* At least 1. */
static inline int recipe_tensor_parallel(const struct recipe *recipe) {
    return recipe->tensor_parallel > 0 ? recipe->tensor_parallel : 1;
}

/* Sequences that belong together: neighbours of a batch that lie in one micro-batch. */
static inline int64_t recipe_together(const struct recipe *recipe) { return recipe->loss == TRAINING_DPO ? 2 : 1; }
/* The fewest sequences that hold at least `min_tokens` (the backend says how many), at most `batch`. */
int64_t recipe_default_micro_batch(int64_t batch, int64_t sequence_length, int64_t min_tokens);
/* Training-state bytes per parameter byte: parameter, fp32 gradient, moments and master. With Muon, for a matrix. */
double recipe_state_bytes_per_byte(const struct recipe *recipe);
/* Whether rows have segments: the graph has that input, and attention keeps within them. */
bool recipe_has_segments(const struct recipe *recipe);
/* Micro-batches of a step: a short last micro-batch is filled up with sequences of weight zero. */
int64_t recipe_micro_batches(const struct recipe *recipe);
/* Micro-batches of a lane: the last one that has any may have fewer, those after it none. */
int64_t recipe_lane_micro_batches(const struct recipe *recipe);
/* Micro-batches that a lane adds up before it is added to others: those of the largest share of a round. */
int64_t recipe_share_micro_batches(const struct recipe *recipe);

/* BAD_INPUT "plan: FIELD: VALUE is not legal: RULE", with the nearest legal value as hint, unless min <= value <=
 * max.
 */
enum status plan_check_range(const char *field, int64_t value, int64_t min, int64_t max, const char *rule);
enum status plan_check_float(const char *field, double value, double min, double max, const char *rule);
/* BAD_INPUT naming the field, the rule and the nearest legal value: recipe and policy, on which programs depend. */
enum status plan_check(const struct plan *plan);
/* Whether updates have the same bits on the host as on the device. Not Muon's, made of GEMMs: policy.update is the
 * device then. */
bool plan_updates_anywhere(const struct recipe *recipe);
/* The same for the optimizer's and clipping's numbers, which a program knows from its graph. */
enum status recipe_check_optimizer(const struct recipe *recipe);

/* {"version", "recipe": {…}, "policy": {…}, "threads"}; NULL when out of memory. `file` stands for the path in
 * messages. */
json_t *recipe_to_json(const struct recipe *recipe);
json_t *partition_to_json(const struct partition *partition);
json_t *policy_to_json(const struct policy *policy);
json_t *plan_to_json(const struct plan *plan);
/* Fields that the file leaves out have the plain policy's values. */
enum status policy_from_json(const char *file, const json_t *object, struct policy *out);
/* The part of plan_check that is about the policy; `micro_batches`: recipe_share_micro_batches. */
enum status policy_check(const struct policy *policy, int64_t micro_batches);
/* A plan file, or the plan of a run or checkpoint, with the keys of PLAN_VERSION: recipe, policy and the candidates of
 * the search. The caller drops *out. BAD_INPUT for a version that is newer, and for keys that the version lacks. */
enum status plan_update_keys(const char *file, const json_t *object, json_t **out);
/* Reads older versions too. */
enum status plan_from_json(const char *file, const json_t *object, struct plan *out);
/* The plan of a plan file, or of a run.json, which holds one as "plan". */
const json_t *plan_find(const json_t *object);
enum status plan_read(const char *path, struct plan *out);
/* A plan file may also name the directory of the model that the plan is for, as "model"; one that is no UTF-8 is left
 * out.
 */
enum status plan_set_model(json_t *plan, const char *model_folder);
/* That directory, in `memory`; NULL where the file names none. */
enum status plan_read_model(const char *path, struct scratch *memory, const char **out);
/* BAD_INPUT that names the first field in which two recipes differ. */
enum status recipe_require_equal(const struct recipe *expected, const struct recipe *actual);

/* ---- how a policy moves things ----
 *
 * The rules in one place: the compiler applies them to a program, the search to whole policy classes. Groups are those
 * of compiler/executions.h, numbered from 0. */

/* How a share's micro-batches (plan/lane_shares.h) are cut into waves: all have `micro_batches`, but for the last one.
 */
struct wave_split {
    int64_t count, micro_batches, last_micro_batches;
};
static inline struct wave_split movement_split_waves(int64_t micro_batches, int64_t micro_batches_per_wave) {
    int64_t count = (micro_batches + micro_batches_per_wave - 1) / micro_batches_per_wave;
    return (struct wave_split){count, micro_batches_per_wave, micro_batches - (count - 1) * micro_batches_per_wave};
}

/* A buffer that is used away from its home tier is fetched and stored by copies, each of which has `lookahead` groups
 * to overlap. The fetch stands before this group when the first use is in `group` … */
static inline int64_t movement_fetch_group(int64_t group, int64_t lookahead) {
    return group > lookahead ? group - lookahead : 0;
}
/* … and the store before this one when the last use is in `group`; it may be past the last group. */
static inline int64_t movement_store_group(int64_t group, int64_t lookahead) { return group + 1 + lookahead; }
/* Whether a buffer stays between two uses: there is no space for a store and a fetch. */
static inline bool movement_stays(int64_t group, int64_t next_group, int64_t lookahead) {
    return next_group < movement_store_group(group, lookahead) + lookahead + 1;
}
/* A chunk's deferred update stands before the forward of this block, where `block` is the first to use the chunk: one
 * lookahead for the update's results to leave, one for the parameters to be fetched. With `update_ahead` blocks more,
 * state is fetched and updated while as many blocks are computed, and is in memory no longer; the first block's, the
 * embedding's, is often the largest, so no other is there then. */
static inline int64_t movement_update_block(int64_t block, const struct policy *policy) {
    int64_t ahead = 2 * policy->lookahead + policy->update_ahead;
    int64_t first = policy->update_ahead > 0 && block > 0;
    return block > first + ahead ? block - ahead : first;
}
