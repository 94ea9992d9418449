/* The order that a program's waits guarantee, for its proof.
 *
 * The proof shares neither the unrolling nor the clocks of happens.h, by which the waits are added: a fault in both
 * would go unnoticed. It unrolls a program into a list of all issues, and finds what an issue waits for by the rule
 * that the runner follows (program_issues_required). */
#ifndef BALLAST_COMPILER_PROOF_ORDER_H
#define BALLAST_COMPILER_PROOF_ORDER_H

#include "compiler/happens.h"

struct proof_issue {
    int32_t instruction;
    int64_t number;             /* on its stream, from 1 */
    int64_t section_repetition; /* counts the repetitions of all sections over all steps */
    struct clock finished;      /* by stream: how many issues are certain to have ended when this one ends */
};

/* Calls `visitor` for every issue of two steps in the order of issue, with repeated sections cut to three repetitions,
 * which covers every pair of neighbours. Stops at the first status that is not OK. FAILED also where a wait is for an
 * issue that comes later, and without memory. */
enum status proof_order_walk(const struct program *program,
                             enum status (*visitor)(void *payload, const struct proof_issue *issue), void *payload);

/* True when issue `number` of `stream` is certain to have ended before the present one, on `own_stream`, starts. */
static inline bool proof_ended(const struct proof_issue *issue, int own_stream, int stream, int64_t number) {
    return stream == own_stream ? number < issue->number : issue->finished.ended[stream] >= number;
}

#endif
