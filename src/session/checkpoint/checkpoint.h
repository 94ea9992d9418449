/* Checkpoints: RUN_DIR/checkpoints/step-00000100 is a Hugging Face directory with the weights in the recipe's dtype,
 * next to them optimizer.safetensors ("exp_avg.NAME", "exp_avg_sq.NAME", in the recipe's optimizer_dtype; in int8 they
 * are codes, next to scales "exp_avg_absmax.NAME"; and, with bf16, "master.NAME" in fp32 or "master_low.NAME" in 16
 * bits) and state.json, which says what it was made with, and the manifest of all of them (base/manifest.h). Each is
 * written aside, synced and renamed, so that a kill at any moment or a full disk leaves the previous ones whole.
 * Weights go from the arena to the file: nothing is copied in memory. What is written is checked on its way: a
 * checkpoint with a value that is not finite never gets its name.
 *
 * Files, in the order to read them: run_folder (a run's directory and settings, also those that resume changed);
 * joint_folder (a directory that ranks write together, whether all ranks see one); checkpoint (which there are, what
 * they say, their files against their checksums, and how checkpoints and models are written). */
#pragma once

#include "base/manifest.h"
#include "session/checkpoint/joint_folder.h"
#include "session/engine.h"

/* Since CHECKPOINT_FIRST_LISTED there is a manifest, since CHECKPOINT_FIRST_ANY_GRAPH `bits` are of weights and states
 * alone, whatever else the graph of a policy has. */
enum { CHECKPOINT_VERSION = 5, CHECKPOINT_FIRST_LISTED = 4, CHECKPOINT_FIRST_ANY_GRAPH = 5 };
extern const char checkpoint_state_name[]; /* of its file */

struct checkpoint_state {
    int64_t version; /* of the one that was read */
    int64_t step;    /* steps done */
    int64_t tokens;
    double loss;   /* of the last step */
    uint64_t bits; /* engine_hash of weights and optimizer state; checkpoint.c finds it out */
    uint64_t data; /* fingerprint of the dataset; checkpoint.c finds it out */
    uint64_t base; /* of a run of adapters: hash of the base model's config; checkpoint.c finds it out. Else 0 */
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
    uint64_t block_bytes; /* of checksums; 0: FILE_BLOCK_BYTES. Tests have small files of many blocks */
};

/* A checkpoint that is being written, by all ranks of the engine's session. In parts, since ranks ask each other
 * between steps alone and write next to them (joint_folder.h): after a part that is a rank's own the next follows,
 * whatever its status, after a collective one that failed checkpoint_end, which comes last. */
struct checkpoint_saving {
    const struct checkpoint_source *source;
    struct checkpoint_state state;
    struct joint_folder folder;
    uint64_t *hashes; /* of tensors, by id; 0: another rank's, or not known yet */
    bool *written;    /* by id: has a place in the files */
    char *path;       /* of the whole checkpoint */
};

/* Collective, between steps: makes the directory of the checkpoint of state->step. Both are borrowed until the end. */
enum status checkpoint_begin(const struct checkpoint_source *source, const struct checkpoint_state *state,
                             struct checkpoint_saving *out);
/* Writes and syncs this rank's part, on any thread. Weights and optimizer state must not change before `released`,
 * which is called in any case. FAILED, also for a weight or optimizer state that is not finite, which the message
 * names. */
enum status checkpoint_write_part(struct checkpoint_saving *saving);
/* Where ranks have but runs of tensors (joint_folder.has_runs), this after joint_folder_meet, else neither. On any
 * thread: makes the checksums of what all have written. */
enum status checkpoint_sum_part(struct checkpoint_saving *saving);
/* Collective, between steps: `mine` is what came of the part before on this rank. */
enum status checkpoint_gather(struct checkpoint_saving *saving, enum status mine);
/* On any thread, where that was OK: rank 0 gives the checkpoint its name, and then removes all but the newest that the
 * options keep. An old one that cannot be removed is only warned of. */
enum status checkpoint_publish(struct checkpoint_saving *saving);
/* Collective, between steps. OK: `*folder` is its path, for the caller to free, and the model's directory becomes the
 * checkpoint's. Else, on all ranks, what was there before is whole. */
enum status checkpoint_end(struct checkpoint_saving *saving, enum status mine, char **folder);
/* Frees it without asking the others, in place of checkpoint_end: after a failure that they may not know of. */
void checkpoint_drop(struct checkpoint_saving *saving);
/* Removes all but the newest `keep` (0: none), which checkpoint_publish does too. */
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
/* What its manifest finds in a checkpoint, a run's model or any other directory. */
struct checkpoint_examination {
    bool listed; /* there is a manifest */
    size_t files;
    uint64_t bytes;
    struct manifest_findings findings; /* for the caller to free; in a checkpoint also files that were added */
};
/* BAD_INPUT for a manifest that is damaged, or lost from a checkpoint that had one. */
enum status checkpoint_examine(const char *folder, struct checkpoint_examination *out);
/* Reads all files of a checkpoint again: BAD_INPUT "DIR: damaged: FILE: …" where one is not as it was written, or
 * there are others. Warns where the checkpoint is of an older version, which had no checksums. Collective: each rank
 * reads a share of the blocks, and what one finds all return. `comm` NULL: this process reads all. */
enum status checkpoint_verify(struct comm *comm, const char *folder);
/* BAD_INPUT when a checkpoint holds adapters and their base model has another config now. */
enum status checkpoint_verify_base(const struct checkpoint_state *state, const struct model *model);
/* The same for the files of a model: those in the directory that it was opened from (NULL: they are verified already)
 * and, where it has adapters, those of its base model. A directory without a manifest passes; added files are allowed.
 */
enum status checkpoint_verify_model(struct comm *comm, const char *folder, const struct model *model);

/* Collective: writes RUN_DIR/model from the arenas, in place of an older one. Its manifest lists the weights alone:
 * settings and tokenizer files of a finished model are its owner's to edit. */
enum status checkpoint_write_model(const char *run_folder, const struct engine *engine);
