/* The program on several ranks, for tests: which MPI is here, jobs that a user's own mpirun starts, and their
 * processes. */
#ifndef BALLAST_TESTS_MPI_JOB_H
#define BALLAST_TESTS_MPI_JOB_H

#include <stdbool.h>

#include "support/run_program.h"

/* First of all in main: takes the MPI that BALLAST_TEST_MPI names ("openmpi" else) for all that follows, --ranks
 * included. Ends the test as skipped where it is not installed with its plugin. */
void mpi_job_require(void);
/* Whether it is this one. */
bool mpi_job_is(const char *name);

/* A shell's command. In it "$MPIRUN" is this MPI's mpirun, with options by which it starts more ranks than there are
 * cores, and "$BALLAST" is the program. `folder` as for program_run; program_finish waits. */
pid_t mpi_job_start(const char *folder, const char *format, ...) __attribute__((format(printf, 2, 3)));
struct program_run mpi_job_run(const char *folder, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* How many lines of `text` have this part. */
int count_lines_with(const char *text, const char *part);

enum { MPI_JOB_RANKS = 16 };
/* The ranks that are there whose command line has `mark`, a folder's path for example, each at its number; 0 where
 * there is none. Returns how many. */
int mpi_job_find(const char *mark, int ranks[MPI_JOB_RANKS]);
/* Waits until the process that program_start began has so many. */
void mpi_job_await(const char *folder, pid_t process, const char *mark, int count, int ranks[MPI_JOB_RANKS]);
/* Waits until no process at all has it in its command line; after a minute the test fails. */
void mpi_job_expect_none(const char *mark);

#endif
