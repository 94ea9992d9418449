/* The weights and optimizer states of all ranks in one file of a directory that all of them reach: each writes a part,
 * and reads what another plan has it hold, whatever the partition of either. The bytes are the same. */
#ifndef BALLAST_SESSION_STATES_FILE_H
#define BALLAST_SESSION_STATES_FILE_H

#include "session/engine.h"

/* Collective, as is reading: between two steps, after engine_settle. *path is the file's, for mem_free, or NULL; on
 * failure, which all ranks share, the file is gone. */
enum status states_file_write(const struct engine *engine, const char *folder, char **path);
/* Into an engine of the same recipe. */
enum status states_file_read(const struct engine *engine, const char *path);
/* Once all ranks have read. By rank 0; nothing on others. */
void states_file_remove(const struct comm *comm, const char *path);

#endif
