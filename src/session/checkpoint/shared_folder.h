/* Whether all ranks see one directory: checkpoints are written to it together. */
#ifndef BALLAST_SESSION_CHECKPOINT_SHARED_FOLDER_H
#define BALLAST_SESSION_CHECKPOINT_SHARED_FOLDER_H

#include "comm/comm.h"

/* Collective. Rank 0 writes a file with a random name into the directory, which is there on rank 0, and every rank must
 * find and read it. BAD_INPUT on all ranks, naming the host that does not. Nothing is written on one rank. */
enum status shared_folder_check(struct comm *comm, const char *folder);

#endif
