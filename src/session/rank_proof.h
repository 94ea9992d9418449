/* The proof, before the first step, that the programs of all ranks fit together (program_verify_ranks). */
#ifndef BALLAST_SESSION_RANK_PROOF_H
#define BALLAST_SESSION_RANK_PROOF_H

#include "plan/plan.h"
#include "runtime/executable.h"

/* With more ranks it takes too long for a start: they are proved one by one alone. */
enum { RANK_PROOF_MOST = 8 };

/* Whether it is made: for few ranks, all of which have the same graph. */
static inline bool rank_proof_is_made(const struct rank_place *place) {
    int ranks = rank_place_ranks(place);
    return ranks > 1 && ranks <= RANK_PROOF_MOST && ranks == rank_place_data(place);
}
/* For rank 0, with its training step under a plan: compiles the steps of the others and proves all of them together.
 * FAILED with what does not fit, which is a fault of Ballast's. OK without a look where it is not made. */
enum status rank_proof_make(const struct executable *step, const struct plan *plan);

#endif
