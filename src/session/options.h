/* The options of a run: the plan options that all subcommands share, and the training options. Both are plain data,
 * written to RUN_DIR/run.json, so `resume` needs only the directory.
 *
 * plan/settings.h has names, legal values and defaults. Each struct's `given` records which settings were given:
 * SETTINGS_GIVE sets a field and records it, SETTINGS_HAVE tests it. Settings that were not given are 0, or have their
 * default if it depends on nothing else. */
#pragma once

#include <jansson.h>

#include "backend/backend.h"
#include "base/base.h"
#include "comm/comm.h"
#include "model/model.h"
#include "plan/plan.h"
#include "plan/settings.h"

enum { MEMORY_FOLDER_BYTES = 4096 };

/* Memory limits of the tiers. They do not change results. */
struct memory_options {
    struct settings_given given;           /* which of these four were given */
    int64_t device_bytes;                  /* not given: the machine's */
    int64_t host_bytes;                    /* not given: none on a CPU, else the machine's */
    int64_t disk_bytes;                    /* not given: the free space of the directory */
    char disk_folder[MEMORY_FOLDER_BYTES]; /* not given: no disk tier */
};
/* Sets the directory of the disk tier, unless it is "". A path that is too long is cut. */
void memory_options_set_disk(struct memory_options *options, const char *folder);
/* Uses the run's directory if none is given. Other limits are not kept: the run may have been planned for another
 * machine's memory. If the directory is gone, there is no disk tier. */
void memory_options_keep_disk(const struct memory_options *of_run, struct memory_options *options);

/* How collectives run over nodes, and how collectives between GPUs move device memory: with NCCL, via the host, or (0)
 * the first of these that is available. In the order of the setting's choices. */
enum collectives_kind { COLLECTIVES_ARE_HIERARCHICAL, COLLECTIVES_ARE_FLAT };
enum gpu_collectives { GPU_COLLECTIVES_AUTO, GPU_COLLECTIVES_NCCL, GPU_COLLECTIVES_HOST };

/* Plan options. An option that is not given has its default or, on resume and with a plan file, the recorded value. A
 * given value that differs from the recorded one is rejected by name. The caller has checked each value against its
 * setting. */
struct plan_options {
    struct settings_given given; /* which of the settings below were given; `memory` has its own */
    /* The recipe's settings, each with its type in struct recipe. Defaults that the table does not state:
     * - sequence_length: at most the model's context;
     * - micro_batch_sequences: the fewest with the tokens that the backend chooses; in training at most a lane's share;
     * - lanes: the ranks;
     * - packing: see train_data_choose_packing. */
#define PLAN_OPTIONS_FIELD(field, ...) __typeof__(((struct recipe *)0)->field) field;
    SETTING_LIST_RECIPE(PLAN_OPTIONS_FIELD)
#undef PLAN_OPTIONS_FIELD
    const char *lora;          /* "RANK,ALPHA,TARGETS" (model/model.h) */
    const char *const *freeze; /* patterns over weight names (model_set_frozen); borrowed */
    size_t freeze_count;
    /* Settings that never change a result. */
    const struct backend *backend; /* not given: that of the plan's or run's instruction set, else the CPU */
    int64_t micro_batches_per_wave;
    int64_t pipeline_parallel;         /* stages; default 1 */
    int64_t virtual_stages;            /* spans per stage; default: the fastest number */
    const char *partition;             /* plan/ranks.h; default: chosen by a search */
    enum collectives_kind collectives; /* policy.flat; default: chosen by a search */
    enum gpu_collectives gpu_collectives;
    int threads;              /* default: the cores of the machine, divided among the ranks that share them */
    const char *plan_path;    /* a plan file (train, eval, generate) */
    const char *cluster_path; /* a cluster file whose rates replace measured ones */
    struct memory_options memory;
    bool allow_recipe_change; /* resume: isa and kernels_version are those of this machine; lanes, rounds, reduce_dtype,
                               * tensor_parallel and sequence_parallel may be given */
    bool by_sum;              /* the best policy minimizes the sum of all work (search/search.h) */
    bool outline;             /* dimensions suffice: weights may be missing, and a preset's name is a model */
    bool adds_losses_alone;   /* nothing trains: the default micro-batch does not depend on the number of ranks */
    struct mesh planned;      /* planned ranks that are not connected; 0x0: the plan is for the ranks of `comm` */
    int core_sharers;         /* ranks that share this process's cores (session.h); 0: only itself */
    const char *base_folder;  /* base of a model that is an adapter; NULL: its config names the base */
    struct comm *comm;        /* the ranks that train together, open as long as the session; NULL: one rank. Borrowed */
};
extern const struct settings_holder plan_settings;
/* The backend of options over a base: a plan file's or a checkpoint's recipe. The base may be NULL. */
const struct backend *plan_options_backend(const struct plan_options *options, const struct recipe *base);
/* Sets the backend that `device` names (NULL: the first of the list) and, if no dtype is given, its fastest dtype. A
 * plan file or a run (`decided`) keeps its own of both, and is planned for its kind of device unless one is named.
 * BAD_INPUT if the device does not exist. */
enum status plan_options_choose_device(const char *device, bool decided, struct plan_options *options);
/* The given number of threads, else the cores per rank. */
int plan_options_threads(const struct plan_options *options);
/* Whether --allow-recipe-change lets a run change the recipe's setting. */
bool recipe_setting_moves(enum setting_id id);
/* Initializes with nothing given. */
void plan_options_init(struct plan_options *out);

/* Learning rate over the steps: a linear warm-up, then one of these shapes (train/loop.h has the formulas). */
#define LR_SCHEDULE_LIST(X) X(COSINE, "cosine") X(LINEAR, "linear") X(CONSTANT, "constant") X(WSD, "wsd")
enum lr_schedule {
#define LR_SCHEDULE_ENUM(name, text) LR_SCHEDULE_##name,
    LR_SCHEDULE_LIST(LR_SCHEDULE_ENUM) LR_SCHEDULE_COUNT
#undef LR_SCHEDULE_ENUM
};

/* train_options_init sets the defaults and records none of them as given. */
struct train_options {
    struct settings_given given;
    int64_t steps;        /* of the whole run */
    double epochs;        /* passes over the training data, which determine `steps`; not given: `steps` decides */
    double learning_rate; /* the peak */
    enum lr_schedule schedule;
    int64_t schedule_steps;    /* steps until the end of the schedule; not given: `steps` */
    int64_t warmup_steps;      /* not given: a tenth of the schedule, at most 100 */
    double min_lr_fraction;    /* final value of cosine, linear and wsd, as a fraction of the peak */
    double wsd_decay_fraction; /* last part of the schedule, in which wsd decays */

    /* The optimizer, which becomes part of the recipe. Matrices and embeddings decay; biases and norm weights do not.
     * Not given: the plan file's, else the default */
    double beta1, beta2, epsilon, weight_decay;
    double clip_norm; /* limit of the global gradient norm; 0: none */

    int64_t save_every;    /* steps between checkpoints; one more is written at the end and on a signal. 0: no
                            * checkpoints; the run writes only its model and cannot be resumed */
    bool replan;           /* whether the plan may change during the run; default: true unless a plan file gives the
                            * policy. Does not change results */
    int64_t keep;          /* number of newest checkpoints to keep; 0: all */
    int64_t valid_every;   /* steps between validations, if there is validation data; one more is made at the end; 0:
                            * never */
    int64_t valid_batches; /* 0: the whole validation split; else at most so many of its batches */

    int64_t sample_every;      /* 0: never; else steps between text samples of the model; one more at the end */
    int64_t sample_tokens;     /* maximum tokens of a sample */
    const char *sample_prompt; /* "": from the end-of-text token. Borrowed */

    /* Data; see data/dataset.h. Paths become absolute when the run begins. Borrowed. */
    const char *const *data_paths;
    size_t data_path_count;
    const char *const *valid_paths;
    size_t valid_path_count;
    int64_t chat_time_s;   /* the time passed to the conversation template, in seconds since 1970; not given: today */
    const char *columns;   /* "": keys of .jsonl files, as data/source.h reads them. Borrowed */
    bool loss_on_all;      /* false: trains only on the completions of supervised examples */
    double valid_fraction; /* fraction of the training sequences held out if there is no other validation data */
};
extern const struct settings_holder train_settings;
void train_options_init(struct train_options *out);
/* BAD_INPUT with the command line's name of the first setting that has an illegal value. */
enum status train_options_check(const struct train_options *options);

/* Whether a resumed run may change an option: its length, schedule and intervals. The prompt of samples may change,
 * too; samples.jsonl records it. `key` is the option's name in files. */
bool train_option_changes(const char *key);
/* Copies the given ones of these options from `changes`. --steps replaces a length in epochs. */
void train_options_change(struct train_options *options, const struct train_options *changes);

/* All options except the optimizer's, which are in the recipe. Options that were not given are null. NULL if out of
 * memory. */
json_t *train_options_to_json(const struct train_options *options);
/* Paths are copied into `memory`. */
enum status train_options_from_json(const char *file, const json_t *object, struct scratch *memory,
                                    struct train_options *out);
/* Whether two JSON values mean the same option. Earlier versions wrote 0 or -1 for options that were not given. */
bool train_option_equal(const json_t *now, const json_t *before);

/* Resolves the recipe and policy for the backend's instruction set: options over `base`, over the defaults. `base` is a
 * plan file's or a checkpoint's, called `base_name` in messages; may be NULL. BAD_INPUT by name if a given option, the
 * instruction set or the kernels' version differs from `base`, unless allow_recipe_change permits it. `training` may be
 * NULL. `model` may be NULL if defaults shall not depend on it. */
enum status plan_options_resolve(const struct plan_options *options, const struct train_options *training,
                                 const struct backend *backend, const struct model_config *model,
                                 const struct plan *base, const char *base_name, struct plan *out);
