/* What a run is asked to do: the plan options that all subcommands share, and the training options. Both are plain
 * data, written to RUN_DIR/run.json, so that `resume` needs nothing but the directory.
 *
 * Names, legal values and defaults stand in plan/settings.h. Each struct's `given` tells which settings were given
 * (SETTINGS_GIVE sets the field and says so, SETTINGS_HAVE asks); what was not given is 0, or has its default where
 * that depends on nothing else. */
#pragma once

#include <jansson.h>

#include "backend/backend.h"
#include "base/base.h"
#include "comm/comm.h"
#include "model/model.h"
#include "plan/plan.h"
#include "plan/settings.h"

enum { MEMORY_FOLDER_BYTES = 4096 };

/* What the tiers may take. Changes no result. */
struct memory_options {
    struct settings_given given;           /* of these four */
    int64_t device_bytes;                  /* not given: the machine's */
    int64_t host_bytes;                    /* not given: on a processor there is no host tier, else the machine's */
    int64_t disk_bytes;                    /* not given: what is free in the directory */
    char disk_folder[MEMORY_FOLDER_BYTES]; /* not given: there is no disk tier */
};
/* Sets the directory of the disk tier, unless it is ""; one that is too long is cut. */
void memory_options_set_disk(struct memory_options *options, const char *folder);
/* Takes the directory that a run had where none is given. Alone of its limits: it may have been planned for another
 * machine's memory. One that is gone is no disk tier. */
void memory_options_keep_disk(const struct memory_options *of_run, struct memory_options *options);

/* How collectives run over nodes; and how those between GPUs move what is in their memory: by NCCL, by way of the host,
 * or (0) the first where it can be had. In the order of the setting's choices. */
enum collectives_kind { COLLECTIVES_ARE_HIERARCHICAL, COLLECTIVES_ARE_FLAT };
enum gpu_collectives { GPU_COLLECTIVES_AUTO, GPU_COLLECTIVES_NCCL, GPU_COLLECTIVES_HOST };

/* Plan options. What is not given has its default, or, on resume and with a plan file, the value that is written there.
 * A value that is given and differs from that is refused by name. Whoever fills this has checked each value against its
 * setting. */
struct plan_options {
    struct settings_given given; /* of the settings below; those of the memory stand in `memory` */
    /* The recipe's settings, each of the type that it has in struct recipe. Defaults that no row of the table says:
     * sequence_length: at most the model's context; micro_batch_sequences: the fewest that hold what the backend
     * chooses, of training at most a lane's share; lanes: the ranks; packing: see train_data_choose_packing. */
#define PLAN_OPTIONS_FIELD(field, ...) __typeof__(((struct recipe *)0)->field) field;
    SETTING_LIST_RECIPE(PLAN_OPTIONS_FIELD)
#undef PLAN_OPTIONS_FIELD
    const char *lora;          /* "RANK,ALPHA,TARGETS" (model/model.h) */
    const char *const *freeze; /* patterns over weights' names (model_set_frozen); borrowed */
    size_t freeze_count;
    /* These never change a result. */
    const struct backend *backend; /* not given: that of the plan file's or the run's instruction set, else the CPU */
    int64_t micro_batches_per_wave;
    int64_t pipeline_parallel;         /* stages; default 1 */
    int64_t virtual_stages;            /* spans of each stage; default: the fastest number */
    const char *partition;             /* plan/ranks.h; default: what a search finds */
    enum collectives_kind collectives; /* policy.flat; default: what a search finds */
    enum gpu_collectives gpu_collectives;
    int threads;              /* default: the cores of the machine, divided among the ranks that share them */
    const char *plan_path;    /* a plan file (train, eval, generate) */
    const char *cluster_path; /* a cluster file whose rates are taken in place of measuring them */
    struct memory_options memory;
    bool allow_recipe_change; /* resume: isa and kernels_version become those that are here, lanes, rounds,
                                 reduce_dtype, tensor_parallel and sequence_parallel what is given */
    bool by_sum;              /* the best policy is that with the least sum of all work (search/search.h) */
    bool outline;             /* dimensions are enough: weights may be missing, and a preset's name is a model */
    bool adds_losses_alone;   /* nothing is trained: the default micro-batch is the same on any number of ranks */
    struct mesh planned;      /* ranks that a plan is for which are not here; 0x0: the plan is for those of `comm` */
    int core_sharers;         /* ranks that share this process's cores (session.h); 0: none but itself */
    const char *base_folder;  /* of a model that is an adapter: its base; NULL: where its config says */
    struct comm *comm; /* the ranks that train together, open for as long as the session is; NULL: one. Borrowed */
};
extern const struct settings_holder plan_settings;
/* The backend of options over a base (a plan file's or a checkpoint's recipe; may be NULL). */
const struct backend *plan_options_backend(const struct plan_options *options, const struct recipe *base);
/* The backend that `device` names (NULL: the first of the list), and the dtype that is fastest there, where none is
 * given. What is decided by a plan file or a run (`decided`) keeps both, and is made on the kind of device that it was
 * decided for, unless one is named. BAD_INPUT when the device is not there. */
enum status plan_options_choose_device(const char *device, bool decided, struct plan_options *options);
/* The threads that are asked for, else as many as there are cores for a rank. */
int plan_options_threads(const struct plan_options *options);
/* Whether --allow-recipe-change lets a run change the recipe's setting. */
bool recipe_setting_moves(enum setting_id id);
/* Nothing given. */
void plan_options_init(struct plan_options *out);

/* Learning rate over the steps: a linear warm-up, then one of these shapes (train/loop.h has the formulas). */
#define LR_SCHEDULE_LIST(X) X(COSINE, "cosine") X(LINEAR, "linear") X(CONSTANT, "constant") X(WSD, "wsd")
enum lr_schedule {
#define LR_SCHEDULE_ENUM(name, text) LR_SCHEDULE_##name,
    LR_SCHEDULE_LIST(LR_SCHEDULE_ENUM) LR_SCHEDULE_COUNT
#undef LR_SCHEDULE_ENUM
};

/* train_options_init sets the defaults; those below are not given by it. */
struct train_options {
    struct settings_given given;
    int64_t steps;        /* of the whole run */
    double epochs;        /* passes over the training data, from which steps follow; not given: `steps` decides */
    double learning_rate; /* the peak */
    enum lr_schedule schedule;
    int64_t schedule_steps;    /* steps after which the schedule is at its end; not given: `steps` */
    int64_t warmup_steps;      /* not given: a tenth of the schedule, at most 100 */
    double min_lr_fraction;    /* where cosine, linear and wsd end, as a part of the peak */
    double wsd_decay_fraction; /* last part of the schedule in which wsd falls */

    /* The optimizer; they become part of the recipe. Matrices and embeddings decay, biases and norm weights do not. Not
     * given: what a plan file says, else the default */
    double beta1, beta2, epsilon, weight_decay;
    double clip_norm; /* limit of the global gradient norm; 0: none */

    int64_t save_every;    /* steps between checkpoints; one is also written at the end and on a signal. 0: none at all,
                              so the run ends with its model alone and cannot be resumed */
    bool replan;           /* whether the plan may change while the run goes on; not given: unless a plan file gives the
                              policy. Changes no result */
    int64_t keep;          /* newest checkpoints that are kept; 0: all */
    int64_t valid_every;   /* steps between validations, if there is validation data; one is also made at the end; 0:
                              never */
    int64_t valid_batches; /* 0: the whole validation split; else at most so many batches of it */

    int64_t sample_every;      /* 0: never; else steps between samples of what the model writes; one at the end too */
    int64_t sample_tokens;     /* the most tokens of a sample */
    const char *sample_prompt; /* "": from the end-of-text token. Borrowed */

    /* Data; see data/dataset.h. Paths are made absolute when the run begins. Borrowed. */
    const char *const *data_paths;
    size_t data_path_count;
    const char *const *valid_paths;
    size_t valid_path_count;
    int64_t chat_time_s;   /* what the template of conversations is told of the time, in seconds since 1970; not given:
                              today */
    const char *columns;   /* "": keys of .jsonl files, as data/source.h reads them. Borrowed */
    bool loss_on_all;      /* false: of supervised examples train on the completions only */
    double valid_fraction; /* part of the training sequences held out where there is no other validation data */
};
extern const struct settings_holder train_settings;
void train_options_init(struct train_options *out);
/* BAD_INPUT naming the first setting that has an illegal value, as the command line calls it. */
enum status train_options_check(const struct train_options *options);

/* An option that a run may change when it is resumed: its length, its schedule and its intervals. The text of samples
 * may change too, and stands in samples.jsonl. By the name that files have for it. */
bool train_option_changes(const char *key);
/* Takes what is given in `changes` of these. --steps replaces a length in epochs. */
void train_options_change(struct train_options *options, const struct train_options *changes);

/* All but the optimizer's numbers, which the recipe holds; what was not given is null. NULL when out of memory. */
json_t *train_options_to_json(const struct train_options *options);
/* Paths are copied into `memory`. */
enum status train_options_from_json(const char *file, const json_t *object, struct scratch *memory,
                                    struct train_options *out);
/* Whether two values in such JSON are the same option: earlier versions wrote 0 or -1 for one that was not given. */
bool train_option_equal(const json_t *now, const json_t *before);

/* The recipe and policy: options over `base` (a plan file's or a checkpoint's, called `base_name` in messages; may be
 * NULL) over the defaults, for the backend's instruction set. BAD_INPUT by name where a given option, the instruction
 * set or the kernels' version differs from `base`, unless allow_recipe_change admits it. `training` may be NULL; so may
 * `model`, where defaults shall not depend on it. */
enum status plan_options_resolve(const struct plan_options *options, const struct train_options *training,
                                 const struct backend *backend, const struct model_config *model,
                                 const struct plan *base, const char *base_name, struct plan *out);
