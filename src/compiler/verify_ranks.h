/* A part of program_verify_ranks: the ranks' operations meet. */
#pragma once

#include "compiler/program.h"

/* Walks a step of all ranks' programs, deferred updates included. In a turn the operations are made that come next on
 * all ranks of their groups; `visitor` gets them: by rank the index of its operation, -1 where it waits for a later
 * turn. FAILED, naming the rank, where its next operation is another than that of its group's other ranks, where ranks
 * wait for each other for ever, in a step or when they make their operations before it, and where operations meet that
 * were not made together. */
typedef enum status matching_visitor(void *payload, const int32_t *operations);
enum status program_verify_matching(const struct program *const *programs, int ranks, matching_visitor *visitor,
                                    void *payload);
