/* Training and evaluation: what the subcommands and the library call.
 *
 *     struct plan_options plan;
 *     struct train_options options;
 *     plan_options_init(&plan), train_options_init(&options);
 *     options.data_paths = paths, options.data_path_count = count;
 *     status = train_begin("model", "run", &plan, &options, NULL);          // ballast train
 *     status = train_resume("run", &plan, &resume, NULL);                   // ballast resume
 *
 * A run's directory holds run.json (all settings), metrics.jsonl, the same for TensorBoard, samples.jsonl where samples
 * are asked for, timeline.json (when each instruction of one step ran), checkpoints/step-00000100 … and, at the end,
 * model: each checkpoint and the model are Hugging Face directories.
 *
 * Files, in the order to read them: train (how a run begins and goes on); loop (its steps, their learning rates, and a
 * directory that was renamed or removed meanwhile); data (tokenizer and data of a run); reference (what preferences are
 * compared with); run_origin (where a run goes on from, and what was edited since); run_state (whether it begins or
 * goes on, and how it ended); checkpoint_writer (checkpoints during steps); metrics (metrics.jsonl, timeline.json and
 * samples.jsonl); event_file, event_file_absent, event (the same for TensorBoard, or nothing without protobuf-c);
 * plan_watch (another plan while steps go on); evaluate (the loss of a model on files). */
#pragma once

#include "base/base.h"
#include "generate/generate.h"
#include "session/options.h"
#include "session/plan.h"
#include "train/evaluate.h"

/* One step, as it goes to metrics.jsonl and to the console. */
struct train_step {
    int64_t step, steps;  /* steps done, this one included; of the run */
    bool settled;         /* the one step that is compared with the prediction; timeline.json is of it */
    double epoch, epochs; /* the same in passes over the data, where the run's length is given so; else 0 */
    double loss;          /* mean over the unmasked tokens of the step, or over its pairs */
    bool pairs;           /* it was trained on preferences, with these means over pairs */
    double preference[PREFERENCE_FIGURES];
    double grad_norm; /* before clipping */
    double learning_rate;
    int64_t tokens; /* input tokens processed since step 1, masked ones included */
    double tokens_per_s, step_s;
    double mfu;              /* model FLOPs per second over the machine's matrix rate; NaN when that is unknown */
    int64_t device_bytes;    /* of the arena, resident now */
    double predicted_step_s; /* 0: not known, since the plan needed no search */
    int64_t predicted_device_bytes;
    double remaining_s; /* at the pace of recent steps */
};

/* A validation, as it goes there too. */
struct train_validation {
    int64_t step; /* after so many */
    double loss;  /* mean over the validation data, as of a step */
    bool pairs;   /* of preferences, with these means over pairs; else all 0 */
    double preference[PREFERENCE_FIGURES];
};

/* The last so many steps all took much more or less time than predicted. Told once in a run. */
struct misprediction {
    int64_t step;                            /* the last of them */
    int steps;                               /* so many */
    double part;                             /* of the predicted time, by more than which each of them was off */
    double step_s;                           /* of the last */
    struct step_summary predicted, measured; /* the latter of the last; its step_s is 0 where it was not recorded */
};

/* What a run changed its plan for (plan_watch.h), and to what. */
struct train_replan;

/* What is known once the data are open. */
struct train_info {
    const struct session_plan *plan;     /* NULL in an evaluation */
    int64_t done;                        /* steps before this start */
    int64_t steps, warmup_steps;         /* of the whole run */
    bool validation, held_out;           /* there is validation data; it is a part of the training data */
    bool examples;                       /* there are supervised examples */
    const struct train_options *options; /* NULL in an evaluation */
};

/* What to call while training; any may be NULL. From the thread that called train_begin or train_resume; `plan` and
 * `step` are valid during the call. None may allocate from base/mem.h in `step` after its first call. */
struct train_events {
    /* Data are open and the plan is made; loading comes next. With a payload of its own. */
    void (*opened)(const void *payload, const struct train_info *info);
    const void *opened_payload;
    /* All is checked and loaded; the first step comes next. `data_tokens`: tokens in all data files;
     * -1: they are still being made. */
    void (*begin)(void *payload, const struct session_plan *plan, const char *run_folder, int64_t first_step,
                  int64_t steps, int64_t data_tokens);
    void (*step)(void *payload, const struct train_step *step);
    /* Asked before each step and batch of a validation. OK: go on. A status that stands for a stop: write a checkpoint,
     * and end with that. `step`: the next one, counted from 1; `saved_step`: that of the newest checkpoint that is
     * whole, 0 before the first, -1 where none is ever written. NULL: nothing stops the run. */
    enum status (*stop)(void *payload, int64_t step, int64_t saved_step);
    void (*mispredicted)(void *payload, const struct misprediction *misprediction);
    /* From the next step on `plan` is another one, of the same recipe. */
    void (*replanned)(void *payload, const struct train_replan *replan, const struct session_plan *plan);
    void (*validated)(void *payload, const struct train_validation *validation);
    /* What the model wrote after the prompt. */
    void (*sampled)(void *payload, int64_t step, const char *prompt, const char *text);
    /* A checkpoint is begun; steps continue meanwhile until it is saved. */
    void (*saving)(void *payload, int64_t step);
    void (*saved)(void *payload, int64_t step, const char *folder);
    /* After the last call of all others, whatever the outcome, if `begin` was called. */
    void (*end)(void *payload, enum status status);
    void *payload;
};

/* Trains the model in `model_folder` into `run_folder`, which must not exist or be empty.
 * OK; BAD_INPUT (nothing is written, unless it is text that a later step was to read: checkpoints are then as after a
 * failure); NO_FIT; FAILED (disk full, a loss that is not finite: the last checkpoint is
 * whole, and of the last step where only what came after it failed); what `stop` of the events returned, after a
 * checkpoint. `events` may be NULL. */
enum status train_begin(const char *model_folder, const char *run_folder, const struct plan_options *plan,
                        const struct train_options *options, const struct train_events *events);

/* Goes on from the newest checkpoint (from the start where there is none yet), bit for bit as if it had not stopped.
 * Plan options that are given must be those of the run, memory limit and micro-batches per wave apart. Other results as
 * train_begin. A run that is complete only gets its model directory written again.
 *
 * `changes` holds new values of options that may change (train_option_changes), which count from the next step on;
 * run.json keeps them and their history. Not steps and epochs both. BAD_INPUT for a length below the steps that are
 * done. The learning rate of step s is lr_at_step of the changed options: a new peak multiplies all later rates,
 * warm-up and decay keep their steps. A schedule whose length was not given follows `steps`. */
enum status train_resume(const char *run_folder, const struct plan_options *plan, const struct train_options *changes,
                         const struct train_events *events);

/* The same step by step, with the same results: train_begin is train_open and train_turn until it is complete. Events
 * are copied, and nothing else that is handed in is needed after train_open. The caller calls train_close. */
struct train_run;
enum status train_open(const char *model_folder, const char *run_folder, const struct plan_options *plan,
                       const struct train_options *options, const struct train_events *events, struct train_run **out);
enum status train_open_resumed(const char *run_folder, const struct plan_options *plan,
                               const struct train_options *changes, const struct train_events *events,
                               struct train_run **out);
/* What is due after the last step (validation, sample, checkpoint), then the next one. Where none is left, the model is
 * written and `complete` set. After that, and after any other status than OK, the run is at its end: train_close is all
 * that is left. */
enum status train_turn(struct train_run *run, bool *complete);
/* A checkpoint of the last step, whole when this returns. */
enum status train_save(struct train_run *run);
/* As engine_hash, of all weights and optimizer states after the last step. */
enum status train_hash(struct train_run *run, uint64_t *hash);
/* Before the calls above on another thread than the last one's: OpenMP's number of threads is a thread's own. */
void train_take_thread(const struct train_run *run);
/* Before the run's end as a stop: with a checkpoint, unless the run writes none. OK then too; NULL is closed already.
 */
enum status train_close(struct train_run *run);
