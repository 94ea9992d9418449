/* The loop over steps, and the learning rate of each; private to src/train. */
#pragma once

#include "model/model.h"
#include "session/checkpoint/run_folder.h"
#include "session/options.h"
#include "train/checkpoint_writer.h"
#include "train/data.h"
#include "train/metrics.h"
#include "train/plan_watch.h"
#include "train/reference.h"
#include "train/train.h"

/* Warm-up steps: as given, else a tenth of the schedule, at most 100. */
int64_t lr_warmup_steps(const struct train_options *options);

/* The learning rate of step s, counted from 0. During the warm-up it is peak x (s + 1) / warmup. Afterwards it is the
 * peak times a shape. Let S be the schedule's steps, m the minimum fraction and p = (s - warmup) / (S - warmup). The
 * shapes are:
 * - cosine: m + (1 - m) (1 + cos(pi p)) / 2 (Loshchilov and Hutter, arXiv 1608.03983, equation 5)
 * - linear: 1 - (1 - m) p
 * - constant: 1
 * - wsd: 1, and 1 - (1 - m) (s - (S - D)) / D over the last D = round(S x decay fraction) steps (Hu et al., arXiv
 *   2404.06395, section 4) */
double lr_at_step(const struct train_options *options, int64_t step);

/* The length of a run that is given in epochs, or passes over its training data. Without weights each row of the data
 * comes once an epoch (data/dataset.h). */

/* If options->epochs is given, sets options->steps to that many epochs, rounded up to whole steps. Waits until all
 * training text is tokenized; depends only on data, batch and epochs. Then fixes the warm-up. `done`: steps made so
 * far. BAD_INPUT if sources have weights, since their epochs differ in length. BAD_INPUT if the steps are too many, or
 * fewer than `done`. */
enum status run_length_settle(struct dataset *dataset, const struct recipe *recipe, int64_t done,
                              struct train_options *options);

/* An open run. */
struct train_run {
    const char *folder; /* the given directory, or `rescued` */
    char *given_folder;
    int lock;      /* of the directory, held open */
    bool begun;    /* the loop has begun and must be ended */
    char *rescued; /* the directory's path if it is not the given one; otherwise NULL */
    struct run_settings settings;
    struct train_events rank_events;     /* storage of `events`, if there are any */
    const struct train_events *events;   /* never NULL */
    const struct train_options *options; /* of the settings */
    const char *plan_path; /* a file that may have a predicted time: --plan, or on resume the directory's; NULL: none */
    struct session session;
    struct session_plan plan;
    struct engine engine;
    struct train_data data;
    struct reference reference; /* DPO; otherwise empty */
    struct metrics metrics;
    struct metrics events_file;
    struct samples samples;
    struct checkpoint_state state; /* after the last step */
    bool whole;                    /* weights, optimizer state and metrics match the state's step */
    struct checkpoint_writer writer;
    struct step_record record;
    struct plan_watch watch;
    int64_t saved_step;             /* of the newest checkpoint that was begun; -1: none */
    char *newest;                   /* directory of the newest complete checkpoint; NULL: none */
    int64_t newest_step;            /* its step; 0: there is none */
    bool validated;                 /* whether the metrics have the validation of state.step */
    double matrix_flops_per_s;      /* of all ranks; 0: unknown */
    bool matrix_rate_again;         /* it was measured again, since a step was above it */
    struct step_summary prediction; /* of a step; empty where the costs are not known */
    int off_steps;                  /* in a row, that took much more or less than predicted, up to when it was said */
    double smooth_step_s;           /* for the time that remains */
};

/* Whether this rank writes the run's directory and reports events. */
static inline bool run_leads(const struct train_run *run) { return run->session.comm->rank == 0; }
/* Collective: the first failure by rank of work that ranks did separately. */
static inline enum status run_agree(const struct train_run *run, enum status mine) {
    return comm_agree(run->session.comm, mine);
}

/* OK, or the status with which the run stops. */
enum status train_loop_check_stop(const struct train_run *run);
/* Attaches to an engine: the gate of the checkpoint writer, and the step record. Detaching closes the engine; no
 * checkpoint may be in progress (train_loop_finish_save). */
enum status train_loop_attach(struct train_run *run);
void train_loop_detach(struct train_run *run);
/* Waits for the checkpoint in progress, if any. */
enum status train_loop_finish_save(struct train_run *run);
/* Call it before the first turn. train_loop_end follows in any case. */
enum status train_loop_begin(struct train_run *run);
/* Does pending work after the last step (validation, sample, checkpoint), and makes the next step. `complete`: no step
 * was left, and the last checkpoint is complete. A stop status: the events requested it, and a checkpoint was saved. */
enum status train_loop_turn(struct train_run *run, bool *complete);
/* Saves, unless the run writes no checkpoints. Returns `how`, a stop status, with its message. */
enum status train_loop_stop(struct train_run *run, enum status how);
/* Saves a checkpoint of the last step, complete on return. */
enum status train_loop_save(struct train_run *run);
/* Call it after the last turn, with its status, which it returns unless something worse happens. Saves as much as
 * possible of a run that failed. No checkpoint is in progress on return. */
enum status train_loop_end(struct train_run *run, enum status status);

/* Makes settings with absolute paths (train.c). Open ones are fixed, so that resuming finds the same. The caller calls
 * run_settings_free, also after a failure. */
enum status run_settings_make(const char *model_folder, const struct train_options *options, struct run_settings *out);
