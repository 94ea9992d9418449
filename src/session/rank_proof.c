#include "session/rank_proof.h"

#include "base/mem.h"

/* The others' go to programs[1…]. */
static enum status compile_others(const struct executable *step, const struct plan *plan, int ranks,
                                  struct program **programs) {
    int64_t *bytes = executable_workspace(step);
    if (!bytes) return STATUS_FAILED;
    const struct workspace_table table = {bytes, (int)step->graph->nodes.count};
    enum status status = STATUS_OK;
    for (int rank = 1; rank < ranks && status == STATUS_OK; rank++) {
        struct plan own = *plan;
        own.place.rank = rank;
        status = program_compile_unproved(step->graph, &own, &table, &programs[rank]);
    }
    mem_free(bytes);
    return status;
}

enum status rank_proof_make(const struct executable *step, const struct plan *plan) {
    int ranks = rank_place_ranks(&plan->place);
    struct program *programs[RANK_PROOF_MOST] = {NULL};
    if (!rank_proof_is_made(&plan->place)) return STATUS_OK;
    BUG_IF(plan->place.rank != 0, "rank %d proves the programs of all", plan->place.rank);
    programs[0] = step->program;
    enum status status = compile_others(step, plan, ranks, programs);
    if (status == STATUS_OK)
        status = program_verify_ranks((const struct program *const *)programs, ranks, &plan->recipe);
    for (int rank = 1; rank < ranks; rank++)
        program_free(programs[rank]);
    return status;
}
