/* Jobs of several ranks for tests: the installed MPI, jobs of the program that a user's mpirun starts, jobs whose
 * ranks are the test program, and the processes of both. */
#pragma once

#include <stdbool.h>

#include "comm/comm.h"
#include "support/run_program.h"

/* ---- The MPI ---- */

/* First of all in main: takes the MPI that BALLAST_TEST_MPI names ("openmpi" else) for all that follows, --ranks
 * included. Ends the test as skipped where it is not installed with its plugin. */
void mpi_job_require(void);
/* "openmpi" or "mpich". */
const char *mpi_job_name(void);
bool mpi_job_is(const char *name);

/* ---- Jobs of the program ---- */

/* A shell's command. In it "$MPIRUN" is this MPI's mpirun, with options by which it starts more ranks than there are
 * cores, and "$BALLAST" is the program. `folder` as for program_run; program_finish waits. */
pid_t mpi_job_start(const char *folder, const char *format, ...) __attribute__((format(printf, 2, 3)));
struct program_run mpi_job_run(const char *folder, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* How many lines of `text` have this part. */
int count_lines_with(const char *text, const char *part);

/* ---- Their processes ---- */

enum { MPI_JOB_RANKS = 16 };
/* The ranks that are there whose command line has `mark`, a directory's path for example, each at its number; 0 where
 * there is none. Returns how many. */
int mpi_job_find(const char *mark, int ranks[MPI_JOB_RANKS]);
/* Waits until the process that program_start began has so many. */
void mpi_job_await(const char *folder, pid_t process, const char *mark, int count, int ranks[MPI_JOB_RANKS]);
/* How many processes have it in their command line, mpirun among them. */
int mpi_job_count(const char *mark);
/* Waits until no process at all has it in its command line; after a minute the test fails. */
void mpi_job_expect_none(const char *mark);

/* ---- Jobs of the test program ----
 *
 *     int main(int count, char **argument) {
 *         rank_job_enter(count, argument, body);               in a rank: runs the body and ends the process
 *         …cmocka…
 *     }
 *     rank_job_run(&(struct rank_job){.ranks = 4, .nodes = 2, .words = {"grow"}});      in a test case
 */
enum { RANK_JOB_ARGUMENTS = 3 };

struct rank_job {
    int ranks, nodes; /* nodes 0: as MPI finds them */
    bool messages;    /* no windows */
    const char *arguments[RANK_JOB_ARGUMENTS];
};

/* What each rank does with the job's arguments ("" where the job has fewer). */
typedef enum status rank_job_body(struct comm *comm, const char *const arguments[RANK_JOB_ARGUMENTS]);

/* First of all in main. Does what mpi_job_require does in a program that is no rank. */
void rank_job_enter(int count, char **argument, rank_job_body *body);
/* Ranks may be silent for 60 s, or as long as RANK_JOB_TIMEOUT_S in the environment says. The job's status, with the
 * message of the rank that failed first. Says how long it took. */
enum status rank_job_run(const struct rank_job *job);
