/* The proof, before the first step, that the programs of all ranks fit together (program_verify_ranks). */
#ifndef BALLAST_SESSION_RANK_PROOF_H
#define BALLAST_SESSION_RANK_PROOF_H

#include "session/programs.h"

/* With more ranks it takes too long for a start: they are proved one by one alone. */
enum { RANK_PROOF_MAX = 8 };

/* Whether it is made: for few ranks. */
static inline bool rank_proof_is_made(const struct rank_place *place) {
    int ranks = rank_place_ranks(place);
    return ranks > 1 && ranks <= RANK_PROOF_MAX;
}
/* For rank 0, with its training step of the set under a plan: compiles the steps of the others, stages and ranks that
 * share tensors among them, and proves all of them together. FAILED with what does not fit, which is a fault of
 * Ballast's. OK without a look where it is not made. */
enum status rank_proof_make(const struct session *session, const struct program_set *set, const struct executable *step,
                            const struct plan *plan);

#endif
