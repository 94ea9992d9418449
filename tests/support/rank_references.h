/* The results of one rank for each case, in a file with which ranks compare theirs. */
#pragma once

#include "support/rank_case.h"

/* Trains the cases on one rank, with the backend (NULL: the CPU's). Returns the file's path, in the directory. */
const char *rank_references_write(const char *folder, const struct rank_case *cases, size_t count,
                                  const struct backend *backend);
/* Trains those of the file's cases that so many ranks hold. FAILED where the bits are others, and where ranks
 * communicate what is in the memory of their devices but not `on_device`, or the other way round. */
enum status rank_references_train(const char *path, struct comm *comm, const struct backend *backend, bool on_device);
