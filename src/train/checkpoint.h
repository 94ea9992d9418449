/* Checkpoints: RUN_DIR/checkpoints/step-00000100 is a Hugging Face directory with the weights in the recipe's dtype,
 * beside them optimizer.safetensors (fp32: "exp_avg.NAME", "exp_avg_sq.NAME" and, with bf16, "master.NAME") and
 * state.json. Each is written aside, synced and renamed, so that a kill at any moment or a full disk leaves the
 * previous ones whole. Weights go from the arena to the file: nothing is copied in memory. */
#ifndef BALLAST_TRAIN_CHECKPOINT_H
#define BALLAST_TRAIN_CHECKPOINT_H

#include "train/engine.h"

enum { CHECKPOINT_VERSION = 3 };

struct checkpoint_state {
    int64_t step; /* steps done */
    int64_t tokens;
    double loss;   /* of the last step */
    uint64_t bits; /* engine_hash of weights and optimizer state; checkpoint_write finds it out */
    uint64_t data; /* fingerprint of the dataset; checkpoint_write finds it out */
    struct plan plan;
};

/* What a checkpoint is made from and who waits for it; all borrowed. */
struct checkpoint_source {
    const char *run_folder;
    const struct engine *engine;
    const struct dataset *dataset;
    const struct train_options *options;
    void (*released)(void *payload); /* called when weights and state have been read and may change; NULL: nothing */
    void *payload;
};

/* Writes the checkpoint of state->step and then removes all but the newest `keep` (0: none is removed). `*folder` is
 * its path, for the caller to free. FAILED: what was there before is whole. An old one that cannot be removed is only
 * warned of. Weights and optimizer state must not change before `released`; the model's folder becomes the
 * checkpoint's. */
enum status checkpoint_write(const struct checkpoint_source *source, const struct checkpoint_state *state,
                             char **folder);
/* Removes all but the newest `keep` (0: none), which checkpoint_write does too. */
enum status checkpoint_remove_old(const char *run_folder, int64_t keep);
/* The newest one's path (the caller frees it), NULL when there is none. */
enum status checkpoint_find_newest(const char *run_folder, char **folder);
/* For a `newest` that is damaged, as the message says: hints at the one before it, where there is one, and returns
 * `status`. */
enum status checkpoint_hint_older(enum status status, const char *run_folder, const char *newest);
enum status checkpoint_read_state(const char *folder, struct checkpoint_state *out);

/* Writes RUN_DIR/model from the arena, in place of an older one. */
enum status checkpoint_write_model(const char *run_folder, const struct engine *engine);

#endif
