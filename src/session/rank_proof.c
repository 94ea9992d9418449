#include "session/rank_proof.h"

#include "base/mem.h"

/* The programs of all ranks, and the graphs of those that share tensors with rank 0, by their place among these: they
 * have its nodes, whose operands are other parts. Of [0] neither is owned. */
struct proof {
    const struct session *session;
    const struct program_set *set;
    const struct executable *step;
    struct graph *graphs[RANK_PROOF_MAX];
    struct program *programs[RANK_PROOF_MAX];
};

static enum status find_graph(struct proof *proof, const struct plan *own, const struct graph **out) {
    struct graph **graph = &proof->graphs[rank_place_tensor_rank(&own->place)];
    if (!*graph) TRY(program_build_graph(proof->session, proof->set, PROGRAM_STEP, own, graph));
    *out = *graph;
    if ((*graph)->nodes.count == proof->graphs[0]->nodes.count) return STATUS_OK;
    return status_set(STATUS_FAILED, "program: rank %d computes %zu operators, rank 0 %zu", own->place.rank,
                      (*graph)->nodes.count, proof->graphs[0]->nodes.count);
}

static enum status compile_others(struct proof *proof, const struct plan *plan, int ranks) {
    enum status status = STATUS_OK;
    for (int rank = 1; rank < ranks && status == STATUS_OK; rank++) {
        const struct graph *graph;
        struct plan own = *plan;
        own.place.rank = rank;
        status = find_graph(proof, &own, &graph);
        if (status == STATUS_OK)
            status = program_compile(graph, &own, &proof->step->workspace, NULL, &proof->programs[rank]);
    }
    return status;
}

static void free_others(struct proof *proof) {
    for (int rank = 1; rank < RANK_PROOF_MAX; rank++) {
        program_free(proof->programs[rank]);
        graph_free(proof->graphs[rank]);
    }
}

enum status rank_proof_make(const struct session *session, const struct program_set *set, const struct executable *step,
                            const struct plan *plan) {
    int ranks = rank_place_ranks(&plan->place);
    struct proof proof = {session, set, step, {step->graph}, {step->program}};
    if (!rank_proof_is_made(&plan->place)) return STATUS_OK;
    BUG_IF(plan->place.rank != 0, "rank %d proves the programs of all", plan->place.rank);
    enum status status = compile_others(&proof, plan, ranks);
    if (status == STATUS_OK)
        status = program_verify_ranks((const struct program *const *)proof.programs, ranks, &plan->recipe);
    free_others(&proof);
    return status;
}
