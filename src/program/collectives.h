/* Operations between ranks in programs: what each is, and what it takes of a rank. */
#ifndef BALLAST_PROGRAM_COLLECTIVES_H
#define BALLAST_PROGRAM_COLLECTIVES_H

#include "program/program.h"

/* Appends an all-reduce over all ranks of `bytes` of sums of a round to program->collectives. program->place and
 * program->lanes are set. */
enum status collectives_add_reduction(struct program *program, const struct recipe *recipe, int64_t round,
                                      int64_t bytes, int64_t *staging_bytes);

/* The operation's specification, without addresses. `tree`: where the order of its sums is put; the caller frees it
 * with lane_tree_free when the operation or schedule is made, also after a failure. */
enum status collectives_spec(const struct program *program, int32_t collective, struct lane_tree *tree,
                             struct comm_spec *out);

#endif
