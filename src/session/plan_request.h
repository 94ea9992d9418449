/* What a plan is asked for: the programs, the recipe, the policy to begin with, and what of this is settled. */
#ifndef BALLAST_SESSION_PLAN_REQUEST_H
#define BALLAST_SESSION_PLAN_REQUEST_H

#include "search/search.h"
#include "session/programs.h"
#include "session/rank_shapes.h"

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
    double faster_than_s; /* of several shapes: a plan that is not is of no use, nor one that does not fit; 0: any is */
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

#endif
