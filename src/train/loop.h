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

/* Steps of the warm-up: as given, else a tenth of the schedule, at most 100. */
int64_t lr_warmup_steps(const struct train_options *options);

/* The learning rate of step s, counted from 0. In the warm-up, peak x (s + 1) / warmup. After it, with S the schedule's
 * steps, m the minimum fraction and p = (s - warmup) / (S - warmup):
 *     cosine    m + (1 - m) (1 + cos(pi p)) / 2      (Loshchilov and Hutter, arXiv 1608.03983, equation 5)
 *     linear    1 - (1 - m) p
 *     constant  1
 *     wsd       1, and over the last D = round(S x decay fraction) steps 1 - (1 - m) (s - (S - D)) / D
 *               (Hu et al., arXiv 2404.06395, section 4)
 * times the peak. */
double lr_at_step(const struct train_options *options, int64_t step);

/* How long a run is that is given in epochs: passes over its training data. Without weights each row of the data comes
 * once an epoch (data/dataset.h). */

/* Where options->epochs is given, sets options->steps to what they take, rounded up to whole steps; that waits until
 * all training text is tokenized, and is a function of data, batch and epochs alone. Then fixes the warm-up. `done`:
 * steps that were made. BAD_INPUT where sources have weights, so that each has passes of its own length; where the
 * steps are too many, or fewer than are done. */
enum status run_length_settle(struct dataset *dataset, const struct recipe *recipe, int64_t done,
                              struct train_options *options);

/* A run with everything open. */
struct train_run {
    const char *folder; /* the given one, or `rescued` */
    char *given_folder;
    int lock;      /* of the directory, held open */
    bool begun;    /* the loop: it has to be ended */
    char *rescued; /* the directory's path where it is not the one that was given; NULL else */
    struct run_settings settings;
    struct train_events rank_events;     /* what `events` is, where there are any */
    const struct train_events *events;   /* never NULL */
    const struct train_options *options; /* of the settings */
    const char *plan_path; /* which may hold a predicted time: --plan, or the directory's on resume; NULL: none */
    struct session session;
    struct session_plan plan;
    struct engine engine;
    struct train_data data;
    struct reference reference; /* of preferences; else empty */
    struct metrics metrics;
    struct metrics events_file;
    struct samples samples;
    struct checkpoint_state state; /* after the last step */
    bool whole;                    /* weights, optimizer state and metrics are those after the state's step */
    struct checkpoint_writer writer;
    struct step_record record;
    struct plan_watch watch;
    int64_t saved_step;             /* of the newest checkpoint that was begun; -1: none */
    char *newest;                   /* directory of the newest that is whole, NULL: none */
    int64_t newest_step;            /* of that one; 0: there is none */
    bool validated;                 /* whether the metrics hold the validation of state.step */
    double matrix_flops_per_s;      /* of all ranks; 0: unknown */
    bool matrix_rate_again;         /* it was measured again, since a step was above it */
    struct step_summary prediction; /* of a step; empty where the costs are not known */
    int off_steps;                  /* in a row, that took much more or less than predicted, up to when it was said */
    double smooth_step_s;           /* for the time that remains */
};

/* Of all ranks one writes the run's directory and tells what happens. */
static inline bool run_leads(const struct train_run *run) { return run->session.comm->rank == 0; }
/* What came of something that ranks did apart: the first failure by rank, for all. */
static inline enum status run_agree(const struct train_run *run, enum status mine) {
    return comm_agree(run->session.comm, mine);
}

/* OK, or the status that the run shall stop with. */
enum status train_loop_check_stop(const struct train_run *run);
/* What stands next to an engine: the checkpoints' thread at its gate, and the step that is recorded. Detaching closes
 * the engine; no checkpoint is being written then (train_loop_finish_save). */
enum status train_loop_attach(struct train_run *run);
void train_loop_detach(struct train_run *run);
/* Waits for the checkpoint that is being written, if any. */
enum status train_loop_finish_save(struct train_run *run);
/* Before the first turn. train_loop_end follows in any case. */
enum status train_loop_begin(struct train_run *run);
/* What is due after the last step (validation, sample, checkpoint), and the next step. `complete`: there was none left,
 * and the last checkpoint is whole. A status that stands for a stop: what the events asked for, after a checkpoint. */
enum status train_loop_turn(struct train_run *run, bool *complete);
/* Saves, unless the run writes no checkpoints, and returns `how`, a status that stands for a stop, with its message. */
enum status train_loop_stop(struct train_run *run, enum status how);
/* A checkpoint of the last step, whole when this returns. */
enum status train_loop_save(struct train_run *run);
/* After the last turn, with its status, which is returned where nothing worse comes: what a run that failed can still
 * save is saved. No checkpoint is being written any more. */
enum status train_loop_end(struct train_run *run, enum status status);

/* train.c: settings with absolute paths, and what was left open fixed, so that resuming later finds the same. The
 * caller calls run_settings_free, after a failure too. */
enum status run_settings_make(const char *model_folder, const struct train_options *options, struct run_settings *out);
