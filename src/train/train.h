/* Training and evaluation, as subcommands and the library call them.
 *
 *     struct plan_options plan;
 *     struct train_options options;
 *     plan_options_init(&plan), train_options_init(&options);
 *     options.data_paths = paths, options.data_path_count = count;
 *     status = train_begin("model", "run", &plan, &options, NULL);          // ballast train
 *     status = train_resume("run", &plan, &resume, NULL);                   // ballast resume
 *
 * A run's directory has run.json (all settings), metrics.jsonl and the same for TensorBoard, samples.jsonl if
 * requested, and timeline.json (times of each instruction of one step). Checkpoints are in checkpoints/step-00000100 …;
 * at the end there is model. Each checkpoint and the model are Hugging Face directories.
 *
 * Files, in the order to read them:
 * - train: starts and resumes a run
 * - loop: steps, their learning rates, and a directory that is renamed or removed meanwhile
 * - data: tokenizer and data of a run
 * - reference: reference log-probabilities of DPO
 * - run_origin: the state to resume from, and settings edited since
 * - run_state: whether a run starts or resumes, and how it ended
 * - checkpoint_writer: checkpoints during steps
 * - metrics: metrics.jsonl, timeline.json and samples.jsonl
 * - event_file, event_file_absent, event: metrics for TensorBoard, or nothing without protobuf-c
 * - plan_watch: changes of the plan during training
 * - evaluate: the loss of a model on files */
#pragma once

#include "base/base.h"
#include "generate/generate.h"
#include "session/options.h"
#include "session/plan.h"
#include "train/evaluate.h"

/* One step, as written to metrics.jsonl and the console. */
struct train_step {
    int64_t step, steps;  /* steps done, including this one; total steps of the run */
    bool settled;         /* the step that is compared with the prediction; timeline.json is of it */
    double epoch, epochs; /* passes over the data done and total, if the run's length is given in epochs; otherwise 0 */
    double loss;          /* mean over the unmasked tokens of the step, or over its pairs */
    bool pairs;           /* whether it trains on preference pairs, with these means over pairs */
    double preference[PREFERENCE_FIGURES];
    double grad_norm; /* before clipping */
    double learning_rate;
    int64_t tokens; /* input tokens processed since step 1, including masked ones */
    double tokens_per_s, step_s;
    double mfu;              /* model FLOPs per second over the machine's matrix rate; NaN if that is unknown */
    int64_t device_bytes;    /* resident bytes of the arena */
    double predicted_step_s; /* 0: unknown, since the plan needed no search */
    int64_t predicted_device_bytes;
    double remaining_s; /* at the pace of recent steps */
};

/* A validation, also written to both. */
struct train_validation {
    int64_t step; /* after so many steps */
    double loss;  /* mean over the validation data, as for a step */
    bool pairs;   /* whether it has preference pairs, with these means over pairs; otherwise all 0 */
    double preference[PREFERENCE_FIGURES];
};

/* Consecutive steps that took much more or less time than predicted. Reported once a run. */
struct misprediction {
    int64_t step;                            /* the last of them */
    int steps;                               /* so many */
    double part;                             /* each differed by more than this fraction of the predicted time */
    double step_s;                           /* of the last */
    struct step_summary predicted, measured; /* `measured` is that of the last step; step_s 0: it was not recorded */
};

/* Why a run changed its plan (plan_watch.h), and the new plan. */
struct train_replan;

/* The state of a run once its data are open. */
struct train_info {
    const struct session_plan *plan;     /* NULL in an evaluation */
    int64_t done;                        /* steps before this start */
    int64_t steps, warmup_steps;         /* of the whole run */
    bool validation, held_out;           /* there is validation data; it is a part of the training data */
    bool examples;                       /* there are supervised examples */
    const struct train_options *options; /* NULL in an evaluation */
};

/* Callbacks during training; any may be NULL. They run on the thread that called train_begin or train_resume. `plan`
 * and `step` are valid during the call. None may allocate from base/mem.h in `step` after its first call. */
struct train_events {
    /* Data are open and the plan is made; loading comes next. Has its own payload. */
    void (*opened)(const void *payload, const struct train_info *info);
    const void *opened_payload;
    /* Everything is checked and loaded; the first step comes next. `data_tokens`: tokens in all data files; -1:
     * tokenizing continues. */
    void (*begin)(void *payload, const struct session_plan *plan, const char *run_folder, int64_t first_step,
                  int64_t steps, int64_t data_tokens);
    void (*step)(void *payload, const struct train_step *step);
    /* Called before each step and each batch of a validation. OK: continue. A stop status: write a checkpoint and end
     * with that status. `step`: the next one, counted from 1. `saved_step`: that of the newest complete checkpoint; 0
     * before the first; -1 if none is ever written. NULL: nothing stops the run. */
    enum status (*stop)(void *payload, int64_t step, int64_t saved_step);
    void (*mispredicted)(void *payload, const struct misprediction *misprediction);
    /* From the next step on `plan` is another plan of the same recipe. */
    void (*replanned)(void *payload, const struct train_replan *replan, const struct session_plan *plan);
    void (*validated)(void *payload, const struct train_validation *validation);
    /* The model's continuation of the prompt. */
    void (*sampled)(void *payload, int64_t step, const char *prompt, const char *text);
    /* A checkpoint has begun; steps continue until it is saved. */
    void (*saving)(void *payload, int64_t step);
    void (*saved)(void *payload, int64_t step, const char *folder);
    /* After all other calls, whatever the outcome, if `begin` was called. */
    void (*end)(void *payload, enum status status);
    void *payload;
};

/* Trains the model in `model_folder` into `run_folder`, which must not exist or be empty. `events` may be NULL.
 * Returns:
 * - OK.
 * - BAD_INPUT: nothing is written. If bad text is found only at a later step, checkpoints are as after a failure.
 * - NO_FIT.
 * - FAILED: the disk is full, or a loss is not finite. The last checkpoint is complete. It is of the last step if only
 *   later work failed.
 * - The status of the events' `stop`, after a checkpoint. */
enum status train_begin(const char *model_folder, const char *run_folder, const struct plan_options *plan,
                        const struct train_options *options, const struct train_events *events);

/* Resumes from the newest checkpoint, or from the start if there is none. The result is bit-identical to a run without
 * interruption. Given plan options must equal the run's, except the memory limit and micro-batches per wave. Otherwise
 * returns like train_begin. For a complete run it only writes the model directory again.
 *
 * `changes` has new values of options that may change (train_option_changes), which apply from the next step on.
 * run.json records them and their history. Steps and epochs exclude each other. BAD_INPUT if the length is below the
 * steps done. The learning rate of step s is lr_at_step of the changed options: a new peak scales all later rates;
 * warm-up and decay keep their steps. A schedule whose length was not given follows `steps`. */
enum status train_resume(const char *run_folder, const struct plan_options *plan, const struct train_options *changes,
                         const struct train_events *events);

/* Training step by step, with the same results: train_begin is train_open and train_turn until complete. Events are
 * copied; train_open's other arguments are not needed later. The caller calls train_close. */
struct train_run;
enum status train_open(const char *model_folder, const char *run_folder, const struct plan_options *plan,
                       const struct train_options *options, const struct train_events *events, struct train_run **out);
enum status train_open_resumed(const char *run_folder, const struct plan_options *plan,
                               const struct train_options *changes, const struct train_events *events,
                               struct train_run **out);
/* Does pending work after the last step (validation, sample, checkpoint), then makes the next step. If no step is left,
 * writes the model and sets `complete`. After that, and after any status but OK, only train_close may follow. */
enum status train_turn(struct train_run *run, bool *complete);
/* Saves a checkpoint of the last step, complete on return. */
enum status train_save(struct train_run *run);
/* engine_hash of all weights and optimizer states after the last step. */
enum status train_hash(struct train_run *run, uint64_t *hash);
/* Call it before the functions above if the thread is not that of the last call: OpenMP's number of threads is per
 * thread. */
void train_take_thread(const struct train_run *run);
/* Ends the run. If it is not complete, this is a stop: with a checkpoint, unless the run writes none, and OK. NULL is a
 * closed run. */
enum status train_close(struct train_run *run);
