/* Checkpoints written while training goes on. Weights and optimizer state change only in a step's update, so a thread
 * reads them from the arena during the next step's forward and backward passes, and the update waits at the runner's
 * gate until all has been read: nothing is copied, and the step stops only where the disk is slower than the passes.
 * Syncing and renaming continue during later steps.
 *
 * Ranks write their parts during steps and ask each other between them (checkpoint.h): while a checkpoint is being
 * written, every rank calls checkpoint_writer_ended after every step, which tells all the same. When all have written
 * (and, where ranks have but runs of tensors, made the checksums of it), rank 0's thread gives the checkpoint its name,
 * during later steps too. On one rank the thread does both.
 *
 * The thread's own memory (a file's buffer, names, headers) comes and goes during steps. */
#pragma once

#include <pthread.h>

#include "session/checkpoint/checkpoint.h"
#include "train/metrics.h"

/* The same on all ranks. */
enum writer_phase {
    WRITER_IDLE,
    WRITER_WRITES,    /* threads write the ranks' parts */
    WRITER_SUMS,      /* where these are not whole blocks: all are written, and threads make checksums */
    WRITER_PUBLISHES, /* all parts are there: rank 0's thread publishes them */
    WRITER_ENDED      /* not finished yet */
};

struct checkpoint_writer {
    struct checkpoint_source source;
    struct metrics
        *metrics; /* borrowed; synced before the checkpoint appears: going on from it cuts them to its step */
    pthread_t thread;
    bool joinable; /* the thread is to be joined */
    enum writer_phase phase;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool reading, working; /* under the lock: of the arena; at all */
    struct checkpoint_state state;
    struct checkpoint_saving saving;
    struct status_copy end; /* of the last phase, or of the last one that ended */
    char *folder;           /* where it is; NULL after a failure */
};

/* Ready to write, and the gate of the engine's training program. Borrows all; `out` must not be moved. */
void checkpoint_writer_open(const char *run_folder, struct engine *engine, const struct dataset *dataset,
                            const struct train_options *options, struct metrics *metrics,
                            struct checkpoint_writer *out);
/* Waits for what this rank's thread writes. Asks no other rank: after a failure too. One that was never opened is left
 * alone. */
void checkpoint_writer_close(struct checkpoint_writer *writer);

/* The three below are collective: all ranks call them between steps, in the same order. */

/* Begins the checkpoint of state->step and returns. One at a time: the one before must have been finished. Until it is
 * finished, nobody else uses the model's directory. FAILED when its directory cannot be made, or no thread be had. */
enum status checkpoint_writer_begin(struct checkpoint_writer *writer, const struct checkpoint_state *state);
/* Whether one was begun that has come to its end and is not finished yet. */
bool checkpoint_writer_ended(struct checkpoint_writer *writer);
/* Waits for the end of the one that was begun, if any. OK: `*folder` is where it is, for the caller to free; NULL when
 * none was begun. Otherwise as checkpoint_end. */
enum status checkpoint_writer_finish(struct checkpoint_writer *writer, char **folder);
