/* The loop over steps; private to src/train. */
#ifndef BALLAST_TRAIN_TRAIN_LOOP_H
#define BALLAST_TRAIN_TRAIN_LOOP_H

#include "train/checkpoint_writer.h"
#include "train/event_file.h"
#include "train/learning_rate.h"
#include "train/samples.h"
#include "train/step_record.h"
#include "train/train.h"
#include "train/train_data.h"

/* A run with everything open. */
struct train_run {
    const char *folder;
    int lock;      /* of the folder, held open */
    char *rescued; /* the folder's path where it is not the one that was given; NULL else */
    const struct run_settings *settings;
    const struct train_events *events; /* never NULL */
    const struct train_options *options;
    const char *plan_path; /* which may hold a predicted time: --plan, or the folder's on resume; NULL: none */
    struct session session;
    struct session_plan plan;
    struct engine engine;
    struct train_data data;
    struct metrics metrics;
    struct event_file events_file;
    struct samples samples;
    struct lr_shape lr;
    struct checkpoint_state state; /* after the last step */
    bool whole;                    /* weights, optimizer state and metrics are those after the state's step */
    struct checkpoint_writer writer;
    struct step_record record;
    int64_t saved_step;             /* of the newest checkpoint that was begun; -1: none */
    char *newest;                   /* folder of the newest that is whole, NULL: none */
    bool validated;                 /* whether the metrics hold the validation of state.step */
    double matrix_flops_per_s;      /* 0: unknown */
    struct step_summary prediction; /* of a step; empty where the costs are not known */
    int off_steps;                  /* in a row, that took much more or less than predicted, up to when it was said */
    double smooth_step_s;           /* for the time that remains */
};

/* From state.step to the end, or to a signal, with the last checkpoint. OK when the run is complete. However it ends,
 * no checkpoint is being written any more. */
enum status train_loop(struct train_run *run);

#endif
