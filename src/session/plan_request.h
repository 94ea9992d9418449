/* What a plan is asked for: the programs, the recipe, the policy to begin with, and what of this is settled. */
#pragma once

#include "search/search.h"
#include "session/options.h"
#include "session/programs.h"

/* A rank layout: how many ranks share each tensor and how it is partitioned among them (recipe.sequence_parallel,
 * recipe.layout), and how many stages a pipeline has. The other axis is that of data ranks (plan/ranks.h), among
 * which a partition of states is chosen. */
enum shape_outcome {
    SHAPE_OPEN,    /* not looked at */
    SHAPE_SAME,    /* its ranks do what those of a shape before it do: the solver cuts as Megatron-LM does */
    SHAPE_REFUSED, /* the model cannot be cut so, or Ballast does not run it: `reason` */
    SHAPE_NO_FIT,  /* no policy fits: by a bound where min_bytes is 0, else none that was tried */
    SHAPE_BOUNDED, /* not compiled: no policy is faster than bound_s, and the best one is */
    SHAPE_UNTRIED, /* expected to take longer than the best one by a tenth or more; at least bound_s */
    SHAPE_PLANNED  /* its best policy, of those tried, takes step_s */
};
enum { SHAPE_REASON_BYTES = 240 };

struct rank_shape {
    struct plan *plan; /* what is asked for of it, with its recipe and its axes; owned */
    enum shape_outcome outcome;
    double solver_memory; /* of a solver's cut: its limit, in memories of the devices that it is for; INFINITY: none */
    double bound_s, expected_s, step_s; /* 0: unknown */
    double left_s;                      /* no plan of it that was not simulated takes less; INFINITY: none is faster */
    int64_t tier_bytes[TIER_COUNT];     /* SHAPE_PLANNED */
    int64_t min_bytes;                  /* SHAPE_NO_FIT: of the device, of what was compiled; 0: nothing had to be */
    char reason[SHAPE_REASON_BYTES];    /* SHAPE_REFUSED */
    bool unjudged;                      /* SHAPE_REFUSED: it has more operations between ranks than there can be */
    bool larger_micro_batch;            /* SHAPE_PLANNED: since smaller ones have too many operations */
};
/* By tensor, then by stages, then by cut: Megatron-LM's, that with positions cut too, the solver's, which the search
 * may add to under other limits of memory. None: the shape is settled. */
struct rank_shapes {
    VEC(struct rank_shape) list;
    double min_s; /* by bounds, no plan of any shape takes less, but for tiles; of those that were searched */
};

struct plan_request {
    struct program_set set;
    struct plan plan;
    const char *origin; /* the file that the plan comes from, for messages; NULL: the options. Borrowed */
    bool recipe_fixed;  /* by a plan file or a checkpoint: no advice to change it */
    bool policy_fixed;  /* by a plan file: no other is chosen */
    bool partition_fixed, collectives_fixed; /* by an option: no other is chosen */
    enum search_objective objective;
    const struct costs *costs; /* of the main program's graph, where they are known better than by measuring operators;
                                  NULL: they are not. Borrowed while the plan is made */
    struct rank_shapes shapes; /* to choose from, in place of `plan`; session_plan_make takes them over */
    int64_t virtual_stages;    /* spans of each stage of a pipeline that is not cut yet; 0: whichever is fastest */
    bool micro_batch_fixed; /* by an option, or since no program trains; else larger ones are tried where micro-batches
                               have more operations between ranks than there can be */
    bool micro_batches_fixed; /* by an option, or since no program trains: no other number of micro-batches in a wave is
                                 chosen */
};

/* The request that options make, for a session's model and machine (plan_options_resolve): over `base`, the plan of
 * the file options->plan_path, and over the defaults. `uses` are those of a program set; to train, the programs for
 * text come with them where `training` asks for samples. `training` gives the optimizer's numbers (NULL: the defaults).
 * Where the options leave the shape of the ranks open and no plan file says it, `shapes` has the plan of each, and
 * `plan` is the first that can be; BAD_INPUT where nothing trains, or all shapes are refused. */
enum status plan_request_make(const struct session *session, unsigned uses, const struct plan_options *options,
                              const struct train_options *training, const struct plan *base, struct plan_request *out);
/* The shapes of a request whose recipe is decided, in request->shapes: only stages may be open. */
enum status plan_request_add_stages(const struct session *session, const struct plan_options *options,
                                    struct plan_request *request);
/* The request for the training of a plan whose recipe is decided (a checkpoint's); its policy is taken if that fits. */
struct plan_request plan_request_decided(const struct plan *plan, const struct plan_options *options,
                                         const struct train_options *training);
/* The request for the training step of a plan as it is, `origin`'s, to be simulated whatever memory there is.
 * BAD_INPUT where it is for other kernels than the machine's. */
enum status plan_request_step(const struct session *session, const struct plan *plan, const char *origin,
                              struct plan_request *out);

void rank_shapes_free(struct rank_shapes *shapes);

/* Whether a plan has that shape. */
bool rank_shape_is_of(const struct rank_shape *shape, const struct plan *plan);
/* Adds a copy of shape `at` behind it, with a plan of its own. */
enum status rank_shapes_repeat(struct rank_shapes *shapes, size_t at);

/* Keeps the last message as the reason why a shape is refused. */
void rank_shape_refuse(struct rank_shape *shape);
