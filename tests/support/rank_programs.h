/* The programs of all ranks of a plan. */
#pragma once

#include "compiler/program.h"

enum { RANK_PROGRAMS_MAX = 12 };

struct rank_programs {
    int count;
    struct plan plan; /* of rank 0 */
    struct program *programs[RANK_PROGRAMS_MAX];
};

/* Compiles each rank's program, with kernels' workspaces of `bytes` by node; not proved. The caller calls
 * rank_programs_drop also after an error. */
enum status rank_programs_compile(const struct graph *graph, const struct plan *plan, const int64_t *bytes,
                                  struct rank_programs *out);
/* The same with workspaces as small graphs have them. */
enum status rank_programs_compile_small(const struct graph *graph, const struct plan *plan, struct rank_programs *out);
void rank_programs_drop(struct rank_programs *ranks);
/* program_verify_ranks. */
enum status rank_programs_verify(const struct rank_programs *ranks);
/* Compiles as in small graphs, and proves. */
enum status rank_programs_prove(const struct graph *graph, const struct plan *plan, struct rank_programs *out);

/* What a sweep of faults compiles, proves and drops: the body's payload. */
struct rank_subject {
    const struct graph *graph;
    struct plan plan;
    const int64_t *bytes; /* of kernels' workspaces, by node */
};
enum status rank_programs_prove_subject(void *subject);
