/* Checkpoints. RUN_DIR/checkpoints/step-00000100 is a Hugging Face directory with the weights in the recipe's dtype,
 * and:
 * - optimizer.safetensors: "exp_avg.NAME" and "exp_avg_sq.NAME" in the recipe's optimizer_dtype. In int8 they are
 *   codes, with scales "exp_avg_absmax.NAME". With bf16 also "master.NAME" in fp32, or "master_low.NAME" in 16 bits.
 * - state.json: the settings it was made with.
 * - the manifest of all files (base/manifest.h).
 *
 * Each checkpoint is written to a temporary directory, synced and renamed. So a kill or a full disk at any moment
 * leaves the earlier ones intact. Weights go from the arena to the file without a copy in memory. Every value is
 * checked on its way: a checkpoint with a non-finite value is never published.
 *
 * Files, in the order to read them:
 * - run_folder: a run's directory and settings, including those that resume changed
 * - joint_folder: a directory that ranks write together, and whether all ranks see one
 * - checkpoint: lists checkpoints, reads their state, verifies their checksums, and writes checkpoints and models */
#pragma once

#include "base/manifest.h"
#include "session/checkpoint/joint_folder.h"
#include "session/engine.h"

/* CHECKPOINT_FIRST_LISTED added the manifest. Since CHECKPOINT_FIRST_ANY_GRAPH, `bits` covers weights and states only,
 * whatever else a policy's graph has. */
enum { CHECKPOINT_VERSION = 5, CHECKPOINT_FIRST_LISTED = 4, CHECKPOINT_FIRST_ANY_GRAPH = 5 };
extern const char checkpoint_state_name[]; /* of the state's file */

struct checkpoint_state {
    int64_t version; /* of the checkpoint that was read */
    int64_t step;    /* steps done */
    int64_t tokens;
    double loss;   /* of the last step */
    uint64_t bits; /* engine_hash of weights and optimizer state; set by checkpoint.c */
    uint64_t data; /* fingerprint of the dataset; set by checkpoint.c */
    uint64_t base; /* adapters: hash of the base model's config, set by checkpoint.c; otherwise 0 */
    struct plan plan;
};

/* Sources of a checkpoint, and the callback for its progress; all borrowed. */
struct checkpoint_source {
    const char *run_folder;
    const struct engine *engine;
    const struct dataset *dataset;
    const struct train_options *options;
    void (*released)(void *payload); /* called once weights and state have been read and may change; NULL: no call */
    void *payload;
    uint64_t block_bytes; /* of checksums; 0: FILE_BLOCK_BYTES. Tests use small files of many blocks */
};

/* A checkpoint that all ranks of the engine's session are writing. It is written in parts, since ranks communicate only
 * between steps and write during them (joint_folder.h). After a rank's own part the next one follows, whatever its
 * status. After a collective part that failed, checkpoint_end follows, which comes last. */
struct checkpoint_saving {
    const struct checkpoint_source *source;
    struct checkpoint_state state;
    struct joint_folder folder;
    uint64_t *hashes; /* of tensors, by id; 0: another rank's, or not computed yet */
    bool *written;    /* by id: the tensor is in a file */
    char *path;       /* of the complete checkpoint */
};

/* Collective, between steps: makes the directory of the checkpoint of state->step. Both are borrowed until the end. */
enum status checkpoint_begin(const struct checkpoint_source *source, const struct checkpoint_state *state,
                             struct checkpoint_saving *out);
/* Writes and syncs this rank's part, on any thread. Weights and optimizer state must not change before `released`,
 * which is called in any case. FAILED, also if a weight or optimizer state is not finite; the message names it. */
enum status checkpoint_write_part(struct checkpoint_saving *saving);
/* Computes checksums of all ranks' bytes, on any thread. Call it after joint_folder_meet if ranks hold only runs of
 * tensors (joint_folder.has_runs); otherwise call neither. */
enum status checkpoint_sum_part(struct checkpoint_saving *saving);
/* Collective, between steps. `mine` is this rank's status of the part before. */
enum status checkpoint_gather(struct checkpoint_saving *saving, enum status mine);
/* On any thread, if that was OK: rank 0 publishes the checkpoint under its name, then removes all but the newest that
 * the options keep. Warns if an old one cannot be removed. */
enum status checkpoint_publish(struct checkpoint_saving *saving);
/* Collective, between steps. OK: `*folder` is its path, for the caller to free, and the model's directory becomes the
 * checkpoint's. On failure, on all ranks, earlier checkpoints are intact. */
enum status checkpoint_end(struct checkpoint_saving *saving, enum status mine, char **folder);
/* Frees it without communication, in place of checkpoint_end: after a failure that other ranks may not know of. */
void checkpoint_drop(struct checkpoint_saving *saving);
/* Removes all but the newest `keep` (0: removes none), as checkpoint_publish does. */
enum status checkpoint_remove_old(const char *run_folder, int64_t keep);
/* Lists names of checkpoints, by step. Free with names_free. */
enum status checkpoint_list(const char *run_folder, struct names *out);
/* The newest one's path (the caller frees it), or NULL if there is none. */
enum status checkpoint_find_newest(const char *run_folder, char **folder);
/* Hints at the checkpoint before a damaged `newest`, if there is one. Keeps the message and returns `status`. */
enum status checkpoint_hint_older(enum status status, const char *run_folder, const char *newest);
/* Reads only state.json. Call checkpoint_verify first. */
enum status checkpoint_read_state(const char *folder, struct checkpoint_state *out);
/* Comparison of a checkpoint, a run's model or any other directory with its manifest. */
struct checkpoint_examination {
    bool listed; /* there is a manifest */
    size_t files;
    uint64_t bytes;
    struct manifest_findings findings; /* for the caller to free; for a checkpoint also added files */
};
/* BAD_INPUT if a manifest is damaged, or missing from a checkpoint that had one. */
enum status checkpoint_examine(const char *folder, struct checkpoint_examination *out);
/* Reads all files of a checkpoint again. BAD_INPUT "DIR: damaged: FILE: …" if one differs from its checksums, or if
 * there are other files. Warns if the checkpoint's version had no checksums. Collective: each rank reads a share of the
 * blocks, and all return the findings of any. `comm` NULL: this process reads all. */
enum status checkpoint_verify(struct comm *comm, const char *folder);
/* BAD_INPUT if a checkpoint holds adapters and the config of their base model has changed. */
enum status checkpoint_verify_base(const struct checkpoint_state *state, const struct model *model);
/* Verifies the files of a model likewise: those in the directory that it was opened from (NULL: already verified) and,
 * with adapters, those of its base model. Passes a directory without a manifest. Added files are allowed. */
enum status checkpoint_verify_model(struct comm *comm, const char *folder, const struct model *model);

/* Collective: writes RUN_DIR/model from the arenas, replacing an older one. Its manifest lists only the weights: the
 * owner may edit settings and tokenizer files. */
enum status checkpoint_write_model(const char *run_folder, const struct engine *engine);
