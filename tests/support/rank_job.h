/* A test program that is also what the ranks of its MPI jobs are.
 *
 *     int main(int count, char **argument) {
 *         rank_job_enter(count, argument, body);               in a rank: runs the body and ends the process
 *         …cmocka…
 *     }
 *     rank_job_run(&(struct rank_job){.ranks = 4, .nodes = 2, .words = {"grow"}});      in a test case
 */
#ifndef BALLAST_TESTS_RANK_JOB_H
#define BALLAST_TESTS_RANK_JOB_H

#include "comm/comm.h"

enum { RANK_JOB_WORDS = 3 };

struct rank_job {
    int ranks, nodes; /* nodes 0: as MPI finds them */
    bool messages;    /* no windows */
    const char *words[RANK_JOB_WORDS];
};

/* What each rank does with the job's words ("" where the job has fewer). */
typedef enum status rank_job_body(struct comm *comm, const char *const words[RANK_JOB_WORDS]);

/* First of all. Ends a program that is no rank as one that is skipped, where the MPI that BALLAST_TEST_MPI names
 * (default: openmpi) is not installed. */
void rank_job_enter(int count, char **argument, rank_job_body *body);
/* The MPI that starts jobs: "openmpi" or "mpich". */
const char *rank_job_mpi(void);
/* The job's status, with the message of the rank that failed first. Says how long it took. */
enum status rank_job_run(const struct rank_job *job);

#endif
