/* A directory that ranks write together: a checkpoint, or a run's model. Its files have the same bytes as if one rank
 * had written them. Large files are cut into blocks (manifest.h), counted through all files, and each rank computes the
 * checksums of a run of blocks.
 * - If every rank holds all of a file, it writes these blocks, too.
 * - If a rank holds only runs of its tensors' elements (a partition, plan/ranks.h), it writes those. It reads its
 *   blocks again when all ranks have written, since the blocks have bytes of many ranks.
 *
 * Rank 0 writes small files, and publishes the directory under its name when all ranks are done. If anything fails on
 * one rank, all ranks know, and an older directory of this name stays.
 *
 *     joint_folder_open(comm, parent, name, 0, &directory);
 *     status = joint_folder_add(&directory, file, items, runs, count);   on each rank the same, but for the runs
 *     TRY(joint_folder_begin(&directory, status));                       collective
 *
 *     status = joint_folder_write(&directory);                           on any thread; rank 0 adds small files
 *     if (directory.has_runs) status = joint_folder_meet(&directory, status);   collective
 *     if (status == STATUS_OK) status = joint_folder_sum(&directory);    on any thread
 *     status = joint_folder_gather(&directory, status, hashes, n);       collective
 *     if (status == STATUS_OK) status = joint_folder_publish(&directory);   on any thread
 *     status = joint_folder_end(&directory, status);                     collective
 *
 * All ranks make the collective calls, whatever the status of the calls between them, on the thread that communicates
 * between steps (on one rank, any thread). After a collective call that failed only joint_folder_end follows. */
#pragma once

#include "base/manifest.h"
#include "comm/comm.h"
#include "model/safetensors.h"

/* Checks that all ranks see one directory before they write checkpoints to it together. */

/* Collective. Rank 0 writes a file with a random name into the directory, which exists on rank 0. Every rank must find
 * and read it. BAD_INPUT on all ranks, naming the host that does not see it. Does nothing on one rank. */
enum status shared_folder_check(struct comm *comm, const char *folder);

enum { JOINT_FILES_MAX = 2 };

struct joint_file {
    char *path;
    struct safetensors_item *items; /* owned; the data they point to is borrowed */
    struct safetensors_run *runs;   /* owned; this rank's runs of them. NULL: every rank holds all */
    size_t count;
    uint64_t bytes, first_block; /* counted through all files */
    struct file_range mine;
    struct file_sums sums; /* of those bytes */
};

struct joint_folder {
    struct comm *comm;
    char *parent, *name, *path; /* path: of the temporary directory */
    uint64_t block_bytes;
    struct joint_file files[JOINT_FILES_MAX];
    size_t file_count;
    bool has_runs;            /* whether some file has runs: ranks then meet before they compute checksums */
    struct manifest manifest; /* on rank 0, of all files: small files first */
    bool made;                /* rank 0: there is a directory at `path` */
    bool agreed;              /* all ranks know of the failure */
};

/* parent/name. `block_bytes`: 0 for FILE_BLOCK_BYTES. FAILED without memory; joint_folder_end follows also then. */
enum status joint_folder_open(struct comm *comm, const char *parent, const char *name, uint64_t block_bytes,
                              struct joint_folder *out);
/* Adds a safetensors file of these items. `runs`: this rank's run of each item; all ranks' runs cover each item once,
 * and items have stores. NULL: every rank holds all. Takes over both, also on failure. */
enum status joint_folder_add(struct joint_folder *folder, const char *name, struct safetensors_item *items,
                             struct safetensors_run *runs, size_t count);
/* Collective: `mine` is the status of the calls before. Rank 0 makes an empty directory next to the final one. */
enum status joint_folder_begin(struct joint_folder *folder, enum status mine);
/* Writes and syncs this rank's ranges or runs. */
enum status joint_folder_write(struct joint_folder *folder);
/* Collective: `mine` is the status of this rank's writing. OK: all ranks have written. */
enum status joint_folder_meet(struct joint_folder *folder, enum status mine);
/* Computes checksums of files with runs; other files have them already. The rank whose blocks hold an item's first byte
 * makes its hash. */
enum status joint_folder_sum(struct joint_folder *folder);
/* Collective: `mine` is the status of this rank's writing. Fills in `hashes` (the same number on all ranks) that are 0
 * here from the other ranks. On rank 0 the manifest then has all large files. */
enum status joint_folder_gather(struct joint_folder *folder, enum status mine, uint64_t *hashes, size_t count);
/* Rank 0 writes the manifest and publishes the directory under its name; the others do nothing. */
enum status joint_folder_publish(struct joint_folder *folder);
/* Collective: `mine` is the status of the last call. Frees everything and removes a directory that was not
 * published. */
enum status joint_folder_end(struct joint_folder *folder, enum status mine);
/* Frees it without communication, after a failure that other ranks may not know of. Resuming removes the temporary
 * directory. */
void joint_folder_drop(struct joint_folder *folder);
