/* Which MPI this process belongs to, and its plugin.
 *
 * What launched the process says it: Open MPI's mpirun and srun --mpi=pmix leave OMPI_COMM_WORLD_SIZE or PMIX_RANK in
 * the environment, MPICH's mpiexec and srun --mpi=pmi2 leave PMI_RANK or PMI_FD. Slurm's own variables say nothing:
 * they are also there in a batch script, which is one process. BALLAST_MPI overrules all of it.
 *
 * Plugins (ballast-mpi-openmpi.so, ballast-mpi-mpich.so) are looked for in the directory BALLAST_PLUGINS alone where
 * that is set; else next to the program or libballast.so, and in lib/ballast where these are installed. They are opened
 * for all of the process (RTLD_GLOBAL), since parts of an MPI library are opened later by itself and look for its
 * symbols there. */
#ifndef BALLAST_COMM_MPI_LIBRARY_H
#define BALLAST_COMM_MPI_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "comm/wire.h"

struct mpi_library {
    const struct wire *wire; /* NULL: this process is alone */
};

/* `engine` as in comm_settings. BAD_INPUT, with what to install, where the plugin or its MPI is missing, and where it
 * is no plugin of this version. */
enum status mpi_library_find(const char *engine, struct mpi_library *out);
/* "self", "openmpi" or "mpich", by the environment alone. */
const char *mpi_library_launched_by(void);
/* The engine of this process: BALLAST_MPI, else as above. */
const char *mpi_library_chosen(void);
/* Which rank the launcher made of this process; -1 where none did. The first is 0 in the mesh too. */
int mpi_library_launched_rank(void);
/* The hint for a process that dies while MPI begins: what of this machine MPI may lack. "" where nothing is known. */
void mpi_library_explain_start(char *hint, size_t bytes);
/* The plugin's path, NULL where there is none; the caller frees. */
char *mpi_library_path(const char *name);

#endif
