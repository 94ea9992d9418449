/* A model with its compiled programs, before any weight is read: what `ballast plan` prints, and what training,
 * evaluation and generation then give an arena. */
#ifndef BALLAST_SESSION_TRAIN_SETUP_H
#define BALLAST_SESSION_TRAIN_SETUP_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster/cluster.h"
#include "model/model.h"
#include "program/program.h"
#include "runtime/executable.h"
#include "search/search.h"
#include "session/train_options.h"
#include "sim/step_summary.h"

enum setup_purpose {
    SETUP_TRAIN,    /* a training step */
    SETUP_EVALUATE, /* the loss of a batch */
    SETUP_GENERATE, /* logits of texts */
};

enum { PREFILL_TOKENS = 64, DECODE_TEXTS = 8 };

struct train_setup {
    enum setup_purpose purpose;
    struct model *model;
    struct plan plan;
    bool recipe_fixed; /* by a plan file or a checkpoint: options may not change it */
    const struct backend *backend;
    struct executable *main;       /* the purpose's program; SETUP_GENERATE: the prefill */
    struct executable *validation; /* SETUP_TRAIN: the loss of a batch, in the same arena; else NULL */
    /* For text, with their caches, in the same arena: SETUP_GENERATE, and SETUP_TRAIN where `samples`; else NULL. */
    struct executable *prefill; /* PREFILL_TOKENS tokens of one text at a time */
    struct executable *decode;  /* one token each of DECODE_TEXTS texts at a time */
    int64_t texts;              /* that there are caches for: the options' batch, default 1; 1 where `samples` */
    bool samples;
    struct memory_options limits;
    struct cluster cluster;      /* of --cluster; all zero without: its rates are then measured where they are needed */
    struct costs costs;          /* of the main program's graph; without kernels before train_setup_measure */
    struct search_result search; /* by which the policy was chosen; all zero: what was given, or plain, fitted */
    bool policy_fixed;           /* by a plan file: no other is chosen */
    bool grains_fixed;           /* by an option */
    int64_t least_bytes;         /* device bytes of the plan that takes least, of those that were tried */
    int64_t program_bytes[TIER_COUNT];       /* arena sizes: the larger of the programs' */
    int64_t capacity_bytes[TIER_COUNT];      /* what there is: the option, or the machine's; 0: no such tier */
    struct memory_report memory[TIER_COUNT]; /* of the main program */
    int64_t parameters, matrix_parameters;   /* all; those in matrix products */
    int64_t trained_parameters;              /* those that are not frozen */
    double
        flops_per_token; /* model FLOPs: of a training step 6 a matrix parameter (4 where it is frozen) and 6 x heads x
                            head size x (T + 1) a layer for causal attention; a third of that for the other purposes */
};

/* Opens the model (without weights where `options` say that an outline is enough), resolves the plan, compiles the
 * programs. `training` gives the recipe's AdamW numbers (NULL: the
 * defaults). BAD_INPUT for what is wrong with the model, the options or the plan file. Never STATUS_NO_FIT: see
 * train_setup_check_memory. The caller frees with train_setup_free. */
enum status train_setup_create(const char *model_folder, enum setup_purpose purpose, const struct plan_options *options,
                               const struct train_options *training, struct train_setup *out);
/* The same for training with a recipe that is decided (a checkpoint's), with its policy if that fits the memory that
 * `options` leave. */
enum status train_setup_create_planned(const char *model_folder, const struct plan *plan,
                                       const struct plan_options *options, const struct train_options *training,
                                       struct train_setup *out);
/* Only the training step of a plan as it is, whatever memory there is and without weights: to be simulated. `plan_name`
 * stands for the plan in messages. BAD_INPUT where the plan is for other kernels than this machine's, or not for this
 * model. */
enum status train_setup_create_step(const char *model_folder, const struct plan *plan, const char *plan_name,
                                    struct train_setup *out);
void train_setup_free(struct train_setup *setup);

/* STATUS_NO_FIT when a tier's program is larger than its capacity: the message says by how much, the hint which
 * settings would fit (it compiles others to find out). */
enum status train_setup_check_memory(const struct train_setup *setup);

/* Finds the costs of the main program's operators and tiers, measuring what no run before has: some seconds the first
 * time on a machine. Does nothing where they are known. */
enum status train_setup_measure(struct train_setup *setup);

/* The same as far as earlier runs have measured all of it; else the costs stay without kernels. */
enum status train_setup_find_costs(struct train_setup *setup);

/* A step of the main program, simulated. The costs must be known. */
enum status train_setup_predict(const struct train_setup *setup, struct step_summary *out);

#endif
