/* Checkpoints: RUN_DIR/checkpoints/step-00000100 is a Hugging Face directory with the weights in the recipe's dtype,
 * beside them optimizer.safetensors (fp32: "exp_avg.NAME", "exp_avg_sq.NAME" and, with bf16, "master.NAME") and
 * state.json, which says what it was made with, and the manifest of all of them (base/manifest.h). Each is written
 * aside, synced and renamed, so that a kill at any moment or a full disk leaves the previous ones whole. Weights go
 * from the arena to the file: nothing is copied in memory. What is written is checked on its way: a checkpoint with a
 * value that is not finite never gets its name.
 *
 * Files, in the order to read them: run_folder (a run's folder and settings); recipe_change (what of a recipe was
 * changed on purpose); checkpoint; checkpoint_verify (its files against their checksums). */
#ifndef BALLAST_CHECKPOINT_CHECKPOINT_H
#define BALLAST_CHECKPOINT_CHECKPOINT_H

#include "base/manifest.h"
#include "session/engine.h"

/* Since CHECKPOINT_FIRST_LISTED there is a manifest. */
enum { CHECKPOINT_VERSION = 4, CHECKPOINT_FIRST_LISTED = 4 };
extern const char checkpoint_optimizer_name[], checkpoint_state_name[]; /* of their files */

struct checkpoint_state {
    int64_t version; /* of the one that was read */
    int64_t step;    /* steps done */
    int64_t tokens;
    double loss;   /* of the last step */
    uint64_t bits; /* engine_hash of weights and optimizer state; checkpoint_write finds it out */
    uint64_t data; /* fingerprint of the dataset; checkpoint_write finds it out */
    uint64_t base; /* of a run of adapters: hash of the base model's config; checkpoint_write finds it out. Else 0 */
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
 * its path, for the caller to free. FAILED, also for a weight or optimizer state that is not finite, which the message
 * names: what was there before is whole. An old one that cannot be removed is only
 * warned of. Weights and optimizer state must not change before `released`; the model's folder becomes the
 * checkpoint's. */
enum status checkpoint_write(const struct checkpoint_source *source, const struct checkpoint_state *state,
                             char **folder);
/* Removes all but the newest `keep` (0: none), which checkpoint_write does too. */
enum status checkpoint_remove_old(const char *run_folder, int64_t keep);
/* Their names, by step; free with names_free. */
enum status checkpoint_list(const char *run_folder, struct names *out);
/* The newest one's path (the caller frees it), NULL when there is none. */
enum status checkpoint_find_newest(const char *run_folder, char **folder);
/* For a `newest` that is damaged, as the message says: hints at the one before it, where there is one, and returns
 * `status`. */
enum status checkpoint_hint_older(enum status status, const char *run_folder, const char *newest);
/* Only state.json: checkpoint_verify comes first. */
enum status checkpoint_read_state(const char *folder, struct checkpoint_state *out);
/* What its manifest finds in a checkpoint, a run's model or any other folder. */
struct checkpoint_examination {
    bool listed; /* there is a manifest */
    size_t files;
    uint64_t bytes;
    struct manifest_findings findings; /* for the caller to free; in a checkpoint also files that were added */
};
/* BAD_INPUT for a manifest that is damaged, or lost from a checkpoint that had one. */
enum status checkpoint_examine(const char *folder, struct checkpoint_examination *out);
/* Reads all files of a checkpoint again: BAD_INPUT "FOLDER: damaged: FILE: …" where one is not as it was written, or
 * there are others. Warns where the checkpoint is of an older version, which had no checksums. */
enum status checkpoint_verify(const char *folder);
/* BAD_INPUT when a checkpoint holds adapters and their base model has another config now. */
enum status checkpoint_verify_base(const struct checkpoint_state *state, const struct model *model);
/* state->base for this model. */
enum status checkpoint_hash_base(const struct model *model, uint64_t *hash);
/* The same for the files of a model: those in the folder that it was opened from (NULL: they are verified already) and,
 * where it has adapters, those of its base model. A folder without a manifest passes; added files are allowed. */
enum status checkpoint_verify_model(const char *folder, const struct model *model);

/* Writes RUN_DIR/model from the arena, in place of an older one. Its manifest lists the weights alone: settings and
 * tokenizer files of a finished model are its owner's to edit. */
enum status checkpoint_write_model(const char *run_folder, const struct engine *engine);

#endif
