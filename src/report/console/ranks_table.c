#include "report/console/ranks_table.h"

#include "base/size.h"
#include "session/programs.h"

static void print_mesh(FILE *out, const struct rank_place *place) {
    const struct mesh *mesh = &place->mesh;
    fprintf(out, "\nranks     %d: %d node%s of %d", mesh_ranks(mesh), mesh->nodes, mesh->nodes == 1 ? "" : "s",
            mesh->per_node);
    if (rank_place_tensor_parallel(place) > 1) fprintf(out, "; tensor-parallel %d", rank_place_tensor_parallel(place));
    if (rank_place_pipeline_parallel(place) > 1)
        fprintf(out, "; %d pipeline stages (the first is shown)", rank_place_pipeline_parallel(place));
    fprintf(out, "\n");
}

static void print_bytes(FILE *out, const struct comm_traffic *traffic) {
    char within[SIZE_TEXT], across[SIZE_TEXT], read[SIZE_TEXT];
    fprintf(out, "  %-20s %s within its node, %s to other nodes; reads %s in shared memory\n", "one rank sends",
            size_print(traffic->sent[MESH_IN_NODE], within), size_print(traffic->sent[MESH_ACROSS], across),
            size_print(traffic->read, read));
}

static void print_proof(FILE *out, const struct rank_place *place) {
    fprintf(out, "  %-20s ", "verified");
    if (rank_proof_is_made(place))
        fprintf(out, "the programs of all ranks together\n");
    else
        fprintf(out, "the program of each rank by itself (all together: at most %d ranks)\n", RANK_PROOF_MAX);
}

static void print_certainty(FILE *out, const struct mesh *mesh, const struct cluster_links *links) {
    const struct mesh *measured = &links->mesh;
    if (measured->nodes == 0)
        fprintf(out, "  the times exclude communication, since no link rates are known: measure them there\n"
                     "  (mpirun -n N ballast profile -o FILE) and plan with --cluster FILE\n");
    else if (measured->nodes != mesh->nodes || measured->per_node != mesh->per_node)
        fprintf(out, "  extrapolated from link rates measured on %d node%s of %d\n", measured->nodes,
                measured->nodes == 1 ? "" : "s", measured->per_node);
}

void ranks_table_print(FILE *out, const struct rank_place *place, const struct step_summary *step,
                       const struct cluster_links *links) {
    if (rank_place_ranks(place) == 1) return;
    print_mesh(out, place);
    print_bytes(out, &step->traffic);
    print_proof(out, place);
    if (links->mesh.nodes > 0 && step->communication_s > 0)
        fprintf(out, "  %-20s %9.4f s, %.0f%% of it overlapped with compute\n", "communication", step->communication_s,
                100 * step->hidden_s / step->communication_s);
    print_certainty(out, &place->mesh, links);
}
