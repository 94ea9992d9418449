/* Writes checkpoints while training continues. Only a step's update changes weights and optimizer state. A thread reads
 * them from the arena during the next step's forward and backward passes, and the update waits at the runner's gate
 * until the thread has finished. So nothing is copied, and a step stalls only if the disk is slower than the passes.
 * Syncing and renaming continue during later steps.
 *
 * Ranks write their parts during steps and communicate between them (checkpoint.h). While a checkpoint is being
 * written, every rank calls checkpoint_writer_ended after every step; it returns the same on all ranks. If ranks hold
 * only runs of tensors, their threads also compute checksums once all ranks have written. Then rank 0's thread
 * publishes the checkpoint, also during later steps. On one rank the thread does both.
 *
 * The thread allocates and frees its own memory (a file's buffer, names, headers) during steps. */
#pragma once

#include <pthread.h>

#include "session/checkpoint/checkpoint.h"
#include "train/metrics.h"

/* The same on all ranks. */
enum writer_phase {
    WRITER_IDLE,
    WRITER_WRITES,    /* threads write the ranks' parts */
    WRITER_SUMS,      /* if parts are not complete blocks: all are written, and threads compute checksums */
    WRITER_PUBLISHES, /* all parts are written: rank 0's thread publishes them */
    WRITER_ENDED      /* not finished yet */
};

struct checkpoint_writer {
    struct checkpoint_source source;
    struct metrics
        *metrics; /* borrowed; synced before the checkpoint appears, since resuming from it cuts them to its step */
    pthread_t thread;
    bool joinable; /* the thread must be joined */
    enum writer_phase phase;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool reading, working; /* under the lock: reads the arena; is working */
    struct checkpoint_state state;
    struct checkpoint_saving saving;
    struct status_copy end; /* of the last phase, or of the last checkpoint that ended */
    char *folder;           /* its path; NULL after a failure */
};

/* Opens a writer, and makes it the gate of the engine's training program. Borrows all arguments; `out` must not be
 * moved. */
void checkpoint_writer_open(const char *run_folder, struct engine *engine, const struct dataset *dataset,
                            const struct train_options *options, struct metrics *metrics,
                            struct checkpoint_writer *out);
/* Waits for this rank's thread. Does not communicate, so it may follow a failure. Ignores a writer that was never
 * opened. */
void checkpoint_writer_close(struct checkpoint_writer *writer);

/* The three below are collective: all ranks call them between steps, in the same order. */

/* Begins the checkpoint of state->step and returns. One at a time: finish the previous one first. Until it is finished,
 * nobody else uses the model's directory. FAILED if its directory or a thread cannot be made. */
enum status checkpoint_writer_begin(struct checkpoint_writer *writer, const struct checkpoint_state *state);
/* Whether a checkpoint has ended and is not finished yet. */
bool checkpoint_writer_ended(struct checkpoint_writer *writer);
/* Waits for the current checkpoint, if any. OK: `*folder` is its path, for the caller to free; NULL if there was none.
 * Otherwise like checkpoint_end. */
enum status checkpoint_writer_finish(struct checkpoint_writer *writer, char **folder);
