/* The request of a plan: the programs, the recipe, the initial policy, and which of these are fixed. */
#pragma once

#include "search/search.h"
#include "session/options.h"
#include "session/programs.h"

/* A rank layout: the tensor parallelism, the partition of tensors (recipe.sequence_parallel, recipe.layout), and the
 * number of pipeline stages. The remaining axis is data parallelism (plan/ranks.h), over which a partition of states is
 * chosen. */
enum shape_outcome {
    SHAPE_OPEN,    /* not examined */
    SHAPE_SAME,    /* its ranks compute the same as those of an earlier layout: the solver's partition is
                    * Megatron-LM's */
    SHAPE_REFUSED, /* the model cannot be partitioned so, or Ballast does not support it: `reason` */
    SHAPE_NO_FIT,  /* no policy fits: by a bound if min_bytes is 0, else none that was tried */
    SHAPE_BOUNDED, /* not compiled: no policy is faster than bound_s, and the best one is */
    SHAPE_UNTRIED, /* expected to be slower than the best by a tenth or more; at least bound_s */
    SHAPE_PLANNED  /* its best policy, among those tried, takes step_s */
};
enum { SHAPE_REASON_BYTES = 240 };

struct rank_shape {
    struct plan *plan; /* its request, with its recipe and axes; owned */
    enum shape_outcome outcome;
    double solver_memory; /* a solver's memory limit, relative to the memory of its devices; INFINITY: none */
    double bound_s, expected_s, step_s; /* 0: unknown */
    double left_s;                      /* lower bound on its plans that were not simulated; INFINITY: none is faster */
    int64_t tier_bytes[TIER_COUNT];     /* SHAPE_PLANNED */
    int64_t min_bytes;                  /* SHAPE_NO_FIT: minimum on the device, of the compiled policies; 0: none was
                                         * compiled */
    char reason[SHAPE_REASON_BYTES];    /* SHAPE_REFUSED */
    bool unjudged;                      /* SHAPE_REFUSED: it has too many collectives */
    bool larger_micro_batch;            /* SHAPE_PLANNED: smaller ones have too many collectives */
};
/* Ordered by tensor parallelism, then by stages, then by partition: Megatron-LM's, the same with sequence parallelism,
 * the solver's. The search may add the solver's under other memory limits. Empty: the rank layout is fixed. */
struct rank_shapes {
    VEC(struct rank_shape) list;
    double min_s; /* lower bound over all layouts that were searched, without tiles */
};

struct plan_request {
    struct program_set set;
    struct plan plan;
    const char *origin; /* the file that the plan comes from, for messages; NULL: the options. Borrowed */
    bool recipe_fixed;  /* by a plan file or a checkpoint: hints do not advise changing it */
    bool policy_fixed;  /* by a plan file: the search chooses no other */
    bool partition_fixed, collectives_fixed; /* by an option: the search chooses no other */
    enum search_objective objective;
    const struct costs *costs; /* known costs of the main program's graph, better than measured ones; NULL: none.
                                * Borrowed while the plan is made */
    struct rank_shapes shapes; /* to choose from, in place of `plan`; session_plan_make takes them over */
    int64_t virtual_stages;    /* spans per stage of an uncut pipeline; 0: the fastest number */
    bool micro_batch_fixed; /* by an option, or because no program trains; otherwise larger ones are tried if there are
                             * too many collectives */
    bool micro_batches_fixed; /* by an option, or because no program trains: micro-batches per wave do not change */
};

/* Makes a request from options, for a session's model and machine (plan_options_resolve): over `base`, the plan of the
 * file options->plan_path, and over the defaults. `uses` are those of a program set. In training, the programs for text
 * are added if `training` asks for samples. `training` gives the optimizer's settings (NULL: the defaults). If the rank
 * layout is open, `shapes` has the plan of each layout, and `plan` is the first valid one. BAD_INPUT if the layout is
 * open and nothing trains, or if all layouts are refused. */
enum status plan_request_make(const struct session *session, unsigned uses, const struct plan_options *options,
                              const struct train_options *training, const struct plan *base, struct plan_request *out);
/* Adds the layouts of a request whose recipe is decided to request->shapes. Only stages may be open. */
enum status plan_request_add_stages(const struct session *session, const struct plan_options *options,
                                    struct plan_request *request);
/* The request for training with a plan whose recipe is decided (a checkpoint's). Its policy is used if it fits. */
struct plan_request plan_request_decided(const struct plan *plan, const struct plan_options *options,
                                         const struct train_options *training);
/* The request for the training step of an existing plan, `origin`'s, to be simulated whatever the memory. BAD_INPUT if
 * it is for other kernels than the machine's. */
enum status plan_request_step(const struct session *session, const struct plan *plan, const char *origin,
                              struct plan_request *out);

void rank_shapes_free(struct rank_shapes *shapes);

/* Whether a plan has that rank layout. */
bool rank_shape_is_of(const struct rank_shape *shape, const struct plan *plan);
/* Inserts a copy of shape `at` after it, with its own plan. */
enum status rank_shapes_repeat(struct rank_shapes *shapes, size_t at);

/* Records the last message as the reason why a shape is refused. */
void rank_shape_refuse(struct rank_shape *shape);
