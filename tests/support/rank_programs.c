#include "support/rank_programs.h"

#include "base/mem.h"
#include "support/compile_proved.h"
#include "support/small_graph.h"

enum status rank_programs_compile(const struct graph *graph, const struct plan *plan, const int64_t *bytes,
                                  struct rank_programs *out) {
    struct workspace_table table = {.bytes = bytes, .count = (int)graph->nodes.count};
    enum status status = STATUS_OK;
    *out = (struct rank_programs){.count = rank_place_ranks(&plan->place), .plan = *plan};
    for (int r = 0; r < out->count && status == STATUS_OK; r++) {
        struct plan own = *plan;
        own.place.rank = r;
        status = program_compile_proved(graph, &own, &table, &out->programs[r]);
    }
    return status;
}

enum status rank_programs_compile_small(const struct graph *graph, const struct plan *plan, struct rank_programs *out) {
    int64_t *bytes = small_graph_workspace(graph);
    enum status status = rank_programs_compile(graph, plan, bytes, out);
    mem_free(bytes);
    return status;
}

void rank_programs_drop(struct rank_programs *ranks) {
    for (int r = 0; r < ranks->count; r++)
        program_free(ranks->programs[r]);
}

enum status rank_programs_verify(const struct rank_programs *ranks) {
    return program_verify_ranks((const struct program *const *)ranks->programs, ranks->count, &ranks->plan.recipe);
}

enum status rank_programs_prove(const struct graph *graph, const struct plan *plan, struct rank_programs *out) {
    TRY(rank_programs_compile_small(graph, plan, out));
    return rank_programs_verify(out);
}

enum status rank_programs_prove_subject(void *payload) {
    const struct rank_subject *subject = payload;
    struct rank_programs ranks;
    enum status status = rank_programs_compile(subject->graph, &subject->plan, subject->bytes, &ranks);
    if (status == STATUS_OK) status = rank_programs_verify(&ranks);
    rank_programs_drop(&ranks);
    return status;
}
