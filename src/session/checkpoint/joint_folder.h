/* A directory that ranks write together: a checkpoint, or a run's model. Its files are one rank's, byte for byte. Large
 * ones are cut into blocks (manifest.h), counted through all of them, and each rank makes the checksums of a run of
 * blocks. Where every rank has all of a file it writes these blocks too. Where a rank has but runs of its tensors'
 * elements (a partition, plan/ranks.h), it writes those, and reads its blocks again when all have written: the
 * blocks are of many ranks' bytes. Rank 0 writes what is small, and gives the directory its name when all ranks are
 * done. What fails on one rank is known to all, and then there is no such directory: an older one of this name stays.
 *
 *     joint_folder_open(comm, parent, name, 0, &directory);
 *     status = joint_folder_add(&directory, file, items, runs, count);   on each rank the same, but for the runs
 *     TRY(joint_folder_begin(&directory, status));                       collective
 *     status = joint_folder_write(&directory);                           on any thread; on rank 0 also what is small
 *     if (directory.has_runs) status = joint_folder_meet(&directory, status);   collective
 *     if (status == STATUS_OK) status = joint_folder_sum(&directory);    on any thread
 *     status = joint_folder_gather(&directory, status, hashes, n);       collective
 *     if (status == STATUS_OK) status = joint_folder_publish(&directory);   on any thread
 *     status = joint_folder_end(&directory, status);                     collective
 *
 * Collective calls are made by all ranks, whatever came of the calls between them, and by the thread that makes the
 * others between steps; on one rank by any thread. After a collective call that failed only joint_folder_end follows.
 */
#pragma once

#include "base/manifest.h"
#include "comm/comm.h"
#include "model/safetensors.h"

/* Whether all ranks see one directory: checkpoints are written to it together. */

/* Collective. Rank 0 writes a file with a random name into the directory, which is there on rank 0, and every rank must
 * find and read it. BAD_INPUT on all ranks, naming the host that does not. Nothing is written on one rank. */
enum status shared_folder_check(struct comm *comm, const char *folder);

enum { JOINT_FILES_MAX = 2 };

struct joint_file {
    char *path;
    struct safetensors_item *items; /* owned; what they point to is borrowed */
    struct safetensors_run *runs;   /* owned; what this rank has of them. NULL: every rank has all */
    size_t count;
    uint64_t bytes, first_block; /* counted through all files */
    struct file_range mine;
    struct file_sums sums; /* of those bytes */
};

struct joint_folder {
    struct comm *comm;
    char *parent, *name, *path; /* path: where it is while it is written */
    uint64_t block_bytes;
    struct joint_file files[JOINT_FILES_MAX];
    size_t file_count;
    bool has_runs;            /* some file has: ranks meet before they make checksums */
    struct manifest manifest; /* on rank 0, of all that is listed: small files first */
    bool made;                /* rank 0: there is a directory at `path` */
    bool agreed;              /* all ranks know of the failure */
};

/* parent/name. `block_bytes`: 0 for FILE_BLOCK_BYTES. FAILED without memory; joint_folder_end follows all the same. */
enum status joint_folder_open(struct comm *comm, const char *parent, const char *name, uint64_t block_bytes,
                              struct joint_folder *out);
/* A safetensors file of these items. With `runs`, by item, this rank has these of them, all ranks' runs are each item
 * once, and items have stores; NULL: all ranks have all. It takes over both, on failure too. */
enum status joint_folder_add(struct joint_folder *folder, const char *name, struct safetensors_item *items,
                             struct safetensors_run *runs, size_t count);
/* Collective: `mine` is what came of the calls before. Rank 0 makes an empty directory next to the final one. */
enum status joint_folder_begin(struct joint_folder *folder, enum status mine);
/* Writes and syncs this rank's ranges or runs. */
enum status joint_folder_write(struct joint_folder *folder);
/* Collective: `mine` is what came of this rank's writing. OK: all ranks have written. */
enum status joint_folder_meet(struct joint_folder *folder, enum status mine);
/* Makes the checksums of files with runs; those of others are there. An item's hash is made by the rank that has its
 * first byte in its blocks. */
enum status joint_folder_sum(struct joint_folder *folder);
/* Collective: `mine` is what came of this rank's writing. `hashes` (the same number on all ranks) takes what other
 * ranks have of those that are 0 here. On rank 0 the manifest has all large files then. */
enum status joint_folder_gather(struct joint_folder *folder, enum status mine, uint64_t *hashes, size_t count);
/* Rank 0 writes the manifest and gives the directory its name; the others do nothing. */
enum status joint_folder_publish(struct joint_folder *folder);
/* Collective: `mine` is the status of the last call. Frees all; what was not published is removed. */
enum status joint_folder_end(struct joint_folder *folder, enum status mine);
/* Without asking the others: for a failure that they may not know of. What is there is removed when the run goes on. */
void joint_folder_drop(struct joint_folder *folder);
